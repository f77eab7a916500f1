"""A replayed job that goes on by itself while a test does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Self

from harborlight.demo.replay import JobReplay, State
from harborlight.demo.script import Event, JobOptions, TrialScript
from support.deadline import eventually


class Replaying:
    """One job directory that is written at ``speed`` script seconds a second.

    ``serve`` hears how many trials run whenever that changes.
    """

    def __init__(
        self,
        jobs: Path,
        name: str,
        scripts: Iterable[TrialScript],
        speed: float,
        *,
        concurrency: int = 6,
        max_retries: int = 0,
        serve: Callable[[int], None] = lambda trials: None,
        epoch: datetime | None = None,
    ) -> None:
        self.replay = JobReplay(
            jobs,
            name,
            scripts,
            concurrency=concurrency,
            max_retries=max_retries,
            options=JobOptions(outputs=False, min_wait_seconds=60.0),
            epoch=epoch,
            listener=self._hear,
        )
        self.name = name
        self.started: list[str] = []
        """Trials that have started, in order."""
        self.running: set[str] = set()
        """Trials whose execution has not ended."""
        self.ended = 0
        """Executions that have ended."""
        self._speed = speed
        self._serve = serve
        self._halt = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"replay {name}")
        self._done: Future[State] | None = None

    def _hear(self, event: Event) -> None:
        if event.kind == "trial_started":
            self.started.append(event.trial or "")
            self.running.add(event.trial or "")
        if event.kind == "trial_ended":
            self.running.discard(event.trial or "")
        self.ended += event.kind == "trial_ended"
        self._serve(self.replay.n_running)

    def start(self) -> Self:
        """Let it go on."""
        self._halt.clear()
        self._done = self._pool.submit(self.replay.run, self._speed, until=self._halt.is_set)
        return self

    def wait(self, timeout: float) -> State:
        """Until it has ended; how."""
        assert self._done is not None, "it was not started"
        return self._done.result(timeout)

    def wait_for(self, executions: int, timeout: float) -> None:
        """Until so many executions have ended."""
        eventually(
            lambda: self.ended >= executions, timeout, what=f"{executions} ends in {self.name}"
        )

    def kill(self) -> None:
        """As kill -9: whatever it holds open is let go, nothing is written any more."""
        self._halt.set()
        self.wait(30.0)
        self.replay.kill()
        self._serve(0)

    def close(self) -> None:
        """As Ctrl-C, if it still runs."""
        self.replay.stop()
        if self._done is not None:
            self.wait(30.0)
        self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
