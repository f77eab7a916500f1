"""Real Harbor jobs, started, interrupted, resumed and regraded by a test."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.deadline import eventually
from support.exporter import stopped
from support.harbor_local import SANDBOX, SCRIPTED
from support.harbor_local.gates import open_gate

type Script = Mapping[str, Sequence[str]]

_TESTS = Path(__file__).resolve().parent.parent
_REQUIRED = "HARBORLIGHT_REQUIRE_REAL_HARBOR"


def harbor_command() -> str | None:
    """The ``harbor`` of this interpreter's environment, else the one on PATH."""
    own = Path(sys.executable).with_name("harbor")
    return str(own) if own.exists() else shutil.which("harbor")


def harbor_environment(work: Path) -> dict[str, str]:
    """What Harbor needs to run jobs without containers, without a network, and below ``work``."""
    temporary = work / "tmp"  # a killed job leaves its sandboxes there
    temporary.mkdir(exist_ok=True)
    return {
        **os.environ,
        "HARBOR_TELEMETRY": "0",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "TMPDIR": str(temporary),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")])),
    }


def why_unavailable() -> str:
    """Why real jobs cannot run here, "" if they can."""
    if harbor_command() is None:
        return "harbor is not installed"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    probe = subprocess.run(
        ["bwrap", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "true"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return f"bubblewrap cannot run here: {probe.stderr.strip()}" if probe.returncode else ""


def must_be_available() -> bool:
    """Whether a missing Harbor is a failure rather than a skip (set in CI)."""
    return os.environ.get(_REQUIRED, "") not in {"", "0"}


class HarborJob:
    """One job directory and the Harbor process that works on it.

    ``work`` holds what the job needs beside its directory: the agent's script, the
    place in it, the gates, Harbor's output. Jobs of one test may share it. ``environment`` is
    added to Harbor's own.
    """

    def __init__(self, jobs_dir: Path, name: str, work: Path) -> None:
        self.jobs_dir = jobs_dir
        self.name = name
        self.work = work
        self.path = jobs_dir / name
        self.state = work / f"{name}.state"
        self.state.mkdir(parents=True, exist_ok=True)
        self.environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    # Starting

    def run(
        self,
        dataset: Path,
        *extra: str,
        script: Script | None = None,
        attempts: int = 1,
        concurrent: int = 4,
        model: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Self:
        """``harbor run`` over a dataset folder: the oracle, or the agent with that script.

        ``config`` is written to a job configuration file, for what has no option. A
        ``model`` makes every start slower: Harbor then loads its model libraries.
        """
        arguments = ["run", "-p", str(dataset), "-o", str(self.jobs_dir), "--job-name", self.name]
        arguments += ["-e", SANDBOX, "-k", str(attempts), "-n", str(concurrent), "-y"]
        if config is not None:
            file = self.work / f"{self.name}.config.json"
            file.write_text(json.dumps(config))
            arguments += ["-c", str(file)]
        if script is None:
            arguments += ["-a", "oracle"]
        else:
            file = self.work / f"{self.name}.script.json"
            file.write_text(json.dumps({name: list(entries) for name, entries in script.items()}))
            arguments += ["-a", SCRIPTED]
            arguments += ["--ak", f"script={file}", "--ak", f"state={self.state}"]
        if model is not None:
            arguments += ["-m", model]
        return self._start(*arguments, *extra)

    def resume(self, *error_types: str, plugins: Sequence[str] = ()) -> Self:
        """``harbor job resume``; trials with these exceptions (default: cancelled) run again."""
        arguments = ["job", "resume", "-p", str(self.path)]
        for name in error_types:
            arguments += ["-f", name]
        arguments += plugins
        return self._start(*arguments)

    def regrade(
        self, name: str, tasks: Path, *extra: str, env: Mapping[str, str] | None = None
    ) -> HarborJob:
        """``harbor job regrade``: a new job beside this one, with these tasks' verifiers.

        ``env`` is set for the verifiers.
        """
        job = HarborJob(self.jobs_dir, name, self.work)
        arguments = ["job", "regrade", str(self.path), "-p", str(tasks), "-e", SANDBOX]
        arguments += ["-o", str(self.jobs_dir), "--job-name", name]
        for key, value in (env or {}).items():
            arguments += ["--ve", f"{key}={value}"]
        return job._start(*arguments, *extra)

    def _start(self, *arguments: str) -> Self:
        command = harbor_command()
        assert command is not None, "harbor is not installed"
        assert self._process is None or self._process.poll() is not None, "it still runs"
        with self._output_file.open("ab") as output:
            self._process = subprocess.Popen(
                [command, *arguments],
                cwd=self.work,
                env=harbor_environment(self.work) | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    # Ending

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The Harbor process of the latest start."""
        assert self._process is not None, "the job was not started"
        return self._process

    @property
    def running(self) -> bool:
        """Whether that process has not ended."""
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout: float = 60.0, *, expect: int | None = 0) -> int:
        """Wait for the end; ``expect`` is the exit code it must have (None: any)."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"{self.name} did not end in {timeout:g} s:\n{self.output}"
            ) from None
        if expect is not None:
            assert code == expect, f"harbor exited {code}, not {expect}:\n{self.output}"
        return code

    def interrupt(self, timeout: float = 60.0) -> int:
        """Ctrl-C, and the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.wait(timeout, expect=None)

    def kill(self) -> None:
        """SIGKILL, between two writes of its result: Harbor cannot resume from a torn one.

        Sandboxes die with their parent.
        """
        if self.running:
            eventually(self._held_between_writes, 30.0, what="a whole result.json of the job")
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10.0)

    def _held_between_writes(self) -> bool:
        """Stop the process; let it go on where its result is half written."""
        self.process.send_signal(signal.SIGSTOP)
        eventually(lambda: stopped(self.process.pid) or not self.running, what="Harbor's stop")
        file = self.path / "result.json"
        try:
            if file.exists():
                json.loads(file.read_bytes())
        except ValueError:
            self.process.send_signal(signal.SIGCONT)
            return False
        return True

    def open_gate(self, gate: str) -> None:
        """Let the scripted agents pass that wait there."""
        open_gate(self.state, gate)

    def agent_calls(self) -> int:
        """How many executions the scripted agent has begun."""
        return sum(file.stat().st_size for file in self.state.glob("*.calls"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    # Reading what Harbor wrote

    @property
    def _output_file(self) -> Path:
        return self.work / f"{self.name}.output.txt"

    @property
    def output(self) -> str:
        """What Harbor printed, all starts together."""
        return self._output_file.read_text(errors="replace")

    def result(self) -> dict[str, Any]:
        """The job's ``result.json``, read until it is whole."""

        def read() -> dict[str, Any] | None:
            try:
                return dict(json.loads((self.path / "result.json").read_bytes()))
            except ValueError:
                return None

        result = eventually(read, 10.0, what=f"a readable result of {self.name}")
        assert result is not None
        return result

    def trials(self) -> list[Path]:
        """The trial directories that exist now."""
        return sorted(p for p in self.path.iterdir() if p.is_dir() and "__" in p.name)

    def trial_results(self) -> list[dict[str, Any]]:
        """The results of the trials that have one; for a job at rest."""
        files = [p / "result.json" for p in self.trials()]
        return [json.loads(f.read_bytes()) for f in files if f.exists()]
