"""What every recorded page says, by hand.

The collector classes of each release were given the same invented work, so that a case means the
same in all of them. What is expected was read off the pages' lines and put together by the rules:
ranks repeat each other, data-parallel ranks add up, ``priority=""`` is the total.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from harborlight.ledger.replicas import Replica, ReplicaStanding
from harborlight.readings import Latency, Number, ReplicaState, Total
from harborlight.sources.failure import Trouble, Unreadable
from harborlight.sources.sglang.page import read_page
from harborlight.sources.sglang.replica import ServerAnswers, sighting


class Expected(NamedTuple):
    """None: absent, because it is not known or nobody has counted it yet."""

    running: float | None
    queued: float | None
    used: float | None
    capacity: float | None
    requests: float | None
    generated: float | None
    first_tokens: float | None
    role: str = "unified"


UNRANKED = ("0.3.6", "0.4.1", "0.4.3", "0.4.6.post5")
"""Their gauges do not tell ranks apart: without more knowledge they are left out."""

WITHOUT_CAPACITY = (*UNRANKED, "0.5.0rc0", "0.5.1", "0.5.2", "0.5.3", "0.5.5")
NEWER = ("0.5.6", "0.5.8", "0.5.10", "0.5.15", "0.5.18", "0.5.20", "0.5.23")
ALL = (*WITHOUT_CAPACITY, *NEWER)
WITHOUT_REQUESTS = ("0.3.6", "0.4.1")
ROLES_SINCE = ("0.5.8", "0.5.10", "0.5.15", "0.5.18", "0.5.20", "0.5.23")

WORK = Expected(37, 4, 262_300, 430_000, 20, 2400, 20)
"""One scheduler's work, and twenty requests."""

CASES: dict[str, tuple[Expected, tuple[str, ...]]] = {
    "tp1": (WORK, ALL),
    "tp8": (WORK, ALL),
    "tp8-allranks": (WORK, ALL),  # eight times the same
    "tp2-pp2": (WORK, ALL),  # two stages of the same
    # 37 + 12 running, 4 + 1 queued, 262300 + 86000 used, two caches.
    "dp2": (WORK._replace(running=49, queued=5, used=348_300, capacity=860_000), ALL),
    "tp8-dp2-attn": (WORK._replace(running=49, queued=5, used=348_300, capacity=860_000), ALL),
    "idle": (WORK._replace(running=0, queued=0, used=0), ALL),
    "saturated": (Expected(256, 913, 425_700, 430_000, 200, 24_000, 200), ALL),
    "pd-prefill": (WORK, ALL[2:]),
    "pd-decode": (WORK, ALL[2:]),
    "priority": (WORK, NEWER[2:]),
    "extra-labels": (WORK, NEWER[2:]),
    "lora-hicache": (WORK, NEWER[1:]),
}

