"""Rules for the generated dashboards. Each yields what is wrong, in words that name the panel.

Those with a name ending in ``-rule`` are rules of Grafana's dashboard linter under its own names
(github.com/grafana/dashboard-linter, docs/rules), applied to what these dashboards are.
"""

from __future__ import annotations

import itertools
import json
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from support import promql
from support.label_values import CLOSED
from support.promql import Analysis, analyse

type Json = dict[str, Any]

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
DATASOURCE_LABELS: Final = {"en": "Data source", "zh": "数据源"}
COLUMNS: Final = 24
SCHEMA_VERSION: Final = 41
UIDS: Final = {
    "exporter": "harborlight-exporter",
    "faults": "harborlight-faults",
    "fleet": "harborlight-fleet",
    "run": "harborlight-run",
    "serving": "harborlight-serving",
}
"""Bookmarks hold on to them: to change one is to break every link to it."""

_NO_TARGET: Final = (
    "A run is no scrape target: it is the same run whichever exporter shows it, and after that "
    "one moved. So variables choose runs, pools and tasks, and queries aggregate job and instance "
    "away."
)
EXCLUDED: Final[Mapping[str, str]] = {
    "template-job-rule": _NO_TARGET,
    "template-instance-rule": _NO_TARGET,
    "target-job-rule": _NO_TARGET,
    "target-instance-rule": _NO_TARGET,
}
"""Rules of the linter that are not applied, with the reason."""


@dataclass(frozen=True)
class Board:
    """One dashboard as its file is. ``siblings``: those of its language, by uid."""

    name: str
    language: str
    json: Json
    siblings: Mapping[str, Json] = field(default_factory=dict, repr=False)

    @cached_property
    def panels(self) -> list[Json]:
        """All of them, those of collapsed rows included."""
        top = self.json["panels"]
        return [p for panel in top for p in (panel, *panel.get("panels", ()))]

    @property
    def shown(self) -> list[Json]:
        """Panels that show data."""
        return [panel for panel in self.panels if panel["type"] not in ("row", "text")]

    @property
    def variables(self) -> list[Json]:
        found: list[Json] = self.json["templating"]["list"]
        return found

    @cached_property
    def names(self) -> frozenset[str]:
        """Of its variables."""
        return frozenset(variable["name"] for variable in self.variables)

    @property
    def annotations(self) -> list[Json]:
        """But for Grafana's own, which has no query."""
        found: list[Json] = self.json["annotations"]["list"]
        return [annotation for annotation in found if not annotation.get("builtIn")]

    @cached_property
    def expressions(self) -> list[Expression]:
        """Every PromQL expression, of panels, annotations and variables."""
        found = [
            Expression(f"{title(panel)} {target.get('refId')}", target["expr"], panel, target)
            for panel in self.shown
            for target in panel.get("targets", ())
        ]
        found += [
            Expression(f"annotation {annotation['name']}", annotation["expr"])
            for annotation in self.annotations
        ]
        for variable in self.variables:
            if variable["type"] == "query":
                query = _variable_query(variable)
                if query is not None and query[1] is not None:
                    found.append(Expression(f"variable {variable['name']}", query[1]))
        return found

    def analysed(self) -> Iterator[tuple[Expression, Analysis]]:
        """Those that can be read."""
        for expression in self.expressions:
            try:
                yield expression, analyse(expression.expr, self.names)
            except (ValueError, KeyError):
                continue  # what cannot be read is another rule's


GENERATED: Final = Path(__file__).resolve().parents[2] / "dashboards" / "generated"


def generated(language: str) -> list[Board]:
    """All dashboards of a language."""
    found = {
        file.stem: json.loads(file.read_text("utf-8"))
        for file in sorted((GENERATED / language).glob("*.json"))
    }
    siblings = {document["uid"]: document for document in found.values()}
    return [Board(name, language, document, siblings) for name, document in found.items()]


@dataclass(frozen=True, slots=True)
class Expression:
    """``panel`` and ``target``: of a panel's query."""

    where: str
    expr: str
    panel: Json | None = None
    target: Json | None = None


type Rule = Callable[[Board], Iterable[str]]

RULES: Final[dict[str, Rule]] = {}


