"""The rules over whole replayed runs, minute by minute, at life's own pace.

A replay's clock is virtual: forty hours take seconds. The pages are the exporter's own, and the
rules are the committed ones, evaluated by promtool.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harborlight.demo import DEMO_REFERENCE
from harborlight.demo.replay import JobReplay
from harborlight.demo.script import Execution, TrialScript
from harborlight.demo.terminal_bench import JOB_NAME, OPTIONS, demo
from harborlight.ledger import Ledger, Store
from harborlight.service import Service
from harborlight.sources.job_directory import JobDirectorySource
from harborlight.sources.reference_files import shipped
from harborlight.statistics.runs import Statistics
from support.rule_tests import PageSeries, check, ever, firing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool"),
]

MINUTE, HOUR = 60, 3600
START = HOUR
"""When the job is made: for an hour the exporter sees nothing."""


class Watch:
    """An exporter that looks once a minute at a replay, by the replay's clock."""

    def __init__(self, folder: Path, job: JobReplay) -> None:
        self.job = job
        self.pages = PageSeries(MINUTE)
        self._now = 0.0
        self._service = Service(
            Ledger(Store.throw_away()),
            [JobDirectorySource([folder])],
            statistics=Statistics(default=shipped(DEMO_REFERENCE)),
            clock=lambda: self._now,
        )
        self.look_until(START)

    @property
    def end(self) -> int:
        return self.pages.end

    def look_until(self, time: float) -> None:
        """Once for every minute before that time."""
        while self.pages.length * MINUTE < time:
            self._now = self.pages.length * MINUTE
            page = self._service.refresh()
            self.pages.add(page.render("text/plain")[1].decode())

    def follow(self, until: float = float("inf")) -> None:
        """Let the job run on until then, or to its end."""
        while START + self.job.now < until and self._goes_on(self.job._pending):
            assert self.job._pending is not None
            self.look_until(min(START + self.job._pending.until, until))

    def _goes_on(self, waited: object) -> bool:
        """Whether it came to another wait than the one before."""
        state = self.job.run(until=lambda: self.job._pending is not waited)
        return state in ("ready", "running")


def replay(
    folder: Path, scripts: tuple[TrialScript, ...], concurrency: int, *, max_retries: int = 0
) -> JobReplay:
    return JobReplay(
        folder,
        JOB_NAME,
        scripts,
        concurrency=concurrency,
        max_retries=max_retries,
        options=replace(OPTIONS, outputs=False, zone=UTC),
        epoch=datetime.fromtimestamp(START, UTC),
    )


HEALTHY = demo(healthy=True).scripts


@pytest.mark.parametrize("concurrency", [8, 16, 32])
def test_a_healthy_run_alerts_nobody(tmp_path: Path, concurrency: int) -> None:
    """From before its start until a day after its end; nothing is even on its way to an alert."""
    watch = Watch(tmp_path, replay(tmp_path, HEALTHY, concurrency))
    watch.follow()
    assert watch.job.state == "finished"
    watch.look_until(watch.end + 24 * HOUR)
    check(
        tmp_path,
        watch.pages,
        [ever(watch.pages, ["HarborlightRunComplete"], "firing"), ever(watch.pages, [], "pending")],
    )


def test_a_job_that_is_killed_and_resumed(tmp_path: Path) -> None:
    """The page comes two minutes after the death, and is over when the job goes on."""
    watch = Watch(tmp_path, replay(tmp_path, HEALTHY[:63], 16))
    watch.follow(START + 2 * HOUR)
    watch.job.kill()
    killed = watch.end
    watch.look_until(killed + 30 * MINUTE)
    watch.job.resume(pause=watch.end - START - watch.job.now)
    watch.follow()
    assert watch.job.state == "finished"
    watch.look_until(watch.end + HOUR)
    check(
        tmp_path,
        watch.pages,
        [
            firing(killed, []),
            firing(killed + 2 * MINUTE, ["HarborlightJobInterrupted"]),
            firing(killed + 29 * MINUTE, ["HarborlightJobInterrupted"]),
            firing(killed + 35 * MINUTE, []),
            ever(
                watch.pages,
                ["HarborlightJobInterrupted", "HarborlightRunComplete"],
                "firing",
            ),
        ],
    )


def test_containers_that_cannot_be_built(tmp_path: Path) -> None:
    """From the start on: five minutes after the fifth the page comes, and goes with the faults."""
    broken = Execution(exception_type="SandboxBuildFailedError", environment=240.0)
    scripts = tuple(
        replace(script, executions=(broken, *script.executions)) for script in HEALTHY[:32]
    )
    watch = Watch(tmp_path, replay(tmp_path, scripts, 16, max_retries=1))
    watch.follow()
    watch.look_until(watch.end + HOUR)
    first = START + 240
    check(
        tmp_path,
        watch.pages,
        [
            firing(first, []),
            firing(first + 8 * MINUTE, ["HarborlightContainerFaultBurst"]),
            ever(
                watch.pages, ["HarborlightContainerFaultBurst", "HarborlightRunComplete"], "firing"
            ),
        ],
    )


STALLED = ["HarborlightRunStalled", "HarborlightEtaSlipping"]


def test_a_run_in_which_every_trial_hangs(tmp_path: Path) -> None:
    """A warning, once nothing has ended for long. Then the end moves away, too, which is the same.

    Alertmanager keeps the second one quiet.
    """
    hang = Execution(reward=1.0, agent=60 * HOUR)
    scripts = (*HEALTHY[:48], *(TrialScript(f"hangs-{i}", (hang,)) for i in range(4)))
    watch = Watch(tmp_path, replay(tmp_path, scripts, 52))
    watch.follow(START + 30 * HOUR)
    longest = max(script.executions[0].seconds for script in HEALTHY[:48])
    quiet_until = int(START + longest) // MINUTE * MINUTE
    check(
        tmp_path,
        watch.pages,
        [
            firing(quiet_until, []),
            firing(quiet_until + 8 * HOUR, []),
            firing(quiet_until + 9 * HOUR, STALLED),
            ever(watch.pages, STALLED, "firing"),
        ],
    )
