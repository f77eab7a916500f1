"""The layer over grafanalib: panels as current Grafana saves them, and nothing that it ignores.

grafanalib 0.7.1 writes what Grafana 6 to 8 read. Its classes are used as far as their JSON still
holds; what is missing is added here, and ``_current`` takes out what nothing reads any more. Facts
about the format: Grafana's dashboard schema 41 and its panels' options.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import attr
import grafanalib.core as g

from dashboards.promql import Matcher, Scope
from dashboards.texts import GREEN, GREY, Choice, Language, Text, localised
from harborlight.views.catalogue import Metric

SCHEMA_VERSION: Final = 41
COLUMNS: Final = 24
"""The width of Grafana's grid."""

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
TAG: Final = "harborlight"
Json = dict[str, Any]
Panel = Any
"""One of grafanalib's panels; it has no types."""

NOTHING: Final = Text("—", "—")
"""What an empty cell shows."""

PERCENTAGE_POINTS: Final = "suffix: pp"
DURATION: Final = "s"
DATE: Final = Text("time:MMM D HH:mm", "time:MM-DD HH:mm")
PLAIN: Final = "short"


# Queries


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL query of a panel. ``colour``: a fixed one; ``style``: options of its field."""

    expr: str
    legend: str = "__auto"
    colour: str | None = None
    style: Mapping[str, Any] = field(default_factory=dict)


def of_each(choices: Iterable[Choice], expressions: Iterable[str]) -> list[Query]:
    """A query for each choice, under its text and in its colour."""
    return [
        Query(expr, choice.text, choice.color)
        for choice, expr in zip(choices, expressions, strict=True)
    ]


def _targets(queries: Sequence[Query], *, instant: bool, form: str = "time_series") -> list[Any]:
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
        for ref, query in zip(_refs(), queries, strict=False)
    ]


def _refs() -> Iterable[str]:
    """A to Z, then AA, AB …, as Grafana names queries."""
    letters = string.ascii_uppercase
    return itertools.chain(letters, map("".join, itertools.product(letters, repeat=2)))


def _styles(queries: Sequence[Query]) -> list[Json]:
    """Overrides that give each query's series its colour and style."""
    found = []
    for ref, query in zip(_refs(), queries, strict=False):
        options = dict(query.style)
        if query.colour:
            options["color"] = fixed(query.colour)
        if options:
            found.append(_override("byFrameRefID", ref, options))
    return found


# Fields


def fixed(colour: str) -> Json:
    return {"mode": "fixed", "fixedColor": colour}


def _override(matcher: str, of: str, options: Mapping[str, Any]) -> Json:
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
        found.append({"type": "special", "options": {"match": "null", "result": result}})
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


def _defaults(form: Format, no_value: Text, empty: str = GREY) -> Json:
    """``fieldConfig.defaults`` of any panel."""
    return {
        **mapping(form.mappings, no_value, empty),
        "unit": form.unit,
        "decimals": form.decimals,
        "min": form.minimum,
        "max": form.maximum,
        "noValue": no_value,
    }


# Panels


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
    refs = list(itertools.islice(_refs(), len(listed)))
    lit = {
        number: {"thresholds": steps("text", (SOME, query.colour))}
        for number, query in enumerate(listed)
        if query.colour
    }
    overrides = [
        _override("byFrameRefID", refs[number], _fields(options))
        for number, options in [*lit.items(), *(each or {}).items()]
    ]
    return g.Stat(
        title=title,
        description=about,
        dataSource=DATASOURCE,
        targets=_targets(listed, instant=True),
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
                    **_defaults(form, no_value, empty),
                    "color": {"mode": "thresholds"},
                    "links": list(links) or None,
                }
            },
            "options": {"wideLayout": False, "showPercentChange": False},
        },
    )


def _fields(options: Mapping[str, Any]) -> Json:
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
        title=title,
        description=about,
        dataSource=DATASOURCE,
        targets=_targets(queries, instant=False),
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
        overrides=_styles(queries),
        extraJson={
            "fieldConfig": {"defaults": _defaults(form, no_value)},
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
        title=title,
        description=about,
        dataSource=DATASOURCE,
        targets=_targets(queries, instant=False),
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
        title=title,
        description=about,
        dataSource=DATASOURCE,
        targets=_targets(listed, instant=True),
        thresholds=form.thresholds,
        defaults={**_defaults(form, no_value), "color": {"mode": "thresholds"}},
        overrides=_styles(listed),
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
    names = [Choice(c.value, c.text, c.color) for c in choices]
    corner = f"{row}\\{column}"
    return g.BarChart(
        title=title,
        description=about,
        dataSource=DATASOURCE,
        targets=_targets([Query(expr)], instant=True, form="table"),
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
                        **{str(c.value): i + 1 for i, c in enumerate(names)},
                    },
                    "renameByName": {str(c.value): c.text for c in names},
                    "excludeByName": {},
                },
            },
        ],
        overrides=[_override("byName", c.text, {"color": fixed(c.color)}) for c in names],
        extraJson={"fieldConfig": {"defaults": {"noValue": no_value, "unit": PLAIN, "min": 0}}},
    )