NOTHING = Expected(None, None, None, None, None, None, None)
OTHERS = {
    # Before any batch only constants are there, and they only since 0.5.12.
    **{f"{release}-startup-nolog": NOTHING for release in ALL},
    **{
        f"{release}-startup-nolog": NOTHING._replace(capacity=430_000)
        for release in ("0.5.15", "0.5.18", "0.5.20", "0.5.23")
    },
    # Two lives of a server in one directory: counters went on, gauges of the dead stay.
    "0.4.1-userdir-restart": Expected(None, None, None, None, None, 4800, 40),
    "0.5.5-userdir-restart": Expected(0, 0, 0, None, 40, 4800, 40),
    "0.5.23-userdir-restart": Expected(0, 0, 0, 430_000, 40, 4800, 40),
    # Of two data-parallel ranks one is gone: what is left is not the whole.
    "0.5.23-dead-scheduler": NOTHING,
    "real-0.5.23-cpu-dp2-busy": Expected(20, 20, 722 + 672, 8192, 2, 16, 22),
    "real-0.5.23-cpu-pp2-idle": Expected(0, 0, 0, 4096, 25, 4808, 25),
    "real-0.5.23-cpu-priority-busy": Expected(0, 0, 0, 4096, 25, 4808, 25),
    "real-0.5.23-cpu-priority-idle": Expected(0, 0, 0, 4096, 25, 4808, 25),
    "real-0.5.23-cpu-rustserver-busy": Expected(16, 0, 836, 4096, 1, 8, 9),
    "real-0.5.23-cpu-tokworkers2-idle": Expected(0, 0, 0, 4096, 26, 4816, 26),
    "real-0.5.23-cpu-tp1-startup": Expected(0, 0, 0, 4096, 1, 8, 1),
    "real-0.5.23-cpu-tp1-busy": Expected(4, 6, 141, 4096, 10, 3608, 14),
    "real-0.5.23-cpu-tp1-idle": Expected(0, 0, 0, 4096, 25, 9608, 25),
    "real-0.5.23-cpu-tp1-prom2-openmetrics": Expected(0, 0, 0, 4096, 25, 9608, 25),
    "real-0.5.23-cpu-tp1-scheduler-frozen": Expected(6, 18, 3258, 4096, 25, 9608, 31),
    "real-0.5.23-cpu-tp2-busy": Expected(16, 7, 149, 4096, 1, 8, 9),
    "real-0.5.23-cpu-tp2-idle": Expected(0, 0, 0, 4096, 25, 4464, 25),
    "real-0.5.23-cpu-tp2-allranks-idle": Expected(0, 0, 0, 4096, 25, 4588, 25),
    "real-0.5.23-cpu-userdir-life1-busy": Expected(7, 0, 1237, 4096, 18, 3408, 25),
    "real-0.5.23-cpu-userdir-life1-idle": Expected(0, 0, 0, 4096, 25, 4808, 25),
    "real-0.5.23-cpu-userdir-life2-idle": Expected(0, 0, 0, 4096, 50, 9616, 50),
}


def expected_of(release: str, case: str) -> Expected:
    """A case's work as far as a release tells it."""
    work = CASES[case][0]
    if release in UNRANKED:
        work = work._replace(running=None, queued=None, used=None)
    if release in WITHOUT_CAPACITY:
        work = work._replace(capacity=None)
    if release in WITHOUT_REQUESTS:
        work = work._replace(requests=None)
    if case.startswith("pd-") and release in ROLES_SINCE:
        work = work._replace(role=case.removeprefix("pd-"))
    return work


TABLE = {
    **{
        f"{release}-{case}": expected_of(release, case)
        for case, (_, releases) in CASES.items()
        for release in releases
    },
    **OTHERS,
}
ROUTERS = {
    "router-0.1.9": "no SGLang metrics on the page",
    "router-0.2.2": "no SGLang metrics on the page",
    "router-0.3.2": "no SGLang metrics on the page",
    "router-0.3.2-mixed-auth": "no SGLang metrics on the page",
    "router-0.3.2-engine_metrics": "a router's page: list its workers as replicas",
}


def test_every_page_is_in_the_table(sglang: Path) -> None:
    pages = {page.stem for page in (sglang / "sglang-expositions").glob("*.txt")}
    assert pages == {*TABLE, *ROUTERS}
    assert len(pages) == 214
    others = {other.name for other in (sglang / "sglang-expositions").iterdir()}
    assert others - {f"{page}.txt" for page in pages} == {"prometheus_client-negotiation.log"}


def look(page: Path, *, data_parallel: int | None = None) -> ReplicaStanding:
    """A replica whose one look brought this page."""
    answers = ServerAnswers("s", read_page(page.read_bytes(), "s"))
    replica = Replica("pool", "r")
    replica.take(sighting("pool", "r", 0.0, [answers], data_parallel=data_parallel))
    return replica.standing(30.0)


