"""Whether a run can be compared at all: what is one or the same, and what is not (pure).

A check that fails says what the comparison is not; it takes nothing away from the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from harborlight.labels import safe_label
from harborlight.ledger.standing import RunStanding, TaskStanding
from harborlight.reference import Reference, ReferenceTask, totals


class Check(StrEnum):
    """What is checked: the first five within the run, the others against its reference."""

    ONE_CONTENT = "one_content"
    ONE_MODEL = "one_model"
    ONE_AGENT_VERSION = "one_agent_version"
    DEFAULT_TIMEOUTS = "default_timeouts"
    DEFAULT_RESOURCES = "default_resources"
    SAME_TASKS = "same_tasks"
    SAME_AGENT = "same_agent"
    SAME_MODEL = "same_model"
    SAME_ERROR_RULE = "same_error_rule"
    ENOUGH_ATTEMPTS = "enough_attempts"


class Finding(NamedTuple):
    """``holds``, or what speaks against it."""

    holds: bool
    reason: str = ""


_NAMES_SHOWN = 3


def check(
    run: RunStanding, reference: Reference | None, matched: Mapping[str, ReferenceTask]
) -> dict[Check, Finding]:
    """All that can be checked; what is not known yet is not there.

    ``matched``: the reference's tasks by the run's labels.
    """
    findings: dict[Check, Finding] = {}
    setups = [setup for task in run.tasks for setup in task.verdicts_of]
    if setups:
        findings[Check.ONE_CONTENT] = _none_of(
            (task.label for task in run.tasks if _several(s.digest for s in task.verdicts_of)),
            "verdicts on several versions of a task",
        )
        findings[Check.ONE_MODEL] = _one((setup.model for setup in setups), "models")
        agents = (f"{setup.agent} {setup.agent_version}".strip() for setup in setups)
        findings[Check.ONE_AGENT_VERSION] = _one(agents, "agents or versions")
    if run.jobs:
        overridden = "overridden by the job's configuration"
        findings[Check.DEFAULT_TIMEOUTS] = _none_of(run.changed_timeouts, overridden)
        findings[Check.DEFAULT_RESOURCES] = _none_of(run.changed_resources, overridden)
    if reference is not None:
        findings.update(_against(run, reference, matched))
    return findings


def _against(
    run: RunStanding, reference: Reference, matched: Mapping[str, ReferenceTask]
) -> Iterator[tuple[Check, Finding]]:
    found = {task.name for task in matched.values()}
    theirs = [name for name in reference.tasks if name not in found]
    ours = [task.label for task in run.tasks if task.label not in matched]
    lacking = [f"{len(theirs)} of the reference's tasks are not in the run"] if theirs else []
    lacking += [f"{len(ours)} of the run's tasks are not in the reference"] if ours else []
    yield Check.SAME_TASKS, Finding(not lacking, "; ".join(lacking))
    if not matched:
        return  # another benchmark: nothing else can be said
    for kind, mine, other in (
        (Check.SAME_AGENT, run.agent, reference.agent),
        (Check.SAME_MODEL, run.model, reference.model),
    ):
        if mine and other:
            same = _plain(mine) == _plain(other)
            reason = "" if same else f"{safe_label(mine)} here, {safe_label(other)} there"
            yield kind, Finding(same, reason)
    errors = totals(matched.values()).errors
    yield (
        Check.SAME_ERROR_RULE,
        Finding(
            not errors,
            f"the reference counts {errors} attempts without a verdict as failed, here faults "
            "stay open"
            if errors
            else "",
        ),
    )
    yield Check.ENOUGH_ATTEMPTS, _none_of(_with_less(run.tasks, matched), "fewer than there")


def _with_less(
    tasks: Iterable[TaskStanding], matched: Mapping[str, ReferenceTask]
) -> Iterator[str]:
    """Tasks that are to get fewer attempts than the reference's."""
    for task in tasks:
        their = matched.get(task.label)
        if their is not None and task.target_known and task.target < their.attempts:
            yield task.label


def _several(values: Iterable[str | None]) -> bool:
    return len({value for value in values if value is not None}) > 1


def _one(values: Iterable[str], what: str) -> Finding:
    different = sorted({value for value in values if value})
    if len(different) > 1:
        return Finding(holds=False, reason=f"{len(different)} {what}: {_list(different)}")
    return Finding(holds=True)


def _none_of(labels: Iterable[str], what: str) -> Finding:
    found = list(labels)
    return Finding(not found, f"{what}: {_list(found)}" if found else "")


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(safe_label(name) for name in names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _plain(name: str) -> str:
    """A name for comparing: its letters and digits, of any script, without provider and case."""
    return re.sub(r"[\W_]", "", name.rpartition("/")[2].casefold())
