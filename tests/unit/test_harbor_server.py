"""A Harbor server as a source: what it lists, what changes, and whatever can go wrong with it."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harborlight.ledger.accounts import COST, DISCARDED, FAULTS_BY_TYPE, RETRIES, VERDICTS
from harborlight.ledger.book import Ledger, Rules
from harborlight.ledger.ownership import TrialState
from harborlight.ledger.runs import RunDefinition
from harborlight.ledger.standing import RunStanding
from harborlight.ledger.store import Store
from harborlight.records import TaskRef, TrialRecord
from harborlight.sources.harbor_files import FileError, read_job_config
from harborlight.sources.harbor_server import client, known
from harborlight.sources.harbor_server.answers import (
    read_job,
    read_job_config_of,
    read_one_rollout,
    read_page,
    read_rollout,
)
from harborlight.sources.harbor_server.source import HarborServerSource
from harborlight.sources.harbor_server.targets import HarborServerTarget
from harborlight.sources.harbor_server.translate import ended_trial
from harborlight.sources.observation import Observation
from harborlight.views.metrics import Page
from support.deadline import eventually
from support.fake_harbor import AGENT, MODEL, START, Answer, FakeHarbor, problem, uid
from support.hostile import RawServer, endless, never
from support.metrics import take_snapshot
from support.records import states

KEY = "canary-key-0815"
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"


class Clock:
    """A monotonic clock that real time drives, and a test can put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


class Scene:
    """A ledger that a source fills; looks wait for the server."""

    def __init__(self, *urls: str, timeout: float = 10.0, rules: Rules | None = None) -> None:
        self.clock = Clock()
        targets = [
            HarborServerTarget(f"s{n}", url, api_key=KEY, timeout=timeout)
            for n, url in enumerate(urls, 1)
        ]
        self.source = HarborServerSource(targets, patience=None, clock=self.clock)
        self.ledger = Ledger(Store.throw_away(), rules)
        self.seen = Observation()

    def look(self, now: float = START + 10_000.0) -> Observation:
        self.seen = self.source.look(now)
        self.ledger.take(self.seen)
        self.ledger.commit()
        return self.seen

    def states(self) -> str:
        """The only run's states after a look (scored/running/queued/faulted/unplanned)."""
        self.look()
        return states(self.run())

    def run(self) -> RunStanding:
        (run,) = self.ledger.runs()
        return run

    def job_state(self) -> str:
        (job,) = self.ledger.jobs()
        return job.state

    def counter(self, metric: str, *labels: str) -> float:
        (metrics,) = self.ledger.counters().values()
        values = metrics.get(metric, {})
        return values.get(labels, 0.0) if labels else sum(values.values())

    @property
    def reasons(self) -> list[str]:
        return [f.reason for f in self.seen.failures]


@pytest.fixture
def fake() -> Iterator[FakeHarbor]:
    with FakeHarbor(KEY) as server:
        yield server


@pytest.fixture
def scene(fake: FakeHarbor) -> Scene:
    return Scene(fake.url)


# What the answers mean, from recorded ones.


def items(path: Path) -> list[bytes]:
    return list(read_page(path.read_bytes()).items)


def test_recorded_rollouts(harbor_server: Path) -> None:
    rollouts = [read_rollout(r) for r in items(harbor_server / "sretry-rollouts-final.json")]
    assert len(rollouts) == 11
    assert all(rollout.ran for rollout in rollouts)
    assert len({rollout.chain[-1] for rollout in rollouts}) == 6
    assert sorted(len(r.chain) for r in rollouts) == [1, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3]
    assert {r.task.source for r in rollouts} == {"retry"}
    assert sum(r.cost_usd or 0 for r in rollouts) == pytest.approx(2.245377)
    valid = [r for r in rollouts if r.rewards]
    assert {r.exception for r in valid} == {"", "ValueError", "ContextWindowExceededError"}
    cancelled = [read_rollout(r) for r in items(harbor_server / "scancel-rollouts-final.json")]
    assert [(r.state, r.ran, r.exception) for r in cancelled].count(("cancelled", False, "")) == 6
    assert [(r.state, r.ran) for r in cancelled].count(("cancelled", True)) == 3


