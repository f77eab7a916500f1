"""The recorder with a clock at each of its hooks; Harbor imports it by path."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, override

from harborlight.recorder import Recorder

if TYPE_CHECKING:
    from harbor.job import Job
    from harbor.models.job.result import JobResult
    from harbor.trial.hooks import TrialHookEvent

SECONDS_FILE = "hook-seconds.json"


class TimedRecorder(Recorder):
    """Writes how long each hook took beside the recording, when the job is over."""

    def __init__(self) -> None:
        super().__init__()
        self._seconds: list[float] = []
        self._place = Path()

    @override
    async def on_job_start(self, job: Job) -> None:
        self._place = Path(job.job_dir) / SECONDS_FILE
        await super().on_job_start(job)

    @override
    async def _on_event(self, event: TrialHookEvent) -> None:
        started = time.perf_counter()
        await super()._on_event(event)
        self._seconds.append(time.perf_counter() - started)

    @override
    async def on_job_end(self, job_result: JobResult) -> None:
        await super().on_job_end(job_result)
        self._place.write_text(json.dumps(self._seconds))
