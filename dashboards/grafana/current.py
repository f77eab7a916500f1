"""grafanalib's JSON in the form in which Grafana 11 to 13 save it themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from dashboards.grafana.fields import Json

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


def current(dashboard: Json) -> Json:
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
    return {"mode": given["mode"], "steps": found}


def _variable(variable: Json) -> Json:
    kept = _without(variable, _STALE_VARIABLE)
    if kept["type"] != "query":
        kept = _without(kept, ("datasource", "sort", "refresh", "allValue"))
    if kept["type"] == "textbox":
        kept["current"] = {"text": "", "value": ""}
    else:
        kept["current"] = {"text": "All", "value": "$__all"} if kept["includeAll"] else {}
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
