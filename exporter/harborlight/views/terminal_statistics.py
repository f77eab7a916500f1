"""A run's numbers in the terminal: every ratio with its denominator in words."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from harborlight.labels import safe_label
from harborlight.ledger.ownership import AttemptState
from harborlight.ledger.standing import RunStanding
from harborlight.reference import Reference, totals
from harborlight.statistics.comparison import Comparison, Scope, Side
from harborlight.statistics.correctness import Estimate, IntervalKind
from harborlight.statistics.pace import HOUR, Method, Pace, Quantile, Window
from harborlight.statistics.runs import RunStatistics
from harborlight.views.terminal_text import counted, open_table, time_of_day

_QUIET = "bright_black"


def render(
    run: RunStanding, statistics: RunStatistics, now: float, *, brief: bool = False
) -> list[RenderableType]:
    """The run's pace, estimated end, success and comparison; nothing before the first verdict.

    ``brief``: of them only ends, the comparison's table and how many checks fail.
    """
    if not run.states[AttemptState.SCORED]:
        return []
    found, reference = statistics.comparison, statistics.reference
    parts: list[RenderableType] = list(_pace(run, statistics.pace, now))
    if not brief:
        parts += _success(run, found)
    if reference is not None:
        parts.append(_table(statistics, reference))
        if not brief:
            parts += _about_both(run, statistics)
    failed = [(check, f.reason) for check, f in statistics.comparability.items() if not f.holds]
    if failed and brief:
        parts.append(Text(f"{len(failed)} checks of comparability fail", style="yellow"))
    elif failed:
        parts.append(Text("What the comparison is not", style="italic"))
        parts += [Text(f"  {check}: {reason}", style="yellow") for check, reason in failed]
    return parts


def _pace(run: RunStanding, pace: Pace, now: float) -> Iterator[Text]:
    rates = [
        f"{what} {rates[Window.RUN] * HOUR:.1f} (last hour {rates.get(Window.HOUR, 0) * HOUR:.1f})"
        for rates, what in ((pace.scored, "scored attempts"), (pace.terminal, "ended trials"))
        if Window.RUN in rates
    ]
    if rates and run.live:
        yield Text(f"An hour: {', '.join(rates)}")
    point = pace.ends.get((Method.OBSERVED_RATE, Quantile.POINT))
    middle = pace.ends.get((Method.SIMULATION, Quantile.P50))
    if point is not None:
        end = Text(f"End at the observed rate, regrades left out: {time_of_day(point, now)}")
        yield _trusted(end, pace, Method.OBSERVED_RATE)
    if middle is not None:
        early = time_of_day(pace.ends[Method.SIMULATION, Quantile.P10], now)
        late = time_of_day(pace.ends[Method.SIMULATION, Quantile.P90], now)
        text = f"End by simulation: {time_of_day(middle, now)}, simulated range {early} to {late}"
        yield _trusted(Text(text), pace, Method.SIMULATION)
    faulted = run.states[AttemptState.FAULTED] + run.states[AttemptState.UNPLANNED]
    faulted -= run.attempts_given_up
    if pace.ends and faulted:
        text = f"  with {counted(faulted, 'attempt')} that nothing is going to run, run again"
        yield Text(text, _QUIET)


def _trusted(text: Text, pace: Pace, method: Method) -> Text:
    if pace.preferred is method and len({m for m, _ in pace.ends}) > 1:
        text.append("  (the one to trust now)", style=_QUIET)
    return text


def _success(run: RunStanding, found: Comparison) -> Iterator[Text]:
    mean = found.sides.get((Side.RUN, Scope.FULL))
    if mean is not None:
        yield Text(
            f"Mean of all {mean.tasks} tasks: {_percent(mean.value)} "
            f"{_half(mean, IntervalKind.FIXED_TASK)} by the attempts' luck, "
            f"{_half(mean, IntervalKind.TASK_SAMPLING)} with the choice of tasks"
        )
    bounds = found.hard_bounds
    if bounds is not None and bounds.lower < bounds.upper:
        yield Text(
            f"In the end {_percent(bounds.lower)} to {_percent(bounds.upper)} of {run.target} "
            "attempts passed, whatever comes"
        )
    chances = [f"{k}: {_percent(c)} ({n} tasks)" for k, (c, n) in found.pass_at.items() if k > 1]
    if chances:
        yield Text(f"pass@k, of tasks with k scored attempts: {', '.join(chances)}")
    if found.reward_mean is not None:
        yield Text(f"Mean reward of the attempted tasks: {found.reward_mean:.4g}")
    faulted = run.states[AttemptState.FAULTED]
    if faulted and found.faults_as_failures is not None:
        yield Text(
            f"{_percent(found.faults_as_failures)} with {counted(faulted, 'faulted attempt')} "
            "counted as failed, the leaderboards' rule"
        )


def _table(statistics: RunStatistics, reference: Reference) -> Table:
    found = statistics.comparison
    table = open_table(f"Against {safe_label(reference.title)}: means of tasks, ± for 95 %")
    for name in ("tasks", "run %", "reference %", "difference pp", "± tasks' choice"):
        table.add_column(name, justify="left" if name == "tasks" else "right", no_wrap=True)
    for scope in (Scope.ATTEMPTED, Scope.COMPLETE):
        ours, theirs = found.sides.get((Side.RUN, scope)), found.sides.get((Side.REFERENCE, scope))
        difference = found.differences.get(scope)
        if ours is None or theirs is None or difference is None:
            continue
        table.add_row(
            Text(f"{ours.tasks} {scope}"),
            Text(_with_half(ours)),
            Text(_with_half(theirs)),
            Text(_points(difference)),
            Text(_half(difference, IntervalKind.TASK_SAMPLING)),
        )
    full = found.sides.get((Side.REFERENCE, Scope.FULL))
    if full is not None and statistics.unmatched:
        table.add_row(Text(f"{full.tasks} reference"), "", Text(_with_half(full)), "", "")
    return table


def _about_both(run: RunStanding, statistics: RunStatistics) -> Iterator[Text]:
    matched = statistics.comparison.matched
    if matched:
        yield Text(
            "± the luck of the attempts, on the right that of the choice of tasks, too; "
            "?: a task has a single attempt",
            _QUIET,
        )
        yield from _counts(statistics.comparison)
    else:
        yield Text("The run and the reference have no task in common: nothing is compared")
    ours = [task.label for task in run.tasks if task.label not in matched]
    for whose, names in (("this run", ours), ("the reference", statistics.unmatched)):
        if names:
            listed = ", ".join(safe_label(name) for name in names)
            yield Text(
                f"{len(names)} of {len(names) + len(matched)} tasks only in {whose}: {listed}"
            )


def _counts(found: Comparison) -> Iterator[Text]:
    """What of the reference is compared with, and where that leads."""
    matched = found.matched
    attempts, passed, errors = totals(matched.values())
    tasks = counted(len(matched), "task")
    counts = f"The reference on the {tasks} of both: {passed} of {attempts} passed"
    if errors:
        counts += f" ({passed} of {attempts - errors} with a verdict)"
    yield Text(counts)
    if found.projected is not None:
        yield Text(
            f"Projected on the {tasks} of both: {_percent(found.projected)} "
            "(the reference's ratio plus the difference so far)"
        )


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.2f} %"


def _with_half(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.2f} {_half(estimate, IntervalKind.FIXED_TASK)}"


def _points(estimate: Estimate) -> str:
    return f"{100 * estimate.value:+.2f} {_half(estimate, IntervalKind.FIXED_TASK)}"


def _half(estimate: Estimate, kind: IntervalKind) -> str:
    """Half the interval's width in percentage points; ``?`` where it is undefined."""
    interval = estimate.intervals.get(kind)
    return "± ?" if interval is None else f"± {100 * interval.half_width:.2f}"