def shown(standing: ReplicaStanding) -> Expected:
    """The numbers and totals that the table has."""
    (numbers,) = standing.numbers.values() or ({},)
    roles = {*standing.numbers, *standing.totals.get(Total.GENERATION_TOKENS, {})}
    latencies = standing.latencies.get(Latency.TIME_TO_FIRST_TOKEN)

    def total(which: Total) -> float | None:
        values = standing.totals.get(which)
        return sum(values.values()) if values else None

    return Expected(
        running=numbers.get(Number.RUNNING),
        queued=numbers.get(Number.QUEUED),
        used=numbers.get(Number.KV_USED),
        capacity=numbers.get(Number.KV_CAPACITY),
        requests=total(Total.REQUESTS),
        generated=total(Total.GENERATION_TOKENS),
        first_tokens=sum(sum(h.counts) for h in latencies.values()) if latencies else None,
        role="/".join(roles) or "unified",
    )


@pytest.mark.parametrize("name", TABLE)
def test_page(sglang: Path, name: str) -> None:
    page = sglang / "sglang-expositions" / f"{name}.txt"
    standing = look(page)
    assert shown(standing) == TABLE[name]
    unknown = TABLE[name].running is None and "startup" not in name
    assert (standing.state is ReplicaState.INCOMPLETE) == unknown


@pytest.mark.parametrize("name", ROUTERS)
def test_router(sglang: Path, name: str) -> None:
    """It counts every worker's work again; which names it has depends on its release."""
    page = sglang / "sglang-expositions" / f"{name}.txt"
    with pytest.raises(Unreadable) as raised:
        read_page(page.read_bytes())
    assert raised.value.failure.trouble is Trouble.WRONG_KIND
    assert raised.value.failure.reason == ROUTERS[name]


@pytest.mark.parametrize("release", UNRANKED)
@pytest.mark.parametrize("case", ["tp1", "tp8", "idle", "saturated"])
def test_an_old_release_that_is_known_not_to_be_parallel(
    sglang: Path, release: str, case: str
) -> None:
    page = sglang / "sglang-expositions" / f"{release}-{case}.txt"
    work = CASES[case][0]
    standing = look(page, data_parallel=1)
    assert shown(standing)[:3] == work[:3]
    assert standing.state is ReplicaState.UP


@pytest.mark.parametrize(
    ("name", "running"),
    [
        # The last writer's word is everybody's, as long as all say the same.
        ("0.4.6.post5-tp8-allranks", 37),
        ("0.4.6.post5-tp2-pp2", 37),
        ("0.4.6.post5-pd-prefill", 37),
        ("0.4.6.post5-pd-decode", 37),
        ("0.4.3-pd-prefill", 37),
        ("0.4.3-pd-decode", 37),
        *((f"{release}-startup-nolog", None) for release in UNRANKED),
    ],
)
def test_more_of_old_releases_without_data_parallelism(
    sglang: Path, name: str, running: float | None
) -> None:
    standing = look(sglang / "sglang-expositions" / f"{name}.txt", data_parallel=1)
    assert shown(standing).running == running
    assert (standing.state, standing.reason) == (ReplicaState.UP, "")


@pytest.mark.parametrize("release", UNRANKED)
@pytest.mark.parametrize("case", ["dp2", "tp8-dp2-attn"])
def test_an_old_release_with_two_ranks(sglang: Path, release: str, case: str) -> None:
    """0.4.6 shows the last writer's 12, older ones a sum that may have dead processes in it."""
    standing = look(sglang / "sglang-expositions" / f"{release}-{case}.txt", data_parallel=2)
    assert standing.numbers == {}
    assert standing.reason == "this release does not tell its data-parallel ranks apart"


@pytest.mark.parametrize(
    ("lives", "requests"),
    [
        (("life1-busy", "life1-idle", "life2-idle"), [18, 25, 50]),
        # A server that cleaned its directory: its 25 come on top.
        (("life2-idle", "life1-idle"), [50, 75]),
    ],
)
def test_lives_of_a_server(sglang: Path, lives: tuple[str, ...], requests: list[float]) -> None:
    replica = Replica("pool", "r")
    found = []
    for life in lives:
        page = sglang / "sglang-expositions" / f"real-0.5.23-cpu-userdir-{life}.txt"
        answers = ServerAnswers("s", read_page(page.read_bytes(), "s"))
        replica.take(sighting("pool", "r", 0.0, [answers]))
        found.append(sum(replica.standing(30.0).totals[Total.REQUESTS].values()))
    assert found == requests
