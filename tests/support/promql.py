"""What a PromQL expression asks for, and what is wrong with it for the metrics that there are."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import promql_parser as p
from prometheus_client import PROCESS_COLLECTOR

from harborlight.views.catalogue import CATALOGUE, Kind
from support.label_values import CLOSED

OF_THE_SCRAPE: Final = frozenset({"job", "instance"})
"""Labels that Prometheus sets."""

PROMETHEUS_OWN: Final = ("up", "scrape_duration_seconds", "scrape_samples_scraped")

_PROCESS: Final = tuple(s.name for family in PROCESS_COLLECTOR.collect() for s in family.samples)


def _own_series() -> dict[str, tuple[frozenset[str], bool]]:
    """Every series of the exporter: its labels, and whether it only grows."""
    found = {}
    for metric in CATALOGUE.values():
        labels = OF_THE_SCRAPE | set(metric.labels)
        if metric.kind is Kind.HISTOGRAM:
            found[f"{metric.full_name}_bucket"] = (labels | {"le"}, True)
            found[f"{metric.full_name}_sum"] = (labels, True)
            found[f"{metric.full_name}_count"] = (labels, True)
        else:
            found[metric.full_name] = (labels, metric.kind is Kind.COUNTER)
    return found


METRICS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys((*PROMETHEUS_OWN, *_PROCESS), OF_THE_SCRAPE),
    **{name: labels for name, (labels, _) in _own_series().items()},
}
"""Labels by the name of every series that can be asked for."""

COUNTERS: Final = frozenset(
    {
        *(name for name in _PROCESS if name.endswith("_total")),
        *(name for name, (_, grows) in _own_series().items() if grows),
    }
)
"""Series that only grow: counters, and the parts of histograms."""


# Grafana's variables

RATE_INTERVAL, RANGE, INTERVAL = 11_277_964, 11_277_965, 11_277_966
"""Seconds that stand for Grafana's windows, and that nobody would write."""

_BUILT_IN: Final = {
    "__rate_interval": f"{RATE_INTERVAL}s",
    "__range": f"{RANGE}s",
    "__interval": f"{INTERVAL}s",
    "__range_s": str(RANGE),
    "__range_ms": str(1000 * RANGE),
    "__interval_ms": str(1000 * INTERVAL),
    "__from": "1294671549254",
    "__to": "1294671549255",
}
_ANY: Final = "anyvalue"
"""In place of a variable's value: a word, so that it can be within a regular expression."""

# `$1` is a group of label_replace(), which Grafana leaves alone.
_REFERENCE: Final = re.compile(r"\$([a-zA-Z_]\w*)|\$\{(\w+)(?::\w+)?\}|\[\[(\w+)(?::\w+)?\]\]")


def references(text: str) -> list[str]:
    """The variables that the text mentions, in any of Grafana's three notations."""
    return [next(filter(None, groups)) for groups in _REFERENCE.findall(text)]


def expand(expr: str, variables: Collection[str] | Mapping[str, str]) -> str:
    """With values in place of variables: these, or made-up ones where only names are given.

    Raises KeyError for a variable that there is not.
    """

    def value(match: re.Match[str]) -> str:
        name = next(filter(None, match.groups()))
        if name in _BUILT_IN:
            return _BUILT_IN[name]
        if name not in variables:
            raise KeyError(name)
        return variables[name] if isinstance(variables, Mapping) else f"{_ANY}{name}"

    return _REFERENCE.sub(value, expr)


# Expressions

type Labels = frozenset[str] | None
"""The labels that a result's series can have; None for a number."""

_CHANGES: Final = frozenset({"rate", "irate", "increase", "resets"})
_KEEP_NAME: Final = frozenset(
    {"sort", "sort_desc", "sort_by_label", "sort_by_label_desc", "last_over_time"}
)
_KEEP_ALL: Final = frozenset({"topk", "bottomk", "limitk", "limit_ratio"})
_SETS: Final = frozenset({"and", "or", "unless"})
_NAME: Final = "__name__"


