"""Alertmanager's configuration: who is told of what, and what keeps what quiet."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import alerts
from alerts.rule import Alert, Severity
from support.alertmanager import Alertmanager, Labels, alertmanager, program
from support.deadline import eventually

FILE = alerts.GENERATED / "alertmanager.yml"
CONFIG: Mapping[str, Any] = yaml.safe_load(FILE.read_text())
ALERTS = {alert.name: alert for alert in alerts.alerts()}

needs_amtool = pytest.mark.skipif(shutil.which("amtool") is None, reason="needs amtool")
needs_alertmanager = pytest.mark.skipif(program() is None, reason="needs Alertmanager")


def amtool(*arguments: str) -> str:
    done = subprocess.run(["amtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_amtool
def test_amtool_takes_it() -> None:
    assert "SUCCESS" in amtool("check-config", str(FILE))


def test_no_secret_in_it() -> None:
    """Every receiver reads what lets it in from a file."""
    text = FILE.read_text()
    assert not re.search(r"(password|routing_key|api_url|credentials|token)\s*:", text)
    files = re.findall(r"_file: (\S+)", text)
    assert len(files) == 4
    assert all(re.fullmatch(r"secrets/[a-z-]+", file) for file in files)


# Routes


@needs_amtool
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("severity=critical", "alertname=HarborlightReplicaDown", "pool=main"), "on-call"),
        (("severity=critical", "alertname=HarborlightJobInterrupted", "run=tb4"), "on-call"),
        # By run: nobody gets up for a test.
        (("severity=critical", "alertname=HarborlightJobInterrupted", "run=test-3"), "team"),
        (("severity=warning", "alertname=HarborlightRunStalled", "run=tb4"), "team"),
        (("severity=info", "alertname=HarborlightRunComplete", "run=tb4"), "log"),
        (("severity=none", "alertname=HarborlightServingImpaired", "run=tb4"), "nobody"),
        # What is not ours goes where the rest of the configuration sends it.
        (("severity=critical", "alertname=NodeDown"), "nobody"),
    ],
)
def test_route(labels: tuple[str, ...], receiver: str) -> None:
    assert amtool("config", "routes", "test", f"--config.file={FILE}", *labels).strip() == receiver


@needs_amtool
@pytest.mark.parametrize("alert", ALERTS.values(), ids=lambda alert: alert.name)
def test_every_alert_by_its_severity(alert: Alert) -> None:
    receiver = {
        Severity.CRITICAL: "on-call",
        Severity.WARNING: "team",
        Severity.INFO: "log",
        Severity.NONE: "nobody",
    }[alert.severity]
    labels = [f"alertname={alert.name}", f"severity={alert.severity}"]
    labels += [f"{name}=x" for name in alert.labels]
    found = amtool("config", "routes", "test", f"--config.file={FILE}", *labels)
    assert found.strip() == receiver


# Inhibitions


def matched(matchers: list[str]) -> list[Alert]:
    """The alerts that a rule's matcher means: there is always one, by name."""
    (matcher,) = matchers
    found = re.fullmatch(r'alertname=~"(.+)"', matcher)
    assert found is not None
    return [alert for name, alert in ALERTS.items() if re.fullmatch(found[1], name)]


@pytest.mark.parametrize("rule", CONFIG["inhibit_rules"], ids=lambda r: r["source_matchers"][0])
def test_inhibition_can_apply(rule: dict[str, list[str]]) -> None:
    """Both sides exist and have the labels that are compared, and none silences itself.

    Alertmanager takes two alerts that lack a label for equal in it.
    """
    sources, targets = matched(rule["source_matchers"]), matched(rule["target_matchers"])
    assert sources and targets
    assert not {a.name for a in sources} & {a.name for a in targets}
    for alert in (*sources, *targets):
        assert set(rule.get("equal", ())) <= set(alert.labels), alert.name
    # Every alternative of a pattern is the name of an alert.
    for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
        for word in re.findall(r"\w+", matcher.removeprefix("alertname=~")):
            assert any(word in name for name in ALERTS), word


