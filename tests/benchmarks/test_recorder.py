"""What the recorder costs a real Harbor job: each of its hooks, and the job as a whole."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from pathlib import Path

import pytest

from benchmarks.measure import Report
from benchmarks.timed_recorder import SECONDS_FILE
from harborlight.recorder import FILE_NAME
from support.harbor import HarborJob
from support.harbor_local.tasks import write_tasks

pytestmark = [pytest.mark.benchmark, pytest.mark.real_harbor]

TASKS, ATTEMPTS, PAIRS = 20, 10, 3
EVENTS_A_TRIAL = 6
"""Start, environment, agent, its end, verification, end."""


def test_recorder(tmp_path: Path, report: Report) -> None:
    """Jobs of 200 trials, one with the recorder and one without in turns, after one to warm up."""
    dataset = write_tasks(tmp_path / "tasks", [f"task-{n:02}" for n in range(TASKS)])

    def seconds(name: str, *plugin: str) -> float:
        job = HarborJob(tmp_path / "jobs", name, tmp_path)
        started = time.perf_counter()
        job.run(dataset, *plugin, script={"default": ["ok"]}, attempts=ATTEMPTS, concurrent=4)
        job.wait(600.0)
        took = time.perf_counter() - started
        assert job.result()["stats"]["n_completed_trials"] == TASKS * ATTEMPTS
        return took

    report.title("Recorder: jobs of 200 trials")
    seconds("warm")
    ratios, hooks = [], []
    for pair in range(PAIRS):
        times = {}
        for name in sorted(("with", "without"), reverse=bool(pair % 2)):
            plugin = ("--plugin", "benchmarks.timed_recorder:TimedRecorder")
            times[name] = seconds(f"{name}-{pair}", *(plugin if name == "with" else ()))
        recorded = tmp_path / "jobs" / f"with-{pair}"
        hooks += json.loads((recorded / SECONDS_FILE).read_text())
        lines = (recorded / FILE_NAME).read_bytes().count(b"\n")
        assert lines == 2 + EVENTS_A_TRIAL * TASKS * ATTEMPTS
        ratios.append(times["with"] / times["without"])
        for name, took in times.items():
            report.add(f"pair {pair + 1}, {name} the recorder", took, " s")
        shutil.rmtree(tmp_path / "jobs")
    hooks.sort()
    report.add(f"median of {len(hooks)} hooks", statistics.median(hooks) * 1e3, " ms", aim=1.0)
    report.add("99th percentile", hooks[len(hooks) * 99 // 100] * 1e3, " ms")
    report.add("median of with / without", statistics.median(ratios), aim=1.05)
