"""Jobs on a real Harbor server: every execution, phases, cancelling, a kill, a copy on disk."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harborlight.ledger import Ledger, Store
from harborlight.ledger.standing import RunStanding
from harborlight.records import TrialRecord
from harborlight.sources.harbor_server.source import HarborServerSource
from harborlight.sources.harbor_server.targets import HarborServerTarget
from support.deadline import eventually
from support.exporter import ExporterProcess, Watcher, metrics_once
from support.harbor import HarborJob
from support.harbor_local.scripted import COST_USD
from support.harbor_local.scripts import RETRIES, RETRY
from support.harbor_local.tasks import write_task, write_tasks
from support.harbor_server import HarborServer
from support.page import Page
from support.records import states

pytestmark = pytest.mark.real_harbor

KEY = "canary-server-key-42"
PRIVATE = "canary-in-the-environment"


class Scene:
    """A ledger that a source of one server fills."""

    def __init__(self, server: HarborServer) -> None:
        target = HarborServerTarget("s", server.url, timeout=20.0)
        self.source = HarborServerSource([target], patience=None)
        self.ledger = Ledger(Store.throw_away())
        self.last: dict[str, TrialRecord] = {}

    def look(self) -> RunStanding:
        """The only run after one look."""
        observation = self.source.look(time.time())
        assert observation.problems == observation.failures == ()
        self.ledger.take(observation)
        self.ledger.commit()
        for record in observation.trials:
            self.last[record.name] = record
        (run,) = self.ledger.runs()
        return run

    def until(self, wanted: str) -> RunStanding:
        """Look until the states are these (scored/running/queued/faulted/unplanned)."""
        seen: list[RunStanding] = []

        def stands() -> bool:
            seen.append(self.look())
            assert states(seen[-1]) == wanted
            return True

        eventually(stands, 30.0, interval=0.1, what=wanted)
        return seen[-1]

    def until_phases(self, wanted: dict[str, str]) -> None:
        """Look until the trials that run do this, by their tasks."""

        def so() -> bool:
            self.look()
            return {r.task.name: r.phase for r in self.last.values() if r.open} == wanted

        eventually(so, 30.0, interval=0.1, what="the phases")

    def counter(self, metric: str) -> float:
        """The sum over all labels."""
        (metrics,) = self.ledger.counters().values()
        return sum(metrics.get(metric, {}).values())


def known_both_ways(page: Page) -> dict[str, float]:
    """What a job directory with the recorder and a server can both tell of the only run."""
    run = page.only_run()
    return {
        f"{sample.name}{sorted(set(dict(sample.labels).items()) - {('run', run)})}": sample.value
        for sample in page.samples
        if (
            sample.has({"run": run})
            and sample.name.startswith(("harborlight_run_", "harborlight_task_"))
            and not sample.name.endswith(("_seconds", "_per_second", "_seconds_sum", "_info"))
            and "_seconds_" not in sample.name
        )
    }


def test_every_execution(tmp_path: Path) -> None:
    """The same as from a job directory with the recorder; and a copy on disk counts once."""
    dataset = write_tasks(tmp_path / "tasks", sorted(RETRIES))
    config = tmp_path / "harborlight.yml"
    with HarborServer(tmp_path / "server", key=KEY) as server:
        env = {"import_path": "support.harbor_local.sandbox:SandboxEnvironment"}
        job_id = server.submit(
            "job", dataset, RETRIES, retry=RETRY, environment={**env, "env": {"SOME": PRIVATE}}
        )
        with HarborJob(tmp_path / "recorded", "job", tmp_path) as job:
            plugin = ("--plugin", "harborlight")
            job.run(dataset, *plugin, script=RETRIES, config={"retry": RETRY}).wait()
        server.wait(job_id)
        (tmp_path / "key").write_text(KEY)
        config.write_text(
            f"harbor_servers: [{{name: s, url: '{server.url}', api_key: {{file: key}}}}]\n"
        )
        page = metrics_once(["--config.file", config])
        server.download(job_id, tmp_path / "copies")
        both = metrics_once(["--config.file", config, "--jobs", tmp_path / "copies"])
        refused = metrics_once(["--harbor-server", server.url])
    run = page.only_run()
    assert page.value("harborlight_collector_success", collector="harbor_server") == 1
    assert page.states(run) == (4, 0, 0, 2, 0)
    assert page.sum("harborlight_run_faults_total", run=run) == 6
    assert page.sum("harborlight_run_verdicts_discarded_total", run=run) == 1
    assert page.sum("harborlight_run_verdicts_total", run=run) == 5
    assert page.value("harborlight_run_retries_total", run=run) == 5
    assert page.value("harborlight_run_cost_usd_total", run=run) == pytest.approx(11 * COST_USD)
    assert page.value("harborlight_job_state", state="finished") == 1
    recorded = metrics_once(["--jobs", tmp_path / "recorded"])
    assert known_both_ways(page) == known_both_ways(recorded)
    assert len(known_both_ways(page)) > 50
    assert known_both_ways(both) == known_both_ways(page)
    assert both.label_values("harborlight_job_state", "harbor_job") == ["job"]
    for text in (page.text, both.text):
        assert all(secret not in text for secret in (KEY, PRIVATE, str(tmp_path), str(server.port)))
    # Without the key nothing is known, and said so.
    assert refused.value("harborlight_collector_success", collector="harbor_server") == 0
    assert refused.runs() == []


def test_live(tmp_path: Path) -> None:
    """Phases, retries by hand, trials and a job that are cancelled; no counter falls."""
    tasks = write_tasks(tmp_path / "tasks", ["a-waits", "d-never", "e-waits"])
    write_task(tasks, "b-starts", environment={"START_HANG": "600"}, build_timeout=600)
    write_task(tasks, "c-grades", verifier="sleep 600", verifier_timeout=600)
    script = {
        "a-waits": ["wait:first,err:ValueError", "wait:second,ok"],
        "e-waits": ["wait:third,ok"],
        "default": ["ok"],
    }
    with HarborServer(tmp_path / "server") as server:
        job_id = server.submit("job", tasks, script, concurrent=3)
        rollouts = {r["task"]["name"]: r["id"] for r in server.rollouts(job_id)}
        scene = Scene(server)
        exporter = ExporterProcess([], tmp_path / "ledger", "--harbor-server", server.url)
        with exporter, Watcher(exporter) as watcher:
            scene.until("0/3/2/0/0")
            server.post(f"/rollouts/{rollouts['d-never']}/cancel")
            scene.until("0/3/1/0/1")
            phases = {"a-waits": "agent", "b-starts": "environment", "c-grades": "verifier"}
            scene.until_phases(phases)
            server.open_gate("first")
            # The ValueError is graded all the same: a verdict that stands. The next trial begins.
            scene.until("1/3/0/0/1")
            # There is no slot for the retry. It waits, and then nothing comes of it.
            eventually(lambda: server.try_post(f"/rollouts/{rollouts['a-waits']}/retry"), 30.0)
            scene.until("0/4/0/0/1")
            (waiting,) = {r["id"] for r in server.rollouts(job_id)} - set(rollouts.values())
            server.post(f"/rollouts/{waiting}/cancel")
            scene.until("1/3/0/0/1")
            assert scene.counter("run_verdicts_discarded_total") == 0
            server.post(f"/rollouts/{rollouts['a-waits']}/retry")
            server.open_gate("third")
            scene.until("1/3/0/0/1")
            server.open_gate("second")
            run = scene.until("2/2/0/0/1")
            assert run.passed == 2
            assert scene.counter("run_verdicts_discarded_total") == 1
            server.post(f"/jobs/{job_id}/cancel")
            run = scene.until("2/0/0/2/1")
            assert {fault.exception_type for t in run.tasks for fault in t.faults} == {
                "CancelledError"
            }
            ended = "harborlight_job_state"
            eventually(lambda: exporter.value(ended, state="cancelled") == 1, 30.0)
            page = exporter.page()
            assert page.states(page.only_run()) == (2, 0, 0, 2, 1)
        watcher.check()
        assert watcher.highest("harborlight_run_attempts_target") == 5


def test_a_kill(tmp_path: Path) -> None:
    """What ran when the server died is lost, what was queued goes on when it is told to."""
    tasks = write_tasks(tmp_path / "tasks", ["a", "b", "c"])
    script = {"c": ["wait:gate,ok"], "default": ["hang"]}
    with HarborServer(tmp_path / "server") as server:
        job_id = server.submit("job", tasks, script, concurrent=2)
        scene = Scene(server)
        scene.until("0/2/1/0/0")
        scene.until_phases({"a": "agent", "b": "agent"})
        server.kill()
        observation = scene.source.look(time.time())
        assert len(observation.failures) == 1
        scene.ledger.take(observation)
        (run,) = scene.ledger.runs()
        assert states(run) == "0/2/1/0/0"
        assert [job.state for job in scene.ledger.jobs()] == ["unknown"]
        server.start()
        run = scene.until("0/0/1/2/0")
        assert [job.state for job in scene.ledger.jobs()] == ["live"]
        assert {fault.exception_type for t in run.tasks for fault in t.faults} == {"RuntimeError"}
        server.open_gate("gate")
        server.post(f"/jobs/{job_id}/resume")
        scene.until("1/0/0/2/0")
        server.wait(job_id)
        scene.look()
        assert [job.state for job in scene.ledger.jobs()] == ["finished"]
        assert scene.counter("run_faults_total") == 2
