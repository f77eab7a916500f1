"""Faults of every kind in real Harbor jobs, and plans that close all of them.

Each command of a plan is run as it is printed; afterwards the run is complete, and nothing was
counted twice.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.deadline import eventually
from support.exporter import command, metrics_once
from support.harbor import HarborJob, harbor_command, harbor_environment
from support.harbor_local.tasks import until_mended, write_task, write_tasks
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
def evaluation(tmp_path: Path) -> Iterator[Evaluation]:
    yield Evaluation(tmp_path)


def test_twelve_kinds_of_fault(evaluation: Evaluation) -> None:
    """Each once in the list with its phase, cause and boundary, and none left by the plan."""
    tasks = write_tasks(evaluation.work / "first", ["retried", "refused", "conflict", "steady"])
    write_task(tasks, "no-reward", verifier=until_mended("true"))
    write_task(tasks, "empty-reward", verifier=until_mended("> /logs/verifier/reward.txt"))
    write_task(tasks, "odd-reward", verifier=until_mended("echo x > /logs/verifier/reward.txt"))
    write_task(tasks, "slow-verifier", verifier=until_mended("sleep 60"), verifier_timeout=1)
    write_task(tasks, "no-start", environment={"START_FAIL": "no image"})
    write_task(tasks, "slow-start", environment={"START_HANG": "60"}, build_timeout=1)
    script = {
        "retried": ["err:ApiOverloadedError", "ok"],
        "refused": ["err:AuthenticationError", "ok"],
        "conflict": ["err:ApiRateLimitError", "ok"],
        "steady": ["ok,err:AgentTimeoutError"],
        "default": ["ok"],
    }
    retry = {
        "max_retries": 1,
        "include_exceptions": ["ApiOverloadedError"],
        "min_wait_sec": 0.1,
        "wait_multiplier": 1.0,
    }
    first = evaluation.job("first")
    first.run(tasks, *RECORDER, *VERDICT, script=script, config={"retry": retry}, concurrent=8)
    first.wait()

    write_task(evaluation.work / "apart", "apart", verifier=until_mended("true"), separate_verifier=True)
    write_task(evaluation.work / "apart", "graded", separate_verifier=True)
    apart = evaluation.job("apart")
    apart.run(evaluation.work / "apart", *RECORDER, *VERDICT, script={"default": ["ok"]})
    apart.wait()

    stopped_tasks = write_tasks(evaluation.work / "stopped", ["stopped", "unbegun"])
    with evaluation.job("stopped") as stopped:
        script = {"stopped": ["wait:never", "ok"], "unbegun": ["wait:never", "ok"]}
        stopped.run(stopped_tasks, *RECORDER, script=script, concurrent=1)
        eventually(lambda: stopped.agent_calls() == 1 or None, 30.0, what="an agent at work")
        assert stopped.interrupt() == 130

    killed_tasks = write_tasks(evaluation.work / "killed", ["killed", "garbled"])
    with evaluation.job("killed") as killed:
        script = {"killed": ["wait:never", "ok"], "garbled": ["ok"]}
        killed.run(killed_tasks, *RECORDER, script=script, concurrent=2)
        eventually(
            lambda: (killed.agent_calls() == 2 and len(killed.trial_results()) == 1) or None,
            30.0,
            what="one trial done, one in its agent",
        )
        killed.kill()
    (result,) = killed.path.glob("garbled__*/result.json")
    # The recorder has seen its end: what it wrote is as good as the file.
    os.truncate(result, 100)

    lost_tasks = write_tasks(evaluation.work / "lost", ["lost", "kept"])
    lost = evaluation.job("lost")
    script = {"lost": ["err:AuthenticationError", "ok"], "kept": ["ok"]}
    lost.run(lost_tasks, *VERDICT, script=script)
    lost.wait()
    os.truncate(lost.path / "lock.json", 0)

    kinds = [
        (f["task"], f["phase"], f["cause"], f["exception_type"], f["resolution"], f["boundary"])
        for f in evaluation.ask("faults")
    ]
    for kind in sorted(kinds): print(kind)
    print(json.dumps(evaluation.ask("replay-plan", "all"), indent=1))
    steps = evaluation.run_plan()
    print(evaluation.page().states("all"))
    print(json.dumps(evaluation.ask("faults"), indent=0))
    print(json.dumps(evaluation.ask("replay-plan", "all"), indent=1))
    assert 0
