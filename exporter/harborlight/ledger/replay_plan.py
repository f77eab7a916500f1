"""What to run again so that a run gets what it is missing, and nothing twice (pure).

For each missing attempt the narrowest way: a regrade of the trial whose verdict alone is missing, a
resume of the job that did not finish it, else a new job for just the tasks and counts that remain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from harborlight.ledger.faults import Boundary
from harborlight.ledger.jobs import JobState
from harborlight.ledger.ownership import AttemptState, Resolution
from harborlight.ledger.standing import RunStanding, TaskStanding
from harborlight.records import TaskRef, TrialRecord

DEFAULT_FILTER: Final = "CancelledError"
"""What Harbor's resume picks if it is told nothing."""


_ELSEWHERE: Final = (
    "the job that planned it is in no directory that can be read here (--jobs); "
    "what a Harbor server runs is retried there (POST /rollouts/ID/retry)"
)


class Place(NamedTuple):
    """A task of a run, by their labels."""

    run: str
    task: str


@dataclass(frozen=True, slots=True)
class StandingTrial:
    """A trial whose directory stands: its last execution, and where it counts.

    ``kept``: nothing may delete it. It is scored, or a regrade of it is, or a live job is to
    regrade it, or it belongs to no run.
    """

    record: TrialRecord
    place: Place
    kept: bool


@dataclass(frozen=True, slots=True)
class JobWork:
    """What a job was to do and what of it stands, for all runs that it serves.

    What belongs to no run has a place in a run without a name, where nothing is ever missing.
    ``present``: its directory stands, ``resumable``: with all that a resume reads. ``planned``: its
    plain trials. ``locked``: the versions of the tasks that it holds. ``regrades``: it derives from
    other jobs. ``made``: when it was made, in seconds since the epoch.
    """

    job_id: str
    label: str
    state: JobState
    present: bool
    resumable: bool
    regrades: bool
    made: float
    planned: Mapping[Place, int]
    locked: tuple[tuple[TaskRef, str], ...]
    refs: Mapping[Place, TaskRef]
    trials: tuple[StandingTrial, ...]

    def again(self, filtered: Collection[str]) -> Counter[Place]:
        """How many trials a resume would run, a place.

        Harbor keeps what has a readable result, unless its own exception is of a type in
        ``filtered``, and runs the rest of the plan.
        """
        stays = Counter(
            trial.place
            for trial in self.trials
            if trial.record.execution
            and not trial.record.unreadable
            and trial.record.own_exception not in filtered
        )
        return Counter({place: max(0, n - stays[place]) for place, n in self.planned.items()})


@dataclass(frozen=True, slots=True)
class Step:
    """One way to get attempts. ``attempts``: how many, by task label; ``refs``: those tasks.

    ``trials``: the names of what a regrade is of. ``filtered``: the exception types that a resume
    is to pick. ``job_id``: the job to regrade or resume, or whose configuration a new one takes.
    """

    boundary: Boundary
    job_id: str
    attempts: Mapping[str, int]
    refs: Mapping[str, TaskRef]
    trials: tuple[str, ...] = ()
    filtered: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.attempts.values())

    def part(self, labels: Collection[str]) -> Step:
        """The same for some of its tasks."""
        return replace(
            self,
            attempts={label: self.attempts[label] for label in labels},
            refs={label: self.refs[label] for label in labels},
        )


@dataclass(frozen=True, slots=True)
class NotPlanned:
    """Attempts that are missing and get no step, by task label, and why."""

    attempts: Mapping[str, int]
    why: str


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """All that is missing of a run, in steps to carry out in this order.

    ``unended``: its jobs here that have not ended, by label, with their state. ``spared``: types of
    exceptions of open faults that no resume may pick, by the label of their job.
    """

    run: str
    missing: int
    steps: tuple[Step, ...]
    not_planned: tuple[NotPlanned, ...] = ()
    unended: Mapping[str, JobState] = MappingProxyType({})
    spared: Mapping[str, Sequence[str]] = MappingProxyType({})


def plan_replay(
    run: RunStanding, runs: Iterable[RunStanding], works: Mapping[str, JobWork]
) -> ReplayPlan:
    """How to get what ``run`` is missing.

    ``runs``: all of them, so that no step takes something away from another. ``works``: by job id.
    """
    missing = Counter(
        {
            Place(one.label, task.label): _missing(task)
            for one in runs
            for task in one.tasks
            if not task.given_up
        }
    )
    given_up = [
        NotPlanned({task.label: _missing(task)}, f"given up, {task.given_up}")
        for task in run.tasks
        if task.given_up and _missing(task)
    ]
    total = sum(n for place, n in missing.items() if place.run == run.label)
    mine = [work for work in works.values() if any(p.run == run.label for p in work.planned)]
    regrades = list(_regrades(run, works, missing))
    regraded = {step.job_id: step.trials for step in regrades}
    steps = [*regrades, *_resumes(run, mine, missing, regraded)]
    reruns, refused = _reruns(run, mine, missing)
    unended = {
        work.label: work.state
        for work in sorted(mine, key=lambda work: work.label)
        if work.present and not work.state.ended
    }
    return ReplayPlan(
        run=run.label,
        missing=total,
        steps=(*steps, *reruns),
        not_planned=(*refused, *given_up),
        unended=unended,
        spared=dict(_spared(run, mine, steps)),
    )