def rule(name: str) -> Callable[[Rule], Rule]:
    """Enter a rule under its name."""

    def enter(function: Rule) -> Rule:
        assert name not in RULES and name not in EXCLUDED
        RULES[name] = function
        return function

    return enter


def findings(board: Board) -> list[str]:
    """What any rule has against it."""
    return [f"{name}: {found}" for name, check in RULES.items() for found in check(board)]


def title(panel: Json) -> str:
    return f"'{panel.get('title') or panel.get('id')}'"


# Variables


@rule("template-datasource-rule")
def template_datasource(board: Board) -> Iterator[str]:
    """One variable of type datasource, `datasource`, with its label; docs/rules of that name."""
    found = [v for v in board.variables if v["type"] == "datasource"]
    if len(found) != 1:
        yield f"expected one variable of type datasource, found {len(found)}"
    for variable in found:
        if (variable["name"], variable.get("query")) != ("datasource", "prometheus"):
            yield "expected the variable `datasource` for prometheus"
        if variable.get("label") != DATASOURCE_LABELS[board.language]:
            yield f"expected the label {DATASOURCE_LABELS[board.language]}"


_VARIABLE_QUERY: Final = re.compile(r"(label_values|query_result)\((.*)\)", re.DOTALL)
_LABEL_VALUES: Final = re.compile(r"(.*),\s*(\w+)\s*", re.DOTALL)


def _variable_query(variable: Json) -> tuple[str, str | None, str | None] | None:
    """Function, expression and label of a variable's query; None where it is neither of these."""
    query = variable.get("query")
    text = query.get("query", "") if isinstance(query, dict) else str(query)
    match = _VARIABLE_QUERY.fullmatch(text.strip())
    if match is None:
        return None
    function, inside = match.groups()
    if function == "query_result":
        return function, inside, None
    labelled = _LABEL_VALUES.fullmatch(inside)
    return (function, labelled[1], labelled[2]) if labelled else (function, None, inside.strip())


@rule("template-label-promql-rule")
def template_label_promql(board: Board) -> Iterator[str]:
    """Variables ask for label_values or query_result of PromQL; docs/rules of that name.

    And the label is one that the metric has.
    """
    for variable in board.variables:
        if variable["type"] != "query":
            continue
        query = _variable_query(variable)
        if query is None or query[1] is None:
            yield f"{variable['name']}: expected label_values(series, label) or query_result(expr)"
            continue
        try:
            labels = analyse(query[1], board.names).labels
        except (ValueError, KeyError):
            continue  # target-promql-rule says so
        if query[2] is not None and query[2] not in (labels or ()):
            yield f"{variable['name']}: {query[1]} has no label {query[2]}"


@rule("template-on-time-change-reload-rule")
def template_on_time_change_reload(board: Board) -> Iterator[str]:
    """Query variables are looked up again when the time range changes; docs/rules of that name."""
    for variable in board.variables:
        if variable["type"] == "query" and variable.get("refresh") != 2:
            yield f"{variable['name']}: expected refresh 2"


@rule("template-variable-matchers-rule")
def template_variable_matchers(board: Board) -> Iterator[str]:
    """What can have several values is matched by =~; docs/rules of that name, for all variables."""
    several = {v["name"] for v in board.variables if v.get("multi") or v.get("includeAll")}
    several |= {v["name"] for v in board.variables if v["type"] == "textbox"}
    for expression, analysis in board.analysed():
        for name in sorted(several.intersection(analysis.equal)):
            yield f"{expression.where}: expected =~ before ${name}"


@rule("template-unused")
def template_unused(board: Board) -> Iterator[str]:
    """A variable that nothing asks for is a choice without effect; the linter's template-unused."""
    texts = [expression.expr for expression in board.expressions]
    texts += [panel.get("title", "") for panel in board.panels]
    texts += [str(panel.get("repeat")) and f"${panel.get('repeat')}" for panel in board.panels]
    texts += [link["url"] for _, link in _links(board)]
    used = {name for text in texts for name in promql.references(text)} | {"datasource"}
    for name in sorted(board.names - used):
        yield f"nothing uses ${name}"


# Panels


