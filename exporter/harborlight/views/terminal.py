"""A snapshot on a terminal: progress, tasks, open faults."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harborlight.ledger.ownership import AttemptState, Resolution
from harborlight.snapshot import JobSnapshot, RunSnapshot, Snapshot, TaskSnapshot

_STYLES = {
    AttemptState.SCORED: "green",
    AttemptState.RUNNING: "cyan",
    AttemptState.QUEUED: "bright_black",
    AttemptState.FAULTED: "red",
    AttemptState.UNPLANNED: "yellow",
}
_BAR_WIDTH = 60


def render(snapshot: Snapshot, *, tasks: bool = True) -> RenderableType:
    """The whole picture, runs first. All text from files is shown as text, never as markup."""
    parts: list[RenderableType] = []
    for run in snapshot.runs:
        parts += [_run(run), Text()]
        if tasks and run.tasks:
            parts += [_tasks(run.tasks), Text()]
        open_faults = _open_faults(run)
        if open_faults is not None:
            parts += [open_faults, Text()]
    if snapshot.jobs:
        parts.append(_jobs(snapshot.jobs))
    if not parts:
        parts.append(Text("No Harbor jobs found yet."))
    return Group(*parts)


def _run(run: RunSnapshot) -> RenderableType:
    title = Text(run.title, style="bold")
    details = [part for part in (run.agent, run.model, run.dataset) if part]
    if run.title != run.label:
        details.insert(0, f"run {run.label}")
    if details:
        title.append(f"  {' · '.join(details)}", style="bright_black")
    lines: list[RenderableType] = [title, _bar(run), _states(run), _passed(run)]
    notes = [
        (run.surplus, "scored beyond their task's attempts (surplus)"),
        (run.stale_content, "scored on another version of their task (stale content)"),
        (run.superseded, "verdicts replaced by a regrade"),
        (sum(run.scored_with_exception.values()), "scored attempts carry an exception"),
        (run.without_key, "scored attempts lack the reward key"),
        (len(run.excluded), "tasks excluded: " + _reasons(run)),
    ]
    lines += [Text(f"{count} {what}", style="yellow") for count, what in notes if count]
    return Group(*lines)


def _reasons(run: RunSnapshot) -> str:
    return ", ".join(f"{task} ({reason})" for task, reason in sorted(run.excluded.items()))


def _bar(run: RunSnapshot) -> Text:
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


def _states(run: RunSnapshot) -> Text:
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


def _passed(run: RunSnapshot) -> Text:
    scored = run.states[AttemptState.SCORED]
    complete = f"{run.tasks_complete} of {len(run.tasks)} tasks complete"
    rate = f"{100 * run.passed / scored:.1f} %" if scored else "no rate yet"
    return Text(f"{run.passed} of {scored} scored attempts passed ({rate}), {complete}")


def _tasks(tasks: Iterable[TaskSnapshot]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("task", overflow="fold")
    for column in ("scored", "passed", "running", "queued", "faulted", "unplanned", "usual"):
        table.add_column(column, justify="right")
    for task in tasks:
        target = str(task.target) if task.target_known else "?"
        cells = [Text(f"{task.states[AttemptState.SCORED]}/{target}"), Text(str(task.passed))]
        cells += [
            Text(str(task.states[state]) if task.states[state] else "·", style=_STYLES[state])
            for state in list(AttemptState)[1:]
        ]
        cells.append(Text(_duration(task.usual_duration)))
        table.add_row(Text(task.label, style="green" if task.complete else ""), *cells)
    return table


def _open_faults(run: RunSnapshot) -> Table | None:
    rows = [
        (task.label, fault)
        for task in run.tasks
        for fault in task.faults
        if fault.resolution is Resolution.OPEN
    ]
    if not rows:
        return None
    table = Table(title="Open faults", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("task", "cause", "phase", "exception", "replay from", "when"):
        table.add_column(column)
    for label, fault in sorted(rows, key=lambda row: row[1].record.finished_at or 0.0):
        when = fault.record.finished_at or fault.record.started_at
        table.add_row(
            Text(label),
            Text(fault.cause),
            Text(fault.phase),
            Text(fault.exception_type),
            Text(fault.boundary or "?"),
            Text(_moment(when)),
        )
    return table


def _jobs(jobs: Iterable[JobSnapshot]) -> Table:
    table = Table(title="Jobs", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("job", "state", "trials", "last change", "unreadable"):
        table.add_column(column)
    for job in jobs:
        trials = ", ".join(f"{count} {state}" for state, count in job.trials.items() if count)
        table.add_row(
            Text(job.label),
            Text(job.state if job.present else f"{job.state} (directory gone)"),
            Text(trials or "none"),
            Text(_moment(job.last_change)),
            Text(str(job.unreadable_files), style="red" if job.unreadable_files else ""),
        )
    return table


def _moment(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return f"{datetime.datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "·"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} m"
    return f"{minutes} m {rest:02} s" if minutes else f"{rest} s"
