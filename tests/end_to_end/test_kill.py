"""kill -9 of the exporter at any moment of a live run: nothing seen is lost."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harborlight.ledger.store import Store, Stored
from support.exporter import ExporterProcess, environment, metrics_once
from support.page import Page, assert_promises

KILLS = 50
SEED = 20261201
# 63 tasks x 5 attempts and all their faults in about two and a half minutes: about as long as the
# kills take on a slow machine.
SPEED = 900


def _accounts(page: Page) -> dict[str, object]:
    """What does not depend on having watched: targets, states and passes, by run and task."""
    names = (
        "harborlight_run_attempts_target",
        "harborlight_run_attempts",
        "harborlight_run_attempts_passed",
        "harborlight_run_tasks_complete",
        "harborlight_task_attempts_target",
        "harborlight_task_attempts",
        "harborlight_task_attempts_passed",
    )
    return {name: page.values(name) for name in names}


def _stored(data_dir: Path) -> Stored:
    with Store.open_reader(data_dir) as store:
        return store.load()


@pytest.mark.slow
def test_fifty_kills_lose_nothing(tmp_path: Path) -> None:
    """The ledger ends as one quiet read would build it, plus what vanished meanwhile."""
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    chance = random.Random(SEED)
    replay = subprocess.Popen(
        [
            *(sys.executable, "-m", "harborlight.demo.replay"),
            *("--jobs", str(jobs), "--speed", str(SPEED)),
        ],
        env=environment(),
        stdout=subprocess.DEVNULL,
    )
    exporter = ExporterProcess([jobs], tmp_path / "data", "--local-jobs", refresh="0.05s")
    last: Page | None = None
    running_at_kill = 0
    try:
        for _ in range(KILLS):
            exporter.start()
            page = exporter.page()
            assert_promises(page, last)
            # The moment is the subject: anywhere in a refresh, a write or a scrape.
            time.sleep(chance.uniform(0.0, 0.6))
            page, before = exporter.page(), page
            assert_promises(page, before)
            last = page
            running_at_kill += replay.poll() is None
            exporter.kill()
        assert running_at_kill >= KILLS // 2, "the replay was over too early to show anything"
        assert replay.wait(600) == 0
        exporter.start()
        page = exporter.fresh_page()
        assert_promises(page, last)
        exporter.terminate()
    finally:
        replay.kill()
        replay.wait()
        exporter.kill()

    quiet = ExporterProcess([jobs], tmp_path / "quiet", "--local-jobs")
    with quiet:
        quiet_page = quiet.page()
    assert _accounts(page) == _accounts(quiet_page)
    assert _accounts(quiet_page) == _accounts(metrics_once(["--jobs", jobs, "--local-jobs"]))
    watched, read = _stored(tmp_path / "data"), _stored(tmp_path / "quiet")
    assert watched.jobs.keys() == read.jobs.keys()
    assert read.trials.keys() <= watched.trials.keys()
    for key, execution in read.trials.items():
        assert watched.trials[key].record == execution.record
    vanished = {key: e for key, e in watched.trials.items() if key not in read.trials}
    assert not any(execution.present for execution in vanished.values())
