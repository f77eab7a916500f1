"""The alerts against pages of what was really recorded, from a job's first file to after its end.

Harborlight reads every moment as it does in ``serve``, one look a minute of the test's clock;
promtool says which of the committed rules would have told somebody. The recorded jobs were over
in seconds, so the clock is stretched (``Clock``): in each test a recorded second takes as many
as its ``stretch`` says. Who holds a job's log open cannot be recorded; the tests say it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from harborlight.ledger import Ledger, Store
from harborlight.ledger.book import Rules
from harborlight.ledger.pools import PoolDefinition
from harborlight.ledger.runs import RunDefinition
from harborlight.readings import ReplicaSighting
from harborlight.snapshot import of_ledger, with_statistics
from harborlight.sources.failure import Failure, Trouble
from harborlight.sources.job_directory import JobDirectorySource
from harborlight.sources.processes import LogHolders
from harborlight.sources.sglang.page import PageReading, read_page
from harborlight.sources.sglang.replica import ServerAnswers, sighting
from harborlight.statistics.runs import Statistics
from harborlight.views.metrics import Page as MetricsPage
from support.page import Page, assert_promises
from support.rule_tests import Clock, Told, told
from support.snapshots import Playback, Sequence

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool"),
]

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    """A job's own times have no time zone; the jobs were recorded in UTC."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


class Holders(LogHolders):
    """Says of the jobs with these names that a process has their log open, of the others not."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: set[str] = set()

    def look(self, logs: Iterable[Path]) -> dict[Path, bool | None]:
        return {log: log.parent.name in self.alive for log in logs}


class Watch:
    """Harborlight on a folder of jobs, and the page after every look."""

    def __init__(self, folder: Path, clock: Clock, rules: Rules | None = None) -> None:
        self.folder, self.clock = folder, clock
        self.jobs = folder / "jobs"
        self.jobs.mkdir()
        self.holders = Holders()
        self.source = JobDirectorySource([self.jobs], holders=self.holders)
        self.ledger = Ledger(Store.throw_away(), rules)
        self.statistics = Statistics()
        self.pages: list[Page | None] = []
        self._playbacks: dict[str, Playback] = {}
        self._rendered: MetricsPage | None = None

    @property
    def minute(self) -> int:
        """That of the next look."""
        return len(self.pages)

    def look(self, *, alive: Iterable[str] = (), replicas: Iterable[ReplicaSighting] = ()) -> Page:
        """Look once; ``alive``: the jobs that a process works on."""
        at = self.clock.recorded(self.minute)
        self.holders.alive = set(alive)
        self.ledger.take(replace(self.source.look(at), replicas=tuple(replicas)))
        snapshot = with_statistics(of_ledger(self.ledger, at), self.statistics)
        self._rendered = MetricsPage(snapshot, previous=self._rendered)
        page = Page(self._rendered.render("text/plain")[1].decode())
        assert_promises(page, self.pages[-1] if self.pages else None)
        self.pages.append(page)
        return page

    def until(self, minute: int, alive: Iterable[str] = ()) -> None:
        """Nothing changes up to that minute, which is not looked at yet."""
        while self.minute < minute:
            self.look(alive=alive)

    def play(self, recording: Sequence, job: str) -> None:
        """Show the recording under its own times, its process at work from its first file on."""
        playback = self._playbacks.setdefault(job, Playback(self.jobs / job))
        snapshots = recording.distinct()
        for number, snapshot in enumerate(snapshots):
            self.until(round(self.clock.minute(snapshot.time)), alive=[job] if number else [])
            playback.show(snapshot)
        self.look(alive=[job])

    def put(self, recorded: Path, job: str) -> None:
        """Have the job's directory look like the recorded one."""
        shutil.rmtree(self.jobs / job, ignore_errors=True)
        shutil.copytree(recorded, self.jobs / job)

    def told(self) -> Told:
        return told(self.pages, self.clock, self.folder)


def recorded(moment: str) -> float:
    """A time of day of the recordings, in seconds since the epoch."""
    return datetime.fromisoformat(f"2026-12-01T{moment}+00:00").timestamp()


