"""A reference: the results by task that a run is compared with (pure)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from harborlight.statistics.correctness import Count, IntervalKind, success
from harborlight.words import Words

HEADLINE_TOLERANCE: Final = 1e-4
"""How far a published figure may be from ours: they are printed to 0.01 percentage points."""


class InvalidReferenceError(Exception):
    """A reference that cannot be used; the text says what was expected."""


@dataclass(frozen=True, slots=True)
class ReferenceTask:
    """One task's results. ``errors``: attempts without a verdict that count as not passed.

    ``durations``: seconds of the whole trials, in no order; may be empty.
    """

    name: str
    passed: int
    attempts: int
    errors: int = 0
    durations: tuple[float, ...] = ()

    @property
    def count(self) -> Count:
        return Count(self.passed, self.attempts)


@dataclass(frozen=True, slots=True)
class Headline:
    """What was published: the success ratio, half the width of its interval, and the counts."""

    ratio: float | None = None
    half_width: float | None = None
    passed: int | None = None
    attempts: int | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """Results by task, and where they are from. ``agent`` and ``model`` are "" where not known.

    ``title_zh``: the title in Chinese, "" where there is but one. ``links``: addresses by what they
    show; for pages, never for a label.
    """

    name: str
    title: str
    tasks: Mapping[str, ReferenceTask]
    agent: str = ""
    model: str = ""
    headline: Headline = Headline()
    links: Mapping[Words, str] = MappingProxyType({})
    note: Words | None = None
    title_zh: str = ""


class Totals(NamedTuple):
    """Attempts of several tasks: all of them, those that passed, and errors among the others."""

    attempts: int
    passed: int
    errors: int


def totals(tasks: Iterable[ReferenceTask]) -> Totals:
    """The tasks' attempts added up."""
    listed = list(tasks)
    return Totals(
        attempts=sum(task.attempts for task in listed),
        passed=sum(task.passed for task in listed),
        errors=sum(task.errors for task in listed),
    )


def check_headline(reference: Reference) -> None:
    """Raise InvalidReferenceError where the table does not give what was published."""
    estimate = success([task.count for task in reference.tasks.values()])
    if estimate is None:
        raise InvalidReferenceError("expected at least one task, found none")
    interval = estimate.intervals.get(IntervalKind.FIXED_TASK)
    half_width = interval.half_width if interval else None
    said = reference.headline
    counted = totals(reference.tasks.values())
    differing = []
    for what, published, found in (
        ("ratio", said.ratio, estimate.value),
        ("half_width", said.half_width, half_width),
    ):
        if published is None:
            continue
        if found is None:
            differing.append(f"{what} {published:g} published, none from the table (one attempt)")
        elif not abs(published - found) <= HEADLINE_TOLERANCE:
            differing.append(f"{what} {published:g} published, {found:.6f} from the table")
    for what, stated, summed in (
        ("passed", said.passed, counted.passed),
        ("attempts", said.attempts, counted.attempts),
    ):
        if stated is not None and stated != summed:
            differing.append(f"{what} {stated} published, {summed} from the table")
    if differing:
        raise InvalidReferenceError(
            f"the headline is not that of the table: {'; '.join(differing)}"
        )


def match_tasks(ours: Mapping[str, str], reference: Reference) -> dict[str, ReferenceTask]:
    """The reference's task for each of ours that it has, by our labels.

    ``ours``: names by label. A task is matched by its label, which is its name in a table made of
    a job; else by its own name; else by that without its registry prefix (all before the last
    slash), where that leaves one task on either side.
    """
    names = Counter(ours.values())
    matched = {label: reference.tasks[label] for label in ours if label in reference.tasks}
    for label, name in ours.items():
        if label not in matched and name in reference.tasks and names[name] == 1:
            matched[label] = reference.tasks[name]
    taken = {task.name for task in matched.values()}
    ours_by_short: dict[str, list[str]] = defaultdict(list)
    for label, name in ours.items():
        ours_by_short[_short(name)].append(label)
    theirs_by_short: dict[str, list[str]] = defaultdict(list)
    for name in reference.tasks:
        theirs_by_short[_short(name)].append(name)
    for short, labels in ours_by_short.items():
        theirs = theirs_by_short.get(short, [])
        if len(labels) == len(theirs) == 1 and labels[0] not in matched and theirs[0] not in taken:
            matched[labels[0]] = reference.tasks[theirs[0]]
    return matched


def _short(name: str) -> str:
    return name.rpartition("/")[2]
