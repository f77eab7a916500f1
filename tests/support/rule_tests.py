"""Alerts that Prometheus would have raised had it scraped these pages, as promtool says."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from alerts import GENERATED
from support.page import Page, Series

UP: Final[Series] = ("up", ())
_OF_THE_SCRAPE: Final = {"job": "harborlight", "instance": "127.0.0.1:10315"}
_RULES: Final = ("harborlight-recording.yml", "harborlight-alerts.yml")
_NAME: Final = re.compile(r"harborlight_\w+")
_QUERY: Final = "ALERTS"

_FAILURE: Final = re.compile(
    rf'^ +expr: "{_QUERY}", time: (?P<time>\w+),\n +exp: nil\n +got: (?P<got>.*)$', re.MULTILINE
)
_SAMPLE: Final = re.compile(r"\{(?P<labels>(?:\w+=\"(?:[^\"\\]|\\.)*\"(?:, )?)*)\} 1E\+00(?:, |$)")
_LABEL: Final = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')
_TIME: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:0s)?")


@dataclass(frozen=True, slots=True)
class Clock:
    """A test's clock, which begins at 0, beside that of what was recorded.

    ``begin``: the recorded moment (seconds since the epoch) that is minute 0. ``stretch``: what
    took a second is made to have taken so many: recorded jobs are over in seconds, and alerts wait
    for minutes. Every moment and every duration on a page is stretched alike, so that the pages
    are those of a job that was that much slower.
    """

    begin: float
    stretch: float = 1.0

    def recorded(self, minute: float) -> float:
        return self.begin + 60 * minute / self.stretch

    def minute(self, recorded: float) -> float:
        return (recorded - self.begin) * self.stretch / 60

    def shown(self, name: str, value: float) -> float:
        """What a gauge of that name says on the test's clock."""
        if name.endswith("_timestamp_seconds"):
            return (value - self.begin) * self.stretch
        return value * self.stretch if name.endswith("_duration_seconds") else value


class Episode(NamedTuple):
    """From the first to the last minute in which an alert was there."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Told:
    """When which alerts were there: ``NAME{LABEL="VALUE", …}``, the severity left out."""

    pending: Mapping[str, list[Episode]]
    firing: Mapping[str, list[Episode]]

    @property
    def ever(self) -> set[str]:
        """The names of the alerts that ever fired."""
        return {alert.partition("{")[0] for alert in self.firing}

    def once(self, alert: str) -> Episode:
        """When it fired; an AssertionError if that was not exactly once."""
        found = self.firing.get(alert, [])
        assert len(found) == 1, f"{alert} fired {len(found)} times; what fired: {self.firing}"
        return found[0]


@cache
def wanted(rules: Path = GENERATED) -> frozenset[str]:
    """The names that the rules mention: no other series has to be in a test."""
    return frozenset(_NAME.findall("".join((rules / name).read_text("utf-8") for name in _RULES)))


def in_short(text: str) -> Page:
    """A page with what the rules ask for, for a test of thousands of pages."""
    lines = text.splitlines(keepends=True)
    return Page("".join(x for x in lines if (m := _NAME.match(x)) and m[0] in wanted()))


def input_series(
    pages: Sequence[Page | None], clock: Clock, names: Collection[str]
) -> list[dict[str, str]]:
    """For promtool, of a page a minute; None: the exporter did not answer.

    What is missing from a page that was on the one before is stale at once, as after a scrape.
    ``names``: the series to keep.
    """
    values: dict[Series, list[float | None]] = {UP: [float(page is not None) for page in pages]}
    for minute, page in enumerate(pages):
        for sample in page.samples if page is not None else ():
            if sample.name in names:
                row = values.setdefault(sample.series, [None] * len(pages))
                row[minute] = clock.shown(sample.name, sample.value)
    return [{"series": _named(series), "values": _noted(row)} for series, row in values.items()]


def _named(series: Series) -> str:
    name, labels = series
    # JSON escapes what PromQL does, and nothing else where it may write Unicode.
    pairs = sorted({**dict(labels), **_OF_THE_SCRAPE}.items())
    inside = ",".join(f"{label}={json.dumps(value, ensure_ascii=False)}" for label, value in pairs)
    return f"{name}{{{inside}}}"


def _noted(row: Sequence[float | None]) -> str:
    """In promtool's notation; ``vxN`` is a value and N more of it."""
    noted: list[str] = []
    for value, group in groupby(row):
        times = sum(1 for _ in group)
        if value is None:
            if noted:
                noted.append("stale")
                times -= 1
            noted += [f"_x{times}"] if times else []
        else:
            # Never with an exponent, which the notation does not know.
            plain = f"{value:.3f}".rstrip("0").rstrip(".")
            noted.append(f"{plain}x{times - 1}" if times > 1 else plain)
    return " ".join(noted)


def told(pages: Sequence[Page | None], clock: Clock, folder: Path, rules: Path = GENERATED) -> Told:
    """What the rule files in ``rules`` say about a page a minute. ``folder``: for the test file."""
    groups = [
        group["name"]
        for name in _RULES
        for group in yaml.safe_load((rules / name).read_text("utf-8"))["groups"]
    ]
    test = {
        "rule_files": [str(rules / name) for name in _RULES],
        "evaluation_interval": "1m",
        "group_eval_order": groups,
        "tests": [
            {
                "interval": "1m",
                "input_series": input_series(pages, clock, wanted(rules)),
                # Expecting none makes promtool print what there is.
                "promql_expr_test": [
                    {"expr": _QUERY, "eval_time": f"{minute}m", "exp_samples": []}
                    for minute in range(len(pages))
                ],
            }
        ],
    }
    file = folder / "pages.yml"
    file.write_text(json.dumps(test, ensure_ascii=False), "utf-8")
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    found: dict[str, dict[str, list[int]]] = {"pending": {}, "firing": {}}
    for minute, state, alert in _printed(done.stdout + done.stderr):
        found[state].setdefault(alert, []).append(minute)
    # It fails where it found an alert, and only there.
    if bool(done.returncode) != any(found.values()):
        raise AssertionError(f"promtool said:\n{done.stdout}\n{done.stderr}")
    return Told(*({alert: _episodes(at) for alert, at in found[state].items()} for state in found))


def _printed(output: str) -> Iterator[tuple[int, str, str]]:
    """Minute, state and alert of everything that promtool did not expect."""
    failures = list(_FAILURE.finditer(output))
    assert len(failures) == output.count("expr: "), f"promtool said:\n{output}"
    for failure in failures:
        parts = _TIME.fullmatch(failure["time"])
        assert parts is not None, failure["time"]
        days, hours, minutes = (int(part or 0) for part in parts.groups())
        minute = (24 * days + hours) * 60 + minutes
        samples = list(_SAMPLE.finditer(failure["got"]))
        assert "".join(sample[0] for sample in samples) == failure["got"], failure["got"]
        for sample in samples:
            labels = {label: json.loads(value) for label, value in _LABEL.findall(sample["labels"])}
            name, state = labels.pop("alertname"), labels.pop("alertstate")
            del labels["__name__"], labels["severity"]
            inside = ", ".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
            yield minute, state, f"{name}{{{inside}}}" if inside else name


def _episodes(minutes: Sequence[int]) -> list[Episode]:
    """Minutes in a row as one."""
    runs = groupby(enumerate(minutes), lambda pair: pair[1] - pair[0])
    rows = ([minute for _, minute in group] for _, group in runs)
    return [Episode(row[0], row[-1]) for row in rows]