def before(recording: Sequence) -> float:
    """A second before a recording's first file."""
    return recording.distinct()[0].time - 1


def runs(alert: str, run: str, **labels: str) -> str:
    """An alert of a run, as ``Told`` names it."""
    inside = ", ".join(f'{k}="{v}"' for k, v in sorted({"run": run, **labels}.items()))
    return f"{alert}{{{inside}}}"


def test_a_job_that_goes_well(tmp_path: Path, snapshots: Path) -> None:
    """30 attempts in four hours (24 s): nobody is told anything until the last of them has ended.

    One of them, with an ApiRateLimitError, has no verdict, and nothing is left to replace it: an
    hour later that is worth a warning. A single fault is no burst, and hits no five tasks.
    """
    recording = Sequence(snapshots / "mixed-6x5")
    watch = Watch(tmp_path, Clock(before(recording), 600))
    watch.play(recording, "mixed-6x5")
    end = watch.minute - 1
    watch.until(end + 150)
    assert end == 253
    open_faults = runs("HarborlightOpenFaults", "mixed-6x5")
    heard = watch.told()
    assert dict(heard.firing) == {open_faults: [(end + 60, end + 149)]}
    assert dict(heard.pending) == {open_faults: [(end, end + 59)]}


def test_a_job_that_is_cancelled_and_resumed(tmp_path: Path, snapshots: Path) -> None:
    """Whoever pressed Ctrl-C knows: only that the run is complete is told, for an hour.

    A recorded second is a minute here. The cancelled job lies for half an hour with 3 open faults
    of its 18 attempts; the last verdict came in minute 76.
    """
    first, second = (Sequence(snapshots / f"cancel-sigint{x}") for x in ("", ".resume"))
    watch = Watch(tmp_path, Clock(before(first), 60))
    watch.play(first, "cancel-sigint")
    watch.look()
    cancelled = watch.pages[-1]
    assert cancelled is not None
    assert cancelled.value("harborlight_job_state", state="cancelled") == 1
    watch.play(second, "cancel-sigint")
    watch.until(230)
    heard = watch.told()
    assert dict(heard.firing) == {runs("HarborlightRunComplete", "cancel-sigint"): [(76, 136)]}
    assert dict(heard.pending) == {}


def test_a_job_that_is_killed_and_resumed(tmp_path: Path, harbor_jobs: Path) -> None:
    """SIGKILL with 3 trials at work and 10 to go pages within a minute, until the resume.

    A recorded second is a minute; there is no recording of the minutes between, so the job looks
    as it did when it died until it is over. The 3 lost trials would be a warning in minute 70,
    an hour after it died; it is resumed before. The last verdict came at 01:37:06 (minute 116).
    """
    job = "crash-sigkill"
    watch = Watch(tmp_path, Clock(recorded("01:35:10"), 60))
    watch.until(7)
    watch.put(harbor_jobs / "crash-sigkill.before-resume", job)
    watch.until(10, alive=[job])
    watch.until(60)
    watch.until(64, alive=[job])
    watch.put(harbor_jobs / job, job)
    watch.until(117, alive=[job])
    watch.until(240)
    interrupted = runs("HarborlightJobInterrupted", job, harbor_job=job)
    heard = watch.told()
    assert heard.once(interrupted) == (11, 59)
    assert heard.pending[interrupted] == [(10, 10)]
    assert heard.pending[runs("HarborlightOpenFaults", job)] == [(10, 59)]
    assert heard.ever == {"HarborlightJobInterrupted", "HarborlightRunComplete"}
    # Its files tell of the end before minute 116, where the test shows them too early.
    assert heard.once(runs("HarborlightRunComplete", job)).last == 176


