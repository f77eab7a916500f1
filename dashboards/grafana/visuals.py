"""Panels of one visualization each."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import attr
import grafanalib.core as g

from dashboards.grafana.fields import (
    PLAIN,
    SOME,
    Format,
    Json,
    Panel,
    Query,
    defaults,
    fixed,
    mapping,
    of_panel,
    override,
    refs_in_order,
    steps,
    styles,
)
from dashboards.texts import GREY, Choice, Text


def stat(
    title: Text,
    queries: str | Sequence[Query],
    *,
    about: Text,
    no_value: Text,
    form: Format | None = None,
    each: Mapping[int, Mapping[str, Any]] | None = None,
    names: bool = False,
    colour: str = "value",
    links: Sequence[Json] = (),
    sideways: bool = False,
    empty: str = GREY,
) -> Panel:
    """Single values; a query's colour is that of its values above 0.

    ``each``: options of the field of the query with this number, from 0 on. ``empty``: the colour
    of the text for no value.
    """
    form = form or Format()
    listed = [Query(queries, title)] if isinstance(queries, str) else list(queries)
    refs = list(itertools.islice(refs_in_order(), len(listed)))
    lit = {
        number: {"thresholds": steps("text", (SOME, query.colour))}
        for number, query in enumerate(listed)
        if query.colour
    }
    overrides = [
        override("byFrameRefID", refs[number], _field_options(options))
        for number, options in [*lit.items(), *(each or {}).items()]
    ]
    return g.Stat(
        **of_panel(title, about, listed, instant=True),
        reduceCalc="lastNotNull",
        graphMode="none",
        colorMode=colour,
        textMode="value_and_name" if names else "value",
        orientation="horizontal" if sideways else "auto",
        thresholds=form.thresholds,
        noValue=no_value,
        overrides=overrides,
        extraJson={
            "fieldConfig": {
                "defaults": {
                    **defaults(form, no_value),
                    **mapping(form.mappings, no_value, empty),
                    "color": {"mode": "thresholds"},
                    "links": list(links) or None,
                }
            },
            "options": {"wideLayout": False, "showPercentChange": False},
        },
    )


def _field_options(options: Mapping[str, Any]) -> Json:
    """Options of a field, those that take more than a plain value turned into Grafana's form."""
    found = dict(options)
    if "mappings" in found:
        found.update(mapping(found["mappings"]))
    if "thresholds" in found:
        found["thresholds"] = {"mode": "absolute", "steps": found["thresholds"]}
    return found


def time_series(
    title: Text,
    queries: Sequence[Query],
    *,
    about: Text,
    no_value: Text,
    form: Format | None = None,
    stacked: bool = False,
    bars: bool = False,
    fill: int = 0,
    legend_below: bool = False,
) -> Panel:
    """Lines or bars over time. The legend has the last values, but those of bars say nothing."""
    form = form or Format()
    return g.TimeSeries(
        **of_panel(title, about, queries, instant=False),
        drawStyle="bars" if bars else "line",
        lineWidth=0 if bars else 2,
        fillOpacity=80 if bars else fill,
        showPoints="never",
        stacking={"mode": "normal" if stacked else "none", "group": "A"},
        legendDisplayMode="list" if legend_below or bars else "table",
        legendPlacement="bottom" if legend_below or bars else "right",
        legendCalcs=[] if bars else ["lastNotNull"],
        tooltipMode="multi",
        tooltipSort="none" if stacked else "desc",
        thresholds=form.thresholds,
        thresholdsStyleMode="line" if len(form.thresholds) > 1 else "off",
        overrides=styles(queries),
        extraJson={
            "fieldConfig": {"defaults": defaults(form, no_value)},
            "options": {"legend": {"showLegend": True}},
        },
    )


def state_timeline(
    title: Text,
    queries: Sequence[Query],
    choices: Sequence[Choice],
    *,
    about: Text,
    no_value: Text,
) -> Panel:
    """Which state each series was in, over time; the query gives the choices' values."""
    return g.StateTimeline(
        **of_panel(title, about, queries, instant=False),
        **mapping(choices),
        alignValue="center",
        thresholds=steps("text"),
        extraJson={
            "fieldConfig": {"defaults": {"noValue": no_value, "unit": PLAIN}, "overrides": []},
            "options": {"legend": {"showLegend": True}},
        },
    )


