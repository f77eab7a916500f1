"""Real Harbor jobs under a watching exporter.

Every page that a background scraper gets is held to the promises while the jobs
run, stop, resume and retry; the numbers were worked out by hand from the scripts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.deadline import eventually
from support.exporter import ExporterProcess, Watcher
from support.harbor import HarborJob
from support.harbor_local.tasks import PARTIAL, unless_told, write_task, write_tasks
from support.page import Page

pytestmark = pytest.mark.real_harbor


@dataclass
class Scene:
    """A jobs directory, its exporter, and the watcher of its pages."""

    work: Path
    jobs: Path
    exporter: ExporterProcess
    watcher: Watcher

    def job(self, name: str) -> HarborJob:
        """A job to be run in this scene."""
        return HarborJob(self.jobs, name, self.work)

    def shows(self, *states: int, timeout: float = 20.0) -> Page:
        """Wait for a page with these attempts: scored, running, queued, faulted, unplanned."""

        def look() -> Page:
            self.watcher.check()
            page = self.exporter.page()
            got = page.states(page.only_run())
            assert got == states, f"the page shows {got}, not {states}"
            return page

        return eventually(look, timeout, what=f"a page with {states}")

    def summary(self, page: Page) -> dict[str, float]:
        """What every test here compares at its end."""
        run = page.only_run()
        return {
            "target": page.value("harborlight_run_attempts_target", run=run),
            "passed": page.value("harborlight_run_attempts_passed", run=run),
            "open": page.sum("harborlight_run_faults_open", run=run),
        }


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """An exporter over an empty jobs directory, watched."""
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    exporter = ExporterProcess([jobs], tmp_path / "data", refresh="0.1s")
    with exporter, Watcher(exporter) as watcher:
        yield Scene(tmp_path, jobs, exporter, watcher)


def test_mixed_rewards_and_a_killed_exporter(scene: Scene) -> None:
    """15 attempts: 14 scored (7 passed, 2 with an exception), 1 lost to the model API."""
    dataset = write_tasks(scene.work / "mixed", ["all-right", "all-wrong", "one-lost", "graded"])
    write_task(dataset, "partial", verifier=PARTIAL)
    script = {
        "all-right": ["ok", "ok", "wait:last,ok"],
        "all-wrong": ["wrong"],
        "one-lost": ["ok", "err:ApiRateLimitError", "wrong"],
        "graded": ["ok", "ok,err:NonZeroAgentExitCodeError", "err:AgentSafetyRefusalError"],
        "partial": ["wrong", "ok", "wrong"],
    }
    with scene.job("mixed") as job:
        job.run(dataset, script=script, attempts=3, concurrent=5)
        scene.shows(13, 1, 0, 1, 0)
        scene.exporter.restart(gracefully=False)
        scene.shows(13, 1, 0, 1, 0)
        job.open_gate("last")
        job.wait()
        page = scene.shows(14, 0, 0, 1, 0)
        run = page.only_run()
        assert scene.summary(page) == {"target": 15, "passed": 7, "open": 1}
        assert page.sum("harborlight_run_attempts_scored_with_exception", run=run) == 2
        assert page.sum("harborlight_run_verdicts_total", run=run) == 14
        assert page.sum("harborlight_run_faults_open", run=run, cause="serving") == 1
        assert page.value("harborlight_job_state", harbor_job="mixed", state="finished") == 1
    scene.exporter.restart()
    scene.shows(14, 0, 0, 1, 0)
    assert scene.watcher.highest("harborlight_run_attempts_target") == 15


def test_retries_that_harbor_deletes(scene: Scene) -> None:
    """5 attempts, 10 executions: 2 + 2 + 1 retries, 3 scored, 2 faults left."""
    script = {
        "flaky-api": ["err:ApiRateLimitError", "err:ApiRateLimitError", "ok"],
        "hard-api": ["err:ApiInternalServerError"],
        "bad-key": ["err:AuthenticationError"],
        "crash-once": ["err:ValueError", "ok"],
        "steady": ["wait:retried,ok"],
    }
    dataset = write_tasks(scene.work / "retry", sorted(script))
    retry = {"retry": {"max_retries": 2, "min_wait_sec": 0.8, "wait_multiplier": 1.0}}
    with scene.job("retry") as job:
        job.run(dataset, script=script, config=retry, concurrent=5)
        # Harbor counts a trial that waits for its retry as completed and failed.
        eventually(lambda: job.result()["stats"]["n_retries"] >= 1, 30.0, what="a first retry")
        job.open_gate("retried")
        job.wait()
        page = scene.shows(3, 0, 0, 2, 0)
        run = page.only_run()
        assert scene.summary(page) == {"target": 5, "passed": 3, "open": 2}
        assert page.value("harborlight_run_retries_total", run=run) == 5
        assert 2 <= page.sum("harborlight_run_faults_by_resolution", run=run) <= 7
        assert job.result()["stats"]["n_retries"] == 5


def test_an_interrupted_job_is_resumed(scene: Scene) -> None:
    """9 attempts: 3 scored, 3 cancelled, 3 never started; all scored after the resume."""
    dataset = write_tasks(scene.work / "words", ["one", "two", "three"])
    script = {"default": ["ok", "hang", "ok", "wrong"]}
    with scene.job("resumed") as job:
        job.run(dataset, script=script, attempts=3, concurrent=3)
        scene.shows(3, 3, 3, 0, 0)
        eventually(lambda: job.agent_calls() == 6)
        assert job.interrupt() == 130
        page = scene.shows(3, 0, 0, 3, 3)
        run = page.only_run()
        assert scene.summary(page) == {"target": 9, "passed": 3, "open": 3}
        assert page.sum("harborlight_run_faults_open", run=run, cause="cancelled") == 3
        assert page.value("harborlight_job_state", harbor_job="resumed", state="cancelled") == 1

        job.resume()
        job.wait()
        page = scene.shows(9, 0, 0, 0, 0)
        assert scene.summary(page) == {"target": 9, "passed": 6, "open": 0}
        assert page.sum("harborlight_run_faults_by_resolution", run=run) == 3
        assert page.only_run() == run


def test_a_killed_job_is_resumed(scene: Scene) -> None:
    """The exporter saw the process hold the job and let go of it: its trials are interrupted."""
    dataset = write_tasks(scene.work / "words", ["one", "two"])
    script = {"default": ["ok", "hang", "ok"]}
    with scene.job("killed") as job:
        job.run(dataset, script=script, attempts=3, concurrent=2)
        scene.shows(2, 2, 2, 0, 0)
        eventually(lambda: job.agent_calls() == 4)
        job.kill()
        page = scene.shows(2, 0, 0, 2, 2)
        run = page.only_run()
        assert page.sum("harborlight_run_faults_open", run=run, cause="interrupted") == 2
        assert page.value("harborlight_job_state", harbor_job="killed", state="interrupted") == 1

        job.resume()
        job.wait()
        page = scene.shows(6, 0, 0, 0, 0)
        assert scene.summary(page) == {"target": 6, "passed": 6, "open": 0}


def test_a_regrade_gives_the_missing_verdicts(scene: Scene) -> None:
    """6 attempts by the oracle; two lack a verdict until the verifier is told what it needs."""
    dataset = scene.work / "graded"
    for name in ("sep-a", "sep-b"):
        write_task(dataset, name, separate_verifier=True)
    write_task(dataset, "sep-c", separate_verifier=True, verifier=unless_told("VERDICT"))
    with scene.job("source") as job:
        job.run(dataset, attempts=2)
        job.wait()
        page = scene.shows(4, 0, 0, 2, 0)
        run = page.only_run()
        assert scene.summary(page) == {"target": 6, "passed": 4, "open": 2}
        assert page.sum("harborlight_run_faults_open", run=run, boundary="regrade") == 2

        with job.regrade("regraded", dataset, env={"VERDICT": "yes"}) as regrade:
            regrade.wait()
        page = scene.shows(6, 0, 0, 0, 0)
        assert scene.summary(page) == {"target": 6, "passed": 6, "open": 0}
        assert page.sum("harborlight_run_faults_by_resolution", run=run) == 2
        assert page.value("harborlight_run_verdicts_superseded", run=run) == 0
        assert page.value("harborlight_run_attempts_surplus") == 0
    assert scene.watcher.highest("harborlight_run_attempts_target") == 6