def heatmap(title: Text, buckets: str, *, about: Text, no_value: Text, unit: str = "s") -> Panel:
    """How observations are spread over a histogram's buckets, over time."""
    return _Plain(  # type: ignore[call-arg]  # its bases are unknown
        type="heatmap",
        title=title,
        description=about,
        dataSource=DATASOURCE,
        targets=_targets([Query(buckets, "{{le}}")], instant=False, form="heatmap"),
        thresholds=steps("text"),
        defaults={"noValue": no_value, "custom": {"scaleDistribution": {"type": "linear"}}},
        options={
            "calculate": False,
            "cellGap": 1,
            "cellValues": {"unit": "reqps"},
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


# Tables


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column: the value of a query, or the label ``shows``, of a query or of all rows.

    Without ``expr`` it is a label that the other columns' queries have. ``options``: further ones
    of its field, as ``{"links": …}``.
    """

    title: Text
    expr: str = ""
    shows: str = ""
    unit: str = PLAIN
    width: int | None = None
    decimals: int | None = None
    mappings: Sequence[Choice] = ()
    thresholds: Sequence[Any] = ()
    cell: str = "auto"
    colour: str = ""
    minimum: float | None = None
    maximum: float | None = None
    links: Sequence[Json] = ()
    no_value: Text = NOTHING


_CELLS: Final[Mapping[str, Json]] = {
    "auto": {"type": "auto"},
    "text": {"type": "color-text"},
    "background": {"type": "color-background", "mode": "basic"},
    "bar": {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"},
}


def columns_of(
    choices: Iterable[Choice],
    query: Callable[[str], str],
    column: Callable[[Text, str], Column] = Column,
) -> list[Column]:
    """A column for each choice, its query made of the choice's value."""
    return [column(choice.text, query(str(choice.value))) for choice in choices]


def table(
    title: Text,
    columns: Sequence[Column],
    *,
    about: Text,
    no_value: Text,
    sort: Text | None = None,
    descending: bool = False,
    filters: bool = False,
    hide: Sequence[str] = (),
) -> Panel:
    """A row for each set of labels, a column for each query; the queries' labels are joined.

    ``hide``: labels of the queries that are not shown.
    """
    asked = [column for column in columns if column.expr]
    refs = iter(_refs())
    order: dict[str, int] = {}
    names: dict[str, str] = {}
    hidden = dict.fromkeys(("Time", *hide), True)
    for position, column in enumerate(columns):
        source = column.shows
        if column.expr:
            # Grafana names a value after its query only where there are several.
            value = f"Value #{next(refs)}" if len(asked) > 1 else "Value"
            source = column.shows or value
            if column.shows:
                hidden[value] = True
        order[source] = position
        names[source] = column.title
    return g.Table(
        title=title,
        description=about,
        dataSource=DATASOURCE,
        targets=_targets([Query(column.expr) for column in asked], instant=True, form="table"),
        thresholds=steps("text"),
        sortBy=[g.TableSortByField(sort, descending)] if sort else [],
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": hidden,
                    "indexByName": order,
                    "renameByName": names,
                },
            },
        ],
        overrides=[
            _override("byName", column.title, _column_options(column, filters=filters))
            for column in columns
        ],
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "noValue": no_value,
                    "color": {"mode": "thresholds"},
                    "custom": {"cellOptions": {"type": "auto"}, "minWidth": 60},
                }
            },
            "options": {"cellHeight": "sm"},
        },
    )


def _column_options(column: Column, *, filters: bool) -> Json:
    options: Json = {"noValue": column.no_value}
    if filters and (column.mappings or not column.expr):
        # Of names and states; a list of all numbers to choose from helps nobody.
        options["custom.filterable"] = True
    if column.expr and not column.shows:
        options["unit"] = column.unit
    if column.decimals is not None:
        options["decimals"] = column.decimals
    if column.width:
        options["custom.width"] = column.width
    if column.cell != "auto":
        options["custom.cellOptions"] = _CELLS[column.cell]
    if column.thresholds:
        options["thresholds"] = {"mode": "absolute", "steps": column.thresholds}
    if column.thresholds or column.mappings:
        options.update(mapping(column.mappings, column.no_value))
    if column.colour:
        options["color"] = fixed(column.colour)
    if column.minimum is not None:
        options["min"] = column.minimum
    if column.maximum is not None:
        options["max"] = column.maximum
    if column.links:
        options["links"] = list(column.links)
    return options


