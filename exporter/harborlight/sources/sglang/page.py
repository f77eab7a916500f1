"""A page of SGLang's ``/metrics``, of any release, as readings.

Which labels repeat a value and which divide it decides on every number here:

* ``engine_type`` is the role, ``dp_rank`` a unit of its own, whose values add up;
* every other label that ends in ``_rank`` names processes that report the same thing;
* ``priority=""`` is a gauge's total, other priorities are parts of it;
* of counters and histograms every further label (``is_streaming``, ``priority``,
  ``cache_source``, ``model_name``, labels of one's own) divides the events.

A page is read line by line and only what is wanted is kept, so that its size costs no memory.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from harborlight.readings import Histogram, Latency, Number, Series, Total
from harborlight.sources.failure import Trouble, Unreadable

MAX_LINE_BYTES: Final = 16 * 1024
MAX_LINES: Final = 20_000
MAX_SERIES: Final = 4_096
MAX_MODELS: Final = 4
MAX_VALUE: Final = 2.0**63

_KV_USED: Final = "kv_used_tokens"
_LIVE_TOKENS: Final = "realtime_tokens_total"
_GAUGES: Final[Mapping[str, Number]] = {
    "num_running_reqs": Number.RUNNING,
    "num_queue_reqs": Number.QUEUED,
    "num_used_tokens": Number.KV_USED,
    _KV_USED: Number.KV_USED,
    "max_total_num_tokens": Number.KV_CAPACITY,
}
_COUNTERS: Final[Mapping[str, Total]] = {
    "num_requests_total": Total.REQUESTS,
    "num_aborted_requests_total": Total.ABORTED,
    "num_retracted_requests_total": Total.RETRACTED,
    "prompt_tokens_total": Total.PROMPT_TOKENS,
    "cached_tokens_total": Total.CACHED_TOKENS,
    "generation_tokens_total": Total.GENERATION_TOKENS,
}
_LIVE_MODES: Final[Mapping[str, Total]] = {
    "prefill_compute": Total.LIVE_PREFILL_TOKENS,
    "prefill_cache": Total.LIVE_CACHED_TOKENS,
    "decode": Total.LIVE_DECODE_TOKENS,
}
_HISTOGRAMS: Final[Mapping[Latency, tuple[str, ...]]] = {
    Latency.TIME_TO_FIRST_TOKEN: ("time_to_first_token_seconds",),
    # Up to 0.4.4 the time between tokens had the second name.
    Latency.INTER_TOKEN: ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    Latency.END_TO_END: ("e2e_request_latency_seconds",),
    Latency.QUEUE_TIME: ("queue_time_seconds", "queue_time_s"),
}
_LIVENESS: Final = ("scheduler_process_cpu_seconds_total", "scheduler_idle_seconds_total")
NAMES: Final = (
    *_GAUGES,
    *_COUNTERS,
    _LIVE_TOKENS,
    *_LIVENESS,
    *(
        f"{name}_{part}"
        for names in _HISTOGRAMS.values()
        for name in names
        for part in ("bucket", "sum")
    ),
)
"""What is looked for, without the prefix."""

# The second prefix is what a client that asks for OpenMetrics without colons is given.
_WANTED: Final = re.compile(
    rb"^sglang[:_]((?:" + "|".join(NAMES).encode() + rb")[{ ][^\n]*)", re.MULTILINE
)
_SAMPLE: Final = re.compile(rb"^[^#\s]", re.MULTILINE)
_OURS: Final = re.compile(rb"^sglang[:_]", re.MULTILINE)
_ROLES: Final = ("unified", "prefill", "decode", "dynamic")
_ROUTER: Final = b'worker_addr="'

Unit = tuple[str, str]
"""Role and data-parallel rank."""


@dataclass(frozen=True, slots=True)
class PageReading:
    """What a page says.

    ``gauges``: by number and unit; they add up over a role's units. ``ranked``: gauges carry
    their ranks (0.5.0 on); ``summed``: they are sums over processes, of which some may be dead
    (before 0.4.6). ``liveness``: processor or idle seconds of each scheduler (0.5.20 on). ``tp``
    and ``pp``: one more than the highest rank seen.
    """

    gauges: Mapping[Number, Mapping[Unit, float]] = field(default_factory=dict)
    totals: Mapping[Total, Mapping[Series, float]] = field(default_factory=dict)
    latencies: Mapping[Latency, Mapping[Series, Histogram]] = field(default_factory=dict)
    liveness: Mapping[Series, float] = field(default_factory=dict)
    ranked: bool = False
    summed: bool = False
    models: tuple[str, ...] = ()
    tp: int | None = None
    pp: int | None = None


def read_page(body: bytes, server: str = "") -> PageReading:
    """A page that is there as a whole. Raises Unreadable."""
    reader = PageReader(server)
    reader.feed(body)
    return reader.close()


class PageReader:
    """Reads a page as it comes in. ``server``: what its series are told from others' by."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._lines: list[bytes] = []
        self._rest = b""
        self._samples = self._ours = False

    def feed(self, chunk: bytes) -> None:
        """Take in the next bytes. Raises Unreadable where nothing that follows could mend it."""
        lines, newline, rest = (self._rest + chunk).rpartition(b"\n")
        self._rest = rest
        if newline:
            self._take(lines)
        if len(rest) > MAX_LINE_BYTES:
            # Of a line that is not wanted, only its end is waited for.
            self._take(rest)
            self._rest = b"#"

    def close(self) -> PageReading:
        """What the page said. Raises Unreadable."""
        self._take(self._rest)
        if self._samples and not self._ours:
            raise Unreadable("no SGLang metrics on the page", Trouble.WRONG_KIND)
        try:
            text = b"\n".join(self._lines).decode() + "\n"
        except UnicodeDecodeError:
            raise Unreadable("the page is not UTF-8 text") from None
        return _Reduction(self._server, _parsed(text)).reading()

    def _take(self, lines: bytes) -> None:
        self._samples = self._samples or _SAMPLE.search(lines) is not None
        self._ours = self._ours or _OURS.search(lines) is not None
        for match in _WANTED.finditer(lines):
            line = match[1]
            if _ROUTER in line:
                reason = "a router's page: list its workers as replicas"
                raise Unreadable(reason, Trouble.WRONG_KIND)
            if len(match[0]) > MAX_LINE_BYTES:  # as measured where its end is waited for
                raise Unreadable("a line of the page is too long")
            if len(self._lines) >= MAX_LINES:
                raise Unreadable("too many series on the page")
            self._lines.append(line.rstrip(b"\r"))


