"""Asking replicas over time: when, how often, and what a bad one costs the others."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harborlight.readings import Number, ReplicaSighting, ReplicaState, Total
from harborlight.sources.sglang.fetch import fetch_page
from harborlight.sources.sglang.replica import sighting
from harborlight.sources.sglang.source import SglangSource
from harborlight.sources.sglang.targets import ReplicaTarget
from support.deadline import eventually
from support.hostile import Behaviour, RawServer, answer, never

PAGE = b"""\
sglang:num_running_reqs{engine_type="unified",model_name="tiny",tp_rank="0"} 3
sglang:num_queue_reqs{engine_type="unified",model_name="tiny",tp_rank="0"} 1
sglang:num_requests_total{engine_type="unified",model_name="tiny"} 7
"""
LOADS = b"""{"timestamp": "2026-12-01T02:01:02+00:00", "version": "0.5.23", "loads": [
{"dp_rank": 0, "num_running_reqs": 4, "num_waiting_reqs": 2, "num_used_tokens": 10,
 "max_total_num_tokens": 100, "max_running_requests": 64, "timestamp": 1796090460.5}]}"""
INFO = b'{"tp_size": 8, "dp_size": 1, "pp_size": 1, "version": "0.5.23", "api_key": "k"}'
JSON = "application/json"
GOOD: Mapping[str, Behaviour] = {
    "/metrics": answer(PAGE),
    "/v1/loads": answer(LOADS, kind=JSON),
    "/server_info": answer(INFO, kind=JSON),
    "": answer(b"", status=404),
}


class Clock:
    """A monotonic clock that real time drives, and a test can put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


