"""The moments of a replayed run at which dashboards are drawn, found in what Prometheus has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import requests

_TIMEOUT = 10.0
_STEP = 1.0
# The demo looks every second and is scraped every second.
_SETTLED_SECONDS = 2.0
_ENOUGH_SCRAPES = 5

type Samples = Mapping[float, float]
"""One series: values by time."""


class Moment(StrEnum):
    """What is shown when.

    START is a run in real time that has just begun: 0 %. NONE is an exporter that watches nothing.
    """

    START = "start"
    HALF = "half"
    FROZEN = "frozen"
    END = "end"
    NONE = "none"


QUERIES: Final = {
    "target": "sum(harborlight_run_attempts_target)",
    "scored": 'sum(harborlight_run_attempts{state="scored"})',
    "moving": 'sum(harborlight_run_attempts{state=~"running|queued"})',
    "frozen": 'sum(harborlight_replica_state{state="frozen"})',
}


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A server's API, as far as it is used here."""

    url: str

    def ready(self) -> bool:
        try:
            return requests.get(f"{self.url}/-/ready", timeout=_TIMEOUT).ok
        except requests.ConnectionError:
            return False

    def labels(self, query: str) -> list[dict[str, str]]:
        """The labels of an instant query's series."""
        result = self._get("query", {"query": query})
        return [dict(series["metric"]) for series in result]

    def range(self, query: str, start: float, end: float) -> Samples:
        """The first series of a range query, nothing where there is none."""
        asked: dict[str, str | float] = {"query": query, "start": start, "end": end, "step": _STEP}
        result = self._get("query_range", asked)
        return {float(t): float(value) for t, value in result[0]["values"]} if result else {}

    def _get(self, path: str, asked: Mapping[str, str | float]) -> list[Any]:
        answer = requests.get(f"{self.url}/api/v1/{path}", params=asked, timeout=_TIMEOUT)
        answer.raise_for_status()
        result: list[Any] = answer.json()["data"]["result"]
        return result


def first(series: Samples, holds: Callable[[float, float], bool]) -> float | None:
    """The earliest time whose value is as wanted."""
    return next((time for time, value in sorted(series.items()) if holds(time, value)), None)


def find(series: Mapping[str, Samples], over: float | None) -> dict[Moment, float]:
    """The moments that have come, from the series of QUERIES.

    over: when the replay ended.
    """
    target, scored, moving = series["target"], series["scored"], series["moving"]
    found: dict[Moment, float | None] = {
        Moment.HALF: first(scored, lambda t, n: n >= target.get(t, float("inf")) / 2),
        Moment.FROZEN: _middle_of_first_stretch(series["frozen"]),
    }
    if over is not None:
        settled = over + _SETTLED_SECONDS
        found[Moment.END] = first(moving, lambda t, n: t >= settled and n == 0)
    return {moment: time for moment, time in found.items() if time is not None}


def _middle_of_first_stretch(frozen: Samples) -> float | None:
    """Only of one that has ended: its end is not known before."""
    stretch: list[float] = []
    for time, value in sorted(frozen.items()):
        if value > 0:
            stretch.append(time)
        elif stretch:
            return stretch[len(stretch) // 2]
    return None


def look(
    prometheus: Prometheus, start: float, end: float, over: float | None
) -> dict[Moment, float]:
    """The moments that Prometheus can show by now."""
    # Whole seconds, so that the series are asked about at the same times.
    start, end = float(int(start)), float(int(end))
    series = {name: prometheus.range(query, start, end) for name, query in QUERIES.items()}
    return find(series, over)


BEGUN: Final = f"{QUERIES['scored']} == 0 and {QUERIES['target']} > 0"
IDLE: Final = 'up{job="harborlight"} == 1'
"""What holds at START and at NONE."""


def steady(prometheus: Prometheus, query: str, start: float, end: float) -> float | None:
    """A moment at which the query has held for a few scrapes."""
    scrapes = sorted(prometheus.range(query, float(int(start)), end))
    return scrapes[_ENOUGH_SCRAPES] if len(scrapes) > _ENOUGH_SCRAPES else None
