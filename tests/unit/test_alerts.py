"""The rules as such: that they are current, well formed, and ask for what there is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import alerts
from alerts import readme
from alerts.parameters import HOLDS, Parameters, Span
from alerts.rule import IMPAIRED, Alert, Recording, Severity
from support.dashboard_lint import generated
from support.promql import analyse

GROUPS = alerts.groups(Parameters())
ALERTS = alerts.alerts()
BY_NAME = {alert.name: alert for alert in ALERTS}
RECORDINGS = [rule for group in GROUPS for rule in group.rules if isinstance(rule, Recording)]
RECORDED = {
    **{rule.record: frozenset(rule.labels) for rule in RECORDINGS},
    "ALERTS": frozenset({"alertname", "alertstate", "severity"}).union(*(a.labels for a in ALERTS)),
}
ROOT = Path(__file__).resolve().parents[2]


def by_name(alert: Alert) -> str:
    return alert.name


every_alert = pytest.mark.parametrize("alert", ALERTS, ids=by_name)


def test_generated_files_are_current() -> None:
    assert alerts.drift(alerts.files()) == [], "run `make alerts`"


def test_drift_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is missing, one that differs, one of nobody."""
    folder = tmp_path / "generated"
    shutil.copytree(alerts.GENERATED, folder)
    monkeypatch.setattr(alerts, "GENERATED", folder)
    wanted = alerts.files()
    assert alerts.drift(wanted) == []
    (folder / "alertmanager.yml").unlink()
    (folder / "harborlight-alerts.yml").write_text("groups: []\n")
    (folder / "left-over.yml").write_text("")
    assert [path.name for path in alerts.drift(wanted)] == [
        "alertmanager.yml",
        "harborlight-alerts.yml",
        "left-over.yml",
    ]


def test_readme_without_markers() -> None:
    with pytest.raises(ValueError, match="alerts: begin"):
        readme.with_current("no list here", GROUPS, alerts.TESTS)


# Alerts


def test_names() -> None:
    """One prefix, each once, each with its hold; a hold of nobody is a mistake."""
    names = [alert.name for alert in ALERTS]
    assert len(set(names)) == len(names)
    assert set(names) == set(HOLDS)
    assert all(re.fullmatch(r"Harborlight([A-Z][a-z]+)+", name) for name in names)


@every_alert
def test_expression(alert: Alert) -> None:
    """It asks for metrics, labels and values that there are, and its series have its labels."""
    found = analyse(alert.expr, recorded=RECORDED)
    assert found.problems == []
    assert found.bare == []
    assert found.labels is not None
    # absent() keeps the labels of its matchers; __name__ does not outlive an alert.
    expected = {"job"} if alert.expr.startswith("absent(") else set(alert.labels)
    assert found.labels - {"__name__"} == expected


@every_alert
def test_words(alert: Alert) -> None:
    """A summary that is always the same, a description that says of what the alert is."""
    assert re.fullmatch(r"[A-Z][^{}]+\.", alert.summary)
    used = set(re.findall(r"\$labels\.(\w+)", alert.description))
    assert used <= set(alert.labels)
    assert set(alert.labels) - used <= {"cause"}
    assert alert.description.endswith(".")
    if "cause" in set(alert.labels) - used:
        assert "of cause" in alert.description


@every_alert
def test_links(alert: Alert) -> None:
    """To a dashboard that there is, with variables that it has, and to a runbook that there is."""
    link = re.fullmatch(r"http://127\.0\.0\.1:3000/d/([\w-]+)(?:\?(.*))?", alert.dashboard_url)
    assert link is not None
    boards = {board.json["uid"]: board.json for board in generated("en")}
    variables = {variable["name"] for variable in boards[link[1]]["templating"]["list"]}
    given = re.findall(r"var-(\w+)=\{\{ \$labels\.(\w+) \| urlquery \}\}", link[2] or "")
    assert len(given) == (link[2] or "").count("=")
    assert all(variable == label for variable, label in given)
    assert {variable for variable, _ in given} <= variables & set(alert.labels)
    name = alert.runbook_url.removeprefix("http://127.0.0.1:10315/runbooks/")
    assert name == f"{alert.name}.md"
    assert (alerts.RUNBOOKS / name).is_file()


@every_alert
def test_has_tests(alert: Alert) -> None:
    """Of every kind, as far as the alert can be in that situation."""
    kinds = {
        name.partition(": ")[0] for name in readme.test_names(alerts.TESTS / f"{alert.name}.yml")
    }
    wanted = {"fires", "silent", "vanishes"}
    if HOLDS[alert.name].seconds:
        wanted.add("waits")
    if {"run", "pool"} & set(alert.labels):
        wanted.add("ends")
    assert wanted <= kinds <= {"fires", "waits", "silent", "vanishes", "ends"}


def test_tests_are_of_alerts() -> None:
    assert {file.stem for file in alerts.TESTS.glob("*.yml")} == set(BY_NAME)


def test_slow_is_never_critical() -> None:
    """What a working run does slowly is at most a warning."""
    slow = ("Saturated", "Long", "Retracted", "Overdue", "Stalled", "Slipping", "Retries")
    for alert in ALERTS:
        if any(word in alert.name for word in slow):
            assert alert.severity is Severity.WARNING


