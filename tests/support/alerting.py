"""The alerts as they run in life, only faster: a real Prometheus, a real Alertmanager, a receiver.

Everything that the rules and Alertmanager wait for is divided by one scale, and Prometheus scrapes
and evaluates every minute of the time that is replayed: with a scale of 300 every 0.2 s. Its
look-back and how often it repeats alerts to Alertmanager stay as they are: nothing depends on them
as long as the programs run, and on a busy machine a stall of a second is not five minutes' outage.
"""

from __future__ import annotations

import shutil
import signal
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from os import kill
from pathlib import Path
from typing import Any, Final

import requests
import yaml

from alerts import build
from dashboards.preview.processes import Program, free_port, running
from support.alertmanager import program
from support.deadline import eventually
from support.prometheus import Prometheus
from support.webhook import Notification, Told, Webhook

INTERVAL: Final = 60.0
"""Seconds of life between two scrapes and two evaluations: few are further apart."""

PAGING: Final = frozenset({"critical", "warning"})
"""The severities that somebody is told of at once."""

_START_SECONDS: Final = 30.0
_RULES: Final = ("harborlight-recording.yml", "harborlight-alerts.yml")


@dataclass(frozen=True, slots=True)
class Page:
    """The first notification of an alert, and the alert in it."""

    at: float
    receiver: str
    told: Told


class Alerting:
    """What the programs have said; ``prometheus`` answers questions."""

    def __init__(
        self,
        prometheus: Prometheus,
        scale: float,
        webhook: Webhook,
        scrape: Callable[[Sequence[str]], None],
    ) -> None:
        self.prometheus = prometheus
        self.scale = scale
        self._webhook = webhook
        self._scrape = scrape

    @property
    def notifications(self) -> list[Notification]:
        """Everything that has arrived so far."""
        return self._webhook.received

    def told(self, status: str, name: str = "", **labels: str) -> list[Page]:
        """Each time that an alert (of this name, with these labels) was told as being so."""
        return [
            Page(notification.at, notification.receiver, told)
            for notification in self.notifications
            for told in notification.alerts
            if told.status == status
            and name in ("", told.name)
            and labels.items() <= told.labels.items()
        ]

    def page(self, name: str, timeout: float, **labels: str) -> Page:
        """Wait for the alert's notification."""
        return eventually(
            lambda: self.told("firing", name, **labels), timeout, what=f"the page {name} {labels}"
        )[0]

    def resolved(self, page: Page, timeout: float) -> float:
        """Wait until the page is told to be over; when that was."""

        def ends() -> list[float]:
            return [
                one.at
                for one in self.told("resolved", page.told.name)
                if one.told.fingerprint == page.told.fingerprint and one.at >= page.at
            ]

        return eventually(ends, timeout, what=f"the end of {page.told.name}")[0]

    def await_firing(self, name: str, timeout: float, **labels: str) -> None:
        """Wait until the rule fires, told or not."""
        eventually(
            lambda: self.prometheus.ask(_fires(name, labels)),
            timeout,
            interval=INTERVAL / self.scale,
            what=f"{name} {labels}",
        )

    def await_quiet(self, name: str, timeout: float, **labels: str) -> None:
        """Wait until it does not."""
        eventually(
            lambda: not self.prometheus.ask(_fires(name, labels)),
            timeout,
            interval=INTERVAL / self.scale,
            what=f"the end of {name} {labels}",
        )

    @cached_property
    def holds(self) -> dict[str, float]:
        """How long each alert's condition has to hold (its ``for``), in seconds of here."""
        groups = requests.get(f"{self.prometheus.url}/api/v1/rules", timeout=10).json()["data"]
        return {
            rule["name"]: rule["duration"]
            for group in groups["groups"]
            for rule in group["rules"]
            if rule["type"] == "alerting"
        }

    def peaks(self) -> dict[str, float]:
        """The longest that each alert was pending since the start, as a share of its ``for``.

        One that has fired reached 1.
        """
        answer = requests.get(
            f"{self.prometheus.url}/api/v1/query", params={"query": "ALERTS[1h]"}, timeout=30
        ).json()
        longest: defaultdict[str, float] = defaultdict(float)
        for series in answer["data"]["result"]:
            labels = series["metric"]
            name, hold = labels["alertname"], self.holds[labels["alertname"]]
            if labels["alertstate"] == "firing" or not hold:
                longest[name] = 1.0
                continue
            since = last = series["values"][0][0]
            for at, _ in series["values"]:
                if at - last > INTERVAL / self.scale * _GAP:
                    since = at
                last = at
                longest[name] = max(longest[name], min(_NEARLY, (at - since) / hold))
        return dict(longest)

    def slowest_scrape(self) -> float:
        """Seconds. One that takes an interval is lost, and every alert begins anew."""
        durations = self.prometheus.ask("max_over_time(scrape_duration_seconds[1h])")
        return max(float(value) for value in durations.values())

    def scrape(self, *targets: str) -> None:
        """Have Prometheus scrape these exporters, or none."""
        self._scrape(targets)