def test_recorded_jobs(harbor_server: Path) -> None:
    (job,) = map(read_job, items(harbor_server / "sretry-jobs-list.json"))
    assert (job.name, job.state, job.n_total, job.n_terminal, job.n_retries) == (
        "sretry",
        "finished",
        11,
        11,
        5,
    )
    answer = (harbor_server / "sretry-job-final.json").read_bytes()
    config = read_job_config(read_job_config_of(answer))
    assert (config.n_attempts, config.n_concurrent, config.max_retries) == (1, 4, 2)
    assert config.agents == (("scripted_agent:ScriptedAgent", "fakeprov/fake-model-1"),)


def test_a_result_is_read_as_from_a_directory(harbor_server: Path) -> None:
    """And nothing else is kept of an answer full of what is private."""
    markers = ("LEAKKEY", "LEAKEXC", "LEAKKW", "LEAKENV", "LEAKMETA", "LEAKPROMPT", "/srv")
    config = read_job_config(
        read_job_config_of((harbor_server / "leak2-job.json").read_bytes()),
    )
    assert not any(marker in repr(config) for marker in markers)
    for name in ("leak-detail", "leak2-detail-leaky_agent"):
        data = (harbor_server / f"{name}.json").read_bytes()
        assert any(marker.encode() in data for marker in markers)
        rollout, result = read_one_rollout(data)
        assert result is not None
        record = ended_trial(rollout, result, config)
        assert (record.execution, record.name) == (rollout.id, rollout.name)
        assert record.digest == rollout.digest
        assert record.agent_seconds is not None
        assert record.agent == rollout.agent
        assert record.model == rollout.model
        assert record.rewards == rollout.rewards
        assert record.exceptions[:1] == ((rollout.exception,) if rollout.exception else ())
        assert not any(marker in repr((rollout, record)) for marker in markers)
    unstarted = read_one_rollout((harbor_server / "leak2-detail-claude-code.json").read_bytes())
    assert (unstarted[0].ran, unstarted[1]) == (False, None)


def test_a_killed_server_in_recorded_answers(harbor_server: Path) -> None:
    rollouts = [read_rollout(r) for r in items(harbor_server / "crash-after-rollouts.json")]
    lost = [r for r in rollouts if r.exception == "RuntimeError"]
    assert [(r.state, r.ran, r.rewards) for r in lost] == [("finished", True, ())] * 3
    record = ended_trial(lost[0], None, read_job_config(b"{}"))
    assert (record.exceptions, record.reward_valid) == (("RuntimeError",), False)
    assert record.finished_at == lost[0].finished_at
    assert [r.state for r in rollouts].count("paused") == len(rollouts) - 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": "../jobs/submit"}, "expected a UUID as an id"),
        ({"job_id": 7}, "Expected `str`, got `int` - at field .job_id"),
        ({"state": "dreaming"}, "Invalid enum value"),
        ({"retry_ids": ["x", uid(1)]}, "expected a UUID as an id"),
        ({"name": "n" * 256}, "expected a name of at most 255 characters"),
        ({"started_at": "yesterday"}, "Invalid RFC3339"),
        ({"task": None}, "Expected `object`, got `null` - at field .task"),
    ],
)
def test_what_is_no_rollout(change: dict[str, Any], said: str) -> None:
    good = {
        "id": uid(1),
        "job_id": uid(2),
        "name": "n",
        "state": "running",
        "task": {"name": "t"},
        "created_at": "2026-12-01T00:00:00Z",
        "updated_at": "2026-12-01T00:00:00Z",
    }
    assert read_rollout(json.dumps(good).encode()).chain == (uid(1),)
    with pytest.raises(FileError, match=said.replace(".", r"\.")):
        read_rollout(json.dumps(good | change).encode())


# A job over its life.


def test_a_job(fake: FakeHarbor, scene: Scene) -> None:
    fake.submit("a", "b", "c", n_concurrent_trials=2)
    assert scene.states() == "0/0/3/0/0"
    assert scene.job_state() == "live"
    fake.start("a", "environment_setup")
    fake.start("b", "agent_setup")
    assert scene.states() == "0/2/1/0/0"
    assert {t.phase for t in scene.seen.trials} == {"environment"}
    assert scene.run().concurrency == 2
    fake.change("a", phase="agent_execution")
    fake.change("b", phase=None)
    scene.look()
    assert [(t.task, t.phase) for t in scene.seen.trials] == [(TaskRef("set", "a"), "agent")]
    fake.change("a", phase="verifier")
    fake.end("b", error="ApiError")
    scene.look()
    assert {(t.phase, t.exceptions) for t in scene.seen.trials} == {
        ("verifier", ()),
        ("", ("ApiError",)),
    }
    fake.end("a", reward=1.0)
    fake.start("c")
    fake.end("c", reward=0.0)
    assert scene.states() == "2/0/0/1/0"
    assert scene.job_state() == "finished"
    run = scene.run()
    assert (run.passed, run.agent, run.model, run.label) == (1, "agent", MODEL, "job")
    assert scene.counter(COST) == 1.5
    scene.look()
    assert (scene.seen.jobs, scene.seen.trials) == ({}, ())
    assert scene.seen.present_jobs == frozenset({uid(1)})
    assert fake.methods == {"GET"}
    assert {headers["Harbor-API-Version"] for headers in fake.headers} == {client.API_VERSION}


