"""A snapshot as Prometheus families, and the page made of them."""

from __future__ import annotations

import gzip
import importlib.metadata
import platform
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client import PROCESS_COLLECTOR
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from harborlight import __version__
from harborlight.labels import safe_label
from harborlight.ledger import accounts
from harborlight.ledger.faults import Boundary, Cause, Phase
from harborlight.ledger.jobs import JobState
from harborlight.ledger.ownership import AttemptState, Resolution, TrialState
from harborlight.ledger.pools import PoolStanding
from harborlight.ledger.replicas import ReplicaStanding
from harborlight.ledger.standing import JobStanding, RunStanding, TaskStanding
from harborlight.readings import Latency, Number, ReplicaInfo, ReplicaState, Total
from harborlight.reference import Reference, ReferenceTask, totals
from harborlight.snapshot import Snapshot
from harborlight.statistics.correctness import Estimate
from harborlight.statistics.pace import Method, Window
from harborlight.statistics.runs import RunStatistics, complete_difference
from harborlight.views import catalogue as c
from harborlight.views.catalogue import CATALOGUE, Kind, Metric

FAULT_PLACES: Final = (
    (Phase.ENVIRONMENT, Cause.CONTAINER),
    (Phase.AGENT, Cause.CONTAINER),
    (Phase.AGENT, Cause.SERVING),
    (Phase.AGENT, Cause.AGENT),
    (Phase.VERIFIER, Cause.CONTAINER),
    (Phase.ENVIRONMENT, Cause.CANCELLED),
    (Phase.AGENT, Cause.CANCELLED),
    (Phase.VERIFIER, Cause.CANCELLED),
    (Phase.VERIFIER, Cause.VERIFIER),
    # Retried ones that only the job's log tells of have no phase.
    *((Phase.UNKNOWN, cause) for cause in Cause),
)
"""Phases and causes that are shown from 0 on, so that ``increase()`` sees a first fault."""

_OPEN_PLACES: Final = (
    *((cause, boundary) for cause in Cause for boundary in (Boundary.RESUME, Boundary.RERUN)),
    (Cause.VERIFIER, Boundary.REGRADE),
)
_SCORED_CAUSES: Final = (Cause.CONTAINER, Cause.SERVING, Cause.AGENT, Cause.VERIFIER)
_PHASES: Final = ("environment", "agent_setup", "agent", "verifier")
_TOKEN_KINDS: Final = ("input", "cached_input", "output")
_RESULTS: Final = ("passed", "failed")

Encoder = Callable[[Collector], bytes]


class TaskPart(NamedTuple):
    """A task's encoded families by metric name, and what they were made from."""

    task: TaskStanding
    reference: ReferenceTask | None
    families: dict[str, tuple[bytes, bytes]]


TaskParts = dict[tuple[str, str], TaskPart]
"""By the labels of run and task."""

CounterTree = Mapping[str, Mapping[tuple[str, ...], float]]


class Families:
    """Collects samples into the catalogue's families, in the catalogue's order."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def add(self, metric: Metric, value: float | None, *labels: str) -> None:
        """One sample; None is no sample. ``labels``: values in the catalogue's order."""
        if value is None:
            return
        family = self._family(metric)
        family.add_sample(
            metric.full_name, dict(zip(metric.labels, labels, strict=True)), float(value)
        )

    def add_histogram(
        self, metric: Metric, buckets: Iterable[tuple[str, float]], total: float, *labels: str
    ) -> None:
        """One histogram: ``buckets`` are bounds and counts (not cumulative), the last is +Inf."""
        family = self._family(metric)
        given = dict(zip(metric.labels, labels, strict=True))
        so_far = 0.0
        for bound, count in buckets:
            so_far += count
            family.add_sample(f"{metric.full_name}_bucket", {**given, "le": bound}, so_far)
        family.add_sample(f"{metric.full_name}_count", given, so_far)
        family.add_sample(f"{metric.full_name}_sum", given, total)

    def _family(self, metric: Metric) -> Family:
        family = self._families.get(metric.name)
        if family is None:
            # In the library's model an info or counter is named without its suffix.
            name = metric.full_name.removesuffix("_total").removesuffix(
                "_info" if metric.kind is Kind.INFO else ""
            )
            family = self._families[metric.name] = Family(name, metric.help, metric.kind.value)
        return family

    def __iter__(self) -> Iterator[Family]:
        for name in CATALOGUE:
            if name in self._families:
                yield self._families[name]

    def parts(self, encoder: Encoder) -> dict[str, tuple[bytes, bytes]]:
        """Each family encoded on its own, by metric name: (help and type, samples)."""
        return {name: _split(encoder(_Fixed([family]))) for name, family in self._families.items()}