def test_a_job_whose_process_nobody_sees(tmp_path: Path, harbor_jobs: Path) -> None:
    """It may live, so nobody is paged; that two trials take far too long is told of their tasks.

    Both have run since 01:35:16, six seconds into the test, where less than a second is usual.
    They are an hour beyond it in minute 61, and 15 minutes later that is a warning. Of the task
    ``slow-verify``, of which a trial runs, too, nothing is known to be usual.
    """
    job = "crash-sigkill"
    watch = Watch(tmp_path, Clock(recorded("01:35:10")))
    watch.put(harbor_jobs / "crash-sigkill.before-resume", job)
    watch.until(120)
    heard = watch.told()
    assert dict(heard.firing) == {
        runs("HarborlightTrialOverdue", job, task=task): [(76, 119)]
        for task in ("count-lines", "frac-reward")
    }


def test_a_job_with_api_errors(tmp_path: Path, snapshots: Path) -> None:
    """Ten seconds of API errors, as ten minutes: a burst pages, and two open faults are told of.

    By hand, from the recording: serving faults are counted in the minutes 3, 8, 9, 10 (two) and
    11, verdicts 5 times. So there are 5 faults of 9 executions from minute 10 on, and until
    minute 37, when the window begins in minute 7; in minute 8 the second of them is out of it.
    The first of the two faults that stay is open from minute 3 on, which is one of 6 attempts.
    """
    recording = Sequence(snapshots / "retry-2")
    watch = Watch(tmp_path, Clock(before(recording), 60))
    watch.play(recording, "retry-2")
    watch.until(150)
    burst = runs("HarborlightServingFaultBurst", "retry-2", cause="serving")
    open_faults = runs("HarborlightOpenFaults", "retry-2")
    heard = watch.told()
    assert heard.once(burst) == (15, 37)
    assert heard.once(open_faults) == (63, 149)
    assert heard.pending[burst] == [(10, 14)]
    assert heard.ever <= {
        "HarborlightServingFaultBurst",
        "HarborlightOpenFaults",
        "HarborlightVerdictsDiscarded",
    }


def test_a_verdict_that_a_retry_deletes(tmp_path: Path, snapshots: Path) -> None:
    """Harbor retried a trial with a ValueError, which leaves a verdict valid: seen in minute 9."""
    recording = Sequence(snapshots / "retry-2")
    watch = Watch(tmp_path, Clock(before(recording), 60))
    watch.play(recording, "retry-2")
    watch.until(90)
    shown = [
        page.sum("harborlight_run_verdicts_discarded_total") for page in watch.pages[8:10] if page
    ]
    assert shown == [0, 1]
    discarded = runs("HarborlightVerdictsDiscarded", "retry-2")
    # The window of an hour begins with minute 8 in minute 68.
    assert watch.told().once(discarded) == (9, 68)


def test_a_job_with_faults_of_every_kind(tmp_path: Path, harbor_jobs: Path) -> None:
    """Two containers and four verifiers that failed, of 9 attempts: less than a burst of either.

    Six are open when the job is over (01:33:06, minute 3), and an hour later that is told.
    """
    watch = Watch(tmp_path, Clock(recorded("01:30:06")))
    watch.until(3)
    watch.put(harbor_jobs / "faulty-oracle", "faulty-oracle")
    watch.until(120)
    heard = watch.told()
    assert dict(heard.firing) == {runs("HarborlightOpenFaults", "faulty-oracle"): [(63, 119)]}


def test_a_task_that_changed_within_a_run(tmp_path: Path, harbor_jobs: Path) -> None:
    """A second job (of ``harbor diff``) has another version of one of three tasks.

    A recorded second is a minute. The first job's 6 verdicts are all there in minute 3; from
    minute 14 on the second is at work (without its results here), and the two on the old version
    count no more. 5 minutes later that is told, until its own are there in minute 40.
    """
    watch = Watch(tmp_path, Clock(recorded("01:38:38"), 60))
    watch.until(3)
    watch.put(harbor_jobs / "diff-src", "diff-src")
    watch.until(14)
    watch.put(harbor_jobs / "diff-new", "diff-new")
    for result in (watch.jobs / "diff-new").rglob("result.json"):
        result.unlink()
    watch.until(40, alive=["diff-new"])
    watch.put(harbor_jobs / "diff-new", "diff-new")
    watch.until(120)
    heard = watch.told()
    assert dict(heard.firing) == {
        # Complete, then not, then again: until an hour after the last verdict (01:38:53).
        runs("HarborlightRunComplete", "diff-src"): [(3, 13), (40, 75)],
        runs("HarborlightTaskContentChanged", "diff-src"): [(19, 39)],
    }


