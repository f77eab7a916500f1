"""Success ratios of tasks, with intervals that say what they cover (pure).

A task has ``scored`` attempts of which ``passed`` passed. An interval that cannot be had is
undefined, with the reason: never 0 and never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from scipy.special import ndtri, stdtrit

PUBLISHED_QUANTILE: Final = 1.96
"""What the leaderboard of Terminal-Bench multiplies standard errors by
(harbor-framework/terminal-bench-website, components/leaderboard/leaderboard-table.tsx)."""

_CONFIDENCE: Final = 0.95


class IntervalKind(StrEnum):
    """What luck a 95 % interval covers.

    ``FIXED_TASK``: that of the attempts, on these very tasks (the published kind).
    ``TASK_SAMPLING``: that of the choice of the tasks, too. ``WILSON``: that of the attempts at
    one task.
    """

    FIXED_TASK = "fixed_task"
    TASK_SAMPLING = "task_sampling"
    WILSON = "wilson"


class Undefined(StrEnum):
    """Why there is no interval.

    ``SINGLE_ATTEMPT``: a task has but one, which has no variance. ``SINGLE_TASK``: there is but
    one, of which no choice of tasks can be told.
    """

    SINGLE_ATTEMPT = "single_attempt"
    SINGLE_TASK = "single_task"


class Count(NamedTuple):
    """A task's scored attempts (1 or more) and those of them that passed."""

    passed: int
    scored: int

    @property
    def ratio(self) -> float:
        return self.passed / self.scored

    @property
    def variance(self) -> float | None:
        """Of the ratio, estimated from the attempts; None for a single one."""
        if self.scored > 1:
            return self.ratio * (1 - self.ratio) / (self.scored - 1)
        return None


class Interval(NamedTuple):
    """Two bounds, symmetric about the estimate but for Wilson's: they can leave what can be."""

    lower: float
    upper: float

    @property
    def half_width(self) -> float:
        """The ± of it."""
        return (self.upper - self.lower) / 2

    def within(self, least: float, most: float) -> Interval:
        """Cut off at what can be."""
        return Interval(max(least, self.lower), min(most, self.upper))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over ``tasks`` tasks, each with the same weight."""

    value: float
    tasks: int
    intervals: Mapping[IntervalKind, Interval]
    undefined: Mapping[IntervalKind, Undefined]


def success(counts: Sequence[Count]) -> Estimate | None:
    """The mean of the tasks' success ratios; None without a task.

    Fixed-task standard error: sqrt(sum of p(1-p)/(n-1)) / T, as published
    (laude-institute/terminal-bench-experiments, sql/get_agent_scores_function.sql).
    """
    estimate = _estimate([count.ratio for count in counts], [count.variance for count in counts])
    if estimate is not None and len(counts) == 1:
        intervals = {**estimate.intervals, IntervalKind.WILSON: wilson(counts[0])}
        return Estimate(estimate.value, 1, intervals, estimate.undefined)
    return estimate


def difference(pairs: Sequence[tuple[Count, Count]]) -> Estimate | None:
    """The mean difference of paired tasks, ours minus the reference's; None without a pair.

    Fixed-task: both sides' variances add up. Task-sampling: by the spread of the differences.
    """
    return _estimate(
        [ours.ratio - theirs.ratio for ours, theirs in pairs],
        [_sum_or_none(ours.variance, theirs.variance) for ours, theirs in pairs],
    )


def _sum_or_none(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _estimate(values: Sequence[float], variances: Sequence[float | None]) -> Estimate | None:
    size = len(values)
    if not size:
        return None
    mean = math.fsum(values) / size
    intervals: dict[IntervalKind, Interval] = {}
    undefined: dict[IntervalKind, Undefined] = {}
    known = [variance for variance in variances if variance is not None]
    if len(known) == size:
        error = math.sqrt(math.fsum(known)) / size
        half = PUBLISHED_QUANTILE * error
        intervals[IntervalKind.FIXED_TASK] = Interval(mean - half, mean + half)
    else:
        undefined[IntervalKind.FIXED_TASK] = Undefined.SINGLE_ATTEMPT
    if size > 1:
        spread = math.fsum((value - mean) ** 2 for value in values)
        error = math.sqrt(spread / (size * (size - 1)))
        half = float(stdtrit(size - 1, (1 + _CONFIDENCE) / 2)) * error
        intervals[IntervalKind.TASK_SAMPLING] = Interval(mean - half, mean + half)
    else:
        undefined[IntervalKind.TASK_SAMPLING] = Undefined.SINGLE_TASK
    return Estimate(mean, size, intervals, undefined)


def wilson(count: Count) -> Interval:
    """Wilson's 95 % score interval of one task's ratio (Wilson 1927).

    Attempts cluster by task, so it is wrong for several tasks together.
    """
    z = float(ndtri((1 + _CONFIDENCE) / 2))
    n, p = count.scored, count.ratio
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    # At 0 and n it ends exactly there, which rounding would miss.
    lower = 0.0 if count.passed == 0 else middle - half
    upper = 1.0 if count.passed == n else middle + half
    return Interval(lower, upper)


def hard_bounds(passed: int, scored: int, target: int) -> Interval | None:
    """What the ratio over all ``target`` attempts will be between, whatever the missing ones do."""
    if target <= 0:
        return None
    return Interval(passed / target, (passed + max(0, target - scored)) / target)


def pass_at_k(counts: Sequence[Count], k: int) -> tuple[float, int] | None:
    """The chance that one of ``k`` attempts passes, and the number of tasks it is the mean of.

    Mean of 1 - C(n-c, k) / C(n, k) over the tasks with n >= k attempts (Chen et al. 2021); None
    where no task has as many.
    """
    enough = [count for count in counts if count.scored >= k]
    if not enough:
        return None
    chances = [1 - math.comb(c.scored - c.passed, k) / math.comb(c.scored, k) for c in enough]
    return math.fsum(chances) / len(enough), len(enough)