class _Sample(NamedTuple):
    name: str
    labels: Mapping[str, str]
    value: float


def _parsed(text: str) -> list[_Sample]:
    """The samples that can be meant: finite, not negative."""
    try:
        found: list[Any] = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]
    except (ValueError, KeyError, IndexError, AttributeError, TypeError):
        # The library says what is wrong by quoting the page, and not always as a ValueError.
        raise Unreadable("a line of the page cannot be read") from None
    return [
        _Sample(sample.name, sample.labels, sample.value)
        for sample in found
        if 0 <= sample.value < MAX_VALUE
    ]


class _Reduction:
    """Samples brought down to units and series."""

    def __init__(self, server: str, samples: Iterable[_Sample]) -> None:
        self._server = server
        self._by_name: dict[str, list[_Sample]] = defaultdict(list)
        for sample in samples:
            if _ranks_are_numbers(sample.labels):
                self._by_name[sample.name].append(sample)
        roles = {
            sample.labels["engine_type"]
            for found in self._by_name.values()
            for sample in found
            if sample.labels.get("engine_type") in _ROLES
        }
        # Before 0.5.12 only the scheduler's families say the role of their server.
        self._role = roles.pop() if len(roles) == 1 else _ROLES[0]

    def reading(self) -> PageReading:
        scheduler = [s for name in _GAUGES for s in self._by_name.get(name, ())]
        everybody = [s for found in self._by_name.values() for s in found]
        return PageReading(
            gauges=self._gauges(),
            totals=self._totals(),
            latencies=self._latencies(),
            liveness=self._liveness(),
            ranked=any("tp_rank" in s.labels for s in scheduler),
            summed=any("engine_type" not in s.labels for s in scheduler),
            models=tuple(sorted({s.labels.get("model_name", "") for s in everybody} - {""}))[
                :MAX_MODELS
            ],
            tp=_size("tp_rank", everybody),
            pp=_size("pp_rank", everybody),
        )

    def _gauges(self) -> dict[Number, dict[Unit, float]]:
        numbers: dict[Number, dict[Unit, float]] = {}
        for name, number in _GAUGES.items():
            # The highest of a unit's processes; of pipeline stages' capacities the lowest.
            stages: dict[Unit, dict[str, float]] = defaultdict(dict)
            for sample in self._by_name.get(name, ()):
                if sample.labels.get("priority", "") != "":
                    continue
                stage = sample.labels.get("pp_rank", "")
                of_unit = stages[self._unit(sample.labels)]
                of_unit[stage] = max(of_unit.get(stage, 0.0), sample.value)
            choose = min if number is Number.KV_CAPACITY else max
            units = {unit: choose(values.values()) for unit, values in stages.items()}
            if units:
                numbers[number] = _bounded({**numbers.get(number, {}), **units})
        return numbers

    def _totals(self) -> dict[Total, dict[Series, float]]:
        totals: dict[Total, dict[Series, float]] = {}
        for name, total in _COUNTERS.items():
            self._sum(totals, total, self._by_name.get(name, ()))
        for mode, total in _LIVE_MODES.items():
            samples = self._by_name.get(_LIVE_TOKENS, ())
            self._sum(totals, total, [s for s in samples if s.labels.get("mode") == mode])
        return totals

    def _sum(
        self, totals: dict[Total, dict[Series, float]], total: Total, samples: Iterable[_Sample]
    ) -> None:
        sums: dict[Series, float] = defaultdict(float)
        for sample in samples:
            sums[self._series(sample.labels)] += sample.value
        if sums:
            totals[total] = _bounded(sums)

    def _liveness(self) -> dict[Series, float]:
        for name in _LIVENESS:
            values: dict[Series, float] = {}
            for sample in self._by_name.get(name, ()):
                series = self._series(sample.labels)
                values[series] = max(values.get(series, 0.0), sample.value)
            if values:
                return _bounded(values)
        return {}

    def _latencies(self) -> dict[Latency, dict[Series, Histogram]]:
        found: dict[Latency, dict[Series, Histogram]] = {}
        for latency, names in _HISTOGRAMS.items():
            for name in names:
                histograms = self._histograms(name)
                if histograms:
                    found[latency] = histograms
                    break
        return found

    def _histograms(self, name: str) -> dict[Series, Histogram]:
        buckets: dict[Series, dict[float, float]] = defaultdict(lambda: defaultdict(float))
        sums: dict[Series, float] = defaultdict(float)
        for sample in self._by_name.get(f"{name}_bucket", ()):
            bound = _bound(sample.labels.get("le", ""))
            if bound is not None:
                buckets[self._series(sample.labels)][bound] += sample.value
        for sample in self._by_name.get(f"{name}_sum", ()):
            sums[self._series(sample.labels)] += sample.value
        histograms = {
            series: histogram
            for series, cumulative in buckets.items()
            if (histogram := _histogram(cumulative, sums.get(series))) is not None
        }
        return _bounded(histograms)

    def _unit(self, labels: Mapping[str, str]) -> Unit:
        role, dp_rank = labels.get("engine_type", ""), labels.get("dp_rank", "")
        return role if role in _ROLES else self._role, str(int(dp_rank)) if dp_rank else ""

    def _series(self, labels: Mapping[str, str]) -> Series:
        role, dp_rank = self._unit(labels)
        ranks = ",".join(
            f"{name}={int(value)}"
            for name, value in sorted(labels.items())
            if name.endswith("_rank") and name != "dp_rank"
        )
        return Series(self._server, role, dp_rank, ranks)