_NEARLY: Final = 0.99
"""The share of an alert that might have fired at the next evaluation."""

_GAP: Final = 2.5
"""Intervals without a sample after which a pending alert was not pending in between."""


def _fires(name: str, labels: Mapping[str, str]) -> str:
    wanted = "".join(f',{label}="{value}"' for label, value in labels.items())
    return f'ALERTS{{alertname="{name}",alertstate="firing"{wanted}}}'


def installed() -> bool:
    """Whether the programs are here."""
    return shutil.which("prometheus") is not None and program() is not None


def _alertmanager_config(generated: str, url: str) -> dict[str, Any]:
    """Routes and inhibitions as they are; every receiver that tells somebody tells the webhook."""
    config: dict[str, Any] = yaml.safe_load(generated)
    return {
        "route": config["route"],
        "inhibit_rules": config["inhibit_rules"],
        "receivers": [
            {"name": receiver["name"]}
            if receiver.keys() == {"name"}
            else {
                "name": receiver["name"],
                "webhook_configs": [{"url": url, "send_resolved": True}],
            }
            for receiver in config["receivers"]
        ],
    }


class _Configuration:
    """Prometheus' file, and the process that reads it again when it changes."""

    def __init__(self, folder: Path, scale: float, alertmanager: str) -> None:
        self.path = folder / "prometheus.yml"
        self._rules = [str(folder / name) for name in _RULES]
        self._interval = f"{round(INTERVAL / scale * 1000)}ms"
        self._alertmanager = alertmanager

    def write(self, targets: Sequence[str], *, rules: bool) -> None:
        document = {
            "global": {
                f"{what}_{unit}": self._interval
                for what, unit in (
                    ("scrape", "interval"),
                    ("scrape", "timeout"),
                    ("evaluation", "interval"),
                )
            },
            "rule_files": self._rules if rules else [],
            "alerting": {
                "alertmanagers": [{"static_configs": [{"targets": [self._alertmanager]}]}]
            },
            "scrape_configs": [
                {"job_name": "harborlight", "static_configs": [{"targets": list(targets)}]}
            ],
        }
        self.path.write_text(yaml.safe_dump(document))


@contextmanager
def alerting(folder: Path, *targets: str, scale: float) -> Iterator[Alerting]:
    """Prometheus and Alertmanager at work on exporters that run, given as ``HOST:PORT``."""
    folder.mkdir()
    generated = build(scale)
    for name in _RULES:
        (folder / name).write_text(generated[name])
    with ExitStack() as stack:
        webhook = stack.enter_context(Webhook())
        manager, asked = (f"127.0.0.1:{free_port()}" for _ in range(2))
        notify = folder / "alertmanager.yml"
        notify.write_text(
            yaml.safe_dump(_alertmanager_config(generated["alertmanager.yml"], webhook.url))
        )
        config = _Configuration(folder, scale, manager)
        config.write(targets, rules=False)
        alertmanager = Program(
            "alertmanager",
            [
                program() or "alertmanager",
                f"--config.file={notify}",
                f"--storage.path={folder / 'alertmanager'}",
                f"--web.listen-address={manager}",
                "--cluster.listen-address=",
            ],
            folder / "alertmanager.log",
        )
        stack.enter_context(running(alertmanager))
        prometheus = Program(
            "prometheus",
            [
                "prometheus",
                f"--config.file={config.path}",
                f"--storage.tsdb.path={folder / 'prometheus'}",
                f"--web.listen-address={asked}",
            ],
            folder / "prometheus.log",
        )
        stack.enter_context(running(prometheus))
        _await_ready(alertmanager, manager)
        _await_ready(prometheus, asked)
        found = Prometheus(f"http://{asked}")

        def scrape(targets: Sequence[str]) -> None:
            config.write(targets, rules=True)
            kill(prometheus.pid, signal.SIGHUP)

        # It finds its targets within 5 s, which would be an absence of many minutes.
        eventually(
            lambda: len(found.ask("up == 1")) == len(targets) and _has_alertmanager(found),
            _START_SECONDS,
            what="Prometheus' first look around",
        )
        scrape(targets)
        yield Alerting(found, scale, webhook, scrape)


def _has_alertmanager(prometheus: Prometheus) -> bool:
    answer = requests.get(f"{prometheus.url}/api/v1/alertmanagers", timeout=10).json()
    return bool(answer["data"]["activeAlertmanagers"])


def _await_ready(program: Program, address: str) -> None:
    def ready() -> bool:
        program.check()
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)

    eventually(ready, _START_SECONDS, what=f"the start of {program.name}")
