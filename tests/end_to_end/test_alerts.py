"""The alerts with the real programs: what is broken for real, and who is told of it.

Jobs are replayed, simulated SGLang servers serve them, the exporter watches both, a real Prometheus
evaluates the rules and a real Alertmanager routes them to a receiver that keeps what it gets.
Everything is as many times faster than life as the replay is (support/alerting.py), except what the
exporter counts in seconds of its own: a file is unreadable after 5 s, a server that does not answer
is asked again after up to 30 s.
"""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import requests
import yaml

from dashboards.preview.processes import Program, free_port, running
from harborlight.demo.script import Execution, TrialScript
from harborlight.demo.serving import POOL, REPLICAS, listener, url
from support.alerting import INTERVAL, PAGING, Alerting, Page, alerting, installed
from support.deadline import eventually
from support.exporter import ExporterProcess
from support.faulty_pool import FaultyPool
from support.replaying import Replaying

pytestmark = [
    pytest.mark.skipif(not installed(), reason="needs prometheus and prometheus-alertmanager"),
    pytest.mark.slow,
]

PAGER, CHAT, LOG = "on-call", "team", "log"
PATIENCE: Final = 120.0
"""Seconds for anything that is waited for: hours of the time that is replayed."""

SCALE: Final = 150.0
"""How much faster than life things break: several at a time, as two processors can bear it."""

HEALTHY_SCALE: Final = 300.0
"""And how much faster a whole run is replayed, beside which nothing goes on."""


def settings(scale: float) -> dict[str, Any]:
    """Of the exporter: it looks as often as it is scraped."""
    return {"local_jobs": True, "refresh_interval": INTERVAL / scale}


def pool_settings(scale: float) -> dict[str, Any]:
    """Of a pool: half as often; less than a second is not long enough for the rest."""
    return {"timeout": 1, "scrape_interval": 2 * INTERVAL / scale, "frozen_after": 1}


RUNNING_REQUESTS: Final = "harborlight_replica_running_requests"

FINE = Execution(reward=1.0, environment=60.0, agent_setup=60.0, agent=1300.0, verifier=60.0)
LONG = Execution(reward=1.0, environment=60.0, agent_setup=60.0, agent=7000.0, verifier=60.0)


def failing(exception_type: str, minutes: float = 10.0) -> Execution:
    """An execution without a verdict, of about this length wherever it fails."""
    seconds = minutes * 60 / 4
    return Execution(
        exception_type=exception_type,
        environment=seconds,
        agent_setup=seconds,
        agent=seconds,
        verifier=seconds,
    )


def plan(*parts: tuple[int, Execution], version: str = "1") -> list[TrialScript]:
    """So many trials of each kind, each of a task of its own, in this order.

    No two in a row take the same time: those that start together do not end together.
    """
    kinds = [execution for count, execution in parts for _ in range(count)]
    return [
        TrialScript(f"task-{number:03}", (_somewhat(execution, number),), version=version)
        for number, execution in enumerate(kinds)
    ]


def _somewhat(execution: Execution, number: int) -> Execution:
    return replace(execution, agent=execution.agent * (0.8 + number * 7 % 10 * 0.04))


@dataclass
class Episode:
    """One fault: what it is, whom it has to tell what, and when things happened."""

    fault: str
    alert: str
    receiver: str
    labels: Mapping[str, str]
    alerting: Alerting
    broken_at: float = field(default_factory=time.time)
    page: Page | None = None
    mended_at: float = 0.0
    over_at: float = 0.0

    def paged(self) -> Page:
        """Wait for the page, and hold it to its receiver."""
        self.page = self.alerting.page(self.alert, PATIENCE, **self.labels)
        assert self.page.receiver == self.receiver
        return self.page

    def mended(self) -> None:
        """It is right again from now on."""
        self.mended_at = time.time()

    def over(self) -> None:
        """Wait until the page is told to be over."""
        assert self.page is not None
        self.over_at = self.alerting.resolved(self.page, PATIENCE)

    def check(self) -> None:
        """It was told once, and its end once."""
        for status in ("firing", "resolved"):
            told = self.alerting.told(status, self.alert, **self.labels)
            assert len(told) == 1, f"{self.alert} was told {len(told)} times as {status}"

    def tells(self, page: Page) -> bool:
        """Whether that is its page."""
        told = page.told
        return told.name == self.alert and self.labels.items() <= told.labels.items()

    @property
    def row(self) -> tuple[str, ...]:
        page = self.page.at - self.broken_at if self.page else float("nan")
        over = self.over_at - self.mended_at
        return (
            self.fault,
            self.alert,
            self.receiver,
            *(f"{n:.1f}" for n in (page, page * SCALE / 60, over, over * SCALE / 60)),
        )