# Links, variables and annotations


def uid(name: str, language: Language) -> str:
    return f"{TAG}-{name}-{language}"


def link_to(name: str, title: Text, **variables: str) -> Json:
    """A link from a value to another dashboard, which keeps the time range and data source.

    ``variables``: what to set there; ``${__value.raw}`` is the value itself.
    """
    asked = "".join(f"&var-{key}={value}" for key, value in variables.items())
    tail = "?${__url_time_range}&var-datasource=${datasource}" + asked
    urls = (f"/d/{uid(name, language)}{tail}" for language in (Language.EN, Language.ZH))
    return {"title": title, "url": Text(*urls)}


def variable(
    metric: Metric,
    label: str,
    title: Text,
    *,
    several: bool = True,
    scope: Mapping[str, Matcher] | None = None,
) -> Any:
    """A variable with the label's values, looked up again when the time range changes."""
    series = Scope(dict(scope or {})).series(metric)
    return g.Template(
        name=label,
        label=title,
        dataSource=DATASOURCE,
        query={
            "qryType": 1,
            "query": f"label_values({series}, {label})",
            "refId": "PrometheusVariableQueryEditor-VariableQuery",
        },
        refresh=g.REFRESH_ON_TIME_RANGE_CHANGE,
        multi=several,
        includeAll=several,
        allValue=".*" if several else None,
        default="$__all" if several else None,
    )


def search_box(name: str, title: Text) -> Any:
    """A variable that is typed in."""
    return g.Template(name=name, label=title, type="textbox", query="", default="")


def annotation(
    name: Text, expr: str, colour: str, *, says: Text, value_is_time: bool = False
) -> Json:
    """Marks on every time axis: where the expression has a value, or at the time it gives (ms)."""
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "expr": expr,
        "titleFormat": name,
        "textFormat": says,
        "step": "60s",
        "useValueForTime": value_is_time,
    }


# Dashboards


@dataclass(frozen=True, slots=True)
class Line:
    """Panels side by side, each with its width, of one height."""

    height: int
    panels: Sequence[tuple[int, Panel]]


