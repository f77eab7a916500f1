"""An SGLang 0.5.23 server of eight GPUs that does not exist: its load, its pages, its answers.

Clients are agents at work: one asks, reads the answer, works for a moment with its tools, and asks
again with all that it said before (which the prefix cache has) and what is new. Prompts are
computed one after the other, answers are decoded side by side; when the KV cache is full, requests
wait, and sometimes the newest running one is put back. All sizes and rates are made up.

Nothing here looks at a clock or opens a connection: whoever has the server says what time it is.
The same seed, times and numbers of clients give the same pages.
"""

from __future__ import annotations

import json
import math
import random
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

VERSION: Final = "0.5.23"
TENSOR_PARALLEL: Final = 8
MAX_RUNNING: Final = 64
KV_CAPACITY: Final = 480_000

TICK: Final = 0.05
"""Seconds of a step."""

_PREFILL_RATE: Final = 16_000.0
_DECODE_RATE: Final = 120.0
_DECODE_CROWD: Final = 40.0
"""Requests that halve the rate of each."""
_THINK_SECONDS: Final = 1.2
_ABORTS_PER_SECOND: Final = 1 / 900
"""Of one running request, by a client that ran into its time-out."""
_SYSTEM_PROMPT: Final = 8_000
_MAX_OUTPUT: Final = 4_000
_LAST_WORDS: Final = 30
"""Tokens until the answer of a client that leaves is complete."""
_OPTIMISM: Final = 1.02
"""How far beyond the KV cache requests are let in: others are expected to end meanwhile."""
_TOOL_OUTPUT: Final = 2_500

_FIRST_TOKEN: Final = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_END_TO_END: Final = (*_FIRST_TOKEN, 600, 1200, 1800, 2400)
_BETWEEN_TOKENS: Final = (
    *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08),
    *(0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8),
)
_IN_QUEUE: Final = (
    *(0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60),
    *(70, 80, 90, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800),
    *(2000, 2500, 3000),
)


class _Histogram:
    """Observations in buckets, as SGLang bounds them."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = (*bounds, math.inf)
        self.counts = [0] * len(self.bounds)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


@dataclass(slots=True, eq=False)
class _Request:
    """One request. ``uncached``: prompt tokens still to be computed; ``made``: tokens generated."""

    arrived: float
    queued: float
    prompt: int
    cached: int
    output: int
    uncached: float
    made: float = 0.0
    retracted: bool = False

    @property
    def used(self) -> float:
        """Its tokens in the KV cache."""
        return self.prompt - self.uncached + self.made


@dataclass(slots=True, eq=False)
class _Client:
    """An agent. ``context``: its conversation's tokens so far, ``limit``: when it begins anew."""

    ready: float
    context: int
    limit: int
    request: _Request | None = None


