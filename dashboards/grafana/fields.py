"""Queries, and how their fields are shown."""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grafanalib.core as g

from dashboards.texts import GREEN, GREY, Choice, Text

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
Json = dict[str, Any]
Panel = Any
"""One of grafanalib's panels; it has no types."""

NOTHING: Final = Text("—", "—")
"""What an empty cell shows."""

PERCENTAGE_POINTS: Final = "suffix: pp"
DASHED: Final = {"custom.lineStyle": {"fill": "dash", "dash": [8, 6]}}
DURATION: Final = "s"
DATE: Final = Text("time:MMM D HH:mm", "time:MM-DD HH:mm")
PLAIN: Final = "short"


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL query of a panel. ``colour``: a fixed one; ``style``: options of its field."""

    expr: str
    legend: str = "__auto"
    colour: str | None = None
    style: Mapping[str, Any] = field(default_factory=dict)


def of_each(choices: Iterable[Choice], query: Callable[[str], str]) -> list[Query]:
    """A query for each choice, made of its value, under its text and in its colour."""
    return [Query(query(str(choice.value)), choice.text, choice.color) for choice in choices]


def _targets(queries: Sequence[Query], *, instant: bool, form: str) -> list[Any]:
    return [
        g.Target(
            expr=query.expr,
            refId=ref,
            legendFormat=query.legend,
            instant=instant,
            format=form,
            intervalFactor=1,
            datasource=DATASOURCE,
        )
        for ref, query in zip(refs_in_order(), queries, strict=False)
    ]


def of_panel(
    title: Text,
    about: Text,
    queries: Sequence[Query],
    *,
    instant: bool,
    form: str = "time_series",
) -> Json:
    """What grafanalib's panels of data all take."""
    return {
        "title": title,
        "description": about,
        "dataSource": DATASOURCE,
        "targets": _targets(queries, instant=instant, form=form),
    }


def refs_in_order() -> Iterable[str]:
    """A to Z, then AA, AB …, as Grafana names queries."""
    letters = string.ascii_uppercase
    return itertools.chain(letters, map("".join, itertools.product(letters, repeat=2)))


def styles(queries: Sequence[Query]) -> list[Json]:
    """Overrides that give each query's series its colour and style."""
    found = []
    for ref, query in zip(refs_in_order(), queries, strict=False):
        options = dict(query.style)
        if query.colour:
            options["color"] = fixed(query.colour)
        if options:
            found.append(override("byFrameRefID", ref, options))
    return found


def fixed(colour: str) -> Json:
    return {"mode": "fixed", "fixedColor": colour}


def override(matcher: str, of: str, options: Mapping[str, Any]) -> Json:
    return {
        "matcher": {"id": matcher, "options": of},
        "properties": [{"id": name, "value": value} for name, value in options.items()],
    }


def mapping(choices: Iterable[Choice], empty: Text | None = None, colour: str = GREY) -> Json:
    """Values shown as text in their colours; ``empty``: and what is no value at all.

    Without it, Grafana colours a missing value as one below all thresholds: often green.
    """
    listed = list(choices)
    items = [
        g.StatValueMappingItem(choice.text, str(choice.value), choice.color, i)
        for i, choice in enumerate(listed)
    ]
    found: list[Any] = [g.StatValueMappings(*items)] if items else []
    if empty is not None:
        result = {"text": empty, "color": colour, "index": len(items)}
        found.append({"type": "special", "options": {"match": "null+nan", "result": result}})
    return {"mappings": found}


def steps(base: str, *above: tuple[float, str]) -> list[Any]:
    """Thresholds: a colour, and others from given values on."""
    colours = [(0.0, base), *above]
    return [g.Threshold(colour, i, float(value)) for i, (value, colour) in enumerate(colours)]


SOME: Final = 1e-9
"""The least that counts as above 0."""

GREEN_AT_ZERO: Final = steps(GREEN, (1, "semi-dark-red"))
"""For what should be 0."""


@dataclass(frozen=True, slots=True)
class Format:
    """How values are shown. ``thresholds`` also colour a table's cells of style ``cell``."""

    unit: str = PLAIN
    decimals: int | None = None
    mappings: Sequence[Choice] = ()
    thresholds: Sequence[Any] = field(default_factory=lambda: steps("text"))
    minimum: float | None = None
    maximum: float | None = None


def defaults(form: Format, no_value: Text) -> Json:
    """``fieldConfig.defaults`` of any panel."""
    return {
        "unit": form.unit,
        "decimals": form.decimals,
        "min": form.minimum,
        "max": form.maximum,
        "noValue": no_value,
    }