# What is written down.


class Report:
    """For those who want to know how long it takes: on standard output and in a file."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, *lines: str) -> None:
        self._lines += lines
        sys.stdout.write("\n".join((*lines, "")))

    def episodes(self, episodes: Sequence[Episode]) -> None:
        """A table of what happened when."""
        self.add("", _ROW.format(*_HEAD), _ROW.format(*("---" for _ in _HEAD)))
        self.add(*(_ROW.format(*episode.row) for episode in episodes))

    def peaks(self, what: str, alerts: Alerting) -> None:
        """How far alerts came that did not fire, and which did."""
        slowest, peaks = alerts.slowest_scrape(), alerts.peaks()
        self.add("", f"{what}; the slowest scrape took {slowest:.2f} s.")
        self.add("Pending at most, as a share of `for`:", "")
        for name, share in sorted(peaks.items(), key=lambda item: (-item[1], item[0])):
            self.add(f"- {name}: {'fired' if share >= 1 else f'{share:.0%}'}")

    def write(self) -> None:
        if path := os.environ.get("HARBORLIGHT_ALERT_REPORT"):
            Path(path).write_text("\n".join((*self._lines, "")), encoding="utf-8")


_HEAD: Final = (
    "fault",
    "alert",
    "told",
    "page, s",
    "page, min of life",
    "end, s",
    "end, min of life",
)
_ROW: Final = "| {} | {} | {} | {} | {} | {} | {} |"


@pytest.fixture(scope="module")
def report() -> Iterator[Report]:
    made = Report()
    yield made
    made.write()


# A run in which nothing goes wrong.

QUICKEST: Final = 32
"""Trials at a time: the same work in the shortest time."""

_EVERY: Final = bool(os.environ.get("HARBORLIGHT_ALL_REPLAYS"))


@pytest.mark.parametrize("concurrency", [8, 16, 32] if _EVERY else [QUICKEST])
def test_a_healthy_run_pages_nobody(concurrency: int, tmp_path: Path, report: Report) -> None:
    jobs, config = tmp_path / "jobs", tmp_path / "harborlight.yml"
    jobs.mkdir()
    config.write_text(yaml.safe_dump(settings(HEALTHY_SCALE)))
    address = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        sockets = [stack.enter_context(listener()) for _ in REPLICAS]
        urls = dict(zip(REPLICAS, map(url, sockets), strict=True))
        pool = {"name": POOL, "replicas": [{"name": name, "url": at} for name, at in urls.items()]}
        exporter = stack.enter_context(_exporter(jobs, tmp_path, config, address))
        alerts = stack.enter_context(alerting(tmp_path / "alerting", address, scale=HEALTHY_SCALE))
        began = time.time()
        stack.enter_context(running(_replay(jobs, concurrency, sockets, tmp_path / "replay.log")))
        # Servers that were asked before they answer are asked again too late for this pace.
        eventually(
            lambda: [requests.get(f"{at}/metrics", timeout=5) for at in urls.values()],
            PATIENCE,
            what="the servers' answers",
        )
        config.write_text(
            yaml.safe_dump(
                settings(HEALTHY_SCALE) | {"pools": [pool_settings(HEALTHY_SCALE) | pool]}
            )
        )
        exporter.process.send_signal(signal.SIGHUP)
        complete = alerts.page("HarborlightRunComplete", _LONGEST)
        alerts.resolved(complete, PATIENCE)
        ended = time.time()
        assert exporter.value("harborlight_run_attempts", state="scored") == 315
        report.peaks(f"Healthy, {concurrency} at a time, {ended - began:.0f} s", alerts)
        told = [page.told for page in alerts.told("firing") if page.told.severity in PAGING]
    assert complete.receiver == LOG
    assert not told


def _replay(jobs: Path, concurrency: int, sockets: Sequence[socket.socket], log: Path) -> Program:
    """The whole run and its servers, as a process that takes the sockets over."""
    descriptors = [listening.fileno() for listening in sockets]
    command = [
        *(sys.executable, "-m", "harborlight.demo", "--jobs", str(jobs), "--healthy"),
        *("--speed", str(HEALTHY_SCALE), "--concurrency", str(concurrency)),
        *("--serve-on", ",".join(map(str, descriptors))),
    ]
    program = Program("replay", command, log, pass_fds=descriptors)
    for listening in sockets:
        listening.close()
    return program


_LONGEST: Final = 1200.0
"""Seconds that a whole replay takes at most."""


# What breaks, and who is told.


class Stage:
    """Everything that is needed to break something, and what has come of it."""

    def __init__(
        self,
        folder: Path,
        exporter: ExporterProcess,
        config: Path,
        alerts: Alerting,
        pools: Mapping[str, FaultyPool],
        address: str,
    ) -> None:
        self.jobs = folder / "jobs"
        self.data = folder / "data"
        self.exporter = exporter
        self.config = config
        self.alerting = alerts
        self.pools = pools
        self.episodes: list[Episode] = []
        self.address = address

    def job(
        self,
        name: str,
        scripts: Sequence[TrialScript] | None = None,
        *,
        start: bool = True,
        **options: Any,
    ) -> Replaying:
        """A job whose trials, unless others are given, are all fine."""
        replaying = Replaying(self.jobs, name, scripts or plan((60, FINE)), SCALE, **options)
        return replaying.start() if start else replaying

    @contextmanager
    def serving(
        self, name: str, scripts: Sequence[TrialScript] | None = None
    ) -> Iterator[tuple[Replaying, FaultyPool]]:
        """A job and the pool that it uses; when it is over both are gone."""
        with self.pools[name] as pool, self.job(f"{name}-1", scripts, serve=pool.serve) as job:
            yield job, pool

    def await_requests(self, pool: FaultyPool) -> None:
        """Until the exporter has seen some."""
        eventually(
            lambda: self.exporter.value(RUNNING_REQUESTS, pool=pool.name, replica="A") >= 3,
            PATIENCE,
            interval=INTERVAL / SCALE,
            what=f"requests at {pool.name}",
        )

    def broken(self, fault: str, alert: str, receiver: str, **labels: str) -> Episode:
        """Something is wrong from now on."""
        episode = Episode(fault, f"Harborlight{alert}", receiver, labels, self.alerting)
        self.episodes.append(episode)
        return episode


# What is broken. Each mends it again and waits for the end.

type Fault = Callable[[Stage], None]


def replica_killed(stage: Stage) -> None:
    """Its clients' errors, a burst of them, follow from it and are not told."""
    scripts = plan((6, FINE), (8, failing("ApiConnectionError")), (80, FINE))
    with stage.serving("replica-killed", scripts) as (job, pool):
        job.wait_for(6, PATIENCE)
        pool["A"].kill()
        episode = stage.broken("replica killed", "ReplicaDown", PAGER, pool=pool.name, replica="A")
        episode.paged()
        burst = "HarborlightServingFaultBurst"
        stage.alerting.await_firing(burst, PATIENCE, run=job.name)
        job.wait_for(14, PATIENCE)
        pool["A"].start()
        episode.mended()
        episode.over()
        stage.alerting.await_quiet(burst, PATIENCE, run=job.name)
        (page,) = [
            *stage.alerting.told("firing", pool=pool.name),
            *stage.alerting.told("firing", run=job.name),
        ]
        assert page == episode.page


