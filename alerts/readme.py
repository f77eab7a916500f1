"""The generated part of ``alerts/README.md``, from the rules, the parameters and the tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Final, get_type_hints

import yaml

from alerts.parameters import HOLDS, Notifying, Parameters
from alerts.rule import Alert, Group, Recording

BEGIN: Final = "<!-- alerts: begin -->\n"
END: Final = "<!-- alerts: end -->\n"


def with_current(text: str, groups: Iterable[Group], tests: Path) -> str:
    """``text`` with what is between its markers as it is now.

    ``tests``: the folder with the rules' tests. Raises ValueError where a marker is missing.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"expected {BEGIN.strip()} and {END.strip()}, each on a line of its own")
    return f"{before}{begin}\n{_generated(groups, tests)}\n{end}{after}"


def _generated(groups: Iterable[Group], tests: Path) -> str:
    sections = ["`make alerts` writes what follows, from the code and the tests.\n"]
    recordings: list[Recording] = []
    for group in groups:
        alerts = [rule for rule in group.rules if isinstance(rule, Alert)]
        recordings += [rule for rule in group.rules if isinstance(rule, Recording)]
        if alerts:
            sections.append(f"## {group.name}\n")
            sections += [_alert(alert, tests) for alert in alerts]
    sections.append("## Recording rules\n")
    sections += [f"- `{rule.record}`" for rule in recordings]
    sections += ["", "## Parameters\n", "In `parameters.py`; each alert's `for` is there, too.\n"]
    sections += ["| name | value | meaning |", "|---|---|---|"]
    sections += [*_parameters(Parameters()), *_parameters(Notifying())]
    return "\n".join(sections) + "\n"


def _alert(alert: Alert, tests: Path) -> str:
    hold = HOLDS[alert.name]
    facts = (
        alert.severity,
        f"for {hold}" if hold.seconds else "at once",
        "labels " + ", ".join(f"`{label}`" for label in alert.labels) if alert.labels else "",
        f"[runbook](runbooks/{alert.name}.md)",
    )
    lines = [f"### {alert.name}\n", " · ".join(filter(None, facts)), "", alert.summary, ""]
    lines += [f"- {name}" for name in test_names(tests / f"{alert.name}.yml")]
    return "\n".join(lines) + "\n"


def test_names(file: Path) -> list[str]:
    """Names of the tests in a file for promtool, none where it does not exist."""
    if not file.exists():
        return []
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    document = yaml.load(file.read_text(encoding="utf-8"), loader)  # noqa: S506 - both are safe
    return [str(test["name"]) for test in document["tests"]]


def _parameters(of: Parameters | Notifying) -> Iterator[str]:
    hints = get_type_hints(type(of), include_extras=True)
    for field in fields(of):
        value, meaning = getattr(of, field.name), hints[field.name].__metadata__[0]
        yield f"| `{field.name}` | {value} | {meaning} |"