@rule("panel-datasource-rule")
def panel_datasource(board: Board) -> Iterator[str]:
    """Everything asks $datasource; docs/rules of that name, for all that has a data source."""
    for panel in board.shown:
        for place in (panel, *panel.get("targets", ())):
            if place.get("datasource") != DATASOURCE:
                yield f"{title(panel)}: expected the data source $datasource"
    for annotation in board.annotations:
        if annotation.get("datasource") != DATASOURCE:
            yield f"annotation {annotation['name']}: expected the data source $datasource"
    for variable in board.variables:
        if variable["type"] == "query" and variable.get("datasource") != DATASOURCE:
            yield f"variable {variable['name']}: expected the data source $datasource"


@rule("panel-title-description-rule")
def panel_title_description(board: Board) -> Iterator[str]:
    """Every panel has both; docs/rules of that name. A row has a title."""
    for panel in board.panels:
        if not panel.get("title", "").strip():
            yield f"{title(panel)}: no title"
        if panel["type"] != "row" and not panel.get("description", "").strip():
            yield f"{title(panel)}: no description"


@rule("no-value")
def no_value(board: Board) -> Iterator[str]:
    """Where there is nothing to show, a panel says what that means."""
    for panel in board.shown:
        if not str(panel["fieldConfig"]["defaults"].get("noValue", "")).strip():
            yield f"{title(panel)}: no text for no data"


UNITS: Final = frozenset(
    {"short", "none", "locale", "string", "bool_yes_no"}
    | {"percent", "percentunit", "bytes", "currencyUSD"}
    | {"s", "ms", "h", "dtdurations", "dthms", "clocks"}
    | {"dateTimeAsIso", "dateTimeAsLocal", "dateTimeFromNow", "dateTimeAsLocalNoDateIfToday"}
    | {"cps", "ops", "reqps", "cpm", "opm"}
)
"""Ids of Grafana's units (packages/grafana-data/src/valueFormats/categories.ts) as far as there is
a use for them here."""

_UNIT_FORMS: Final = re.compile(r"(suffix|prefix|time):.+")


@rule("panel-units-rule")
def panel_units(board: Board) -> Iterator[str]:
    """Units are Grafana's, and numbers have one unless they are shown as text; docs/rules."""
    for panel in board.shown:
        defaults = panel["fieldConfig"]["defaults"]
        for unit in _units(panel):
            if unit and unit not in UNITS and not _UNIT_FORMS.fullmatch(unit):
                yield f"{title(panel)}: Grafana has no unit '{unit}'"
        if panel["type"] in ("table", "heatmap"):
            continue  # a table's columns differ; a heatmap's unit is its axis'
        if not defaults.get("unit") and not defaults.get("mappings"):
            yield f"{title(panel)}: no unit"


@rule("panel-units-rule (tables and heatmaps)")
def column_units(board: Board) -> Iterator[str]:
    """Every number of a table has a unit by its column, a heatmap by its axis; likewise."""
    for panel in board.shown:
        if panel["type"] == "heatmap" and not panel["options"].get("yAxis", {}).get("unit"):
            yield f"{title(panel)}: no unit on its axis"
        if panel["type"] != "table":
            continue
        given = {}
        for override in panel["fieldConfig"].get("overrides", ()):
            options = {option["id"]: option["value"] for option in override["properties"]}
            if options.get("unit") or options.get("mappings"):
                given[override["matcher"]["options"]] = options
        fields = _fields(board, panel)
        for source, shown in fields.shown.items():
            numeric = source.startswith("Value")
            if numeric and shown not in given and not panel["fieldConfig"]["defaults"].get("unit"):
                yield f"{title(panel)}: no unit for {shown}"


def _units(panel: Json) -> Iterator[str]:
    def within(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("unit"), str):
                yield value["unit"]
            if value.get("id") == "unit":
                yield value["value"]
            value = list(value.values())
        if isinstance(value, list):
            for item in value:
                yield from within(item)

    yield from within([panel["fieldConfig"], panel["options"]])


@rule("panel-no-targets-rule")
def panel_no_targets(board: Board) -> Iterator[str]:
    """A panel that shows data asks for some; the linter's panel-no-targets."""
    for panel in board.shown:
        if not panel.get("targets"):
            yield f"{title(panel)}: no query"


# Queries


