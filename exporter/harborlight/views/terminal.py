"""A snapshot on a terminal: progress, tasks, open faults, serving pools."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from harborlight.ledger.accounts import RETRIES
from harborlight.ledger.jobs import JobState
from harborlight.ledger.ownership import AttemptState, Fault, Resolution, TrialState
from harborlight.ledger.pools import PoolStanding
from harborlight.ledger.standing import JobStanding, RunStanding, TaskStanding
from harborlight.readings import Number, ReplicaState
from harborlight.reference import ReferenceTask
from harborlight.snapshot import Snapshot
from harborlight.statistics.runs import complete_difference
from harborlight.views import terminal_statistics
from harborlight.views.terminal_text import open_table, time_of_day

_STYLES = {
    AttemptState.SCORED: "green",
    AttemptState.RUNNING: "cyan",
    AttemptState.QUEUED: "bright_black",
    AttemptState.FAULTED: "red",
    AttemptState.UNPLANNED: "yellow",
}
_BAR_WIDTH = 60

_COLUMNS = {
    AttemptState.RUNNING: "run",
    AttemptState.QUEUED: "queue",
    AttemptState.FAULTED: "fault",
    AttemptState.UNPLANNED: "unplan",
}
"""States by the titles of their columns: with a task name of 30 characters they fit 80 columns."""

_WHOLE_STATISTICS = 45
"""Lines of a screen from which on all of a run's statistics have room."""

_WHOLE_TYPE = 40
_WHOLE_NAME = 32
"""Exception types and job names up to this length are not broken."""


