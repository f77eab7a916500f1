"""The exporter beside a real SGLang server: under load, frozen, killed and started again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harborlight.sources.sglang.replica import PAGE_PATIENCE
from support.deadline import eventually
from support.exporter import ExporterProcess, Watcher, metrics_once
from support.harbor import HarborJob
from support.harbor_local.tasks import write_tasks
from support.page import Page
from support.sglang_server import CAPACITY, Load, RealServer

REPLICA = "harborlight_replica"
FROZEN_AFTER = 8
SLOW = 120.0
"""Seconds that a step may take: two processors run server, exporter, requests and watcher."""


def config(work: Path, server: RealServer, *, key: str = "") -> Path:
    file = work / "config.yaml"
    file.write_text(
        "pools:\n"
        "  - name: main\n"
        "    scrape_interval: 200ms\n"
        f"    frozen_after: {FROZEN_AFTER}s\n"
        + (f"    api_key: {{env: {key}}}\n" if key else "")
        + f"    replicas: [{{name: r1, url: '{server.url}'}}]\n"
    )
    return file


def exporter(work: Path, server: RealServer, *jobs: Path, key: str = "") -> ExporterProcess:
    extra = ("--config.file", str(config(work, server, key=key)), "--log.level", "debug")
    return ExporterProcess(jobs, work / "data", *extra)


def state(page: Page) -> str:
    """The one state that is 1."""
    (label,) = [
        dict(sample.labels)["state"]
        for sample in page.find(f"{REPLICA}_state")
        if sample.value == 1
    ]
    return label


def work_of(page: Page) -> tuple[float, float, float]:
    """Running and queued requests and used tokens."""
    running, queued, used = (
        page.value(f"{REPLICA}_{name}")
        for name in ("running_requests", "queued_requests", "kv_tokens_used")
    )
    return running, queued, used


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with RealServer(tmp_path_factory.mktemp("server"), "--enable-metrics") as running:
        yield running


@pytest.fixture
def watched(tmp_path: Path, server: RealServer) -> Iterator[tuple[ExporterProcess, Watcher]]:
    with exporter(tmp_path, server) as watching, Watcher(watching) as watcher:
        yield watching, watcher


def becomes(watching: ExporterProcess, wanted: str, timeout: float = SLOW) -> Page:
    def look() -> Page:
        page = watching.page()
        found = state(page)
        assert found == wanted, f"it is {found}"
        return page

    return eventually(look, timeout, interval=0.2, what=f"state {wanted}")


def passes(watching: ExporterProcess, seconds: float) -> None:
    """Wait until the exporter has refreshed for so long."""
    name = "harborlight_snapshot_timestamp_seconds"
    start = watching.value(name)
    eventually(lambda: watching.value(name) - start >= seconds, seconds + SLOW, what=f"{seconds} s")


def test_idle(watched: tuple[ExporterProcess, Watcher]) -> None:
    """An idle scheduler shows signs of life: it is not taken for a frozen one."""
    watching, watcher = watched
    page = becomes(watching, "up")
    info = {"version": "0.5.23", "served_model": "tiny", "tp": "1", "pp": "1", "dp": "1"}
    assert page.value(f"{REPLICA}_info", **info) == 1
    assert page.value(f"{REPLICA}_kv_tokens_capacity") == CAPACITY
    assert work_of(page)[:2] == (0, 0)
    passes(watching, 2 * FROZEN_AFTER)
    first = next(i for i, page in enumerate(watcher.pages) if page.find(f"{REPLICA}_up"))
    assert {state(page) for page in watcher.pages[first:]} == {"up"}
    print(f"\nidle for {2 * FROZEN_AFTER} s: {len(watcher.pages)} pages, always up")


def test_load(watched: tuple[ExporterProcess, Watcher], server: RealServer) -> None:
    """Under load, every number is the server's own."""
    watching, _ = watched
    before = becomes(watching, "up")
    load = Load(server, 24, 300)
    eventually(lambda: server.sums()[1] > 0, SLOW, what="a queue")

    def agree() -> Page:
        earlier, page, later = server.sums(), metrics_once(["--sglang", server.url]), server.sums()
        running, queued, used = work_of(page)
        print(f"\n/v1/loads {earlier}, harborlight metrics {(running, queued, used)}, then {later}")
        assert earlier[:2] == later[:2] == (running, queued)
        assert earlier[2] <= used <= later[2]
        return page

    eventually(agree, SLOW, what="a reading while nothing begins or ends")
    prompts = load.wait()
    after = eventually(
        lambda: page if _requests(page := watching.page(), before) == 24 else None,
        SLOW,
        what="24 finished requests",
    )
    assert after is not None
    for name, expected in (
        ("requests_total", 24),
        ("generation_tokens_total", 24 * 300),
        ("prompt_tokens_total", sum(prompts)),
        ("time_to_first_token_seconds_count", 24),
        ("request_latency_seconds_count", 24),
    ):
        grew = after.sum(f"{REPLICA}_{name}") - before.sum(f"{REPLICA}_{name}")
        print(f"{name} grew by {grew:g}, asked for {expected}")
        assert grew == expected