@attr.s
class _Plain(g.Panel):  # type: ignore[misc]  # grafanalib has no types
    """A panel of a type that grafanalib does not write in its present form."""

    type: str = attr.ib(default="")
    defaults: Json = attr.ib(factory=dict)
    overrides: list[Json] = attr.ib(factory=list)
    options: Json = attr.ib(factory=dict)

    def to_json_data(self) -> Json:
        """Grafanalib's common keys, and this type's."""
        own = {
            "type": self.type,
            "fieldConfig": {"defaults": self.defaults, "overrides": self.overrides},
            "options": self.options,
        }
        return dict(self.panel_json(own))


def bar_gauge(
    title: Text,
    queries: str | Sequence[Query],
    *,
    about: Text,
    no_value: Text,
    form: Format | None = None,
    names_above: bool = False,
) -> Panel:
    """One bar for each value, with its number, and its name before or above it."""
    form = form or Format()
    listed = [Query(queries)] if isinstance(queries, str) else list(queries)
    return _Plain(  # type: ignore[call-arg]  # its bases are unknown
        type="bargauge",
        **of_panel(title, about, listed, instant=True),
        thresholds=form.thresholds,
        defaults={
            **defaults(form, no_value),
            **mapping(form.mappings, no_value),
            "color": {"mode": "thresholds"},
        },
        overrides=styles(listed),
        options={
            "displayMode": "basic",
            "orientation": "horizontal",
            "valueMode": "color",
            "namePlacement": "top" if names_above else "left",
            "showUnfilled": True,
            "sizing": "auto",
            "minVizHeight": 16,
            "minVizWidth": 8,
            "text": {"titleSize": 14, "valueSize": 18},
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        },
    )


def share_bar(
    title: Text,
    expr: str,
    *,
    row: str,
    column: str,
    choices: Sequence[Choice],
    about: Text,
    no_value: Text,
) -> Panel:
    """One bar that is divided by the label ``column``, in the choices' order and colours."""
    corner = f"{row}\\{column}"
    return g.BarChart(
        **of_panel(title, about, [Query(expr)], instant=True, form="table"),
        orientation="horizontal",
        stacking="normal",
        showValue="auto",
        groupWidth=1.0,
        barWidth=1.0,
        legendPlacement="bottom",
        legendCalcs=["lastNotNull"],
        tooltipMode="multi",
        axisPlacement="hidden",
        thresholdSteps=steps("text"),
        transformations=[
            {
                "id": "groupingToMatrix",
                "options": {
                    "rowField": row,
                    "columnField": column,
                    "valueField": "Value",
                    "emptyValue": "zero",
                },
            },
            {
                "id": "organize",
                "options": {
                    "indexByName": {
                        corner: 0,
                        **{str(c.value): i + 1 for i, c in enumerate(choices)},
                    },
                    "renameByName": {str(c.value): c.text for c in choices},
                    "excludeByName": {},
                },
            },
        ],
        overrides=[override("byName", c.text, {"color": fixed(c.color)}) for c in choices],
        extraJson={"fieldConfig": {"defaults": {"noValue": no_value, "unit": PLAIN, "min": 0}}},
    )


def heatmap(title: Text, buckets: str, *, about: Text, no_value: Text, unit: str = "s") -> Panel:
    """How observations are spread over a histogram's buckets, over time."""
    return _Plain(  # type: ignore[call-arg]  # its bases are unknown
        type="heatmap",
        **of_panel(title, about, [Query(buckets, "{{le}}")], instant=False, form="heatmap"),
        thresholds=steps("text"),
        defaults={"noValue": no_value, "custom": {"scaleDistribution": {"type": "linear"}}},
        options={
            "calculate": False,
            "cellGap": 1,
            "cellValues": {"unit": "suffix: /s"},
            "color": {
                "mode": "scheme",
                "scheme": "Oranges",
                "steps": 64,
                "exponent": 0.5,
                "fill": "dark-orange",
                "reverse": False,
                "scale": "exponential",
            },
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "showValue": "never",
            "tooltip": {"mode": "single", "showColorScale": False, "yHistogram": False},
            "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
        },
    )


def text(title: Text, content: Text, *, about: Text) -> Panel:
    """Words in Markdown."""
    return g.Text(
        title=title,
        description=about,
        mode="markdown",
        extraJson={"options": {"mode": "markdown", "content": content}},
    )
