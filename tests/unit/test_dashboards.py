"""The generated dashboards: rules, languages, Grafana's models, and the code that makes them."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import dashboards
from harborlight.views.catalogue import CATALOGUE
from support import dashboard_lint as lint
from support.dashboard_lint import EXCLUDED, RULES, Board, findings, generated
from support.dashboard_model import NOT_IN_THE_MODEL, losses
from support.dashboard_texts import differences
from support.label_values import CLOSED, OPEN, closed_values
from support.promql import COUNTERS, METRICS, analyse, expand, references

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "dashboards" / "generated"
LANGUAGES = ("en", "zh")

type Json = dict[str, Any]


BOARDS = [board for language in LANGUAGES for board in generated(language)]
every_board = pytest.mark.parametrize("board", BOARDS, ids=lambda b: f"{b.name}-{b.language}")


def test_all_are_there() -> None:
    """The same in both languages, under names that are never changed."""
    for language in LANGUAGES:
        assert {b.name for b in BOARDS if b.language == language} == set(lint.UIDS)
    assert len({board.json["uid"] for board in BOARDS}) == len(BOARDS)


@every_board
def test_rules(board: Board) -> None:
    found = findings(board)
    assert not found, "\n".join(found)


@every_board
def test_models(board: Board) -> None:
    """Grafana's own models know all of it, but for what is listed with a reason."""
    assert losses(board.json) <= set(NOT_IN_THE_MODEL)


@pytest.mark.parametrize("name", lint.UIDS)
def test_languages(name: str) -> None:
    """Built alike, and every text is in its language."""
    en, zh = (
        b.json
        for language in LANGUAGES
        for b in BOARDS
        if b.name == name and b.language == language
    )
    found = list(differences(en, zh))
    assert not found, "\n".join(found)


def test_nothing_listed_in_vain() -> None:
    """What is listed as an exception is one."""
    bare = {name for b in BOARDS for _, analysis in b.analysed() for name in analysis.bare}
    assert bare >= set(lint.TOTALS)
    assert set().union(*(losses(board.json) for board in BOARDS)) == set(NOT_IN_THE_MODEL)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_prometheus_takes_every_expression(tmp_path: Path) -> None:
    """By Prometheus' own parser, which knows more than the library's."""
    expressions = {expand(e.expr, b.names) for b in BOARDS for e in b.expressions}
    rules = [{"record": f"d:{i}", "expr": text} for i, text in enumerate(sorted(expressions))]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}), "utf-8")
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# The code that makes them


def test_drift() -> None:
    assert dashboards.drift(dashboards.files()) == [], "run `python -m dashboards`"


