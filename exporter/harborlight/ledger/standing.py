"""How runs, tasks and jobs stand by the ledger: what it hands on, immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from harborlight.ledger.faults import Boundary, Cause, Phase
from harborlight.ledger.jobs import JobState
from harborlight.ledger.ownership import (
    AttemptState,
    Fault,
    Resolution,
    Setup,
    Span,
    TrialState,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class TaskStanding:
    """One task of a run. Times are seconds since the epoch, durations seconds.

    ``name``: as its job's lock has it, not safe to show. ``usual_duration``: the median wall time
    of the task's scored trials (None before the first). ``given_up``: why nobody is to replay
    its faults ("" where they are to be). ``phases``: its running attempts by what they do, as far
    as that is known. The last seven are the balance's.
    """

    label: str
    name: str
    target: int
    target_known: bool
    states: Mapping[AttemptState, int]
    passed: int
    usual_duration: float | None
    oldest_running_start: float | None
    faults: tuple[Fault, ...]
    given_up: str = ""
    phases: Mapping[Phase, int] = MappingProxyType({})
    durations: tuple[float, ...] = ()
    rewards: tuple[float, ...] = ()
    running_starts: tuple[float, ...] = ()
    scored_at: tuple[float, ...] = ()
    spans: tuple[Span, ...] = ()
    verdicts_of: frozenset[Setup] = frozenset()
    verdicts: tuple[Verdict, ...] = ()

    @property
    def attempts_given_up(self) -> int:
        """Attempts that nothing runs or is going to run, and nobody is to replay."""
        if not self.given_up:
            return 0
        return self.states[AttemptState.FAULTED] + self.states[AttemptState.UNPLANNED]

    @property
    def complete(self) -> bool:
        """Whether every attempt that the task is to get is scored."""
        return self.target_known and self.states[AttemptState.SCORED] == self.target > 0


@dataclass(frozen=True, slots=True)
class RunStanding:
    """One run. ``states`` add up to ``target``, which is None where it cannot be known.

    ``jobs``: the labels of those that serve it, oldest first. ``live``: one of them has not ended.
    ``concurrency``: trials that those that live run at a time, None where that is not known.
    ``changed_timeouts``, ``changed_resources``: the jobs whose configuration overrides what the
    tasks ask for. ``unknown_tasks``: named in the configuration, and in no job.
    """

    label: str
    title: str
    jobs: tuple[str, ...]
    agent: str
    agent_version: str
    model: str
    dataset: str
    target: int | None
    states: Mapping[AttemptState, int]
    passed: int
    tasks: tuple[TaskStanding, ...]
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
    live: bool = False
    concurrency: int | None = None
    changed_timeouts: tuple[str, ...] = ()
    changed_resources: tuple[str, ...] = ()
    unknown_tasks: tuple[str, ...] = ()

    @property
    def attempts_given_up(self) -> int:
        """As of its tasks, all together."""
        return sum(task.attempts_given_up for task in self.tasks)

    @property
    def tasks_complete(self) -> int:
        return sum(1 for task in self.tasks if task.complete)


@dataclass(frozen=True, slots=True)
class JobStanding:
    """One job. ``job_id`` is not for showing. ``trials``: lineages by state of the trial."""

    job_id: str
    label: str
    state: JobState
    present: bool
    harbor_version: str
    trials: Mapping[TrialState, int]
    started: float | None
    finished: float | None
    last_change: float | None
    unreadable_files: int
