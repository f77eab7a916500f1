"""JSON answers, and a replica put together from what its servers said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harborlight.ledger.replicas import Replica
from harborlight.readings import (
    Number,
    Pulse,
    ReplicaInfo,
    ReplicaSighting,
    ReplicaState,
    Series,
    Total,
)
from harborlight.sources.failure import Failure, Trouble
from harborlight.sources.sglang.answers import (
    InfoReading,
    LoadRow,
    LoadsReading,
    read_loads,
    read_server_info,
)
from harborlight.sources.sglang.page import PageReading, read_page
from harborlight.sources.sglang.replica import PAGE_PATIENCE, ServerAnswers, sighting

UP, INCOMPLETE = ReplicaState.UP, ReplicaState.INCOMPLETE


def page(*lines: str, server: str = "a") -> PageReading:
    return read_page("".join(f"sglang:{line}\n" for line in lines).encode(), server)


BUSY = page(
    'num_running_reqs{engine_type="unified",tp_rank="0"} 3',
    'num_queue_reqs{engine_type="unified",tp_rank="0"} 1',
    'num_used_tokens{engine_type="unified",tp_rank="0"} 70',
    'max_total_num_tokens{engine_type="unified",tp_rank="0"} 100',
    'num_requests_total{engine_type="unified"} 5',
)
OLD = page("num_running_reqs 3", "num_queue_reqs 1", "num_used_tokens 70")
ROW = LoadRow("0", running=4, queued=2, used=80, capacity=100, max_running=64, timestamp=7.0, age=1)
DOWN = Failure(Trouble.FAILED, "connection refused")
NOT_THERE = Failure(Trouble.NOT_FOUND, "HTTP 404")
HUNG = Failure(Trouble.FAILED, "timed out", timed_out=True)
BROKEN = Failure(Trouble.FAILED, "HTTP 500")
DENIED = Failure(Trouble.UNAUTHORIZED, "HTTP 401")
FOREIGN = Failure(Trouble.WRONG_KIND, "no SGLang metrics on the page")


def see(
    first: PageReading | Failure,
    *others: PageReading | Failure,
    loads: LoadsReading | Failure | None = None,
    info: InfoReading | None = None,
    data_parallel: int | None = None,
) -> ReplicaSighting:
    servers = [ServerAnswers("a", first, loads, info)]
    servers += [ServerAnswers(str(n), other) for n, other in enumerate(others)]
    return sighting("p", "r", 5.0, servers, data_parallel=data_parallel)


def loads(*rows: LoadRow) -> LoadsReading:
    return LoadsReading(rows, "0.5.23")


class TestAnswers:
    """Only what is allowed becomes an object."""

    def test_loads_of_two_ranks(self, sglang: Path) -> None:
        reading = read_loads((sglang / "http/dp2_v1_loads.json").read_bytes())
        assert reading.version == "0.5.23"
        assert [(row.dp_rank, row.role) for row in reading.rows] == [
            ("0", "unified"),
            ("1", "unified"),
        ]
        first, second = reading.rows
        assert (first.running, first.queued, first.used, first.capacity, first.max_running) == (
            (10, 10, 592, 4096, 2048)
        )
        # 02:09:01.796277 is 1796090941.796277.
        assert first.age == pytest.approx(1796090941.796277 - 1796090941.2407186)
        assert second.age == pytest.approx(1796090941.796277 - 1796090940.7970855)

    @pytest.mark.parametrize("value", ["3", None, True, -1, 2**60, [3], {"a": 1}])
    def test_a_field_of_another_kind_costs_that_field(self, value: object) -> None:
        row = {"dp_rank": 0, "num_running_reqs": value, "num_waiting_reqs": 1}
        reading = read_loads(json.dumps({"loads": [row]}).encode())
        assert reading.rows == (LoadRow("0", running=None, queued=1),)

    def test_keys_stay_inside(self, sglang: Path) -> None:
        body = (sglang / "http/auth_server_info.json").read_bytes()
        said = json.loads(body)
        secrets = [said["api_key"], said["admin_api_key"]]
        assert all(len(secret) > 5 for secret in secrets)
        reading = read_server_info(body)
        assert (reading.version, reading.served_model, reading.tp, reading.dp, reading.pp) == (
            ("0.5.23", "tiny", 1, 1, 1)
        )
        assert (reading.capacity, reading.max_running) == (4096, 2048)
        for secret in [*secrets, said["model_path"] + "/", str(said["port"])]:
            assert secret not in repr(reading)

    @pytest.mark.parametrize(
        ("said", "shown"),
        [
            ("/models/glm", "glm~"),
            ("zai-org/GLM-5.3", "zai-org/GLM-5.3"),
            ("a\nb", "a?b~"),
            (7, ""),
        ],
    )
    def test_a_model_s_name(self, said: object, shown: str) -> None:
        reading = read_server_info(json.dumps({"served_model_name": said}).encode())
        assert reading.served_model[: len(shown)] == shown
        assert (reading.served_model == shown) == (not shown.endswith("~"))

    @pytest.mark.parametrize("said", ["0.5.23", "0.5.0rc0", "0.4.6.post5", "0.5.6.dev1+g1d0ffd4"])
    def test_versions(self, said: str) -> None:
        assert read_server_info(json.dumps({"version": said}).encode()).version == said

    @pytest.mark.parametrize("said", ["", "x", "1", "0.5.23 secret", "0.5\n", "1." * 60, 5])
    def test_versions_that_are_none(self, said: object) -> None:
        assert read_server_info(json.dumps({"version": said}).encode()).version == ""


class TestState:
    """What the servers' pages make of the replica."""

    @pytest.mark.parametrize(
        ("first", "state", "reason"),
        [
            (BUSY, UP, ""),
            (page(), UP, ""),
            (DOWN, ReplicaState.UNREACHABLE, "connection refused"),
            (
                NOT_THERE,
                ReplicaState.NO_METRICS,
                "no /metrics: SGLang runs without --enable-metrics",
            ),
            (
                FOREIGN,
                ReplicaState.NO_METRICS,
                "no SGLang metrics on the page",
            ),
            (BROKEN, ReplicaState.UNREACHABLE, "HTTP 500"),
            (DENIED, ReplicaState.UNAUTHORIZED, "HTTP 401"),
        ],
    )
    def test_one_server(
        self, first: PageReading | Failure, state: ReplicaState, reason: str
    ) -> None:
        seen = see(first)
        assert (seen.state, seen.reason, seen.complete) == (state, reason, state is UP)

    @pytest.mark.parametrize(
        ("other", "state", "reason"),
        [
            (NOT_THERE, UP, ""),  # further nodes of old releases have no metrics
            (DENIED, INCOMPLETE, "another of its servers: HTTP 401"),
            (BROKEN, INCOMPLETE, "another of its servers: HTTP 500"),
            (HUNG, INCOMPLETE, "another of its servers: timed out"),
            (FOREIGN, INCOMPLETE, "another of its servers: no SGLang metrics on the page"),
            (page(), UP, ""),
        ],
    )
    def test_a_further_server(
        self, other: PageReading | Failure, state: ReplicaState, reason: str
    ) -> None:
        for others in [(other,), (other, page()), (page(), other)]:
            seen = see(BUSY, *others)
            assert (seen.state, seen.reason, seen.complete) == (state, reason, state is UP)
            # Its only unit is on the first page, whatever the other has.
            assert seen.numbers["unified"][Number.RUNNING] == 3

    @pytest.mark.parametrize(
        ("first", "state", "reason"),
        [
            (BROKEN, INCOMPLETE, "its first server: HTTP 500"),
            (HUNG, INCOMPLETE, "its first server: timed out"),
            (DENIED, ReplicaState.UNAUTHORIZED, "HTTP 401"),
            (FOREIGN, ReplicaState.NO_METRICS, "no SGLang metrics on the page"),
            (
                NOT_THERE,
                ReplicaState.NO_METRICS,
                "no /metrics: SGLang runs without --enable-metrics",
            ),
        ],
    )
    def test_a_first_server_that_fails_beside_one_that_does_not(
        self, first: Failure, state: ReplicaState, reason: str
    ) -> None:
        for others in [(BUSY,), (DOWN, BUSY), (BUSY, DOWN)]:
            seen = see(first, *others)
            assert (seen.state, seen.reason, seen.complete) == (state, reason, False)
        assert see(first, DOWN, BROKEN).state is (
            ReplicaState.UNREACHABLE if state is INCOMPLETE else state
        )

    def test_what_is_not_there_says_nothing(self) -> None:
        seen = see(DOWN, info=InfoReading(dp=1, capacity=100))
        assert (seen.numbers, seen.totals, seen.pulses) == ({}, {}, {})

    def test_loads_without_metrics(self) -> None:
        """/v1/loads answers without --enable-metrics, too."""
        seen = see(NOT_THERE, loads=loads(ROW))
        assert seen.numbers["unified"][Number.RUNNING] == 4
        assert (seen.state, seen.complete) == (ReplicaState.NO_METRICS, False)