def test_drift_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is missing, another one, and one too many."""
    copied = tmp_path / "generated"
    shutil.copytree(GENERATED, copied)
    monkeypatch.setattr(dashboards, "GENERATED", copied)
    assert dashboards.drift(dashboards.files()) == []
    (copied / "en" / "run.json").unlink()
    (copied / "zh" / "fleet.json").write_text("{}")
    (copied / "zh" / "old.json").write_text("{}")
    assert dashboards.drift(dashboards.files()) == [
        copied / "en" / "run.json",
        copied / "zh" / "fleet.json",
        copied / "zh" / "old.json",
    ]


# What labels can be


def test_every_label_is_classified() -> None:
    """A new label is either one whose values are data, or one of a closed set."""
    for metric in CATALOGUE.values():
        for label in metric.labels:
            assert label in OPEN or closed_values(metric, label), (metric.name, label)
    assert {label for metric in CATALOGUE.values() for label in metric.labels} >= OPEN


def test_closed_sets_hold_what_was_seen() -> None:
    """Every value on a recorded page is one of its set; most of the sets are seen there."""
    seen: set[tuple[str, str]] = set()
    for page in (ROOT / "tests" / "golden").glob("*.prom"):
        for line in page.read_text("utf-8").splitlines():
            name, _, rest = line.partition("{")
            for label, value in re.findall(r'(\w+)="([^"]*)"', rest):
                if label in CLOSED.get(name, {}):
                    seen.add((name, label))
                    assert value in CLOSED[name][label], line
    assert len(seen) > 20


# PromQL

SCORED = 'harborlight_run_attempts{run="$run", state="scored"}'


def problems(expr: str) -> list[str]:
    return analyse(expr, {"run", "task", "search"}).problems


@pytest.mark.parametrize(
    ("expr", "labels"),
    [
        (f"max by (run) ({SCORED})", "run"),
        (SCORED, "run state job instance __name__"),
        (f"-({SCORED})", "run state job instance __name__"),
        (f"max without (job, instance) ({SCORED})", "run state"),
        (f"sum({SCORED})", ""),
        (f"topk(3, {SCORED})", "run state job instance __name__"),
        (f"100 * {SCORED}", "run state job instance"),
        (f"max by (run) ({SCORED}) or vector(0)", "run"),
        (f'count_values by (run) ("n", {SCORED})', "run n"),
        (f'label_replace(max by (run) ({SCORED}), "short", "$1", "run", "(.*)")', "run short"),
        (
            f'label_join({SCORED}, "both", "/", "run", "state")',
            "run state job instance both __name__",
        ),
        ("max by (run) (rate(harborlight_run_faults_total[$__rate_interval]))", "run"),
        ("max_over_time(harborlight_snapshot_timestamp_seconds[1h:1m])", "job instance"),
        (
            (
                "histogram_quantile(0.9, sum by (le, phase) "
                "(rate(harborlight_run_trial_phase_duration_seconds_bucket[$__rate_interval])))"
            ),
            "phase",
        ),
        (
            (
                f"max by (run) ({SCORED}) * on (run) group_left (title) "
                "max by (run, title) (harborlight_run_info)"
            ),
            "run title",
        ),
        (
            (
                "max by (run, title) (harborlight_run_info) * on (run) group_right () "
                f"max by (run, state) ({SCORED})"
            ),
            "run state",
        ),
        (f"{SCORED} / ignoring (state) harborlight_run_attempts_target", "run job instance"),
        (f"{SCORED} and on (run) harborlight_run_info", "run state job instance"),
        ('absent(up{job="harborlight"})', "job"),
        ("vector(time())", ""),
        ("sort_desc(process_resident_memory_bytes)", "job instance __name__"),
        (
            'max by (task) (harborlight_task_attempts_target{task=~"(?i).*${search}.*"})',
            "task",
        ),
        ('harborlight_job_state{state=~"li.*|finished"} == 1', "harbor_job state job instance"),
    ],
)
def test_labels_of_a_result(expr: str, labels: str) -> None:
    found = analyse(expr, {"run", "task", "search"})
    assert (found.problems, found.labels) == ([], frozenset(labels.split()))


def test_numbers_have_no_labels() -> None:
    assert analyse("time() - 5").labels is None
    assert analyse("scalar(up) + 1").labels is None


@pytest.mark.parametrize(
    ("expr", "problem"),
    [
        ("harborlight_run_atempts", "no metric is called harborlight_run_atempts"),
        ("harborlight_replica_queue_time_seconds", "no metric is called"),
        ("harborlight_run_tasks_sum", "no metric is called"),
        ('{__name__=~"harborlight_.*"}', "no metric is called None"),
        ('harborlight_run_tasks{state="scored"}', "harborlight_run_tasks has no label state"),
        ('harborlight_run_tasks{le="1"}', "has no label le"),
        ('harborlight_run_attempts{state="scoredd"}', "has no state that is scoredd"),
        ('harborlight_run_attempts{state!="scoredd"}', "has no state that is scoredd"),
        ('harborlight_run_attempts{state=~"scored|runing"}', "has no state that is runing"),
        ('harborlight_job_trials{state="unplanned"}', "has no state that is unplanned"),
        (
            'harborlight_run_trial_phase_duration_seconds_bucket{phase="agents"}',
            "has no phase that is agents",
        ),
        ("sum by (task) (harborlight_run_attempts)", "sum (task): there is no such label"),
        ("sum without (task) (harborlight_run_attempts)", "sum (task): there is no such label"),
        (
            "harborlight_run_tasks and on (task) harborlight_task_attempts_target",
            "and on (task): there is no such label",
        ),
        (
            (
                "max by (run) (harborlight_run_tasks) * on (run) group_left (titel) "
                "max by (run, title) (harborlight_run_info)"
            ),
            "group_left or group_right (titel)",
        ),
        (
            "harborlight_run_attempts / harborlight_run_attempts_target",
            "/ never matches: labels (instance, job, run, state) against (instance, job, run)",
        ),
        (
            "harborlight_run_tasks / ignoring (phase) harborlight_run_tasks",
            "/ ignoring (phase): there is no such label",
        ),
        (
            'label_replace(harborlight_run_tasks, "a", "$1", "task", ".*")',
            "label_replace (task): there is no such label",
        ),
        ('label_join(harborlight_run_tasks, "a", "/", "b")', "label_join (b)"),
        ('sort_by_label(harborlight_run_tasks, "task")', "sort_by_label (task)"),
        ("histogram_quantile(0.9, harborlight_run_tasks)", "histogram_quantile (le)"),
        ("rate(harborlight_run_tasks[5m])", "rate() of harborlight_run_tasks, which is no counter"),
        ("topk(scalar(harborlight_x), up)", "no metric is called harborlight_x"),
    ],
)
def test_what_is_wrong_is_found(expr: str, problem: str) -> None:
    assert any(problem in found for found in problems(expr)), problems(expr)


def test_windows_and_bare_counters() -> None:
    found = analyse(
        "rate(harborlight_run_faults_total[5m]) + increase(harborlight_run_faults_total[1h])"
        " + harborlight_run_faults_total + sum_over_time(harborlight_run_faults_total[2h:])"
    )
    assert found.windows == [("rate", 300), ("increase", 3600), ("sum_over_time", 7200)]
    assert found.bare == ["harborlight_run_faults_total"] * 2


def test_variables() -> None:
    text = "a$b ${c:regex} [[d]] $__range ${__rate_interval}"
    assert references(text) == ["b", "c", "d", "__range", "__rate_interval"]
    assert expand("$__range_s", ()).isdigit()
    with pytest.raises(KeyError, match="no_such"):
        expand("up == $no_such", {"run"})
    with pytest.raises(ValueError, match="unclosed"):
        analyse("sum by (")


def test_series_are_the_pages() -> None:
    """Every series of a recorded page is known, with its labels."""
    for page in (ROOT / "tests" / "golden").glob("*.prom"):
        for line in page.read_text("utf-8").splitlines():
            if line.startswith("#"):
                continue
            name, rest = re.match(r"(\w+)(?:\{(.*)\})? ", line).groups()  # type: ignore[union-attr]
            assert set(re.findall(r'(\w+)="', rest or "")) <= METRICS[name], line
    assert {name for name in METRICS if name.endswith("_total")} <= COUNTERS


# Rules that cannot fail would hold nothing


def panel(number: int, kind: str, **more: Any) -> Json:
    """A panel as it should be."""
    return {
        "id": number,
        "type": kind,
        "title": f"Panel {number}",
        "description": "What it shows in the last hour.",
        "datasource": dict(lint.DATASOURCE),
        "gridPos": {"x": 0, "y": 4 * number, "w": 12, "h": 4},
        "fieldConfig": {
            "defaults": {
                "unit": "short",
                "noValue": "nothing",
                "thresholds": {
                    "mode": "absolute",
                    "steps": [{"color": "green", "value": None}, {"color": "red", "value": 1}],
                },
            },
            "overrides": [],
        },
        "options": {},
        **more,
    }


def target(ref: str, expr: str, legend: str = "__auto", **more: Any) -> Json:
    return {
        "refId": ref,
        "expr": expr,
        "legendFormat": legend,
        "datasource": dict(lint.DATASOURCE),
        "format": "time_series",
        "instant": True,
        "range": False,
        **more,
    }


def variable(name: str, query: str, **more: Any) -> Json:
    return {
        "name": name,
        "label": name,
        "type": "query",
        "query": {"query": query},
        "refresh": 2,
        "datasource": dict(lint.DATASOURCE),
        **more,
    }


LINK = "/d/harborlight-run-en?${__url_time_range}&var-datasource=${datasource}"


def sample() -> Board:
    """A dashboard that no rule has anything against."""
    overrides = [
        {
            "matcher": {"id": "byName", "options": "Scored"},
            "properties": [
                {"id": "unit", "value": "suffix: pieces"},
                {"id": "links", "value": [{"title": "run", "url": LINK}]},
            ],
        }
    ]
    document = {
        "uid": "harborlight-run-en",
        "title": "Sample",
        "description": "For the rules.",
        "tags": ["harborlight", "harborlight-en"],
        "schemaVersion": 41,
        "editable": False,
        "timepicker": {},
        "links": [
            {
                "type": "dashboards",
                "title": "Others",
                "tags": ["harborlight-zh"],
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "annotations": {
            "list": [
                {"name": "Grafana's own", "builtIn": 1},
                {
                    "name": "Burst",
                    "datasource": dict(lint.DATASOURCE),
                    "expr": "max by (cause) (increase(harborlight_run_faults_total[10m])) > 5",
                    "titleFormat": "Burst",
                    "textFormat": "{{cause}}",
                },
            ]
        },
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                },
                variable("run", "label_values(harborlight_run_info, run)"),
                variable(
                    "task",
                    'label_values(harborlight_task_attempts_target{run="$run"}, task)',
                    multi=True,
                ),
                {"name": "search", "label": "Search", "type": "textbox", "query": ""},
            ]
        },
        "panels": [
            {
                "id": 1,
                "type": "row",
                "title": "Row",
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": 0, "w": 24, "h": 1},
            },
            panel(
                2,
                "stat",
                targets=[
                    target("A", f"max by (run) ({SCORED})", "{{run}}"),
                    target("B", "sum(increase(harborlight_run_faults_total[1h]))", "faults"),
                ],
            ),
            panel(
                3,
                "timeseries",
                targets=[
                    target(
                        "A",
                        "sum by (cause) (rate(harborlight_run_faults_total[$__rate_interval]))",
                        "{{cause}}",
                        instant=False,
                        range=True,
                    )
                ],
            ),
            {
                **panel(
                    4,
                    "table",
                    targets=[
                        target(
                            "A",
                            'max by (task) (harborlight_task_attempts{run="$run", task=~"$task", '
                            'state="scored"})',
                            format="table",
                        ),
                        target(
                            "B",
                            'max by (task) (harborlight_task_attempts_target{task=~".*$search"})',
                            format="table",
                        ),
                    ],
                    transformations=[
                        {"id": "merge", "options": {}},
                        {
                            "id": "organize",
                            "options": {
                                "excludeByName": {"Time": True, "Value #B": True},
                                "indexByName": {"task": 0, "Value #A": 1},
                                "renameByName": {"task": "Task", "Value #A": "Scored"},
                            },
                        },
                    ],
                    options={"sortBy": [{"displayName": "Task", "desc": False}]},
                ),
                "fieldConfig": {"defaults": {"noValue": "none"}, "overrides": overrides},
            },
            panel(
                5,
                "heatmap",
                targets=[
                    target(
                        "A",
                        "sum by (le) (rate(harborlight_replica_queue_time_seconds_bucket"
                        "[$__rate_interval]))",
                        format="heatmap",
                    )
                ],
                options={"yAxis": {"unit": "s"}},
            ),
            {
                "id": 6,
                "type": "text",
                "title": "Notes",
                "description": "What to know.",
                "gridPos": {"x": 0, "y": 24, "w": 12, "h": 4},
                "options": {"content": "words"},
            },
            panel(
                7,
                "barchart",
                gridPos={"x": 12, "y": 24, "w": 12, "h": 4},
                targets=[
                    target("A", "max by (run, state) (harborlight_run_attempts)", format="table")
                ],
                transformations=[
                    {
                        "id": "groupingToMatrix",
                        "options": {
                            "rowField": "run",
                            "columnField": "state",
                            "valueField": "Value",
                        },
                    },
                    {
                        "id": "organize",
                        "options": {"renameByName": {"scored": "Scored"}, "indexByName": {}},
                    },
                ],
            ),
        ],
    }
    return Board("run", "en", document, {"harborlight-run-en": document})


def test_sample_is_good() -> None:
    assert findings(sample()) == []


def put(path: str, value: Any) -> Callable[[Json], None]:
    """Set what lies there; `panels.1.title` and the like. A callable gets what was there."""

    def change(document: Json) -> None:
        *way, last = (int(part) if part.isdigit() else part for part in path.split("."))
        place: Any = document
        for step in way:
            place = place[step]
        if value is None:
            del place[last]
        else:
            place[last] = value(place[last]) if callable(value) else value

    return change


STAT, SERIES, TABLE = "panels.1", "panels.2", "panels.3"
EXPR = "targets.0.expr"
DEFAULTS = "fieldConfig.defaults"
LINK_URL = f"{TABLE}.fieldConfig.overrides.0.properties.1.value.0.url"

BAD: list[tuple[str, Callable[[Json], None], str]] = [
    ("template-datasource-rule", put("templating.list.0", None), "found 0"),
    ("template-datasource-rule", put("templating.list.0.name", "ds"), "the variable `datasource`"),
    ("template-datasource-rule", put("templating.list.0.query", "loki"), "for prometheus"),
    ("template-datasource-rule", put("templating.list.0.label", "数据源"), "Data source"),
    ("template-label-promql-rule", put("templating.list.1.query", "metrics(.*)"), "run: expected"),
    ("template-label-promql-rule", put("templating.list.1.query", "label_values(run)"), "expected"),
    (
        "template-label-promql-rule",
        put("templating.list.1.query.query", "label_values(harborlight_run_info, task)"),
        "has no label task",
    ),
    ("template-on-time-change-reload-rule", put("templating.list.1.refresh", 1), "run: expected"),
    ("template-on-time-change-reload-rule", put("templating.list.2.refresh", None), "task"),
    (
        "template-variable-matchers-rule",
        put(f"{TABLE}.{EXPR}", lambda e: e.replace("task=~", "task=")),
        "=~ before $task",
    ),
    (
        "template-variable-matchers-rule",
        put(f"{TABLE}.targets.1.expr", lambda e: e.replace("=~", "!=")),
        "=~ before $search",
    ),
    (
        "template-unused",
        put(f"{TABLE}.targets.1.expr", lambda e: e.replace("$search", "")),
        "nothing uses $search",
    ),
    ("panel-datasource-rule", put(f"{STAT}.datasource.uid", "abc"), "'Panel 2'"),
    ("panel-datasource-rule", put(f"{STAT}.targets.1.datasource", None), "'Panel 2'"),
    ("panel-datasource-rule", put("annotations.list.1.datasource", "x"), "annotation Burst"),
    ("panel-datasource-rule", put("templating.list.1.datasource", None), "variable run"),
    ("panel-title-description-rule", put(f"{STAT}.title", " "), "no title"),
    ("panel-title-description-rule", put(f"{SERIES}.description", None), "no description"),
    ("panel-title-description-rule", put("panels.0.title", ""), "no title"),
    ("no-value", put(f"{STAT}.{DEFAULTS}.noValue", ""), "no text for no data"),
    ("no-value", put(f"{TABLE}.{DEFAULTS}.noValue", None), "no text for no data"),
    ("panel-units-rule", put(f"{STAT}.{DEFAULTS}.unit", "second"), "no unit 'second'"),
    ("panel-units-rule", put(f"{STAT}.{DEFAULTS}.unit", None), "'Panel 2': no unit"),
    (
        "panel-units-rule",
        put(f"{TABLE}.fieldConfig.overrides.0.properties.0.value", "suffix:"),
        "no unit 'suffix:'",
    ),
    ("panel-units-rule", put("panels.4.options.yAxis.unit", "seconds"), "no unit 'seconds'"),
    (
        "panel-units-rule (tables and heatmaps)",
        put(f"{TABLE}.fieldConfig.overrides.0.properties.0.id", "decimals"),
        "no unit for Scored",
    ),
    (
        "panel-units-rule (tables and heatmaps)",
        put("panels.4.options.yAxis.unit", None),
        "no unit on its axis",
    ),
    ("panel-no-targets-rule", put(f"{STAT}.targets", []), "'Panel 2': no query"),
    ("target-promql-rule", put(f"{STAT}.{EXPR}", "max by (run ("), "'Panel 2' A"),
    ("target-promql-rule", put(f"{STAT}.{EXPR}", "up == $pool"), "no variable $pool"),
    ("target-promql-rule", put("annotations.list.1.expr", "sum("), "annotation Burst"),
    (
        "target-promql-rule",
        put("templating.list.1.query.query", "query_result(sum()"),
        "variable run",
    ),
    ("metrics and labels", put(f"{STAT}.{EXPR}", "harborlight_no_such"), "no metric is called"),
    (
        "metrics and labels",
        put("annotations.list.1.expr", "harborlight_no_such"),
        "no metric is called",
    ),
    (
        "metrics and labels",
        put("templating.list.1.query.query", "label_values(harborlight_info, run)"),
        "variable run: no metric",
    ),
    (
        "metrics and labels",
        put(f"{TABLE}.{EXPR}", lambda e: e.replace('"scored"', '"scord"')),
        "has no state that is scord",
    ),
    ("legends", put(f"{STAT}.targets.0.legendFormat", "{{task}}"), "no label task"),
    ("legends", put("annotations.list.1.textFormat", "{{ run }}"), "no label run"),
    (
        "target-rate-interval-rule",
        put(f"{SERIES}.{EXPR}", lambda e: e.replace("$__rate_interval", "5m")),
        "another window than $__rate_interval",
    ),
    (
        "target-rate-interval-rule",
        put(f"{SERIES}.{EXPR}", lambda e: e.replace("$__rate_interval", "$__range")),
        "another window than $__rate_interval",
    ),
    (
        "target-rate-interval-rule",
        put("annotations.list.1.expr", lambda e: e.replace("increase", "rate")),
        "another window than $__rate_interval",
    ),
    (
        "target-rate-interval-rule",
        put(f"{STAT}.description", "Faults."),
        "nothing says that it is over 3600 s",
    ),
    (
        "target-counter-agg-rule",
        put(f"{SERIES}.{EXPR}", "sum by (cause) (harborlight_run_faults_total)"),
        "outside of rate()",
    ),
    (
        "target-counter-agg-rule",
        put(f"{STAT}.{EXPR}", "sum by (run) (harborlight_run_tokens_total)"),
        "harborlight_run_tokens_total outside of rate()",
    ),
    ("uneditable-dashboard-rule", put("editable", True), "editable false"),
    ("uneditable-dashboard-rule", put("editable", None), "editable false"),
    ("identity", put("uid", "run"), "the uid harborlight-run-en"),
    ("identity", put("tags", ["harborlight"]), "the tags"),
    ("identity", put("schemaVersion", 12), "schemaVersion 41"),
    ("identity", put("description", None), "no description"),
    ("identity", put("id", 7), "an id"),
    ("nothing that Grafana ignores", put("gnetId", 7), "gnetId"),
    ("nothing that Grafana ignores", put("timepicker.time_options", ["5m"]), "time_options"),
    ("nothing that Grafana ignores", put(f"{STAT}.span", 6), "'Panel 2': span"),
    ("nothing that Grafana ignores", put(f"{STAT}.targets.0.step", 10), "'Panel 2': step"),
    ("nothing that Grafana ignores", put("templating.list.1.useTags", False), "useTags"),
    ("nothing that Grafana ignores", put("panels.5.targets", [{}]), "targets of a text"),
    ("nothing that Grafana ignores", put(f"{TABLE}.{DEFAULTS}.unit", ""), "an empty unit"),
    ("nothing that Grafana ignores", put(f"{STAT}.{DEFAULTS}.calcs", ["last"]), "GaugePanel"),
    ("nothing that Grafana ignores", put(f"{STAT}.options.fieldOptions", {}), "Grafana 6"),
    (
        "nothing that Grafana ignores",
        put(f"{TABLE}.{DEFAULTS}.custom", {"displayMode": "auto"}),
        "cellOptions",
    ),
    *(
        (
            "nothing that Grafana ignores",
            put(f"{STAT}.{DEFAULTS}.thresholds.steps", steps),
            "thresholds in no form",
        )
        for steps in (
            "",
            [],
            [{"color": "red", "value": 0}],
            [{"color": "red", "value": "null"}],
            [{"color": "red", "value": None, "index": 0}],
            [{"color": c, "value": v} for c, v in (("a", None), ("b", 2), ("c", 1))],
            [{"color": c, "value": v} for c, v in (("a", None), ("b", None))],
        )
    ),
    (
        "nothing that Grafana ignores",
        put(
            f"{TABLE}.fieldConfig.overrides.0.properties.0",
            {"id": "thresholds", "value": {"mode": "absolute", "steps": []}},
        ),
        "thresholds in no form",
    ),
    ("positions and ids", put(f"{STAT}.id", 3), "id 3"),
    ("positions and ids", put(f"{STAT}.id", None), "id None"),
    ("positions and ids", put(f"{STAT}.gridPos.x", 20), "outside of the grid"),
    ("positions and ids", put(f"{STAT}.gridPos.h", 5), "'Panel 2' overlaps 'Panel 3'"),
    ("positions and ids", put(f"{STAT}.gridPos.w", 0), "without a size"),
    ("positions and ids", put("panels.0.gridPos.w", 12), "does not go across"),
    (
        "fields",
        put(f"{TABLE}.transformations.1.options.renameByName", {"Value #C": "Scored"}),
        "organize: Value #C",
    ),
    (
        "fields",
        put(f"{TABLE}.transformations.1.options.excludeByName", {}),
        "a column Time without a title",
    ),
    (
        "fields",
        put(f"{TABLE}.transformations.1.options.excludeByName", {"runs": True}),
        "organize: runs",
    ),
    (
        "fields",
        put(f"{TABLE}.fieldConfig.overrides.0.matcher.options", "Scord"),
        "an override of Scord",
    ),
    (
        "fields",
        put(f"{TABLE}.fieldConfig.overrides.0.matcher", {"id": "byFrameRefID", "options": "C"}),
        "an override of C",
    ),
    (
        "fields",
        put(f"{TABLE}.fieldConfig.overrides.0.matcher", {"id": "byType", "options": "number"}),
        "an override byType",
    ),
    ("fields", put(f"{TABLE}.options.sortBy.0.displayName", "task"), "sorted by task"),
    ("fields", put(f"{TABLE}.transformations.0.id", "reduce"), "reduce, which nothing here knows"),
    (
        "fields",
        put(f"{STAT}.transformations", [{"id": "merge"}]),
        "transformations of what is no table",
    ),
    (
        "fields",
        put("panels.6.transformations.0.options.columnField", "stat"),
        "groupingToMatrix: stat",
    ),
    (
        "fields",
        put("panels.6.transformations.1.options.renameByName", {"scord": "x"}),
        "organize: scord",
    ),
    (
        "fields",
        put(
            f"{TABLE}.fieldConfig.overrides.0.properties.0",
            {"id": "custom.fillBelowTo", "value": "lower"},
        ),
        "fills to lower",
    ),
    ("links", put(LINK_URL, "/d/harborlight-run-zh?x=1"), "leads to no dashboard"),
    ("links", put(LINK_URL, "https://elsewhere.example/d/harborlight-run-en?x"), "leads to no"),
    ("links", put(LINK_URL, lambda u: u.replace("${__url_time_range}&", "")), "loses the time"),
    (
        "links",
        put(LINK_URL, lambda u: u.replace("&var-datasource=${datasource}", "")),
        "loses the data source",
    ),
    ("links", put(LINK_URL, lambda u: u + "&var-pool=1"), "sets var-pool"),
    ("links", put(LINK_URL, lambda u: u + "&run=1"), "sets run"),
    (
        "links",
        put(LINK_URL, lambda u: u + "&var-run=${pool:percentencode}"),
        "uses $pool, which is not there",
    ),
    ("links", put(LINK_URL, lambda u: u + "&var-run=${__value.raw}"), "does not encode"),
    ("links", put(LINK_URL, lambda u: u + "&var-run=$run"), "does not encode run"),
    (
        "links",
        put(f"{TABLE}.fieldConfig.overrides.0.properties.1.value.0.title", ""),
        "a link without a title",
    ),
    (
        "links",
        put(f"{STAT}.links", [{"title": "x", "url": "/d/none?x"}]),
        "leads to no dashboard",
    ),
    (
        "links",
        put(f"{STAT}.{DEFAULTS}.links", [{"title": "x", "url": "/d/none?x"}]),
        "leads to no dashboard",
    ),
    ("dashboard links", put("links", []), "no link"),
    ("dashboard links", put("links.0.tags", ["other"]), "a language's tag"),
    ("dashboard links", put("links.0.keepTime", False), "with variables and time"),
    ("dashboard links", put("links.0.type", "link"), "expected dashboards"),
]


@pytest.mark.parametrize(
    ("name", "spoil", "expected"), BAD, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(BAD)]
)
def test_broken_dashboard_is_reported(
    name: str, spoil: Callable[[Json], None], expected: str
) -> None:
    board = sample()
    spoil(board.json)
    found = [finding for finding in findings(board) if finding.startswith(f"{name}: ")]
    assert any(expected in finding for finding in found), findings(board)


def test_every_rule_can_fail() -> None:
    assert {name for name, _, _ in BAD} == set(RULES)
    assert all(reason.strip() for reason in EXCLUDED.values())
    assert not EXCLUDED.keys() & RULES.keys()


@pytest.mark.parametrize(("number", "reported"), [(1, 0), (2, 1)])
def test_totals_may_be_shown_once(number: int, reported: int) -> None:
    """A total since the beginning, by an instant query; over a range it is a growing line."""
    board = sample()
    query = board.json["panels"][number]["targets"][0]
    query |= {"expr": "sum(harborlight_run_retries_total)", "legendFormat": "all"}
    assert len(findings(board)) == reported


# Languages


def chinese(document: Json) -> Json:
    """The sample as its Chinese version."""
    text = json.dumps(document)
    for en, zh in (
        *(("Data source", "数据源"), ("Sample", "样例"), ("For the rules.", "用于规则。")),
        *(("Row", "行"), ("What it shows in the last hour.", "最近一小时。"), ("Others", "其他")),
        *(("nothing", "没有"), ("Notes", "说明"), ("What to know.", "须知。"), ("words", "文字")),
        *(("Scored", "已计分"), ("Task", "任务"), ("Search", "搜索"), ("Burst", "集中出现")),
        *(('"faults"', '"故障"'), ('"none"', '"无"'), ("suffix: pieces", "suffix: 个")),
        *(('"title": "run"', '"title": "运行"'), ('"label": "run"', '"label": "运行"')),
        *(('"label": "task"', '"label": "任务"'), ("Grafana's own", "自带")),
        *(
            ("harborlight-zh", "harborlight-xx"),
            ("-en", "-zh"),
            ("harborlight-xx", "harborlight-en"),
        ),
    ):
        text = text.replace(en, zh)
    translated: Json = json.loads(re.sub(r"Panel (\d)", r"面板 \1", text))
    return translated


def test_sample_in_both_languages() -> None:
    document = sample().json
    assert list(differences(document, chinese(document))) == []


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (put("panels.1.title", "Panel 2"), "'Panel 2' is not Chinese"),
        (put("panels.1.description", "In the last hour."), "is not Chinese"),
        (put("panels.1.targets.0.legendFormat", "{{state}}"), "name other labels"),
        (put("panels.1.targets.1.legendFormat", ""), "'faults' in English, '' in Chinese"),
        (put("panels.1.targets.0.expr", "up"), "'up' in Chinese"),
        (put("panels.1.targets.0.instant", False), "False in Chinese"),
        (put("panels.1.id", 9), "9 in Chinese"),
        (put("panels.1.gridPos.x", 0.0), "0.0 in Chinese"),
        (put("panels.6", None), "7 in English, 6 in Chinese"),
        (put("panels.1.links", []), ".links: in one language only"),
        (put(f"{STAT}.{DEFAULTS}.noValue", "none"), "'none' is not Chinese"),
        (put(f"{STAT}.{DEFAULTS}.unit", "s"), "'s' in Chinese"),
        (put(f"{TABLE}.fieldConfig.overrides.0.properties.0.value", "suffix: x"), "' x' is not"),
        (
            put(f"{TABLE}.fieldConfig.overrides.0.matcher.options", "Total"),
            "'Total' is not Chinese",
        ),
        (
            put(f"{TABLE}.transformations.1.options.renameByName.task", "Tasks"),
            "'Tasks' is not Chinese",
        ),
        (put("templating.list.1.name", "runs"), "'runs' in Chinese"),
        (put("templating.list.1.label", "Runs"), "'Runs' is not Chinese"),
        (put(LINK_URL, LINK.replace("-run-", "-fleet-")), "-fleet-"),
        (put("uid", "other-zh"), "'other-zh' in Chinese"),
    ],
)
def test_language_slips_are_reported(spoil: Callable[[Json], None], expected: str) -> None:
    document = sample().json
    zh = chinese(copy.deepcopy(document))
    spoil(zh)
    found = list(differences(document, zh))
    assert len(found) >= 1 and any(expected in difference for difference in found), found


def test_chinese_in_the_english_one_is_reported() -> None:
    document = sample().json
    zh = chinese(document)
    document["title"] = "样例"
    assert list(differences(document, zh)) == [".title: '样例' is not English"]


# Models


def test_losses_are_reported() -> None:
    """Keys that Grafana's models do not know, and values that they take for others."""
    document = sample().json
    good = losses(document)
    document["panels"][1]["fieldConfig"]["defaults"]["nosuch"] = 1
    document["panels"][1]["gridPos"]["depth"] = 3
    assert losses(document) - good == {
        "dropped .panels[].fieldConfig.defaults.nosuch",
        "dropped .panels[].gridPos.depth",
    }
