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
from support.page import Page
from support.rule_tests import Clock, Episode, Told, in_short, told

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
        self.pages: list[Page | None] = []
        self._now = 0.0
        self._folder = folder
        self._service = Service(
            Ledger(Store.throw_away()),
            [JobDirectorySource([folder])],
            statistics=Statistics(default=shipped(DEMO_REFERENCE)),
            clock=lambda: self._now,
        )
        self.look_until(START)

    @property
    def minute(self) -> int:
        """That of the last look."""
        return len(self.pages) - 1

    def look_until(self, time: float) -> None:
        """Once for every minute before that time."""
        while len(self.pages) * MINUTE < time:
            self._now = len(self.pages) * MINUTE
            page = self._service.refresh()
            self.pages.append(in_short(page.render("text/plain")[1].decode()))

    def look_on(self, minutes: int) -> None:
        self.look_until((len(self.pages) + minutes) * MINUTE)

    def told(self) -> Told:
        return told(self.pages, Clock(0), self._folder)

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


COMPLETE = f'HarborlightRunComplete{{run="{JOB_NAME}"}}'


@pytest.mark.parametrize("concurrency", [8, 16, 32])
def test_a_healthy_run_alerts_nobody(tmp_path: Path, concurrency: int) -> None:
    """From before its start until a day after its end; nothing is even on its way to an alert."""
    watch = Watch(tmp_path, replay(tmp_path, HEALTHY, concurrency))
    watch.follow()
    assert watch.job.state == "finished"
    end = watch.minute
    watch.look_on(24 * 60)
    found = watch.told()
    assert not found.pending
    assert found.firing.keys() == {COMPLETE}
    # For an hour, so that whoever has no e-mail yet gets one.
    assert found.once(COMPLETE) == Episode(end + 1, end + 60)


def test_a_job_that_is_killed_and_resumed(tmp_path: Path) -> None:
    """Its page comes a minute after it is seen to be dead, and is over when it goes on."""
    watch = Watch(tmp_path, replay(tmp_path, HEALTHY[:63], 16))
    watch.follow(START + 2 * HOUR)
    watch.job.kill()
    dead = watch.minute + 1
    watch.look_on(30)
    watch.job.resume(pause=len(watch.pages) * MINUTE - START - watch.job.now)
    last_dead = watch.minute
    watch.follow()
    assert watch.job.state == "finished"
    watch.look_on(5)
    found = watch.told()
    interrupted = f'HarborlightJobInterrupted{{harbor_job="{JOB_NAME}", run="{JOB_NAME}"}}'
    assert found.firing.keys() == {interrupted, COMPLETE}
    assert found.once(interrupted) == Episode(dead + 1, last_dead)


def test_containers_that_cannot_be_built(tmp_path: Path) -> None:
    """From the start on, for an hour: the page comes with the fifth fault and five minutes."""
    broken = Execution(exception_type="SandboxBuildFailedError", environment=240.0)
    scripts = tuple(
        replace(script, executions=(broken, *script.executions)) for script in HEALTHY[:32]
    )
    watch = Watch(tmp_path, replay(tmp_path, scripts, 16, max_retries=1))
    watch.follow()
    watch.look_on(5)
    found = watch.told()
    burst = f'HarborlightContainerFaultBurst{{cause="container", run="{JOB_NAME}"}}'
    assert found.firing.keys() == {burst, COMPLETE}
    # Sixteen fail after four minutes. The next look sees it, and a fault is counted when it has
    # been settled for a minute: with the second or third one after that.
    assert found.firing[burst][0].first in (60 + 5 + 1 + 5, 60 + 5 + 2 + 5)


def test_a_run_in_which_every_trial_hangs(tmp_path: Path) -> None:
    """A warning, once nothing has ended for eight hours; and that the end moves away."""
    hang = Execution(reward=1.0, agent=60 * HOUR)
    scripts = (*HEALTHY[:48], *(TrialScript(f"hangs-{i}", (hang,)) for i in range(4)))
    watch = Watch(tmp_path, replay(tmp_path, scripts, 52))
    watch.follow(START + 30 * HOUR)
    longest = max(script.executions[0].seconds for script in HEALTHY[:48])
    found = watch.told()
    stalled = f'HarborlightRunStalled{{run="{JOB_NAME}"}}'
    slipping = f'HarborlightEtaSlipping{{run="{JOB_NAME}"}}'
    assert found.firing.keys() == {stalled, slipping}
    # Eight hours after the last end was seen, and its five minutes.
    quiet_from = int(START + longest) // MINUTE + 1
    assert found.once(stalled).first in (quiet_from + 8 * 60 + 5, quiet_from + 8 * 60 + 6)
    watch.job.kill()