def test_retries(fake: FakeHarbor, scene: Scene) -> None:
    """Each execution counts; one that waits is running, whatever the job's rule of retrying is."""
    fake.submit("a")
    fake.start("a", "agent_execution")
    assert scene.states() == "0/1/0/0/0"
    fake.end("a", error="ApiError")
    fake.retry("a")
    assert scene.states() == "0/1/0/0/0"
    assert scene.job_state() == "live"
    (waiting,) = [t for t in scene.seen.trials if t.open]
    assert (waiting.again, waiting.phase) == (True, "")
    fake.start("a", "agent_execution")
    assert scene.states() == "0/1/0/0/0"
    fake.end("a", reward=1.0)
    assert scene.states() == "1/0/0/0/0"
    # By hand, of what is scored: the last execution's verdict is the trial's.
    fake.retry("a")
    assert scene.states() == "0/1/0/0/0"
    assert scene.counter(DISCARDED) == 0
    fake.start("a")
    fake.end("a", reward=0.0)
    assert scene.states() == "1/0/0/0/0"
    assert scene.run().passed == 0
    assert scene.run().target == 1
    assert (scene.counter(VERDICTS), scene.counter(DISCARDED, "passed")) == (2, 1)
    assert scene.counter(FAULTS_BY_TYPE, "ApiError") == 1
    assert scene.counter(RETRIES) == 2
    assert scene.counter(COST) == 1.5


def test_all_seen_at_once_is_the_same(fake: FakeHarbor, scene: Scene) -> None:
    """Also by a process that begins in the midst of it, with the ledger of the one before."""
    fake.submit("a", "b")
    for task in ("a", "b"):
        fake.start(task)
        fake.end(task, error="ApiError")
        fake.retry(task)
    scene.look()
    fake.start("a")
    fake.end("a", reward=1.0)
    again = Scene(fake.url)
    again.ledger = scene.ledger
    assert again.states() == "1/1/0/0/0"
    fresh = Scene(fake.url)
    assert fresh.states() == "1/1/0/0/0"
    assert scene.counter(FAULTS_BY_TYPE) == fresh.counter(FAULTS_BY_TYPE) == 2


def test_a_retry_that_never_began(fake: FakeHarbor, scene: Scene) -> None:
    """It was no execution: what it was to replace stands again."""
    fake.submit("a", "b")
    fake.start("a")
    fake.end("a", error="ApiError")
    fake.retry("a")
    assert scene.states() == "0/1/1/0/0"
    fake.end("a", state="cancelled")
    assert scene.states() == "0/0/1/1/0"
    fake.retry("a")
    fake.start("a")
    assert scene.states() == "0/1/1/0/0"
    fake.end("a", reward=1.0)
    assert scene.states() == "1/0/1/0/0"
    assert scene.counter(FAULTS_BY_TYPE) == 1
    fresh = Scene(fake.url)
    assert fresh.states() == "1/0/1/0/0"


def test_cancelled(fake: FakeHarbor, scene: Scene) -> None:
    """What never began leaves its slot unplanned, and the target as it is."""
    job = fake.submit("a", "b", "c", "d")
    fake.start("a")
    fake.end("b", state="cancelled")
    assert scene.states() == "0/1/2/0/1"
    (standing,) = scene.ledger.jobs()
    assert standing.trials[TrialState.QUEUED] == 2
    # A new one in its place is planned again.
    fake.retry("b")
    assert scene.states() == "0/1/3/0/0"
    fake.end("a", error="CancelledError", state="cancelled")
    for task in ("b", "c", "d"):
        fake.end(task, state="cancelled")
    fake.jobs[job]["cancelled"] = True
    assert scene.states() == "0/0/0/1/3"
    assert scene.job_state() == "cancelled"
    # Retried by hand, the job goes on.
    fake.retry("a")
    fake.jobs[job]["cancelled"] = False
    assert scene.states() == "0/1/0/0/3"
    assert scene.job_state() == "live"


