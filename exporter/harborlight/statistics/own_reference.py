"""A run's own results as a table that others can be compared with (pure)."""

from __future__ import annotations

from harborlight.ledger.ownership import AttemptState
from harborlight.ledger.standing import RunStanding
from harborlight.reference import ReferenceTask


def reference_tasks(run: RunStanding) -> dict[str, ReferenceTask]:
    """The run's tasks that have a scored attempt, by label.

    Faults are no attempts here, so there are no errors among them.
    """
    return {
        task.label: ReferenceTask(
            name=task.label,
            passed=task.passed,
            attempts=task.states[AttemptState.SCORED],
            durations=task.durations,
        )
        for task in run.tasks
        if task.states[AttemptState.SCORED]
    }
