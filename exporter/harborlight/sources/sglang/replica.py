"""A replica as a whole, from what its servers answered.

The first server takes the requests; the others are the further nodes of the same replica, which
report their own ranks and nothing of requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
    ROLES,
    InfoReading,
    LoadRow,
    LoadsReading,
    model_label,
)
from harborlight.sources.sglang.page import PageReading, Unit

PAGE_PATIENCE: Final = 90.0
"""Seconds that a page may stand still: an idle scheduler writes to it every 30 s."""

_LOAD_FIELDS: Final[Mapping[Number, str]] = {
    Number.RUNNING: "running",
    Number.QUEUED: "queued",
    Number.KV_USED: "used",
    Number.KV_CAPACITY: "capacity",
    Number.MAX_RUNNING: "max_running",
}
_COUNTS_ALL_SINCE: Final = [0, 5, 7]
_FROM_ZERO: Final = (
    Total.REQUESTS,
    Total.ABORTED,
    Total.RETRACTED,
    Total.PROMPT_TOKENS,
    Total.CACHED_TOKENS,
    Total.GENERATION_TOKENS,
)
_WORK: Final = (Number.RUNNING, Number.QUEUED, Number.KV_USED)
_RANKS_MISSING: Final = "some data-parallel ranks are missing"

Numbers = dict[str, dict[Number, float]]


@dataclass(frozen=True, slots=True)
class ServerAnswers:
    """What one server said. ``server``: its opaque key. ``loads`` and ``info``: None: not asked."""

    server: str
    page: PageReading | Failure
    loads: LoadsReading | Failure | None = None
    info: InfoReading | None = None

    @property
    def reading(self) -> PageReading | None:
        return self.page if isinstance(self.page, PageReading) else None

    @property
    def rows(self) -> tuple[LoadRow, ...]:
        """The rows of ``/v1/loads``; none where it did not answer."""
        return self.loads.rows if isinstance(self.loads, LoadsReading) else ()


def sighting(
    pool: str,
    replica: str,
    at: float,
    servers: Sequence[ServerAnswers],
    *,
    data_parallel: int | None = None,
) -> ReplicaSighting:
    """One look at a replica, ``at`` seconds since the epoch.

    ``data_parallel``: the number of data-parallel ranks by configuration, if given.
    """
    leader = servers[0]
    pages = [server.reading for server in servers if server.reading is not None]
    state, reason = _condition(servers)
    if state in (ReplicaState.UNREACHABLE, ReplicaState.UNAUTHORIZED):
        return ReplicaSighting(pool, replica, at, state, reason)
    size = _dp_size(leader, data_parallel)
    whole = _followers_trouble(servers) is None
    numbers, lacking = _numbers(leader, pages, size, whole=whole)
    if state is ReplicaState.UP and lacking:
        state, reason = ReplicaState.INCOMPLETE, lacking
    return ReplicaSighting(
        pool=pool,
        replica=replica,
        at=at,
        state=state,
        reason=reason,
        complete=leader.reading is not None and whole,
        info=_info(leader, pages, size),
        numbers=numbers,
        totals=_together([_from_zero(leader), *(page.totals for page in pages)]),
        latencies=_together([page.latencies for page in pages]),
        pulses=_pulses(leader, pages),
    )


# The state.


def _condition(servers: Sequence[ServerAnswers]) -> tuple[ReplicaState, str]:
    leader, *others = servers
    if isinstance(leader.page, PageReading):
        trouble = _followers_trouble(servers)
        if trouble is None:
            return ReplicaState.UP, ""
        return ReplicaState.INCOMPLETE, f"another of its servers: {trouble.reason}"
    failure = leader.page
    match failure.trouble:
        case Trouble.UNAUTHORIZED:
            return ReplicaState.UNAUTHORIZED, failure.reason
        case Trouble.NOT_FOUND:
            return ReplicaState.NO_METRICS, "no /metrics: SGLang runs without --enable-metrics"
        case Trouble.WRONG_KIND:
            return ReplicaState.NO_METRICS, failure.reason
        case _ if any(server.reading is not None for server in others):
            return ReplicaState.INCOMPLETE, f"its first server: {failure.reason}"
        case _:
            return ReplicaState.UNREACHABLE, failure.reason


def _followers_trouble(servers: Sequence[ServerAnswers]) -> Failure | None:
    """What is the matter with a further node. That it has no metrics is normal in old releases."""
    for server in servers[1:]:
        if isinstance(server.page, Failure) and server.page.trouble is not Trouble.NOT_FOUND:
            return server.page
    return None


# The numbers.


def _dp_size(leader: ServerAnswers, configured: int | None) -> int | None:
    """How many data-parallel ranks there are, by whoever knows; not all may have rows yet."""
    rows = max((int(row.dp_rank) + 1 for row in leader.rows), default=0)
    return max(_told_size(leader) or 0, rows) or configured


def _told_size(leader: ServerAnswers) -> int | None:
    return leader.info.dp if leader.info is not None else None


def _size_on(pages: Sequence[PageReading]) -> int:
    """One more than the highest data-parallel rank on the pages; 0 where they name none."""
    ranks = {rank for page in pages for values in page.gauges.values() for _, rank in values}
    return max((int(rank) + 1 for rank in ranks if rank), default=0)


def _numbers(
    leader: ServerAnswers, pages: Sequence[PageReading], size: int | None, *, whole: bool
) -> tuple[Numbers, str]:
    """The replica's numbers by role, and what keeps some of them from being known.

    ``whole``: no node's page is missing. ``/v1/loads`` goes before the page, which lags behind by
    up to 40 decoding steps.
    """
    info = leader.info
    stages = info.pp if info is not None else None
    numbers, lacking = _by_page(pages, size, stages, whole=whole)
    # A rank that has not reported yet has no row. The page shows that there is one; but also ranks
    # of an earlier life, so that the server's own word goes before.
    expected = size if _told_size(leader) else max(size or 0, _size_on(pages))
    if leader.rows and len(leader.rows) == expected:
        by_page, numbers, lacking = numbers, _by_loads(leader.rows), ""
        for role, known in numbers.items():
            numbers[role] = {**by_page.get(role, {}), **known}
    elif leader.rows and not any(Number.RUNNING in known for known in numbers.values()):
        lacking = lacking or _RANKS_MISSING
    if info is not None and size is not None and len(numbers) == 1:
        (known,) = numbers.values()
        for number, each in (
            (Number.KV_CAPACITY, info.capacity),
            (Number.MAX_RUNNING, info.max_running),
        ):
            if each is not None:
                known.setdefault(number, each * size)
    return numbers, lacking


def _by_loads(rows: Sequence[LoadRow]) -> Numbers:
    """Sums over the ranks; a number that one rank does not tell is not known."""
    numbers: Numbers = {}
    for role in {row.role for row in rows}:
        known = numbers[role] = {}
        for number, name in _LOAD_FIELDS.items():
            values = [getattr(row, name) for row in rows if row.role == role]
            if None not in values:
                known[number] = sum(values)
    return numbers


def _by_page(
    pages: Sequence[PageReading], size: int | None, stages: int | None, *, whole: bool
) -> tuple[Numbers, str]:
    """``stages``: how many the pipeline has, if known."""
    if not any(page.gauges for page in pages):
        return {}, ""
    unranked = [page for page in pages if page.gauges and not page.ranked]
    if unranked:
        # Before 0.5.0 one of several ranks overwrites the others, or the dead are counted in.
        if size is None:
            return {}, "data parallelism not known"
        if size > 1:
            return {}, "this release does not tell its data-parallel ranks apart"
        if (stages or 1) > 1 and any(page.summed for page in unranked):
            return {}, "this release does not tell its pipeline stages apart"
    units: dict[Number, dict[Unit, float]] = {}
    for page in pages:
        for number, values in page.gauges.items():
            for unit, value in values.items():
                known = units.setdefault(number, {})
                known[unit] = max(known.get(unit, value), value)
    numbers: Numbers = {}
    lacking = ""
    for number, values in units.items():
        for role in {role for role, _ in values}:
            ranks = {rank: value for (of, rank), value in values.items() if of == role}
            if _all_there(set(ranks), size, whole=whole):
                numbers.setdefault(role, {})[number] = sum(ranks.values())
            else:
                lacking = _RANKS_MISSING
    return numbers, lacking


def _all_there(ranks: set[str], size: int | None, *, whole: bool) -> bool:
    """Whether these are all of a role's data-parallel ranks, as far as can be told."""
    if "" in ranks:
        return len(ranks) == 1 and (size or 1) == 1
    if size is None and not whole:
        return False  # the missing node may have more of them
    expected = max(size or 0, max(int(rank) for rank in ranks) + 1)
    return len(ranks) == expected