class Scene:
    """Servers, and a source that asks them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.clock = Clock()
        self.targets: list[ReplicaTarget] = []
        self.source = SglangSource(())

    def serve(self, behaviours: Mapping[str, Behaviour] | Behaviour) -> RawServer:
        return self._stack.enter_context(RawServer(behaviours))

    def replica(self, name: str, *urls: str, timeout: float = 10.0, **fields: object) -> None:
        target = ReplicaTarget("pool", name, urls, timeout=timeout, **fields)  # type: ignore[arg-type]
        self.targets.append(target)
        self.source = SglangSource(self.targets, clock=self.clock)

    def look(self) -> dict[str, ReplicaSighting]:
        """What one look brought, by replica."""
        observation = self.source.look(1000.0)
        assert observation.present_jobs is None
        assert observation.failures == observation.problems == ()
        return {seen.replica: seen for seen in observation.replicas}


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)


def test_a_good_replica(scene: Scene) -> None:
    server = scene.serve(GOOD)
    scene.replica("r1", server.url)
    seen = scene.look()["r1"]
    assert (seen.state, seen.complete, seen.reason) == (ReplicaState.UP, True, "")
    assert (seen.info.version, seen.info.tp, seen.info.served_model) == ("0.5.23", 8, "tiny")
    # /v1/loads is younger than the page.
    assert seen.numbers["unified"][Number.RUNNING] == 4
    assert seen.numbers["unified"][Number.MAX_RUNNING] == 64
    assert list(seen.totals[Total.REQUESTS].values()) == [7]
    assert [server.asked(path) for path in ("/metrics", "/v1/loads", "/server_info")] == [1, 1, 1]


def test_asked_when_it_is_due(scene: Scene) -> None:
    """Not before its interval; about itself every five minutes only."""
    server = scene.serve(GOOD)
    scene.replica("r1", server.url, scrape_interval=5.0)
    assert len(scene.look()) == 1
    assert scene.look() == {}
    for asked in (2, 3):
        scene.clock.ahead += 5.0
        assert len(scene.look()) == 1
        assert server.asked("/metrics") == server.asked("/v1/loads") == asked
    assert server.asked("/server_info") == 1
    scene.clock.ahead += 300.0
    scene.look()
    assert server.asked("/server_info") == 2


def test_a_look_that_starts_a_moment_early(scene: Scene) -> None:
    """No two looks take the same time to get to the replicas; that must not halve their rate."""
    server = scene.serve(GOOD)
    scene.replica("r1", server.url, scrape_interval=5.0)
    scene.look()
    scene.clock.ahead += 4.0
    assert scene.look() == {}
    scene.clock.ahead += 0.7
    assert len(scene.look()) == 1


def test_asked_again_about_itself_after_a_failure(scene: Scene) -> None:
    """A server that is starting says 503; for five minutes its size would not be known."""
    behaviours = {**GOOD, "/server_info": answer(b"", status=503)}
    server = scene.serve(behaviours)
    scene.replica("r1", server.url, scrape_interval=5.0)
    assert scene.look()["r1"].info.tp == 1  # by the page
    behaviours["/server_info"] = GOOD["/server_info"]
    scene.clock.ahead += 31.0
    assert scene.look()["r1"].info.tp == 8
    assert server.asked("/server_info") == 2
    assert server.asked("/get_server_info") == 0


def test_what_hangs_behind_a_page_delays_one_look_only(scene: Scene) -> None:
    server = scene.serve({**GOOD, "/v1/loads": never})
    scene.replica("r1", server.url, timeout=3.0, scrape_interval=0.1)
    assert scene.look()["r1"].state is ReplicaState.UP
    scene.clock.ahead += 0.1
    started = time.monotonic()
    assert scene.look() == {}
    assert time.monotonic() - started < 0.5, "the look waited for it"


def test_an_endpoint_that_is_not_there(scene: Scene) -> None:
    """/v1/loads of old releases is looked for again after five minutes; so is their other name."""
    server = scene.serve({**GOOD, "/v1/loads": GOOD[""], "/server_info": GOOD[""]})
    scene.replica("r1", server.url)
    for _ in range(3):
        seen = scene.look()["r1"]
        scene.clock.ahead += 5.0
        assert seen.state is ReplicaState.UP
        assert seen.numbers["unified"][Number.RUNNING] == 3
    assert server.asked("/v1/loads") == server.asked("/server_info") == 1
    assert server.asked("/get_server_info") == 1
    scene.clock.ahead += 300.0
    scene.look()
    assert server.asked("/v1/loads") == 2


def test_back_off(scene: Scene) -> None:
    """Twice as long after every failure, up to half a minute; at once after a success."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    scene.replica("r1", f"http://127.0.0.1:{port}", scrape_interval=4.0)
    assert scene.look()["r1"].reason == "connection refused"
    pauses: list[float] = []
    while len(pauses) < 6:
        pause = 0.0
        while not scene.look():
            scene.clock.ahead += 1.0
            pause += 1.0
        pauses.append(pause)
    # The clock also goes by itself, a little.
    for pause, expected in zip(pauses, (4, 8, 16, 30, 30, 30), strict=True):
        assert expected - 1 <= pause <= expected


def test_what_is_known_of_a_server_ends_with_it(scene: Scene) -> None:
    """After a failure whoever answers may be another server: it is asked what it is."""
    behaviours = dict(GOOD)
    server = scene.serve(behaviours)
    scene.replica("r1", server.url, scrape_interval=1.0)
    scene.look()
    behaviours["/metrics"] = answer(b"", status=500)
    scene.clock.ahead += 1.0
    assert scene.look()["r1"].state is ReplicaState.UNREACHABLE
    behaviours["/metrics"] = GOOD["/metrics"]
    scene.clock.ahead += 30.0
    assert scene.look()["r1"].state is ReplicaState.UP
    assert server.asked("/server_info") == 2


def test_a_hung_replica_delays_one_look_only(scene: Scene) -> None:
    good, hung = scene.serve(GOOD), scene.serve(never)
    scene.replica("good", good.url, scrape_interval=0.1)
    scene.replica("hung", hung.url, timeout=1.0, scrape_interval=0.1)
    assert {name: seen.state for name, seen in scene.look().items()} == {
        "good": ReplicaState.UP,
        "hung": ReplicaState.UNREACHABLE,
    }
    without_it: list[bool] = []
    later: dict[str, ReplicaSighting] = {}

    def hung_again() -> bool:
        scene.clock.ahead += 0.05
        seen = scene.look()
        # The look is over while the hung one is still being asked.
        without_it.append(scene.source._replicas[1].scrape is not None)
        later.update(seen)
        return "hung" in later

    eventually(hung_again, 60, what="the hung replica's next result")
    assert any(without_it)
    assert later["good"].state is ReplicaState.UP
    assert later["hung"].reason == "timed out"