@rule("target-promql-rule")
def target_promql(board: Board) -> Iterator[str]:
    """Every expression is PromQL, by variables that there are; docs/rules of that name."""
    for expression in board.expressions:
        try:
            analyse(expression.expr, board.names)
        except KeyError as error:
            yield f"{expression.where}: there is no variable ${error.args[0]}"
        except ValueError as error:
            yield f"{expression.where}: {error}"


@rule("metrics and labels")
def metrics_and_labels(board: Board) -> Iterator[str]:
    """Metrics, labels and values are ones that the exporter gives, and what is joined fits."""
    for expression, analysis in board.analysed():
        for problem in analysis.problems:
            yield f"{expression.where}: {problem}"


_LEGEND: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@rule("legends")
def legends(board: Board) -> Iterator[str]:
    """A legend, or an annotation's text, names labels that the result has."""
    texts = {
        a["name"]: [a.get("titleFormat", ""), a.get("textFormat", "")] for a in board.annotations
    }
    for expression, analysis in board.analysed():
        if expression.target is not None:
            shown = [expression.target.get("legendFormat", "")]
        else:
            shown = texts.get(expression.where.removeprefix("annotation "), [])
        for name in _LEGEND.findall(" ".join(shown)):
            if name not in (analysis.labels or ()):
                yield f"{expression.where}: the result has no label {name}"


SAID: Final[Mapping[int, Mapping[str, tuple[str, ...]]]] = {
    5 * 60: {"en": ("5 minutes", "five minutes"), "zh": ("5 分钟", "五分钟")},
    10 * 60: {"en": ("10 minutes", "ten minutes"), "zh": ("10 分钟", "十分钟")},
    15 * 60: {"en": ("15 minutes",), "zh": ("15 分钟",)},
    30 * 60: {"en": ("30 minutes", "half hour", "half an hour"), "zh": ("30 分钟", "半小时")},
    3600: {"en": ("hour",), "zh": ("一小时", "1 小时", "每小时")},
    6 * 3600: {"en": ("6 hours", "six hours"), "zh": ("6 小时", "六小时")},
    24 * 3600: {"en": ("24 hours", "a day", "last day"), "zh": ("24 小时", "一天")},
}
"""Windows of a fixed length, and how a panel says that it shows one."""


@rule("target-rate-interval-rule")
def target_rate_interval(board: Board) -> Iterator[str]:
    """rate() and irate() are over $__rate_interval; docs/rules of that name.

    Other functions, increase() among them, may take Grafana's other windows, or a fixed one where
    title, description or legend says so: "in the last hour" is to stay one, whatever is zoomed to.
    Annotations may take a fixed one: zooming must not move them.
    """
    grafanas = {promql.RATE_INTERVAL, promql.RANGE, promql.INTERVAL}
    for expression, analysis in board.analysed():
        for function, seconds in analysis.windows:
            if seconds == promql.RATE_INTERVAL:
                continue
            if function in ("rate", "irate"):
                yield f"{expression.where}: {function}() over another window than $__rate_interval"
            elif seconds not in grafanas and expression.panel is not None:
                words = SAID.get(seconds, {}).get(board.language, ())
                said = _said(board, expression)
                if not any(word in said for word in words):
                    yield f"{expression.where}: nothing says that it is over {seconds} s"


def _said(board: Board, expression: Expression) -> str:
    """The words around what a query shows; of a table its column's name, too."""
    panel, target = expression.panel or {}, expression.target or {}
    columns = _fields(board, panel).shown if panel.get("type") == "table" else {}
    return " ".join(
        [
            panel.get("title", ""),
            panel.get("description", ""),
            target.get("legendFormat", ""),
            columns.get(f"Value #{target.get('refId')}", ""),
            columns.get("Value", ""),
        ]
    )


_OF_THE_RUN: Final = "The ledger keeps it over restarts: it is the number since the run began."

TOTALS: Final[Mapping[str, str]] = {
    "harborlight_run_faults_total": _OF_THE_RUN,
    "harborlight_run_faults_by_type_total": _OF_THE_RUN,
    "harborlight_run_verdicts_discarded_total": _OF_THE_RUN,
    "harborlight_run_retries_total": "Harbor's own count of the run's jobs, from their start on.",
    "harborlight_pool_retries_total": "Harbor's own count of the pool's jobs, from their start on.",
}
"""Counters that an instant query may show as they are, and why."""


