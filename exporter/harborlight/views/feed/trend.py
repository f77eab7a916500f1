"""A run's progress and correctness over time, from its verdicts (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from harborlight.ledger.standing import TaskStanding
from harborlight.reference import ReferenceTask


class Point(NamedTuple):
    """As of ``at`` (seconds since the epoch): attempts scored and passed, and the means.

    ``run``: of the tasks attempted by then, that the reference has, too, where there is one;
    ``reference``: its mean on those tasks.
    """

    at: float
    scored: int
    passed: int
    run: float | None
    reference: float | None


def trend(
    tasks: Sequence[TaskStanding], matched: Mapping[str, ReferenceTask], most: int
) -> list[Point]:
    """The verdicts one after the other, at ``most`` moments about equally far apart in count.

    By the verdicts that hold today: one that a regrade replaced is not shown as it was then.
    """
    verdicts = sorted(
        (verdict.at, verdict.passed, number)
        for number, task in enumerate(tasks)
        for verdict in task.verdicts
        if verdict.at > 0 and math.isfinite(verdict.at)
    )
    shown = _spread(len(verdicts), most)
    counts = [[0, 0] for _ in tasks]
    ours = theirs = 0.0
    attempted = passed_all = 0
    points: list[Point] = []
    for place, (at, passed, number) in enumerate(verdicts):
        passed_all += passed
        count = counts[number]
        reference = matched.get(tasks[number].label)
        if reference is not None or not matched:
            ours -= count[0] / count[1] if count[1] else 0.0
            if not count[1]:
                attempted += 1
                theirs += reference.count.ratio if reference is not None else 0.0
            count[0] += passed
            count[1] += 1
            ours += count[0] / count[1]
        if place in shown:
            points.append(
                Point(
                    at=at,
                    scored=place + 1,
                    passed=passed_all,
                    run=_mean(ours, attempted),
                    reference=_mean(theirs, attempted) if matched else None,
                )
            )
    return points


def _mean(total: float, count: int) -> float | None:
    # Sums of differences can miss 0 and 1 by a rounding.
    return min(1.0, max(0.0, total / count)) if count else None


def _spread(size: int, most: int) -> frozenset[int]:
    """At most ``most`` of ``size`` places, the first and the last among them."""
    if size <= most:
        return frozenset(range(size))
    return frozenset(round(step * (size - 1) / (most - 1)) for step in range(most))
