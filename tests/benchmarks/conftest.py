"""One large finished job for all benchmarks, and their report.

The report is printed; HARBORLIGHT_BENCH_JSON names a file that it is written to as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.measure import ATTEMPTS, JOB, TASKS, Numbers, Report, best_of, in_fresh_process
from harborlight.demo.replay import write_finished_job


@pytest.fixture(scope="session")
def report() -> Iterator[Report]:
    """Where every number goes."""
    collected = Report()
    yield collected
    path = os.environ.get("HARBORLIGHT_BENCH_JSON")
    if path:
        collected.write(Path(path))


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A jobs folder with 20,000 finished trials, in the page cache."""
    folder = tmp_path_factory.mktemp("bench") / "jobs"
    write_finished_job(folder, JOB, TASKS, ATTEMPTS)
    in_fresh_process("floor", folder)
    return folder


@pytest.fixture(scope="session")
def floor(jobs: Path) -> Numbers:
    """The least that reading them can cost."""
    return best_of(3, lambda: in_fresh_process("floor", jobs))