class SglangServer:
    """One server. ``clients``: how many agents are at it, from the next ``advance`` on.

    Times of the simulation are of any one clock; ``now`` is where it begins. ``kv_capacity``: the
    tokens that its KV cache has room for.
    """

    def __init__(
        self, model: str, seed: str, now: float, *, kv_capacity: int = KV_CAPACITY
    ) -> None:
        self.clients = 0
        self._kv_capacity = kv_capacity
        self.frozen = False
        self._model = model
        self._random = random.Random(seed)
        self._now = now
        self._seen = 0.0
        self._clients: list[_Client] = []
        self._queue: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._totals: Counter[str] = Counter()
        self._throughput = 0.0
        self._cpu = self._idle = 0.0
        self._first_token = _Histogram(_FIRST_TOKEN)
        self._between_tokens = _Histogram(_BETWEEN_TOKENS)
        self._end_to_end = _Histogram(_END_TO_END)
        self._in_queue = _Histogram(_IN_QUEUE)

    # The time.

    def advance(self, now: float, wall: float) -> None:
        """Go on to ``now``; ``wall``: what the server's own clock says then."""
        if self.frozen:
            self._now = max(self._now, now)
            return
        self._seen = wall
        while self._now + TICK <= now:
            if self.clients or self._clients:
                self._step()
                self._now += TICK
            else:
                ticks = int((now - self._now) / TICK) or 1
                self._idle += ticks * TICK
                self._cpu += ticks * TICK / 2
                self._throughput = 0.0
                self._now += ticks * TICK

    def freeze(self) -> None:
        """From now on its scheduler does nothing; what is asked over HTTP stays as it is."""
        self.frozen = True

    def thaw(self) -> None:
        """It goes on; those who had asked are no longer there."""
        self.frozen = False
        self._abort([*self._running, *self._queue])

    def _step(self) -> None:
        self._cpu += TICK
        self._come_and_go()
        self._ask()
        self._admit()
        prefill = self._prefill()
        self._decode(prefill)
        chance = _ABORTS_PER_SECOND * TICK
        self._abort([r for r in self._running if self._random.random() < chance])

    # The clients.

    def _come_and_go(self) -> None:
        """Whoever leaves gets the end of its answer; when everybody leaves, nobody does."""
        while len(self._clients) < self.clients:
            self._clients.append(self._new_client())
        if not self.clients:
            self._abort([*self._running, *self._queue])
            self._clients.clear()
        while len(self._clients) > self.clients:
            thinking = [c for c in self._clients if c.request is None]
            leaver = (thinking or self._clients)[-1]
            self._clients.remove(leaver)
            if leaver.request is not None:
                last = int(leaver.request.made) + _LAST_WORDS
                leaver.request.output = min(leaver.request.output, last)

    def _new_client(self) -> _Client:
        chance = self._random
        return _Client(
            ready=self._now + chance.expovariate(1 / _THINK_SECONDS),
            context=round(chance.uniform(_SYSTEM_PROMPT, 45_000)),
            limit=round(chance.uniform(50_000, 100_000)),
        )

    def _ask(self) -> None:
        for client in self._clients:
            if client.request is None and client.ready <= self._now:
                new = self._some(_TOOL_OUTPUT, 12_000)
                prompt = client.context + new
                client.request = _Request(
                    arrived=self._now,
                    queued=self._now,
                    prompt=prompt,
                    cached=client.context,
                    output=self._some(400, _MAX_OUTPUT),
                    uncached=new,
                )
                self._queue.append(client.request)

    def _some(self, median: int, most: int) -> int:
        """A number of tokens: most are few, few are many."""
        return min(most, 1 + round(self._random.lognormvariate(math.log(median), 0.8)))

    def _answered(self, request: _Request) -> None:
        """Its client, if still there, has what it asked for."""
        for number, client in enumerate(self._clients):
            if client.request is request:
                client.request = None
                client.context = request.prompt + int(request.made)
                client.ready = self._now + self._random.expovariate(1 / _THINK_SECONDS)
                if client.context > client.limit:
                    self._clients[number] = self._new_client()
                return

    # The scheduler.

    @property
    def _used(self) -> float:
        return sum(request.used for request in self._running)

    def _admit(self) -> None:
        """Let in who waits, while there is room for its prompt."""
        promised = sum(request.prompt + request.made for request in self._running)
        while self._queue and len(self._running) < MAX_RUNNING:
            request = self._queue[0]
            computing = any(r.uncached > 0 for r in self._running)
            needed = request.prompt + request.made
            room = self._kv_capacity * (1.0 if request.retracted else _OPTIMISM)
            if computing or promised + needed > room:
                return
            self._queue.popleft()
            # Between two batches there is always a moment.
            self._in_queue.observe(self._now - request.queued + self._random.uniform(5e-4, 0.02))
            self._running.append(request)
            self._totals["prefill_cache"] += request.cached
            promised += needed

    def _prefill(self) -> float:
        """Compute prompts, first come first served; the share of the step that it took."""
        budget = _PREFILL_RATE * TICK
        left = budget
        for request in self._running:
            if request.uncached > 0 and left > 0:
                done = min(request.uncached, left)
                request.uncached -= done
                left -= done
                self._totals["prefill_compute"] += round(done)
                if request.uncached <= 0 and request.made == 0:
                    when = self._now + TICK * (1 - left / budget)
                    self._first_token.observe(when - request.arrived + 0.02)
        return 1 - left / budget

    def _decode(self, prefill: float) -> None:
        decoding = [request for request in self._running if request.uncached <= 0]
        rate = _DECODE_RATE / (1 + len(decoding) / _DECODE_CROWD) * (1 - 0.6 * prefill)
        total = 0
        for request in decoding:
            own = rate * self._random.uniform(0.85, 1.15)
            before = int(request.made)
            request.made = min(request.made + own * TICK, request.output)
            made = int(request.made) - before
            total += made
            if made:
                self._between_tokens.observe(1 / own, made)
            if request.made >= request.output:
                self._finish(request)
        self._totals["decode"] += total
        self._throughput += (total / TICK - self._throughput) * TICK
        while self._used > self._kv_capacity:
            self._retract()

    def _finish(self, request: _Request) -> None:
        self._running.remove(request)
        self._end_to_end.observe(self._now + TICK - request.arrived)
        self._totals["requests"] += 1
        self._totals["prompt"] += request.prompt
        self._totals["cached"] += request.cached
        self._totals["generation"] += request.output
        self._answered(request)

    def _retract(self) -> None:
        """The newest running request goes back into the queue: there is no room for its tokens."""
        request = self._running.pop()
        request.uncached = request.prompt - request.cached + request.made
        request.queued = self._now
        request.retracted = True
        self._queue.appendleft(request)
        self._totals["retracted"] += 1

    def _abort(self, requests: Iterable[_Request]) -> None:
        for request in requests:
            if request in self._running:
                self._running.remove(request)
            else:
                self._queue.remove(request)
            self._totals["aborted"] += 1
            self._answered(request)

    # What it says.

    def metrics(self) -> str:
        """``GET /metrics``: the families that tell of requests, tokens and the scheduler."""
        ranks = [
            f'moe_ep_rank="0",model_name="{self._model}",pp_rank="0",tp_rank="{rank}"'
            for rank in range(TENSOR_PARALLEL)
        ]
        unified = 'engine_type="unified",'
        every = [unified + rank for rank in ranks]
        scheduler, tokenizer = every[0], f'{unified}model_name="{self._model}"'
        streamed = f'{unified}is_streaming="true",model_name="{self._model}"'
        used, total = round(self._used), self._totals
        share = used / self._kv_capacity
        evictable = min(self._kv_capacity - used, sum(c.context for c in self._clients) // 4)
        page = _Page()
        page.counter("num_requests_total", {streamed: total["requests"]})
        page.counter("num_aborted_requests_total", {tokenizer: total["aborted"]})
        page.counter("prompt_tokens_total", {streamed: total["prompt"]})
        page.counter("generation_tokens_total", {streamed: total["generation"]})
        page.counter("cached_tokens_total", {f'cache_source="device",{tokenizer}': total["cached"]})
        page.counter("num_retracted_requests_total", {scheduler: total["retracted"]})
        modes = ("prefill_compute", "prefill_cache", "decode")
        page.counter(
            "realtime_tokens_total", {f'mode="{mode}",{scheduler}': total[mode] for mode in modes}
        )
        page.counter("scheduler_process_cpu_seconds_total", dict.fromkeys(every, self._cpu))
        page.counter("scheduler_idle_seconds_total", dict.fromkeys(every, self._idle))
        page.gauge("max_total_num_tokens", dict.fromkeys(every, self._kv_capacity))
        page.gauge("num_running_reqs", {scheduler: len(self._running)})
        page.gauge("num_queue_reqs", {scheduler: len(self._queue)})
        page.gauge("num_used_tokens", {scheduler: used})
        page.gauge("kv_used_tokens", {scheduler: used})
        page.gauge("kv_evictable_tokens", {scheduler: evictable})
        page.gauge("kv_available_tokens", {scheduler: self._kv_capacity - used - evictable})
        page.gauge("token_usage", {scheduler: round(share, 2)})
        page.gauge("full_token_usage", {scheduler: share})
        page.gauge("gen_throughput", {scheduler: self._throughput})
        page.histogram("time_to_first_token_seconds", streamed, self._first_token)
        page.histogram("inter_token_latency_seconds", tokenizer, self._between_tokens)
        page.histogram("e2e_request_latency_seconds", streamed, self._end_to_end)
        page.histogram("queue_time_seconds", scheduler, self._in_queue)
        return str(page)

    def loads(self, wall: float) -> str:
        """``GET /v1/loads``, asked at ``wall``. Its row is as old as the scheduler's last work."""
        used, waiting = round(self._used), len(self._queue)
        uncached = round(sum(request.uncached for request in self._queue))
        row = {
            "timestamp": self._seen,
            "dp_rank": 0,
            "num_running_reqs": len(self._running),
            "num_waiting_reqs": waiting,
            "num_waiting_uncached_tokens": uncached,
            "num_used_tokens": used,
            "num_total_tokens": used + uncached,
            "max_total_num_tokens": self._kv_capacity,
            "max_running_requests": MAX_RUNNING,
            "token_usage": round(used / self._kv_capacity, 4),
            "gen_throughput": round(self._throughput, 2),
            "disaggregation": {"mode": "null"},
            "queues": {"waiting": waiting, "grammar": 0, "paused": 0, "retracted": 0},
        }
        answer = {
            "timestamp": datetime.fromtimestamp(wall, UTC).isoformat(),
            "version": VERSION,
            "accelerator": None,
            "num_accelerators": TENSOR_PARALLEL,
            "loads": [row],
        }
        return json.dumps(answer)

    def server_info(self) -> str:
        """``GET /server_info``."""
        return json.dumps(
            {
                "model_path": self._model,
                "served_model_name": self._model,
                "version": VERSION,
                "tp_size": TENSOR_PARALLEL,
                "pp_size": 1,
                "dp_size": 1,
                "nnodes": 1,
                "disaggregation_mode": "null",
                "max_running_requests": MAX_RUNNING,
                "max_total_num_tokens": self._kv_capacity,
                "status": "ready",
                "internal_states": [{"effective_max_running_requests_per_dp": MAX_RUNNING}],
            }
        )


class _Page:
    """A text page in the making; ``samples`` are values by label pairs."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def counter(self, name: str, samples: Mapping[str, float]) -> None:
        self._family(name, "counter", samples)

    def gauge(self, name: str, samples: Mapping[str, float]) -> None:
        self._family(name, "gauge", samples)

    def histogram(self, name: str, labels: str, histogram: _Histogram) -> None:
        self._describe(name, "histogram")
        so_far = 0
        self._sample(f"{name}_sum", labels, histogram.sum)
        for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
            so_far += count
            le = "+Inf" if bound == math.inf else str(float(bound))
            self._sample(f"{name}_bucket", f'{labels},le="{le}"', so_far)
        self._sample(f"{name}_count", labels, so_far)

    def _family(self, name: str, kind: str, samples: Mapping[str, float]) -> None:
        self._describe(name, kind)
        for labels, value in samples.items():
            self._sample(name, labels, value)

    def _describe(self, name: str, kind: str) -> None:
        self._lines += [f"# HELP sglang:{name} Simulated.", f"# TYPE sglang:{name} {kind}"]

    def _sample(self, name: str, labels: str, value: float) -> None:
        self._lines.append(f"sglang:{name}{{{labels}}} {float(value)}")
