"""A metrics page as the tests read it, and what every page promises."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from prometheus_client.parser import text_string_to_metric_families

type Labels = tuple[tuple[str, str], ...]
"""Label pairs in alphabetical order: a series' identity together with its name."""

type Series = tuple[str, Labels]

STATES = ("scored", "running", "queued", "faulted", "unplanned")
_COUNTING_TYPES = {"counter", "histogram", "summary"}
_COUNTING_SUFFIXES = ("_total", "_bucket", "_count", "_sum")


def labelset(labels: Mapping[str, str]) -> Labels:
    """The labels as a hashable, ordered value."""
    return tuple(sorted(labels.items()))


@dataclass(frozen=True)
class Sample:
    """One line of the page; ``kind`` is its family's type."""

    name: str
    labels: Labels
    value: float
    kind: str

    @property
    def series(self) -> Series:
        """What must be unique on a page."""
        return self.name, self.labels

    def has(self, wanted: Mapping[str, str]) -> bool:
        """Whether all the wanted labels are among this sample's."""
        return set(wanted.items()) <= set(self.labels)


class Page:
    """A parsed text exposition."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.types: dict[str, str] = {}
        self.samples: list[Sample] = []
        for family in text_string_to_metric_families(text):
            self.types[family.name] = family.type
            for sample in family.samples:
                self.samples.append(
                    Sample(sample.name, labelset(sample.labels), sample.value, family.type)
                )

    @cached_property
    def _by_name(self) -> dict[str, list[Sample]]:
        found: dict[str, list[Sample]] = defaultdict(list)
        for sample in self.samples:
            found[sample.name].append(sample)
        return dict(found)

    def find(self, name: str, **labels: str) -> list[Sample]:
        """All samples of that name that carry at least these labels."""
        return [s for s in self._by_name.get(name, ()) if s.has(labels)]

    def value(self, name: str, **labels: str) -> float:
        """The one sample that carries at least these labels; a LookupError otherwise."""
        found = self.find(name, **labels)
        if len(found) == 1:
            return found[0].value
        problem = "no sample" if not found else f"{len(found)} samples"
        raise LookupError(f"{problem} of {name} with {labels or 'any labels'}")

    def values(self, name: str, **labels: str) -> dict[Labels, float]:
        """Every sample of that name that carries at least these labels."""
        return {s.labels: s.value for s in self.find(name, **labels)}

    def sum(self, name: str, **labels: str) -> float:
        """The samples' sum; 0 where there are none."""
        return math.fsum(s.value for s in self.find(name, **labels))

    def label_values(self, name: str, label: str) -> list[str]:
        """The different values a label takes in that metric, sorted."""
        return sorted({dict(s.labels)[label] for s in self.find(name) if label in dict(s.labels)})

    def runs(self) -> list[str]:
        """The runs whose target is known."""
        return self.label_values("harborlight_run_attempts_target", "run")

    def only_run(self) -> str:
        """The page's single run; an AssertionError if there is not exactly one."""
        runs = self.label_values("harborlight_run_attempts", "run")
        assert len(runs) == 1, f"expected one run on the page, found {runs}"
        return runs[0]

    def states(self, run: str) -> tuple[int, ...]:
        """The run's attempts as scored, running, queued, faulted, unplanned."""
        return tuple(int(self.value("harborlight_run_attempts", run=run, state=s)) for s in STATES)

    def counters(self) -> dict[Series, float]:
        """Everything that must not fall: counters and the parts of histograms.

        Not ``process_*``: those begin anew with every process, as Prometheus expects.
        """
        return {s.series: s.value for s in self.samples if _counts(s)}


def _counts(sample: Sample) -> bool:
    if sample.name.startswith("process_"):
        return False
    if sample.name.endswith("_total"):
        return True
    if sample.kind == "gauge" or not sample.name.endswith(_COUNTING_SUFFIXES):
        return False
    return sample.kind in _COUNTING_TYPES or sample.kind in {"unknown", "untyped"}


def _show(series: Series) -> str:
    name, labels = series
    return name + "{" + ",".join(f"{k}={v!r}" for k, v in labels) + "}"


