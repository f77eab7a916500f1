"""The demo's simulated servers, as the project's own reader finds them, and what the demo tells."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from unittest.mock import call, create_autospec

import pytest

from harborlight.demo import serving as demo_serving
from harborlight.demo.serving import (
    FREEZES,
    FROZEN_AFTER,
    POOL,
    POOL_TITLE,
    REPLICAS,
    ServingPool,
    listener,
    url,
)
from harborlight.demo.sglang_server import KV_CAPACITY, MAX_RUNNING, SglangServer
from harborlight.demo.terminal_bench import CONCURRENCY, OPTIONS, TerminalBenchDemo
from harborlight.ledger import Ledger, Store
from harborlight.ledger.book import Rules
from harborlight.ledger.pools import PoolDefinition
from harborlight.ledger.replicas import ReplicaStanding
from harborlight.readings import Latency, Number, ReplicaInfo, ReplicaState, Total
from harborlight.sources.sglang.source import SglangSource
from harborlight.sources.sglang.targets import ReplicaTarget
from support.deadline import eventually
from support.page import Page, Sample

MODEL = "glm"


class Scene:
    """The pool, the reader and a ledger; time passes when ``wait`` says so."""

    def __init__(self, stack: ExitStack) -> None:
        self.now = 1000.0
        listeners = [listener() for _ in REPLICAS]
        self.urls = dict(zip(REPLICAS, map(url, listeners), strict=True))
        self.pool = stack.enter_context(
            ServingPool(listeners, model=MODEL, clock=lambda: self.now, wall=lambda: self.now)
        )
        self._source = SglangSource(
            [
                ReplicaTarget(POOL, name, (url,), scrape_interval=0.5)
                for name, url in self.urls.items()
            ],
            clock=lambda: time.monotonic() + self.now,
        )
        definition = PoolDefinition(POOL, POOL_TITLE, (), (), REPLICAS, FROZEN_AFTER)
        self._ledger = Ledger(Store.throw_away(), Rules(pools=(definition,)))

    def wait(self, seconds: float) -> dict[str, ReplicaStanding]:
        """Let so many seconds pass, with a look after each; what the ledger knows then."""
        for _ in range(round(seconds)):
            self.now += 1.0
            self._ledger.take(self._source.look(self.now))
        (pool,) = self._ledger.pools()
        return {replica.label: replica for replica in pool.replicas}

    def status(self, name: str, path: str) -> int:
        try:
            with urllib.request.urlopen(self.urls[name] + path, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)


def number(replica: ReplicaStanding, which: Number) -> float:
    return replica.numbers["unified"][which]


def total(replica: ReplicaStanding, which: Total) -> float:
    return replica.totals[which]["unified"]


# As the real one.


def shape(sample: Sample) -> tuple[str, frozenset[tuple[str, str]]]:
    """Its name and labels, the model's name left out."""
    return sample.name, frozenset((k, v) for k, v in sample.labels if k != "model_name")


def test_pages_are_those_of_the_real_release(sglang: Path) -> None:
    """Every series has name and labels of one that the real collectors of 0.5.23 showed."""
    recorded = sglang / "sglang-expositions"
    real: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    types: dict[str, str] = {}
    for name in ("0.5.23-tp8.txt", "real-0.5.23-cpu-tp2-idle.txt"):
        page = Page((recorded / name).read_text("utf-8"))
        real |= {shape(sample) for sample in page.samples}
        types |= page.types
    simulated = Page(SglangServer(MODEL, "0", 0.0).metrics())
    unknown = {shape(sample) for sample in simulated.samples} - real
    # No recorded server had to put a request back.
    retracted = "sglang:num_retracted_requests_total"
    assert {name for name, _ in unknown} == {retracted}
    (labels,) = (labels for _, labels in unknown)
    assert labels == {
        ("engine_type", "unified"),
        *((f"{kind}_rank", "0") for kind in ("moe_ep", "pp", "tp")),
    }
    shown = {**simulated.types}
    del shown[retracted.removesuffix("_total")]
    assert shown.items() <= types.items()
    for name in ("time_to_first_token", "inter_token_latency", "queue_time"):
        bucket = f"sglang:{name}_seconds_bucket"
        bounds = simulated.label_values(bucket, "le")
        assert bounds == Page((recorded / "0.5.23-tp8.txt").read_text()).label_values(bucket, "le")


def test_the_same_seed_makes_the_same_pages() -> None:
    pages = []
    for seed, steps in (("a", 60), ("a", 30), ("b", 60)):
        server = SglangServer(MODEL, seed, 0.0)
        server.clients = 8
        for step in range(1, steps + 1):
            now = 60.0 * step / steps
            server.advance(now, now)
        pages.append(server.metrics())
    assert pages[0] == pages[1] != pages[2]


