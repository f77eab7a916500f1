"""The recorder in real Harbor jobs: what it writes, and what is read from it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harborlight.process_identity import lives
from harborlight.recorder import FILE_NAME
from harborlight.records import TrialRecord
from harborlight.sources.harbor_files import read_trial_result
from harborlight.sources.recorder_file import RecorderFile
from harborlight.views.metrics import Page as MetricsPage
from support.deadline import eventually
from support.harbor import HarborJob
from support.harbor_local.scripted import COST_USD
from support.harbor_local.scripts import RETRIES, RETRY
from support.harbor_local.tasks import write_task, write_tasks
from support.metrics import snapshot_of
from support.page import Page

pytestmark = pytest.mark.real_harbor

PLUGIN = ("--plugin", "harborlight")


def events(job: HarborJob) -> list[dict[str, Any]]:
    lines = (job.path / FILE_NAME).read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def recorded(job: HarborJob) -> dict[str, TrialRecord]:
    return {record.execution: record for record in RecorderFile(str(job.path)).read_on()}


def on_disk(job: HarborJob) -> dict[str, TrialRecord]:
    records = [
        read_trial_result(path.read_bytes()) for path in sorted(job.path.glob("*/result.json"))
    ]
    return {record.execution: record for record in records}


def comparable(record: TrialRecord) -> TrialRecord:
    """Without what a result does not say itself."""
    return replace(record, digest=None, mtime_ns=0)


def test_every_execution(tmp_path: Path) -> None:
    """Also those whose directories Harbor deleted, each as its result said it."""
    dataset = write_tasks(tmp_path / "tasks", sorted(RETRIES))
    with HarborJob(tmp_path / "jobs", "job", tmp_path) as job:
        job.run(dataset, *PLUGIN, script=RETRIES, config={"retry": RETRY}, concurrent=4)
        job.wait()
    found, kept = recorded(job), on_disk(job)
    assert len(found) == 11
    assert len(kept) == 6
    for execution, record in kept.items():
        assert comparable(found[execution]) == comparable(record)
    assert Counter(name for r in found.values() for name in r.exceptions) == {
        "ApiInternalServerError": 3,
        "ApiRateLimitError": 2,
        "AuthenticationError": 1,
        "ContextWindowExceededError": 1,
        "ValueError": 1,
    }
    assert all(r.digest and r.digest.startswith("sha256:") for r in found.values())
    kinds = [event["event"] for event in events(job)]
    assert (kinds[0], kinds[-1]) == ("job-start", "job-end")
    assert kinds.count("start") == kinds.count("end") == 11
    file = RecorderFile(str(job.path))
    file.read_on()
    assert (file.process, file.phases) == (None, {})


def test_the_ledger_misses_nothing(tmp_path: Path) -> None:
    """Read once, after the end: every fault, the discarded verdict, and what all of it cost."""
    dataset = write_tasks(tmp_path / "tasks", sorted(RETRIES))
    with HarborJob(tmp_path / "jobs", "job", tmp_path) as job:
        job.run(dataset, *PLUGIN, script=RETRIES, config={"retry": RETRY}, concurrent=4)
        job.wait()
    page = Page(MetricsPage(snapshot_of(job.path)).render("")[1].decode())
    run = page.only_run()
    assert page.states(run) == (4, 0, 0, 2, 0)
    assert page.sum("harborlight_run_faults_total", run=run) == 6
    assert page.sum("harborlight_run_verdicts_discarded_total", run=run) == 1
    assert page.sum("harborlight_run_verdicts_total", run=run) == 5
    assert page.value("harborlight_run_retries_total", run=run) == 5
    by_resolution = "harborlight_run_faults_by_resolution"
    assert page.value(by_resolution, run=run, resolution="retried") == 4
    assert page.value(by_resolution, run=run, resolution="open") == 2
    assert_log_tells_the_same(job.path, page)
    # Every one of the 11 executions reports 0.25 USD; Harbor's own total has the last six.
    assert page.value("harborlight_run_cost_usd_total", run=run) == pytest.approx(11 * COST_USD)
    assert job.result()["stats"]["cost_usd"] == pytest.approx(6 * COST_USD)


def without(page: Page, metric: str, *dropped: str) -> Counter[tuple[tuple[str, str], ...]]:
    """A metric's values, summed over some labels."""
    values: Counter[tuple[tuple[str, str], ...]] = Counter()
    for labels, value in page.values(f"harborlight_{metric}").items():
        values[tuple(pair for pair in labels if pair[0] not in dropped)] += int(value)
    return values