def knowledge(snapshot: Snapshot) -> Families:
    """What the ledger knows and what follows from it, without tasks, pace and condition."""
    families = Families()
    for run in snapshot.runs:
        _run(families, run, snapshot.counters.get(run.label, {}))
        statistics = snapshot.statistics.get(run.label)
        if statistics is not None:
            _correctness(families, run, statistics)
    for job in snapshot.jobs:
        _job(families, job)
    for pool in snapshot.pools:
        _pool(families, pool)
    return families


def pace(snapshot: Snapshot) -> Families:
    """What changes with time alone: rates and estimated ends."""
    families = Families()
    add = families.add
    for run in snapshot.runs:
        statistics = snapshot.statistics.get(run.label)
        if statistics is None:
            continue
        found = statistics.pace
        for window in Window:
            add(c.RUN_TERMINAL_RATE, found.terminal.get(window), run.label, window)
            add(c.RUN_SCORED_RATE, found.scored.get(window), run.label, window)
        for (method, quantile), end in found.ends.items():
            add(c.RUN_ETA, end, run.label, method, quantile)
        if found.preferred is not None:
            for method in Method:
                add(c.RUN_ETA_PREFERRED, found.preferred is method, run.label, method)
    return families


def condition(snapshot: Snapshot) -> Families:
    """How the exporter itself is doing."""
    families = Families()
    families.add(
        c.BUILD_INFO,
        1,
        __version__,
        importlib.metadata.version("harbor"),
        platform.python_version(),
    )
    for collector in snapshot.collectors:
        families.add(c.COLLECTOR_SUCCESS, collector.success, collector.name)
        families.add(c.COLLECTOR_DURATION, collector.duration_seconds, collector.name)
        families.add(c.COLLECTOR_LAST_SUCCESS, collector.last_success, collector.name)
    families.add(c.SNAPSHOT_TIMESTAMP, snapshot.at)
    families.add(c.LEDGER_TRIALS, snapshot.ledger_trials)
    families.add(c.CONFIG_RELOAD_SUCCESS, snapshot.config_reload_success)
    families.add(c.CONFIG_RELOAD_TIMESTAMP, snapshot.config_reload_timestamp)
    return families


def _run(families: Families, run: RunStanding, counters: CounterTree) -> None:
    add, label = families.add, run.label
    add(c.RUN_INFO, 1, label, run.title, run.agent, run.agent_version, run.model, run.dataset)
    for job in run.jobs:
        add(c.RUN_JOB_INFO, 1, label, job)
    add(c.RUN_TARGET_KNOWN, run.target is not None, label)
    add(c.RUN_TASKS, len(run.tasks), label)
    add(c.RUN_TASKS_COMPLETE, run.tasks_complete, label)
    add(c.RUN_ATTEMPTS_TARGET, run.target, label)
    for state in AttemptState:
        add(c.RUN_ATTEMPTS, run.states[state], label, state)
    for doing in Phase:
        running = sum(task.phases.get(doing, 0) for task in run.tasks)
        add(c.RUN_ATTEMPTS_RUNNING, running, label, doing)
    add(c.RUN_ATTEMPTS_PASSED, run.passed, label)
    add(c.RUN_ATTEMPTS_SURPLUS, run.surplus, label)
    add(c.RUN_STALE_CONTENT, run.stale_content, label)
    add(c.RUN_WITHOUT_KEY, run.without_key, label)
    for cause in _with(_SCORED_CAUSES, run.scored_with_exception):
        add(c.RUN_SCORED_WITH_EXCEPTION, run.scored_with_exception.get(cause, 0), label, cause)
    add(c.RUN_SUPERSEDED, run.superseded, label)
    _counter(families, c.RUN_VERDICTS, label, counters, [(r,) for r in _RESULTS])
    # As a rule nobody sees what Harbor deletes, and a series that begins at 1 has not grown.
    discarded: list[tuple[str, ...]] = [(r,) for r in (*_RESULTS, "unknown")]
    _counter(families, c.RUN_DISCARDED, label, counters, discarded)
    _counter(families, c.RUN_FAULTS_TOTAL, label, counters, [(p, q) for p, q in FAULT_PLACES])
    _counter(families, c.RUN_FAULTS_BY_TYPE, label, counters, [])
    for place in _with(_OPEN_PLACES, run.faults_open):
        add(c.RUN_FAULTS_OPEN, run.faults_open.get(place, 0), label, *place)
    for resolution in Resolution:
        add(c.RUN_FAULTS_BY_RESOLUTION, run.resolutions.get(resolution, 0), label, resolution)
    for cause in Cause:
        add(c.RUN_FAULT_TASKS, run.fault_tasks.get(cause, 0), label, cause)
    if run.retries_known:
        _counter(families, c.RUN_RETRIES, label, counters, [()])
    for phase in _PHASES:
        _durations(families, label, phase, counters)
    _counter(families, c.RUN_TOKENS, label, counters, [(k,) for k in _TOKEN_KINDS])
    _counter(families, c.RUN_COST, label, counters, [()])
    add(c.RUN_STARTED, run.started, label)
    add(c.RUN_LAST_VERDICT, run.last_verdict, label)


