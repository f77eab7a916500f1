"""The rules, runbooks and the Alertmanager configuration that Harborlight comes with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, override

import yaml

from harborlight.package_files import PACKAGE, find

GRAFANA_URL: Final = "http://127.0.0.1:3000"
"""Where the alerts' links to dashboards lead, unless somebody says otherwise."""

RUNBOOK_URL: Final = "http://127.0.0.1:10315/runbooks"
"""Where those to runbooks lead: to the exporter, which serves them."""

_ALERTMANAGER: Final = "alertmanager.yml"
_OPERATOR: Final = "monitoring.coreos.com/v1"


@dataclass(frozen=True, slots=True)
class AlertFile:
    """One file, and where it is written."""

    path: Path
    content: bytes


class _Dumper(yaml.SafeDumper):
    """As people write YAML: lists indented, strings of several lines as blocks."""

    @override
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _string)


def as_yaml(document: Mapping[str, Any]) -> str:
    """A document as it is written. No line is broken: an expression in braces reads badly so."""
    return yaml.dump(
        dict(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf")
    )


def alert_files(
    *,
    grafana_url: str = GRAFANA_URL,
    runbook_url: str = RUNBOOK_URL,
    package: Path = PACKAGE,
) -> tuple[AlertFile, ...]:
    """Everything, with links that lead to these places. Raises MissingFilesError.

    ``rules/``: for a Prometheus; ``prometheus-operator/``: the same as PrometheusRule objects;
    ``alertmanager.example.yml``: to be copied and filled in; ``runbooks/``.
    """
    folder = find("alert rules", "alerts/rules", "alerts/generated", package=package)
    # Alertmanager's file is an example, and must not take the place of somebody's own.
    found = [AlertFile(Path("alertmanager.example.yml"), (folder / _ALERTMANAGER).read_bytes())]
    for file in sorted(folder.glob("harborlight-*.yml")):
        text = file.read_text(encoding="utf-8")
        head = text[: text.index("groups:")]
        rules = yaml.safe_load(text)
        for rule in (rule for group in rules["groups"] for rule in group["rules"]):
            _lead(rule.get("annotations", {}), grafana_url, runbook_url)
        for path, document in (
            (Path("rules") / file.name, rules),
            (Path("prometheus-operator") / file.name, _prometheus_rule(file.stem, rules)),
        ):
            found.append(AlertFile(path, (head + as_yaml(document)).encode()))
    for name, text in runbooks(package=package).items():
        found.append(AlertFile(Path("runbooks") / name, text.encode()))
    return tuple(found)


def runbooks(*, package: Path = PACKAGE) -> Mapping[str, str]:
    """The runbook pages by the name of their file. Raises MissingFilesError."""
    folder = find("runbooks", "alerts/runbooks", "alerts/runbooks", package=package)
    return {page.name: page.read_text(encoding="utf-8") for page in sorted(folder.glob("*.md"))}


def _lead(annotations: dict[str, str], grafana_url: str, runbook_url: str) -> None:
    for name, default, wanted in (
        ("dashboard_url", GRAFANA_URL, grafana_url),
        ("runbook_url", RUNBOOK_URL, runbook_url),
    ):
        if name in annotations:
            annotations[name] = wanted + annotations[name].removeprefix(default)


def _prometheus_rule(name: str, rules: Mapping[str, Any]) -> dict[str, Any]:
    """What the Prometheus operator takes rules from."""
    return {
        "apiVersion": _OPERATOR,
        "kind": "PrometheusRule",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "harborlight"}},
        "spec": dict(rules),
    }
