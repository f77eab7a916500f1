"""The loop: what a refresh publishes, and what it costs when something fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy.exc

from harborlight.ledger import Ledger, Store
from harborlight.ledger.book import Rules
from harborlight.ledger.pools import PoolDefinition
from harborlight.ledger.runs import RunDefinition
from harborlight.ledger.store import Changes
from harborlight.readings import ReplicaState
from harborlight.records import TrialRecord
from harborlight.reference import Reference, ReferenceTask
from harborlight.service import Reload, Service, Source
from harborlight.sources.observation import JobSighting, Observation, Problem
from harborlight.statistics.runs import Statistics
from support.deadline import eventually
from support.page import Page
from support.records import job_record, plan, trial
from support.replicas import observed, sighting

TARGET = 3
DIFFERENCE = "harborlight_run_success_difference"
SUCCESS = "harborlight_collector_success"
LAST_SUCCESS = "harborlight_collector_last_success_timestamp_seconds"
DURATION = "harborlight_collector_duration_seconds"
SNAPSHOT = "harborlight_snapshot_timestamp_seconds"
RELOADED = "harborlight_config_last_reload_successful"


class Clock:
    """Seconds since the epoch, as a test sets them."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Jobs:
    """A source with one job of three attempts; a test scores them, or breaks it."""

    def __init__(self, name: str = "jobs") -> None:
        self.name = name
        self.trials: list[TrialRecord] = []
        self.failures: tuple[Problem, ...] = ()
        self.error: Exception | None = None
        self.looks = 0
        self.looked = threading.Event()

    def score(self, name: str) -> None:
        self.trials.append(trial(name, f"id-{name}", reward=1.0))

    def look(self, now: float) -> Observation:
        self.looks += 1
        self.looked.set()
        if self.error is not None:
            raise self.error
        sighting = JobSighting(job_record("job", plan(TARGET)), held=True)
        return Observation(
            jobs={"job": sighting},
            trials=tuple(self.trials),
            present_jobs=frozenset({"job"}),
            failures=self.failures,
        )