def _with[K](known: Iterable[K], found: Iterable[K]) -> list[K]:
    """The label values shown from 0 on, and whatever else was found."""
    return list(dict.fromkeys([*known, *found]))


def _counter(
    families: Families,
    metric: Metric,
    run: str,
    counters: CounterTree,
    initial: list[tuple[str, ...]],
) -> None:
    values = counters.get(metric.name, {})
    for labels in _with(initial, sorted(values)):
        families.add(metric, values.get(labels, 0.0), run, *labels)


def _durations(families: Families, run: str, phase: str, counters: CounterTree) -> None:
    buckets = counters.get(accounts.DURATION_BUCKET, {})
    bounds = [accounts.bucket_label(i) for i in range(len(accounts.DURATION_BUCKETS) + 1)]
    counts = [(bound, buckets.get((phase, bound), 0.0)) for bound in bounds]
    total = counters.get(accounts.DURATION_SUM, {}).get((phase,), 0.0)
    families.add_histogram(c.RUN_PHASE_DURATION, counts, total, run, phase)


def _correctness(families: Families, run: RunStanding, statistics: RunStatistics) -> None:
    add, label, found = families.add, run.label, statistics.comparison
    for (side, scope), estimate in found.sides.items():
        add(c.RUN_SUCCESS, estimate.value, label, side, scope)
        _intervals(families, c.RUN_SUCCESS_CI, estimate, 0, label, side, scope)
        _undefined(families, estimate, label, side, scope)
    if found.hard_bounds is not None:
        for bound, value in found.hard_bounds._asdict().items():
            add(c.RUN_HARD_BOUND, value, label, bound)
    add(c.RUN_FAULTS_AS_FAILURES, found.faults_as_failures, label)
    for scope, estimate in found.differences.items():
        add(c.RUN_DIFFERENCE, estimate.value, label, scope)
        _intervals(families, c.RUN_DIFFERENCE_CI, estimate, -1, label, scope)
        _undefined(families, estimate, label, "difference", scope)
    add(c.RUN_PROJECTED, found.projected, label)
    for scope, tasks in found.matched_tasks.items():
        add(c.RUN_MATCHED_TASKS, tasks, label, scope)
    for k, (chance, of_tasks) in found.pass_at.items():
        add(c.RUN_PASS_AT_K, chance, label, str(k))
        add(c.RUN_PASS_AT_K_TASKS, of_tasks, label, str(k))
    add(c.RUN_REWARD_MEAN, found.reward_mean, label)
    for check, finding in statistics.comparability.items():
        add(c.RUN_COMPARABILITY, finding.holds, label, check)
    if statistics.reference is not None:
        _reference(families, run, statistics.reference, statistics)


