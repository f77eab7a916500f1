"""What the recorder wrote into a job's directory, read as it grows.

The recorder appends whole lines; only a crash or a full disk leaves one without its end, and the
next recording begins on a new line. Whatever line cannot be read is left out, the rest counts.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec
from msgspec.structs import replace

from harborlight.process_identity import Identity, lives
from harborlight.recorder import FILE_NAME, FORMAT, MAX_LINE_BYTES
from harborlight.records import TrialRecord
from harborlight.sources.harbor_files import FileError, read_trial_result
from harborlight.sources.tail import Tail

_START_SECONDS: Final = 60.0
"""The recording begins at most so long before Harbor writes the job's configuration."""

_PHASES: Final = {
    "start": "environment",
    "environment-start": "environment",
    "agent-start": "agent",
    "verification-start": "verifier",
}


class _Event(msgspec.Struct):
    v: int
    at: float
    event: str
    trial: str = ""
    id: str = ""
    digest: str | None = None
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
        self.process: Identity | None = None
        self.last = 0.0
        self.phases: dict[str, tuple[str, float]] = {}
        self.ended: Counter[str] = Counter()

    def read_on(self) -> list[TrialRecord]:
        """The executions that ended since the last look, in the recorder's order.

        Their job's name and what only the directory tells are not in them.
        """
        records = []
        for line in self._tail.read_on():
            try:
                event = _event.decode(line)
            except (msgspec.DecodeError, RecursionError, ValueError):
                continue
            if event.v == FORMAT:
                self.last = max(self.last, event.at)
                record = self._take(event)
                if record is not None:
                    records.append(record)
        return records

    def dead_since(self, incarnation: float | None) -> bool:
        """Whether the process that works on the job is known to be gone.

        ``incarnation``: when the job was last started or resumed; later than what was recorded, it
        was by another process, without the recorder.
        """
        if self.process is None or (incarnation or 0.0) > self.last + _START_SECONDS:
            return False
        return lives(self.process) is False

    def _take(self, event: _Event) -> TrialRecord | None:
        match event.event:
            case "job-start":
                self.phases.clear()
                self.process = Identity(
                    boot=event.boot,
                    namespace=event.namespace,
                    pid=event.pid,
                    started=event.started,
                )
            case "job-end":
                self.phases.clear()
                self.process = None
            case "end":
                self.phases.pop(event.trial, None)
                self.ended[event.trial] += 1
                return _record(event)
            case kind if kind in _PHASES:
                self.phases[event.trial] = (_PHASES[kind], event.at)
        return None


def _record(event: _Event) -> TrialRecord | None:
    try:
        record = read_trial_result(bytes(event.result), int(event.at * 1e9))
    except (FileError, OverflowError, ValueError):
        return None
    return replace(record, digest=event.digest)