def test_plausible_numbers() -> None:
    """Of eight clients over ten minutes, on eight GPUs."""
    server = SglangServer(MODEL, "0", 0.0)
    server.clients = 8
    running = []
    page = Page("")
    for now in range(0, 601, 5):
        server.advance(now, now)
        page = Page(server.metrics())
        used = page.value("sglang:num_used_tokens")
        assert 0 <= used <= KV_CAPACITY
        running.append(page.value("sglang:num_running_reqs"))
        assert running[-1] + page.value("sglang:num_queue_reqs") <= 8
    assert 5 < sum(running) / len(running) < 8

    def mean(name: str) -> float:
        return page.value(f"sglang:{name}_seconds_sum") / page.value(f"sglang:{name}_seconds_count")

    requests = page.value("sglang:num_requests_total")
    assert 300 < page.value("sglang:realtime_tokens_total", mode="decode") / 600 < 2000
    assert page.value("sglang:e2e_request_latency_seconds_count") == requests
    assert 0 < requests < 2000
    assert 0.1 < mean("time_to_first_token") < 3
    assert 0.005 < mean("inter_token_latency") < 0.05
    assert 2 < mean("e2e_request_latency") < 30
    cached = page.value("sglang:cached_tokens_total") / page.value("sglang:prompt_tokens_total")
    assert 0.7 < cached < 1
    assert 1 <= page.value("sglang:num_aborted_requests_total") < requests / 20
    assert 1 <= page.value("sglang:num_retracted_requests_total") < requests / 5


# As the reader finds them.


def test_up(scene: Scene) -> None:
    scene.pool.serve(16)
    found = scene.wait(30)
    for replica in found.values():
        assert (replica.state, replica.reason) == (ReplicaState.UP, "")
        assert replica.info == ReplicaInfo("0.5.23", MODEL, tp=8, pp=1, dp=1)
        assert number(replica, Number.MAX_RUNNING) == MAX_RUNNING
        assert number(replica, Number.KV_CAPACITY) == KV_CAPACITY
        assert 0 < number(replica, Number.KV_USED) <= KV_CAPACITY
        assert 4 <= number(replica, Number.RUNNING) + number(replica, Number.QUEUED) <= 8
        assert set(replica.totals) == set(Total)
        requests = total(replica, Total.REQUESTS)
        assert requests > 10
        assert set(replica.latencies) == set(Latency)
        for latency in (Latency.TIME_TO_FIRST_TOKEN, Latency.QUEUE_TIME):
            assert sum(replica.latencies[latency]["unified"].counts) >= requests
        assert sum(replica.latencies[Latency.END_TO_END]["unified"].counts) == requests
    # One is the other's twin, not its copy.
    assert found["A"].totals != found["B"].totals


def test_while_no_trial_runs(scene: Scene) -> None:
    """A Ctrl-C ends all requests; the scheduler lives on, and counts nothing."""
    scene.pool.serve(16)
    before = scene.wait(20)
    scene.pool.serve(0)
    after = scene.wait(1)
    for name, replica in after.items():
        assert number(replica, Number.RUNNING) == number(replica, Number.QUEUED) == 0
        assert number(replica, Number.KV_USED) == 0
        lost = total(replica, Total.ABORTED) - total(before[name], Total.ABORTED)
        assert lost == number(before[name], Number.RUNNING) + number(before[name], Number.QUEUED)
    later = scene.wait(60)
    for name, replica in later.items():
        assert replica.state is ReplicaState.UP
        assert (replica.totals, replica.latencies) == (after[name].totals, after[name].latencies)
    scene.pool.serve(2)
    again = scene.wait(15)
    assert all(number(replica, Number.RUNNING) <= 1 for replica in again.values())
    assert sum(total(r, Total.REQUESTS) for r in again.values()) > sum(
        total(r, Total.REQUESTS) for r in later.values()
    )


