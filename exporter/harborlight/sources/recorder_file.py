"""What the recorder wrote into a job's directory, read as it grows.

The recorder appends whole lines; only a crash or a full disk leaves one without its end, and the
next recording begins on a new line. Whatever line cannot be read is left out, the rest counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from harborlight.process_identity import Identity, lives
from harborlight.recorder import FILE_NAME, FORMAT, MAX_LINE_BYTES
from harborlight.records import TrialRecord
from harborlight.sources.harbor_files import (
    MAX_ID_LENGTH,
    FileError,
    read_trial_config,
    read_trial_result,
)
from harborlight.sources.tail import Tail

_START_SECONDS: Final = 60.0
"""The recording begins at most so long before Harbor writes the job's configuration."""

_PHASES: Final = {
    "start": "environment",
    "environment-start": "environment",
    "agent-start": "agent",
    "verification-start": "verifier",
}


_LATEST: Final = 253_402_300_799
"""The last second of the year 9999: beyond it there is no date."""


class _Event(msgspec.Struct):
    v: int
    at: Annotated[float, msgspec.Meta(ge=0, le=_LATEST)]
    event: str
    trial: str = ""
    id: str = ""
    digest: str | None = None
    config: msgspec.Raw = msgspec.Raw(b"")
    result: msgspec.Raw = msgspec.Raw(b"")
    boot: str = ""
    namespace: str = ""
    pid: int = 0
    started: int = 0


_event = msgspec.json.Decoder(_Event)


class RecorderFile:
    """One job's file, as far as it was read.

    ``process``: the Harbor process that wrote last, None where its job ended well; ``last``: when
    it last wrote something. ``phases``: of each open trial by its name, and since when.
    ``ended``: how many executions of each trial came to their end.
    """

    def __init__(self, job_directory: str) -> None:
        self._tail = Tail(f"{job_directory}/{FILE_NAME}", MAX_LINE_BYTES)
        self._beginnings = 0
        self.process: Identity | None = None
        self.last = 0.0
        self._only_begun = False
        self.phases: dict[str, tuple[str, float]] = {}
        self.ended: Counter[str] = Counter()
        self._open: dict[str, _Event] = {}

    def read_on(self) -> list[TrialRecord]:
        """The executions that ended since the last look, in the recorder's order.

        Those whose process died ended with the next recording of their job.

        Their job's name and what only the directory tells are not in them.
        """
        records: list[TrialRecord] = []
        for line in self._tail.read_on():
            if self._tail.beginnings != self._beginnings:
                self._begin_anew()
            try:
                event = _event.decode(line)
            except (msgspec.DecodeError, RecursionError, ValueError):
                continue
            if event.v == FORMAT:
                self.last = max(self.last, event.at)
                self._only_begun = event.event == "job-start"
                records += self._take(event)
        return records

    def _begin_anew(self) -> None:
        """Forget what another file told: a mirror, say, replaces it by the same one, grown."""
        self._beginnings = self._tail.beginnings
        self.process, self.last = None, 0.0
        for told in (self.phases, self.ended, self._open):
            told.clear()

    def dead_since(self, incarnation: float | None) -> bool:
        """Whether the process that works on the job is known to be gone.

        ``incarnation``: when the job was last started or resumed; later than what was recorded, it
        was by another process, without the recorder.
        """
        if self.process is None or self._was_resumed(incarnation):
            return False
        return lives(self.process) is False

    def left_behind(self, incarnation: float | None, standing: Container[str]) -> list[TrialRecord]:
        """The executions that died with their process, if another resumed the job unrecorded.

        That removed their directories. ``standing``: the names of those that are there, which tell
        a resume from a copy.
        """
        if incarnation is None or not self._open or not self._was_resumed(incarnation):
            return []
        if self.process is None or lives(self.process) or any(n in standing for n in self._open):
            return []
        return list(self._interrupted(incarnation))

    def _was_resumed(self, incarnation: float | None) -> bool:
        """Whether the job was started by a later process, without the recorder."""
        # Trials begin after their job's configuration is written.
        written = self.last + (_START_SECONDS if self._only_begun else 0.0)
        return (incarnation or 0.0) > written

    def _take(self, event: _Event) -> Iterator[TrialRecord]:
        match event.event:
            case "job-start":
                yield from self._interrupted(event.at)
                self.process = Identity(
                    boot=event.boot,
                    namespace=event.namespace,
                    pid=event.pid,
                    started=event.started,
                )
            case "job-end":
                self.phases.clear()
                self._open.clear()
                self.process = None
            case "end":
                self.phases.pop(event.trial, None)
                self._open.pop(event.trial, None)
                self.ended[event.trial] += 1
                yield from _records(event)
            case kind if kind in _PHASES:
                self.phases[event.trial] = (_PHASES[kind], event.at)
                if kind == "start":
                    self._open[event.trial] = event

    def _interrupted(self, resumed_at: float) -> Iterator[TrialRecord]:
        """The executions that an earlier process began and did not end."""
        begun, self._open = self._open, {}
        phases, self.phases = self.phases, {}
        for name, event in begun.items():
            self.ended[name] += 1
            if not 0 < len(event.id) <= MAX_ID_LENGTH:
                continue
            try:
                record = read_trial_config(bytes(event.config))
                yield replace(
                    record,
                    execution=event.id,
                    digest=event.digest,
                    started_at=event.at,
                    phase=phases[name][0],
                    interrupted=True,
                    mtime_ns=int(resumed_at * 1e9),
                )
            except (FileError, OverflowError):
                continue


def _records(event: _Event) -> Iterator[TrialRecord]:
    try:
        record = read_trial_result(bytes(event.result), int(event.at * 1e9))
    except (FileError, OverflowError, ValueError):
        return
    yield replace(record, digest=event.digest)