class TestNumbers:
    """Which answer is believed, and when none is."""

    def numbers(self, seen: ReplicaSighting) -> dict[Number, float]:
        (known,) = seen.numbers.values()
        return dict(known)

    def test_loads_before_the_page(self) -> None:
        assert self.numbers(see(BUSY, loads=loads(ROW))) == {
            Number.RUNNING: 4,
            Number.QUEUED: 2,
            Number.KV_USED: 80,
            Number.KV_CAPACITY: 100,
            Number.MAX_RUNNING: 64,
        }

    def test_the_page_for_what_loads_lack(self) -> None:
        known = self.numbers(see(BUSY, loads=loads(replace(ROW, used=None, max_running=None))))
        assert known[Number.KV_USED] == 70
        assert known[Number.RUNNING] == 4
        assert Number.MAX_RUNNING not in known

    def test_a_rank_that_lacks_one_leaves_the_sum_unknown(self) -> None:
        rows = [ROW, replace(ROW, dp_rank="1", queued=None)]
        known = self.numbers(see(page(), loads=loads(*rows)))
        assert known[Number.RUNNING] == 8
        assert Number.QUEUED not in known

    def test_loads_that_lack_a_rank_are_not_believed(self) -> None:
        ranks = [f'num_running_reqs{{dp_rank="{n}",tp_rank="0"}} {n + 1}' for n in range(2)]
        seen = see(page(*ranks), loads=loads(ROW), info=InfoReading(dp=2))
        assert self.numbers(seen) == {Number.RUNNING: 3}
        assert seen.info.dp == 2

    @pytest.mark.parametrize("ranks", [(0,), (1,)])
    def test_loads_that_lack_a_rank_that_the_page_has(self, ranks: tuple[int, ...]) -> None:
        """Ranks that have not reported yet are passed over, and nobody says how many there are."""
        both = [f'num_running_reqs{{dp_rank="{n}",tp_rank="0"}} {n + 1}' for n in range(2)]
        seen = see(page(*both), loads=loads(*(replace(ROW, dp_rank=str(n)) for n in ranks)))
        assert self.numbers(seen) == {Number.RUNNING: 3}
        assert (seen.state, seen.info.dp) == (UP, 2)

    @pytest.mark.parametrize(
        ("ranks", "told"), [((1,), None), ((0, 2), None), ((0,), 2), ((0, 2), 3)]
    )
    @pytest.mark.parametrize("lines", [(), ('max_total_num_tokens{dp_rank="0",tp_rank="0"} 9',)])
    def test_loads_that_lack_a_rank_beside_a_page_without_work(
        self, ranks: tuple[int, ...], told: int | None, lines: tuple[str, ...]
    ) -> None:
        rows = [replace(ROW, dp_rank=str(n)) for n in ranks]
        seen = see(page(*lines), loads=loads(*rows), info=InfoReading(dp=told))
        assert (seen.state, seen.reason) == (INCOMPLETE, "some data-parallel ranks are missing")
        assert seen.numbers == {}

    def test_ranks_of_an_earlier_life_on_the_page(self) -> None:
        """A directory that is never cleaned keeps them; the server says that it has one."""
        both = [f'num_running_reqs{{dp_rank="{n}",tp_rank="0"}} 9' for n in range(2)]
        seen = see(page(*both), loads=loads(ROW), info=InfoReading(dp=1))
        assert (self.numbers(seen)[Number.RUNNING], seen.info.dp) == (4, 1)

    @pytest.mark.parametrize(
        ("ranks", "rows", "told", "configured", "running", "dp"),
        [
            (2, 2, 1, None, 8, 2),  # rows of more ranks than it says: they are there
            (2, 0, 3, None, None, 3),
            (2, 0, None, 3, None, 3),  # by configuration one is missing
            (2, 0, None, 1, 3, 2),  # the page has more than is configured
            (2, 0, 2, 5, 3, 2),  # the server knows better than the configuration
            (2, 2, None, 5, 8, 2),  # so do its rows
            (3, 2, None, None, 6, 3),  # one has no row yet
            (3, 2, 2, None, 8, 2),
        ],
    )
    def test_sizes_that_disagree(
        self,
        ranks: int,
        rows: int,
        told: int | None,
        configured: int | None,
        running: float | None,
        dp: int,
    ) -> None:
        """``ranks`` on the page have 1, 2, ... running, ``rows`` of the loads 4 each."""
        lines = [f'num_running_reqs{{dp_rank="{n}",tp_rank="0"}} {n + 1}' for n in range(ranks)]
        seen = see(
            page(*lines),
            loads=loads(*(replace(ROW, dp_rank=str(n)) for n in range(rows))) if rows else None,
            info=InfoReading(dp=told) if told else None,
            data_parallel=configured,
        )
        assert seen.numbers.get("unified", {}).get(Number.RUNNING) == running
        assert seen.info.dp == dp
        assert (seen.state is INCOMPLETE) == (running is None)

    def test_what_the_server_says_of_itself_comes_last(self) -> None:
        """Its capacity and slots are of when it started, and none of two roles'."""
        info = InfoReading(dp=1, capacity=500, max_running=32)
        known = self.numbers(see(BUSY, loads=loads(ROW), info=info))
        assert (known[Number.KV_CAPACITY], known[Number.MAX_RUNNING]) == (100, 64)
        lines = [
            f'num_running_reqs{{engine_type="{role}",tp_rank="0"}} 1'
            for role in ("prefill", "decode")
        ]
        assert see(page(*lines), info=info).numbers == {
            "prefill": {Number.RUNNING: 1},
            "decode": {Number.RUNNING: 1},
        }

    def test_what_the_server_says_of_itself(self) -> None:
        info = InfoReading(dp=2, capacity=500, max_running=32)
        ranks = [f'num_running_reqs{{dp_rank="{n}",tp_rank="0"}} 1' for n in range(2)]
        assert self.numbers(see(page(*ranks), info=info)) == {
            Number.RUNNING: 2,
            Number.KV_CAPACITY: 1000,
            Number.MAX_RUNNING: 64,
        }

    @pytest.mark.parametrize("size", [None, 2, 3])
    def test_missing_ranks(self, size: int | None) -> None:
        """Rank 1 alone shows that there is a rank 0; a known size that there are more."""
        only = page('num_running_reqs{dp_rank="1",tp_rank="0"} 1')
        seen = see(only, info=InfoReading(dp=size))
        assert (seen.state, seen.reason) == (INCOMPLETE, "some data-parallel ranks are missing")
        assert seen.numbers == {}

    @pytest.mark.parametrize(
        ("info", "configured", "reason"),
        [
            (None, None, "data parallelism not known"),
            (InfoReading(dp=2), 1, "this release does not tell its data-parallel ranks apart"),
            (None, 2, "this release does not tell its data-parallel ranks apart"),
            (InfoReading(dp=1, pp=2), None, "this release does not tell its pipeline stages apart"),
            (InfoReading(dp=1, pp=1), None, ""),
            (InfoReading(), 1, ""),
        ],
    )
    def test_releases_that_do_not_tell_ranks_apart(
        self, info: InfoReading | None, configured: int | None, reason: str
    ) -> None:
        seen = see(OLD, info=info, data_parallel=configured)
        assert seen.reason == reason
        assert seen.state is (INCOMPLETE if reason else UP)
        if not reason:
            assert self.numbers(seen)[Number.RUNNING] == 3

    def test_prefill_and_decode(self) -> None:
        row = replace(ROW, role="prefill")
        seen = see(page('num_running_reqs{engine_type="prefill",tp_rank="0"} 9'), loads=loads(row))
        assert list(seen.numbers) == ["prefill"]
        assert seen.numbers["prefill"][Number.RUNNING] == 4


