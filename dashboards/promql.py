"""PromQL made of the catalogue's metrics, so that no name is typed twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from harborlight.views.catalogue import Kind, Metric

RATE_WINDOW: Final = "$__rate_interval"
"""Grafana's window that holds at least four scrapes."""


@dataclass(frozen=True, slots=True)
class Matches:
    """A matcher by regular expression: alternatives."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A matcher by what is chosen of a dashboard variable, one value or several.

    Grafana escapes it for a regular expression; PromQL's raw strings take that as it is, whatever
    quotes a name holds.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Contains:
    """A matcher by text that somebody types: anywhere, in upper or lower case.

    Grafana escapes what a regular expression would take for itself, with backslashes that only
    PromQL's raw strings take as they are.
    """

    variable: str


Matcher = str | Matches | Variable | Contains


@dataclass(frozen=True)
class Scope:
    """What a dashboard's variables restrict its queries to, by label."""

    matchers: dict[str, Matcher]

    def series(self, metric: Metric, suffix: str = "", /, **labels: Matcher) -> str:
        """A selector: the scope's matchers as far as the metric has their labels, and these."""
        return _selector(metric, suffix, self._matchers(metric, labels))

    def latest(self, metric: Metric, /, **labels: Matcher) -> str:
        """The metric's values by its own labels, without those that are given one value.

        Labels of the scrape are aggregated away: an exporter that moved, or two that look at the
        same runs, show each series once.
        """
        return self._once(metric, labels, self.series(metric, **labels))

    def rate(self, metric: Metric, /, **labels: Matcher) -> str:
        """A counter's rate, likewise."""
        return self._of_counter(metric, labels, f"rate({{x}}[{RATE_WINDOW}])")

    def grown(self, metric: Metric, window: str, ago: str = "", /, **labels: Matcher) -> str:
        """By how much a counter grew in a window, to the event; ``ago``: that long before.

        Only for the ledger's counters, which never fall. ``increase`` would extrapolate.
        """
        then = f" offset {ago}" if ago else ""
        return self._of_counter(
            metric, labels, f"{{x}}{then} - min_over_time({{x}}[{window}]{then})"
        )

    def stepped(self, metric: Metric, /, **labels: Matcher) -> str:
        """By how much it grew since the point before: bars of it add up to what happened."""
        return self._of_counter(metric, labels, "clamp_min({x} - {x} offset $__interval, 0)")

    def buckets(self, metric: Metric, by: str = "", /, **labels: Matcher) -> str:
        """Rates of a histogram's buckets, by ``le`` and the given labels."""
        assert metric.kind is Kind.HISTOGRAM
        kept = ", ".join(filter(None, ("le", by)))
        rate = f"rate({self.series(metric, '_bucket', **labels)}[{RATE_WINDOW}])"
        return sum_by(kept, f"max by ({self._kept(metric, labels)}, le) ({rate})")

    def quantile(self, q: float, metric: Metric, by: str, /, **labels: Matcher) -> str:
        return f"histogram_quantile({q}, {self.buckets(metric, by, **labels)})"

    def _of_counter(self, metric: Metric, labels: dict[str, Matcher], template: str) -> str:
        """``template``: an expression with ``{x}`` for the counter's selector."""
        assert metric.kind is Kind.COUNTER
        selector = self.series(metric, **labels)
        return self._once(metric, labels, template.replace("{x}", selector))

    def _once(self, metric: Metric, labels: dict[str, Matcher], expression: str) -> str:
        """Each series once, whichever target it was scraped from."""
        return f"max by ({self._kept(metric, labels)}) ({expression})"

    def _matchers(self, metric: Metric, labels: dict[str, Matcher]) -> dict[str, Matcher]:
        scoped = {k: v for k, v in self.matchers.items() if k in metric.labels}
        return {**scoped, **labels}

    def _kept(self, metric: Metric, labels: dict[str, Matcher]) -> str:
        matchers = self._matchers(metric, labels)
        return ", ".join(k for k in metric.labels if not isinstance(matchers.get(k), str))


EVERYTHING: Final = Scope({})


def _selector(metric: Metric, suffix: str, matchers: dict[str, Matcher]) -> str:
    unknown = matchers.keys() - set(metric.labels)
    assert not unknown, f"{metric.full_name} has no label {unknown}"
    inside = ", ".join(f"{label}{_condition(value)}" for label, value in matchers.items())
    return f"{metric.full_name}{suffix}" + (f"{{{inside}}}" if inside else "")


def _condition(value: Matcher) -> str:
    if isinstance(value, Variable):
        return f"=~`${{{value.name}:regex}}`"
    if isinstance(value, Matches):
        return f'=~"{value.pattern}"'
    if isinstance(value, Contains):
        return f"=~`(?i).*${{{value.variable}:regex}}.*`"
    return f'="{value}"'


def sum_by(labels: str, expression: str) -> str:
    return f"sum by ({labels}) ({expression})"


def any_of(values: Iterable[str]) -> Matches:
    """One of these values."""
    return Matches("|".join(values))


def first_that_holds(conditions: Sequence[str]) -> str:
    """1, 2, … for the first of the conditions (filters with the same labels) that holds."""
    return "\nor ".join(f"(({condition}) * 0 + {i})" for i, condition in enumerate(conditions, 1))


def shown_as(label: str, expression: str, by: str) -> str:
    """The expression's value as a label: a number that a legend or a cell shows as text."""
    return f'count_values by ({by}) ("{label}", {expression})'


def or_blank(expression: str, rows: str) -> str:
    """The expression, and an empty value for the other rows: so that a table keeps its column."""
    return f"{expression} or {rows} * NaN"
