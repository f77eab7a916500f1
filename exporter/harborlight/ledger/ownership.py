"""Which lineage owns which attempt of a task (pure).

A task's ``target`` slots are exchangeable. The first scored lineages own them, live
lineages fill what is left, then planned trials, then faults; what remains nobody is
going to run. So the five states add up to the target for any input, and neither a copy
nor the order of reading can change them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from harborlight.ledger.faults import (
    Boundary,
    Cause,
    Phase,
    boundary_of,
    cause_of,
    phase_named,
    phase_of,
)
from harborlight.ledger.jobs import Job, JobState, will_retry
from harborlight.ledger.outcomes import Outcome, RewardRule, outcome, passed, reward_of
from harborlight.records import TrialRecord


class AttemptState(StrEnum):
    """Where an attempt stands. The five partition a run's target."""

    SCORED = "scored"
    RUNNING = "running"
    QUEUED = "queued"
    FAULTED = "faulted"
    UNPLANNED = "unplanned"


class TrialState(StrEnum):
    """Where a job's trial stands."""

    QUEUED = "queued"
    RUNNING = "running"
    SCORED = "scored"
    FAULTED = "faulted"
    UNVERIFIED = "unverified"


class Resolution(StrEnum):
    """What became of a fault.

    ``PENDING``: a live or planned trial is to replace it. ``RETRIED``: by Harbor, in the same
    trial. ``REGRADED``: a regrade gave the missing verdict. ``REPLAYED``: a later lineage owns
    the attempt. ``GIVEN_UP``: configuration says that nobody is to replay it.
    """

    OPEN = "open"
    PENDING = "pending"
    RETRIED = "retried"
    REGRADED = "regraded"
    REPLAYED = "replayed"
    GIVEN_UP = "given_up"


class Execution(msgspec.Struct, frozen=True, gc=False):
    """A trial record and what the ledger observed of its directory.

    ``present``: it stood at the last look. ``dead``: its job ended while this was still open.
    ``counted``: the accounts of the runs whose counters it entered.
    """

    record: TrialRecord
    present: bool = True
    dead: bool = False
    counted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TaskRules:
    """How a run judges the executions of one task.

    ``target``: attempts the task is to get (None: unknown, then as many as there are lineages).
    ``digest``: the version of the task whose verdicts count (None: any). ``supersedes``: jobs
    whose regrades replace a valid verdict. ``planned``: plain trials planned a job id.
    ``planned_regrades``: source trial ids that live jobs are going to regrade, a job id.
    ``given_up``: why its faults are not to be replayed, "" where they are.
    """

    target: int | None
    digest: str | None = None
    reward: RewardRule = RewardRule()
    supersedes: frozenset[str] = frozenset()
    planned: Mapping[str, int] = MappingProxyType({})
    planned_regrades: Mapping[str, frozenset[str]] = MappingProxyType({})
    causes: Mapping[str, Cause] = MappingProxyType({})
    given_up: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """One execution that ended without a verdict, and what became of it."""

    record: TrialRecord
    phase: Phase
    cause: Cause
    resolution: Resolution
    boundary: Boundary | None

    @property
    def exception_type(self) -> str:
        """The first recorded type, ``none`` where Harbor recorded no exception."""
        return self.record.exceptions[0] if self.record.exceptions else "none"


class Span(NamedTuple):
    """When a trial ran (seconds since the epoch); ``end`` None: it runs still."""

    start: float
    end: float | None


class Verdict(NamedTuple):
    """A scored attempt's: when its lineage got the first valid one, and what holds."""

    at: float
    passed: bool


class Setup(NamedTuple):
    """What a verdict was given on: the task's version and who worked."""

    digest: str | None
    agent: str
    agent_version: str
    model: str


