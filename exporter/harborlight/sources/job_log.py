"""What a job's log tells of the executions that Harbor deleted: its lines on retries.

Harbor removes a failed trial's directory and logs the trial's name, the types of its exceptions
and when it tries again. The lines have no time, and nothing else of the log is looked at.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from harborlight.sources.harbor_files import MAX_NAME_LENGTH, exception_name
from harborlight.sources.tail import Tail

_LINE: Final = re.compile(
    rb"Trial (\S+) failed with exception ([^:]*)\. Retrying in [0-9.]+ seconds\.\.\."
)
_MAX_LINE_BYTES: Final = 16 * 1024
_MOST_PENDING: Final = 100_000
"""Lines kept that nobody can tell the task of: more are no retries of Harbor's."""


@dataclass(frozen=True, slots=True)
class LoggedRetry:
    """The ``number``-th execution (from 1) of a trial, which failed and was retried.

    ``seen``: when its line was first read, in seconds since the epoch.
    """

    trial: str
    number: int
    exceptions: tuple[str, ...]
    seen: float


class JobLog:
    """One job's log, as far as it was read.

    ``pending``: what is still to be taken, in the log's order; ``taken``: how many were.
    """

    def __init__(self, job_directory: str) -> None:
        self._tail = Tail(f"{job_directory}/job.log", _MAX_LINE_BYTES)
        self._beginnings = 0
        self._numbers: Counter[str] = Counter()
        self.pending: list[LoggedRetry] = []
        self.taken = 0

    def read_on(self, now: float) -> None:
        """Add the retries logged since to those that are pending; ``now`` in epoch seconds."""
        for line in self._tail.read_on():
            if self._tail.beginnings != self._beginnings:
                self._beginnings = self._tail.beginnings
                self._numbers.clear()
                self.pending, self.taken = [], 0
            found = _LINE.fullmatch(line) if line.endswith(b" seconds...") else None
            if found is None or len(found[1]) > MAX_NAME_LENGTH:
                continue
            trial = found[1].decode("utf-8", "replace")
            self._numbers[trial] += 1
            kinds = found[2].decode("utf-8", "replace").split(", ")
            exceptions = tuple(dict.fromkeys(map(exception_name, kinds)))
            if len(self.pending) < _MOST_PENDING:
                self.pending.append(LoggedRetry(trial, self._numbers[trial], exceptions, now))
