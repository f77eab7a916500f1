"""Ratios and intervals; every expected value is worked out by hand or published, or scipy's own."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
import scipy.stats

from harborlight.statistics.correctness import (
    PUBLISHED_QUANTILE,
    Count,
    Estimate,
    Interval,
    IntervalKind,
    Undefined,
    difference,
    hard_bounds,
    pass_at_k,
    success,
    wilson,
)

FIXED, SAMPLING = IntervalKind.FIXED_TASK, IntervalKind.TASK_SAMPLING


def counts(*passed: int, of: int = 5) -> list[Count]:
    return [Count(k, of) for k in passed]


def found(estimate: Estimate | None) -> Estimate:
    assert estimate is not None
    for interval in estimate.intervals.values():
        assert interval.lower <= estimate.value <= interval.upper
    assert not estimate.intervals.keys() & estimate.undefined.keys()
    return estimate


def chance(tasks: list[Count], k: int) -> tuple[Any, int]:
    """pass@k and its number of tasks."""
    given = pass_at_k(tasks, k)
    assert given is not None
    return given


def test_four_tasks() -> None:
    """Ratios 1, .6, 0, .2 have variances 0, .24/4, 0, .16/4, so SE = sqrt(.1)/4."""
    estimate = found(success(counts(5, 3, 0, 1)))
    assert estimate.value == pytest.approx(0.45)
    assert estimate.tasks == 4
    assert estimate.intervals[FIXED].half_width == pytest.approx(0.1549516, abs=1e-7)
    assert estimate.intervals[SAMPLING].half_width == pytest.approx(0.7056616, abs=1e-7)
    assert estimate.undefined == {}
    assert estimate.intervals[FIXED] == pytest.approx((0.45 - 0.1549516, 0.45 + 0.1549516))


def test_a_difference() -> None:
    """[5,4,0,1] against [4,2,0,2]: differences .2, .4, 0, -.2."""
    pairs = list(zip(counts(5, 4, 0, 1), counts(4, 2, 0, 2), strict=True))
    estimate = found(difference(pairs))
    assert estimate.value == pytest.approx(0.1)
    half = PUBLISHED_QUANTILE * 0.1224745
    assert estimate.intervals[FIXED].half_width == pytest.approx(half, abs=1e-6)
    assert estimate.intervals[SAMPLING].half_width == pytest.approx(0.4108521, abs=1e-7)


def test_the_official_row() -> None:
    """66 tasks with 0 to 5 passes as published: 138/330 = 41.82 % with 3.23 points beside it."""
    passed = [k for k, tasks in enumerate((28, 3, 7, 6, 7, 15)) for _ in range(tasks)]
    estimate = found(success(counts(*passed)))
    assert (estimate.tasks, sum(passed)) == (66, 138)
    assert estimate.value == pytest.approx(138 / 330)
    assert estimate.intervals[FIXED].half_width == pytest.approx(0.032259, abs=1e-6)
    assert round(100 * estimate.value, 2) == 41.82
    assert round(100 * estimate.intervals[FIXED].half_width, 2) == 3.23


def test_tasks_of_different_sizes() -> None:
    """Each task weighs the same: (1/2 + 3/4) / 2, and SE = sqrt(.25/1 + .1875/3) / 2."""
    estimate = found(success([Count(1, 2), Count(3, 4)]))
    assert estimate.value == 0.625
    assert estimate.intervals[FIXED].half_width == pytest.approx(1.96 * 0.3125**0.5 / 2)


def test_a_single_attempt_is_undefined() -> None:
    """Not 0: one attempt shows no variance. The choice of tasks can be told all the same."""
    estimate = found(success([Count(1, 1), Count(3, 5)]))
    assert estimate.undefined == {FIXED: Undefined.SINGLE_ATTEMPT}
    assert estimate.intervals.keys() == {SAMPLING}
    pair = found(difference([(Count(3, 5), Count(1, 1)), (Count(3, 5), Count(1, 5))]))
    assert pair.undefined == {FIXED: Undefined.SINGLE_ATTEMPT}


def test_a_single_task() -> None:
    """Wilson's interval is for one task alone, and not for a difference."""
    estimate = found(success(counts(3)))
    assert estimate.undefined == {SAMPLING: Undefined.SINGLE_TASK}
    assert estimate.intervals[IntervalKind.WILSON] == pytest.approx((0.2307243, 0.8823792))
    assert IntervalKind.WILSON not in found(success(counts(3, 3))).intervals
    pair = found(difference([(Count(3, 5), Count(2, 5))]))
    assert pair.intervals.keys() == {FIXED}
    assert pair.undefined == {SAMPLING: Undefined.SINGLE_TASK}
    alone = found(success([Count(1, 1)]))
    assert alone.undefined == {
        FIXED: Undefined.SINGLE_ATTEMPT,
        SAMPLING: Undefined.SINGLE_TASK,
    }