def replica_frozen(stage: Stage) -> None:
    with stage.serving("frozen") as (job, pool):
        job.wait_for(3, PATIENCE)
        pool["A"].freeze()
        episode = stage.broken(
            "replica frozen", "ReplicaFrozen", PAGER, pool=pool.name, replica="A"
        )
        episode.paged()
        pool["A"].thaw()
        episode.mended()
        episode.over()


def replica_refuses_key(stage: Stage) -> None:
    with stage.serving("key") as (job, pool):
        job.wait_for(3, PATIENCE)
        pool["A"].unauthorized = True
        episode = stage.broken(
            "replica answers 401", "ReplicaUnauthorized", CHAT, pool=pool.name, replica="A"
        )
        episode.paged()
        pool["A"].unauthorized = False
        episode.mended()
        episode.over()


def no_tokens(stage: Stage) -> None:
    with stage.serving("no-tokens") as (_, pool):
        stage.await_requests(pool)
        pool["A"].server.stuck = True
        episode = stage.broken(
            "no tokens while requests run", "ReplicaNoTokens", PAGER, pool=pool.name, replica="A"
        )
        episode.paged()
        pool["A"].server.stuck = False
        episode.mended()
        episode.over()


def agents_cut_off(stage: Stage) -> None:
    with stage.serving("cut-off", plan((20, LONG))) as (_, pool):
        stage.await_requests(pool)
        pool.weigh(0)
        episode = stage.broken("agents cut off", "TrialsWithoutRequests", PAGER, pool=pool.name)
        episode.paged()
        pool.weigh(1)
        episode.mended()
        episode.over()


