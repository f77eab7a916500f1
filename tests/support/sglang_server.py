"""A real SGLang server on this machine's processor, with a made-up model."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import requests

from support.deadline import eventually

HERE = Path(__file__).resolve().parents[1] / "sglang"
VENV = Path(os.environ.get("HARBORLIGHT_SGLANG_VENV", HERE.parents[1] / ".venv-sglang")).absolute()
CAPACITY = 4096
"""Tokens that the KV cache of one data-parallel rank has room for."""

START_SECONDS = 300.0


class RealServer:
    """One server on a port of its own, which it keeps over restarts. ``work``: a folder."""

    def __init__(self, work: Path, *flags: str, env: Mapping[str, str] | None = None) -> None:
        self._work = work
        self._flags = flags
        self._env = dict(env or {})
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = work / f"sglang-{self.port}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it and wait until it takes requests."""
        model = self._work / "model"
        python = str(VENV / "bin/python")
        if not model.exists():
            subprocess.run([python, str(HERE / "make_model.py"), str(model)], check=True)
        arguments = [python, "-m", "sglang.launch_server", "--model-path", str(model)]
        arguments += ["--served-model-name", "tiny", "--device", "cpu", "--load-format", "dummy"]
        arguments += ["--host", "127.0.0.1", "--port", str(self.port)]
        arguments += ["--max-total-tokens", str(CAPACITY), "--mem-fraction-static", "0.3"]
        arguments += ["--attention-backend", "torch_native", "--disable-cuda-graph"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*arguments, *self._flags],
                cwd=self._work,
                env={**os.environ, "PYTHONPATH": str(HERE / "stubs"), **self._env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            eventually(self._ready, START_SECONDS, interval=0.5, what="the server's start")
        except (TimeoutError, RuntimeError) as error:
            self.stop()
            raise AssertionError(f"{error}\n{self._log.read_text()[-3000:]}") from error
        return self

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the latest start."""
        assert self._process is not None, "the server was not started"
        return self._process

    def _ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the server exited {self.process.returncode}")
        return b"ready to roll" in self._log.read_bytes()

    def schedulers(self) -> list[int]:
        """The process ids of its schedulers."""
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdecimal() and self._is_scheduler(entry)
        ]

    def _is_scheduler(self, entry: Path) -> bool:
        try:
            title = (entry / "cmdline").read_bytes()
            return b"sglang::scheduler" in title and os.getsid(int(entry.name)) == self.process.pid
        except OSError:
            return False

    def signal_schedulers(self, number: signal.Signals) -> None:
        """Freeze (SIGSTOP), thaw (SIGCONT) or kill the schedulers alone."""
        found = self.schedulers()
        assert found, "no scheduler was found"
        for pid in found:
            os.kill(pid, number)

    def loads(self, key: str | None = None) -> list[dict[str, Any]]:
        """The rows of ``/v1/loads``, one a data-parallel rank."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        answer = requests.get(f"{self.url}/v1/loads", headers=headers, timeout=10)
        answer.raise_for_status()
        rows: list[dict[str, Any]] = answer.json()["loads"]
        return rows

    def sums(self) -> tuple[int, int, int]:
        """Running and queued requests and used tokens, all ranks together."""
        rows = self.loads()
        names = ("num_running_reqs", "num_waiting_reqs", "num_used_tokens")
        running, queued, used = (sum(row[name] for row in rows) for name in names)
        return running, queued, used

    def stop(self) -> None:
        """SIGKILL to the server and all its processes."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class Load:
    """Requests that run at once, every second one streamed; each asks for ``tokens`` tokens."""

    def __init__(self, server: RealServer, n: int, tokens: int, key: str | None = None) -> None:
        self._server, self._tokens, self._key = server, tokens, key
        self._pool = ThreadPoolExecutor(n)
        self._answers: Sequence[Future[int]] = [
            self._pool.submit(self._ask, bool(number % 2)) for number in range(n)
        ]

    def _ask(self, stream: bool) -> int:
        """The number of prompt tokens; -1 for a request that was cut off."""
        sampling = {"max_new_tokens": self._tokens, "ignore_eos": True, "temperature": 0}
        try:
            answer = requests.post(
                f"{self._server.url}/generate",
                json={"text": "hello world", "sampling_params": sampling, "stream": stream},
                headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
                timeout=600,
            )
            answer.raise_for_status()
        except requests.RequestException:
            return -1
        text = answer.text
        if stream:
            events = [line for line in text.splitlines() if line.startswith("data: {")]
            text = events[-1].removeprefix("data: ")
        used: int = json.loads(text)["meta_info"]["prompt_tokens"]
        return used

    def wait(self) -> list[int]:
        """What all requests returned."""
        answers = [answer.result(600) for answer in self._answers]
        self._pool.shutdown()
        return answers