@dataclass(frozen=True, slots=True)
class TaskBalance:
    """A task's attempts, accounted for. ``states`` add up to ``target``.

    ``rewards``: of the scored attempts that have the run's. ``running_starts``: of the running
    attempts, ``phases`` what these do, as far as anything tells. ``scored_at``: when attempts got
    the verdict of their own trial, not of a regrade. ``spans``: of all trials but regrades, those
    that Harbor retried included. ``verdicts_of``: what the scored attempts' verdicts were given on.
    ``verdicts``: of the scored attempts, oldest first.
    """

    target: int
    states: Mapping[AttemptState, int]
    passed: int = 0
    surplus: int = 0
    stale_content: int = 0
    without_key: int = 0
    scored_with_exception: Mapping[Cause, int] = MappingProxyType({})
    superseded: int = 0
    faults: tuple[Fault, ...] = ()
    durations: tuple[float, ...] = ()
    oldest_running_start: float | None = None
    last_verdict: float | None = None
    rewards: tuple[float, ...] = ()
    running_starts: tuple[float, ...] = ()
    phases: Mapping[Phase, int] = MappingProxyType({})
    scored_at: tuple[float, ...] = ()
    spans: tuple[Span, ...] = ()
    verdicts_of: frozenset[Setup] = frozenset()
    verdicts: tuple[Verdict, ...] = ()


class _Kind(StrEnum):
    SCORED = "scored"
    STALE = "stale"
    RUNNING = "running"
    QUEUED = "queued"
    FAULT = "fault"
    UNVERIFIED = "unverified"
    NOTHING = "nothing"
    """A planned regrade of a trial that was never read, whose job is over."""


