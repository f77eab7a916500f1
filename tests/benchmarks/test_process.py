"""The whole program over a large job: memory, and how soon it is back after a restart."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from benchmarks.measure import ATTEMPTS, TASKS, Numbers, Report
from support.exporter import ExporterProcess

pytestmark = pytest.mark.benchmark

STARTS = 3
TIMEOUT = 300.0


def _megabytes(pid: int, name: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


def _start(exporter: ExporterProcess) -> float:
    started = time.perf_counter()
    exporter.start(TIMEOUT)
    return time.perf_counter() - started


def test_process(
    jobs: Path, floor: Numbers, report: Report, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("process")
    (folder / "empty").mkdir()
    nothing = ExporterProcess([folder / "empty"], folder / "nothing", refresh="5s")
    exporter = ExporterProcess([jobs], folder / "data", refresh="5s")
    report.title(f"harborlight serve over {TASKS * ATTEMPTS} trials, from process start to ready")
    try:
        idle = min(_start_and_end(nothing) for _ in range(STARTS))
        report.add("without any job / floor", idle / floor["seconds"])
        first = _start(exporter)
        report.add("first start, nothing in the ledger / floor", first / floor["seconds"])
        _memory(report, exporter, "after the first start")
        exporter.terminate()
        restart = min(_start_and_end(exporter) for _ in range(STARTS))
        report.add("restart with that ledger / floor", restart / floor["seconds"])
        _start(exporter)
        _memory(report, exporter, "after a restart")
    finally:
        nothing.kill()
        exporter.kill()


def _start_and_end(exporter: ExporterProcess) -> float:
    seconds = _start(exporter)
    exporter.terminate()
    return seconds


def _memory(report: Report, exporter: ExporterProcess, when: str) -> None:
    """Once it was scraped and has refreshed again."""
    exporter.fresh_page(TIMEOUT)
    pid = exporter.process.pid
    report.add(f"resident memory {when}", _megabytes(pid, "VmRSS"), " MB", aim=200)
    report.add(f"peak resident memory {when}", _megabytes(pid, "VmHWM"), " MB", aim=200)
