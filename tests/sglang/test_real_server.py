"""The exporter beside a real SGLang server: under load, frozen, killed and started again."""

from __future__ import annotations

import math
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import pytest
import requests

from harborlight.sources.sglang.replica import PAGE_PATIENCE
from support.deadline import eventually
from support.exporter import ExporterProcess, Watcher, command, environment, metrics_once
from support.harbor import HarborJob
from support.harbor_local.tasks import write_tasks
from support.page import Page
from support.sglang_server import CAPACITY, Load, RealServer

REPLICA = "harborlight_replica"
FROZEN_AFTER = 8
"""Seconds. A busy scheduler publishes its load every 40 steps only: here up to 4 s apart."""
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


TOTALS = {
    "requests_total": "num_requests_total",
    "aborted_requests_total": "num_aborted_requests_total",
    "retracted_requests_total": "num_retracted_requests_total",
    "prompt_tokens_total": "prompt_tokens_total",
    "cached_tokens_total": "cached_tokens_total",
    "generation_tokens_total": "generation_tokens_total",
}
"""What the exporter calls it, and SGLang."""
MODES = {"prefill": "prefill_compute", "cached": "prefill_cache", "decode": "decode"}
LATENCIES = {
    "time_to_first_token_seconds": "time_to_first_token_seconds",
    "inter_token_latency_seconds": "inter_token_latency_seconds",
    "request_latency_seconds": "e2e_request_latency_seconds",
    "queue_time_seconds": "queue_time_seconds",
}
GAUGES = (
    "running_requests",
    "queued_requests",
    "max_running_requests",
    "kv_tokens_used",
    "kv_tokens_capacity",
)


def own_page(server: RealServer) -> Page:
    """What the server itself says at ``/metrics``, which is open with a key, too."""
    answer = requests.get(
        f"{server.url}/metrics", headers={"Accept": "text/plain;version=0.0.4"}, timeout=30
    )
    answer.raise_for_status()
    return Page(answer.text)


def buckets(name: str, *pages: Page) -> dict[float, float]:
    """A histogram's cumulative counts by bound, all series of all pages together."""
    counts: dict[float, float] = {}
    for page in pages:
        for sample in page.find(f"{name}_bucket"):
            bound = float(dict(sample.labels)["le"])
            counts[bound] = counts.get(bound, 0.0) + sample.value
    return counts


def assert_counts(page: Page, *lives: Page) -> None:
    """All counters and histograms are the server's own, those of its several lives together.

    The pages of its lives are of one scheduler: nothing on them is there twice.
    """

    def told(name: str, **labels: str) -> float:
        return math.fsum(life.sum(f"sglang:{name}", **labels) for life in lives)

    for ours, theirs in TOTALS.items():
        assert page.sum(f"{REPLICA}_{ours}") == told(theirs), ours
    for kind, mode in MODES.items():
        found = page.sum(f"{REPLICA}_live_tokens_total", kind=kind)
        assert found == told("realtime_tokens_total", mode=mode), kind
    for ours, theirs in LATENCIES.items():
        assert page.sum(f"{REPLICA}_{ours}_count") == told(f"{theirs}_count") > 0, ours
        assert math.isclose(page.sum(f"{REPLICA}_{ours}_sum"), told(f"{theirs}_sum")), ours
        assert buckets(f"{REPLICA}_{ours}", page) == buckets(f"sglang:{theirs}", *lives), ours


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


def agrees(server: RealServer, look: Callable[[], Page], slack: bool = False) -> Page:
    """A page with exactly the server's work: while it was read, /v1/loads stayed the same.

    ``slack``: the tokens in use may have moved on meanwhile; the page's lie between.
    """

    def attempt() -> Page:
        earlier, page, later = server.sums(), look(), server.sums()
        found = work_of(page)
        assert earlier[:2] == later[:2] == found[:2], (earlier, found, later)
        assert earlier[2] <= found[2] <= later[2], (earlier, found, later)
        assert slack or earlier == later, (earlier, later)
        print(f"\n/v1/loads {earlier}, the page {found}, then {later}")
        return page

    return eventually(attempt, SLOW, what="a reading while nothing begins or ends")


