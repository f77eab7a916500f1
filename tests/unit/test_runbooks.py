"""Every alert has its runbook, and what it says to ask and to run can be asked and run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
from harbor.cli.main import app

import alerts
from alerts import alertmanager
from alerts.parameters import DAY, HOLDS, HOUR, MINUTE, Notifying, Parameters, Span
from alerts.rule import Recording
from dashboards import GENERATED as DASHBOARDS
from harborlight.cli import _parser
from harborlight.config import load_config
from support import documents
from support.promql import METRICS, analyse

ALERTS: Final = {alert.name: alert for alert in alerts.alerts()}
PAGES: Final = {path.stem: path.read_text("utf-8") for path in sorted(alerts.RUNBOOKS.glob("*.md"))}
SECTIONS: Final = ("What it means", "How to tell", "What to do", "When it is no fault")
WHERE_IT_HELPS: Final = "What follows"

OF_PROMETHEUS: Final = {
    "ALERTS": frozenset({"alertname", "alertstate", "severity"}).union(
        *(alert.labels for alert in ALERTS.values())
    )
}
"""What Prometheus says of the alerts themselves."""

RECORDED: Final = OF_PROMETHEUS | {
    rule.record: frozenset(rule.labels)
    for group in alerts.groups(Parameters())
    for rule in group.rules
    if isinstance(rule, Recording)
}

LINUX: Final = (
    {"df", "fuser", "grep", "ls", "tail"}
    | {"dmesg", "free", "kill", "last", "pgrep", "ps"}
    | {"bash", "curl", "docker", "git", "nvidia-smi", "promtool"}
)
"""Of files, of processes and the host, and others."""

OF_HARBOR: Final = {"--plugin", "--n-concurrent", "--max-retries", "--retry-exclude"}
OF_SGLANG: Final = {
    "--enable-metrics",
    "--api-key",
    "--max-running-requests",
    "--mem-fraction-static",
    "--schedule-conservativeness",
    "--served-model-name",
}
OF_AMTOOL: Final = {"--alertmanager.url", "--comment", "--duration"}
OF_OTHERS: Final = {"--inhibited", "--format", "--no-stream", "--stat"}

page = pytest.mark.parametrize("name", PAGES)


def sections(name: str) -> Mapping[str, str]:
    """A page's text by the headings of its sections; what is before them under ``""``."""
    head, *parts = re.split(r"^## (.+)\n", PAGES[name], flags=re.MULTILINE)
    return {"": head, **dict(zip(parts[::2], parts[1::2], strict=True))}


