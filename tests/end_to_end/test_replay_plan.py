"""Faults of every kind in real Harbor jobs, and plans that close all of them.

Each command of a plan is run as it is printed; afterwards the run is complete, and nothing was
counted twice.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.deadline import eventually
from support.exporter import command, metrics_once
from support.harbor import HarborJob, harbor_command, harbor_environment
from support.harbor_local.tasks import NO_REWARD_FILE, until_mended, write_task, write_tasks
from support.page import Page

pytestmark = pytest.mark.real_harbor

RECORDER = ("--plugin", "harborlight")
VERDICT = ("--ve", "VERDICT=${VERDICT}")
"""The verifiers' variable is that of Harbor's own environment, when they run."""

MENDED = {"MENDED": "yes", "VERDICT": "yes"}


class Evaluation:
    """One run over all the jobs in a folder, looked at with Harborlight's commands."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.jobs = work / "jobs"
        self.config = work / "harborlight.yml"
        self.config.write_text(
            yaml.safe_dump({"jobs": [str(self.jobs)], "runs": [{"name": "all", "jobs": ["*"]}]})
        )

    def job(self, name: str) -> HarborJob:
        job = HarborJob(self.jobs, name, self.work)
        job.environment["VERDICT"] = ""
        return job

    def ask(self, *arguments: str) -> Any:
        """A command's JSON."""
        done = subprocess.run(
            [*command(), *arguments, "--format", "json", "--config.file", str(self.config)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return json.loads(done.stdout)

    def page(self) -> Page:
        return metrics_once(["--config.file", self.config])

    def run_plan(self) -> list[dict[str, Any]]:
        """Run every command of the plan, after everything was mended; the plan's steps."""
        plan = self.ask("replay-plan", "all")
        program = harbor_command()
        assert program is not None
        path = os.pathsep.join([str(Path(program).parent), os.environ["PATH"]])
        for step in plan["steps"]:
            subprocess.run(
                ["bash", "-ec", "\n".join(step["commands"])],
                env=harbor_environment(self.work) | MENDED | {"PATH": path},
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
                check=True,
            )
        return list(plan["steps"])


@pytest.fixture
def evaluation(tmp_path: Path) -> Evaluation:
    return Evaluation(tmp_path)


def faults_of_every_kind(evaluation: Evaluation) -> None:
    """Six jobs: one with most of the kinds, and one for each way in which a job itself ends."""
    work = evaluation.work
    tasks = write_tasks(work / "first", ["retried", "refused", "limited", "steady"])
    write_task(tasks, "no-reward", verifier=until_mended("true"))
    write_task(tasks, "empty-reward", verifier=until_mended("> /logs/verifier/reward.txt"))
    write_task(tasks, "odd-reward", verifier=until_mended("echo x > /logs/verifier/reward.txt"))
    write_task(tasks, "slow-verifier", verifier=until_mended("sleep 60"), verifier_timeout=1)
    write_task(tasks, "no-start", environment={"START_FAIL": "no image"})
    write_task(tasks, "slow-start", environment={"START_HANG": "60"}, build_timeout=1)
    script = {
        "retried": ["err:ApiOverloadedError", "ok"],
        "refused": ["err:AuthenticationError", "ok"],
        "limited": ["err:ApiRateLimitError", "ok"],
        "steady": ["ok,err:AgentTimeoutError"],
        "default": ["ok"],
    }
    retry = {
        "max_retries": 1,
        "include_exceptions": ["ApiOverloadedError"],
        "min_wait_sec": 0.1,
        "wait_multiplier": 1.0,
    }
    first, apart, lost, spoilt = map(evaluation.job, ("first", "apart", "lost", "spoilt"))
    first.run(tasks, *RECORDER, *VERDICT, script=script, config={"retry": retry}, concurrent=8)

    # Of these two one can be regraded without its agent; the other has its verdict.
    write_task(work / "apart", "apart", verifier=until_mended("true"), separate_verifier=True)
    write_task(work / "apart", "graded", separate_verifier=True)
    apart.run(work / "apart", *RECORDER, *VERDICT, script={"default": ["ok"]})

    # A job that cannot be resumed any more, and one with a result that cannot be read.
    script = {"lost": ["err:AuthenticationError", "ok"], "kept": ["ok"]}
    lost.run(write_tasks(work / "lost", ["lost", "kept"]), script=script)
    spoilt.run(write_tasks(work / "spoilt", ["spoilt"]), script={"spoilt": ["ok"]})
    for job in (first, apart, lost, spoilt):
        job.wait()
    os.truncate(lost.path / "lock.json", 0)
    (result,) = spoilt.path.glob("spoilt__*/result.json")
    os.truncate(result, 100)

    waits = ["wait:never", "ok"]
    with evaluation.job("stopped") as stopped, evaluation.job("killed") as killed:
        dataset = write_tasks(work / "stopped", ["stopped", "unbegun"])
        script = {"stopped": waits, "unbegun": ["ok"]}
        stopped.run(dataset, *RECORDER, script=script, concurrent=1)
        dataset = write_tasks(work / "killed", ["killed"])
        killed.run(dataset, *RECORDER, script={"killed": waits})

        def both_work() -> bool:
            return (stopped.agent_calls(), killed.agent_calls()) == (1, 1)

        eventually(both_work, 30.0, what="an agent at work in either")
        assert stopped.interrupt() == 130
        killed.kill()


KINDS = {
    "apart": ("verifier", "verifier", "RewardFileNotFoundError", "regrade"),
    "empty-reward": ("verifier", "verifier", "RewardFileEmptyError", "resume"),
    "killed": ("agent", "interrupted", "none", "resume"),
    "limited": ("agent", "serving", "ApiRateLimitError", "resume"),
    "lost": ("agent", "serving", "AuthenticationError", "rerun"),
    "no-reward": ("verifier", "verifier", "RewardFileNotFoundError", "resume"),
    "no-start": ("environment", "container", "SandboxBuildFailedError", "resume"),
    "odd-reward": ("verifier", "verifier", "VerifierOutputParseError", "resume"),
    "refused": ("agent", "serving", "AuthenticationError", "resume"),
    "retried": ("agent", "serving", "ApiOverloadedError", None),
    "slow-start": ("environment", "container", "EnvironmentStartTimeoutError", "resume"),
    "slow-verifier": ("verifier", "verifier", "VerifierTimeoutError", "resume"),
    "spoilt": ("unknown", "unreadable", "none", "resume"),
    "stopped": ("agent", "cancelled", "CancelledError", "resume"),
}
"""Phase, cause, exception type and boundary of the one fault of each task. ``steady``, ``kept`` and
``graded`` have none, ``unbegun`` never began."""

ALONE = {"killed", "spoilt", "stopped"}
"""In jobs of their own."""


def test_faults_of_every_kind_and_a_plan_that_closes_them(evaluation: Evaluation) -> None:
    """14 faults: Harbor retried one, 13 are open; with what never began 14 attempts are missing."""
    faults_of_every_kind(evaluation)
    faults = evaluation.ask("faults")
    assert {
        f["task"]: (f["phase"], f["cause"], f["exception_type"], f["boundary"]) for f in faults
    } == KINDS
    assert len(faults) == len(KINDS)
    assert evaluation.page().states("all") == (4, 0, 0, 13, 1)

    steps = evaluation.run_plan()
    assert {(s["boundary"], *s["attempts"]) for s in steps} == {
        ("regrade", "apart"),
        ("resume", *sorted(t for t in KINDS if KINDS[t][3] == "resume" and t not in ALONE)),
        ("resume", "killed"),
        ("resume", "spoilt"),
        ("resume", "stopped", "unbegun"),
        ("rerun", "lost"),
    }
    assert {n for s in steps for n in s["attempts"].values()} == {1}
    page = evaluation.page()
    assert page.states("all") == (18, 0, 0, 0, 0)
    assert page.value("harborlight_run_attempts_passed", run="all") == 18
    assert page.value("harborlight_run_attempts_surplus", run="all") == 0
    assert page.value("harborlight_run_faults_by_resolution", run="all", resolution="open") == 0
    after = {f["task"]: f["resolution"] for f in evaluation.ask("faults")}
    # What cannot be read Harbor keeps beside its replacement; nobody kept what it said.
    assert after == {
        **dict.fromkeys(KINDS, "replayed"),
        "apart": "regraded",
        "retried": "retried",
    }
    again = evaluation.ask("replay-plan", "all")
    assert (again["missing"], again["steps"], again["not_planned"]) == (0, [], [])


def test_a_task_that_was_mended(evaluation: Evaluation) -> None:
    """Harbor does not resume its job any more, so a new one is planned; the other tasks stay."""
    dataset = write_tasks(evaluation.work / "set", ["fine"])
    write_task(dataset, "broken", verifier=NO_REWARD_FILE)
    job = evaluation.job("job")
    job.run(dataset, *RECORDER, script={"default": ["ok"]})
    job.wait()
    (step,) = evaluation.ask("replay-plan", "all")["steps"]
    assert (step["boundary"], step["attempts"]) == ("resume", {"broken": 1})
    write_task(dataset, "broken")
    plan = evaluation.ask("replay-plan", "all")
    (hint,) = plan["hints"]
    assert hint.startswith("Tasks of job job are another version now: broken.")
    (step,) = evaluation.run_plan()
    assert (step["boundary"], step["attempts"]) == ("rerun", {"broken": 1})
    page = evaluation.page()
    assert page.states("all") == (2, 0, 0, 0, 0)
    assert [fault["resolution"] for fault in evaluation.ask("faults")] == ["replayed"]