def test_two_jobs_for_the_same_attempts(tmp_path: Path, harbor_jobs: Path) -> None:
    """Of a run with three attempts a task, a second job brings 18 verdicts too many.

    It is seen in minute 30; 5 minutes later that is told, for as long as it is news: 6 hours.
    """
    both = RunDefinition("both", jobs=("cancel-sigint", "crash-sigkill"), attempts=3)
    watch = Watch(tmp_path, Clock(recorded("01:36:30")), Rules(runs=(both,)))
    watch.put(harbor_jobs / "cancel-sigint", "cancel-sigint")
    watch.until(30)
    watch.put(harbor_jobs / "crash-sigkill", "crash-sigkill")
    watch.until(450)
    heard = watch.told()
    assert heard.once(runs("HarborlightSurplusVerdicts", "both")) == (35, 389)
    assert heard.ever == {"HarborlightSurplusVerdicts", "HarborlightRunComplete"}


def test_a_job_whose_result_cannot_be_read(tmp_path: Path, harbor_jobs: Path) -> None:
    """It died while it wrote its own result: that pages, and 10 minutes later the file is told of.

    The empty file and the dead process are seen in minute 10. An hour later the 3 lost trials are
    told of as well.
    """
    job = "crash-sigkill"
    watch = Watch(tmp_path, Clock(recorded("01:48:20")))
    watch.put(harbor_jobs / "crash-sigkill.before-resume", job)
    watch.until(10, alive=[job])
    watch.put(harbor_jobs / "corrupt-jobresult0", job)
    watch.until(120)
    heard = watch.told()
    assert dict(heard.firing) == {
        runs("HarborlightJobInterrupted", job, harbor_job=job): [(11, 119)],
        f'HarborlightUnreadableResults{{harbor_job="{job}"}}': [(20, 119)],
        runs("HarborlightOpenFaults", job): [(70, 119)],
    }


def test_a_result_that_cannot_be_read_of_a_run_that_is_complete(
    tmp_path: Path, harbor_jobs: Path
) -> None:
    """Harbor ran the trial again, so nothing is missing: only that the run is complete is told."""
    watch = Watch(tmp_path, Clock(recorded("01:49:14")))
    watch.put(harbor_jobs / "corrupt-trialresult0", "corrupt-trialresult0")
    watch.until(90)
    page = watch.pages[-1]
    assert page is not None
    assert page.value("harborlight_job_unreadable_files") == 1
    assert watch.told().ever == {"HarborlightRunComplete"}


def test_a_plan_that_cannot_be_read(tmp_path: Path, harbor_jobs: Path) -> None:
    """Without its ``lock.json`` (seen to be empty from minute 0 on) 13 attempts seem planned.

    No trial runs, so after the hour in which no file changes (01:49:43 was the last) the run has
    come to a standstill. Whether its process lives nobody knows.
    """
    watch = Watch(tmp_path, Clock(recorded("01:49:50")))
    watch.put(harbor_jobs / "corrupt-lockbad", "corrupt-lockbad")
    watch.until(120)
    heard = watch.told()
    assert dict(heard.firing) == {
        'HarborlightUnreadableResults{harbor_job="corrupt-lockbad"}': [(10, 119)],
        runs("HarborlightRunStalled", "corrupt-lockbad"): [(65, 119)],
    }


REAL = "real-0.5.23-cpu-tp1"