class TestNodes:
    """Two servers of one replica."""

    RANKS = tuple(
        page(
            f'num_running_reqs{{dp_rank="{n}",tp_rank="{n}",engine_type="unified"}} {n + 1}',
            f'num_retracted_requests_total{{dp_rank="{n}",tp_rank="{n}"}} {n + 5}',
            server=str(n),
        )
        for n in range(2)
    )

    def test_ranks_on_two_nodes_add_up(self) -> None:
        seen = see(*self.RANKS)
        assert seen.numbers["unified"][Number.RUNNING] == 3
        assert (seen.state, seen.complete, seen.info.dp, seen.info.tp) == (UP, True, 2, 2)
        assert seen.totals[Total.RETRACTED] == {
            Series("0", "unified", "0", "tp_rank=0"): 5,
            Series("1", "unified", "1", "tp_rank=1"): 6,
        }

    def test_stages_on_two_nodes_repeat_each_other(self) -> None:
        stages = [page(f'num_running_reqs{{pp_rank="{n}",tp_rank="0"}} {n + 3}') for n in range(2)]
        assert see(*stages).numbers["unified"][Number.RUNNING] == 4

    @pytest.mark.parametrize("size", [2, None])
    def test_a_node_that_is_away(self, size: int | None) -> None:
        """Whose ranks would be missing in a sum, also where nobody says how many there are."""
        seen = see(self.RANKS[0], DOWN, info=InfoReading(dp=size))
        assert seen.reason == "another of its servers: connection refused"
        assert (seen.state, seen.complete, seen.numbers) == (INCOMPLETE, False, {})