def test_what_inhibits_a_page_is_a_page() -> None:
    """Or is there because of one: nothing critical falls silent before somebody was told."""
    for rule in CONFIG["inhibit_rules"]:
        if any(alert.severity is Severity.CRITICAL for alert in matched(rule["target_matchers"])):
            for source in matched(rule["source_matchers"]):
                assert source.severity in (Severity.CRITICAL, Severity.NONE), source.name


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Alertmanager]:
    """With the configuration as it is, and receivers that tell nobody."""
    receivers = [{"name": receiver["name"]} for receiver in CONFIG["receivers"]]
    with alertmanager(tmp_path / "am", {**CONFIG, "receivers": receivers}) as server:
        yield server


def fire(server: Alertmanager, *fired: tuple[str, Labels]) -> None:
    before = server.known()
    server.tell(
        [
            {"alertname": name, "severity": str(ALERTS[name].severity), **labels}
            for name, labels in fired
        ]
    )
    eventually(lambda: server.known() == before + len(fired), what="it knows all of them")


R, P = {"run": "r"}, {"pool": "p"}
OF_A = {**P, "replica": "A"}


@needs_alertmanager
def test_one_dead_replica_is_one_page(silent: Alertmanager) -> None:
    """Whatever follows from it in its pool and in the runs that the pool serves."""
    fire(
        silent,
        ("HarborlightReplicaDown", OF_A),
        ("HarborlightServingImpaired", {**R, **P}),
        ("HarborlightTrialsWithoutRequests", P),
        ("HarborlightQueueLong", {**P, "replica": "B"}),
        ("HarborlightKvCacheSaturated", {**P, "replica": "B"}),
        ("HarborlightRequestsAborted", {**P, "replica": "B"}),
        ("HarborlightRequestsRetracted", {**P, "replica": "B"}),
        ("HarborlightServingFaultBurst", {**R, "cause": "serving"}),
        ("HarborlightAgentFaultBurst", {**R, "cause": "agent"}),
        ("HarborlightOpenFaults", R),
        ("HarborlightRunStalled", R),
        ("HarborlightTrialOverdue", {**R, "task": "t"}),
    )
    assert silent.heard() == ["HarborlightReplicaDown", "HarborlightServingImpaired"]


@needs_alertmanager
def test_another_fault_is_another_page(silent: Alertmanager) -> None:
    """Another pool, another run, another cause: nothing of that follows from the replica."""
    fire(
        silent,
        ("HarborlightReplicaDown", OF_A),
        ("HarborlightReplicaDown", {**P, "replica": "B"}),
        ("HarborlightServingImpaired", {**R, **P}),
        ("HarborlightReplicaNoTokens", {**P, "replica": "C"}),
        ("HarborlightServingFaultBurst", {"run": "other", "cause": "serving"}),
        ("HarborlightContainerFaultBurst", {**R, "cause": "container"}),
        ("HarborlightJobInterrupted", {**R, "harbor_job": "j"}),
        ("HarborlightVerdictsDiscarded", R),
        ("HarborlightQueueLong", {"pool": "other", "replica": "A"}),
    )
    assert silent.heard() == sorted(
        [
            "HarborlightReplicaDown",
            "HarborlightReplicaDown",
            "HarborlightServingImpaired",
            "HarborlightReplicaNoTokens",
            "HarborlightServingFaultBurst",
            "HarborlightContainerFaultBurst",
            "HarborlightJobInterrupted",
            "HarborlightVerdictsDiscarded",
            "HarborlightQueueLong",
        ]
    )


@needs_alertmanager
def test_a_job_that_died_leaves_a_run_that_stands(silent: Alertmanager) -> None:
    fire(
        silent,
        ("HarborlightJobInterrupted", {**R, "harbor_job": "j"}),
        ("HarborlightRunStalled", R),
        ("HarborlightOpenFaults", R),
        ("HarborlightEtaSlipping", R),
        ("HarborlightTrialOverdue", {**R, "task": "t"}),
        ("HarborlightRunStalled", {"run": "other"}),
    )
    assert silent.heard() == ["HarborlightJobInterrupted", "HarborlightRunStalled"]


@needs_alertmanager
def test_a_page_that_is_the_past(silent: Alertmanager) -> None:
    """It cannot tell how long something has been so; what it counted stays true."""
    fire(
        silent,
        ("HarborlightSnapshotStale", {"instance": "i"}),
        ("HarborlightRunStalled", R),
        ("HarborlightJobUnknownUnchanged", {**R, "harbor_job": "j"}),
        ("HarborlightVerdictsDiscarded", R),
    )
    assert silent.heard() == ["HarborlightSnapshotStale", "HarborlightVerdictsDiscarded"]