@dataclass(frozen=True, slots=True)
class Section:
    """A row of the dashboard with a title, and what stands under it."""

    title: Text | None
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard in all languages."""

    name: str
    title: Text
    about: Text
    variables: Sequence[Any]
    sections: Sequence[Section]
    annotations: Sequence[Json] = ()
    since: str = "now-24h"


_DATASOURCE_LABEL: Final = Text("Data source", "数据源")
_OTHERS: Final = Text("Harborlight dashboards", "Harborlight 看板")
_OTHER_LANGUAGE: Final = Text("中文", "English")


def as_json(board: Board, language: Language) -> Json:
    """The dashboard in one language, as Grafana itself would save it."""
    other = Language.EN if language is Language.ZH else Language.ZH
    dashboard = g.Dashboard(
        title=board.title,
        description=board.about,
        uid=uid(board.name, language),
        tags=[TAG, f"{TAG}-{language}"],
        editable=False,
        schemaVersion=SCHEMA_VERSION,
        graphTooltip=g.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
        refresh="30s",
        time=g.Time(board.since, "now"),
        timezone="browser",
        links=[
            _tag_link(_OTHERS, f"{TAG}-{language}"),
            _tag_link(_OTHER_LANGUAGE, f"{TAG}-{other}"),
        ],
        annotations=g.Annotations(list=list(board.annotations)),
        templating=g.Templating(
            list=[
                g.Template(
                    name="datasource",
                    label=_DATASOURCE_LABEL,
                    type="datasource",
                    query="prometheus",
                ),
                *board.variables,
            ]
        ),
        panels=list(_placed(board.sections)),
    ).auto_panel_ids()
    return _current(localised(dashboard, language))


def _tag_link(title: Text, tag: str) -> Any:
    return g.DashboardLink(
        type="dashboards", tags=[tag], title=title, asDropdown=True, includeVars=True, keepTime=True
    )


def _placed(sections: Sequence[Section]) -> Iterable[Panel]:
    """All panels from top to bottom, with their places in the grid."""
    y = 0
    for section in sections:
        if section.title is not None:
            yield g.RowPanel(title=section.title, gridPos=g.GridPos(h=1, w=COLUMNS, x=0, y=y))
            y += 1
        for line in section.lines:
            x = 0
            for width, panel in line.panels:
                place = g.GridPos(h=line.height, w=width, x=x, y=y)
                yield attr.evolve(panel, gridPos=place)
                x += width
            assert x == COLUMNS, f"a line of {section.title} is {x} wide"
            y += line.height


# What grafanalib writes and Grafana 11 to 13 do not read.
_STALE_DASHBOARD: Final = (
    "__inputs", "gnetId", "hideControls", "rows", "sharedCrosshair", "style", "timepicker",
)  # fmt: skip
_STALE_PANEL: Final = (
    "cacheTimeout", "color", "columns", "editable", "error", "fontSize", "height", "mappings",
    "maxDataPoints", "minSpan", "repeatDirection", "span", "thresholds",
)  # fmt: skip
_STALE_TARGET: Final = ("intervalFactor", "metric", "query", "step", "target")
_STALE_VARIABLE: Final = (
    "auto",
    "auto_count",
    "auto_min",
    "tagValuesQuery",
    "tagsQuery",
    "useTags",
)


def _current(dashboard: Json) -> Json:
    """Grafanalib's JSON in Grafana's present form."""
    kept = _without(dashboard, _STALE_DASHBOARD)
    kept["panels"] = [_panel(panel) for panel in kept["panels"]]
    variables = kept["templating"]["list"]
    kept["templating"]["list"] = [_variable(variable) for variable in variables]
    cleaned: Json = _pruned(kept)
    return cleaned


def _panel(panel: Json) -> Json:
    kept = _without(panel, _STALE_PANEL)
    if panel["type"] in ("row", "text"):
        kept = _without(kept, ("datasource", "fieldConfig", "targets", "transformations"))
        if panel["type"] == "row":
            kept["panels"] = []
        return kept
    kept["targets"] = [
        {**_without(target, _STALE_TARGET), "range": not target["instant"], "editorMode": "code"}
        for target in panel["targets"]
    ]
    defaults = kept["fieldConfig"]["defaults"]
    defaults["thresholds"] = _thresholds(defaults["thresholds"])
    for override in kept["fieldConfig"].get("overrides", ()):
        for option in override["properties"]:
            if option["id"] == "thresholds":
                option["value"] = _thresholds(option["value"])
    custom = defaults.get("custom", {})
    for stale in ("displayMode", "hideFrom"):
        custom.pop(stale, None)
    if panel["type"] == "barchart":
        # Percentages of itself are not what a bar of counts is coloured by.
        defaults["color"] = {"mode": "palette-classic"}
    return kept


def _thresholds(given: Json) -> Json:
    """With the base step's value null, as Grafana has it, and no index."""
    found = [
        {"color": step["color"], "value": None if i == 0 else step["value"]}
        for i, step in enumerate(given["steps"])
    ]
    return {"mode": given["mode"], "steps": found or [{"color": GREEN, "value": None}]}


def _variable(variable: Json) -> Json:
    kept = _without(variable, _STALE_VARIABLE)
    if kept["type"] == "query":
        chosen = "$__all" if kept["includeAll"] else None
        kept["current"] = {"text": "All", "value": chosen} if chosen else {}
    else:
        kept = _without(kept, ("datasource", "sort", "refresh", "allValue"))
        kept["current"] = {"text": "", "value": ""} if kept["type"] == "textbox" else {}
    return kept


def _without(json: Json, keys: Iterable[str]) -> Json:
    return {key: value for key, value in json.items() if key not in keys}


def _pruned(value: Any) -> Any:
    """Without what says nothing: null (but for the base threshold) and empty plumbing."""
    if isinstance(value, dict):
        return {
            k: _pruned(v)
            for k, v in value.items()
            if (v is not None or (k == "value" and "color" in value))
            and not (v in ({}, []) and k in _EMPTY_SAYS_NOTHING)
            and not (v == "" and k in _BLANK_SAYS_NOTHING)
            and not (v is False and k in _FALSE_SAYS_NOTHING)
        }
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    return value


_EMPTY_SAYS_NOTHING: Final = frozenset({"custom", "links", "mappings", "transformations"})
_BLANK_SAYS_NOTHING: Final = frozenset(
    {"axisLabel", "fields", "icon", "interval", "tooltip", "unit", "url"}
)
_FALSE_SAYS_NOTHING: Final = frozenset({"hide", "hideTimeOverride", "transparent"})