def _requests(page: Page, before: Page) -> float:
    return page.sum(f"{REPLICA}_requests_total") - before.sum(f"{REPLICA}_requests_total")


def test_frozen(watched: tuple[ExporterProcess, Watcher], server: RealServer) -> None:
    """A stopped scheduler answers as if it worked: ``/metrics`` is 200 and looks busy."""
    watching, _ = watched
    becomes(watching, "up")
    load = Load(server, 8, 500)
    eventually(lambda: server.sums()[0] > 0, SLOW, what="running requests")
    server.signal_schedulers(signal.SIGSTOP)
    try:
        page = becomes(watching, "frozen")
        assert page.value(f"{REPLICA}_up") == 0
        # Nothing moves: all three are exactly the server's.
        print(f"\nfrozen: /v1/loads {server.sums()}, the page {work_of(page)}")
        assert work_of(page) == server.sums()
        assert work_of(page)[0] > 0
    finally:
        server.signal_schedulers(signal.SIGCONT)
    becomes(watching, "up")
    assert -1 not in load.wait()


def test_killed_and_started_again(
    watched: tuple[ExporterProcess, Watcher], server: RealServer
) -> None:
    """Counters stay while it is away and go on afterwards; the watcher sees none fall."""
    watching, watcher = watched
    becomes(watching, "up")
    Load(server, 4, 20).wait()
    passes(watching, 2)
    before = watching.fresh_page()
    server.signal_schedulers(signal.SIGKILL)
    gone = becomes(watching, "unreachable")
    assert gone.find(f"{REPLICA}_running_requests") == []
    assert gone.value(f"{REPLICA}_requests_known") == 0
    assert _requests(gone, before) == 0
    server.stop()
    server.start()
    again = becomes(watching, "up")
    # A server asks itself one thing when it starts.
    own = _requests(again, before)
    Load(server, 5, 30).wait()
    eventually(
        lambda: _requests(watching.page(), before) == own + 5, SLOW, what="five more requests"
    )
    watcher.check()
    print(
        f"\nrequests: {before.sum(f'{REPLICA}_requests_total'):g} before the kill, "
        f"{again.sum(f'{REPLICA}_requests_total'):g} after the start, then 5 more: "
        f"{watching.page().sum(f'{REPLICA}_requests_total'):g}; {len(watcher.pages)} pages"
    )


