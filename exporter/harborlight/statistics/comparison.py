"""A run against a reference, task by task (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from harborlight.reference import ReferenceTask
from harborlight.statistics.correctness import (
    Count,
    Estimate,
    Interval,
    difference,
    hard_bounds,
    pass_at_k,
    success,
)


class Scope(StrEnum):
    """Which tasks a ratio is of.

    ``ATTEMPTED``: those with a scored attempt, ``COMPLETE``: those whose every attempt is scored;
    of both, where the run has a reference, only the tasks that it has, too. ``FULL``: all tasks
    of the side, the run's as soon as each has a scored attempt.
    """

    ATTEMPTED = "attempted"
    COMPLETE = "complete"
    FULL = "full"


class Side(StrEnum):
    """Whose ratio it is."""

    RUN = "run"
    REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What of a run's task counts here.

    ``label``: its own in the run. ``faulted``: attempts whose fault nothing replaces.
    ``rewards``: of the scored attempts that have the run's reward.
    """

    label: str
    scored: int
    passed: int
    faulted: int
    complete: bool
    rewards: tuple[float, ...] = ()

    @property
    def count(self) -> Count:
        return Count(self.passed, self.scored)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What of a run's results can be said in numbers; what cannot is not there.

    ``sides``: estimates by side and scope. ``differences``: ours minus the reference's, by scope.
    ``projected``: the reference's ratio on the run's tasks plus the difference so far, from 0 to 1.
    ``faults_as_failures``: the mean with open faults as failed attempts, the leaderboard's rule.
    ``pass_at``: by k, with the number of tasks. ``reward_mean``: where rewards are not all 0 or 1.
    ``matched``: the reference's tasks by the run's labels, with as many of the tasks in each scope.
    """

    sides: Mapping[tuple[Side, Scope], Estimate]
    differences: Mapping[Scope, Estimate]
    hard_bounds: Interval | None
    faults_as_failures: float | None
    projected: float | None
    pass_at: Mapping[int, tuple[float, int]]
    reward_mean: float | None
    matched: Mapping[str, ReferenceTask]
    matched_tasks: Mapping[Scope, int]


_EVERY_K_TO = 5
_MORE_K = (10, 25, 50, 100)


def compare(
    tasks: Sequence[TaskResult],
    target: int | None,
    matched: Mapping[str, ReferenceTask] | None = None,
    full: Sequence[ReferenceTask] = (),
) -> Comparison:
    """The run's numbers, and where there is a reference those of both.

    ``target``: the run's attempts, None where not known. ``matched``: the reference's tasks by
    the run's labels, None where there is no reference. ``full``: all of the reference's tasks.
    """
    attempted = [task for task in tasks if task.scored]
    of_scope = {
        Scope.ATTEMPTED: attempted,
        Scope.COMPLETE: [task for task in attempted if task.complete],
    }
    if matched is not None:
        of_scope = {s: [t for t in found if t.label in matched] for s, found in of_scope.items()}
    sides: dict[tuple[Side, Scope], Estimate | None] = {}
    differences: dict[Scope, Estimate | None] = {}
    for scope, found in of_scope.items():
        sides[Side.RUN, scope] = success([task.count for task in found])
        if matched is not None:
            theirs = [matched[task.label].count for task in found]
            sides[Side.REFERENCE, scope] = success(theirs)
            pairs = [(task.count, their) for task, their in zip(found, theirs, strict=True)]
            differences[scope] = difference(pairs)
    if tasks and len(attempted) == len(tasks):
        sides[Side.RUN, Scope.FULL] = success([task.count for task in tasks])
    sides[Side.REFERENCE, Scope.FULL] = success([task.count for task in full])
    so_far = differences.get(Scope.ATTEMPTED)
    projected = None
    if so_far is not None and matched:
        ratios = [matched[task.label].count.ratio for task in tasks if task.label in matched]
        projected = min(1.0, max(0.0, math.fsum(ratios) / len(ratios) + so_far.value))
    passed, scored = sum(t.passed for t in tasks), sum(t.scored for t in tasks)
    counts = [task.count for task in attempted]
    return Comparison(
        sides={key: found for key, found in sides.items() if found is not None},
        differences={key: found for key, found in differences.items() if found is not None},
        hard_bounds=hard_bounds(passed, scored, target) if target is not None else None,
        faults_as_failures=_faults_as_failures(tasks),
        projected=projected,
        pass_at={
            k: chance
            for k in (*range(1, _EVERY_K_TO + 1), *_MORE_K)
            if (chance := pass_at_k(counts, k)) is not None
        },
        reward_mean=_reward_mean(tasks),
        matched=MappingProxyType(dict(matched or {})),
        matched_tasks={scope: len(found) for scope, found in of_scope.items()},
    )


def _faults_as_failures(tasks: Sequence[TaskResult]) -> float | None:
    counts = [Count(t.passed, t.scored + t.faulted) for t in tasks if t.scored + t.faulted]
    estimate = success(counts)
    return estimate.value if estimate is not None else None


def _reward_mean(tasks: Sequence[TaskResult]) -> float | None:
    """The mean over the tasks of their mean reward; None where every reward is 0 or 1."""
    rewards = [task.rewards for task in tasks if task.rewards]
    if all(reward in (0, 1) for of_task in rewards for reward in of_task):
        return None
    try:
        means = [math.fsum(reward / len(of_task) for reward in of_task) for of_task in rewards]
        return math.fsum(mean / len(means) for mean in means)
    except OverflowError:  # rewards at the end of what a float can hold
        return None
