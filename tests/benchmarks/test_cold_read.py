"""How long the first look takes, against the least that reading the files can take."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from benchmarks.measure import ATTEMPTS, TASKS, Numbers, Report, best_of, in_fresh_process

pytestmark = pytest.mark.benchmark


def test_cold_read(jobs: Path, floor: Numbers, report: Report) -> None:
    report.title(
        f"Cold read of {TASKS * ATTEMPTS} finished trials; floor: scandir, read, json.loads, "
        "seven fields kept"
    )
    report.add("the floor", floor["seconds"], " s")
    for work, what in (
        ("look", "reading alone / floor"),
        ("first_snapshot", "reading to the first snapshot, committed / floor"),
        ("first_page", "reading to the first page, rendered / floor"),
    ):
        best = best_of(3, partial(in_fresh_process, work, jobs))
        report.add(what, best["seconds"] / floor["seconds"])
