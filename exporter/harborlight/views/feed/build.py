"""The feed's documents from a snapshot (pure)."""

from __future__ import annotations

import hmac
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from harborlight import __version__
from harborlight.ledger.accounts import DISCARDED, RETRIES
from harborlight.ledger.faults import Boundary
from harborlight.ledger.ownership import AttemptState, Fault, Resolution, TrialState
from harborlight.ledger.pools import PoolStanding
from harborlight.ledger.replicas import ReplicaStanding
from harborlight.ledger.standing import RunStanding, TaskStanding
from harborlight.readings import Number
from harborlight.reference import Reference, ReferenceTask, totals
from harborlight.snapshot import Snapshot
from harborlight.statistics import correctness, pace
from harborlight.statistics.comparison import Scope, Side
from harborlight.statistics.correctness import IntervalKind
from harborlight.statistics.pace import HOUR, Method, Quantile, Window
from harborlight.statistics.runs import RunStatistics, complete_difference
from harborlight.views.feed import model
from harborlight.views.feed.public_text import (
    exception_type,
    pseudonym,
    public_line,
    public_name,
    public_paragraph,
)
from harborlight.views.feed.publication import Publication, RunWords, TaskNames
from harborlight.views.feed.trend import trend
from harborlight.words import Words, same

_RATIO_DIGITS: Final = 6
_RATE_DIGITS: Final = 3


def index_feed(snapshot: Snapshot, publication: Publication) -> model.IndexFeed:
    """The list of the runs that are shown, in the snapshot's order."""
    ids = run_ids(snapshot, publication)
    return model.IndexFeed(
        as_of=_moment(snapshot.at) or 0,
        exporter=_exporter(publication),
        title=_line(publication.title or Words("Evaluation runs, live", "评测运行实况")),
        runs=tuple(
            _summary(run, run_id, snapshot, publication)
            for run in snapshot.runs
            if (run_id := ids.get(run.label)) is not None
        ),
    )


def run_feed(label: str, snapshot: Snapshot, publication: Publication) -> model.RunFeed | None:
    """The whole of one run; None where no such run is shown."""
    run_id = run_ids(snapshot, publication).get(label)
    run = next((run for run in snapshot.runs if run.label == label), None)
    if run is None or run_id is None:
        return None
    words = publication.words.get(label, RunWords())
    statistics = snapshot.statistics.get(label)
    reference = statistics.reference if statistics is not None else None
    matched = statistics.comparison.matched if statistics is not None else {}
    checks = statistics.comparability if statistics is not None else {}
    return model.RunFeed(
        as_of=_moment(snapshot.at) or 0,
        exporter=_exporter(publication),
        id=run_id,
        title=_line(_title(run, publication)),
        side=_line(words.side) if words.side is not None else None,
        state=_run_state(run),
        agent=public_name(run.agent),
        agent_version=public_name(run.agent_version),
        model=public_name(run.model),
        dataset=public_name(run.dataset),
        started=_moment(run.started),
        last_verdict=_moment(run.last_verdict),
        attempts=_attempts(run),
        tasks_complete=run.tasks_complete,
        denominator=_denominator(run, words, publication),
        pace=_pace(statistics),
        correctness=_correctness(run, statistics),
        reference=_reference(reference, matched) if reference is not None else None,
        comparison_note=_paragraph(words.comparison),
        comparability=tuple(
            model.Comparable(check=check, holds=finding.holds) for check, finding in checks.items()
        ),
        task_names=publication.task_names,
        tasks=tuple(_tasks(run.tasks, matched, publication)),
        trend=tuple(
            model.TrendPoint(
                at=int(point.at),
                scored=point.scored,
                passed=point.passed,
                run=_ratio(point.run),
                reference=_ratio(point.reference),
            )
            for point in trend(run.tasks, matched, model.MAX_TREND_POINTS)
        ),
        pools=tuple(
            _pool(pool, number)
            for number, pool in enumerate(
                (pool for pool in snapshot.pools if label in pool.runs), 1
            )
        ),
        issues=_issues(run, snapshot.counters.get(label, {}), publication),
    )


def run_ids(snapshot: Snapshot, publication: Publication) -> dict[str, str]:
    """What the runs that are shown are called in file names, by label: short, and all different."""
    shown = [run.label for run in snapshot.runs if publication.shows(run.label)]
    plain = {label: _plain_id(label) for label in shown[: model.MAX_RUNS]}
    often = Counter(plain.values())
    return {
        label: name
        if name and often[name] == 1 and public_name(label)
        else pseudonym(f"{name}-run" if name and public_name(label) else "run", label)
        for label, name in plain.items()
    }