def _intervals(
    families: Families, metric: Metric, estimate: Estimate, least: float, *labels: str
) -> None:
    """Its intervals' bounds, cut off at what can be: ``least`` to 1."""
    for interval, bounds in estimate.intervals.items():
        for bound, value in bounds.within(least, 1)._asdict().items():
            families.add(metric, value, *labels, interval, bound)


def _undefined(families: Families, estimate: Estimate, *labels: str) -> None:
    for interval, why in estimate.undefined.items():
        families.add(c.RUN_INTERVAL_UNDEFINED, 1, *labels, interval, why)


def _reference(
    families: Families, run: RunStanding, reference: Reference, statistics: RunStatistics
) -> None:
    add, label, matched = families.add, run.label, statistics.comparison.matched
    add(c.RUN_REFERENCE_INFO, 1, label, safe_label(reference.name), safe_label(reference.title))
    for match, tasks in (
        ("both", len(matched)),
        ("run", len(run.tasks) - len(matched)),
        ("reference", len(statistics.unmatched)),
    ):
        add(c.RUN_REFERENCE_TASKS, tasks, label, match)
    attempts, passed, errors = totals(matched.values())
    add(c.RUN_REFERENCE_ATTEMPTS, passed, label, "passed")
    add(c.RUN_REFERENCE_ATTEMPTS, attempts - passed - errors, label, "failed")
    add(c.RUN_REFERENCE_ATTEMPTS, errors, label, "error")


def _of_reference(statistics: RunStatistics | None, task: TaskStanding) -> ReferenceTask | None:
    """What the run's reference has of its task."""
    return statistics.comparison.matched.get(task.label) if statistics is not None else None


def _task(
    families: Families, run: str, task: TaskStanding, reference: ReferenceTask | None
) -> None:
    add, label = families.add, task.label
    add(c.TASK_ATTEMPTS_TARGET, task.target if task.target_known else None, run, label)
    for state in AttemptState:
        add(c.TASK_ATTEMPTS, task.states[state], run, label, state)
    add(c.TASK_ATTEMPTS_PASSED, task.passed, run, label)
    add(c.TASK_USUAL_DURATION, task.usual_duration, run, label)
    add(c.TASK_OLDEST_START, task.oldest_running_start, run, label)
    if reference is not None:
        add(c.TASK_REFERENCE_ATTEMPTS, reference.attempts, run, label)
        add(c.TASK_REFERENCE_PASSED, reference.passed, run, label)
        add(c.TASK_DIFFERENCE, complete_difference(task, reference), run, label)


def _job(families: Families, job: JobStanding) -> None:
    add, label = families.add, job.label
    add(c.JOB_INFO, 1, label, job.harbor_version)
    for state in JobState:
        add(c.JOB_STATE, job.state is state, label, state)
    for trial_state in TrialState:
        add(c.JOB_TRIALS, job.trials.get(trial_state, 0), label, trial_state)
    add(c.JOB_STARTED, job.started, label)
    add(c.JOB_FINISHED, job.finished, label)
    add(c.JOB_LAST_CHANGE, job.last_change, label)
    add(c.JOB_UNREADABLE, job.unreadable_files, label)


_NUMBERS: Final = {
    c.REPLICA_RUNNING: Number.RUNNING,
    c.REPLICA_QUEUED: Number.QUEUED,
    c.REPLICA_MAX_RUNNING: Number.MAX_RUNNING,
    c.REPLICA_KV_USED: Number.KV_USED,
    c.REPLICA_KV_CAPACITY: Number.KV_CAPACITY,
}
_TOTALS: Final[tuple[tuple[Metric, Total, tuple[str, ...]], ...]] = (
    (c.REPLICA_REQUESTS, Total.REQUESTS, ()),
    (c.REPLICA_ABORTED, Total.ABORTED, ()),
    (c.REPLICA_RETRACTED, Total.RETRACTED, ()),
    (c.REPLICA_PROMPT_TOKENS, Total.PROMPT_TOKENS, ()),
    (c.REPLICA_CACHED_TOKENS, Total.CACHED_TOKENS, ()),
    (c.REPLICA_GENERATION_TOKENS, Total.GENERATION_TOKENS, ()),
    (c.REPLICA_LIVE_TOKENS, Total.LIVE_PREFILL_TOKENS, ("prefill",)),
    (c.REPLICA_LIVE_TOKENS, Total.LIVE_CACHED_TOKENS, ("cached",)),
    (c.REPLICA_LIVE_TOKENS, Total.LIVE_DECODE_TOKENS, ("decode",)),
)
_LATENCIES: Final = {
    c.REPLICA_TTFT: Latency.TIME_TO_FIRST_TOKEN,
    c.REPLICA_ITL: Latency.INTER_TOKEN,
    c.REPLICA_LATENCY: Latency.END_TO_END,
    c.REPLICA_QUEUE_TIME: Latency.QUEUE_TIME,
}