def test_one_request_at_a_time(scene: Scene) -> None:
    """However often it is looked, a server that has not answered is not asked again."""
    server = scene.serve(never)
    scene.replica("r1", server.url, timeout=0.5, scrape_interval=0.01)
    scene.source._replicas[0].prompt = False
    for _ in range(20):
        scene.look()
        scene.clock.ahead += 0.01
    eventually(lambda: server.asked("/metrics") == 1, what="the request")
    assert server.asked("/metrics") == 1


@pytest.mark.parametrize("path", ["/v1/loads", "/server_info"])
def test_a_page_counts_although_more_hangs(scene: Scene, path: str) -> None:
    """What is stuck behind the scheduler takes its share of the time, and no more."""
    server = scene.serve({**GOOD, path: never})
    scene.replica("r1", server.url, timeout=3.0)
    seen = scene.look()["r1"]
    assert (seen.state, seen.complete) == (ReplicaState.UP, True)
    assert seen.numbers["unified"][Number.RUNNING] == (3 if path == "/v1/loads" else 4)
    if path == "/v1/loads":
        assert seen.info.tp == 8, "there was no time left to ask what it is"
        # A page that stands still beside it is a sign of a stuck scheduler.
        assert [key.partition("/")[0] for key in seen.pulses] == ["page"]


def test_a_scrape_that_nothing_can_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a host that is never found: said once, and no second thread is spent on it."""
    released = threading.Event()
    asked = []

    def resolve(host: str, *args: object, **more: object) -> list[object]:
        asked.append(host)
        released.wait(30)
        return []

    monkeypatch.setattr("harborlight.sources.fetch.socket.getaddrinfo", resolve)
    scene.replica("r1", "http://stuck.invalid:1", timeout=1.0, scrape_interval=0.1)
    try:
        seen = scene.look()["r1"]
        assert (seen.state, seen.reason) == (ReplicaState.UNREACHABLE, "timed out")
        for _ in range(3):
            scene.clock.ahead += 60
            assert scene.look() == {}
        assert asked == ["stuck.invalid"]
    finally:
        released.set()
    eventually(lambda: scene.source._replicas[0].scrape is None, what="the thread's end")
    # Its late word is not news; the next look asks again.
    scene.clock.ahead += 60
    assert scene.look() == {}
    seen = eventually(scene.look, what="the next result")["r1"]
    assert (seen.state, seen.reason) == (ReplicaState.UNREACHABLE, "name not found")
    assert len(asked) == 2


def test_no_second_thread_for_a_further_server_that_is_stuck(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does its late word count; once it has ended, the server is asked again."""
    released, found = threading.Event(), socket.getaddrinfo
    asked: list[threading.Thread] = []

    def resolve(host: str, *args: Any, **more: Any) -> list[Any]:
        if host == "stuck.invalid":
            asked.append(threading.current_thread())
            released.wait(30)
            return []
        return found(host, *args, **more)

    monkeypatch.setattr("harborlight.sources.fetch.socket.getaddrinfo", resolve)
    server = scene.serve(GOOD)
    scene.replica("r1", server.url, "http://stuck.invalid:1", timeout=1.5)

    def reason() -> str:
        seen = eventually(scene.look, what="a result")["r1"]
        scene.clock.ahead += 60
        return seen.reason

    try:
        for _ in range(4):
            assert reason() == "another of its servers: timed out"
        assert len(asked) == 1
    finally:
        released.set()
    asked[0].join(10)
    assert reason() == "another of its servers: name not found"
    assert len(asked) == 2
    assert server.asked("/metrics") == 5


