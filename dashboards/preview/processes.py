"""Programs that run for a while, each in a process group of its own that ends as a whole."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.1
_TAIL = 1500


class PreviewError(Exception):
    """What keeps the preview from being made, in one sentence."""


class Program:
    """A started program whose output goes to a file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=folder,
                start_new_session=True,
                pass_fds=pass_fds,
            )

    @property
    def pid(self) -> int:
        """The process, whose number is its group's, too."""
        return self._process.pid

    def text(self) -> str:
        """What it has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def tail(self) -> str:
        """The end of that."""
        return self.text()[-_TAIL:].strip()

    def code(self) -> int | None:
        """How it ended; nothing while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raise a PreviewError if it has ended."""
        code = self.code()
        if code is not None:
            raise PreviewError(f"{self.name} ended ({code}):\n{self.tail()}")

    def stop(self) -> None:
        """End the group: politely, and then not."""
        end_group(self._process.pid, self._process)


def end_group(pid: int, process: subprocess.Popen[bytes] | None = None) -> None:
    """End a process group and wait for it; nothing happens if there is none."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(pid, number)
        deadline = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < deadline:
            if process is not None:
                process.poll()
            if not _group_lives(pid):
                return
            time.sleep(_POLL_SECONDS)


def _group_lives(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def running(program: Program) -> Iterator[Program]:
    """A program that ends with the block."""
    try:
        yield program
    finally:
        program.stop()


def eventually[T](what: str, attempt: Callable[[], T | None], seconds: float) -> T:
    """Call ``attempt`` until it returns something true; a PreviewError at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        result = attempt()
        if result:
            return result
        if time.monotonic() >= deadline:
            raise PreviewError(f"{what}: not within {seconds:g} s.")
        time.sleep(_POLL_SECONDS)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
