"""A real ``harbor serve``, and jobs submitted to it by a test."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import requests

from support.deadline import eventually
from support.harbor import Script, harbor_command
from support.harbor_local import SANDBOX, SCRIPTED
from support.harbor_local.gates import open_gate

_TESTS = Path(__file__).resolve().parent.parent
START_SECONDS = 60.0


class HarborServer:
    """One server on a port of its own, which it keeps over restarts. ``work``: a folder."""

    def __init__(self, work: Path, *, key: str | None = None) -> None:
        self.work = work
        self.state = work / "state"
        self.data = work / "data"
        self._key = key
        self.state.mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = work / "harbor-serve.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it on its data directory and wait until it answers."""
        command = harbor_command()
        assert command is not None, "harbor is not installed"
        temporary = self.work / "tmp"  # a killed server leaves its sandboxes there
        temporary.mkdir(exist_ok=True)
        env = {
            **os.environ,
            "HARBOR_TELEMETRY": "0",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "TMPDIR": str(temporary),
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")])
            ),
        }
        if self._key is not None:
            env["HARBOR_API_KEY"] = self._key
        arguments = ["serve", "--data-dir", str(self.data), "--port", str(self.port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [command, *arguments],
                cwd=self.work,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            eventually(self._answers, START_SECONDS, what="the server's start")
        except (TimeoutError, RuntimeError) as error:
            self.kill()
            raise AssertionError(f"{error}\n{self._log.read_text()[-3000:]}") from error
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"harbor serve exited {self._process.returncode}")
        self.get("/jobs")
        return True

    def kill(self) -> None:
        """SIGKILL; sandboxes die with their parent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    # Asking

    def get(self, path: str) -> Any:
        """The answer to a GET."""
        return self._answer(requests.get(f"{self.url}{path}", headers=self._headers, timeout=30))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer to a POST."""
        url = f"{self.url}{path}"
        return self._answer(requests.post(url, json=body, headers=self._headers, timeout=60))

    def try_post(self, path: str) -> bool:
        """Whether a POST is taken now; a conflict with what is still being done is not yet."""
        try:
            self.post(path)
        except requests.HTTPError as error:
            if error.response.status_code != requests.codes.conflict:
                raise
            return False
        return True

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    @staticmethod
    def _answer(response: requests.Response) -> Any:
        with response:
            if not response.ok:
                raise requests.HTTPError(response.text, response=response)
            return response.json()

    def submit(
        self,
        name: str,
        dataset: Path,
        script: Script,
        *,
        attempts: int = 1,
        concurrent: int = 4,
        **config: Any,
    ) -> str:
        """Submit a job of the scripted agent, and return its id."""
        file = self.work / f"{name}.script.json"
        file.write_text(json.dumps({task: list(entries) for task, entries in script.items()}))
        agent = {"script": str(file), "state": str(self.state)}
        body = {
            "job_name": name,
            "datasets": [{"path": str(dataset)}],
            "n_attempts": attempts,
            "n_concurrent_trials": concurrent,
            "environment": {"import_path": SANDBOX},
            "agents": [{"import_path": SCRIPTED, "kwargs": agent}],
            "skip_credential_checks": True,
            **config,
        }
        return str(self.post("/jobs/submit", {"config": body})["job_id"])

    def job(self, job_id: str) -> dict[str, Any]:
        """The job as it stands, with its configuration."""
        return dict(self.get(f"/jobs/{job_id}")["job"])

    def rollouts(self, job_id: str) -> Sequence[dict[str, Any]]:
        """The job's rollouts, at most 100."""
        found: Sequence[dict[str, Any]] = self.get(f"/rollouts?job_ids={job_id}&page_size=100")[
            "items"
        ]
        return found

    def wait(self, job_id: str, *states: str, timeout: float = 60.0) -> None:
        """Until the job is in one of the states (none given: finished)."""
        eventually(
            lambda: self.job(job_id)["state"] in (states or ("finished",)),
            timeout,
            what=f"{states} of the job",
        )

    def open_gate(self, gate: str) -> None:
        """Let the scripted agents pass that wait there."""
        open_gate(self.state, gate)

    def download(self, job_id: str, jobs: Path) -> Path:
        """The job as a job directory with its latest executions, as a download leaves it."""
        job = self.job(job_id)
        target = jobs / str(job["name"])
        target.mkdir(parents=True)
        files = self.data / "files"
        shutil.copy(files / "jobs" / job_id / "lock.json", target)
        (target / "config.json").write_text(json.dumps(job["config"]))
        rollouts = self.rollouts(job_id)
        latest = [r for r in rollouts if r["id"] == r["retry_ids"][0]]
        for rollout in latest:
            kept = files / "rollouts" / rollout["id"] / rollout["name"]
            shutil.copytree(kept, target / rollout["name"])
        result = {
            "id": job_id,
            "started_at": job["started_at"],
            "updated_at": job["updated_at"],
            "finished_at": job["finished_at"],
            "n_total_trials": len(latest),
            "stats": {"n_completed_trials": len(latest), "n_retries": job["n_retries"]},
        }
        (target / "result.json").write_text(json.dumps(result))
        return target
