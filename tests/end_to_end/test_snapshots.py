"""Recorded jobs, replayed step by step under a running exporter.

Every recorded moment is held to the promises, and the last one to numbers worked
out by hand. No process holds the replayed files open, so the exporter cannot know
whether the jobs live; it has to take them as live until Harbor writes an end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.exporter import ExporterProcess
from support.page import Page, assert_promises
from support.snapshots import Playback, Sequence, Snapshot

pytestmark = pytest.mark.slow


class Replay:
    """A recorded job under an exporter that reads each of its moments whole.

    The exporter still has to be started: ``with replay.exporter``.
    """

    def __init__(self, tmp_path: Path, snapshots: Path, job: str) -> None:
        self.jobs = tmp_path / "jobs"
        self.jobs.mkdir()
        self.job = self.jobs / job
        self.playback = Playback(self.job)
        self.snapshots = snapshots
        self.exporter = ExporterProcess([self.jobs], tmp_path / "data", refresh="0.05s")
        self.previous: Page | None = None

    def recording(self, name: str) -> list[Snapshot]:
        """The distinct moments of one recording."""
        return Sequence(self.snapshots / name).distinct()

    def show(self, snapshot: Snapshot) -> Page:
        """Put the job into that moment; the page that has read all of it."""
        with self.exporter.paused():
            self.playback.show(snapshot)
        page = self.exporter.fresh_page()
        assert_promises(page, self.previous)
        self.previous = page
        return page

    def play(self, *names: str) -> Iterator[Page]:
        """The page after every moment of the recordings, one after the other."""
        for name in names:
            for snapshot in self.recording(name):
                yield self.show(snapshot)

    def stats(self) -> dict[str, int]:
        """What the job's own file says at this moment; empty while it is unreadable."""
        try:
            return dict(json.loads((self.job / "result.json").read_bytes())["stats"])
        except (OSError, ValueError):
            return {}


def at_the_end(page: Page) -> dict[str, object]:
    """The run's numbers that the hand-made table gives."""
    run = page.only_run()
    return {
        "target": page.value("harborlight_run_attempts_target", run=run),
        "states": page.states(run),
        "passed": page.value("harborlight_run_attempts_passed", run=run),
        "open": page.sum("harborlight_run_faults_open", run=run),
        "retries": page.sum("harborlight_run_retries_total", run=run),
    }


@pytest.mark.parametrize(
    ("job", "target", "states", "passed", "faults", "retries"),
    [
        ("mixed-6x5", 30, (29, 0, 0, 1, 0), 15, 1, 0),
        ("retry-2", 6, (4, 0, 0, 2, 0), 4, 2, 5),
        ("sep-regrade", 6, (6, 0, 0, 0, 0), 3, 0, 0),
    ],
)
def test_a_recorded_job_ends_as_worked_out_by_hand(
    job: str,
    target: int,
    states: tuple[int, ...],
    passed: int,
    faults: int,
    retries: int,
    tmp_path: Path,
    snapshots: Path,
) -> None:
    replay = Replay(tmp_path, snapshots, job)
    with replay.exporter:
        pages = list(replay.play(job))
    assert at_the_end(pages[-1]) == {
        "target": target,
        "states": states,
        "passed": passed,
        "open": faults,
        "retries": retries,
    }
    known = {p.sum("harborlight_run_attempts_target") for p in pages if p.runs()}
    assert known == {target}, "the target was another one on the way"


def test_a_cancelled_job_is_resumed(tmp_path: Path, snapshots: Path) -> None:
    replay = Replay(tmp_path, snapshots, "cancel-sigint")
    with replay.exporter as exporter:
        *_, cancelled = replay.play("cancel-sigint")
        assert at_the_end(cancelled) == {
            "target": 18,
            "states": (5, 0, 0, 3, 10),
            "passed": 5,
            "open": 3,
            "retries": 0,
        }
        exporter.restart(gracefully=False)
        *_, resumed = replay.play("cancel-sigint.resume")
        assert at_the_end(resumed) == {
            "target": 18,
            "states": (18, 0, 0, 0, 0),
            "passed": 11,
            "open": 0,
            "retries": 0,
        }
        assert resumed.sum("harborlight_run_faults_by_resolution", run=resumed.only_run()) == 3


def test_the_back_off_before_a_retry_is_running(tmp_path: Path, snapshots: Path) -> None:
    """Three trials failed, Harbor deleted them and waits; its file says completed 5, running 0.

    By hand: ctx-error is scored, auth-error faulted, flaky-api, hard-api and
    plain-value-error are to run again, steady has not started.
    """
    replay = Replay(tmp_path, snapshots, "retry-2")
    seen = []
    with replay.exporter:
        for page in replay.play("retry-2"):
            stats = replay.stats()
            waiting = stats.get("n_completed_trials") == 5 and stats.get("n_pending_trials") == 1
            if waiting and stats["n_running_trials"] == 0:
                seen.append(page.states(page.only_run()))
                break
    assert seen == [(1, 3, 1, 1, 0)]


def test_a_job_directory_that_vanishes_is_not_forgotten(tmp_path: Path, snapshots: Path) -> None:
    replay = Replay(tmp_path, snapshots, "mixed-6x5")
    with replay.exporter as exporter:
        whole = replay.show(replay.recording("mixed-6x5")[-1])
        gone = replay.show(Snapshot(0.0, {}, frozenset()))
        assert not replay.job.exists()
        assert at_the_end(gone) == at_the_end(whole)
        exporter.restart()
        after = exporter.fresh_page()
        assert_promises(after, gone)
        assert at_the_end(after) == at_the_end(whole)
