"""A run against a reference; expected values by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from harborlight.ledger.book import Rules
from harborlight.ledger.runs import RunDefinition
from harborlight.records import TaskRef
from harborlight.reference import Reference, ReferenceTask, match_tasks, totals
from harborlight.sources.reference_files import shipped
from harborlight.statistics.comparison import Scope, Side, TaskResult, compare
from harborlight.statistics.correctness import IntervalKind, Undefined
from harborlight.statistics.own_reference import reference_tasks
from support.records import Watched, job_record, plan, trial

ATTEMPTED, COMPLETE, FULL = Scope.ATTEMPTED, Scope.COMPLETE, Scope.FULL
OFFICIAL = "terminal-bench-4.0-glm-5.3"
GPU = ("fp8-rmsnorm-gemm", "jax-speedrun-gpu", "math-eval-grader")


def result(label: str, passed: int, scored: int, target: int = 5, **more: int) -> TaskResult:
    return TaskResult(label, scored, passed, more.get("faulted", 0), scored == target > 0)


def theirs(*ratios: tuple[str, int]) -> dict[str, ReferenceTask]:
    return {name: ReferenceTask(name, passed, 5) for name, passed in ratios}


HALFWAY: Sequence[TaskResult] = (result("a", 2, 2), result("b", 0, 1), result("c", 0, 0))
"""3 tasks x 5: ours 2/2, 0/1, 0/0 against .8, .2, .6."""
REFERENCE = theirs(("a", 4), ("b", 1), ("c", 3))


def test_halfway() -> None:
    found = compare(HALFWAY, 15, REFERENCE, tuple(REFERENCE.values()))
    # ((1 - .8) + (0 - .2)) / 2 = 0, and (.8 + .2 + .6) / 3 + 0.
    assert found.differences[ATTEMPTED].value == pytest.approx(0)
    assert found.projected == pytest.approx(0.5333333)
    assert found.hard_bounds == pytest.approx((2 / 15, 14 / 15))
    assert found.sides[Side.RUN, ATTEMPTED].value == pytest.approx(0.5)
    assert found.sides[Side.REFERENCE, ATTEMPTED].value == pytest.approx(0.5)
    assert found.sides[Side.REFERENCE, FULL].value == pytest.approx(1.6 / 3)
    # The one attempt at b leaves ours undefined, not the reference's.
    fixed = IntervalKind.FIXED_TASK
    assert found.sides[Side.RUN, ATTEMPTED].undefined == {fixed: Undefined.SINGLE_ATTEMPT}
    assert found.differences[ATTEMPTED].undefined == {fixed: Undefined.SINGLE_ATTEMPT}
    assert found.sides[Side.REFERENCE, ATTEMPTED].undefined == {}
    # Not every task is attempted, none complete.
    assert found.matched_tasks == {ATTEMPTED: 2, COMPLETE: 0}
    assert (Side.RUN, FULL) not in found.sides
    assert COMPLETE not in found.differences
    assert found.pass_at == {1: (0.5, 2), 2: (1.0, 1)}


def test_without_a_reference() -> None:
    found = compare([result("a", 5, 5), result("b", 1, 2)], 10)
    assert set(found.sides) == {(Side.RUN, scope) for scope in Scope}
    assert found.sides[Side.RUN, FULL].value == 0.75
    assert found.sides[Side.RUN, COMPLETE].value == 1
    assert (found.differences, found.projected, found.matched) == ({}, None, {})


def test_tasks_that_one_side_lacks() -> None:
    """Ours beyond the reference is in no matched ratio; theirs beyond ours only in the full one."""
    ours = [result("a", 5, 5), result("mine", 0, 5)]
    both = theirs(("a", 4))
    found = compare(ours, 10, both, (*both.values(), *theirs(("their", 0)).values()))
    assert found.matched_tasks == {ATTEMPTED: 1, COMPLETE: 1}
    assert found.sides[Side.RUN, COMPLETE].value == 1
    assert found.sides[Side.RUN, FULL].value == 0.5
    assert found.sides[Side.REFERENCE, COMPLETE].value == 0.8
    assert found.sides[Side.REFERENCE, FULL].value == 0.4
    assert found.projected == pytest.approx(1.0)  # .8 + .2 on the task of both


def test_nothing_matches() -> None:
    found = compare([result("a", 5, 5)], 5, {}, tuple(theirs(("b", 1)).values()))
    assert found.matched_tasks == {ATTEMPTED: 0, COMPLETE: 0}
    assert set(found.sides) == {(Side.RUN, FULL), (Side.REFERENCE, FULL)}
    assert found.projected is None


def test_faults_as_failures() -> None:
    """The board's rule: 4 of 5 with the fault as a failure, and 0 of 1 where only a fault is."""
    ours = [result("a", 4, 4, faulted=1), result("b", 0, 0, faulted=1), result("c", 0, 0)]
    found = compare(ours, 15)
    assert found.faults_as_failures == pytest.approx((4 / 5 + 0) / 2)
    assert found.sides[Side.RUN, ATTEMPTED].value == 1