def prose(name: str) -> str:
    """A page without its blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", PAGES[name], flags=re.MULTILINE | re.DOTALL)


def alerts_in(text: str) -> set[str]:
    # An opening bracket makes it a part of a regular expression.
    return set(re.findall(r"\bHarborlight[A-Z]\w*(?![\w(])", text))


def test_a_page_for_each() -> None:
    assert set(PAGES) == set(ALERTS)


@page
def test_head(name: str) -> None:
    """Name, then severity, hold and labels as the rule has them."""
    alert, hold = ALERTS[name], HOLDS[name]
    held = f"for {hold}" if hold.seconds else "at once"
    labels = ", ".join(f"`{label}`" for label in alert.labels) or "none"
    facts = f"severity: {alert.severity} · {held} · labels: {labels}"
    assert sections(name)[""] == f"# {name}\n\n{facts}\n\n"


@page
def test_sections(name: str) -> None:
    """All of them, in order, and none is empty."""
    found = sections(name)
    titles = [title for title in found if title]
    assert titles in [[*SECTIONS], [*SECTIONS, WHERE_IT_HELPS]]
    assert all(text.strip() for text in found.values())


@page
def test_queries(name: str) -> None:
    """A page says what to ask; metrics, labels and their values are there."""
    queries = [
        query
        for block in documents.blocks(PAGES[name], "promql")
        for query in documents.expressions(block)
    ]
    assert queries
    for query in queries:
        assert analyse(query, recorded=RECORDED).problems == [], query


@page
def test_metrics(name: str) -> None:
    """So are those that are only mentioned."""
    assert set(re.findall(r"\bharborlight_\w+", prose(name))) <= set(METRICS)


def numbers() -> list[tuple[str, str]]:
    """Thresholds as the pages of their alerts put them, by alert."""
    p = Parameters()
    burst = (f"{_long(p.burst_window)} at least {p.burst_least} executions",)
    lost = (f"{_long(p.lost_window)} ", f" at least {p.lost_least} ", f"{_share(p.lost_share)} or")
    impaired = (f"for {_long(p.impaired_window)} longer",)
    pages = {
        "SnapshotStale": (f"more than {_long(p.snapshot_age)} old",),
        "ReplicaDown": impaired,
        "ReplicaFrozen": impaired,
        "ReplicaNoTokens": (f"for {_long(p.token_window)} without", *impaired),
        "TrialsWithoutRequests": (
            f"{p.silent_trials} trials have run at the pool for {_long(p.silent_window)}",
            *impaired,
        ),
        "KvCacheSaturated": (f"{_share(p.kv_share)} or more",),
        "QueueLong": (f"{p.queue_least} requests wait",),
        "RequestsAborted": lost,
        "RequestsRetracted": lost,
        "RequestsWithoutTrials": (f"last {_long(p.abandoned)}",),
        "ServingImpaired": impaired,
        "ContainerFaultBurst": burst,
        "ServingFaultBurst": burst,
        "VerifierFaultBurst": burst,
        "AgentFaultBurst": (*burst, f"{_share(p.burst_share)} or more"),
        "FaultOnManyTasks": (
            f"Within {_long(p.spread_window)} one cause hit at least {p.spread_least} tasks",
            f"{_share(p.spread_share)} or more",
            f"quiet for {_long(p.spread_window)} after",
        ),
        "OpenFaults": (
            f"{_share(p.open_share)} of the target",
            f"{_long(p.abandoned)} after its last change",
        ),
        "RetriesEatRun": (
            f"{_long(p.retry_window)} Harbor started at least {p.retry_least} retries",
            f"quiet for {_long(p.retry_window)} after",
        ),
        "JobInterrupted": (f"Untouched for {_long(p.abandoned)}",),
        "JobNeverStarted": (f"more than {_long(p.first_trial)} ago",),
        "JobUnknownUnchanged": (
            f"more than {_long(p.unchanged)}",
            f"{_long(p.abandoned)} after the run's last change",
        ),
        "TrialOverdue": (
            f"{p.overdue_factor:g} times the task's usual duration",
            f"{_long(p.overdue_least)} or more beyond it",
        ),
        "RunStalled": (
            f"Nothing ended for {_long(p.stalled_window)}",
            f"at least {p.stalled_factor:g} times",
            f"{_long(p.stalled_blind_window)} with at least {p.stalled_trials} attempts",
            f"for {_long(p.idle_window)} none ran",
        ),
        "EtaSlipping": (
            f"Over {_long(p.slip_window)} ",
            f"more than {_long(p.slip_least)} later",
            f"{_share(p.slip_share)} of the target or more was scored",
            f"also for {_long(p.slip_window)} after",
        ),
        "RunComplete": (f"within {_long(p.just)}.",),
        "VerdictsDiscarded": (f"within {_long(p.just)},",),
        "UnreadableResults": (f"{_long(p.abandoned)} after the job's last change",),
        "TaskContentChanged": (f"Within {_long(p.lately)} ",),
        "ComparabilityLost": (f"within the last {_long(p.lately)} ",),
        "SurplusVerdicts": (f"within {_long(p.lately)} ",),
        "BelowReference": (f"({p.reference_tasks} at least)", f"{_long(p.abandoned)} after"),
    }
    return [(f"Harborlight{name}", phrase) for name in pages for phrase in pages[name]]


def _long(span: Span) -> str:
    """A length of time in words; a single day is 24 hours."""
    for unit, length, least in (("day", DAY, 2), ("hour", HOUR, 1), ("minute", MINUTE, 1)):
        if span.seconds >= least * length:
            count = round(span.seconds / length)
            return f"{count} {unit}{'s' if count > 1 else ''}"
    raise AssertionError(f"{span} is shorter than anything here")


def _share(share: float) -> str:
    return f"{share * 100:g} %"


@pytest.mark.parametrize(("name", "phrase"), numbers())
def test_numbers(name: str, phrase: str) -> None:
    """A threshold that is changed is changed in its page."""
    assert phrase in PAGES[name]


def commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """Every command line of a program, with the page that it is on."""
    for name, text in PAGES.items():
        for first, *arguments in documents.command_lines(text):
            if first == program:
                yield name, arguments


def test_programs() -> None:
    """Nobody has to install anything in the night."""
    used = {line[0] for text in PAGES.values() for line in documents.command_lines(text)}
    assert used == {"harborlight", "harbor", "amtool", *LINUX}


def test_harborlight() -> None:
    """Its command line takes what the pages say."""
    lines = list(commands("harborlight"))
    assert lines
    for _, arguments in lines:
        _parser().parse_args(arguments)


def test_harbor() -> None:
    """So does Harbor's."""
    lines = list(commands("harbor"))
    assert lines
    for _, arguments in lines:
        command: Any = typer.main.get_command(app)
        rest = arguments
        while rest and rest[0] in getattr(command, "commands", {}):
            command, *rest = command.commands[rest[0]], *rest[1:]
        command.make_context("harbor", rest)