class Idle:
    """A source that finds nothing new, or raises."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.error: Exception | None = None

    def look(self, now: float) -> Observation:
        if self.error is not None:
            raise self.error
        return Observation()


class Disk(Store):
    """A store whose writes fail, or wait, when a test says so."""

    full = False
    writes = 0

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.free = threading.Event()
        self.free.set()
        self.waiting = threading.Event()

    def write(self, changes: Changes) -> None:
        self.waiting.set()
        assert self.free.wait(30)
        self.waiting.clear()
        if self.full:
            raise sqlalchemy.exc.OperationalError("INSERT", {}, OSError("no space left"))
        super().write(changes)
        self.writes += 1


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with Disk.open_writer(tmp_path / "data") as store:
        assert isinstance(store, Disk)
        yield store


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def service(disk: Disk, jobs: Jobs, clock: Clock) -> Service:
    return Service(Ledger(disk), [jobs], clock=clock)


def shown(service: Service) -> Page:
    """What a scrape gets now."""
    page = service.page
    assert page is not None
    return Page(page.render("text/plain")[1].decode())


def scored(service: Service) -> int:
    page = shown(service)
    return page.states(page.only_run())[0]


def with_threads(service: Service) -> tuple[threading.Event, threading.Thread]:
    stop = threading.Event()
    thread = threading.Thread(target=service.run, args=(stop,))
    thread.start()
    return stop, thread


def end(service: Service, stop: threading.Event, thread: threading.Thread) -> None:
    stop.set()
    service.wake()
    thread.join(10)
    assert not thread.is_alive()


# Sources.


def test_nothing_is_shown_before_the_first_refresh(service: Service) -> None:
    assert service.page is None
    assert service.snapshot is None


def test_a_source_that_raises_costs_only_its_own_news(disk: Disk, jobs: Jobs, clock: Clock) -> None:
    other = Idle("other")
    service = Service(Ledger(disk), [other, jobs], clock=clock)
    service.refresh()
    other.error = RuntimeError("broken")
    jobs.score("a")
    clock.now = 1010.0
    service.refresh()
    page = shown(service)
    assert page.value(SUCCESS, collector="other") == 0
    assert page.value(LAST_SUCCESS, collector="other") == 1000
    assert page.value(DURATION, collector="other") >= 0
    for collector in ("jobs", "ledger"):
        assert page.value(SUCCESS, collector=collector) == 1
        assert page.value(LAST_SUCCESS, collector=collector) == 1010
    assert page.value(SNAPSHOT) == 1010
    assert scored(service) == 1


def test_statistics_that_break_down_cost_only_themselves(
    service: Service, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.score("a")
    with monkeypatch.context() as patch:
        patch.setattr(Statistics, "of", lambda *_: 1 / 0)
        service.refresh()
    page = shown(service)
    assert page.value(SUCCESS, collector="statistics") == 0
    assert page.value(SUCCESS, collector="ledger") == 1
    assert scored(service) == 1
    assert page.find("harborlight_run_success_ratio") == []
    jobs.score("b")
    service.refresh()
    page = shown(service)
    assert page.value(SUCCESS, collector="statistics") == 1
    assert page.value("harborlight_run_success_ratio", scope="attempted") == 1


def test_statistics_come_back_although_nothing_happened(
    disk: Disk, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the run and of its tasks, of which the reference passed 1 of 5 attempts."""
    reference = Reference("r", "R", {"task": ReferenceTask("task", 1, 5)})
    service = Service(Ledger(disk), [jobs], statistics=Statistics(default=reference))
    jobs.score("a")
    with monkeypatch.context() as patch:
        patch.setattr(Statistics, "of", lambda *_: 1 / 0)
        service.refresh()
    assert shown(service).find(DIFFERENCE) == []
    service.refresh()
    page = shown(service)
    assert page.value(DIFFERENCE, scope="attempted") == pytest.approx(1 - 1 / 5)
    assert page.value("harborlight_task_reference_attempts") == 5


def test_a_reload_takes_over_the_references(service: Service, jobs: Jobs) -> None:
    """Also where no job changed: what was compared with another reference is not shown again."""
    jobs.score("a")
    service.refresh()
    assert shown(service).find(DIFFERENCE) == []
    (run,) = service.snapshot.runs if service.snapshot else ()
    for passed, difference in ((1, 0.8), (3, 0.4)):
        tasks = {task.name: ReferenceTask(task.name, passed, 5) for task in run.tasks}
        statistics = Statistics(default=Reference("r", "R", tasks))
        service.reload(partial(Reload, Rules(), (jobs,), statistics, 5.0))
        service.refresh()
        page = shown(service)
        assert page.value(DIFFERENCE, scope="attempted") == pytest.approx(difference)
        assert page.value("harborlight_task_reference_passed") == passed


def test_what_a_broken_source_had_shown_stays(service: Service, jobs: Jobs) -> None:
    jobs.score("a")
    service.refresh()
    before = shown(service)
    jobs.error = RuntimeError("broken")
    service.refresh()
    page = shown(service)
    assert page.states(page.only_run()) == before.states(before.only_run())
    assert page.counters() == before.counters()
    jobs.error = None
    jobs.score("b")
    service.refresh()
    assert shown(service).value(SUCCESS, collector="jobs") == 1
    assert scored(service) == 2


def test_a_source_that_never_succeeded_has_no_last_success(service: Service, jobs: Jobs) -> None:
    jobs.error = RuntimeError("broken")
    service.refresh()
    page = shown(service)
    assert page.value(SUCCESS, collector="jobs") == 0
    assert page.find(LAST_SUCCESS, collector="jobs") == []


