"""What the pages of a test become for promtool, and what it is understood to say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.page import Page
from support.rule_tests import Clock, input_series, told

NAMES = ("harborlight_run_attempts", "harborlight_job_started_timestamp_seconds")
SCRAPE = 'instance="127.0.0.1:10315",job="harborlight"'


def page(**values: float) -> Page:
    """Attempts of a run by state."""
    lines = (
        f'harborlight_run_attempts{{run="a",state="{state}"}} {n}' for state, n in values.items()
    )
    return Page("\n".join([*lines, "harborlight_other 1", ""]))


def notes(pages: list[Page | None], clock: Clock) -> dict[str, str]:
    return {x["series"]: x["values"] for x in input_series(pages, clock, NAMES)}


def test_a_page_a_minute() -> None:
    """Repeated values are counted, what is gone is stale at once, and other series are left out."""
    pages = [
        page(scored=1),
        page(scored=1, queued=2),
        page(scored=1),
        page(scored=2),
        None,
        None,
        page(scored=0.5),
    ]
    assert notes(pages, Clock(0)) == {
        f"up{{{SCRAPE}}}": "1x3 0x1 1",
        f'harborlight_run_attempts{{{SCRAPE},run="a",state="scored"}}': "1x2 2 stale _x1 0.5",
        f'harborlight_run_attempts{{{SCRAPE},run="a",state="queued"}}': "_x1 2 stale _x4",
    }


def test_names_with_quotes() -> None:
    odd = Page('harborlight_run_attempts{run="a \\"b\\" \\\\ ü"} 1\n')
    assert list(notes([odd], Clock(0))) == [
        f"up{{{SCRAPE}}}",
        f'harborlight_run_attempts{{{SCRAPE},run="a \\"b\\" \\\\ ü"}}',
    ]


def test_a_stretched_clock() -> None:
    """Ten times slower: moments count from the beginning, durations are longer, counts are not."""
    clock = Clock(begin=1_000_000_000, stretch=10)
    assert clock.recorded(0) == 1_000_000_000
    assert clock.recorded(5) == 1_000_000_030
    assert clock.minute(1_000_000_030) == 5
    assert clock.shown("harborlight_job_started_timestamp_seconds", 1_000_000_003) == 30
    assert clock.shown("harborlight_job_started_timestamp_seconds", 999_999_999) == -10
    assert clock.shown("harborlight_task_usual_duration_seconds", 3) == 30
    assert clock.shown("harborlight_run_attempts", 3) == 3
    started = Page('harborlight_job_started_timestamp_seconds{harbor_job="j"} 1.000000003e+09\n')
    assert list(notes([started] * 3, clock).values()) == ["1x2", "30x2"]


RULES = """\
groups:
  - name: first
    rules:
      - record: run:harborlight_run_attempts:sum
        expr: sum by (run) (harborlight_run_attempts)
  - name: second
    rules:
      - alert: Many
        expr: run:harborlight_run_attempts:sum > 2
        for: 2m
        labels: {severity: warning}
      - alert: Gone
        expr: up == 0
        labels: {severity: critical}
"""


needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "harborlight-recording.yml").write_text(RULES[: RULES.index("  - name: second")])
    (tmp_path / "harborlight-alerts.yml").write_text(
        "groups:\n" + RULES[RULES.index("  - name: second") :]
    )
    return tmp_path


@needs_promtool
def test_what_is_told(rules: Path, tmp_path: Path) -> None:
    """Over two in the minutes 1 to 4 and 6 to 8, the exporter gone in minute 70."""
    few, many = page(scored=2), page(scored=2, queued=1)
    pages = [few, many, many, many, many, few, many, many, many, *[few] * 61, None]
    heard = told(pages, Clock(0), tmp_path, rules)
    assert heard.pending == {'Many{run="a"}': [(1, 2), (6, 7)]}
    gone = 'Gone{instance="127.0.0.1:10315", job="harborlight"}'
    assert heard.firing == {'Many{run="a"}': [(3, 4), (8, 8)], gone: [(70, 70)]}
    assert heard.ever == {"Many", "Gone"}
    assert heard.once(gone) == (70, 70)
    with pytest.raises(AssertionError, match="fired 2 times"):
        heard.once('Many{run="a"}')
    with pytest.raises(AssertionError, match="fired 0 times"):
        heard.once("Other")


@needs_promtool
def test_nothing_is_told(rules: Path, tmp_path: Path) -> None:
    heard = told([page(scored=1)] * 5, Clock(0), tmp_path, rules)
    assert (heard.pending, heard.firing) == ({}, {})


@needs_promtool
def test_rules_that_promtool_does_not_take(rules: Path, tmp_path: Path) -> None:
    (rules / "harborlight-alerts.yml").write_text(
        "groups: [{name: g, rules: [{alert: A, expr: (}]}]"
    )
    with pytest.raises(AssertionError, match="promtool said"):
        told([page(scored=1)], Clock(0), tmp_path, rules)