def _plain_id(label: str) -> str:
    letters = (c if c.isascii() and c.isalnum() else "-" for c in label.lower())
    return "-".join(part for part in "".join(letters).split("-") if part)[:60].strip("-")


def _exporter(publication: Publication) -> model.Exporter:
    return model.Exporter(version=__version__, stale_after=publication.stale_after)


def _title(run: RunStanding, publication: Publication) -> Words:
    """What the operator calls the run; a name from a file only where it can be nothing else."""
    words = publication.words.get(run.label)
    if words is not None and words.title is not None:
        return words.title
    configured = public_line(run.title) if words is not None else public_name(run.title)
    if configured is not None:
        return same(configured)
    stands_for = pseudonym("", run.label)[1:]
    return Words(f"Run {stands_for}", f"运行 {stands_for}")


def _line(words: Words) -> model.LineInBoth:
    return model.LineInBoth(en=words.en, zh=words.zh)


def _paragraph(words: Words | None) -> model.ParagraphInBoth | None:
    return model.ParagraphInBoth(en=words.en, zh=words.zh) if words is not None else None


def _moment(seconds: float | None) -> int | None:
    """Whole seconds; None for what no clock says."""
    if seconds is None or not 0 < seconds <= 10**11:
        return None
    return int(seconds)


def _ratio(value: float | None) -> float | None:
    return None if value is None else round(value, _RATIO_DIGITS)


def _run_state(run: RunStanding) -> model.RunState:
    states = run.states
    if run.target is not None and states[AttemptState.SCORED] == run.target > 0:
        return "complete"
    if run.live:
        return "running"
    begun = states[AttemptState.SCORED] or states[AttemptState.FAULTED] or run.started is not None
    return "ended" if begun else "waiting"


def _attempts(run: RunStanding) -> model.Attempts:
    return model.Attempts(
        target=run.target,
        **{state.value: run.states[state] for state in AttemptState},
        passed=run.passed,
        given_up=run.attempts_given_up,
    )


def _denominator(run: RunStanding, words: RunWords, publication: Publication) -> model.Denominator:
    targets = {task.target for task in run.tasks if task.target_known}
    by_reason: dict[Words | None, list[str]] = defaultdict(list)
    for task, reason in run.excluded.items():
        both = words.exclude.get(task, same(reason))
        shown = Words(public_line(both.en) or "", public_line(both.zh) or "")
        by_reason[shown if all(shown) else None].append(task)
    named = publication.task_names is TaskNames.SHOWN
    return model.Denominator(
        tasks=len(run.tasks),
        all_tasks=len(run.tasks) + len(run.excluded),
        attempts_per_task=targets.pop() if len(targets) == 1 else None,
        exclusions=tuple(
            model.Exclusion(
                reason=_line(reason) if reason is not None else None,
                count=len(tasks),
                tasks=tuple(_shown_name(task) for task in sorted(tasks)) if named else (),
            )
            for reason, tasks in by_reason.items()
        ),
        note=_paragraph(words.denominator),
    )


def _pace(statistics: RunStatistics | None) -> model.Pace:
    found = statistics.pace if statistics is not None else pace.Pace({}, {}, {})

    def hourly(rates: Mapping[Window, float], window: Window) -> float | None:
        return round(rates[window] * HOUR, _RATE_DIGITS) if window in rates else None

    return model.Pace(
        trials_last_hour=hourly(found.terminal, Window.HOUR),
        trials_run=hourly(found.terminal, Window.RUN),
        scored_last_hour=hourly(found.scored, Window.HOUR),
        scored_run=hourly(found.scored, Window.RUN),
        eta=_eta(found),
    )


def _eta(found: pace.Pace) -> model.Eta | None:
    middle = Quantile.P50 if found.preferred is Method.SIMULATION else Quantile.POINT
    if found.preferred is None:
        return None
    end = _moment(found.ends.get((found.preferred, middle)))
    if end is None:
        return None
    return model.Eta(
        method=found.preferred,
        end=end,
        early=_moment(found.ends.get((found.preferred, Quantile.P10))),
        late=_moment(found.ends.get((found.preferred, Quantile.P90))),
    )


