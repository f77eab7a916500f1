"""Pages of the exporter as what promtool evaluates the rules over."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

import alerts
from alerts.parameters import Parameters

_RULES: Final = [
    str(alerts.GENERATED / f"harborlight-{name}.yml") for name in ("recording", "alerts")
]
_ORDER: Final = [group.name for group in alerts.groups(Parameters())]
_USED: Final = frozenset(
    re.findall(r"\bharborlight_[a-z_]+", "".join(Path(file).read_text() for file in _RULES))
)
_LINE: Final = re.compile(r"(?P<series>(?P<name>\w+)(?:\{.*\})?) (?P<value>\S+)")


@dataclass
class PageSeries:
    """Pages one ``interval`` (seconds) after the other, the first at the epoch.

    Of them only what the rules ask for is kept.
    """

    interval: int
    length: int = 0
    values: dict[str, list[str]] = field(default_factory=dict)

    def add(self, page: str | None) -> None:
        """The next page; None: there is none."""
        for line in (page or "").splitlines():
            match = _LINE.fullmatch(line)
            if match is not None and match["name"] in _USED:
                series = self.values.setdefault(match["series"], [])
                series += ["_"] * (self.length - len(series))
                series.append(match["value"])
        self.length += 1

    @property
    def end(self) -> int:
        """The time of the last page."""
        return (self.length - 1) * self.interval

    def input_series(self) -> list[dict[str, str]]:
        """As promtool takes them, the exporter's own target among them."""
        up = {"series": 'up{job="harborlight", instance="i"}', "values": f"1x{self.length - 1}"}
        return [up] + [
            {"series": name, "values": " ".join(values)} for name, values in self.values.items()
        ]


@dataclass(frozen=True, slots=True)
class Expectation:
    """The result of an expression at a time, by labels."""

    expr: str
    at: int
    samples: Mapping[str, float]


def ever(pages: PageSeries, alerts: Iterable[str], state: str) -> Expectation:
    """Just these alerts are in that state at some time."""
    expr = f'max by (alertname) (max_over_time(ALERTS{{alertstate="{state}"}}[{pages.end + 1}s]))'
    return Expectation(expr, pages.end, {f'alertname="{name}"': 1 for name in alerts})


def firing(at: int, alerts: Iterable[str]) -> Expectation:
    """Just these alerts fire at that time."""
    expr = 'max by (alertname) (ALERTS{alertstate="firing"})'
    return Expectation(expr, at, {f'alertname="{name}"': 1 for name in alerts})


def check(folder: Path, pages: PageSeries, expectations: Iterable[Expectation]) -> None:
    """Evaluate the committed rules over the pages; an AssertionError in promtool's words."""
    interval = f"{pages.interval}s"
    document: dict[str, Any] = {
        "rule_files": _RULES,
        "evaluation_interval": interval,
        "group_eval_order": _ORDER,
        "tests": [
            {
                "interval": interval,
                "input_series": pages.input_series(),
                "promql_expr_test": [
                    {
                        "expr": expected.expr,
                        "eval_time": f"{expected.at}s",
                        "exp_samples": [
                            {"labels": f"{{{labels}}}", "value": value}
                            for labels, value in expected.samples.items()
                        ],
                    }
                    for expected in expectations
                ],
            }
        ],
    }
    file = folder / "rules.test.yml"
    # Lines are long: nothing is broken, nothing has to be put together again.
    file.write_text(yaml.safe_dump(document, width=float("inf")))
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