def kv_cache_full(stage: Stage) -> None:
    with stage.serving("kv") as (_, pool):
        stage.await_requests(pool)
        pool["A"].server.full = True
        episode = stage.broken(
            "KV cache full", "KvCacheSaturated", CHAT, pool=pool.name, replica="A"
        )
        episode.paged()
        pool["A"].server.full = False
        episode.mended()
        episode.over()


def queue_long(stage: Stage) -> None:
    with stage.serving("queue") as (_, pool):
        stage.await_requests(pool)
        pool.weigh(6)
        episode = stage.broken("queue long", "QueueLong", CHAT, pool=pool.name, replica="A")
        episode.paged()
        pool.weigh(1)
        episode.mended()
        episode.over()


def requests_aborted(stage: Stage) -> None:
    with stage.serving("aborts") as (_, pool):
        stage.await_requests(pool)
        pool["A"].server.hung_up = True
        episode = stage.broken(
            "requests aborted in bulk", "RequestsAborted", CHAT, pool=pool.name, replica="A"
        )
        episode.paged()
        pool["A"].server.hung_up = False
        episode.mended()
        episode.over()


def agents_left_behind(stage: Stage) -> None:
    with stage.serving("left-behind") as (job, pool):
        stage.await_requests(pool)
        job.close()
        pool.serve(4)
        episode = stage.broken("agents left behind", "RequestsWithoutTrials", CHAT, pool=pool.name)
        episode.paged()
        pool.serve(0)
        episode.mended()
        episode.over()


def another_model(stage: Stage) -> None:
    """Nothing can be mended about it but to stop."""
    with stage.serving("other-model") as (job, pool):
        episode = stage.broken(
            "another model served", "PoolModelMismatch", CHAT, pool=pool.name, run=job.name
        )
        episode.paged()
        job.close()
        episode.mended()
        episode.over()


def _burst(stage: Stage, name: str, exception_type: str, alert: str, receiver: str) -> None:
    """From the first fault to the page, and from the last one to its end."""
    with stage.job(name, plan((6, FINE), (12, failing(exception_type)), (60, FINE))) as job:
        job.wait_for(6, PATIENCE)
        episode = stage.broken(f"burst of {exception_type}", alert, receiver, run=name)
        episode.paged()
        job.wait_for(18, PATIENCE)
        episode.mended()
        episode.over()


def containers_fail(stage: Stage) -> None:
    _burst(stage, "containers", "EnvironmentStartTimeoutError", "ContainerFaultBurst", PAGER)


def model_api_fails(stage: Stage) -> None:
    _burst(stage, "api", "ApiInternalServerError", "ServingFaultBurst", PAGER)


def verifiers_fail(stage: Stage) -> None:
    _burst(stage, "verifiers", "VerifierTimeoutError", "VerifierFaultBurst", PAGER)


def a_test_run_fails(stage: Stage) -> None:
    """Nobody gets up for a run that is called a test."""
    _burst(stage, "test-verifiers", "VerifierTimeoutError", "VerifierFaultBurst", CHAT)


def job_killed(stage: Stage) -> None:
    with stage.job("killed") as job:
        job.wait_for(3, PATIENCE)
        job.kill()
        episode = stage.broken(
            "job killed", "JobInterrupted", PAGER, run=job.name, harbor_job=job.name
        )
        episode.paged()
        job.replay.resume()
        job.start()
        episode.mended()
        episode.over()


def job_never_starts(stage: Stage) -> None:
    """Its files are there, its log is held open, and that is all."""
    with stage.job("never", start=False, epoch=datetime.now(UTC)) as job:
        while not (job.replay.job_dir / "result.json").exists():
            job.replay.advance()
        job.replay.advance()
        episode = stage.broken(
            "job never starts", "JobNeverStarted", PAGER, run=job.name, harbor_job=job.name
        )
        episode.paged()
        job.start()
        episode.mended()
        episode.over()