def _correctness(run: RunStanding, statistics: RunStatistics | None) -> model.Correctness:
    scored = run.states[AttemptState.SCORED]
    ratio = _ratio(run.passed / scored) if scored else None
    none = model.Sides(run=None, reference=None, difference=None)
    if statistics is None:
        return model.Correctness(
            attempts_ratio=ratio,
            bounds=None,
            attempted=none,
            complete=none,
            full=None,
            projected=None,
            faults_as_failures=None,
        )
    found = statistics.comparison

    def sides(scope: Scope) -> model.Sides:
        return model.Sides(
            run=_estimate(found.sides.get((Side.RUN, scope))),
            reference=_estimate(found.sides.get((Side.REFERENCE, scope))),
            difference=_estimate(found.differences.get(scope), least=-1.0),
        )

    return model.Correctness(
        attempts_ratio=ratio,
        bounds=_interval(found.hard_bounds),
        attempted=sides(Scope.ATTEMPTED),
        complete=sides(Scope.COMPLETE),
        full=_estimate(found.sides.get((Side.RUN, Scope.FULL))),
        projected=_ratio(found.projected),
        faults_as_failures=_ratio(found.faults_as_failures),
    )


def _estimate(estimate: correctness.Estimate | None, least: float = 0.0) -> model.Estimate | None:
    if estimate is None:
        return None
    intervals = estimate.intervals
    return model.Estimate(
        value=round(estimate.value, _RATIO_DIGITS),
        tasks=estimate.tasks,
        attempts_luck=_interval(intervals.get(IntervalKind.FIXED_TASK), least),
        tasks_choice=_interval(intervals.get(IntervalKind.TASK_SAMPLING), least),
    )


def _interval(interval: correctness.Interval | None, least: float = 0.0) -> model.Interval | None:
    if interval is None:
        return None
    cut = interval.within(least, 1.0)
    return model.Interval(
        lower=round(cut.lower, _RATIO_DIGITS), upper=round(cut.upper, _RATIO_DIGITS)
    )


def _reference(reference: Reference, matched: Mapping[str, ReferenceTask]) -> model.Reference:
    whole, both = totals(reference.tasks.values()), totals(matched.values())
    note = reference.note
    notes = [public_paragraph(text) for text in note or ()]
    links = [
        model.ReferenceLink(text=_line(words), href=href)
        for words, href in reference.links.items()
        if all(map(public_line, words))
    ]
    return model.Reference(
        title=_line(_reference_title(reference)),
        note=_paragraph(note) if note is not None and all(notes) else None,
        links=tuple(links[: model.MAX_LINKS]),
        tasks=len(reference.tasks),
        attempts=whole.attempts,
        passed=whole.passed,
        errors=whole.errors,
        full=_estimate(correctness.success([task.count for task in reference.tasks.values()])),
        matched_tasks=len(matched),
        matched_attempts=both.attempts,
        matched_passed=both.passed,
        matched=_estimate(correctness.success([task.count for task in matched.values()])),
    )


def _reference_title(reference: Reference) -> Words:
    title, title_zh = reference.title, reference.title_zh or reference.title
    if public_line(title) is None or public_line(title_zh) is None:
        return Words("The reference", "参照结果")
    return Words(title, title_zh)


def _shown_name(label: str) -> str:
    return public_name(label) or pseudonym("task", label)


def _tasks(
    tasks: Sequence[TaskStanding],
    matched: Mapping[str, ReferenceTask],
    publication: Publication,
) -> Iterable[model.Task]:
    named = publication.task_names is TaskNames.SHOWN
    for number, task in enumerate(tasks[: model.MAX_TASKS], 1):
        reference = matched.get(task.label) if named else None
        difference = complete_difference(task, reference) if reference is not None else None
        yield model.Task(
            name=_task_name(task.label, number, publication),
            state=_task_state(task),
            target=task.target,
            target_known=task.target_known,
            **{state.value: task.states[state] for state in AttemptState},
            passed=task.passed,
            reference=model.ReferenceCount(passed=reference.passed, attempts=reference.attempts)
            if reference is not None
            else None,
            difference=_ratio(difference),
        )


def _task_name(label: str, number: int, publication: Publication) -> str:
    match publication.task_names:
        case TaskNames.SHOWN:
            return _shown_name(label)
        case TaskNames.HASHED:
            name = label.encode("utf-8", "surrogatepass")
            return f"task-{hmac.digest(publication.hash_key, name, 'sha256').hex()[:8]}"
        case TaskNames.HIDDEN:
            return f"task-{number}"


def _task_state(task: TaskStanding) -> model.TaskState:
    if task.complete:
        return "complete"
    states = task.states
    for state, name in _BY_URGENCY:
        if states[state]:
            return name
    return "unplanned"


_BY_URGENCY: Final[tuple[tuple[AttemptState, model.TaskState], ...]] = (
    (AttemptState.RUNNING, "running"),
    (AttemptState.FAULTED, "faulted"),
    (AttemptState.QUEUED, "queued"),
)