@rule("target-counter-agg-rule")
def target_counter_agg(board: Board) -> Iterator[str]:
    """A counter is inside rate(), irate() or increase(); the linter's target-counter-agg.

    But for ``TOTALS`` in an instant query.
    """
    for expression, analysis in board.analysed():
        instant = expression.target is not None and expression.target.get("instant") is True
        for name in dict.fromkeys(analysis.bare):
            if not (instant and name in TOTALS):
                yield f"{expression.where}: {name} outside of rate(), irate() and increase()"


# The dashboard


@rule("uneditable-dashboard-rule")
def uneditable_dashboard(board: Board) -> Iterator[str]:
    """What is generated is not edited by hand; docs/rules/template-uneditable-rule."""
    if board.json.get("editable") is not False:
        yield "expected editable false"


@rule("identity")
def identity(board: Board) -> Iterator[str]:
    """Its uid, tags and schema, which links, lists and migrations go by."""
    expected = f"{UIDS.get(board.name)}-{board.language}"
    if board.json.get("uid") != expected:
        yield f"expected the uid {expected}"
    if board.json.get("tags") != ["harborlight", f"harborlight-{board.language}"]:
        yield "expected the tags harborlight and harborlight-LANGUAGE"
    if board.json.get("schemaVersion") != SCHEMA_VERSION:
        yield f"expected schemaVersion {SCHEMA_VERSION}"
    for key in ("title", "description"):
        if not board.json.get(key):
            yield f"no {key}"
    if "id" in board.json and board.json["id"] is not None:
        yield "an id is the Grafana's to give"


_STALE: Final[Mapping[str, frozenset[str]]] = {
    "dashboard": frozenset(
        {"__inputs", "gnetId", "hideControls", "rows", "sharedCrosshair", "style"}
    ),
    "panel": frozenset(
        {"cacheTimeout", "color", "columns", "editable", "error", "fontSize", "height"}
        | {"mappings", "minSpan", "repeatDirection", "showHeader", "span", "thresholds"}
    ),
    "timepicker": frozenset({"time_options"}),
    "target": frozenset({"intervalFactor", "metric", "query", "step", "target"}),
    "variable": frozenset(
        {"auto", "auto_count", "auto_min", "tagValuesQuery", "tagsQuery", "useTags"}
    ),
}
"""Keys that grafanalib 0.7.1 writes and Grafana 11 to 13 do not read."""


@rule("nothing that Grafana ignores")
def nothing_ignored(board: Board) -> Iterator[str]:
    """No key of grafanalib's that is not read any more, in its old place or form."""
    places = [
        ("dashboard", "dashboard", board.json),
        ("timepicker", "timepicker", board.json.get("timepicker", {})),
    ]
    for panel in board.panels:
        places.append((title(panel), "panel", panel))
        places += [(title(panel), "target", target) for target in panel.get("targets", ())]
    places += [(f"variable {v['name']}", "variable", v) for v in board.variables]
    for where, kind, place in places:
        for key in sorted(_STALE[kind] & place.keys()):
            yield f"{where}: {key}"
    for panel in board.panels:
        if panel["type"] in ("row", "text"):
            for key in ("fieldConfig", "targets", "transformations", "maxDataPoints"):
                if panel.get(key):
                    yield f"{title(panel)}: {key} of a {panel['type']}"
            continue
        defaults = panel["fieldConfig"]["defaults"]
        if defaults.get("unit") == "":
            yield f"{title(panel)}: an empty unit"
        for key in ("calcs", "values", "limit", "override", "title"):
            if key in defaults:
                yield f"{title(panel)}: {key} of GaugePanel's old form"
        if "fieldOptions" in panel["options"]:
            yield f"{title(panel)}: fieldOptions of Grafana 6"
        if "displayMode" in defaults.get("custom", {}):
            yield f"{title(panel)}: displayMode, which is cellOptions now"
        yield from _thresholds(panel)


