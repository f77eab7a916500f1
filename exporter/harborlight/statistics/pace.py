"""How fast a run goes, and when it will be through (pure).

Two estimates of the end, both of the whole target: attempts whose fault nothing replaces yet
count as work that is still to be done. Where nothing runs or is queued there is no estimate.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from harborlight.ledger.ownership import AttemptState, Span
from harborlight.ledger.standing import RunStanding, TaskStanding
from harborlight.statistics.eta import Work, observed_rate, preferred, simulate

HOUR: Final = 3600.0

_SECONDS_PER_ATTEMPT: Final = 0.01
"""A simulation is not made again sooner than this for every attempt that is left: its cost grows
with them, so its share of the time does not."""

_MOST_SIMULATED: Final = 100_000
"""With more attempts left there is no simulation: a refresh would wait for it for too long."""

_NOT_SEEN: Final = ""
"""Stands for a task that no trial has shown yet, as in a job without a lock."""


class Window(StrEnum):
    """Over what a rate is: the last hour by the clock, or all the time in which trials ran."""

    HOUR = "1h"
    RUN = "run"


class Method(StrEnum):
    """How the end is estimated."""

    OBSERVED_RATE = "observed_rate"
    SIMULATION = "simulation"


class Quantile(StrEnum):
    """Of a simulation its quantiles; an observed rate gives a point."""

    POINT = "point"
    P10 = "p10"
    P50 = "p50"
    P90 = "p90"


@dataclass(frozen=True, slots=True)
class Pace:
    """Rates per second by window, and the estimated ends in seconds since the epoch.

    ``preferred``: the method to trust now; None without an estimate. ``simulated_at``: the moment
    that the simulation is of.
    """

    terminal: Mapping[Window, float]
    scored: Mapping[Window, float]
    ends: Mapping[tuple[Method, Quantile], float]
    preferred: Method | None = None
    simulated_at: float | None = None


def pace(
    run: RunStanding, at: float, prior: Mapping[str, tuple[float, ...]], before: Pace | None = None
) -> Pace:
    """The run's pace at ``at``.

    ``prior``: the reference's durations by the run's labels. ``before``: an earlier pace of the
    same run, whose simulation may do for a while.
    """
    spans = [span for task in run.tasks for span in task.spans]
    # What a clock that is ahead dates in the future has not happened yet.
    ended = [span.end for span in spans if span.end is not None and span.end <= at]
    scored_at = [moment for task in run.tasks for moment in task.scored_at if moment <= at]
    active = active_seconds(spans, at)
    since = max(at - HOUR, min((span.start for span in spans), default=at))
    terminal, scored = (
        {
            window: count / seconds
            for window, count, seconds in (
                (Window.HOUR, sum(moment > since for moment in moments), at - since),
                (Window.RUN, len(moments), active),
            )
            if seconds > 0
        }
        for moments in (ended, scored_at)
    )
    left = _left(run)
    if run.target is None or not left or not _goes_on(run):
        return Pace(terminal, scored, ends={})
    ends: dict[tuple[Method, Quantile], float] = {}
    point = observed_rate(left, scored.get(Window.RUN, 0.0))
    if point is not None:
        ends[Method.OBSERVED_RATE, Quantile.POINT] = at + point
    simulated_at = before.simulated_at if before is not None else None
    if (
        before is not None
        and simulated_at is not None
        and (0 <= at - simulated_at < left * _SECONDS_PER_ATTEMPT)
    ):
        simulated = {k: end for k, end in before.ends.items() if k[0] is Method.SIMULATION}
    else:
        simulated, simulated_at = _simulated(run, left, at, prior), at
    ends.update(simulated)
    return Pace(terminal, scored, ends, _preferred(run, prior, ends), simulated_at)


def active_seconds(spans: Iterable[Span], at: float) -> float:
    """For how long at least one of the trials ran, up to ``at``."""
    bounds = np.array(
        [(span.start, at if span.end is None else span.end) for span in spans], dtype=float
    ).reshape(-1, 2)
    bounds = np.minimum(bounds[np.isfinite(bounds).all(axis=1)], at)
    bounds = bounds[np.argsort(bounds[:, 0], kind="stable")]
    if not len(bounds):
        return 0.0
    # What of each trial lies behind the ends of all that began before it.
    reached = np.concatenate(([-np.inf], np.maximum.accumulate(bounds[:-1, 1])))
    return float(np.maximum(0.0, bounds[:, 1] - np.maximum(bounds[:, 0], reached)).sum())


def _left(run: RunStanding) -> int:
    open_attempts = sum(run.states.values()) - run.states[AttemptState.SCORED]
    return open_attempts - run.attempts_given_up


def _goes_on(run: RunStanding) -> bool:
    return run.live and bool(run.states[AttemptState.RUNNING] or run.states[AttemptState.QUEUED])


def _simulated(
    run: RunStanding, left: int, at: float, prior: Mapping[str, tuple[float, ...]]
) -> dict[tuple[Method, Quantile], float]:
    if left > _MOST_SIMULATED:
        return {}
    running, known = running_ages(run.tasks, at), waiting(run.tasks)
    work = Work(
        finished=tuple((task.label, seconds) for task in run.tasks for seconds in task.durations),
        running=running,
        waiting=(*known, *[_NOT_SEEN] * (left - len(running) - len(known))),
        workers=max(run.concurrency or 0, len(running), 1),
        prior=prior,
    )
    # One seed a run: from look to look the same luck, so that the estimate does not flicker.
    simulated = simulate(work, seed=zlib.crc32(run.label.encode("utf-8", "surrogatepass")))
    if simulated is None:
        return {}
    return {
        (Method.SIMULATION, Quantile.P10): at + simulated.p10,
        (Method.SIMULATION, Quantile.P50): at + simulated.p50,
        (Method.SIMULATION, Quantile.P90): at + simulated.p90,
    }


def running_ages(tasks: Iterable[TaskStanding], at: float) -> tuple[tuple[str, float], ...]:
    """The tasks of the running attempts, each with the seconds since its start.

    An attempt whose start is not known yet has just begun.
    """
    ages: list[tuple[str, float]] = []
    for task in tasks:
        ages += [(task.label, max(0.0, at - start)) for start in task.running_starts]
        begun = task.states[AttemptState.RUNNING] - len(task.running_starts)
        ages += [(task.label, 0.0)] * begun
    return tuple(ages)


def waiting(tasks: Sequence[TaskStanding]) -> tuple[str, ...]:
    """The tasks of the attempts that are not begun, in Harbor's order: by attempt, then by task."""
    places = []
    for number, task in enumerate(tasks):
        begun = task.states[AttemptState.SCORED] + task.states[AttemptState.RUNNING]
        due = task.target - task.attempts_given_up
        places += [(attempt, number) for attempt in range(begun, due)]
    return tuple(tasks[number].label for _, number in sorted(places))


def _preferred(
    run: RunStanding,
    prior: Mapping[str, tuple[float, ...]],
    ends: Mapping[tuple[Method, Quantile], float],
) -> Method | None:
    there = {method for method, _ in ends}
    scored = run.states[AttemptState.SCORED]
    choice = Method(preferred(scored, sum(run.states.values()), has_prior=bool(prior)))
    if choice in there:
        return choice
    return next(iter(there), None)