def test_rewards() -> None:
    """The mean over tasks of their mean reward, where some reward is neither 0 nor 1."""
    a = replace(result("a", 1, 2), rewards=(1.0, 0.25))
    b = replace(result("b", 0, 1), rewards=(0.5,))
    assert compare([a, b, result("c", 0, 1)], 15).reward_mean == pytest.approx((0.625 + 0.5) / 2)
    binary = replace(a, rewards=(1.0, 0.0))
    assert compare([binary], 5).reward_mean is None
    assert compare([], 0).reward_mean is None
    huge = replace(a, rewards=(1.7e308, 1.7e308))
    assert compare([huge, huge], 5).reward_mean == pytest.approx(1.7e308)


def test_an_unknown_target_has_no_bounds() -> None:
    assert compare(HALFWAY, None, REFERENCE).hard_bounds is None


def test_a_reference_equal_to_ours() -> None:
    ours = [result(name, task.passed, task.attempts) for name, task in REFERENCE.items()]
    found = compare(ours, 15, REFERENCE, tuple(REFERENCE.values()))
    for scope in (ATTEMPTED, COMPLETE):
        assert found.differences[scope].value == 0
    assert found.projected == found.sides[Side.RUN, FULL].value


def test_the_official_63_tasks() -> None:
    """136/315 = 43.17 % with 3.2925 points, beside the full row's 41.82 % with 3.2259."""
    reference = shipped(OFFICIAL)
    ours = {name: name for name in reference.tasks if name not in GPU}
    matched = match_tasks(ours, reference)
    assert [reference.tasks[name].passed for name in GPU] == [2, 0, 0]
    tasks = [result(name, 1, 5) for name in ours]
    found = compare(tasks, 315, matched, tuple(reference.tasks.values()))
    row = found.sides[Side.REFERENCE, COMPLETE]
    assert (row.tasks, len(reference.tasks)) == (63, 66)
    assert row.value == pytest.approx(136 / 315)
    assert row.intervals[IntervalKind.FIXED_TASK].half_width == pytest.approx(0.032925, abs=1e-6)
    full = found.sides[Side.REFERENCE, FULL]
    assert full.value == pytest.approx(138 / 330)
    assert full.intervals[IntervalKind.FIXED_TASK].half_width == pytest.approx(0.032259, abs=1e-6)
    # Two of its zeros on these tasks carry an error that Harbor grants no reward.
    assert sum(task.errors for task in matched.values()) == 2
    assert totals(reference.tasks.values()).errors == 3


class TestMatching:
    """Names, with and without what a registry puts before them."""

    reference = Reference("r", "R", theirs(("org/a", 1), ("b", 2), ("x/c", 3), ("y/c", 4)))

    @pytest.mark.parametrize(
        ("ours", "expected"),
        [
            ({"a": "a"}, {"a": "org/a"}),
            ({"b": "research/b"}, {"b": "b"}),
            ({"label": "org/a"}, {"label": "org/a"}),
            ({"c": "c"}, {}),  # two of theirs
            ({"c": "x/c"}, {"c": "x/c"}),
            ({"1": "one/b", "2": "two/b"}, {}),  # two of ours
            ({"1": "b", "2": "two/b"}, {"1": "b"}),
            ({"1": "b", "2": "b"}, {}),  # one name in two datasets
            ({"d": "d", "": ""}, {}),
        ],
    )
    def test_match(self, ours: dict[str, str], expected: dict[str, str]) -> None:
        found = match_tasks(ours, self.reference)
        assert {label: task.name for label, task in found.items()} == expected

    def test_a_run_matches_its_own_table(self) -> None:
        """Also a task whose name is in two datasets, and one that is called by its path."""
        refs = [TaskRef("x", "same"), TaskRef("y", "same"), TaskRef("", "/srv/tasks/other")]
        watched = Watched(Rules(runs=(RunDefinition("run", jobs=("job",)),)))
        watched.see(
            job_record("job", *(plan(1, ref) for ref in refs)),
            *(trial(f"t{n}", f"e{n}", reward=1.0, task=ref) for n, ref in enumerate(refs)),
        )
        ours = watched.run("run")
        table = Reference("r", "R", reference_tasks(ours))
        found = match_tasks({task.label: task.name for task in ours.tasks}, table)
        assert len(found) == 3
        assert all(label == task.name for label, task in found.items())