def test_job(tmp_path: Path, server: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both halves joined: the trials of a real Harbor job and the requests that they make."""
    monkeypatch.setenv("MODEL_SERVER", server.url)
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    dataset = write_tasks(tmp_path / "calling", ["first", "second", "third"])
    script = {"default": ["wait:together,ask:400,ok"]}
    with exporter(tmp_path, server, jobs) as watching:
        before = becomes(watching, "up")
        with HarborJob(jobs, "calling", tmp_path) as job:
            job.run(dataset, script=script, concurrent=3, model="openai/tiny")
            eventually(
                lambda: watching.value("harborlight_pool_trials", state="running") == 3,
                SLOW,
                what="three running trials",
            )
            job.open_gate("together")

            def joined() -> tuple[float, float]:
                page = watching.page()
                pair = (
                    page.value("harborlight_pool_trials", state="running"),
                    page.value(f"{REPLICA}_running_requests"),
                )
                assert pair == (3, 3), pair
                return pair

            trials, requests = eventually(joined, SLOW, what="three trials and three requests")
            print(f"\n{trials:g} trials running, {requests:g} requests running")
            job.wait(SLOW)
        done = eventually(
            lambda: page if _scored(page := watching.page()) == 3 else None, SLOW, what="the end"
        )
        assert done is not None
        grew = {
            name: done.sum(f"{REPLICA}_{name}") - before.sum(f"{REPLICA}_{name}")
            for name in ("requests_total", "generation_tokens_total", "prompt_tokens_total")
        }
        tokens = {
            kind: done.value("harborlight_run_tokens_total", kind=kind)
            for kind in ("input", "cached_input", "output")
        }
        print(f"the replica: {grew}, the run: {tokens}")
        assert grew["requests_total"] == 3
        assert grew["generation_tokens_total"] == tokens["output"] == 3 * 400
        assert grew["prompt_tokens_total"] == tokens["input"] + tokens["cached_input"]
        assert done.value("harborlight_pool_model_match") == 1
        assert done.value("harborlight_pool_trials", state="scored") == 3


def _scored(page: Page) -> float:
    return page.sum("harborlight_run_attempts", state="scored")


def test_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the key /v1/loads is read; without, the page. Neither key comes out."""
    key, admin = "canary-key-4711", "canary-admin-0815"
    flags = ("--enable-metrics", "--api-key", key, "--admin-api-key", admin)
    with RealServer(tmp_path, *flags) as server:
        said = []
        for name in ("", "SGLANG_KEY"):
            work = tmp_path / f"key-{name}"
            work.mkdir()
            monkeypatch.setenv("SGLANG_KEY", key)
            with exporter(work, server, key=name) as watching:
                page = becomes(watching, "up")
                # From /v1/loads alone.
                assert bool(page.find(f"{REPLICA}_max_running_requests")) == bool(name)
                assert page.value(f"{REPLICA}_kv_tokens_capacity") == CAPACITY
                said += [page.text, watching.fetch("/")[1], *watching.log]
            said.append(metrics_once(["--config.file", work / "config.yaml"]).text)
        everything = "\n".join(said)
        for secret in (key, admin, str(server.port), str(tmp_path / "model")):
            assert secret not in everything


def test_data_parallel(tmp_path: Path) -> None:
    """Two ranks: room for twice as many tokens, and requests of both."""
    env = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
    with (
        RealServer(tmp_path, "--enable-metrics", "--dp-size", "2", env=env) as server,
        exporter(tmp_path, server) as watching,
    ):
        page = becomes(watching, "up")
        assert page.value(f"{REPLICA}_kv_tokens_capacity") == 2 * CAPACITY
        assert page.value(f"{REPLICA}_info", dp="2") == 1
        load = Load(server, 12, 200)

        def agree() -> Page:
            earlier, page, later = server.sums(), watching.fresh_page(), server.sums()
            assert earlier[:2] == later[:2] == work_of(page)[:2]
            assert earlier[0] > 1
            print(f"\ntwo ranks: /v1/loads {earlier}, the page {work_of(page)}")
            return page

        eventually(agree, SLOW, what="a reading while nothing begins or ends")
        assert -1 not in load.wait()


def test_tensor_parallel_without_loads(tmp_path: Path) -> None:
    """Two ranks of which one logs nothing, known by their page alone: idle for long, then hung."""
    env = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1", "SGLANG_NCCL_SO_PATH": "/nonexistent/libnccl.so"}
    flags = ("--enable-metrics", "--api-key", "a-key-that-nobody-tells", "--tp-size", "2")
    with (
        RealServer(tmp_path, *flags, "--disable-custom-all-reduce", env=env) as server,
        exporter(tmp_path, server) as watching,
        Watcher(watching) as watcher,
    ):
        page = becomes(watching, "up")
        assert page.value(f"{REPLICA}_info", tp="2") == 1
        assert page.value(f"{REPLICA}_kv_tokens_capacity") == CAPACITY
        passes(watching, PAGE_PATIENCE + 20)
        first = next(i for i, page in enumerate(watcher.pages) if page.find(f"{REPLICA}_up"))
        assert {state(page) for page in watcher.pages[first:]} == {"up"}
        server.signal_schedulers(signal.SIGSTOP)
        becomes(watching, "frozen", PAGE_PATIENCE + SLOW)
        print(f"\nTP 2, /v1/loads refused: up while idle for {PAGE_PATIENCE + 20:g} s, then frozen")