class TestSignsOfLife:
    """The best that there is."""

    def keys(self, seen: ReplicaSighting) -> Sequence[str]:
        return sorted(seen.pulses)

    def test_loads(self) -> None:
        seen = see(BUSY, loads=loads(ROW))
        assert self.keys(seen) == ["loads/0"]
        assert (seen.pulses["loads/0"].value, seen.pulses["loads/0"].age) == (7.0, 1)

    def test_a_scheduler_s_processor_time(self) -> None:
        lines = [f'scheduler_process_cpu_seconds_total{{tp_rank="{n}"}} {n}.5' for n in range(2)]
        seen = see(page(*lines, "scheduler_idle_seconds_total 7"), loads=NOT_THERE)
        assert self.keys(seen) == ["scheduler/unified/"]
        pulse = seen.pulses["scheduler/unified/"]
        assert (pulse.value, pulse.patience) == (1.5, PAGE_PATIENCE)

    def test_ranks_that_log_nothing_do_not_stand_still(self) -> None:
        """Their counters are on the page, too, at 0 for ever."""
        replica, seen = Replica("p", "r"), see(BUSY)
        for seconds in range(0, 300, 30):
            lines = [f'scheduler_process_cpu_seconds_total{{tp_rank="0"}} {seconds + 1}']
            lines += [f'scheduler_process_cpu_seconds_total{{tp_rank="{n}"}} 0' for n in (1, 2)]
            seen = see(page(*lines), loads=DENIED)
            replica.take(replace(seen, at=float(seconds)))
            assert replica.standing(1.0).state is UP
        replica.take(replace(seen, at=270.0 + 90))
        assert replica.standing(1.0).state is ReplicaState.FROZEN

    def test_a_busy_page(self) -> None:
        """Its numbers move while there is work; while there is none they need not."""
        still = see(BUSY)
        assert self.keys(still) == ["page/0/unified/"]
        moved = see(replace(BUSY, gauges={**BUSY.gauges, Number.KV_USED: {("unified", ""): 71}}))
        assert moved.pulses != still.pulses
        idle = {number: dict.fromkeys(units, 0.0) for number, units in BUSY.gauges.items()}
        assert see(replace(BUSY, gauges=idle)).pulses == {}
        # A scheduler that does not answer although it has nothing to do is watched, too.
        assert self.keys(see(replace(BUSY, gauges=idle), loads=HUNG)) == ["page/0/unified/"]

    def test_finished_requests_are_no_sign_of_the_scheduler(self) -> None:
        """Aborts are counted without it."""
        more = page('num_requests_total{engine_type="unified"} 6')
        assert see(replace(BUSY, totals=more.totals)).pulses == see(BUSY).pulses

    def test_releases_that_write_nothing_when_idle(self) -> None:
        assert see(OLD, data_parallel=1).pulses == {}

    def test_idle_seconds_where_there_are_no_others(self) -> None:
        lines = [f'scheduler_idle_seconds_total{{dp_rank="{n}"}} {n}.5' for n in range(2)]
        assert see(page(*lines)).pulses == {
            f"scheduler/unified/{n}": Pulse(n + 0.5, PAGE_PATIENCE) for n in range(2)
        }

    def test_rows_without_a_time_are_none(self) -> None:
        """Up to 0.5.8; the page has to do."""
        timeless = loads(replace(ROW, timestamp=None, age=None))
        assert self.keys(see(BUSY, loads=timeless)) == ["page/0/unified/"]
        mixed = loads(ROW, replace(ROW, dp_rank="1", timestamp=None, age=None))
        assert self.keys(see(BUSY, loads=mixed)) == ["loads/0"]

    def test_each_server_s_page(self) -> None:
        seen = see(*TestNodes.RANKS)
        assert self.keys(seen) == ["page/0/unified/0", "page/1/unified/1"]
        more = page(
            'num_running_reqs{dp_rank="1",tp_rank="1",engine_type="unified"} 2',
            'num_retracted_requests_total{dp_rank="1",tp_rank="1"} 7',
            server="1",
        )
        moved = see(TestNodes.RANKS[0], more)
        changed = {key for key in seen.pulses if seen.pulses[key] != moved.pulses[key]}
        assert changed == {"page/1/unified/1"}

    @pytest.mark.parametrize(("running", "queued"), [(1, 0), (0, 1)])
    def test_work_that_only_waits_is_work(self, running: int, queued: int) -> None:
        lines = [f'num_running_reqs{{tp_rank="0",engine_type="unified"}} {running}']
        lines += [f'num_queue_reqs{{tp_rank="0",engine_type="unified"}} {queued}']
        assert self.keys(see(page(*lines))) == ["page/0/unified/"]

    def test_loads_that_refuse_are_not_loads_that_hang(self) -> None:
        idle = page('num_running_reqs{tp_rank="0",engine_type="unified"} 0')
        for failure in (DENIED, BROKEN, NOT_THERE):
            assert see(idle, loads=failure).pulses == {}
        assert self.keys(see(idle, loads=HUNG)) == ["page/0/unified/"]


