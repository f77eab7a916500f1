"""What a rule is, and how it is written into a rule file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, override

from alerts.parameters import HOLDS, Span
from dashboards.grafana.board import uid
from dashboards.promql import EVERYTHING
from harborlight.alert_files import GRAFANA_URL, RUNBOOK_URL
from harborlight.views.catalogue import Metric
from harborlight.words import Language


class Severity(StrEnum):
    """Who is told. NONE: nobody; such an alert only keeps others quiet."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard as a link sees it: its name and the labels that it has variables for."""

    name: str
    variables: tuple[str, ...] = ()


EXPORTER: Final = Board("exporter")
FLEET: Final = Board("fleet", ("run", "pool"))
RUN: Final = Board("run", ("run", "task"))
SERVING: Final = Board("serving", ("pool", "replica"))
FAULTS: Final = Board("faults", ("run",))


IMPAIRED: Final = "HarborlightServingImpaired"
"""The alert that says so of a run whose servers were paged about."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording rule, named ``level:metric:operations``. As a string it is its name."""

    record: str
    expr: str

    @property
    def labels(self) -> tuple[str, ...]:
        """Those of its series, which its name's level says."""
        return LEVELS[self.record.partition(":")[0]]

    @override
    def __str__(self) -> str:
        return self.record


LEVELS: Final = {
    "run": ("run",),
    "run_cause": ("run", "cause"),
    "pool": ("pool",),
    "pool_replica": ("pool", "replica"),
}
"""Labels by the level in a recording rule's name."""


@dataclass(frozen=True, slots=True)
class Alert:
    """An alerting rule.

    ``labels``: those that its series have. ``summary``: one sentence that is always the same.
    ``description``: what is known, in Prometheus' template language, and where to look.
    """

    name: str
    severity: Severity
    labels: tuple[str, ...]
    expr: str
    summary: str
    description: str
    board: Board

    @property
    def dashboard_url(self) -> str:
        """The dashboard, its variables set to what the alert is about."""
        wanted = "&".join(
            f"var-{name}={{{{ $labels.{name} | urlquery }}}}"
            for name in self.board.variables
            if name in self.labels
        )
        link = f"{GRAFANA_URL}/d/{uid(self.board.name, Language.EN)}"
        return f"{link}?{wanted}" if wanted else link

    @property
    def runbook_url(self) -> str:
        return f"{RUNBOOK_URL}/{self.name}.md"


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated one after the other."""

    name: str
    rules: tuple[Recording | Alert, ...]


def as_rule(rule: Recording | Alert, scale: float) -> dict[str, Any]:
    """As a rule file writes it, the alert's ``for`` divided by ``scale``."""
    if isinstance(rule, Recording):
        return {"record": rule.record, "expr": rule.expr}
    hold = HOLDS[rule.name].divided(scale)
    return {
        "alert": rule.name,
        "expr": rule.expr,
        **({"for": str(hold)} if hold.seconds else {}),
        "labels": {"severity": str(rule.severity)},
        "annotations": {
            "summary": rule.summary,
            "description": rule.description,
            "dashboard_url": rule.dashboard_url,
            "runbook_url": rule.runbook_url,
        },
    }


def as_groups(groups: Iterable[Group], scale: float) -> dict[str, Any]:
    """A whole rule file."""
    return {
        "groups": [
            {"name": group.name, "rules": [as_rule(rule, scale) for rule in group.rules]}
            for group in groups
        ]
    }


# Expressions


def all_of(first: str, *conditions: str) -> str:
    """``first`` where the conditions hold: each is ``on (labels) (expression)``."""
    return "\n".join((first, *(f"and {condition}" for condition in conditions)))


def unless(expression: str, labels: str, condition: str) -> str:
    """``expression`` where the condition does not hold."""
    return f"{expression}\nunless on ({labels}) ({condition})"


def on(labels: str, condition: str) -> str:
    """A condition that is matched by these labels."""
    return f"on ({labels}) ({condition})"


def of_each(info: str, by: str, match: str, values: str, operation: str = "max") -> str:
    """``values`` (by ``match``) for each series of an info metric, by the labels ``by``.

    ``operation``: what is made of several for the same labels.
    """
    return f"{operation} by ({by}) (\n  {info}\n  * on ({match}) group_left () {values}\n)"


def or_none(counted: object, of: object) -> str:
    """A count, or 0 for the series ``of`` that have none: a server counts from its first event."""
    return f"({counted} or 0 * {of})"


def risen(metric: Metric, window: Span) -> str:
    """By how much a gauge stands above its least value in a window, by its labels."""
    series = EVERYTHING.series(metric)
    return f"max by ({', '.join(metric.labels)}) ({series} - min_over_time({series}[{window}]))"


def seconds(span: Span) -> str:
    """A threshold that is compared with seconds."""
    return f"{span.seconds:.10g}"


def told(by: str, window: Span, pattern: str) -> str:
    """Whether an alert whose name matches fired within a window, by some of its labels."""
    fired = f'ALERTS{{alertname=~"{pattern}", alertstate="firing"}}'
    return f"max by ({by}) (max_over_time({fired}[{window}]))"