def _pool(families: Families, pool: PoolStanding) -> None:
    add, label = families.add, pool.label
    add(c.POOL_INFO, 1, label, pool.title)
    for state in TrialState:
        add(c.POOL_TRIALS, pool.trials.get(state, 0), label, state)
    add(c.POOL_RETRIES, pool.retries, label)
    for run in pool.runs:
        add(c.RUN_POOL_INFO, 1, run, label)
    for run, match in sorted(pool.model_match.items()):
        add(c.POOL_MODEL_MATCH, match, label, run)
    for replica in pool.replicas:
        _replica(families, replica)


def _replica(families: Families, replica: ReplicaStanding) -> None:
    add, labels = families.add, (replica.pool, replica.label)
    info = replica.info
    if info != ReplicaInfo():
        sizes = ("" if size is None else str(size) for size in (info.tp, info.pp, info.dp))
        add(c.REPLICA_INFO, 1, *labels, info.version, info.served_model, *sizes)
    if replica.state is not None:
        add(c.REPLICA_UP, replica.state is ReplicaState.UP, *labels)
        for state in ReplicaState:
            add(c.REPLICA_STATE, replica.state is state, *labels, state)
        add(c.REPLICA_REQUESTS_KNOWN, replica.knows(Number.RUNNING, Number.QUEUED), *labels)
        add(c.REPLICA_KV_KNOWN, replica.knows(Number.KV_USED, Number.KV_CAPACITY), *labels)
    add(c.REPLICA_LAST_COMPLETE, replica.last_complete, *labels)
    for metric, number in _NUMBERS.items():
        for role, numbers in sorted(replica.numbers.items()):
            add(metric, numbers.get(number), *labels, role)
    for metric, total, kind in _TOTALS:
        for role, value in replica.totals.get(total, {}).items():
            add(metric, value, *labels, role, *kind)
    for metric, latency in _LATENCIES.items():
        for role, histogram in replica.latencies.get(latency, {}).items():
            bounds = map(floatToGoString, histogram.bounds)
            buckets = zip(bounds, histogram.counts, strict=True)
            families.add_histogram(metric, buckets, histogram.sum, *labels, role)


