"""Our reading of a page against SGLang's own collectors, which wrote it just now."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harborlight.ledger.replicas import Replica
from harborlight.readings import Latency, Number, ReplicaState, Total
from harborlight.sources.sglang import page as page_module
from harborlight.sources.sglang.page import read_page
from harborlight.sources.sglang.replica import ServerAnswers, sighting
from support import sglang_collectors
from support.sglang_collectors import MODEL, sources

pytestmark = pytest.mark.skipif(
    sources() is None and not os.environ.get("HARBORLIGHT_REQUIRE_REAL_HARBOR"),
    reason="sglang is not installed",
)

PROGRAM = sglang_collectors.__file__
RANK = {
    "capacity": 1000,
    "logs": True,
    "running": 3,
    "queued": 1,
    "used": 70,
    "prefill": 5,
    "cached": 6,
    "decode": 7,
    "retracted": 2,
    "cpu": 1.5,
    "queue_time": 0.3,
}
REQUEST = {
    "streamed": True,
    "first": 0.3,
    "between": 1.0,
    "new": 10,
    "prompt": 100,
    "generated": 11,
    "cached": 30,
    "latency": 1.4,
}


def collected(folder: Path, *processes: object) -> bytes:
    """The page of these processes, each of which really was one."""
    page = b""
    for what in (*(json.dumps(process) for process in processes), "page"):
        done = subprocess.run(
            [sys.executable, PROGRAM, str(folder), what],
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        page = done.stdout
    return page


def rank(tp: int, dp: int | None = None, pp: int = 0, **work: object) -> dict[str, object]:
    labels = {"tp_rank": str(tp), "pp_rank": str(pp), "moe_ep_rank": "0"}
    if dp is not None:
        labels["dp_rank"] = str(dp)
    return {**RANK, **work, "labels": labels}


def test_ranks_and_requests(tmp_path: Path) -> None:
    """TP 2 with two data-parallel ranks; only the first rank of each logs its work."""
    page = collected(
        tmp_path,
        rank(0, 0),
        rank(1, 0, logs=False),
        rank(2, 1, running=4, queued=0, used=30, decode=100),
        rank(3, 1, logs=False),
        {"tokenizer": [REQUEST, {**REQUEST, "streamed": False, "generated": 9}]},
    )
    found = sighting("p", "r", 0.0, [ServerAnswers("s", read_page(page, "s"))])
    assert found.state is ReplicaState.UP
    assert (found.info.served_model, found.info.tp, found.info.pp, found.info.dp) == (
        MODEL,
        4,
        1,
        2,
    )
    assert found.numbers == {
        "unified": {
            Number.RUNNING: 7,
            Number.QUEUED: 1,
            Number.KV_USED: 100,
            Number.KV_CAPACITY: 2000,
        }
    }
    replica = Replica("p", "r")
    replica.take(found)
    standing = replica.standing(30.0)
    assert standing.totals == {
        Total.REQUESTS: {"unified": 2},
        Total.ABORTED: {"unified": 1},
        Total.RETRACTED: {"unified": 4},
        Total.PROMPT_TOKENS: {"unified": 200},
        Total.CACHED_TOKENS: {"unified": 60},
        Total.GENERATION_TOKENS: {"unified": 20},
        Total.LIVE_PREFILL_TOKENS: {"unified": 10},
        Total.LIVE_CACHED_TOKENS: {"unified": 12},
        Total.LIVE_DECODE_TOKENS: {"unified": 107},
    }
    for latency, count, seconds in (
        (Latency.TIME_TO_FIRST_TOKEN, 2, 0.6),
        (Latency.INTER_TOKEN, 20, 2.0),
        (Latency.END_TO_END, 2, 2.8),
        (Latency.QUEUE_TIME, 2, 0.6),
    ):
        histogram = standing.latencies[latency]["unified"]
        assert sum(histogram.counts) == count
        assert histogram.sum == pytest.approx(seconds)
    # The silent ranks' processor seconds are there, too, and stay at 0.
    assert {key: pulse.value for key, pulse in found.pulses.items()} == {
        "scheduler/unified/0": 1.5,
        "scheduler/unified/1": 1.5,
    }


def test_ranks_that_repeat_each_other(tmp_path: Path) -> None:
    """Metrics for all schedulers, and two pipeline stages: still one scheduler's work."""
    page = collected(tmp_path, *(rank(tp, pp=pp) for tp in range(2) for pp in range(2)))
    found = sighting("p", "r", 0.0, [ServerAnswers("s", read_page(page, "s"))])
    assert found.numbers["unified"] == {
        Number.RUNNING: 3,
        Number.QUEUED: 1,
        Number.KV_USED: 70,
        Number.KV_CAPACITY: 1000,
    }
    replica = Replica("p", "r")
    replica.take(found)
    assert replica.standing(30.0).totals[Total.RETRACTED] == {"unified": 2}


ALIASES = {"time_per_output_token_seconds", "queue_time_s"}
"""Names of releases before this one."""


def test_names_are_declared() -> None:
    """Every family that is looked for is one that this release declares."""
    root = sources()
    assert root is not None
    tree = ast.parse((root / "srt/observability/metrics_collector.py").read_text())
    declared = {
        node.value.removeprefix("sglang:").removesuffix("_total")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith("sglang:")
    }
    wanted = {
        name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_total")
        for name in page_module.NAMES
    }
    assert wanted - ALIASES <= declared
