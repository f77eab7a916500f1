"""Recorded JSON answers, read to the last field, and the shapes of earlier releases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harborlight.sources.failure import Failure, Trouble, Unreadable
from harborlight.sources.sglang.answers import (
    MAX_ROWS,
    InfoReading,
    LoadRow,
    LoadsReading,
    read_loads,
    read_server_info,
)
from harborlight.sources.sglang.page import read_page
from harborlight.sources.sglang.replica import ServerAnswers, sighting


def row(rank: int, work: tuple[int, int, int], timestamp: float, answered: float) -> LoadRow:
    """``work``: running, queued, used. The recorded servers have 4096 tokens and 2048 slots."""
    running, queued, used = work
    return LoadRow(
        dp_rank=str(rank),
        running=running,
        queued=queued,
        used=used,
        capacity=4096,
        max_running=2048,
        timestamp=timestamp,
        age=answered - timestamp,
    )


# The answers' own times of day, at the second of the epoch that their date is.
DP2, TP1, PRIORITY = 1796090941.796277, 1796090462.468956, 1796091162.606578
TP2, TP2_ALL = 1796091306.211959, 1796091472.285368

LOADS = {
    "dp2_v1_loads.json": (
        row(0, (10, 10, 592), 1796090941.2407186, DP2),
        row(1, (10, 10, 592), 1796090940.7970855, DP2),
    ),
    "tp1_v1_loads.out": (row(0, (0, 0, 0), 1796090462.4683785, TP1),),
    "priority-v1_loads.json": (row(0, (0, 0, 0), 1796091162.6061397, PRIORITY),),
    # Two ranks of one scheduler: one row, whoever has metrics.
    "tp2-v1_loads.json": (row(0, (17, 7, 150), 1796091304.3184729, TP2),),
    "tp2-allranks-v1_loads.json": (row(0, (13, 11, 535), 1796091470.38697, TP2_ALL),),
}
TINY = InfoReading("0.5.23", "tiny", "unified", tp=1, pp=1, dp=1, capacity=4096, max_running=2048)
INFOS = {
    "tp1_server_info.out": TINY,
    "auth_server_info.json": TINY,
    "tp2-server_info.json": InfoReading(
        "0.5.23", "tiny", "unified", tp=2, pp=1, dp=1, capacity=4096, max_running=2048
    ),
    # Its internal states were shortened when it was recorded.
    "server_info_0.5.23_sample.json": InfoReading(
        "0.5.23", "tiny", "unified", tp=1, pp=1, dp=1, capacity=4096
    ),
}
OTHERS = {
    "tp1_get_load.out",
    "tp1_health.out",
    "tp1_model_info.out",
    "tp1_ready.out",
    "tp1_v1_loads_format_prometheus.out",
    "tp1_v1_models.out",
}


def test_every_answer_is_in_a_table(sglang: Path) -> None:
    assert {answer.name for answer in (sglang / "http").iterdir()} == {*LOADS, *INFOS, *OTHERS}


@pytest.mark.parametrize("name", LOADS)
def test_loads(sglang: Path, name: str) -> None:
    reading = read_loads((sglang / "http" / name).read_bytes())
    assert reading == LoadsReading(LOADS[name], "0.5.23")


@pytest.mark.parametrize("name", INFOS)
def test_server_info(sglang: Path, name: str) -> None:
    assert read_server_info((sglang / "http" / name).read_bytes()) == INFOS[name]


@pytest.mark.parametrize("name", sorted({*OTHERS, *INFOS}))
def test_another_answer_is_no_load(sglang: Path, name: str) -> None:
    with pytest.raises(Unreadable) as raised:
        read_loads((sglang / "http" / name).read_bytes())
    assert raised.value.failure.trouble is Trouble.FAILED


def strings(value: object) -> set[str]:
    """Every text in an answer, to be looked for elsewhere."""
    if isinstance(value, dict):
        return {text for item in value.values() for text in strings(item)}
    if isinstance(value, list):
        return {text for item in value for text in strings(item)}
    return {value} if isinstance(value, str) else set()


def test_nothing_of_a_server_s_own_comes_out(sglang: Path) -> None:
    """Keys, paths, commands and addresses, in what is handed on of all its answers together."""
    body = (sglang / "http" / "auth_server_info.json").read_bytes()
    said = json.loads(body)
    page = (sglang / "sglang-expositions" / "real-0.5.23-cpu-tp1-busy.txt").read_bytes()
    loads = read_loads((sglang / "http" / "tp1_v1_loads.out").read_bytes())
    keys = {said["api_key"], said["admin_api_key"]}
    assert len(keys) == 2 and min(map(len, keys)) > 5
    # Shorter texts are words such as "auto", which may be part of anything.
    others = {text for text in strings(said) if len(text) > 8}
    assert len(others) > 10
    for info in (None, read_server_info(body)):
        for reading in (read_page(page, "s"), Failure(Trouble.NOT_FOUND, "HTTP 404")):
            answers = ServerAnswers("s", reading, loads, info)
            shown = repr(answers) + repr(sighting("p", "r", 0.0, [answers]))
            assert not {text for text in keys | others if text in shown}


# Earlier releases, as their code builds the answers.


def test_loads_of_0_5_8() -> None:
    """No time a row, no rank where there is one only, what is None left out, a sum beside."""
    work = {
        "num_running_reqs": 3,
        "num_waiting_reqs": 1,
        "num_used_tokens": 40,
        "max_total_num_tokens": 100,
        "token_usage": 0.4,
        "max_running_requests": 8,
        "disaggregation": {"mode": "null", "prefill_prealloc_queue_reqs": 0},
        "queues": {"waiting": 1, "grammar": 0, "paused": 0, "retracted": 0},
        "num_total_reqs": 4,
    }
    body = {
        "timestamp": "2026-12-01T02:09:01.796277+00:00",
        "version": "0.5.8",
        "dp_rank_count": 2,
        "loads": [work, {**work, "num_running_reqs": 2, "disaggregation": {"mode": "decode"}}],
        "aggregate": {"total_running_reqs": 5, "total_waiting_reqs": 2},
    }
    first = LoadRow("0", running=3, queued=1, used=40, capacity=100, max_running=8)
    second = LoadRow("1", "decode", running=2, queued=1, used=40, capacity=100, max_running=8)
    assert read_loads(json.dumps(body).encode()) == LoadsReading((first, second), "0.5.8")


@pytest.mark.parametrize(
    ("version", "more"),
    [
        ("0.4.3", {}),
        ("0.4.6.post5", {"internal_states": [{"last_gen_throughput": 1.5, "device": "cuda"}]}),
    ],
)
def test_server_info_of_0_4(version: str, more: dict[str, object]) -> None:
    """Arguments, what the scheduler said when it started, the version; since 0.4.6 the states.

    ``max_running_requests`` there is what was asked for, which is not what became of it.
    """
    body = {
        "served_model_name": "org/m",
        "tp_size": 8,
        "dp_size": 2,
        "max_running_requests": 64,
        "api_key": "canary",
        "status": "ready",
        "max_total_num_tokens": 430_000,
        "version": version,
        **more,
    }
    expected = InfoReading(version, "org/m", tp=8, dp=2, capacity=430_000)
    assert read_server_info(json.dumps(body).encode()) == expected


# Answers that only look like one.


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"loads": None},
        {"loads": [{"dp_rank": 1}, {"dp_rank": 1}]},  # one rank twice
        {"loads": [{"dp_rank": 1}, {}]},  # the second is rank 1 by its place
        {"loads": [{}] * (MAX_ROWS + 1)},
    ],
)
def test_no_answer_of_loads(body: dict[str, object]) -> None:
    with pytest.raises(Unreadable) as raised:
        read_loads(json.dumps(body).encode())
    assert raised.value.failure == Failure(Trouble.FAILED, "not an answer of /v1/loads")


def test_as_many_rows_as_may_be() -> None:
    body = json.dumps({"loads": [{}] * MAX_ROWS}).encode()
    assert len(read_loads(body).rows) == MAX_ROWS
    assert read_loads(b'{"loads": []}') == LoadsReading()


@pytest.mark.parametrize("value", ["canary", None, True, -1, 2**53 + 1, 1e300, ["canary"], {}])
def test_a_field_of_another_kind_is_not_known(value: object) -> None:
    row = dict.fromkeys(("dp_rank", "timestamp", "num_running_reqs", "num_waiting_reqs"), value)
    row |= dict.fromkeys(("num_used_tokens", "max_total_num_tokens"), value)
    row |= {"max_running_requests": value}
    body = {"loads": [row], "timestamp": value, "version": value}
    assert read_loads(json.dumps(body).encode()) == LoadsReading((LoadRow("0"),))
    info = dict.fromkeys(("tp_size", "pp_size", "dp_size", "max_total_num_tokens"), value)
    state = {"effective_max_running_requests_per_dp": value}
    info |= {"version": value, "internal_states": [state]}
    assert read_server_info(json.dumps(info).encode()) == InfoReading()


def test_the_largest_number() -> None:
    row = {"num_running_reqs": 2**53, "num_waiting_reqs": 0, "num_used_tokens": 1.5}
    (found,) = read_loads(json.dumps({"loads": [row]}).encode()).rows
    assert (found.running, found.queued, found.used) == (2.0**53, 0, 1.5)


@pytest.mark.parametrize("size", [0, 0.5, -1])
def test_a_size_that_is_none(size: float) -> None:
    """There is one of each at least."""
    body = json.dumps({"tp_size": size, "pp_size": size, "dp_size": size}).encode()
    assert read_server_info(body) == InfoReading()


@pytest.mark.parametrize(
    ("said", "age"),
    [
        ("1970-01-01T00:01:40+00:00", 10),
        ("1970-01-01T00:01:40Z", 10),
        ("1970-01-01T02:01:40+02:00", 10),
        ("1970-01-01T00:01:40", 10),  # without a zone it is UTC
        (100, 10),
        (80, -10),
        ("canary", None),
        ("", None),
        ("1970-13-01T00:00:00", None),
        (None, None),
        ([], None),
    ],
)
def test_the_age_of_a_row(said: object, age: float | None) -> None:
    body = {"timestamp": said, "loads": [{"timestamp": 90}]}
    (found,) = read_loads(json.dumps(body).encode()).rows
    assert (found.timestamp, found.age) == (90, age)


@pytest.mark.parametrize(
    ("said", "role"),
    [
        ("prefill", "prefill"),
        ("decode", "decode"),
        ("dynamic", "dynamic"),
        ("null", "unified"),
        ("canary", "unified"),
        (["canary"], "unified"),
    ],
)
def test_roles(said: object, role: str) -> None:
    info = json.dumps({"disaggregation_mode": said}).encode()
    assert read_server_info(info) == InfoReading(role=role)
    loads = json.dumps({"loads": [{"disaggregation": {"mode": said}}]}).encode()
    assert read_loads(loads).rows == (LoadRow("0", role),)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b'"canary"',
        b"[" * 100_000,
        b'{"loads":' * 100_000,
        b'{"loads": ["canary"], "internal_states": ["canary"]}',
        b'{"loads": "canary", "internal_states": "canary"}',
        b'{"loads": [{"disaggregation": "canary"}], "internal_states": {"canary": 1}}',
        b'{"version": 1e400}',
    ],
)
def test_reasons_repeat_nothing(body: bytes) -> None:
    for read in (read_loads, read_server_info):
        with pytest.raises(Unreadable) as raised:
            read(body)
        assert raised.value.failure.reason == "not the JSON that was expected"
        assert raised.value.__cause__ is None