def test_paused(fake: FakeHarbor, scene: Scene) -> None:
    fake.submit("a", "b")
    fake.start("a")
    fake.change("b", state="paused")
    fake.end("a", reward=1.0)
    assert scene.states() == "1/0/1/0/0"
    assert scene.job_state() == "live"


def test_a_single_cancel_is_not_the_jobs(fake: FakeHarbor, scene: Scene) -> None:
    """Not even when the server that could say so is lost while nothing runs."""
    fake.submit("a", "b")
    fake.end("a", state="cancelled")
    assert scene.states() == "0/0/1/0/1"
    fake.instead["/jobs"] = lambda: problem(500)
    assert scene.states() == "0/0/1/0/1"
    assert scene.job_state() == "unknown"


def test_a_killed_server(fake: FakeHarbor, scene: Scene) -> None:
    """What ran has no result; the list says how it ended."""
    fake.submit("a", "b")
    fake.start("a", "agent_execution")
    scene.look()
    fake.end("a", error="RuntimeError")
    del fake.results[fake.find("a")["id"]]
    fake.change("b", state="paused")
    assert scene.states() == "0/0/1/1/0"
    assert scene.counter(FAULTS_BY_TYPE, "RuntimeError") == 1
    assert scene.seen.problems == ()


def test_a_model_that_only_the_agent_tells(fake: FakeHarbor, scene: Scene) -> None:
    """It makes no other run of the trial."""
    fake.submit("a", "b", agents=[{"import_path": AGENT, "model_name": None}])
    assert scene.states() == "0/0/2/0/0"
    fake.start("a")
    fake.change("a", model={"name": "told"})
    assert scene.states() == "0/1/1/0/0"
    fake.end("a", reward=1.0)
    assert scene.states() == "1/0/1/0/0"


def test_runs_choose_jobs_by_name(fake: FakeHarbor) -> None:
    rules = Rules(runs=(RunDefinition("run", jobs=("main-*",)),))
    scene = Scene(fake.url, rules=rules)
    fake.submit("a", name="main-1")
    fake.submit("b", name="other", job=2)
    scene.look()
    assert {run.label: run.jobs for run in scene.ledger.runs()} == {
        "run": ("main-1",),
        "other": ("other",),
    }


# What is asked.


def test_pages_once_and_then_what_is_new(fake: FakeHarbor, scene: Scene) -> None:
    names = [f"t{number}" for number in range(205)]
    fake.submit(*names)
    for name in names:
        fake.start(name)
        fake.end(name, reward=1.0)
    assert scene.states() == "205/0/0/0/0"
    assert sum(path.startswith("/rollouts?sort") for path in fake.asked) == 3
    assert sum(path.startswith("/rollouts/") for path in fake.asked) == 205
    assert sum(path.startswith("/jobs/") for path in fake.asked) == 1
    fake.asked.clear()
    scene.look()
    assert [path.partition("?")[0] for path in fake.asked] == ["/jobs", "/rollouts", "/rollouts"]
    fake.retry("t7")
    fake.asked.clear()
    assert scene.states() == "204/1/0/0/0"
    assert len(fake.asked) == 3


def test_one_that_no_list_shows_any_more(fake: FakeHarbor, scene: Scene) -> None:
    fake.submit("a", "b")
    fake.start("a")
    assert scene.states() == "0/1/1/0/0"
    fake.end("a", reward=1.0)
    fake.hidden.add(fake.find("a")["id"])
    assert scene.states() == "1/0/1/0/0"
    assert scene.seen.problems == ()


def test_a_clock_that_was_set_back(fake: FakeHarbor, scene: Scene) -> None:
    """What is not among the last changes is missed in the counts, and looked for everywhere."""
    fake.submit("a", *(f"t{number}" for number in range(250)))
    for number in range(250):
        fake.end(f"t{number}", state="cancelled")
    assert scene.states() == "0/0/1/0/250"
    fake.now = START - 5000.0
    fake.start("a")
    fake.end("a", reward=1.0)
    assert scene.states() == "1/0/0/0/250"


