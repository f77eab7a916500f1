"""Reading a page: pieces, limits, labels, and what is no page of SGLang's."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harborlight.readings import Histogram, Latency, Number, Series, Total
from harborlight.sources.failure import Failure, Trouble, Unreadable
from harborlight.sources.sglang.page import (
    MAX_LINE_BYTES,
    MAX_LINES,
    MAX_MODELS,
    MAX_SERIES,
    PageReader,
    PageReading,
    read_page,
)

SMALL = b"""\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="a/b",tp_rank="0"} 3.0
sglang:http_requests_total{endpoint="/x\xc3\xa4",method="GET"} 5.0
sglang:num_requests_total{model_name="a/b",is_streaming="true"} 2.0
sglang:num_requests_total{model_name="a/b",is_streaming="false"} 5.0
other_metric 1
"""
ONE = Series("s", "unified", "", "")


def body_of(*lines: str) -> bytes:
    return "".join(f"sglang:{line}\n" for line in lines).encode()


def page(*lines: str) -> PageReading:
    return read_page(body_of(*lines), "s")


def in_pieces(*pieces: bytes) -> PageReading:
    reader = PageReader("s")
    for piece in pieces:
        reader.feed(piece)
    return reader.close()


def refused(body: bytes) -> Unreadable:
    with pytest.raises(Unreadable) as raised:
        read_page(body)
    return raised.value


def test_small() -> None:
    reading = read_page(SMALL, "s")
    assert reading.gauges == {Number.RUNNING: {("unified", ""): 3}}
    assert reading.totals == {Total.REQUESTS: {ONE: 7}}
    assert (reading.ranked, reading.summed) == (True, False)
    assert (reading.models, reading.tp, reading.pp) == (("a/b",), 1, None)


@given(st.lists(st.integers(0, len(SMALL)), max_size=8))
def test_pieces(cuts: list[int]) -> None:
    """However a page is cut up, it says the same."""
    edges = [0, *sorted(cuts), len(SMALL)]
    pieces = [SMALL[start:end] for start, end in pairwise(edges)]
    assert in_pieces(*pieces) == read_page(SMALL, "s")


@pytest.mark.parametrize("size", [1, 7, 1000, 65536])
@pytest.mark.parametrize("name", ["0.5.23-dp2", "0.3.6-tp1", "real-0.5.23-cpu-tp1-busy"])
def test_pieces_of_a_recorded_page(sglang: Path, name: str, size: int) -> None:
    body = (sglang / "sglang-expositions" / f"{name}.txt").read_bytes()
    reading = in_pieces(*(body[at : at + size] for at in range(0, len(body), size)))
    assert reading == read_page(body, "s")
    assert reading.gauges and reading.totals and reading.latencies


def test_ways_to_write_it() -> None:
    """Without the last line's end, with Windows' ones, with OpenMetrics' names and end."""
    expected = read_page(SMALL, "s")
    for same in (
        SMALL.rstrip(b"\n"),
        SMALL.replace(b"\n", b"\r\n"),
        SMALL.replace(b"sglang:", b"sglang_") + b"# EOF\n",
        SMALL.replace(b" 3.0", b"    3") + b"\n\n",
    ):
        assert read_page(same, "s") == expected


def test_openmetrics_of_a_real_server(sglang: Path) -> None:
    """The same server, asked by a Prometheus 2 and with the header that is sent here."""
    recorded = sglang / "sglang-expositions"
    with_colons, without = (
        read_page((recorded / f"real-0.5.23-cpu-tp1-{name}.txt").read_bytes())
        for name in ("idle", "prom2-openmetrics")
    )
    assert with_colons.gauges == without.gauges
    assert with_colons.totals == without.totals
    assert with_colons.latencies == without.latencies


def test_nothing_and_something_else() -> None:
    """An empty page is a server that has done nothing yet; it is not somebody else's."""
    assert read_page(b"") == read_page(b"# TYPE a gauge\n\n") == PageReading()
    assert read_page(b"sglang:unknown 1\n") == PageReading()
    assert refused(b"node_load1 1\n").failure.trouble is Trouble.WRONG_KIND
    assert refused(b"xsglang:num_requests_total 1\n").failure.trouble is Trouble.WRONG_KIND


