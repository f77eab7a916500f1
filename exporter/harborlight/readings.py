"""What a model server said, in our own words: the language between serving sources and ledger.

Names and labels of the server's release are left behind in its source. No address, path, key or
request content has a place here. Times are seconds since the epoch, durations seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec


class Number(StrEnum):
    """What can be read at one moment."""

    RUNNING = "running_requests"
    QUEUED = "queued_requests"
    MAX_RUNNING = "max_running_requests"
    KV_USED = "kv_tokens_used"
    KV_CAPACITY = "kv_tokens_capacity"


class Total(StrEnum):
    """What only grows while a server lives.

    Prompt, cached and generation tokens are those of finished requests; the last three are
    counted while requests run.
    """

    REQUESTS = "requests"
    ABORTED = "aborted_requests"
    RETRACTED = "retracted_requests"
    PROMPT_TOKENS = "prompt_tokens"
    CACHED_TOKENS = "cached_tokens"
    GENERATION_TOKENS = "generation_tokens"
    LIVE_PREFILL_TOKENS = "live_prefill_tokens"
    LIVE_CACHED_TOKENS = "live_cached_tokens"
    LIVE_DECODE_TOKENS = "live_decode_tokens"


class Latency(StrEnum):
    """What is measured a request (or a token) as a histogram, in seconds."""

    TIME_TO_FIRST_TOKEN = "time_to_first_token"  # noqa: S105 - no password
    INTER_TOKEN = "inter_token_latency"  # noqa: S105 - no password
    END_TO_END = "request_latency"
    QUEUE_TIME = "queue_time"


class Histogram(msgspec.Struct, frozen=True):
    """``counts[i]`` observations lie in (``bounds[i-1]``, ``bounds[i]``]; the last bound is +Inf.

    Not cumulative. ``sum`` adds the observations up.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float


class Series(NamedTuple):
    """Who reported a total: one process of one server, as far as it can be told apart.

    ``server``: an opaque key of the server (no address). ``role``: ``unified``, ``prefill``,
    ``decode`` or ``dynamic``. ``dp_rank``: the data-parallel rank, "" where there is none; ranks
    of different ``dp_rank`` do different work. ``ranks``: the other ranks, which repeat each other.
    """

    server: str
    role: str
    dp_rank: str
    ranks: str


class Pulse(NamedTuple):
    """A sign of life that changes while a scheduler works, busy or idle.

    ``patience``: seconds that it may stand still in a healthy server. ``age``: how long it has
    stood still by the server's own clock, where that can be told.
    """

    value: Any
    patience: float = 0.0
    age: float | None = None


class ReplicaState(StrEnum):
    """How a replica is. ``incomplete``: it answers, but not all of it, or not all is known."""

    UP = "up"
    FROZEN = "frozen"
    INCOMPLETE = "incomplete"
    UNREACHABLE = "unreachable"
    NO_METRICS = "no_metrics"
    UNAUTHORIZED = "unauthorized"


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """What a replica is; "" and None where it does not tell. All servers of it put together."""

    version: str = ""
    served_model: str = ""
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None


@dataclass(frozen=True, slots=True)
class ReplicaSighting:
    """What one look at a replica brought.

    ``state`` is never FROZEN: that takes more than one look. ``reason``: why it is not UP, in
    fixed words. ``complete``: every server of the replica answered in full; only then do
    ``totals`` and ``latencies`` count. ``numbers``: by role; a number that is not known is absent.
    ``pulses``: signs of life by an opaque key.
    """

    pool: str
    replica: str
    at: float
    state: ReplicaState
    reason: str = ""
    complete: bool = False
    info: ReplicaInfo = field(default_factory=ReplicaInfo)
    numbers: Mapping[str, Mapping[Number, float]] = field(default_factory=dict)
    totals: Mapping[Total, Mapping[Series, float]] = field(default_factory=dict)
    latencies: Mapping[Latency, Mapping[Series, Histogram]] = field(default_factory=dict)
    pulses: Mapping[str, Pulse] = MappingProxyType({})