def test_replicas_that_freeze_and_vanish(tmp_path: Path, harbor_jobs: Path, sglang: Path) -> None:
    """Pages of a real server, of three replicas under a job that dies in minute 60.

    ``well`` shows its busy and its idle page in turn: it lives. ``frozen`` does up to minute 9
    and then stays as the real server did whose scheduler was stopped: within two looks it counts
    as frozen (90 s), and it is paged 2 minutes later. ``gone`` does not answer from minute 20 to
    39. Once the job is dead nobody depends on them. All of them serve another model than the job
    asked for, which is told after 10 minutes.
    """
    job = "crash-sigkill"
    replicas = ("well", "frozen", "gone")
    pool = PoolDefinition("cpu", "CPU", jobs=(), runs=(), replicas=replicas)
    watch = Watch(tmp_path, Clock(recorded("01:35:17")), Rules(pools=(pool,)))
    watch.put(harbor_jobs / "crash-sigkill.before-resume", job)

    def look_at(replica: str) -> ReplicaSighting:
        minute = watch.minute
        kind = ("idle", "busy")[minute % 2]
        if replica == "frozen" and minute >= 10:
            kind = "scheduler-frozen"
        file = sglang / "sglang-expositions" / f"{REAL}-{kind}.txt"
        page: PageReading | Failure = read_page(file.read_bytes(), replica)
        if replica == "gone" and 20 <= minute < 40:
            page = Failure(Trouble.FAILED, "timed out", timed_out=True)
        at = watch.clock.recorded(minute)
        return sighting("cpu", replica, at, [ServerAnswers(replica, page)])

    while watch.minute < 90:
        alive = [job] if watch.minute < 60 else []
        watch.look(alive=alive, replicas=[look_at(replica) for replica in replicas])
    heard = watch.told()
    assert dict(heard.firing) == {
        'HarborlightReplicaFrozen{pool="cpu", replica="frozen"}': [(14, 59)],
        # 18 requests wait on that page beside 6 that run: quiet beside the page (Alertmanager).
        'HarborlightQueueLong{pool="cpu", replica="frozen"}': [(40, 59)],
        'HarborlightReplicaDown{pool="cpu", replica="gone"}': [(22, 39)],
        runs("HarborlightPoolModelMismatch", job, pool="cpu"): [(10, 59)],
        # From the first page on, and for 40 minutes after the last.
        runs("HarborlightServingImpaired", job, pool="cpu"): [(14, 89)],
        runs("HarborlightJobInterrupted", job, harbor_job=job): [(61, 89)],
    }


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("mixed-6x5", {runs("HarborlightOpenFaults", "mixed-6x5"): [(60, 119)]}),
        ("faulty-oracle", {runs("HarborlightOpenFaults", "faulty-oracle"): [(60, 119)]}),
        ("diff-src+diff-new", {runs("HarborlightRunComplete", "diff-src"): [(0, 60)]}),
        (
            "pools",
            {
                runs("HarborlightOpenFaults", "retry-2"): [(60, 119)],
                'HarborlightRequestsWithoutTrials{pool="glm"}': [(30, 119)],
            },
        ),
    ],
)
def test_a_kept_page_that_stays_as_it_is(
    page: str, expected: Mapping[str, object], tmp_path: Path
) -> None:
    """The pages in ``tests/golden``, served for two hours; their every timestamp is second 1.

    What was there from the first page on has not just happened: no burst, nothing that was
    discarded, changed or too many. Of ``pools`` nobody depends on the replicas that are gone or
    incomplete: its job is over, and yet requests run there.
    """
    text = (GOLDEN / f"{page}.prom").read_text("utf-8")
    assert dict(told([Page(text)] * 120, Clock(0.0), tmp_path).firing) == expected


def test_an_exporter_that_is_gone(tmp_path: Path, harbor_jobs: Path) -> None:
    """What it alerted on ends without an end of its own: that it is down is what is told."""
    watch = Watch(tmp_path, Clock(recorded("01:35:17")))
    watch.put(harbor_jobs / "crash-sigkill.before-resume", "crash-sigkill")
    watch.until(5, alive=["crash-sigkill"])
    watch.until(20)
    watch.pages += [None] * 20
    heard = watch.told()
    interrupted = runs("HarborlightJobInterrupted", "crash-sigkill", harbor_job="crash-sigkill")
    assert dict(heard.firing) == {
        interrupted: [(6, 19)],
        'HarborlightExporterDown{instance="127.0.0.1:10315"}': [(23, 39)],
    }