def result_unreadable(stage: Stage) -> None:
    with stage.job("unreadable") as job:
        job.wait_for(2, PATIENCE)
        broken = min(job.replay.job_dir.glob("*/result.json"))
        text = broken.read_text()
        broken.write_text(text[: len(text) // 2])
        episode = stage.broken("result unreadable", "UnreadableResults", CHAT, harbor_job=job.name)
        episode.paged()
        broken.write_text(text)
        episode.mended()
        episode.over()


def verdict_discarded(stage: Stage) -> None:
    """Harbor retries a trial that has a valid verdict; it is over when that is long ago."""
    graded = Execution(reward=1.0, exception_type="BadGatewayError", agent=600.0)
    scripts = [TrialScript("task-graded", (graded, FINE)), *plan((60, LONG))]
    with stage.job("discarded", scripts, max_retries=1) as job:
        job.wait_for(1, PATIENCE)
        episode = stage.broken("verdict discarded", "VerdictsDiscarded", CHAT, run=job.name)
        episode.paged()
        episode.mended()
        episode.over()


def task_changed(stage: Stage) -> None:
    """A second job of the run has another version of its tasks; it is over with the run."""
    with stage.job("changed-1", plan((6, FINE))) as first:
        first.wait(PATIENCE)
    with stage.job("changed-2", plan((6, LONG), version="2")) as second:
        episode = stage.broken("task content changed", "TaskContentChanged", CHAT, run="changed")
        episode.paged()
        second.wait(PATIENCE)
        episode.mended()
        episode.over()


def faults_left_open(stage: Stage) -> None:
    """Until somebody runs again what is missing."""
    scripts = plan((8, FINE), (2, failing("VerifierTimeoutError")))
    with stage.job("left-open-1", scripts) as first:
        first.wait(PATIENCE)
    episode = stage.broken("faults left open", "OpenFaults", CHAT, run="left-open")
    episode.paged()
    with stage.job("left-open-2", plan((10, FINE))[8:]):
        episode.mended()
        episode.over()
        complete = stage.alerting.page("HarborlightRunComplete", PATIENCE, run="left-open")
        assert complete.receiver == LOG


def trial_hangs(stage: Stage) -> None:
    """A task's second trial takes long beyond what its first one did."""
    quick, slow = replace(FINE, agent=500.0), replace(LONG, agent=8000.0)
    others = plan((4, FINE))
    rounds = [[TrialScript("task-hangs", (one,)), *others] for one in (quick, slow)]
    scripts = [script for part in (*rounds, *[others] * 10) for script in part]
    with stage.job("hanging", scripts, concurrency=3) as job:

        def times(trials: Iterable[str]) -> int:
            return sum(trial.startswith("task-hangs") for trial in trials)

        eventually(lambda: times(job.started) == 2, PATIENCE, what="its start")
        episode = stage.broken("trial hangs", "TrialOverdue", CHAT, run=job.name, task="task-hangs")
        episode.paged()
        eventually(lambda: not times(job.running), PATIENCE, what="its end")
        episode.mended()
        episode.over()


FAULTS: tuple[Fault, ...] = (
    replica_killed,
    faults_left_open,
    verdict_discarded,
    trial_hangs,
    task_changed,
    kv_cache_full,
    queue_long,
    agents_left_behind,
    agents_cut_off,
    no_tokens,
    requests_aborted,
    replica_frozen,
    replica_refuses_key,
    another_model,
    result_unreadable,
    containers_fail,
    model_api_fails,
    verifiers_fail,
    a_test_run_fails,
    job_killed,
    job_never_starts,
)
"""Each in a run or a pool of its own, so that several can be brought about at once."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield _stage(tmp_path_factory.mktemp("alerts"), stack)


def _stage(folder: Path, stack: ExitStack) -> Stage:
    jobs, config = folder / "jobs", folder / "harborlight.yml"
    jobs.mkdir()
    pools = {
        "replica-killed": FaultyPool("replica-killed", "AB"),
        "other-model": FaultyPool("other-model", model="other"),
        **{
            name: FaultyPool(name)
            for name in (
                *("frozen", "key", "no-tokens", "cut-off"),
                *("kv", "queue", "aborts", "left-behind"),
            )
        },
    }
    for pool in pools.values():
        stack.enter_context(pool)
    document = settings(SCALE) | {
        "runs": [{"name": name, "jobs": [f"{name}-*"]} for name in ("changed", "left-open")],
        "pools": [
            pool_settings(SCALE)
            | {
                "name": pool.name,
                "jobs": [f"{pool.name}-*"],
                "replicas": [{"name": r.name, "url": r.url} for r in pool.replicas.values()],
            }
            for pool in pools.values()
        ],
    }
    config.write_text(yaml.safe_dump(document))
    # A restarted exporter has to be where it was; the other port is the one that it reports.
    address = f"127.0.0.1:{free_port()}"
    exporter = stack.enter_context(_exporter(jobs, folder, config, address))
    alerts = stack.enter_context(alerting(folder / "alerting", address, scale=SCALE))
    return Stage(folder, exporter, config, alerts, pools, address)


def _exporter(jobs: Path, folder: Path, config: Path, address: str) -> ExporterProcess:
    extra = ("--config.file", str(config), "--web.listen-address", address)
    return ExporterProcess([jobs], folder / "data", *extra, refresh=None)


@pytest.fixture(scope="module")
def outcomes(stage: Stage) -> Iterator[Mapping[str, Future[None]]]:
    """What has come of each fault; they are brought about side by side."""
    with ThreadPoolExecutor(_AT_ONCE) as workers:
        try:
            yield {fault.__name__: workers.submit(fault, stage) for fault in FAULTS}
        finally:
            workers.shutdown(cancel_futures=True)


_AT_ONCE: Final = 6
"""Faults at a time: as many as two processors bear."""


@pytest.mark.parametrize("fault", [fault.__name__ for fault in FAULTS])
def test_who_is_told(fault: str, outcomes: Mapping[str, Future[None]]) -> None:
    outcomes[fault].result()


# The exporter itself: one after the other, when the others are over.


@pytest.fixture(scope="module")
def quiet(stage: Stage, outcomes: Mapping[str, Future[None]]) -> Stage:
    """The stage when all of that is over."""
    wait(outcomes.values())
    return stage


def test_the_exporter_is_killed(quiet: Stage) -> None:
    quiet.exporter.kill()
    episode = quiet.broken("exporter killed", "ExporterDown", PAGER, instance=quiet.address)
    episode.paged()
    quiet.exporter.start()
    episode.mended()
    episode.over()


def test_the_ledger_is_locked(quiet: Stage) -> None:
    """What happens cannot be committed, so the page stays as it was."""
    with ExitStack() as stack:
        job = stack.enter_context(quiet.job("locked"))
        job.wait_for(1, PATIENCE)
        other = stack.enter_context(closing(sqlite3.connect(quiet.data / "ledger.sqlite")))
        other.execute("BEGIN IMMEDIATE")
        stale = quiet.broken("ledger locked", "SnapshotStale", PAGER, instance=quiet.address)
        collector = quiet.broken(
            "ledger locked", "CollectorFailing", CHAT, instance=quiet.address, collector="ledger"
        )
        for episode in (stale, collector):
            episode.paged()
        other.rollback()
        for episode in (stale, collector):
            episode.mended()
        for episode in (stale, collector):
            episode.over()


def test_the_configuration_is_wrong(quiet: Stage) -> None:
    right = quiet.config.read_text()
    quiet.config.write_text(right.replace("pools:", "poools:"))
    quiet.exporter.process.send_signal(signal.SIGHUP)
    episode = quiet.broken(
        "configuration wrong", "ConfigReloadFailed", CHAT, instance=quiet.address
    )
    episode.paged()
    quiet.config.write_text(right)
    quiet.exporter.process.send_signal(signal.SIGHUP)
    episode.mended()
    episode.over()


def test_prometheus_loses_the_target(quiet: Stage) -> None:
    """It takes up a new configuration within 5 s."""
    quiet.alerting.scrape()
    episode = quiet.broken("target gone", "ExporterAbsent", PAGER)
    episode.paged()
    quiet.alerting.scrape(quiet.address)
    episode.mended()
    episode.over()


def test_nobody_is_told_anything_else(quiet: Stage) -> None:
    """Each page came once, each end once; what else was told is a fault's lasting remains."""
    for episode in quiet.episodes:
        episode.check()
    others = {
        (page.told.name, page.told.severity, tuple(sorted(page.told.labels.items())))
        for page in quiet.alerting.told("firing")
        if not any(episode.tells(page) for episode in quiet.episodes)
    }
    assert {(name, severity) for name, severity, _ in others} <= REMAINS, others


REMAINS: Final = {
    # The faults of a burst stay open, and its run is stopped with them.
    ("HarborlightOpenFaults", "warning"),
    ("HarborlightRunComplete", "info"),
}
"""What may be told, of any run, beside what is waited for."""


def test_how_long_it_took(quiet: Stage, report: Report) -> None:
    report.episodes(quiet.episodes)
    report.peaks(f"Faults, {SCALE:g} times faster than life", quiet.alerting)
    assert len({episode.alert for episode in quiet.episodes}) >= 12
