"""A Harbor server in this process: its lists, pages and answers, and whatever else a test wants."""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, override
from uuid import UUID

API_VERSION = "2026-10-30"
AGENT, MODEL = "some.module:Agent", "provider/model"
DIGEST = "sha256:" + "1" * 64
START = 1_796_000_000.0
"""The server's clock at the beginning; every change takes a second."""

type Answer = tuple[int, bytes]


def uid(number: int) -> str:
    """An id, as Harbor's are."""
    return str(UUID(int=number))


class FakeHarbor:
    """Jobs and rollouts that a test drives, served as Harbor 0.26 serves them.

    ``instead``: answers in the place of those for a path (or for a path and query). ``asked``: the
    paths with their queries. ``hidden``: rollouts that the list by last change leaves out.
    """

    def __init__(self, key: str | None = None) -> None:
        self.key = key
        self.jobs: dict[str, dict[str, Any]] = {}
        self.rollouts: dict[str, dict[str, Any]] = {}
        self.results: dict[str, Any] = {}
        self.configs: dict[str, Any] = {}
        self.instead: dict[str, Callable[[], Answer]] = {}
        self.asked: list[str] = []
        self.methods: set[str] = set()
        self.headers: list[Mapping[str, str]] = []
        self.hidden: set[str] = set()
        self.now = START
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    # What the server does.

    def submit(
        self, *tasks: str, name: str = "job", job: int = 1, agent: str = AGENT, **config: Any
    ) -> str:
        """A new job with one rollout a task; its id. Rollouts have the tasks' names."""
        job_id = uid(job)
        agents = [{"import_path": agent, "model_name": MODEL}]
        self.configs[job_id] = {"n_attempts": 1, "agents": agents, **config}
        self.jobs[job_id] = {"id": job_id, "name": name, "cancelled": False, **self._made()}
        for task in tasks:
            self._add(job_id, task, [])
        return job_id

    def _made(self) -> dict[str, Any]:
        at = self._tick()
        return {"created_at": at, "updated_at": at, "started_at": None, "finished_at": None}

    def _tick(self) -> str:
        self.now += 1.0
        return datetime.fromtimestamp(self.now, UTC).isoformat()

    def _add(self, job_id: str, task: str, older: list[str]) -> str:
        rollout_id = uid(int(UUID(job_id)) * 100_000 + len(self.rollouts) + 1)
        chain = [rollout_id, *older]
        config = self.configs[job_id]["agents"][0]
        self.rollouts[rollout_id] = {
            "id": rollout_id,
            "job_id": job_id,
            "name": f"{task}__abcdefg",
            "state": "queued",
            "phase": None,
            "task": {"name": task, "digest": DIGEST, "source": "set"},
            "agent": {"name": config["import_path"], "version": None},
            "model": {"name": config["model_name"], "provider": None, "reasoning_effort": None},
            "rewards": None,
            "usage": {},
            "error_type": None,
            **self._made(),
        }
        for one in chain:
            self.rollouts[one]["retry_ids"] = chain
        return rollout_id

    def find(self, task: str) -> dict[str, Any]:
        """The newest rollout of a task."""
        return [r for r in self.rollouts.values() if r["task"]["name"] == task][-1]

    def change(self, task: str, **fields: Any) -> dict[str, Any]:
        """Change the task's newest rollout."""
        rollout = self.find(task)
        rollout.update(fields, updated_at=self._tick())
        job = self.jobs[rollout["job_id"]]
        job["updated_at"] = rollout["updated_at"]
        return rollout

    def start(self, task: str, phase: str | None = None) -> dict[str, Any]:
        return self.change(task, state="running", phase=phase, started_at=self._tick())

    def end(
        self,
        task: str,
        reward: float | None = None,
        error: str | None = None,
        state: str = "finished",
        **result: Any,
    ) -> dict[str, Any]:
        """It ends with a result; a reward is valid beside any error that Harbor does not know."""
        rollout = self.find(task)
        if rollout["started_at"] is not None:
            self.results[rollout["id"]] = self._result(rollout, reward, error) | result
        self.now += 1.0
        rewards = None if reward is None else {"reward": reward}
        return self.change(
            task,
            state=state,
            phase=None,
            finished_at=self._tick(),
            rewards=rewards,
            error_type=error,
            usage={"n_input_tokens": 10, "cost_usd": 0.5},
        )

    def retry(self, task: str) -> str:
        """Another rollout of the task's trial, queued."""
        before = self.find(task)
        return self._add(before["job_id"], task, list(before["retry_ids"]))

    def _result(
        self, rollout: Mapping[str, Any], reward: float | None, error: str | None
    ) -> dict[str, Any]:
        exception = {"exception_type": error, "exception_message": "canary-message"}
        phase = {"started_at": rollout["started_at"], "finished_at": self._tick()}
        return {
            "id": rollout["id"],
            "task_name": rollout["task"]["name"],
            "trial_name": rollout["name"],
            "trial_uri": "file:///canary/path",
            "source": "set",
            "config": {
                "task": {"path": f"/canary/path/{rollout['task']['name']}", "source": "set"},
                "trial_name": rollout["name"],
                "agent": {
                    **self.configs[rollout["job_id"]]["agents"][0],
                    "env": {"X": "canary-env"},
                },
                "job_id": rollout["job_id"],
            },
            "agent_info": {
                "name": "agent",
                "version": "1.0",
                "model_info": {"name": rollout["model"]["name"]},
            },
            "agent_result": {
                "n_input_tokens": 10,
                "n_cache_tokens": 0,
                "n_output_tokens": 5,
                "cost_usd": 0.5,
                "metadata": {"said": "canary-prompt"},
            },
            "verifier_result": None if reward is None else {"rewards": {"reward": reward}},
            "exception_info": exception if error else None,
            "started_at": rollout["started_at"],
            "finished_at": self._tick(),
            "environment_setup": phase,
            "agent_execution": phase,
            "verifier": phase if reward is not None else None,
        }

    # What it answers.

    def summary(self, job_id: str) -> dict[str, Any]:
        """The job as the list of jobs has it."""
        job = self.jobs[job_id]
        rollouts = [r for r in self.rollouts.values() if r["job_id"] == job_id]
        states = ("queued", "running", "paused", "cancelling", "cancelled", "finished")
        counts = {f"n_{s}": sum(r["state"] == s for r in rollouts) for s in states}
        alive = [s for s in ("cancelling", "running", "queued", "paused") if counts[f"n_{s}"]]
        ended = "cancelled" if job["cancelled"] else "finished"
        starts = [r["started_at"] for r in rollouts if r["started_at"]]
        return {
            **{key: value for key, value in job.items() if key != "cancelled"},
            "state": alive[0] if alive else ended,
            "started_at": min(starts, default=None),
            "finished_at": None if alive else job["updated_at"],
            "rollouts": {"n_total": len(rollouts), **counts},
            "n_retries": sum(r["retry_ids"][-1] != r["id"] for r in rollouts),
        }

    def answer(self, target: str) -> Answer:
        """The answer to a GET."""
        url = urllib.parse.urlsplit(target)
        query = urllib.parse.parse_qs(url.query)
        made = self.instead.get(target) or self.instead.get(url.path)
        if made is not None:
            return made()
        if url.path == "/jobs":
            return self._page([self.summary(job_id) for job_id in self.jobs], query)
        if url.path == "/rollouts":
            found = list(self.rollouts.values())
            if "states" in query:
                found = [r for r in found if r["state"] in query["states"]]
            if query.get("sort") == ["-updated_at"]:
                found = [r for r in found if r["id"] not in self.hidden]
                found.sort(key=lambda r: str(r["updated_at"]), reverse=True)
            return self._page(found, query)
        kind, _, found_id = url.path.lstrip("/").partition("/")
        if kind == "jobs" and found_id in self.jobs:
            config = {"kwargs": "canary-kwargs", **self.configs[found_id]}
            return _json({"job": {**self.summary(found_id), "config": config}})
        if kind == "rollouts" and found_id in self.rollouts:
            more = {"lock": "canary-lock", "result": self.results.get(found_id)}
            return _json({"rollout": {**self.rollouts[found_id], **more}})
        return problem(404)

    @staticmethod
    def _page(entries: list[dict[str, Any]], query: Mapping[str, list[str]]) -> Answer:
        size = min(int(query.get("page_size", ["50"])[0]), 100)
        at = int(query.get("page_token", ["0"])[0])
        token = str(at + size) if at + size < len(entries) else ""
        page = {"items": entries[at : at + size], "total": len(entries), "next_page_token": token}
        return _json(page)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake.asked.append(self.path)
                fake.methods.add(self.command)
                fake.headers.append(dict(self.headers))
                status, body = fake.answer(self.path)
                if fake.key and self.headers.get("Authorization") != f"Bearer {fake.key}":
                    status, body = problem(401)
                if self.headers.get("Harbor-API-Version") != API_VERSION:
                    status, body = problem(400)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            @override
            def log_message(self, *_: object) -> None:
                """Nothing is said on standard error."""

        return Handler

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def _json(value: Any) -> Answer:
    return 200, json.dumps(value).encode()


def problem(status: int) -> Answer:
    """An error as Harbor says it."""
    detail = {"type": "about:blank", "title": "x", "status": status, "detail": "canary-detail"}
    return status, json.dumps(detail).encode()