def test_silences() -> None:
    """Each is of its page's own alert, by labels that it has, for a time, and says why."""
    for name, (noun, verb, *arguments) in commands("amtool"):
        flags = {word.partition("=")[0] for word in arguments if word.startswith("-")}
        matchers = dict(word.split("=") for word in arguments if not word.startswith("-"))
        if (noun, verb) == ("alert", "query"):
            continue
        assert (noun, verb) == ("silence", "add")
        assert flags == OF_AMTOOL
        assert matchers.pop("alertname") == name
        assert set(matchers) <= set(ALERTS[name].labels)


@page
def test_flags(name: str) -> None:
    """Every flag is one of Harborlight's, or of the programs named above."""
    known = documents.known_flags() | OF_HARBOR | OF_SGLANG | OF_AMTOOL | OF_OTHERS
    assert documents.mentioned_flags(PAGES[name]) <= known


@page
def test_configuration_loads(name: str, tmp_path: Path) -> None:
    for number, block in enumerate(documents.blocks(PAGES[name], "yaml")):
        file = tmp_path / f"{number}.yml"
        file.write_text(block, "utf-8")
        assert load_config(file).runs


@page
def test_alerts_exist(name: str) -> None:
    assert alerts_in(PAGES[name]) <= set(ALERTS)


def related() -> Mapping[str, set[str]]:
    """By alert, the others that it keeps quiet or that keep it quiet."""
    pairs = [
        (_matching(rule["source_matchers"]), _matching(rule["target_matchers"]))
        for rule in alertmanager.configuration(Notifying())["inhibit_rules"]
    ]
    for alert in ALERTS.values():
        patterns = re.findall(r'ALERTS\{alertname=~"([^"]+)"', alert.expr)
        pairs += [(_named(pattern), {alert.name}) for pattern in patterns]
    found: dict[str, set[str]] = {name: set() for name in ALERTS}
    for sources, targets in pairs:
        for source in sources:
            for target in targets:
                found[source].add(target)
                found[target].add(source)
    return found


def _matching(matchers: Sequence[str]) -> set[str]:
    (pattern,) = (re.fullmatch(r'alertname=~"(.+)"', matcher) for matcher in matchers)
    assert pattern is not None
    return _named(pattern[1])


def _named(pattern: str) -> set[str]:
    return {name for name in ALERTS if re.fullmatch(pattern, name)}


RELATED: Final = related()


@page
def test_what_follows(name: str) -> None:
    """Exactly the alerts that the rules and Alertmanager's configuration bring together."""
    assert alerts_in(sections(name).get(WHERE_IT_HELPS, "")) == RELATED[name]


@pytest.fixture(scope="module")
def panels() -> Mapping[str, set[str]]:
    """Titles of the panels by the dashboard's name."""

    def titles(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        for panel in found:
            yield panel.get("title", "")
            yield from titles(panel.get("panels", ()))

    boards = [json.loads(file.read_text()) for file in (DASHBOARDS / "en").glob("*.json")]
    return {
        board["title"].removeprefix("Harborlight / "): set(titles(board["panels"]))
        for board in boards
    }


@page
def test_panels(name: str, panels: Mapping[str, set[str]]) -> None:
    """What is in italics is a panel of a dashboard that is named after it."""
    for sentence in re.split(r"\n|(?<=[.;]) ", re.sub(r"`[^`]*`", "", prose(name))):
        of = re.search(r"of the dashboard (\w+(?: pools)?)", sentence)
        known = panels[of[1]] if of else set().union(*panels.values())
        assert set(re.findall(r"\*([^*]+)\*", sentence)) <= known, sentence


@page
def test_places(name: str) -> None:
    """Nobody's machine: addresses are this host's or examples, paths are relative."""
    hosts = set(re.findall(r"https?://([^/:\s\"`]+)", PAGES[name]))
    assert hosts <= {"127.0.0.1", "example.com"}
    assert not re.findall(r"(?<![\w.])/(?:root|home|srv|work|tmp|var|etc)\b", PAGES[name])