def test_a_new_job_is_shown_whole(fake: FakeHarbor, scene: Scene) -> None:
    """Its target is there from the first moment on, not as its rollouts come in."""
    scene.look()
    fake.submit(*(f"t{number}" for number in range(130)))
    hidden = {r["id"] for r in list(fake.rollouts.values())[:50]}
    fake.hidden |= hidden

    def jobs() -> Answer:
        # They are there by the time that the missing ones are looked for.
        fake.hidden -= hidden
        del fake.instead["/jobs"]
        return fake.answer("/jobs")

    fake.instead["/jobs"] = jobs
    assert scene.states() == "0/0/130/0/0"


def test_everything_anew(fake: FakeHarbor, scene: Scene) -> None:
    """For another ledger; nothing is asked a second time."""
    fake.submit("a")
    fake.start("a")
    fake.end("a", reward=1.0)
    scene.look()
    scene.source.start_anew()
    scene.ledger = Ledger(Store.throw_away())
    fake.asked.clear()
    assert scene.states() == "1/0/0/0/0"
    assert len(fake.asked) == 3


def test_a_job_that_is_gone(fake: FakeHarbor, scene: Scene) -> None:
    """The server began anew in an empty folder: the ledger forgets nothing."""
    job = fake.submit("a", "b")
    fake.start("a")
    fake.end("a", reward=1.0)
    scene.look()
    del fake.jobs[job]
    fake.rollouts.clear()
    assert scene.states() == "1/0/1/0/0"
    (standing,) = scene.ledger.jobs()
    assert (standing.present, standing.state) == (False, "unknown")


def test_the_same_server_twice(fake: FakeHarbor) -> None:
    scene = Scene(fake.url, f"{fake.url}/.")
    fake.submit("a", "b")
    fake.start("a")
    fake.instead["/./jobs"] = lambda: fake.answer("/jobs")
    fake.instead["/./rollouts"] = lambda: fake.answer("/rollouts?sort=-updated_at")
    fake.instead[f"/./jobs/{uid(1)}"] = lambda: fake.answer(f"/jobs/{uid(1)}")
    assert scene.states() == "0/1/1/0/0"
    assert scene.seen.failures == ()


# What can go wrong.


def canaries(scene: Scene, caplog: pytest.LogCaptureFixture, fake: FakeHarbor) -> list[str]:
    """Which of the planted words came out anywhere."""
    page = Page(take_snapshot(scene.ledger)).render("")[1].decode()
    said = f"{scene.seen!r}{page}{caplog.text}{caplog.records!r}{scene.source.targets!r}"
    return [word for word in ("canary", KEY, str(fake.port), "127.0.0.1") if word in said]


def test_nothing_private_comes_out(
    fake: FakeHarbor, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        fake.submit("a", "b", extra_instructions=["canary-prompt"])
        fake.start("a")
        fake.end("a", error="ApiError")
        fake.instead[f"/rollouts/{fake.find('b')['id']}"] = lambda: (200, b'{"canary": 1}')
        fake.start("b")
        fake.end("b", reward=1.0)
        scene.look()
        assert canaries(scene, caplog, fake) == []
        fake.key = "another"
        scene.look()
        assert len(scene.seen.failures) == 1
        assert canaries(scene, caplog, fake) == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, "expected Harbor's API of version 2026-10-30"),
        (401, "expected to be let in with the configured API key"),
        (
            403,
            "expected to be let in: without an API key a server talks to its own host only",
        ),
        (404, "expected a Harbor server at the configured URL"),
        (500, "expected the answer of a Harbor server"),
    ],
)
def test_a_server_that_refuses(fake: FakeHarbor, scene: Scene, status: int, expected: str) -> None:
    """Its jobs' states are not known then; nothing is lost, and nobody is called dead."""
    fake.submit("a", "b")
    fake.start("a")
    assert scene.states() == "0/1/1/0/0"
    fake.instead["/jobs"] = lambda: problem(status)
    assert scene.states() == "0/1/1/0/0"
    assert scene.reasons == [f"GET /jobs: HTTP {status}; {expected}"]
    assert [failure.subject for failure in scene.seen.failures] == ["harbor server s1"]
    assert scene.job_state() == "unknown"
    assert scene.seen.present_jobs == frozenset({uid(1)})
    del fake.instead["/jobs"]
    scene.look()
    assert scene.job_state() == "live"


