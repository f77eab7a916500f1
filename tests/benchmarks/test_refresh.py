"""What a refresh costs when little or nothing changed, as a share of the first one."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.measure import Numbers, Report, in_fresh_process
from benchmarks.work import INTERVAL, SWEEP

pytestmark = pytest.mark.benchmark


def test_refresh(jobs: Path, floor: Numbers, report: Report) -> None:
    report.title(f"A refresh as a share of the first one (look to page), every {INTERVAL:g} s")
    for sweep, how in ((0.0, "full sweep"), (SWEEP, "rotating sweep")):
        seconds = in_fresh_process("refreshes", jobs, str(sweep))
        for name, what in (("unchanged", "nothing changed"), ("changed", "one file changed")):
            report.add(f"{how}, {what}", seconds[name] / seconds["seconds"], aim=0.15)
            report.add(f"{how}, {what} / floor", seconds[name] / floor["seconds"])