def test_a_line_without_an_end() -> None:
    """One that nobody wants is passed over, and not kept; the next one is read."""
    reader = PageReader("s")
    reader.feed(b'sglang:http_requests_total{a="')
    for _ in range(100):
        reader.feed(b"x" * 65536)
        assert len(reader._rest) <= MAX_LINE_BYTES
    reader.feed(b'"} 1\nsglang:num_requests_total 4\n')
    assert reader.close().totals == {Total.REQUESTS: {ONE: 4}}
    line = b'sglang:num_requests_total{a="%s"} 1\n' % (b"x" * 20_000)
    assert "too long" in str(refused(line))


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("excess", range(-3, 10))
def test_the_longest_line(excess: int, end: bytes) -> None:
    """It is read or refused as a whole: a border near its end must not cut its number."""
    head, tail = b'sglang:num_requests_total{a="', b'"} 123'
    bare = MAX_LINE_BYTES + excess - len(end.rstrip(b"\n"))
    line = head + b"x" * (bare - len(head) - len(tail)) + tail + end
    for cut in range(len(line) - 14, len(line) + 1):
        if excess <= 0:
            assert in_pieces(line[:cut], line[cut:]).totals == {Total.REQUESTS: {ONE: 123}}
            continue
        with pytest.raises(Unreadable) as raised:
            in_pieces(line[:cut], line[cut:])
        assert str(raised.value) == "a line of the page is too long"


def test_bytes_that_are_no_text() -> None:
    """They matter in lines that are wanted only."""
    wanted = b'sglang:num_requests_total{model_name="\xff"} 1\n'
    assert str(refused(wanted)) == "the page is not UTF-8 text"
    unwanted = b'sglang:http_requests_total{endpoint="\xff"} 1\n' + SMALL
    assert read_page(unwanted, "s") == read_page(SMALL, "s")


def test_a_router_s_page() -> None:
    """One worker's line gives it away, wherever it is cut."""
    line = b'sglang_num_running_reqs{worker_addr="http://192.0.2.7:1"} 1\n'
    for cut in range(len(line)):
        with pytest.raises(Unreadable) as raised:
            in_pieces(SMALL, line[:cut], line[cut:])
        assert raised.value.failure == Failure(
            Trouble.WRONG_KIND, "a router's page: list its workers as replicas"
        )


def test_too_many_models() -> None:
    names = [f"m{n}" for n in range(MAX_MODELS + 2)]
    reading = page(*(f'num_requests_total{{model_name="{name}"}} 1' for name in reversed(names)))
    assert reading.models == ("m0", "m1", "m2", "m3")
    assert sum(reading.totals[Total.REQUESTS].values()) == len(names)


def test_too_much() -> None:
    lines = [b'sglang:num_requests_total{a="%d"} 1\n' % n for n in range(MAX_LINES + 1)]
    assert sum(read_page(b"".join(lines[:-1])).totals[Total.REQUESTS].values()) == MAX_LINES
    assert str(refused(b"".join(lines))) == "too many series on the page"
    units = [b'sglang:num_running_reqs{dp_rank="%d"} 1\n' % n for n in range(MAX_SERIES + 1)]
    assert len(read_page(b"".join(units[1:])).gauges[Number.RUNNING]) == MAX_SERIES
    assert str(refused(b"".join(units))) == "too many series on the page"
    ranks = [b'sglang:queue_time_seconds_sum{tp_rank="%d"} 1\n' % n for n in range(MAX_SERIES + 1)]
    ranks += [
        b'sglang:queue_time_seconds_bucket{tp_rank="%d",le="+Inf"} 1\n' % n
        for n in range(MAX_SERIES + 1)
    ]
    assert str(refused(b"".join(ranks))) == "too many series on the page"
    for name in ("num_requests_total", "scheduler_idle_seconds_total"):
        series = [f'{name}{{tp_rank="{n}"}} 1' for n in range(MAX_SERIES + 1)]
        page(*series[1:])
        assert str(refused(body_of(*series))) == "too many series on the page"


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e300", str(2**63)])
def test_values_that_cannot_be_meant(value: str) -> None:
    reading = page(f"num_running_reqs {value}", "num_queue_reqs 2", f"num_requests_total {value}")
    assert reading.gauges == {Number.QUEUED: {("unified", ""): 2}}
    assert reading.totals == {}