def render(snapshot: Snapshot, *, tasks: bool = True, height: int | None = None) -> RenderableType:
    """The whole picture: runs, open faults, jobs, pools, tasks.

    ``height``: lines of a screen that cannot be scrolled; tables are then cut to what fits, the
    rows that matter first, and say how many are left out. All text from files is shown as text,
    never as markup.
    """
    moment = datetime.datetime.fromtimestamp(snapshot.at).astimezone()
    parts: list[RenderableType] = [
        Text(f"As of {moment:%Y-%m-%d %H:%M:%S %Z}", style="bright_black")
    ]
    most = None if height is None else max(3, height // 6)
    lines = 0
    for run in snapshot.runs:
        retries = snapshot.counters.get(run.label, {}).get(RETRIES, {}).get((), 0.0)
        parts.append(_run(run, int(retries)))
        if run.label in snapshot.statistics:
            numbers = terminal_statistics.render(
                run,
                snapshot.statistics[run.label],
                snapshot.at,
                brief=height is not None and height < _WHOLE_STATISTICS,
            )
            parts += numbers
            lines += 2 * len(numbers)
        parts.append(Text())
        open_faults = [
            (task.label, fault)
            for task in run.tasks
            for fault in task.faults
            if fault.resolution is Resolution.OPEN
        ]
        if open_faults:
            parts += [_OpenFaults(open_faults[:most], snapshot.at), _rest(open_faults, most)]
    if snapshot.jobs:
        parts += [_jobs(snapshot.jobs[:most], snapshot.at), _rest(snapshot.jobs, most)]
    elif not snapshot.pools:
        parts.append(Text("No Harbor jobs found yet."))
    for collector in snapshot.collectors:
        if not collector.success:
            text = f"{collector.name} could not be looked at in full: the log says why."
            parts.append(Text(text, style="red"))
    if any(job.state is JobState.UNKNOWN for job in snapshot.jobs):
        text = (
            "unknown: it cannot be told whether anybody works on the job. If Harbor runs on this "
            "host, --local-jobs tells."
        )
        parts.append(Text(text, style="yellow"))
    for pool in snapshot.pools:
        parts += [_pool(pool, most), _rest(pool.replicas, most)]
    shown = [run for run in snapshot.runs if run.tasks] if tasks else []
    for run in shown:
        left = None
        if height is not None:
            left = max(3, (height - 18 - lines - 2 * (most or 0)) // len(shown))
        title = f"Tasks of {run.title}" if len(shown) > 1 else "Tasks"
        statistics = snapshot.statistics.get(run.label)
        matched = statistics.comparison.matched if statistics is not None else {}
        tasks_shown = sorted(run.tasks, key=_urgency)[:left]
        parts += [_tasks(title, tasks_shown, matched), _rest(run.tasks, left)]
    return Group(*parts)


def _rest(rows: Sequence[object], most: int | None) -> Text:
    left_out = 0 if most is None else len(rows) - most
    return Text(f"… and {left_out} more\n" if left_out > 0 else "", style="bright_black")


def _urgency(task: TaskStanding) -> tuple[bool, bool, bool, str]:
    """Faulted tasks first, then running ones, complete ones last."""
    states = task.states
    return (
        not states[AttemptState.FAULTED],
        not states[AttemptState.RUNNING],
        task.complete,
        task.label,
    )


def _run(run: RunStanding, retries: int) -> RenderableType:
    title = Text(run.title, style="bold")
    details = [part for part in (run.agent, run.model, run.dataset) if part]
    if run.title != run.label:
        details.insert(0, f"run {run.label}")
    if details:
        title.append(f"  {' · '.join(details)}", style="bright_black")
    lines: list[RenderableType] = [title, _bar(run), _states(run), _passed(run)]
    given_up = {task.label: task.given_up for task in run.tasks if task.given_up}
    strange = ", ".join(run.unknown_tasks)
    notes = [
        (run.surplus, "scored beyond their task's attempts (surplus)"),
        (run.stale_content, "scored on another version of their task (stale content)"),
        (run.superseded, "with a verdict that a regrade replaced"),
        (sum(run.scored_with_exception.values()), "scored with an exception"),
        (run.without_key, "scored without the reward key"),
        (retries, "retry by Harbor" if retries == 1 else "retries by Harbor"),
        (len(run.excluded), "of the tasks excluded: " + _reasons(run.excluded)),
        (len(given_up), "of the tasks given up: " + _reasons(given_up)),
        (len(run.unknown_tasks), "named in the configuration and in no job: " + strange),
    ]
    lines += [Text(f"{count} {what}", style="yellow") for count, what in notes if count]
    return Group(*lines)


def _reasons(tasks: Mapping[str, str]) -> str:
    return ", ".join(f"{task} ({reason})" for task, reason in sorted(tasks.items()))


def _bar(run: RunStanding) -> Text:
    total = sum(run.states.values())
    bar = Text()
    done = 0
    for state in AttemptState:
        before = round(_BAR_WIDTH * done / total) if total else 0
        done += run.states[state]
        after = round(_BAR_WIDTH * done / total) if total else 0
        shape = "░" if state in (AttemptState.QUEUED, AttemptState.UNPLANNED) else "█"
        bar.append(shape * (after - before), style=_STYLES[state])
    return bar


def _states(run: RunStanding) -> Text:
    scored = run.states[AttemptState.SCORED]
    if run.target is None:
        text = Text(f"{scored} scored, target unknown")
    else:
        share = f" ({100 * scored / run.target:.1f} %)" if run.target else ""
        text = Text(f"{scored} / {run.target} scored{share}")
    for state in AttemptState:
        if state is not AttemptState.SCORED and run.states[state]:
            text.append("  ")
            text.append(f"{run.states[state]} {state}", style=_STYLES[state])
    return text


def _passed(run: RunStanding) -> Text:
    scored = run.states[AttemptState.SCORED]
    complete = f"{run.tasks_complete} of {len(run.tasks)} tasks complete"
    rate = f"{100 * run.passed / scored:.1f} %" if scored else "no rate yet"
    return Text(f"{run.passed} of {scored} scored attempts passed ({rate}), {complete}")


def _tasks(
    title: str, tasks: Sequence[TaskStanding], matched: Mapping[str, ReferenceTask]
) -> Table:
    table = open_table(title)
    table.add_column("task", overflow="fold")
    states = [state for state in _COLUMNS if any(task.states[state] for task in tasks)]
    timed = any(task.usual_duration is not None for task in tasks)
    titles = ["scored", "pass", *(_COLUMNS[state] for state in states), *(["usual"] * timed)]
    titles += ["there", "diff"] if matched else []
    for name in titles:
        table.add_column(name, justify="right", no_wrap=True)
    for task in tasks:
        target = str(task.target) if task.target_known else "?"
        cells = [Text(f"{task.states[AttemptState.SCORED]}/{target}"), Text(str(task.passed))]
        cells += [
            Text(str(task.states[state]) if task.states[state] else "·", style=_STYLES[state])
            for state in states
        ]
        if timed:
            cells.append(Text(_duration(task.usual_duration)))
        if matched:
            cells += _compared(task, matched.get(task.label))
        table.add_row(Text(task.label, style="green" if task.complete else ""), *cells)
    return table


def _compared(task: TaskStanding, reference: ReferenceTask | None) -> tuple[Text, Text]:
    """The reference's passed attempts of all, and the difference in points once complete."""
    if reference is None:
        return Text("·"), Text("·")
    there = Text(f"{reference.passed}/{reference.attempts}")
    difference = complete_difference(task, reference)
    return there, Text("·" if difference is None else f"{100 * difference:+.0f}")


class _OpenFaults:
    """The open faults, oldest first; where it is narrow, without their phase."""

    def __init__(self, faults: Iterable[tuple[str, Fault]], now: float) -> None:
        self._faults = sorted(faults, key=lambda entry: _ended(entry[1]) or 0.0)
        self._now = now

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        table = self._with(phase=True)
        if Measurement.get(console, options.update(max_width=10_000), table).maximum > (
            options.max_width
        ):
            table = self._with(phase=False)
        yield table

    def _with(self, *, phase: bool) -> Table:
        table = open_table("Open faults")
        longest = max(len(fault.exception_type) for _, fault in self._faults)
        table.add_column("task", overflow="fold")
        table.add_column("cause", no_wrap=True)
        if phase:
            table.add_column("phase", no_wrap=True)
        table.add_column("exception", overflow="fold", no_wrap=longest <= _WHOLE_TYPE)
        table.add_column("replay", no_wrap=True)
        table.add_column("when", no_wrap=True)
        for label, fault in self._faults:
            table.add_row(
                Text(label),
                Text(fault.cause),
                *([Text(fault.phase)] if phase else []),
                Text(fault.exception_type),
                Text(fault.boundary or "?"),
                Text(time_of_day(_ended(fault), self._now)),
            )
        return table


def _ended(fault: Fault) -> float | None:
    return fault.record.finished_at or fault.record.started_at


def _jobs(jobs: Sequence[JobStanding], now: float) -> Table:
    table = open_table("Jobs")
    longest = max(len(job.label) for job in jobs)
    table.add_column("job", overflow="fold", no_wrap=longest <= _WHOLE_NAME)
    table.add_column("state")
    table.add_column("trials")
    table.add_column("last change", no_wrap=True)
    unreadable = any(job.unreadable_files for job in jobs)
    if unreadable:
        table.add_column("unreadable", justify="right", no_wrap=True)
    for job in jobs:
        trials = ", ".join(f"{count} {state}" for state, count in job.trials.items() if count)
        style = "red" if job.unreadable_files else ""
        table.add_row(
            Text(job.label),
            Text(job.state if job.present else f"{job.state} (directory gone)"),
            Text(trials or "none"),
            Text(time_of_day(job.last_change, now)),
            *([Text(str(job.unreadable_files), style=style)] if unreadable else []),
        )
    return table


def _pool(pool: PoolStanding, most: int | None) -> Table:
    running = pool.trials.get(TrialState.RUNNING, 0)
    table = open_table(f"Pool {pool.title}: {running} trials running")
    for name in ("replica", "state"):
        table.add_column(name, overflow="fold")
    for name in ("requests", "queued", "KV"):
        table.add_column(name, justify="right", no_wrap=True)
    for replica in sorted(pool.replicas, key=lambda r: r.state is ReplicaState.UP)[:most]:
        state = replica.state or "not asked yet"
        why = f"{state}: {replica.reason}" if replica.reason else state
        style = {ReplicaState.UP: "green", None: ""}.get(replica.state, "red")
        name = replica.label
        for role, numbers in sorted(replica.numbers.items()) or [("", {})]:
            shown = f"{name} ({role})" if len(replica.numbers) > 1 else name
            table.add_row(Text(shown), Text(why, style=style), *map(Text, _load(numbers)))
    return table


def _load(numbers: Mapping[Number, float]) -> tuple[str, str, str]:
    """Requests running and queued, and how full the KV cache is; ``?`` is not known."""
    running, most = numbers.get(Number.RUNNING), numbers.get(Number.MAX_RUNNING)
    requests = _count(running) if most is None else f"{_count(running)}/{_count(most)}"
    used, capacity = numbers.get(Number.KV_USED), numbers.get(Number.KV_CAPACITY)
    share = "?" if used is None or not capacity else f"{100 * used / capacity:.0f} %"
    return requests, _count(numbers.get(Number.QUEUED)), share


def _count(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "·"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