@dataclass
class Analysis:
    """One expression, its variables expanded.

    ``windows``: seconds of each range, with the function that it is given to. ``bare``: counters
    that are not inside rate(), irate(), increase() or resets(). ``equal``: variables within a
    matcher that is no regular expression. ``known``: labels by the name of what can be asked for.
    """

    expr: str
    known: Mapping[str, frozenset[str]] = field(default_factory=lambda: METRICS)
    problems: list[str] = field(default_factory=list)
    labels: Labels = None
    windows: list[tuple[str, int]] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)
    equal: list[str] = field(default_factory=list)
    metrics: set[str] = field(default_factory=set)

    def say(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def analyse(
    expr: str,
    variables: Collection[str] = (),
    *,
    recorded: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> Analysis:
    """What it asks for. Raises ValueError where it is no PromQL, KeyError by a variable's name.

    ``recorded``: labels of series that are there beside the exporter's and Prometheus' own.
    """
    found = Analysis(expand(expr, variables), {**METRICS, **recorded})
    found.labels = _labels(found, p.parse(found.expr), "")
    return found


def _labels(a: Analysis, node: Any, inside: str) -> Labels:
    """``inside``: the function that the node is an argument of."""
    match node:
        case p.NumberLiteral() | p.StringLiteral():
            return None
        case p.ParenExpr() | p.UnaryExpr():
            return _labels(a, node.expr, inside)
        case p.VectorSelector():
            return _selected(a, node, inside)
        case p.MatrixSelector():
            a.windows.append((inside, round(node.range.total_seconds())))
            return _selected(a, node.vector_selector, inside)
        case p.SubqueryExpr():
            assert node.range is not None
            a.windows.append((inside, round(node.range.total_seconds())))
            return _labels(a, node.expr, "")
        case p.Call():
            return _called(a, node)
        case p.AggregateExpr():
            return _aggregated(a, node)
        case p.BinaryExpr():
            return _joined(a, node)
    raise AssertionError(f"{type(node).__name__} is not known here")


def _selected(a: Analysis, node: p.VectorSelector, inside: str) -> Labels:
    name = node.name
    if name is None or name not in a.known:
        a.say(f"no metric is called {name}")
        return OF_THE_SCRAPE
    a.metrics.add(name)
    if name in COUNTERS and inside not in _CHANGES:
        a.bare.append(name)
    if name not in COUNTERS and inside in _CHANGES:
        a.say(f"{inside}() of {name}, which is no counter")
    labels = a.known[name]
    for matcher in (*node.matchers.matchers, *(m for ms in node.matchers.or_matchers for m in ms)):
        if matcher.name not in labels:
            a.say(f"{name} has no label {matcher.name}")
            continue
        regular = matcher.op in (p.MatchOp.Re, p.MatchOp.NotRe)
        if _ANY in matcher.value:
            if not regular:
                a.equal += re.findall(rf"{_ANY}(\w+)", matcher.value)
            continue
        known = CLOSED.get(_family(name), {}).get(matcher.name)
        if known is not None:
            for value in matcher.value.split("|") if regular else [matcher.value]:
                if not any(re.fullmatch(value if regular else re.escape(value), k) for k in known):
                    a.say(f"{name} has no {matcher.name} that is {value}")
    return labels | {_NAME}


def _family(name: str) -> str:
    """A histogram by one of its parts."""
    return name if name in CLOSED else re.sub(r"_(bucket|sum|count)$", "", name)


def _called(a: Analysis, node: p.Call) -> Labels:
    function, arguments = node.func.name, list(node.args)
    given = [_labels(a, argument, function) for argument in arguments]
    words = [x.val if isinstance(x, p.StringLiteral) else "" for x in arguments]
    if node.func.return_type != p.ValueType.Vector:
        return None
    vectors = [labels for labels in given if labels is not None]
    labels = frozenset().union(*vectors)
    match function:
        case "absent" | "absent_over_time":
            selector = getattr(arguments[0], "vector_selector", arguments[0])
            matchers = selector.matchers.matchers if isinstance(selector, p.VectorSelector) else ()
            return frozenset(m.name for m in matchers if m.op == p.MatchOp.Equal)
        case "label_replace":
            _need(a, labels, [words[3]], function)
            return labels | {words[1]}
        case "label_join":
            _need(a, labels, words[3:], function)
            return labels | {words[1]}
        case "sort_by_label" | "sort_by_label_desc":
            _need(a, labels, words[1:], function)
        case "histogram_quantile" | "histogram_fraction":
            _need(a, labels, ["le"], function)
            return labels - {"le", _NAME}
    return labels if function in _KEEP_NAME else labels - {_NAME}


def _aggregated(a: Analysis, node: p.AggregateExpr) -> Labels:
    labels, operation, modifier = _labels(a, node.expr, ""), str(node.op), node.modifier
    if isinstance(node.param, p.Expr):
        _labels(a, node.param, "")
    assert labels is not None, "the parser takes no aggregation of a number"
    named = list(modifier.labels) if modifier is not None else []
    _need(a, labels, named, operation)
    if operation in _KEEP_ALL:
        return labels
    if modifier is not None and modifier.type == p.AggModifierType.Without:
        kept = labels - set(named) - {_NAME}
    else:
        kept = frozenset(named)
    if operation == "count_values":
        assert isinstance(node.param, p.StringLiteral)
        return kept | {node.param.val}
    return kept


def _growth(node: p.BinaryExpr) -> bool:
    """Whether it is a counter minus itself before, or minus its least value in a window."""
    left, right = node.lhs, node.rhs
    if str(node.op) != "-" or not isinstance(left, p.VectorSelector):
        return False
    if isinstance(right, p.Call) and right.func.name == "min_over_time":
        return bool(right.args[0].vector_selector.name == left.name)
    return isinstance(right, p.VectorSelector) and right.name == left.name


def _joined(a: Analysis, node: p.BinaryExpr) -> Labels:
    before = len(a.bare)
    left, right = _labels(a, node.lhs, ""), _labels(a, node.rhs, "")
    if _growth(node):
        del a.bare[before:]
    if left is None or right is None:
        vector = right if left is None else left
        return None if vector is None else vector - {_NAME}
    operation, modifier = str(node.op), node.modifier
    left, right = left - {_NAME}, right - {_NAME}
    matching = modifier.matching if modifier is not None else None
    many, one = left, right
    if modifier is not None and modifier.card == p.VectorMatchCardinality.OneToMany:
        many, one = right, left
    grouped = frozenset(modifier.group_labels or () if modifier is not None else ())
    _need(a, one, grouped, "group_left or group_right")
    named = frozenset(matching.labels) if matching is not None else frozenset()
    by_name = matching is not None and matching.type == p.LabelModifierType.Include
    if by_name:
        for side in (left, right):
            # What has no label at all, as vector(0), matches nothing and is meant to.
            if side or operation != "or":
                _need(a, side, named, f"{operation} on")
    else:
        _need(a, left | right, named, f"{operation} ignoring")
        if operation != "or" and left - named != right - named:
            shown = [", ".join(sorted(side - named)) for side in (left, right)]
            a.say(f"{operation} never matches: labels ({shown[0]}) against ({shown[1]})")
    if operation == "or":
        return left | right
    if operation in _SETS:
        return left
    if modifier is not None and modifier.card in (
        p.VectorMatchCardinality.ManyToOne,
        p.VectorMatchCardinality.OneToMany,
    ):
        return many | grouped
    return named if by_name else left - named


def _need(a: Analysis, labels: frozenset[str], names: Iterable[str], what: str) -> None:
    for name in names:
        if name not in labels:
            a.say(f"{what} ({name}): there is no such label among ({', '.join(sorted(labels))})")