def states(watcher: Watcher) -> list[str]:
    """The states that the replica went through."""
    shown = [page for page in watcher.pages if page.find(f"{REPLICA}_up")]
    assert all(page.value(f"{REPLICA}_up") == (state(page) == "up") for page in shown)
    return [name for name, _ in groupby(map(state, shown))]


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
    assert states(watcher) == ["up"]
    print(f"\nidle for {2 * FROZEN_AFTER} s: {len(watcher.pages)} pages, always up")


def test_command_line(tmp_path: Path, server: RealServer) -> None:
    """``--sglang`` alone, without a file."""
    watching = ExporterProcess((), tmp_path / "data", "--sglang", server.url)
    with watching:
        page = becomes(watching, "up")
        assert page.value(f"{REPLICA}_kv_tokens_capacity", pool="sglang", replica="1") == CAPACITY
    said = status("--sglang", server.url)
    print(f"\n{said}")
    for word in ("SGLang", "up", "0 %"):
        assert word in said
    assert f":{server.port}" not in said


def status(*arguments: str) -> str:
    """What ``harborlight status`` shows."""
    return subprocess.run(
        [*command(), "status", *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SLOW,
        check=True,
    ).stdout


def test_load(watched: tuple[ExporterProcess, Watcher], server: RealServer) -> None:
    """Under load, every number is the server's own."""
    watching, _ = watched
    before = becomes(watching, "up")
    load = Load(server, 24, 300)
    eventually(lambda: server.sums()[1] > 0, SLOW, what="a queue")
    agrees(server, watching.fresh_page)
    agrees(server, lambda: metrics_once(["--sglang", server.url]), slack=True)
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
    own = eventually(lambda: counts(watching, server), SLOW, what="the server's own counts")
    histograms = ", ".join(
        f"{name}: {own.sum(f'sglang:{name}_count'):g}" for name in LATENCIES.values()
    )
    print(f"and to the last bucket as the server's own page has it ({histograms})")


def counts(watching: ExporterProcess, server: RealServer, *lives: Page) -> Page:
    """The server's page, after the exporter's was found to have all that it says."""
    own = own_page(server)
    assert_counts(watching.fresh_page(), *lives, own)
    return own


def _requests(page: Page, before: Page) -> float:
    return page.sum(f"{REPLICA}_requests_total") - before.sum(f"{REPLICA}_requests_total")


def test_frozen(watched: tuple[ExporterProcess, Watcher], server: RealServer) -> None:
    """A server whose scheduler is stopped answers as if it worked, busy or idle."""
    watching, watcher = watched
    becomes(watching, "up")
    load = Load(server, 6, 500)
    eventually(lambda: server.sums()[0] == 6, SLOW, what="six running requests")
    with stopped(watching, server):
        # Nothing moves: all three are exactly the server's, whose page looks busy and well.
        page = agrees(server, watching.page)
        assert work_of(page)[0] == 6
        assert own_page(server).sum("sglang:num_requests_total") > 0
    assert -1 not in load.wait()
    with stopped(watching, server):
        assert work_of(watching.page()) == (0, 0, 0)
    eventually(lambda: counts(watching, server), SLOW, what="the server's own counts")
    assert states(watcher) == ["up", "frozen", "up", "frozen", "up"]


@contextmanager
def stopped(watching: ExporterProcess, server: RealServer) -> Iterator[None]:
    """Within, the scheduler is stopped and the exporter has noticed; afterwards it works again."""
    clock = "harborlight_snapshot_timestamp_seconds"
    since = watching.value(clock)
    server.signal_schedulers(signal.SIGSTOP)
    try:
        page = becomes(watching, "frozen")
        took = page.value(clock) - since
        print(f"\nfrozen {took:.1f} s after the stop ({FROZEN_AFTER} s configured)")
        assert page.value(f"{REPLICA}_up") == 0
        yield
    finally:
        server.signal_schedulers(signal.SIGCONT)
    becomes(watching, "up")


def test_killed_and_started_again(
    watched: tuple[ExporterProcess, Watcher], server: RealServer
) -> None:
    """Counters stay while it is away and go on afterwards; the watcher sees none fall."""
    watching, watcher = watched
    becomes(watching, "up")
    Load(server, 4, 20).wait()
    first = eventually(lambda: counts(watching, server), SLOW, what="the server's own counts")
    server.signal_schedulers(signal.SIGKILL)
    gone = becomes(watching, "unreachable")
    assert_away(gone, first)
    server.stop()
    # Nobody but the ledger knows now what the first life counted.
    watching.restart(gracefully=False)
    assert_away(becomes(watching, "unreachable"), first)
    server.start()
    becomes(watching, "up")
    assert -1 not in Load(server, 5, 30).wait()
    # A server asks itself one thing when it starts.
    second = eventually(lambda: counts(watching, server, first), SLOW, what="both lives' counts")
    page = watching.page()
    assert _requests(page, gone) == 1 + 5
    assert page.sum(f"{REPLICA}_kv_tokens_capacity") == CAPACITY
    watcher.check()
    assert states(watcher) == ["up", "unreachable", "up"]
    told = [life.sum("sglang:num_requests_total") for life in (first, second)]
    print(
        f"\nrequests by the server: {told[0]:g}, killed, {told[1]:g}; "
        f"by the exporter: {page.sum(f'{REPLICA}_requests_total'):g}; "
        f"{len(watcher.pages)} pages, no counter fell; {states(watcher)}"
    )


def assert_away(page: Page, life: Page) -> None:
    """The replica is not there: no number of this moment is left, and all that was counted."""
    assert [page.find(f"{REPLICA}_{name}") for name in GAUGES] == [[]] * len(GAUGES)
    assert page.value(f"{REPLICA}_requests_known") == 0
    assert page.value(f"{REPLICA}_kv_tokens_known") == 0
    assert_counts(page, life)


@pytest.mark.real_harbor
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
            assert watching.fresh_page().value(f"{REPLICA}_running_requests") == 0
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


KEYS = {"none": "", "right": "canary-key-4711", "wrong": "canary-wrong-1234"}


def test_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the key /v1/loads is read; without, or with another, the page. No key comes out."""
    key, admin = KEYS["right"], "canary-admin-0815"
    flags = ("--enable-metrics", "--api-key", key, "--admin-api-key", admin)
    with RealServer(tmp_path, *flags) as server:
        for path in ("/v1/loads", "/server_info"):
            assert requests.get(server.url + path, timeout=30).status_code == 401
        assert len(Load(server, 3, 20, key).wait()) == 3
        said = []
        for name, value in KEYS.items():
            work = tmp_path / name
            work.mkdir()
            monkeypatch.setenv("SGLANG_KEY", value)
            with exporter(work, server, key="SGLANG_KEY" if value else "") as watching:
                page = becomes(watching, "up")
                # From /v1/loads alone.
                by_loads = bool(page.find(f"{REPLICA}_max_running_requests"))
                assert by_loads == (name == "right")
                assert page.value(f"{REPLICA}_kv_tokens_capacity") == CAPACITY
                assert work_of(page) == (0, 0, 0)
                eventually(lambda: counts(watching, server), SLOW, what="the server's own counts")
                said += [page.text, watching.fetch("/")[1], *watching.log]
            file = str(work / "config.yaml")
            said += [metrics_once(["--config.file", file]).text, status("--config.file", file)]
            said += [f.read_bytes().decode("latin-1") for f in (work / "data").iterdir()]
            print(f"\n{name} key: up, by {'/v1/loads' if by_loads else 'the page'}")
        everything = "\n".join(said)
        for secret in (*filter(None, KEYS.values()), admin, str(tmp_path / "model")):
            assert secret not in everything
        assert f":{server.port}" not in everything


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
        eventually(
            lambda: all(row["num_running_reqs"] for row in server.loads()),
            SLOW,
            what="requests of both ranks",
        )
        page = agrees(server, watching.fresh_page)
        rows = [(row["num_running_reqs"], row["num_used_tokens"]) for row in server.loads()]
        print(f"two ranks, running and used: {rows}")
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
        assert states(watcher) == ["up"]
        server.signal_schedulers(signal.SIGSTOP)
        becomes(watching, "frozen", PAGE_PATIENCE + SLOW)
        print(f"\nTP 2, /v1/loads refused: up while idle for {PAGE_PATIENCE + 20:g} s, then frozen")