def _missing(task: TaskStanding) -> int:
    return task.states[AttemptState.FAULTED] + task.states[AttemptState.UNPLANNED]


def _regrades(
    run: RunStanding, works: Mapping[str, JobWork], missing: Counter[Place]
) -> Iterator[Step]:
    trials: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for task in run.tasks:
        for fault in task.faults:
            place = Place(run.label, task.label)
            if (
                fault.resolution is Resolution.OPEN
                and fault.boundary is Boundary.REGRADE
                and missing[place] > 0
                and works[fault.record.job_id].present
            ):
                missing[place] -= 1
                trials[fault.record.job_id][task.label].append(fault.record.name)
    for job_id, by_task in _in_order(trials, works):
        yield Step(
            Boundary.REGRADE,
            job_id,
            {label: len(names) for label, names in by_task.items()},
            _refs(works[job_id], run.label, by_task),
            trials=tuple(sorted(name for names in by_task.values() for name in names)),
        )


def _resumes(
    run: RunStanding,
    works: Sequence[JobWork],
    missing: Counter[Place],
    regraded: Mapping[str, Collection[str]],
) -> Iterator[Step]:
    """``regraded``: the names of the trials that the plan regrades, by job id."""
    for work in sorted(works, key=lambda work: (work.made, work.job_id)):
        if work.regrades or not work.resumable or not work.state.ended:
            continue
        kept = {
            trial.record.own_exception
            for trial in work.trials
            if trial.kept or trial.record.name in regraded.get(work.job_id, ())
        }
        filtered: tuple[str, ...] = ()
        # It deletes every trial that it picks, so none of them may be kept.
        picked = {trial.record.own_exception for trial in work.trials} - kept - {"", "other"}
        for name in sorted(picked):
            if _is_allowed(work, {*filtered, name}, missing):
                filtered = (*filtered, name)
        again = work.again(filtered)
        spared = DEFAULT_FILTER not in filtered and any(
            trial.record.own_exception == DEFAULT_FILTER for trial in work.trials
        )
        if not again.total() or not _is_allowed(work, filtered, missing):
            continue
        if spared and not filtered:
            continue  # told nothing, Harbor would pick those
        mine = {place.task: n for place, n in again.items() if n and place.run == run.label}
        if mine:
            missing.subtract(again)
            refs = _refs(work, run.label, mine)
            yield Step(Boundary.RESUME, work.job_id, mine, refs, filtered=filtered)


def _spared(
    run: RunStanding, works: Iterable[JobWork], steps: Iterable[Step]
) -> Iterator[tuple[str, Sequence[str]]]:
    """The types of open faults that their job's resume leaves alone, by the job's label."""
    filtered = {step.job_id: step.filtered for step in steps if step.boundary is Boundary.RESUME}
    open_types: dict[str, set[str]] = defaultdict(set)
    for task in run.tasks:
        for fault in task.faults:
            if fault.resolution is Resolution.OPEN and fault.boundary is Boundary.RESUME:
                open_types[fault.record.job_id].add(fault.record.own_exception)
    for work in works:
        left = open_types[work.job_id] - {"", *filtered.get(work.job_id, ())}
        if left and work.resumable and work.state.ended:
            yield work.label, sorted(left)


def _is_allowed(work: JobWork, filtered: Collection[str], missing: Mapping[Place, int]) -> bool:
    """Whether a resume with this filter runs nothing but what is missing."""
    return all(n <= missing.get(place, 0) for place, n in work.again(filtered).items())


def _reruns(
    run: RunStanding, works: Sequence[JobWork], missing: Mapping[Place, int]
) -> tuple[list[Step], list[NotPlanned]]:
    """New jobs for what is left, each task by the newest job that planned it."""
    attempts: dict[tuple[str, int], list[str]] = defaultdict(list)
    refused: dict[str, dict[str, int]] = defaultdict(dict)
    by_id = {work.job_id: work for work in works}
    newest = sorted(works, key=lambda work: (work.made, work.job_id), reverse=True)
    for task in run.tasks:
        place = Place(run.label, task.label)
        left = missing.get(place, 0)
        if left <= 0:
            continue
        planning = [w for w in newest if w.planned.get(place) and not w.regrades]
        standing = [work for work in planning if work.present]
        if not planning:
            refused["no job planned it"][task.label] = left
        elif not standing:
            refused[_ELSEWHERE][task.label] = left
        elif any(t.record.verification_off for t in standing[0].trials if t.place == place):
            refused["its job has verification off, so no attempt can be scored"][task.label] = left
        else:
            attempts[standing[0].job_id, left].append(task.label)
    steps = [
        Step(
            Boundary.RERUN,
            job_id,
            dict.fromkeys(labels, count),
            _refs(by_id[job_id], run.label, labels),
        )
        for (job_id, count), labels in sorted(attempts.items())
    ]
    return steps, [NotPlanned(tasks, why) for why, tasks in sorted(refused.items())]


def _refs(work: JobWork, run: str, labels: Iterable[str]) -> dict[str, TaskRef]:
    return {label: work.refs[Place(run, label)] for label in labels}


def _in_order[T](by_job: Mapping[str, T], works: Mapping[str, JobWork]) -> list[tuple[str, T]]:
    return sorted(by_job.items(), key=lambda item: (works[item[0]].made, item[0]))