def test_recording_rules() -> None:
    """``level:metric:operations``, its level the labels that its series have."""
    known = dict(RECORDED)
    for rule in RECORDINGS:
        level, metric, operation = rule.record.split(":")
        assert re.fullmatch(r"harborlight_[a-z_]+", metric), rule.record
        assert not metric.endswith("_total"), rule.record
        assert re.fullmatch(r"sum|max|preferred|ratio|(increase|delta)\d+[mhd]", operation)
        found = analyse(rule.expr, recorded=known)
        assert (found.problems, found.bare) == ([], []), rule.record
        assert found.labels is not None
        assert found.labels - {"__name__"} == set(level.split("_")), rule.record


def test_every_recording_is_used() -> None:
    text = "\n".join(rule.expr for group in GROUPS for rule in group.rules)
    for rule in RECORDINGS:
        assert re.search(rf"(?<![\w:]){re.escape(rule.record)}(?![\w:])", text), rule.record


def test_recorded_before_it_is_asked_for() -> None:
    """Within their group, in which rules follow one another."""
    seen: set[str] = set()
    for rule in RECORDINGS:
        asked = analyse(rule.expr, recorded=RECORDED).metrics & {r.record for r in RECORDINGS}
        assert asked <= seen, rule.record
        seen.add(rule.record)


# Time


def test_spans() -> None:
    assert [str(Span(s)) for s in (172_800, 5400, 1800, 90, 1.5, 0.2)] == [
        *("2d", "90m", "30m", "90s", "1500ms", "200ms"),
    ]


UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(duration: str) -> float:
    found = re.fullmatch(r"(\d+)(ms|[smhd])", duration)
    assert found is not None, duration
    return int(found[1]) * UNITS[found[2]]


def windows(expr: str) -> list[float]:
    """Seconds of its ranges and offsets."""
    return [seconds(found) for found in re.findall(r"(?<=\[)\w+(?=\])|(?<=offset )\w+", expr)]


def numbers(expr: str) -> list[float]:
    """Numbers that something is compared or multiplied with."""
    return [float(found) for found in re.findall(r"(?<=[=<>*(] )\d[\d.]*|(?<=\()\d[\d.]*", expr)]


def rules(text: str) -> list[dict[str, str]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def test_time_scale() -> None:
    """Every window, hold and time that is compared with shrinks, and no other number does."""
    scale = 60
    checked = 0
    for name in ("harborlight-recording.yml", "harborlight-alerts.yml"):
        pairs = zip(rules(alerts.build()[name]), rules(alerts.build(scale)[name]), strict=True)
        for before, after in pairs:
            if "for" in before:
                assert seconds(after["for"]) == pytest.approx(seconds(before["for"]) / scale)
            shrunk = [window / scale for window in windows(before["expr"])]
            assert windows(after["expr"]) == pytest.approx(shrunk)
            # The least time is five minutes, the largest other number 20.
            expected = [n / scale if n >= 300 else n for n in numbers(before["expr"])]
            assert numbers(after["expr"]) == pytest.approx(expected)
            checked += len(shrunk) + len(expected)
    assert checked > 100


def test_time_scale_of_the_notifications() -> None:
    before, after = (yaml.safe_load(alerts.build(s)["alertmanager.yml"])["route"] for s in (1, 60))
    for name in ("group_wait", "group_interval", "repeat_interval"):
        assert seconds(after[name]) == pytest.approx(seconds(before[name]) / 60)


def test_time_scale_on_the_command_line(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "alerts", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    assert run("--time-scale", "60", "--into", str(tmp_path / "new")).returncode == 0
    written = {p.name: p.read_text() for p in (tmp_path / "new").iterdir()}
    assert written == alerts.build(60)
    rules = yaml.safe_load(written["harborlight-alerts.yml"])
    down = next(
        rule
        for group in rules["groups"]
        for rule in group["rules"]
        if rule["alert"] == "HarborlightReplicaDown"
    )
    assert down["for"] == "2s"
    refused = run("--time-scale", "60")
    assert refused.returncode == 2 and "--into" in refused.stderr
    assert run("--time-scale", "0", "--into", str(tmp_path)).returncode == 2
    assert run("--check").returncode == 0


# Prometheus' own opinion


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_takes_the_rules() -> None:
    files = sorted(alerts.GENERATED.glob("harborlight-*.yml"))
    found = subprocess.run(
        ["promtool", "check", "rules", *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert sum(map(int, re.findall(r"(\d+) rules found", found.stdout))) == len(ALERTS) + len(
        RECORDINGS
    )


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
@pytest.mark.parametrize("file", sorted(alerts.TESTS.glob("*.yml")), ids=lambda file: file.stem)
def test_rule(file: Path) -> None:
    """The tests of one alert, as promtool runs them."""
    found = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_impaired_is_nobodys() -> None:
    """The only alert that nobody is told."""
    assert [a.name for a in ALERTS if a.severity is Severity.NONE] == [IMPAIRED]