def test_a_look_that_failed_in_part_is_taken_in_and_said(
    service: Service, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    jobs.failures = (Problem("/some/place", "expected a folder, found nothing"),)
    jobs.score("a")
    service.refresh()
    service.refresh()
    assert shown(service).value(SUCCESS, collector="jobs") == 0
    assert scored(service) == 1
    said = [record for record in caplog.records if record.message == "cannot look"]
    assert len(said) == 1, "a failure that goes on is said once"
    jobs.failures = ()
    with caplog.at_level(logging.INFO, "harborlight"):
        service.refresh()
        service.refresh()
    over = [record for record in caplog.records if record.message == "can look again"]
    assert [vars(record)["subject"] for record in over] == ["/some/place"]


# The ledger.


def test_a_failed_write_shows_the_page_before_and_the_next_one_catches_up(
    service: Service, jobs: Jobs, disk: Disk, clock: Clock
) -> None:
    jobs.score("a")
    service.refresh()
    before = shown(service)
    disk.full = True
    jobs.score("b")
    for clock.now in (1010.0, 1020.0):
        service.refresh()
        page = shown(service)
        assert page.value(SUCCESS, collector="ledger") == 0
        assert page.value(LAST_SUCCESS, collector="ledger") == 1000
        assert page.value(SUCCESS, collector="jobs") == 1
        assert page.value(SNAPSHOT) == 1000
        assert page.states(page.only_run()) == before.states(before.only_run())
        assert page.counters() == before.counters()
    disk.full = False
    clock.now = 1030.0
    service.refresh()
    page = shown(service)
    assert page.value(SUCCESS, collector="ledger") == 1
    assert page.value(SNAPSHOT) == 1030
    assert scored(service) == 2
    assert len([e for e in disk.load().trials.values() if e.record.rewards]) == 2


def test_a_first_write_that_fails_shows_no_run_and_is_not_ready(
    service: Service, jobs: Jobs, disk: Disk, clock: Clock
) -> None:
    disk.full = True
    jobs.score("a")
    service.refresh()
    page = shown(service)
    assert page.label_values("harborlight_run_attempts", "run") == []
    assert page.value(SUCCESS, collector="ledger") == 0
    assert page.value(SNAPSHOT) == 0
    assert not service.ready
    disk.full = False
    service.refresh()
    assert service.ready
    assert scored(service) == 1
    assert shown(service).value(SNAPSHOT) == clock.now


def test_no_reader_sees_a_page_before_its_commit(service: Service, jobs: Jobs, disk: Disk) -> None:
    jobs.score("a")
    service.refresh()
    before = service.page
    jobs.score("b")
    disk.free.clear()
    refreshing = threading.Thread(target=service.refresh)
    refreshing.start()
    try:
        assert disk.waiting.wait(10)
        assert service.page is before
        assert scored(service) == 1
    finally:
        disk.free.set()
        refreshing.join(10)
    assert service.page is not before
    assert scored(service) == 2


def test_a_page_shows_only_what_the_store_holds(service: Service, jobs: Jobs, disk: Disk) -> None:
    for name in "abc":
        jobs.score(name)
        service.refresh()
        snapshot = service.snapshot
        assert snapshot is not None
        assert snapshot.ledger_trials == len(disk.load().trials)


# Pages.


def test_an_unchanged_refresh_writes_nothing_and_takes_over_the_bytes(
    service: Service, jobs: Jobs, disk: Disk, clock: Clock
) -> None:
    jobs.score("a")
    first = service.refresh()
    first.render("application/openmetrics-text")
    writes = disk.writes
    clock.now = 1010.0
    second = service.refresh()
    assert disk.writes == writes
    assert second.snapshot.version == first.snapshot.version
    assert second.bodies.keys() == {"text", "openmetrics"}
    for name, body in first.bodies.items():
        assert second.bodies[name] is body
    assert shown(service).value(SNAPSHOT) == 1010
    jobs.score("b")
    third = service.refresh()
    assert third.bodies["text"] != first.bodies["text"]
    assert third.formats == {"text", "openmetrics"}, "what was asked for is ready again"


def test_pages_without_the_task_families(disk: Disk, jobs: Jobs, clock: Clock) -> None:
    service = Service(Ledger(disk), [jobs], tasks=False, clock=clock)
    service.refresh()
    names = {sample.name for sample in shown(service).samples}
    assert "harborlight_run_attempts" in names
    assert not [name for name in names if name.startswith("harborlight_task_")]


# Reloading.


def _reload(*sources: Source, run: str = "renamed", interval: float = 5.0) -> Reload:
    rules = Rules(runs=(RunDefinition(label=run, jobs=("job",)),))
    return Reload(rules, sources, Statistics(), interval)


def test_a_reload_takes_over_rules_and_sources_with_the_next_refresh(
    service: Service, jobs: Jobs, clock: Clock
) -> None:
    jobs.score("a")
    service.refresh()
    fresh = Jobs()
    fresh.score("b")
    clock.now = 1010.0
    service.reload(lambda: _reload(fresh))
    before = shown(service)
    assert before.only_run() != "renamed"
    looks = jobs.looks
    service.refresh()
    page = shown(service)
    assert page.only_run() == "renamed"
    assert scored(service) == 2
    assert (jobs.looks, fresh.looks) == (looks, 1)
    assert page.value(RELOADED) == 1
    assert page.value("harborlight_config_last_reload_success_timestamp_seconds") == 1010


def test_a_refused_reload_keeps_the_configuration_before(
    service: Service, jobs: Jobs, clock: Clock
) -> None:
    service.refresh()
    run = shown(service).only_run()

    def refuse() -> Reload:
        raise ValueError("line 3: unknown key")

    clock.now = 1010.0
    with pytest.raises(ValueError, match="line 3"):
        service.reload(refuse)
    jobs.score("a")
    service.refresh()
    page = shown(service)
    assert page.only_run() == run
    assert scored(service) == 1
    assert page.value(RELOADED) == 0
    assert page.value("harborlight_config_last_reload_success_timestamp_seconds") == 1000
    service.reload(lambda: _reload(jobs))
    service.refresh()
    assert shown(service).value(RELOADED) == 1


def test_a_good_reload_and_then_a_refused_one_before_any_refresh(
    service: Service, jobs: Jobs
) -> None:
    """The good one is taken over, and the metric speaks of the last one."""
    service.refresh()

    def refuse() -> Reload:
        raise ValueError("bad")

    service.reload(lambda: _reload(jobs))
    with pytest.raises(ValueError, match="bad"):
        service.reload(refuse)
    service.refresh()
    page = shown(service)
    assert page.only_run() == "renamed"
    assert page.value(RELOADED) == 0


def test_a_reload_ends_the_wait_and_sets_the_interval(disk: Disk, jobs: Jobs) -> None:
    service = Service(Ledger(disk), [jobs], interval=3600)
    stop, thread = with_threads(service)
    try:
        eventually(lambda: service.page is not None, what="the first page")
        service.reload(lambda: _reload(jobs, interval=0.01))
        eventually(lambda: jobs.looks >= 5, what="refreshes at the new interval")
        assert shown(service).only_run() == "renamed"
    finally:
        end(service, stop, thread)


# The thread.


def test_the_thread_stops_at_once_however_long_the_interval(disk: Disk, jobs: Jobs) -> None:
    service = Service(Ledger(disk), [jobs], interval=3600)
    stop, thread = with_threads(service)
    try:
        eventually(lambda: service.page is not None, what="the first page")
    finally:
        end(service, stop, thread)
    assert jobs.looks == 1


def test_a_refresh_that_breaks_down_is_not_the_last(
    disk: Disk, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger(disk)
    service = Service(ledger, [jobs], interval=0.01)
    service.refresh()
    page = service.page

    def broken() -> tuple[()]:
        raise KeyError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "runs", broken)
        jobs.score("a")
        stop, thread = with_threads(service)
        try:
            seen = jobs.looks
            eventually(lambda: jobs.looks > seen + 2, what="further refreshes")
            assert service.page is page
            patch.undo()
            eventually(lambda: scored(service) == 1, what="the recovery")
        finally:
            end(service, stop, thread)
    assert any(record.message == "refresh failed" for record in caplog.records)


def test_what_an_earlier_process_committed_is_shown_even_if_nothing_can_be_written(
    tmp_path: Path,
) -> None:
    """A full disk at a restart: the page has the runs, with a timestamp that says how old."""
    jobs = Jobs()
    jobs.score("a")
    with Store.open_writer(tmp_path) as store:
        Service(Ledger(store), [jobs]).refresh()
    with Store.open_writer(tmp_path) as store:
        ledger = Ledger(store)
        (tmp_path / "ledger.sqlite").rename(tmp_path / "elsewhere")
        jobs.score("b")
        service = Service(ledger, [jobs])
        service.refresh()
        page = shown(service)
        assert not service.ready
    assert page.value("harborlight_run_attempts", state="scored") == 1
    assert page.value(SNAPSHOT) == 0
    assert page.value(SUCCESS, collector="ledger") == 0


def test_a_ledger_that_was_removed_is_noticed(tmp_path: Path) -> None:
    """Writes to a file without a name would be lost with the process."""
    jobs = Jobs()
    with Store.open_writer(tmp_path) as store:
        service = Service(Ledger(store), [jobs])
        service.refresh()
        (tmp_path / "ledger.sqlite").unlink()
        jobs.score("a")
        service.refresh()
        page = shown(service)
        assert page.value(SUCCESS, collector="ledger") == 0
        assert page.value("harborlight_run_attempts", state="scored") == 0


def test_a_run_without_jobs_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Once, so that a mistyped name does not go unnoticed."""
    rules = Rules(runs=(RunDefinition("mistyped", jobs=("jbo",)),))
    service = Service(Ledger(Store.throw_away(), rules), [Jobs()])
    with caplog.at_level("WARNING", logger="harborlight.service"):
        service.refresh()
        service.refresh()
    said = [(r.message, vars(r)["subject"]) for r in caplog.records]
    assert said == [("no job belongs to the run", "mistyped")]


class Replicas:
    """A source of one replica, in the state that a test puts it in."""

    name = "sglang"

    def __init__(self) -> None:
        self.state = ReplicaState.UP
        self.reason = ""

    def look(self, now: float) -> Observation:
        return observed(sighting(at=now, state=self.state, reason=self.reason))


def test_a_replica_s_state_is_logged_as_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    pool = PoolDefinition("pool", "Pool", jobs=(), runs=(), replicas=("r1",))
    replicas = Replicas()
    service = Service(Ledger(Store.throw_away(), Rules(pools=(pool,))), [replicas])
    with caplog.at_level("INFO", logger="harborlight.service"):
        for state, reason in (
            (ReplicaState.UP, ""),
            (ReplicaState.UP, ""),
            (ReplicaState.UNREACHABLE, "timed out"),
            (ReplicaState.UNREACHABLE, "timed out"),
            (ReplicaState.UP, ""),
        ):
            replicas.state, replicas.reason = state, reason
            service.refresh()
    said = [
        (r.levelname, vars(r)["subject"], vars(r)["state"], vars(r).get("reason", ""))
        for r in caplog.records
        if r.message == "replica state"
    ]
    assert said == [
        ("INFO", "pool/r1", "up", ""),
        ("WARNING", "pool/r1", "unreachable", "timed out"),
        ("INFO", "pool/r1", "up", ""),
    ]


def test_a_source_without_jobs_takes_none_away(disk: Disk, jobs: Jobs) -> None:
    """What knows nothing of jobs cannot tell that a job's directory is gone."""
    service = Service(Ledger(disk), [jobs, Replicas()])
    service.refresh()
    assert shown(service).value("harborlight_run_attempts", state="queued") == TARGET
    assert service.snapshot is not None
    assert [job.present for job in service.snapshot.jobs] == [True]
