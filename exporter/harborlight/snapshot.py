"""Everything known at one moment: what views show, and nothing else is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from harborlight.ledger.faults import Boundary, Cause
from harborlight.ledger.jobs import JobState
from harborlight.ledger.ownership import AttemptState, Fault, Resolution, TrialState


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """One task of a run. Times are seconds since the epoch, durations seconds.

    ``usual_duration``: the median wall time of the task's scored trials (None before the first).
    """

    label: str
    target: int
    target_known: bool
    states: Mapping[AttemptState, int]
    passed: int
    usual_duration: float | None
    oldest_running_start: float | None
    faults: tuple[Fault, ...]

    @property
    def complete(self) -> bool:
        """Whether every attempt that the task is to get is scored."""
        return self.target_known and self.states[AttemptState.SCORED] == self.target > 0


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """One run. ``states`` add up to ``target``, which is None where it cannot be known."""

    label: str
    title: str
    agent: str
    agent_version: str
    model: str
    dataset: str
    target: int | None
    states: Mapping[AttemptState, int]
    passed: int
    tasks: tuple[TaskSnapshot, ...]
    excluded: Mapping[str, str]
    surplus: int
    stale_content: int
    without_key: int
    scored_with_exception: Mapping[Cause, int]
    superseded: int
    faults_open: Mapping[tuple[Cause, Boundary], int]
    resolutions: Mapping[Resolution, int]
    fault_tasks: Mapping[Cause, int]
    retries_known: bool
    started: float | None
    last_verdict: float | None

    @property
    def tasks_complete(self) -> int:
        return sum(1 for task in self.tasks if task.complete)


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """One job. ``trials``: lineages by state of the trial."""

    label: str
    state: JobState
    present: bool
    harbor_version: str
    trials: Mapping[TrialState, int]
    started: float | None
    finished: float | None
    last_change: float | None
    unreadable_files: int


@dataclass(frozen=True, slots=True)
class CollectorSnapshot:
    """How the last look of one source (or the ledger's write) went."""

    name: str
    success: bool
    duration_seconds: float
    last_success: float | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All runs and jobs at one moment, and how the exporter itself is doing.

    ``counters``: run label -> metric -> label values -> value. ``version`` changes with whatever
    the ledger knows, so an equal one means equal runs and jobs.
    """

    version: int
    at: float
    runs: tuple[RunSnapshot, ...] = ()
    jobs: tuple[JobSnapshot, ...] = ()
    counters: Mapping[str, Mapping[str, Mapping[tuple[str, ...], float]]] = MappingProxyType({})
    ledger_trials: int = 0
    collectors: tuple[CollectorSnapshot, ...] = ()
    config_reload_success: bool = True
    config_reload_timestamp: float | None = None