def test_not_reachable_from_the_start(fake: FakeHarbor, scene: Scene) -> None:
    """What the ledger has of it stays, in a state that is not known."""
    fake.submit("a")
    scene.look()
    again = Scene(fake.url)
    again.ledger = scene.ledger
    fake.instead["/jobs"] = lambda: problem(500)
    assert again.states() == "0/0/1/0/0"
    assert (again.seen.present_jobs, again.job_state()) == (None, "unknown")
    (standing,) = again.ledger.jobs()
    assert standing.present


def page_of(*entries: Any, following: str = "") -> Answer:
    return 200, json.dumps({"items": entries, "next_page_token": following}).encode()


def endless_pages() -> Callable[[], Answer]:
    number = iter(range(10**9))
    return lambda: page_of(following=str(next(number)))


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: page_of(following="again"), "expected another page, got one for a second time"),
        (lambda: page_of(*[{}] * 101), "expected at most 100 entries a page"),
        (lambda: page_of(following="x" * 5000), "expected a page token of at most 4096 characters"),
        (lambda: (200, b"<html>canary</html>"), "expected one complete JSON document"),
        (lambda: (200, b"[]"), "Expected `object`, got `array`"),
        (lambda: (200, b'{"items": {}}'), "Expected `array`, got `object` - at field .items"),
        (lambda: (200, b'{"items": [], "next_page_token": 3}'), "Expected `str`, got `int`"),
        (lambda: (200, b"\xff"), "expected UTF-8 text"),
        (lambda: (200, b" " * (5 * 1024 * 1024)), "the answer is too large"),
    ],
)
@pytest.mark.parametrize("path", ["/jobs", "/rollouts"])
def test_answers_that_are_none(
    fake: FakeHarbor, scene: Scene, made: Callable[[], Answer], reason: str, path: str
) -> None:
    fake.submit("a")
    fake.instead[path] = made
    scene.look()
    (said,) = scene.reasons
    assert reason in said
    assert said.startswith(f"GET {path}: ")
    assert "canary" not in said
    del fake.instead[path]
    assert scene.states() == "0/0/1/0/0"