# The rest.


def _from_zero(leader: ServerAnswers) -> dict[Total, dict[Series, float]]:
    """Zeros for what the leader has not counted yet: its counters appear with their first event.

    Only for releases that have them all; in others what is absent may be what they do not count.
    """
    if leader.reading is None or not _counts_all(leader):
        return {}
    roles = {role for values in leader.reading.gauges.values() for role, _ in values}
    return {
        total: {Series(leader.server, role, "", ""): 0.0 for role in roles or {ROLES[0]}}
        for total in _FROM_ZERO
        if total not in leader.reading.totals
    }


def _counts_all(leader: ServerAnswers) -> bool:
    version = _info(leader, (), None).version
    numbers = [int(part) for part in re.findall(r"[0-9]+", version)[:3]]
    return numbers >= _COUNTS_ALL_SINCE


def _together[K, V](parts: Sequence[Mapping[K, Mapping[Series, V]]]) -> dict[K, dict[Series, V]]:
    """Series of several servers; their keys differ by the server."""
    together: dict[K, dict[Series, V]] = {}
    for part in parts:
        for key, series in part.items():
            together.setdefault(key, {}).update(series)
    return together


def _pulses(leader: ServerAnswers, pages: Sequence[PageReading]) -> dict[str, Pulse]:
    """The best signs of life there are, each a scheduler's."""
    timed = [row for row in leader.rows if row.timestamp is not None]
    if timed:
        return {f"loads/{row.dp_rank}": Pulse(row.timestamp, age=row.age) for row in timed}
    # A rank that logs nothing has these counters as well, and they stay at 0.
    alive: dict[str, float] = {}
    for page in pages:
        for series, value in page.liveness.items():
            key = f"scheduler/{series.role}/{series.dp_rank}"
            alive[key] = max(value, alive.get(key, 0.0))
    if alive:
        return {key: Pulse(value, PAGE_PATIENCE) for key, value in alive.items()}
    hung = isinstance(leader.loads, Failure) and leader.loads.timed_out
    pulses: dict[str, Pulse] = {}
    for place, page in enumerate(pages):
        for unit in page.gauges.get(Number.RUNNING, {}):
            work = tuple(page.gauges.get(number, {}).get(unit) for number in _WORK)
            busy = any(work[:2]) and not page.summed
            if busy or hung:
                done = tuple(
                    (total, series, value)
                    for total, values in sorted(page.totals.items())
                    for series, value in sorted(values.items())
                    if series.ranks and (series.role, series.dp_rank) == unit
                )
                pulses[f"page/{place}/{'/'.join(unit)}"] = Pulse((work, done), PAGE_PATIENCE)
    return pulses


def _info(leader: ServerAnswers, pages: Sequence[PageReading], size: int | None) -> ReplicaInfo:
    info = leader.info or InfoReading()
    version = leader.loads.version if isinstance(leader.loads, LoadsReading) else ""
    models = sorted({name for page in pages for name in page.models})
    by_page = _size_on(pages) or (1 if any(page.ranked for page in pages) else 0)
    return ReplicaInfo(
        version=version or info.version,
        served_model=model_label(models) if models else info.served_model,
        tp=info.tp or max((page.tp for page in pages if page.tp), default=None),
        pp=info.pp or max((page.pp for page in pages if page.pp), default=None),
        dp=(size if _told_size(leader) else max(size or 0, by_page)) or None,
    )