class TestGauges:
    """Which of several values is the unit's."""

    def number(
        self, *samples: str, number: Number = Number.RUNNING
    ) -> dict[tuple[str, str], float]:
        return dict(page(*samples).gauges[number])

    def test_ranks_repeat(self) -> None:
        ranks = [f'num_running_reqs{{tp_rank="{n}",moe_ep_rank="{n}"}} {n}' for n in range(4)]
        assert self.number(*ranks) == {("unified", ""): 3}

    def test_a_rank_of_the_future(self) -> None:
        ranks = [f'num_running_reqs{{attn_cp_rank="{n}"}} 5' for n in range(8)]
        assert self.number(*ranks) == {("unified", ""): 5}

    def test_data_parallel_ranks_are_apart(self) -> None:
        ranks = [f'num_running_reqs{{dp_rank="{n}",tp_rank="0"}} {n + 1}' for n in range(2)]
        assert self.number(*ranks) == {("unified", "0"): 1, ("unified", "1"): 2}

    def test_priorities_are_parts_of_the_total(self) -> None:
        parts = ['num_running_reqs{priority=""} 5', 'num_running_reqs{priority="3"} 9']
        assert self.number(*parts) == {("unified", ""): 5}

    def test_capacity_is_that_of_the_smallest_stage(self) -> None:
        stages = [
            f'max_total_num_tokens{{pp_rank="{pp}",tp_rank="{tp}"}} {1000 - 100 * pp + tp}'
            for pp in range(2)
            for tp in range(2)
        ]
        assert self.number(*stages, number=Number.KV_CAPACITY) == {("unified", ""): 901}

    def test_used_tokens_of_the_full_cache(self) -> None:
        both = ["num_used_tokens 9", "kv_used_tokens 7"]
        assert self.number(*both, number=Number.KV_USED) == {("unified", ""): 7}

    @pytest.mark.parametrize("rank", ["", "a", "-1", "1.0", " 1", "1000000", "\u0663", "\u00b2"])
    @pytest.mark.parametrize("label", ["tp_rank", "pp_rank", "dp_rank", "moe_ep_rank"])
    def test_a_rank_that_is_no_number(self, label: str, rank: str) -> None:
        """Its line does not count, but an empty dp_rank is none."""
        reading = page(
            f'num_running_reqs{{{label}="{rank}"}} 9',
            f'num_requests_total{{{label}="{rank}"}} 9',
            "num_running_reqs 1",
        )
        none = label == "dp_rank" and rank == ""
        assert reading.gauges == {Number.RUNNING: {("unified", ""): 9 if none else 1}}
        assert reading.totals == ({Total.REQUESTS: {ONE: 9}} if none else {})

    def test_spellings_of_a_rank(self) -> None:
        """One number is one rank; six digits are enough."""
        same = ['num_running_reqs{dp_rank="1"} 2', 'num_running_reqs{dp_rank="01"} 3']
        assert self.number(*same) == {("unified", "1"): 3}
        assert self.number('num_running_reqs{dp_rank="999999"} 2') == {("unified", "999999"): 2}

    def test_ranks_that_are_none(self) -> None:
        odd = ['num_running_reqs{tp_rank="a"} 9', 'num_running_reqs{dp_rank="-1"} 9']
        odd += ['num_running_reqs{dp_rank="12345678"} 9', 'num_running_reqs{tp_rank="0"} 1']
        assert self.number(*odd) == {("unified", ""): 1}