def test_freezes_and_recovers(scene: Scene) -> None:
    scene.pool.serve(16)
    scene.wait(30)
    scene.pool.freeze()
    before = scene.wait(1)
    assert before["B"].state is ReplicaState.UP, "it takes more than one look"
    assert scene.wait(2)["B"].state is ReplicaState.FROZEN
    for _ in range(16):
        scene.pool.trial_ended()
        scene.pool.serve(15)
        scene.pool.serve(16)
    frozen = scene.wait(20)
    assert frozen["A"].state is ReplicaState.UP
    assert frozen["B"].reason == "its scheduler shows no sign of life"
    # Its numbers stay as they were; the other one has all clients now, some of which wait.
    assert frozen["B"].numbers == before["B"].numbers
    assert frozen["B"].totals == before["B"].totals
    assert number(frozen["A"], Number.RUNNING) + number(frozen["A"], Number.QUEUED) > 8
    assert total(frozen["A"], Total.REQUESTS) > total(before["A"], Total.REQUESTS)
    scene.pool.thaw()
    after = scene.wait(1)
    assert after["B"].state is ReplicaState.UP
    hung = number(before["B"], Number.RUNNING) + number(before["B"], Number.QUEUED)
    assert total(after["B"], Total.ABORTED) == total(before["B"], Total.ABORTED) + hung
    recovered = scene.wait(30)
    assert total(recovered["B"], Total.REQUESTS) > total(frozen["B"], Total.REQUESTS)
    for replica in recovered.values():
        assert number(replica, Number.RUNNING) + number(replica, Number.QUEUED) <= 8


def test_what_a_frozen_server_does_not_answer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_serving, "_HEALTH_SECONDS", 0.01)
    paths = ("/health", "/metrics", "/v1/loads", "/server_info", "/get_server_info", "/generate")
    assert [scene.status("B", path) for path in paths] == [200] * 5 + [404]
    scene.pool.freeze()
    assert [scene.status("B", path) for path in paths[:3]] == [503, 200, 200]
    assert scene.status("A", "/server_info") == 200
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(scene.status("B", "/server_info")))
    asking.start()
    assert scene.status("B", "/metrics") == 200
    assert answers == [], "it hangs as long as the scheduler does"
    scene.pool.thaw()
    asking.join(10)
    assert answers == [200]


def test_ends(scene: Scene) -> None:
    """Also while somebody waits for a frozen one."""
    with ExitStack() as stack:
        other = Scene(stack)
        other.pool.freeze()
        answers: list[int] = []
        asking = threading.Thread(target=lambda: answers.append(other.status("B", "/server_info")))
        asking.start()
        eventually(_somebody_is_served, what="the request")
    asking.join(10)
    assert answers == [503]
    with pytest.raises(urllib.error.URLError, match="refused"):
        other.status("A", "/metrics")


def _somebody_is_served() -> bool:
    return any("process_request_thread" in thread.name for thread in threading.enumerate())


# What the demo tells them.


def test_the_load_is_the_run_s(tmp_path: Path) -> None:
    """Frozen around the model API's faults; nothing runs after Ctrl-C and in the end."""
    pool = create_autospec(ServingPool, instance=True)
    lines: list[str] = []
    faults: list[int] = []

    def say(line: str) -> None:
        lines.append(line)
        if "ApiRateLimitError" in line:
            faults.append(len(pool.mock_calls))

    assert TerminalBenchDemo(tmp_path, say=say, serving=pool).run(None)
    told = pool.mock_calls
    assert told.count(call.freeze()) == told.count(call.thaw()) == 1
    frozen, thawed = told.index(call.freeze()), told.index(call.thaw())
    assert len(faults) >= 10
    assert frozen < min(faults) and max(faults) < thawed
    ended = told.count(call.trial_ended())
    assert 0.6 < told[:frozen].count(call.trial_ended()) / ended < 0.66
    assert 0.7 < told[:thawed].count(call.trial_ended()) / ended < 0.76
    trials = [made.args[0] for made in told if made[0] == "serve"]
    assert max(trials) == CONCURRENCY
    starts = sum(one == 0 < two for one, two in pairwise(trials))
    assert (starts, trials[0], trials[-1]) == (2, 0, 0), "at first, and after the resume"
    assert [line for line in lines if line.startswith(f"replica {FREEZES}")] == [
        "replica B: its scheduler hangs, though it answers",
        "replica B: its scheduler works again",
    ]


def test_the_load_of_a_healthy_run(tmp_path: Path) -> None:
    """Its number of trials at once, from start to end, at servers that work."""
    pool = create_autospec(ServingPool, instance=True)
    scenario = TerminalBenchDemo(
        tmp_path, n_tasks=12, say=lambda line: None, serving=pool, healthy=True, concurrency=24
    )
    assert scenario.run(None)
    trials = [made.args[0] for made in pool.mock_calls if made[0] == "serve"]
    assert max(trials) == 24
    assert sum(one == 0 < two for one, two in pairwise(trials)) == 1
    assert call.freeze() not in pool.mock_calls


def test_the_served_model_is_the_run_s() -> None:
    assert OPTIONS.model
    info = json.loads(SglangServer(OPTIONS.model, "0", 0.0).server_info())
    assert info["served_model_name"] == OPTIONS.model