def test_no_threads_left(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the others found is not lost, and who was not asked goes first the next time."""
    server = scene.serve(GOOD)
    for name in ("a", "b"):
        scene.replica(name, server.url, scrape_interval=0.001)
    start, left = threading.Thread.start, ["a"]

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("sglang "):
            if not left:
                raise RuntimeError("can't start new thread")
            assert thread.name == f"sglang pool/{left.pop()}"
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    for name in ("a", "b"):
        left[:] = [name]
        observation = scene.source.look(1000.0)
        assert [seen.replica for seen in observation.replicas] == [name]
        (failure,) = observation.failures
        assert failure.reason == "no thread to ask them with"
        scene.clock.ahead += 1.0


def test_a_mistake_of_ours_costs_one_replica(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = scene.serve(GOOD), scene.serve(GOOD)
    scene.replica("good", good.url)
    scene.replica("bad", bad.url)

    def broken(pool: str, replica: str, *args: object, **more: object) -> ReplicaSighting:
        if replica == "bad":
            raise RuntimeError(bad.url)
        return sighting(pool, replica, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("harborlight.sources.sglang.source.sighting", broken)
    seen = scene.look()
    assert seen["good"].state is ReplicaState.UP
    assert (seen["bad"].state, seen["bad"].reason) == (ReplicaState.UNREACHABLE, "internal error")
    assert str(bad.port) not in caplog.text
    assert "RuntimeError" in [vars(record)["error"] for record in caplog.records]


class TestSeveralServers:
    """One replica on two nodes; the second reports its own ranks and no requests."""

    SECOND = b'sglang:max_total_num_tokens{engine_type="unified",tp_rank="8"} 100\n'

    @pytest.mark.parametrize(
        ("second", "state", "complete"),
        [
            (answer(SECOND), ReplicaState.UP, True),
            # Releases of early 2025 have no metrics on further nodes.
            (answer(b"", status=404), ReplicaState.UP, True),
            (answer(b"", status=500), ReplicaState.INCOMPLETE, False),
            (never, ReplicaState.INCOMPLETE, False),
        ],
    )
    def test_the_second(
        self, scene: Scene, second: Behaviour, state: ReplicaState, complete: bool
    ) -> None:
        first, other = scene.serve(GOOD), scene.serve(second)
        scene.replica("r1", first.url, other.url, timeout=2.0)
        seen = scene.look()["r1"]
        assert (seen.state, seen.complete) == (state, complete)
        assert other.asked("/v1/loads") == other.asked("/server_info") == 0

    def test_a_mistake_of_ours_in_the_second(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It ends in the log by its type only, not on standard error."""
        first, other = scene.serve(GOOD), scene.serve(GOOD)

        def broken(target: ReplicaTarget, url: str, *more: object) -> None:
            if url.startswith(other.url):
                raise RuntimeError(url)
            fetch_page(target, url, *more)  # type: ignore[arg-type]

        monkeypatch.setattr("harborlight.sources.sglang.source.fetch_page", broken)
        scene.replica("r1", first.url, other.url)
        seen = scene.look()["r1"]
        assert seen.reason == "another of its servers: internal error"
        assert str(other.port) not in caplog.text
        assert [vars(record)["error"] for record in caplog.records] == ["RuntimeError"]

    def test_the_first(self, scene: Scene) -> None:
        first, other = scene.serve(answer(b"", status=500)), scene.serve(answer(self.SECOND))
        scene.replica("r1", first.url, other.url)
        seen = scene.look()["r1"]
        assert (seen.state, seen.complete) == (ReplicaState.INCOMPLETE, False)
        assert seen.reason == "its first server: HTTP 500"


def test_a_hundred(scene: Scene, sglang: Path) -> None:
    """All in one look."""
    page = (sglang / "sglang-expositions/real-0.5.23-cpu-tp1-busy.txt").read_bytes()
    server = scene.serve({**GOOD, "/metrics": answer(page)})
    scene.targets = [ReplicaTarget("pool", str(n), (server.url,), timeout=60) for n in range(100)]
    scene.source = SglangSource(scene.targets)
    seen = scene.look()
    assert len(seen) == 100
    assert {one.state for one in seen.values()} == {ReplicaState.UP}
