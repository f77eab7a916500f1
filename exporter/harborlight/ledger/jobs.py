"""What is known of a job, and the state that follows from it (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from harborlight.records import JobRecord


class JobState(StrEnum):
    """Whether somebody is still working on a job. ``UNKNOWN`` counts as live."""

    LIVE = "live"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    UNKNOWN = "unknown"

    @property
    def ended(self) -> bool:
        return self in (JobState.FINISHED, JobState.CANCELLED, JobState.INTERRUPTED)


class Job(msgspec.Struct, frozen=True):
    """A job in the ledger: its record, and what was observed from outside.

    ``held``: somebody works on it: a process has its log open for writing, or a server says so
    (None: cannot be told). ``held_by``: what each source says of that which has the job now.
    ``gone``: the process that the recorder named is no longer there.
    ``seen_held``: it was held at some earlier look, since the last end. ``local``: its processes
    run on this host, so that nobody holding the log is evidence. ``names`` are all the directory
    names it ever had. ``origin`` tells its directories apart without naming them.
    ``retries_counted_for``: how many of ``retries_seen`` are in the counter of each account;
    ``retries_counted``: in that of the only one, from before these were told apart.
    """

    record: JobRecord
    label: str
    names: frozenset[str] = frozenset()
    held: bool | None = None
    held_by: dict[str, bool | None] = {}
    gone: bool = False
    seen_held: bool = False
    local: bool = False
    present: bool = True
    resumable: bool = True
    unreadable_files: int = 0
    last_change: float | None = None
    retries_seen: int = 0
    retries_counted: int = 0
    retries_counted_for: dict[str, int] = {}
    origin: str = ""

    @property
    def state(self) -> JobState:
        """The job's state, from its last consistent file and from who holds its log."""
        record = self.record
        if record.finished_at is not None:
            return JobState.FINISHED
        if self.held:
            return JobState.LIVE
        if record.n_cancelled > 0 and record.n_running == 0:
            return JobState.CANCELLED
        if self.gone or (self.held is False and (self.seen_held or self.local)):
            return JobState.INTERRUPTED
        return JobState.UNKNOWN

    @property
    def started(self) -> float:
        """When the job was made, for putting jobs in order."""
        return self.record.made


def somebody_holds(said: Iterable[bool | None]) -> bool | None:
    """Whether a job is held, by all who were asked.

    One who sees it is enough; that nobody does, all have to say.
    """
    answers = set(said)
    if True in answers:
        return True
    return False if answers == {False} else None


def will_retry(exceptions: tuple[str, ...], record: JobRecord) -> bool:
    """Whether Harbor may retry a trial with these exceptions.

    Harbor's rule: all of them must be retryable (not excluded, and included where the job names
    inclusions). How many retries a trial has had is not recorded.
    """
    if not exceptions or record.max_retries <= 0:
        return False
    included = record.retry_include
    return all(
        name not in record.retry_exclude and (included is None or name in included)
        for name in exceptions
    )