def _thresholds(panel: Json) -> Iterator[str]:
    """The first step has no value, the others rise from there, and none has more than both."""
    defaults = panel["fieldConfig"]["defaults"]
    found = [defaults["thresholds"]] if "thresholds" in defaults else []
    for override in panel["fieldConfig"].get("overrides", ()):
        found += [o["value"] for o in override["properties"] if o["id"] == "thresholds"]
    for thresholds in found:
        steps = thresholds.get("steps") or [{}]
        values = [step.get("value") for step in steps]
        rest = values[1:]
        good = values[0] is None and None not in rest and rest == sorted(rest)
        if not good or any(step.keys() != {"color", "value"} for step in steps):
            yield f"{title(panel)}: thresholds in no form that Grafana reads"


@rule("positions and ids")
def positions_and_ids(board: Board) -> Iterator[str]:
    """Panels lie within the grid and not on one another, each with an id of its own."""
    ids = [panel.get("id") for panel in board.panels]
    for number in sorted({n for n in ids if ids.count(n) > 1 or not isinstance(n, int)}, key=str):
        yield f"id {number} is none, or that of several panels"
    places = [(panel, panel["gridPos"]) for panel in board.json["panels"]]
    for panel, at in places:
        if not (at["x"] >= 0 and at["x"] + at["w"] <= COLUMNS and at["y"] >= 0):
            yield f"{title(panel)}: outside of the grid"
        if min(at["w"], at["h"]) < 1:
            yield f"{title(panel)}: without a size"
        if panel["type"] == "row" and (at["x"], at["w"], at["h"]) != (0, COLUMNS, 1):
            yield f"{title(panel)}: a row that does not go across"
    for (one, a), (other, b) in itertools.combinations(places, 2):
        if (
            a["x"] < b["x"] + b["w"]
            and b["x"] < a["x"] + a["w"]
            and a["y"] < b["y"] + b["h"]
            and b["y"] < a["y"] + a["h"]
        ):
            yield f"{title(one)} overlaps {title(other)}"


# Fields and links


@dataclass(frozen=True, slots=True)
class Fields:
    """What a panel's transformations leave: names by source. ``problems``: what they misname."""

    shown: Mapping[str, str]
    problems: tuple[str, ...]


def _fields(board: Board, panel: Json) -> Fields:
    """The fields of a panel whose queries are of the format table."""
    targets = panel.get("targets", ())
    available = {"Time"}
    for target in targets:
        several = len(targets) > 1
        available.add(f"Value #{target['refId']}" if several else "Value")
        try:
            labels = analyse(target["expr"], board.names).labels
        except (ValueError, KeyError):
            labels = None
        available |= labels or frozenset()
    problems: list[str] = []
    shown = {name: name for name in available}
    for step in panel.get("transformations", ()):
        options = step.get("options", {})
        named: set[str] = set()
        match step["id"]:
            case "merge":
                continue
            case "joinByField":
                named = {options["byField"]}
            case "sortBy":
                named = {sort["field"] for sort in options["sort"]} - set(shown.values())
            case "groupingToMatrix":
                row, column = options["rowField"], options["columnField"]
                problems += [
                    f"{step['id']}: {name}"
                    for name in (row, column, options["valueField"])
                    if name not in shown
                ]
                values = set().union(*_values_of(board, panel, column))
                shown = {name: name for name in {f"{row}\\{column}", *values}}
                continue
            case "organize":
                renamed = options.get("renameByName", {})
                hidden = {k for k, hide in options.get("excludeByName", {}).items() if hide}
                named = {*renamed, *hidden, *options.get("indexByName", {})}
                problems += [f"organize: {name}" for name in sorted(named - shown.keys())]
                shown = {k: renamed.get(k) or v for k, v in shown.items() if k not in hidden}
                continue
            case other:
                problems.append(f"{other}, which nothing here knows")
        problems += [f"{step['id']}: {name}" for name in sorted(named - shown.keys())]
    return Fields(shown, tuple(problems))


def _values_of(board: Board, panel: Json, label: str) -> Iterator[Iterable[str]]:
    for target in panel.get("targets", ()):
        for name in analyse(target["expr"], board.names).metrics:
            yield CLOSED.get(name, {}).get(label, ())