class _Fixed(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterable[Family]:
        return self._families


def _split(encoded: bytes) -> tuple[bytes, bytes]:
    """What describes a family, and its samples: only the description's lines begin with ``#``."""
    encoded = encoded.removesuffix(b"# EOF\n")
    start = 0
    while encoded.startswith(b"#", start):
        start = encoded.index(b"\n", start) + 1
    return encoded[:start], _WHOLE.sub(b"", encoded[start:])


class Page:
    """The page of one snapshot, in each format rendered once.

    All of it is taken over from the page before where nothing changed, and where something did,
    the tasks that did not.
    """

    def __init__(
        self, snapshot: Snapshot, *, tasks: bool = True, previous: Page | None = None
    ) -> None:
        self.snapshot = snapshot
        self._tasks = tasks
        self._lock = threading.Lock()
        self._rendered: dict[str, tuple[str, bytes, bytes]] = {}
        self._bodies: dict[str, bytes] = {}
        self._before = previous.tasks if previous is not None else {}
        self._task_parts: dict[str, TaskParts] = {}
        self._wanted = {TEXT}
        if previous is not None:
            self._wanted |= previous.formats
            if _same_but_for_time(previous.snapshot, snapshot):
                self._bodies, self._task_parts = previous.bodies, previous.tasks

    @property
    def formats(self) -> frozenset[str]:
        """The formats that it was rendered in so far."""
        return frozenset(self._rendered)

    @property
    def bodies(self) -> dict[str, bytes]:
        """The parts with runs, tasks and jobs, by format."""
        return self._bodies

    @property
    def tasks(self) -> dict[str, TaskParts]:
        """The encoded tasks, by format."""
        return self._task_parts

    def prepare(self) -> None:
        """Render what is going to be asked for: the formats that were asked for before."""
        for name in sorted(self._wanted):
            self._render(name)

    def render(self, accept: str) -> tuple[str, bytes, bytes]:
        """(content type, page, the same gzipped) in the format that ``accept`` asks for."""
        return self._render(negotiate(accept))

    def _render(self, name: str) -> tuple[str, bytes, bytes]:
        encoder, content_type = _FORMATS[name]
        with self._lock:
            page = self._rendered.get(name)
            if page is None:
                if name not in self._bodies:
                    self._bodies[name] = self._body(name, encoder)
                own = _Fixed(
                    [
                        *pace(self.snapshot),
                        *condition(self.snapshot),
                        *PROCESS_COLLECTOR.collect(),
                    ]
                )
                whole = self._bodies[name] + encoder(own)
                page = (content_type, whole, gzip.compress(whole, compresslevel=3, mtime=0))
                self._rendered[name] = page
        return page

    def _body(self, name: str, encoder: Encoder) -> bytes:
        """Runs, tasks and jobs, in the catalogue's order."""
        described: dict[str, bytes] = {}
        samples: dict[str, list[bytes]] = defaultdict(list)
        sources = [knowledge(self.snapshot).parts(encoder)]
        if self._tasks:
            sources += self._encoded_tasks(name, encoder)
        for parts in sources:
            for metric, (description, lines) in parts.items():
                described[metric] = description
                samples[metric].append(lines)
        return b"".join(
            described[metric] + b"".join(samples[metric])
            for metric in CATALOGUE
            if metric in described
        )

    def _encoded_tasks(self, name: str, encoder: Encoder) -> list[dict[str, tuple[bytes, bytes]]]:
        before, now = self._before.get(name, {}), self._task_parts.setdefault(name, {})
        for run in self.snapshot.runs:
            statistics = self.snapshot.statistics.get(run.label)
            for task in run.tasks:
                key, reference = (run.label, task.label), _of_reference(statistics, task)
                known = before.get(key)
                if known is None or known.task is not task or known.reference is not reference:
                    families = Families()
                    _task(families, run.label, task, reference)
                    known = TaskPart(task, reference, families.parts(encoder))
                now[key] = known
        return [part.families for part in now.values()]


def _same_but_for_time(before: Snapshot, now: Snapshot) -> bool:
    """Whether both know the same: statistics, which can break down, are in both or in neither."""
    return before.version == now.version and before.statistics.keys() == now.statistics.keys()


_WHOLE: Final = re.compile(rb"(?<=[0-9])\.0$", re.MULTILINE)
"""Counts are written as counts, ``315`` rather than ``315.0``, as most exporters do."""

TEXT: Final = "text"
OPENMETRICS: Final = "openmetrics"

_FORMATS: Final[Mapping[str, tuple[Encoder, str]]] = {
    TEXT: choose_encoder("text/plain"),
    OPENMETRICS: choose_encoder("application/openmetrics-text"),
}


def negotiate(accept: str) -> str:
    """TEXT, or OPENMETRICS where the Accept header prefers a version of it that is spoken here.

    The library's own choice minds no q-values and gives back whatever version it is sent.
    """
    best: dict[str, float] = {TEXT: 0.0, OPENMETRICS: 0.0}
    for offer in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in offer.split(";"))
        given = dict(p.split("=", 1) for p in parameters if "=" in p)
        try:
            quality = float(given.get("q", 1))
        except ValueError:
            continue
        spoken = given.get("version", "1.0.0").startswith("1.")
        if kind == "application/openmetrics-text" and spoken:
            best[OPENMETRICS] = max(best[OPENMETRICS], quality)
        elif kind in ("text/plain", "text/*", "*/*"):
            best[TEXT] = max(best[TEXT], quality)
    return OPENMETRICS if best[OPENMETRICS] > best[TEXT] else TEXT