def test_info_of_several_servers() -> None:
    """All of them put together, and what no page tells from the server itself."""
    first = page('num_running_reqs{tp_rank="3",pp_rank="0",model_name="b"} 1')
    other = page('num_running_reqs{tp_rank="7",pp_rank="1",model_name="a"} 1')
    assert see(first, other).info == ReplicaInfo(served_model="a,b", tp=8, pp=2, dp=1)
    info = InfoReading("0.5.7", "m", tp=4, pp=1, dp=2)
    assert see(NOT_THERE, loads=BROKEN, info=info).info == ReplicaInfo("0.5.7", "m", 4, 1, 2)
    assert see(NOT_THERE, loads=loads()).info == ReplicaInfo("0.5.23")
    assert see(OLD, data_parallel=3).info == ReplicaInfo(dp=3)


def test_info() -> None:
    """Who knows best: the loads the version, the page the model, the server its sizes."""
    info = InfoReading("0.5.22", "info", tp=4, pp=2, dp=1)
    busy = replace(BUSY, models=("org/b", "/models/a"))
    seen = see(busy, loads=loads(ROW), info=info).info
    assert (seen.version, seen.tp, seen.pp, seen.dp) == ("0.5.23", 4, 2, 1)
    assert seen.served_model.startswith("a~") and seen.served_model.endswith(",org/b")
    assert see(BUSY).info == ReplicaInfo(tp=1, dp=1)


@pytest.mark.parametrize(
    ("version", "zero"), [("0.5.23", True), ("0.5.7", True), ("0.5.6", False), ("", False)]
)
def test_counters_that_have_not_counted_yet(version: str, zero: bool) -> None:
    """0 where the release has them; in others what is absent may be what they do not count."""
    seen = see(BUSY, info=InfoReading(version=version))
    expected = {Series("a", "unified", "", ""): 0.0} if zero else None
    assert seen.totals.get(Total.ABORTED) == expected
    assert seen.totals[Total.REQUESTS] == {Series("a", "unified", "", ""): 5.0}