def test_pages_without_end(fake: FakeHarbor, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_PAGES", 5)
    fake.instead["/rollouts"] = endless_pages()
    scene.look()
    assert scene.reasons == ["GET /rollouts: expected at most 5 pages"]
    assert len(fake.asked) == 6


def test_a_server_that_floods() -> None:
    with RawServer(endless(JSON, b" " * 65536)) as server:
        scene = Scene(server.url)
        scene.look()
    assert "the answer is too large" in scene.reasons[0]


def test_a_server_that_hangs_costs_one_timeout() -> None:
    with RawServer(never) as server:
        scene = Scene(server.url, timeout=0.3)
        started = time.monotonic()
        scene.look()
        assert time.monotonic() - started < 2.0
        assert scene.reasons == ["GET /jobs: timed out; expected an answer within 0.3 s"]
        assert len(server.requests) == 1


def test_a_result_that_hangs_costs_one_timeout_and_then_only_itself(fake: FakeHarbor) -> None:
    scene = Scene(fake.url, timeout=0.3)
    fake.submit("a", "b", "c")
    for task in ("a", "b", "c"):
        fake.start(task)
    scene.look()
    for task in ("a", "b", "c"):
        fake.end(task, reward=1.0)

    asked_for = threading.Event()

    def hang() -> Answer:
        asked_for.wait(20.0)
        return problem(500)

    # The one that changed last is asked for first.
    fake.instead[f"/rollouts/{fake.find('c')['id']}"] = hang
    started = time.monotonic()
    scene.look()
    assert time.monotonic() - started < 2.0
    assert "timed out" in scene.reasons[0]
    assert states(scene.run()) == "0/3/0/0/0"
    # Its end is not told before: what is still open would be called a fault.
    assert scene.states() == "2/1/0/0/0"
    assert (scene.job_state(), scene.reasons) == ("live", [])
    asked_for.set()
    fake.instead.clear()
    scene.clock.ahead += known.ASK_AGAIN_SECONDS
    assert scene.states() == "3/0/0/0/0"
    assert scene.job_state() == "finished"
    assert scene.seen.problems == ()
    assert scene.counter(FAULTS_BY_TYPE) == 0


def test_a_result_that_is_refused(fake: FakeHarbor, scene: Scene) -> None:
    """After some tries the list's word is taken."""
    fake.submit("a", "b")
    for task in ("a", "b"):
        fake.start(task)
        fake.end(task, reward=1.0, error="ValueError")
    fake.instead[f"/rollouts/{fake.find('a')['id']}"] = lambda: problem(500)
    for _ in range(known.MAX_TRIES - 1):
        assert scene.states() == "1/0/1/0/0"
        (said,) = scene.seen.problems
        assert said.subject == f"harbor server s1/rollout {fake.find('a')['id']}"
        assert said.reason.startswith("GET /rollouts/ID: HTTP 500;")
        assert scene.job_state() == "live"
        scene.clock.ahead += known.ASK_AGAIN_SECONDS
    assert scene.states() == "2/0/0/0/0"
    assert scene.job_state() == "finished"
    assert scene.counter(VERDICTS, "passed") == 2
    assert len(scene.seen.problems) == 1
    (standing,) = scene.ledger.jobs()
    assert standing.unreadable_files == 1


@pytest.mark.parametrize(
    "made",
    [
        lambda data: json.dumps({"rollout": {**data, "result": {"id": 3}}}).encode(),
        lambda data: json.dumps({"rollout": {**data, "id": uid(9)}}).encode(),
        lambda data: b"{}",
        lambda data: b"nothing",
        lambda data: b" " * (70 * 1024 * 1024),
    ],
)
def test_a_result_that_is_none(
    fake: FakeHarbor, scene: Scene, made: Callable[[dict[str, Any]], bytes]
) -> None:
    """It costs what only it can tell."""
    fake.submit("a", "b")
    for task in ("a", "b"):
        fake.start(task)
        fake.end(task, reward=1.0)
    bad = fake.find("a")
    fake.instead[f"/rollouts/{bad['id']}"] = lambda: (200, made(bad))
    assert scene.states() == "2/0/0/0/0"
    assert len(scene.seen.problems) == 1
    assert scene.seen.failures == ()
    assert scene.counter(COST) == 1.0
    assert scene.look().problems != ()
    assert sum(path.startswith("/rollouts/") for path in fake.asked) == 2


def test_one_bad_rollout_costs_itself(fake: FakeHarbor, scene: Scene) -> None:
    fake.submit("a", "b", "c")
    fake.start("a")
    fake.find("b")["task"] = {"name": ["canary"]}
    fake.start("c")
    assert scene.states() == "0/2/0/0/0"
    (said,) = scene.seen.problems
    assert said.subject == "harbor server s1/rollouts"
    assert said.reason == (
        "1 entries left out, the first one: Expected `str`, got `array` - at field .task.name"
    )
    fake.asked.clear()
    scene.look()
    assert len(scene.seen.problems) == 1
    assert len(fake.asked) == 3, "it is not looked for again and again"
    fake.end("a", reward=1.0)
    assert scene.states() == "1/1/0/0/0"


def test_one_bad_job_costs_itself(fake: FakeHarbor, scene: Scene) -> None:
    fake.submit("a", name="good")
    bad = fake.submit("b", name="bad", job=2)
    fake.jobs[bad]["name"] = "n" * 300
    assert scene.states() == "0/0/1/0/0"
    assert [problem.subject for problem in scene.seen.problems] == ["harbor server s1/jobs"]
    fake.jobs[bad]["name"] = "bad"
    scene.look()
    assert len(scene.ledger.runs()) == 2
    # A job that was known stays, should its entry become unreadable.
    fake.jobs[bad]["name"] = "n" * 300
    assert scene.look().present_jobs == frozenset({uid(1), uid(2)})


def test_a_configuration_that_cannot_be_had(fake: FakeHarbor, scene: Scene) -> None:
    job = fake.submit("a", n_concurrent_trials=7)
    fake.instead[f"/jobs/{job}"] = lambda: (200, b'{"job": {"config": {"retry": 3}}}')
    assert scene.states() == "0/0/1/0/0"
    (said,) = scene.seen.problems
    assert said.subject == f"harbor server s1/job {job}"
    assert "at field .retry" in said.reason
    assert scene.run().concurrency is None
    fake.instead.clear()
    scene.clock.ahead += known.ASK_AGAIN_SECONDS
    scene.look()
    assert (scene.run().concurrency, scene.seen.problems) == (7, ())


def test_a_mistake_of_ours(
    fake: FakeHarbor,
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It costs the one server's news, and its text goes nowhere."""
    fake.submit("a")
    scene.look()

    def broken(*_: object) -> object:
        raise KeyError("canary")

    with monkeypatch.context() as patched:
        patched.setattr(known, "planned", broken)
        fake.start("a")
        assert scene.states() == "0/0/1/0/0"
    assert scene.reasons == ["internal error"]
    assert "canary" not in caplog.text
    assert scene.seen.present_jobs == frozenset({uid(1)})
    assert scene.states() == "0/1/0/0/0"
    assert scene.reasons == []


def test_two_servers(fake: FakeHarbor) -> None:
    """One that does not answer costs nothing of the other."""
    with FakeHarbor(KEY) as other:
        scene = Scene(fake.url, other.url)
        fake.submit("a", name="one")
        other.submit("b", name="two", job=2)
        scene.look()
        other.instead["/jobs"] = lambda: problem(500)
        fake.start("a")
        scene.look()
        assert [failure.subject for failure in scene.seen.failures] == ["harbor server s2"]
        assert {job.label: job.state for job in scene.ledger.jobs()} == {
            "one": "live",
            "two": "unknown",
        }
        assert {run.label: states(run) for run in scene.ledger.runs()} == {
            "one": "0/1/0/0/0",
            "two": "0/0/1/0/0",
        }


def test_serving_waits_for_nobody(fake: FakeHarbor) -> None:
    """What comes too late for one look comes with another; a server that hangs delays one."""
    with RawServer(never) as hanging:
        targets = [
            HarborServerTarget("good", fake.url, api_key=KEY),
            HarborServerTarget("hangs", hanging.url, timeout=20.0),
        ]
        source = HarborServerSource(targets, patience=0.2)
        fake.submit("a")
        started = time.monotonic()
        seen = source.look(START)
        assert time.monotonic() - started < 5.0
        trials: list[TrialRecord] = []
        jobs = dict(seen.jobs)

        def both() -> bool:
            again = source.look(START)
            jobs.update(again.jobs)
            trials.extend(again.trials)
            assert again.failures == ()
            assert again.present_jobs is None
            return bool(jobs)

        eventually(both)
        assert list(jobs) == [uid(1)]
        assert len(hanging.requests) == 1


def test_a_server_that_is_stuck(fake: FakeHarbor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no deadline reaches (in the name of its host), it is given up, and let go on."""
    monkeypatch.setattr("harborlight.sources.harbor_server.source._GRACE_SECONDS", 0.1)
    release: list[bool] = []

    def stuck(*_: object, **__: object) -> bytes:
        eventually(lambda: release, 20.0)
        return b'{"items": []}'

    monkeypatch.setattr(client, "fetch_json", stuck)
    scene = Scene(fake.url, timeout=0.1)
    for _ in range(2):
        scene.look()
        assert scene.reasons == ["timed out; expected an answer within 0.1 s"]
    release.append(True)
    eventually(lambda: scene.look().failures == ())


# Any order of things.


def one_step(fake: FakeHarbor, random: Random) -> None:
    """Something that can happen on a server."""
    newest = {r["task"]["name"]: r for r in fake.rollouts.values()}
    rollout = random.choice([r for r in newest.values() if r["state"] != "paused"])
    task, state = rollout["task"]["name"], rollout["state"]
    match state:
        case "queued" if random.random() < 0.2:
            fake.end(task, state="cancelled")
        case "queued":
            fake.start(task, random.choice([None, "environment_setup"]))
        case "running" if random.random() < 0.5:
            fake.change(task, phase=random.choice(["agent_execution", "verifier", None]))
        case "running" if random.random() < 0.5:
            fake.end(
                task, reward=random.choice([0.0, 1.0]), error=random.choice([None, "ValueError"])
            )
        case "running":
            fake.end(task, error="ApiError")
            if random.random() < 0.7:
                fake.retry(task)
        case _ if random.random() < 0.3:
            fake.retry(task)
        case _:
            pass


@pytest.mark.parametrize("seed", range(6))
def test_watched_is_as_read_at_once(fake: FakeHarbor, scene: Scene, seed: int) -> None:
    """However often somebody looked on the way, and though the process was another one."""
    random = Random(seed)
    tasks = ("a", "b", "c", "d")
    fake.submit(*tasks)
    for step in range(60):
        one_step(fake, random)
        if random.random() < 0.5:
            seen = scene.states()
            if step % 4 == 0:
                fresh = Scene(fake.url)
                assert fresh.states() == seen, step
                assert fresh.ledger.counters() == scene.ledger.counters(), step
                assert fresh.run().resolutions == scene.run().resolutions
        if random.random() < 0.1:
            again = Scene(fake.url)
            again.ledger, scene = scene.ledger, again
    assert scene.run().target == len(tasks)