@dataclass(slots=True)
class _Lineage:
    key: str
    chains: dict[tuple[str, str], list[Execution]] = field(default_factory=dict)
    regrade_chains: dict[tuple[str, str], list[Execution]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Judged:
    """A lineage as it stands: what it is, and the execution that says so."""

    lineage: _Lineage
    kind: _Kind
    verdict: TrialRecord | None = None
    place: tuple[float, str] = (0.0, "")
    started: float | None = None
    phase: Phase = Phase.UNKNOWN
    superseded: int = 0
    holds_slot_of: str | None = None
    """The job whose plan this lineage uses up."""
    faults: tuple[tuple[TrialRecord, Resolution], ...] = ()
    last_fault: Execution | None = None


def lineage_key(job_id: str, name: str) -> str:
    """A trial's lineage: the name stays the same over Harbor's retries."""
    return f"{job_id}/{name}"


def _group(
    executions: Iterable[Execution], planned_regrades: Iterable[str], jobs: Mapping[str, Job]
) -> list[_Lineage]:
    """Executions of one task, put into lineages.

    A regrade joins its source; one whose source was never read keeps the source's id as key, so
    that several of them, or a planned one, meet there.
    """
    items = list(executions)
    by_id = {e.record.execution: e.record for e in items if e.record.execution}

    def key_of(record: TrialRecord) -> str:
        seen: set[str] = set()
        while record.source_trial:
            if record.source_trial not in by_id:
                return record.source_trial
            if record.source_trial in seen:  # a circle, in hostile input only
                return min(seen)
            seen.add(record.source_trial)
            record = by_id[record.source_trial]
        return lineage_key(record.job_id, record.name)

    lineages: dict[str, _Lineage] = {}
    for execution in items:
        record = execution.record
        key = key_of(record)
        lineage = lineages.setdefault(key, _Lineage(key))
        chains = lineage.regrade_chains if record.source_trial else lineage.chains
        chains.setdefault((record.job_id, record.name), []).append(execution)
    for source in planned_regrades:
        key = key_of(by_id[source]) if source in by_id else source
        lineages.setdefault(key, _Lineage(key))
    for lineage in lineages.values():
        for chains in (lineage.chains, lineage.regrade_chains):
            for name, chain in chains.items():
                chains[name] = in_order(chain, jobs.get(name[0]))
    return [lineages[key] for key in sorted(lineages)]


def in_order(chain: Iterable[Execution], job: Job | None) -> list[Execution]:
    """One trial name's executions, oldest first.

    What stands open beside a result is a retry only if it began after that, and if the server says
    so or Harbor retries such a result: nothing else brings a name back in a directory. Otherwise it
    is a copy, and left out. Of what only the log tells, as much is left out as was seen otherwise.
    """
    items = list(chain)
    logged = [e for e in items if e.record.retry]
    if len(items) == 1 and not logged:
        return items
    closed = sorted(
        (e for e in items if e.record.execution and not e.record.retry),
        key=lambda e: (e.record.started_at or 0.0, e.record.execution),
    )
    rest = [e for e in items if not e.record.execution]
    if closed:
        last = closed[-1].record
        ended = max(e.record.finished_at or e.record.started_at or 0.0 for e in closed)
        retried = job is not None and will_retry(last.exceptions, job.record)
        rest = [
            e for e in rest if (e.record.again or retried) and (e.record.started_at or 0.0) > ended
        ]
    return _only_logged(logged, closed, rest, job) + closed + rest


def _only_logged(
    logged: list[Execution], closed: list[Execution], rest: list[Execution], job: Job | None
) -> list[Execution]:
    """The retried executions of one trial that nothing but the job's log tells of.

    Each retried execution has one line in the log. Those that were seen otherwise stand for lines
    with their exceptions, else for any. A trial of which nothing else is known may have lost a
    verdict or not: that is left open until it is run again.
    """
    if not logged:
        return []
    logged.sort(key=lambda e: e.record.retry)
    if not closed and not rest:
        return [e for e in logged if outcome(e.record) is not Outcome.UNKNOWN]
    seen = closed if rest or _was_removed(closed[-1], job) else closed[:-1]
    surplus = len(logged) - max(0, logged[-1].record.retry - len(seen))
    for exceptions in [e.record.exceptions for e in reversed(seen)]:
        same = next((e for e in logged if e.record.exceptions == exceptions), None)
        if surplus > 0 and same is not None:
            logged.remove(same)
            surplus -= 1
    return logged[max(0, surplus) :]


def _was_removed(execution: Execution, job: Job | None) -> bool:
    """Whether Harbor took an ended execution's directory away to try again."""
    return (
        not execution.present
        and job is not None
        and job.present
        and not _restarted_since(execution.record, job)
    )


def is_copied_fault(record: TrialRecord, source: TrialRecord | None) -> bool:
    """Whether a regrade shows no fault of its own but the agent's exception of its source.

    Harbor copies that into the regrade's result.
    """
    return (
        source is not None
        and bool(record.exceptions)
        and set(record.exceptions) <= set(source.exceptions)
        and cause_of(record) is not Cause.VERIFIER
    )


def trial_state(last: Execution, job: Job | None) -> TrialState:
    """How a trial stands by its last execution."""
    result = outcome(last.record)
    if result is Outcome.OPEN:
        return TrialState.RUNNING if _alive(last, job) else TrialState.FAULTED
    if _in_back_off(last, job):
        return TrialState.RUNNING
    if result is Outcome.SCORED:
        return TrialState.SCORED
    return TrialState.UNVERIFIED if result is Outcome.UNVERIFIED else TrialState.FAULTED


def _alive(execution: Execution, job: Job | None) -> bool:
    """Whether an execution without a result is still at work (or waits for its retry)."""
    if job is None or job.state.ended or execution.record.unreadable:
        return False
    if execution.present:
        return True
    # Its directory is gone: a retry is due, unless the job was restarted since.
    return not execution.dead and not _restarted_since(execution.record, job)


def _restarted_since(record: TrialRecord, job: Job) -> bool:
    last = record.mtime_ns / 1e9 if record.execution and record.mtime_ns else record.started_at
    incarnation = job.record.incarnation
    return incarnation is not None and last is not None and incarnation > last


def _in_back_off(execution: Execution, job: Job | None) -> bool:
    """Whether a finished execution's directory was removed for a retry that is to come."""
    return (
        job is not None
        and not execution.present
        and not execution.dead
        and not execution.record.retry  # perhaps of before a resume, and never run again
        and not job.state.ended
        and will_retry(execution.record.exceptions, job.record)
        and not _restarted_since(execution.record, job)
    )


def holds_slot(last: Execution, state: TrialState, job: Job | None) -> bool:
    """Whether a trial in this state uses up a slot of its job's plan.

    A resume runs again what has no directory any more, and what has an unreadable result.
    """
    if state is TrialState.RUNNING or job is None:
        return True
    if last.record.retry:
        return False
    restarted = _restarted_since(last.record, job)
    return not restarted or (last.present and not last.record.unreadable)


def _judge(lineage: _Lineage, rules: TaskRules, jobs: Mapping[str, Job]) -> _Judged:
    invalid = rules.reward.invalid_exceptions
    verdicts: list[tuple[tuple[float, str], bool, TrialRecord]] = []
    faults: list[tuple[Execution, bool]] = []
    running: list[Execution] = []
    primary_running: list[Execution] = []
    by_id = (
        {
            e.record.execution: e.record
            for chain in (*lineage.chains.values(), *lineage.regrade_chains.values())
            for e in chain
        }
        if lineage.regrade_chains
        else {}
    )
    unverified = False
    holder: str | None = None
    for regrade, chains in ((False, lineage.chains), (True, lineage.regrade_chains)):
        for (job_id, _), chain in chains.items():
            job = jobs.get(job_id)
            if not chain:
                continue
            last = chain[-1]
            for execution in chain:
                is_last = execution is last
                result = outcome(execution.record, invalid)
                waiting = is_last and (
                    _alive(execution, job)
                    if result is Outcome.OPEN
                    else _in_back_off(execution, job)
                )
                if waiting:
                    running.append(execution)
                    if not regrade:
                        primary_running.append(execution)
                if regrade and is_copied_fault(
                    execution.record, by_id.get(execution.record.source_trial or "")
                ):
                    continue
                if result is Outcome.FAULT or (result is Outcome.OPEN and not waiting):
                    faults.append((execution, is_last))
                elif result is Outcome.SCORED and is_last and not waiting:
                    record = execution.record
                    place = (record.verdict_at or 0.0, record.execution)
                    verdicts.append((place, regrade, record))
                elif result is Outcome.UNVERIFIED and is_last:
                    unverified = True
            if not regrade and holds_slot(last, trial_state(last, job), job):
                holder = job_id
    verdicts.sort(key=lambda item: item[0])
    on_content = [
        item
        for item in verdicts
        if rules.digest is None or item[2].digest is None or item[2].digest == rules.digest
    ]
    chosen = _choose(on_content, rules.supersedes)
    unsuperseded = _choose(verdicts, ())
    replaced = int(chosen is not None and chosen is not unsuperseded)
    started = min((e.record.started_at or 0.0 for e in running), default=None)
    if primary_running:
        # Harbor retries it: the lineage's verdict will be its last execution's.
        kind, chosen, replaced = _Kind.RUNNING, None, 0
    elif chosen is not None:
        kind = _Kind.SCORED
    elif running:
        kind = _Kind.RUNNING
    elif _regrade_is_planned(lineage, rules, jobs):
        kind = _Kind.QUEUED
    elif verdicts:
        kind = _Kind.STALE
    elif any(last for _, last in faults):
        kind = _Kind.FAULT
    elif unverified:
        kind = _Kind.UNVERIFIED
    else:
        kind = _Kind.NOTHING
    resolved = {
        _Kind.SCORED: Resolution.REGRADED,
        _Kind.STALE: Resolution.REGRADED,
        _Kind.RUNNING: Resolution.PENDING,
        _Kind.QUEUED: Resolution.PENDING,
    }.get(kind, Resolution.OPEN)
    last_fault = max((e for e, is_last in faults if is_last), key=_by_end, default=None)
    return _Judged(
        lineage=lineage,
        kind=kind,
        verdict=chosen,
        place=verdicts[0][0] if verdicts else (started or _ended(last_fault), lineage.key),
        started=started,
        phase=_phase_now(running),
        superseded=replaced,
        holds_slot_of=holder,
        faults=tuple(
            (execution.record, resolved if execution is last_fault else Resolution.RETRIED)
            for execution, _ in faults
        ),
        last_fault=last_fault,
    )


def _phase_now(running: Sequence[Execution]) -> Phase:
    """What the latest of a lineage's executions that run does, where anything tells."""
    latest = max(running, key=lambda e: e.record.started_at or 0.0, default=None)
    return phase_named(latest.record.phase) if latest is not None else Phase.UNKNOWN


def _by_end(execution: Execution) -> tuple[float, str, str, str]:
    record = execution.record
    return (_ended(execution), record.execution, record.job_id, record.name)


def _ended(execution: Execution | None) -> float:
    if execution is None:
        return 0.0
    return execution.record.finished_at or execution.record.started_at or 0.0


def _choose(
    verdicts: Sequence[tuple[tuple[float, str], bool, TrialRecord]], supersedes: Collection[str]
) -> TrialRecord | None:
    """The lineage's verdict among those on the run's content, sorted by time.

    A superseding regrade first (the earliest), else the trial's own, else the earliest regrade.
    """
    superseding = [r for _, regrade, r in verdicts if regrade and r.job_id in supersedes]
    own = [record for _, regrade, record in verdicts if not regrade]
    regrades = [record for _, regrade, record in verdicts if regrade]
    return next(iter([*superseding, *own, *regrades]), None)


def _regrade_is_planned(lineage: _Lineage, rules: TaskRules, jobs: Mapping[str, Job]) -> bool:
    ids = {lineage.key}
    for chain in (*lineage.chains.values(), *lineage.regrade_chains.values()):
        ids.update(e.record.execution for e in chain if e.record.execution)
    begun = {job_id for job_id, _ in lineage.regrade_chains}
    for job_id, sources in rules.planned_regrades.items():
        job = jobs.get(job_id)
        if job and not job.state.ended and job_id not in begun and not ids.isdisjoint(sources):
            return True
    return False


def balance_task(
    rules: TaskRules, executions: Iterable[Execution], jobs: Mapping[str, Job]
) -> TaskBalance:
    """Account for one task's attempts.

    ``executions`` are all that the ledger has of the task in this run, ``jobs`` the run's jobs by
    id. Nothing but the arguments is looked at; their order does not matter.
    """
    sources = {s for ids in rules.planned_regrades.values() for s in ids}
    judged = [_judge(lin, rules, jobs) for lin in _group(executions, sources, jobs)]
    by_kind: dict[_Kind, list[_Judged]] = defaultdict(list)
    for item in judged:
        by_kind[item.kind].append(item)
    scored = sorted(by_kind[_Kind.SCORED], key=lambda item: item.place)
    running = sorted(by_kind[_Kind.RUNNING], key=lambda item: item.place)
    faulted = sorted(by_kind[_Kind.FAULT], key=lambda item: item.place)
    queued = len(by_kind[_Kind.QUEUED]) + _planned_and_not_started(judged, rules, jobs)
    target = rules.target
    if target is None:
        target = len(scored) + len(running) + queued + len(faulted)
        target += len(by_kind[_Kind.UNVERIFIED])

    left = target
    filled: dict[AttemptState, int] = {}
    for state, available in (
        (AttemptState.SCORED, len(scored)),
        (AttemptState.RUNNING, len(running)),
        (AttemptState.QUEUED, queued),
        (AttemptState.FAULTED, len(faulted)),
    ):
        filled[state] = min(left, available)
        left -= filled[state]
    filled[AttemptState.UNPLANNED] = left

    owners = scored[: filled[AttemptState.SCORED]]
    return TaskBalance(
        target=target,
        states=filled,
        passed=sum(1 for item in owners if item.verdict and passed(item.verdict, rules.reward)),
        surplus=len(scored) - len(owners),
        stale_content=len(by_kind[_Kind.STALE]),
        without_key=sum(
            1 for item in owners if item.verdict and reward_of(item.verdict, rules.reward) is None
        ),
        scored_with_exception=Counter(
            cause_of(item.verdict, rules.causes)
            for item in owners
            if item.verdict and item.verdict.exceptions
        ),
        superseded=sum(item.superseded for item in judged),
        faults=_faults(judged, faulted, filled, target, rules, jobs),
        durations=tuple(_durations(scored)),
        oldest_running_start=min((item.started for item in running if item.started), default=None),
        last_verdict=max((item.place[0] for item in scored), default=None),
        rewards=tuple(_rewards(owners, rules)),
        running_starts=tuple(
            item.started for item in running[: filled[AttemptState.RUNNING]] if item.started
        ),
        phases=Counter(item.phase for item in running[: filled[AttemptState.RUNNING]]),
        scored_at=tuple(
            item.verdict.verdict_at
            for item in owners
            if item.verdict and item.verdict.source_trial is None and item.verdict.verdict_at
        ),
        spans=tuple(_spans(judged, jobs)),
        verdicts_of=frozenset(
            Setup(
                item.verdict.digest,
                item.verdict.agent_label or item.verdict.agent,
                item.verdict.agent_version,
                item.verdict.model_label or item.verdict.model,
            )
            for item in owners
            if item.verdict
        ),
        verdicts=tuple(
            Verdict(item.place[0], passed(item.verdict, rules.reward))
            for item in owners
            if item.verdict
        ),
    )


def _rewards(owners: Sequence[_Judged], rules: TaskRules) -> Iterable[float]:
    for item in owners:
        reward = reward_of(item.verdict, rules.reward) if item.verdict else None
        if reward is not None:
            yield reward


def _spans(judged: Sequence[_Judged], jobs: Mapping[str, Job]) -> Iterable[Span]:
    for item in judged:
        for (job_id, _), chain in item.lineage.chains.items():
            for execution in chain:
                record = execution.record
                if record.started_at is None:
                    continue
                if record.finished_at is not None:
                    yield Span(record.started_at, max(record.started_at, record.finished_at))
                elif execution is chain[-1] and _alive(execution, jobs.get(job_id)):
                    yield Span(record.started_at, None)


def _planned_and_not_started(
    judged: Sequence[_Judged], rules: TaskRules, jobs: Mapping[str, Job]
) -> int:
    """Slots in live jobs' plans that no lineage of that job has taken yet."""
    taken = Counter(item.holds_slot_of for item in judged if item.holds_slot_of)
    return sum(
        max(0, count - taken[job_id])
        for job_id, count in rules.planned.items()
        if job_id in jobs and not jobs[job_id].state.ended
    )


def _durations(scored: Sequence[_Judged]) -> Iterable[float]:
    """Wall time of the trials whose own agent work was scored (a regrade's is not it)."""
    for item in scored:
        for chain in item.lineage.chains.values():
            record = chain[-1].record
            if record.started_at is not None and record.finished_at is not None:
                yield max(0.0, record.finished_at - record.started_at)


def _faults(
    judged: Sequence[_Judged],
    faulted: Sequence[_Judged],
    filled: Mapping[AttemptState, int],
    target: int,
    rules: TaskRules,
    jobs: Mapping[str, Job],
) -> tuple[Fault, ...]:
    """Every fault of the task with its resolution.

    Attempts are exchangeable, so the oldest faults count as replaced first: the newest as many
    as there are faulted attempts are open; those that would be open if nothing that runs or is
    planned succeeded are pending; a later lineage owns the attempt of the others.
    """
    n_open = filled[AttemptState.FAULTED]
    n_unscored = min(target - filled[AttemptState.SCORED], len(faulted))
    resolutions: dict[str, Resolution] = {}
    for age, item in enumerate(reversed(faulted)):
        if age < n_open:
            left_open = Resolution.GIVEN_UP if rules.given_up else Resolution.OPEN
            resolutions[item.lineage.key] = left_open
        elif age < n_unscored:
            resolutions[item.lineage.key] = Resolution.PENDING
        else:
            resolutions[item.lineage.key] = Resolution.REPLAYED
    faults = []
    for item in judged:
        for record, own in item.faults:
            cause = cause_of(record, rules.causes)
            phase = phase_of(record, cause)
            if own is Resolution.OPEN:
                resolution = resolutions.get(item.lineage.key, Resolution.REPLAYED)
            else:
                resolution = own
            job = jobs.get(record.job_id)
            boundary = None
            if resolution is Resolution.OPEN:
                boundary = boundary_of(
                    record,
                    phase,
                    present=item.last_fault is not None and item.last_fault.present,
                    resumable=job is not None and job.present and job.resumable,
                )
            faults.append(Fault(record, phase, cause, resolution, boundary))
    return tuple(faults)


def is_final(execution: Execution, job: Job | None) -> bool:
    """Whether a fault without a result (interrupted, unreadable) can be counted for good.

    The job finished without it or was restarted since: no better knowledge is to come.
    """
    if job is None or _alive(execution, job):
        return False
    return job.state is JobState.FINISHED or _restarted_since(execution.record, job)
