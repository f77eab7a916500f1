"""What holds of the statistics for any counts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from harborlight.reference import ReferenceTask
from harborlight.statistics.comparison import Scope, Side, TaskResult, compare
from harborlight.statistics.correctness import Count, difference, hard_bounds, pass_at_k, success

COUNTS = st.integers(1, 12).flatmap(lambda n: st.builds(Count, st.integers(0, n), st.just(n)))
TASKS = st.lists(COUNTS, min_size=1, max_size=12)
PAIRS = st.lists(st.tuples(COUNTS, COUNTS), min_size=1, max_size=12)


def results(counts: list[Count], target: int = 12) -> list[TaskResult]:
    return [
        TaskResult(str(n), count.scored, count.passed, 0, count.scored == target)
        for n, count in enumerate(counts)
    ]


@given(TASKS)
def test_intervals_contain_the_estimate(counts: list[Count]) -> None:
    estimate = success(counts)
    assert estimate is not None
    assert 0 <= estimate.value <= 1
    assert estimate.tasks == len(counts)
    for interval in estimate.intervals.values():
        assert interval.lower <= estimate.value <= interval.upper
        cut = interval.within(0, 1)
        assert 0 <= cut.lower <= estimate.value <= cut.upper <= 1


@given(st.data(), PAIRS)
def test_the_order_of_tasks_changes_nothing(
    data: st.DataObject, pairs: list[tuple[Count, Count]]
) -> None:
    other = data.draw(st.permutations(pairs))
    assert success([ours for ours, _ in pairs]) == success([ours for ours, _ in other])
    assert difference(pairs) == difference(other)


@given(PAIRS)
def test_swapping_sides_turns_the_difference(pairs: list[tuple[Count, Count]]) -> None:
    one, other = difference(pairs), difference([(theirs, ours) for ours, theirs in pairs])
    assert one is not None and other is not None
    assert one.value == pytest.approx(-other.value, abs=1e-12)
    assert one.undefined == other.undefined
    for kind, interval in one.intervals.items():
        assert interval.half_width == pytest.approx(other.intervals[kind].half_width, abs=1e-12)


@given(TASKS)
def test_a_reference_equal_to_ours(counts: list[Count]) -> None:
    matched = {str(n): ReferenceTask(str(n), c.passed, c.scored) for n, c in enumerate(counts)}
    found = compare(results(counts), 12 * len(counts), matched, tuple(matched.values()))
    assert found.differences[Scope.ATTEMPTED].value == 0
    assert found.projected == found.sides[Side.RUN, Scope.FULL].value
    assert found.sides[Side.RUN, Scope.FULL] == found.sides[Side.REFERENCE, Scope.FULL]


@given(st.integers(1, 100).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), st.data())
def test_an_attempt_more_narrows_the_bounds(size: tuple[int, int], data: st.DataObject) -> None:
    target, scored = size
    passed = data.draw(st.integers(0, scored))
    before = hard_bounds(passed, scored, target)
    assert before is not None
    assert 0 <= before.lower <= before.upper <= 1
    if scored < target:
        for hit in (0, 1):
            after = hard_bounds(passed + hit, scored + 1, target)
            assert after is not None
            assert before.lower <= after.lower <= after.upper <= before.upper


@given(TASKS)
def test_more_tries_pass_more(counts: list[Count]) -> None:
    """Of the same tasks, pass@k grows with k from the success ratio on."""
    least = min(count.scored for count in counts)
    chances = [pass_at_k(counts, k) for k in range(1, least + 1)]
    values = [chance[0] for chance in chances if chance is not None]
    assert len(values) == least
    estimate = success(counts)
    assert estimate is not None and values[0] == pytest.approx(estimate.value, abs=1e-12)
    assert all(a <= b + 1e-12 for a, b in pairwise(values))
    assert all(chance is not None and chance[1] == len(counts) for chance in chances)


@given(TASKS, st.integers(0, 5))
def test_faults_as_failures_never_help(counts: list[Count], faulted: int) -> None:
    found = compare(results(counts), None)
    with_faults = [
        TaskResult(task.label, task.scored, task.passed, faulted, task.complete)
        for task in results(counts)
    ]
    worse = compare(with_faults, None).faults_as_failures
    assert worse is not None
    assert worse <= found.sides[Side.RUN, Scope.FULL].value + 1e-12