class TestRoles:
    """Prefill and decode servers count the same request."""

    def test_one_role_is_everybody_s(self) -> None:
        """Up to 0.5.11 a server's request counters do not say its role."""
        reading = page('num_running_reqs{engine_type="prefill"} 1', "num_requests_total 4")
        assert reading.totals == {Total.REQUESTS: {Series("s", "prefill", "", ""): 4}}

    def test_two_roles_are_apart(self) -> None:
        reading = page(
            'num_requests_total{engine_type="prefill"} 4',
            'num_requests_total{engine_type="decode"} 5',
        )
        assert {s.role: v for s, v in reading.totals[Total.REQUESTS].items()} == {
            "prefill": 4,
            "decode": 5,
        }

    def test_a_role_nobody_knows(self) -> None:
        reading = page('num_running_reqs{engine_type="x\\ny"} 1')
        assert reading.gauges == {Number.RUNNING: {("unified", ""): 1}}


class TestHistograms:
    """From cumulative lines to counts a bucket."""

    def latency(self, *lines: str) -> dict[Series, Histogram]:
        found = page(*lines).latencies
        return dict(found.get(Latency.TIME_TO_FIRST_TOKEN, {}))

    def lines(self, *buckets: tuple[str, float], name: str = "time_to_first_token") -> list[str]:
        return [
            *(f'{name}_seconds_bucket{{le="{le}"}} {count}' for le, count in buckets),
            f"{name}_seconds_sum 1.5",
        ]

    def test_counts_a_bucket(self) -> None:
        lines = self.lines(("0.1", 1), ("+Inf", 9), ("0.4", 4))
        assert self.latency(*lines) == {ONE: Histogram((0.1, 0.4, math.inf), (1, 3, 5), 1.5)}

    def test_one_bound_in_two_spellings(self) -> None:
        lines = self.lines(("400", 1), ("400.0", 2), ("+Inf", 3))
        assert self.latency(*lines) == {ONE: Histogram((400, math.inf), (3, 0), 1.5)}

    @pytest.mark.parametrize(
        "buckets",
        [
            [("0.1", 5), ("+Inf", 4)],  # falls
            [("0.1", 5)],  # lacks the last
            [("x", 5), ("NaN", 6)],
        ],
    )
    def test_what_is_none(self, buckets: list[tuple[str, float]]) -> None:
        assert self.latency(*self.lines(*buckets)) == {}

    def test_one_without_a_sum(self) -> None:
        assert self.latency('time_to_first_token_seconds_bucket{le="+Inf"} 1') == {}

    def test_the_name_before(self) -> None:
        """Up to 0.4.4; where both are, the newer one counts."""
        older = self.lines(("+Inf", 3), name="time_per_output_token")
        newer = self.lines(("+Inf", 7), name="inter_token_latency")
        (alone,) = page(*older).latencies[Latency.INTER_TOKEN].values()
        (both,) = page(*older, *newer).latencies[Latency.INTER_TOKEN].values()
        assert (sum(alone.counts), sum(both.counts)) == (3, 7)


CANARY = "canary-4711"


@pytest.mark.parametrize(
    "rest",
    [
        " @",
        '{a="@} 1',
        "{@} 1",
        '{a="@",a="b"} 1',
        '{a="\\@"} 1',
        " {@",
        '{worker_addr="@"} 1',
    ],
)
def test_reasons_repeat_nothing(rest: str) -> None:
    body = f"sglang:num_requests_total{rest.replace('@', CANARY)}\n"
    try:
        assert CANARY not in repr(read_page(body.encode()))
    except Unreadable as unreadable:
        assert CANARY not in repr(unreadable) + repr(unreadable.failure)  # noqa: PT017
        assert unreadable.__cause__ is None  # noqa: PT017


@given(st.text('{}"\\,= \n#0aé', max_size=60))
def test_any_line_is_read_or_refused(rest: str) -> None:
    """Whatever the library makes of it, it is one of the two."""
    try:
        read_page(f"sglang:num_requests_total{rest}".encode())
    except Unreadable as unreadable:
        assert unreadable.failure.reason  # noqa: PT017 - both ends are right