def test_no_task_has_no_ratio() -> None:
    assert success([]) is None
    assert difference([]) is None
    assert pass_at_k([], 1) is None


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (Count(0, 5), (0, 0.4344825)),
        (Count(3, 5), (0.2307243, 0.8823792)),
        (Count(5, 5), (0.5655175, 1)),
        (Count(136, 315), (0.3781938, 0.4869429)),
    ],
)
def test_wilson(count: Count, expected: tuple[float, float]) -> None:
    assert wilson(count) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
def test_wilson_is_scipy_s(n: int) -> None:
    for k in {0, 1, n // 2, n - 1, n}:
        theirs = scipy.stats.binomtest(k, n).proportion_ci(method="wilson")
        ours = wilson(Count(k, n))
        assert ours == pytest.approx((theirs.low, theirs.high), abs=1e-12)
        assert 0 <= ours.lower <= k / n <= ours.upper <= 1


@pytest.mark.parametrize("size", [2, 3, 10, 63])
def test_task_sampling_is_scipy_s(size: int) -> None:
    chance = random.Random(size)
    tasks = [Count(chance.randint(0, 5), 5) for _ in range(size)]
    theirs = scipy.stats.ttest_1samp([task.ratio for task in tasks], 0).confidence_interval()
    ours = found(success(tasks)).intervals[SAMPLING]
    assert ours == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_pass_at_k() -> None:
    """Of 5 attempts with 3 passes two are both failures in 1 of 10 pairs; with 1 pass in 6."""
    for count, k, expected in (
        (Count(3, 5), 2, 0.9),
        (Count(1, 5), 2, 0.4),
        (Count(1, 5), 3, 0.6),
        (Count(1, 5), 1, 0.2),
        (Count(0, 5), 5, 0),
        (Count(1, 5), 5, 1),
    ):
        assert chance([count], k) == (pytest.approx(expected), 1)
    # A task with too few attempts is left out.
    assert chance([Count(3, 5), Count(1, 1), Count(1, 5)], 2) == (pytest.approx(0.65), 2)
    assert pass_at_k([Count(1, 1)], 2) is None


def test_pass_at_k_by_counting() -> None:
    """Every choice of k of the attempts, looked at one by one."""
    for n in (1, 2, 4):
        for k, passed in product(range(1, n + 1), range(n + 1)):
            attempts = [True] * passed + [False] * (n - passed)
            choices = [c for c in product(range(n), repeat=k) if sorted(set(c)) == list(c)]
            hits = sum(any(attempts[i] for i in choice) for choice in choices)
            assert chance([Count(passed, n)], k) == (pytest.approx(hits / len(choices)), 1)


def test_hard_bounds() -> None:
    """2 of 3 scored passed, 15 to come: 12 more can, or none."""
    assert hard_bounds(2, 3, 15) == pytest.approx((2 / 15, 14 / 15))
    assert hard_bounds(5, 10, 10) == (0.5, 0.5)
    assert hard_bounds(0, 0, 4) == (0, 1)
    assert hard_bounds(0, 0, 0) is None


def test_cut_off() -> None:
    assert Interval(-0.5, 1.5).within(0, 1) == (0, 1)
    assert Interval(0.25, 0.5).within(0, 1) == (0.25, 0.5)


@pytest.mark.slow
def test_coverage() -> None:
    """Over 2,000 made-up runs of 40 tasks x 5 the intervals hold the truth about 95 times in 100.

    The fixed-task interval covers the mean of these tasks' own chances; task-sampling that of
    all tasks there could be. Five attempts a task are few: a little below 95 is what there is.
    """
    chance = random.Random(4)
    # Chances of 0.1, 0.5 and 0.9 with the same odds: 0.5 in the mean.
    held = {FIXED: 0, SAMPLING: 0}
    runs = 2000
    for _ in range(runs):
        tasks = [chance.choice((0.1, 0.5, 0.9)) for _ in range(40)]
        drawn = [Count(sum(chance.random() < p for _ in range(5)), 5) for p in tasks]
        estimate = found(success(drawn))
        for kind, truth in ((FIXED, sum(tasks) / len(tasks)), (SAMPLING, 0.5)):
            interval = estimate.intervals[kind]
            held[kind] += interval.lower <= truth <= interval.upper
    assert 0.93 <= held[FIXED] / runs <= 0.97
    assert 0.93 <= held[SAMPLING] / runs <= 0.97