def _malformed(page: Page) -> Iterator[str]:
    for series, times in Counter(s.series for s in page.samples).items():
        if times > 1:
            yield f"{_show(series)} is on the page {times} times"
    for sample in page.samples:
        if not math.isfinite(sample.value):
            yield f"{_show(sample.series)} is {sample.value}"


def _partition(page: Page, prefix: str, owner: Labels) -> Iterator[str]:
    """The five states add up to the target; scored and passed keep their order."""
    labels = dict(owner)
    who = _show((prefix, owner))
    target = page.find(f"{prefix}_attempts_target", **labels)[0].value
    states: dict[str, float] = {}
    for sample in page.find(f"{prefix}_attempts", **labels):
        states[dict(sample.labels).get("state", "")] = sample.value
    if set(states) != set(STATES):
        yield f"{who} has the states {sorted(states)}, not {sorted(STATES)}"
        return
    for state, value in states.items():
        if value < 0 or value != int(value):
            yield f"{who} has {value:g} {state} attempts"
    total = math.fsum(states.values())
    if total != target:
        shown = " + ".join(f"{states[s]:g} {s}" for s in STATES)
        yield f"{who}: {shown} = {total:g}, but the target is {target:g}"
    if states["scored"] > target:
        yield f"{who}: {states['scored']:g} scored exceed the target {target:g}"
    for sample in page.find(f"{prefix}_attempts_passed", **labels):
        if sample.value > states["scored"]:
            yield f"{who}: {sample.value:g} passed exceed {states['scored']:g} scored"


def _tasks_make_the_run(page: Page, run: str) -> Iterator[str]:
    """Per-task numbers add up to the run's, where every attempt belongs to a known task."""
    target = page.sum("harborlight_run_attempts_target", run=run)
    planned = page.sum("harborlight_task_attempts_target", run=run)
    if planned > target:
        yield f"run {run!r}: its tasks' targets add up to {planned:g}, above its target {target:g}"
    if planned != target:
        return
    for state in STATES:
        whole = page.sum("harborlight_run_attempts", run=run, state=state)
        parts = page.sum("harborlight_task_attempts", run=run, state=state)
        if parts != whole:
            yield f"run {run!r}: {parts:g} {state} over its tasks, {whole:g} {state} in the run"


def _since(page: Page, previous: Page) -> Iterator[str]:
    now = page.counters()
    for series, before in previous.counters().items():
        if series not in now:
            yield f"{_show(series)} was {before:g} and is gone"
        elif now[series] < before:
            yield f"{_show(series)} fell from {before:g} to {now[series]:g}"
    for name in ("harborlight_run_attempts_target", "harborlight_task_attempts_target"):
        targets = page.values(name)
        for labels, before in previous.values(name).items():
            if labels not in targets:
                yield f"{_show((name, labels))} was {before:g} and is gone"
            elif targets[labels] < before:
                yield f"{_show((name, labels))} shrank from {before:g} to {targets[labels]:g}"
    faults = "harborlight_run_faults_total"
    for run in previous.label_values(faults, "run"):
        before, after = previous.sum(faults, run=run), page.sum(faults, run=run)
        if after < before:
            yield f"run {run!r}: {before:g} faults were counted, now {after:g}"


def broken_promises(page: Page, previous: Page | None = None) -> list[str]:
    """Every promise the page breaks, alone and against an earlier page."""
    broken = list(_malformed(page))
    for prefix in ("harborlight_run", "harborlight_task"):
        owners = {s.labels: None for s in page.find(f"{prefix}_attempts_target")}
        for owner in owners:
            broken += _partition(page, prefix, owner)
    for run in page.runs():
        broken += _tasks_make_the_run(page, run)
    if previous is not None:
        broken += _since(page, previous)
    return broken


def assert_promises(page: Page, previous: Page | None = None) -> None:
    """Fail with the list of broken promises, if any."""
    broken = broken_promises(page, previous)
    assert not broken, "the page breaks its promises:\n  " + "\n  ".join(broken)