def _pool(pool: PoolStanding, number: int) -> model.Pool:
    trials = pool.trials
    ended = (TrialState.SCORED, TrialState.FAULTED, TrialState.UNVERIFIED)
    configured = public_line(pool.title)
    title = same(configured) if configured else Words(f"Pool {number}", f"服务池 {number}")
    return model.Pool(
        title=_line(title),
        terminal=sum(trials.get(state, 0) for state in ended),
        running=trials.get(TrialState.RUNNING, 0),
        pending=trials.get(TrialState.QUEUED, 0),
        retries=int(pool.retries),
        replicas=tuple(
            _replica(replica, place)
            for place, replica in enumerate(pool.replicas[: model.MAX_REPLICAS])
        ),
    )


_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _replica(replica: ReplicaStanding, place: int) -> model.Replica:
    def number(kind: Number) -> int | None:
        """Over all roles; None where one does not know it."""
        known = [numbers.get(kind) for numbers in replica.numbers.values()]
        found = [value for value in known if value is not None]
        return int(sum(found)) if found and len(found) == len(known) else None

    turn, letter = divmod(place, len(_LETTERS))
    return model.Replica(
        name=(_LETTERS[turn - 1] if turn else "") + _LETTERS[letter],
        state=replica.state,
        tensor_parallel=replica.info.tp,
        data_parallel=replica.info.dp,
        running_requests=number(Number.RUNNING),
        queued_requests=number(Number.QUEUED),
        max_running_requests=number(Number.MAX_RUNNING),
        kv_tokens_used=number(Number.KV_USED),
        kv_tokens_capacity=number(Number.KV_CAPACITY),
    )


def _issues(
    run: RunStanding,
    counters: Mapping[str, Mapping[tuple[str, ...], float]],
    publication: Publication,
) -> model.Issues:
    found = [(task.label, fault) for task in run.tasks for fault in task.faults]
    retries = int(counters.get(RETRIES, {}).get((), 0.0)) if run.retries_known else None
    by_boundary: Counter[Boundary] = Counter()
    for (_, boundary), count in run.faults_open.items():
        by_boundary[boundary] += count
    return model.Issues(
        total=len(found),
        open=sum(by_boundary.values()),
        kinds=tuple(_fault_kinds(found, publication)),
        open_by_boundary=tuple(
            model.OpenFaults(boundary=boundary, count=by_boundary[boundary])
            for boundary in Boundary
        ),
        resolutions=model.Resolutions(
            **{resolution.value: run.resolutions.get(resolution, 0) for resolution in Resolution}
        ),
        retries=retries,
        discarded=int(sum(counters.get(DISCARDED, {}).values())),
        surplus=run.surplus,
        stale_content=run.stale_content,
        superseded=run.superseded,
        scored_with_exception=sum(run.scored_with_exception.values()),
        scored_without_key=run.without_key,
    )


def _fault_kinds(
    found: Iterable[tuple[str, Fault]], publication: Publication
) -> list[model.FaultKind]:
    kinds: dict[tuple[str, str, str], list[tuple[str, Fault]]] = defaultdict(list)
    for task, fault in found:
        kind = exception_type(fault.exception_type, publication.exception_types)
        kinds[fault.cause, fault.phase, kind].append((task, fault))
    listed = sorted(kinds.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    return [_fault_kind(kind, faults) for (_, _, kind), faults in listed[: model.MAX_FAULT_KINDS]]


def _fault_kind(kind: str, faults: Sequence[tuple[str, Fault]]) -> model.FaultKind:
    first = faults[0][1]
    became = Counter(fault.resolution for _, fault in faults)
    ends = [_moment(fault.record.finished_at) for _, fault in faults]
    return model.FaultKind(
        cause=first.cause,
        phase=first.phase,
        exception_type=kind,
        total=len(faults),
        resolutions=model.Resolutions(
            **{resolution.value: became[resolution] for resolution in Resolution}
        ),
        tasks=len({task for task, _ in faults}),
        last=max((end for end in ends if end is not None), default=None),
    )


def _summary(
    run: RunStanding, run_id: str, snapshot: Snapshot, publication: Publication
) -> model.RunSummary:
    statistics = snapshot.statistics.get(run.label)
    found = _correctness(run, statistics)
    return model.RunSummary(
        id=run_id,
        href=f"run-{run_id}.json",
        title=_line(_title(run, publication)),
        state=_run_state(run),
        counts=model.Counts(
            target=run.target,
            scored=run.states[AttemptState.SCORED],
            passed=run.passed,
            tasks=len(run.tasks),
            tasks_complete=run.tasks_complete,
        ),
        started=_moment(run.started),
        last_verdict=_moment(run.last_verdict),
        attempted=found.attempted.run,
        difference=found.attempted.difference,
        eta=_eta(statistics.pace) if statistics is not None else None,
        open_faults=sum(run.faults_open.values()),
    )
