"""A run's statistics, put together from its standing and its reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from harborlight.ledger.ownership import AttemptState
from harborlight.ledger.standing import RunStanding, TaskStanding
from harborlight.reference import Reference, ReferenceTask, match_tasks
from harborlight.statistics.comparability import Check, Finding, check
from harborlight.statistics.comparison import Comparison, TaskResult, compare
from harborlight.statistics.correctness import Count
from harborlight.statistics.pace import Pace, pace


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """What follows from a run's attempts. ``unmatched``: the reference's tasks it has not."""

    reference: Reference | None
    comparison: Comparison
    unmatched: tuple[str, ...]
    comparability: Mapping[Check, Finding]
    pace: Pace


class Statistics:
    """Makes the statistics of runs, anew where something changed.

    ``references``: by run label; ``default``: of every other run.
    """

    def __init__(
        self,
        references: Mapping[str, Reference] = MappingProxyType({}),
        default: Reference | None = None,
    ) -> None:
        self._references = references
        self._default = default
        self._before: dict[str, tuple[RunStanding, RunStatistics]] = {}

    def of(self, run: RunStanding, at: float) -> RunStatistics:
        """The run's statistics at ``at`` (seconds since the epoch)."""
        known = self._before.get(run.label)
        if known is not None and known[0] is run:
            earlier = known[1]
        else:
            earlier = self._anew(run, known[1].pace if known else None)
        prior = {
            label: task.durations
            for label, task in earlier.comparison.matched.items()
            if task.durations
        }
        found = replace(earlier, pace=pace(run, at, prior, earlier.pace))
        self._before[run.label] = (run, found)
        return found

    def _anew(self, run: RunStanding, before: Pace | None) -> RunStatistics:
        reference = self._references.get(run.label, self._default)
        names = {task.label: task.name for task in run.tasks}
        matched = match_tasks(names, reference) if reference is not None else {}
        found = {task.name for task in matched.values()}
        theirs = tuple(reference.tasks.values()) if reference is not None else ()
        return RunStatistics(
            reference=reference,
            comparison=compare(
                [_result(task) for task in run.tasks],
                run.target,
                matched if reference is not None else None,
                theirs,
            ),
            unmatched=tuple(task.name for task in theirs if task.name not in found),
            comparability=check(run, reference, matched),
            pace=before or Pace({}, {}, {}),
        )


def complete_difference(task: TaskStanding, reference: ReferenceTask) -> float | None:
    """The task's success ratio minus the reference's; None before its every attempt is scored."""
    if not task.complete:
        return None
    ours = Count(task.passed, task.states[AttemptState.SCORED])
    return ours.ratio - reference.count.ratio


def _result(task: TaskStanding) -> TaskResult:
    return TaskResult(
        label=task.label,
        scored=task.states[AttemptState.SCORED],
        passed=task.passed,
        faulted=task.states[AttemptState.FAULTED],
        complete=task.complete,
        rewards=task.rewards,
    )
