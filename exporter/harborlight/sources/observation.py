"""What one look at a source brought: the language between sources and ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harborlight.readings import ReplicaSighting
from harborlight.records import JobRecord, TrialRecord


@dataclass(frozen=True, slots=True)
class JobSighting:
    """A job as it stood at one look.

    ``names``: the names of all its directories. ``held``: a process writes its log, or a server
    works on it (None: cannot be told). ``gone``: the process that the recorder named is no longer
    there. ``listing``: the names of all trials whose directories stand (None: as before).
    ``origin`` tells one directory or server from another that has the same job. ``resumable``:
    config, lock and result could be read, or a server has the job.
    """

    record: JobRecord
    names: frozenset[str] = frozenset()
    held: bool | None = None
    gone: bool = False
    resumable: bool = True
    unreadable_files: int = 0
    last_change: float | None = None
    listing: frozenset[str] | None = None
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read. ``subject`` may be a path: for the log only."""

    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class Observation:
    """All that is new since the look before.

    ``present_jobs``: ids of the jobs that the source has now; None where it reads no jobs or cannot
    tell.
    ``replicas``: the looks at replicas that ended since, at most one a replica.
    ``failures``: why a whole place could not be looked at; empty means that the look succeeded.
    ``unsettled``: files that are being written right now and are worth another look soon.
    ``source``: who looked. ``unreachable``: the origins of jobs that nothing can be said of now.
    """

    jobs: Mapping[str, JobSighting] = field(default_factory=dict)
    trials: tuple[TrialRecord, ...] = ()
    present_jobs: frozenset[str] | None = None
    replicas: tuple[ReplicaSighting, ...] = ()
    problems: tuple[Problem, ...] = ()
    failures: tuple[Problem, ...] = ()
    unsettled: int = 0
    source: str = ""
    unreachable: frozenset[str] = frozenset()
