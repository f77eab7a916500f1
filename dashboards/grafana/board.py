"""A dashboard: variables, annotations, links, and panels in their places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import attr
import grafanalib.core as g

from dashboards.grafana.current import current
from dashboards.grafana.fields import DATASOURCE, Json, Panel
from dashboards.promql import Matcher, Scope
from dashboards.texts import Text, localised
from harborlight.views.catalogue import Metric
from harborlight.words import Language

SCHEMA_VERSION: Final = 41
COLUMNS: Final = 24
"""The width of Grafana's grid."""

TAG: Final = "harborlight"


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
    )


def search_box(name: str, title: Text) -> Any:
    """A variable that is typed in."""
    return g.Template(name=name, label=title, type="textbox", query="")


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
        "step": "15s",
        "useValueForTime": value_is_time,
    }


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
    return current(localised(dashboard, language))


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