def _ranks_are_numbers(labels: Mapping[str, str]) -> bool:
    """Whether every rank is a small number; only a server that is none of SGLang's says more."""
    return all(
        value.isascii() and value.isdecimal() and len(value) <= 6  # noqa: PLR2004
        for name, value in labels.items()
        if name.endswith("_rank") and (name != "dp_rank" or value)
    )


def _size(label: str, samples: Iterable[_Sample]) -> int | None:
    ranks = [int(sample.labels[label]) for sample in samples if label in sample.labels]
    return max(ranks) + 1 if ranks else None


def _bound(le: str) -> float | None:
    try:
        bound = float(le)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound


def _histogram(cumulative: Mapping[float, float], total: float | None) -> Histogram | None:
    """None where the buckets fall, lack the last one or have no sum: no histogram at all."""
    bounds = tuple(sorted(cumulative))
    if total is None or bounds[-1] != math.inf:
        return None
    up_to = [0.0, *(cumulative[bound] for bound in bounds)]
    counts = tuple(b - a for a, b in pairwise(up_to))
    return Histogram(bounds, counts, total) if min(counts) >= 0 else None


def _bounded[K, V](found: Mapping[K, V]) -> dict[K, V]:
    if len(found) > MAX_SERIES:
        raise Unreadable("too many series on the page")
    return dict(found)