@rule("fields")
def fields(board: Board) -> Iterator[str]:
    """Transformations, overrides and sorting name fields that there are, whatever they are called.

    An override that matches nothing does nothing, and nobody is told.
    """
    for panel in board.shown:
        tabular = any(target.get("format") == "table" for target in panel.get("targets", ()))
        if not tabular and panel.get("transformations"):
            yield f"{title(panel)}: transformations of what is no table"
        found = _fields(board, panel)
        if tabular:
            yield from (f"{title(panel)}: {problem}" for problem in found.problems)
        if panel["type"] == "table":
            unnamed = sorted(k for k, name in found.shown.items() if name == k)
            yield from (f"{title(panel)}: a column {name} without a title" for name in unnamed)
        refs = {target.get("refId") for target in panel.get("targets", ())}
        legends = {target.get("legendFormat") for target in panel.get("targets", ())}
        names = set(found.shown.values()) if tabular else legends
        for override in panel["fieldConfig"].get("overrides", ()):
            matcher, of = override["matcher"]["id"], override["matcher"]["options"]
            known = {"byName": names, "byFrameRefID": refs}.get(matcher)
            if known is None:
                yield f"{title(panel)}: an override {matcher}, which nothing here knows"
            elif of not in known:
                yield f"{title(panel)}: an override of {of}, which is not there"
            for option in override["properties"]:
                if option["id"] == "custom.fillBelowTo" and option["value"] not in names:
                    yield f"{title(panel)}: fills to {option['value']}, which is not there"
        for sort in panel["options"].get("sortBy", ()):
            if sort["displayName"] not in found.shown.values():
                yield f"{title(panel)}: sorted by {sort['displayName']}, which is not there"


def _links(board: Board) -> Iterator[tuple[str, Json]]:
    """Data links, of fields and of panels."""
    for panel in board.panels:
        found = [*panel.get("links", ())]
        config = panel.get("fieldConfig", {})
        found += config.get("defaults", {}).get("links", ())
        for override in config.get("overrides", ()):
            for option in override["properties"]:
                found += option["value"] if option["id"] == "links" else ()
        yield from ((title(panel), link) for link in found)


_IN_URL: Final = re.compile(r"\$\{([^}]+)\}|\$(\w+)")
_FIXED: Final = ("__url_time_range", "__all_variables", "datasource")


@rule("links")
def links(board: Board) -> Iterator[str]:
    """A link goes to a dashboard of the same language, and takes time and data source along.

    Values are encoded: a run may be called by anything. Variables are ones that are there.
    """
    for where, link in _links(board):
        url = link.get("url", "")
        if not link.get("title"):
            yield f"{where}: a link without a title"
        match = re.fullmatch(r"/d/([\w-]+)(?:/[\w-]*)?\?(.*)", url)
        if match is None or match[1] not in board.siblings:
            yield f"{where}: {url} leads to no dashboard of this language"
            continue
        parts = match[2].split("&")
        if "${__url_time_range}" not in parts:
            yield f"{where}: {url} loses the time range"
        given = dict(part.split("=", 1) for part in parts if "=" in part)
        if "${__all_variables}" not in parts and "var-datasource" not in given:
            yield f"{where}: {url} loses the data source"
        there = {v["name"] for v in board.siblings[match[1]]["templating"]["list"]}
        for key in given:
            if key.removeprefix("var-") not in there or not key.startswith("var-"):
                yield f"{where}: {url} sets {key}, which is not there"
        for braced, bare in _IN_URL.findall(match[2]):
            name, _, form = (braced or bare).partition(":")
            root = re.split(r"[.\[]", name)[0]
            if not root.startswith("__") and root not in board.names:
                yield f"{where}: {url} uses ${root}, which is not there"
            if root not in _FIXED and form not in ("percentencode", "queryparam"):
                yield f"{where}: {url} does not encode {name}"
        if urllib.parse.urlsplit(url).netloc:
            yield f"{where}: {url} leaves this Grafana"


@rule("dashboard links")
def dashboard_links(board: Board) -> Iterator[str]:
    """The dashboards' own links find others by tags that there are, and keep time and variables."""
    found = board.json.get("links", ())
    if not found:
        yield "no link to the other dashboards"
    for link in found:
        if link.get("type") != "dashboards" or not (link.get("includeVars") and link["keepTime"]):
            yield f"{link.get('title')}: expected dashboards, with variables and time"
        if link.get("tags") not in ([f"harborlight-{lang}"] for lang in DATASOURCE_LABELS):
            yield f"{link.get('title')}: expected a language's tag"