def assert_log_tells_the_same(job: Path, recorded: Page) -> None:
    """Without the recorder's file: all but the phases, and what a deleted verdict was."""
    (job / FILE_NAME).rename(job.parent / FILE_NAME)
    page = Page(MetricsPage(snapshot_of(job)).render("")[1].decode())
    for metric in (
        *("run_attempts", "run_attempts_passed", "run_faults_total", "run_faults_by_type_total"),
        *("run_verdicts_total", "run_verdicts_discarded_total", "run_retries_total"),
        *("run_faults_by_resolution", "run_faults_open", "run_fault_tasks"),
    ):
        dropped = ("phase", "result")
        assert +without(page, metric, *dropped) == +without(recorded, metric, *dropped), metric
    discarded = page.value("harborlight_run_verdicts_discarded_total", result="unknown")
    assert discarded == 1


def test_killed_and_resumed(tmp_path: Path) -> None:
    """What was written stays, and tells which process it was and what its trials did."""
    script = {"waits": ["wait:never,ok", "ok"], "done": ["ok"]}
    dataset = write_tasks(tmp_path / "tasks", sorted(script))
    with HarborJob(tmp_path / "jobs", "job", tmp_path) as job:
        job.run(dataset, *PLUGIN, script=script, concurrent=2)
        file = RecorderFile(str(job.path))

        def both_seen() -> bool:
            file.read_on()
            assert [phase for phase, _ in file.phases.values()] == ["agent"]
            assert len(on_disk(job)) == 1
            return True

        eventually(both_seen, 30.0, what="one trial done, one in its agent")
        assert file.process is not None
        assert lives(file.process) is True
        job.kill()
        assert lives(file.process) is False
        # No look saw it alive, and nobody said that it runs here: the recorder did.
        page = Page(MetricsPage(snapshot_of(job.path)).render("")[1].decode())
        assert page.value("harborlight_job_state", state="interrupted") == 1
        assert page.states(page.only_run()) == (1, 0, 0, 1, 0)
        assert page.value("harborlight_run_faults_by_resolution", resolution="open") == 1
        (task,) = (t for r in snapshot_of(job.path).runs for t in r.tasks if t.faults)
        assert [(fault.cause, fault.phase) for fault in task.faults] == [("interrupted", "agent")]
        before = (job.path / FILE_NAME).read_bytes()
        job.resume()
        job.wait()
        assert (job.path / FILE_NAME).read_bytes() == before
    assert job.result()["finished_at"] is not None
    assert set(recorded(job)) < set(on_disk(job))
    (run,) = snapshot_of(job.path).runs
    (fault,) = (fault for task in run.tasks for fault in task.faults)
    assert (fault.cause, fault.phase, fault.resolution) == ("interrupted", "agent", "replayed")


def test_killed_and_resumed_with_the_recorder(tmp_path: Path) -> None:
    """Harbor deletes what the dead process had begun; the recorder knows that it was."""
    script = {"waits": ["wait:never,ok", "ok"], "done": ["ok"]}
    dataset = write_tasks(tmp_path / "tasks", sorted(script))
    with HarborJob(tmp_path / "jobs", "job", tmp_path) as job:
        job.run(dataset, *PLUGIN, script=script, concurrent=2)
        eventually(
            lambda: (job.agent_calls() == 2 and len(on_disk(job)) == 1) or None,
            30.0,
            what="one trial done, one in its agent",
        )
        job.kill()
        at_once = snapshot_of(job.path)
        job.resume(plugins=PLUGIN)
        job.wait()
    for snapshot, resolution in ((at_once, "open"), (snapshot_of(job.path), "replayed")):
        (run,) = snapshot.runs
        (fault,) = (fault for task in run.tasks for fault in task.faults)
        assert (fault.cause, fault.phase) == ("interrupted", "agent")
        assert fault.resolution == resolution
        counted = snapshot.counters[run.label].get("run_faults_total", {})
        # Before the resume its result could still come to light.
        assert sum(counted.values()) == (resolution == "replayed")


def test_a_trial_that_cannot_be_made(tmp_path: Path) -> None:
    """Harbor's whole job dies of it and says so nowhere; its process is known to be gone.

    One trial at a time, in the order of the names: one is done, the next cannot be made.
    """
    dataset = write_tasks(tmp_path / "tasks", ["a-done", "c-never"])
    write_task(dataset, "b-impossible", network="no-network")
    with HarborJob(tmp_path / "jobs", "job", tmp_path) as job:
        job.run(dataset, *PLUGIN, script={"default": ["ok"]}, concurrent=1)
        assert job.wait(expect=None) == 1
    assert job.result()["finished_at"] is None
    page = Page(MetricsPage(snapshot_of(job.path)).render("")[1].decode())
    assert page.value("harborlight_job_state", state="interrupted") == 1
    scored, running, queued, faulted, unplanned = page.states(page.only_run())
    assert (scored, running, queued) == (1, 0, 0)
    # The one after it may have been begun, or not.
    assert faulted + unplanned == 2
    assert page.sum("harborlight_run_faults_open", cause="interrupted") == faulted
