"""Everything known at one moment: what views show, and nothing else is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from harborlight.ledger.book import Ledger
from harborlight.ledger.pools import PoolStanding
from harborlight.ledger.standing import JobStanding, RunStanding
from harborlight.statistics.runs import RunStatistics, Statistics


@dataclass(frozen=True, slots=True)
class CollectorSnapshot:
    """How the last look of one source (or the ledger's write) went."""

    name: str
    success: bool
    duration_seconds: float
    last_success: float | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All runs, jobs and pools at one moment, and how the exporter itself is doing.

    ``counters``: run label -> metric -> label values -> value. ``statistics``: by run label.
    ``version`` changes with whatever the ledger knows, so an equal one means equal runs, jobs and
    pools; of the statistics, where there are any, only the pace changes with time alone.
    """

    version: int
    at: float
    runs: tuple[RunStanding, ...] = ()
    jobs: tuple[JobStanding, ...] = ()
    pools: tuple[PoolStanding, ...] = ()
    counters: Mapping[str, Mapping[str, Mapping[tuple[str, ...], float]]] = MappingProxyType({})
    statistics: Mapping[str, RunStatistics] = MappingProxyType({})
    ledger_trials: int = 0
    collectors: tuple[CollectorSnapshot, ...] = ()
    config_reload_success: bool = True
    config_reload_timestamp: float | None = None


def of_ledger(ledger: Ledger, at: float) -> Snapshot:
    """What the ledger knows, as of ``at`` (seconds since the epoch).

    Without statistics and collectors.
    """
    return Snapshot(
        version=ledger.version,
        at=at,
        runs=ledger.runs(),
        jobs=ledger.jobs(),
        pools=ledger.pools(),
        counters=ledger.counters(),
        ledger_trials=ledger.n_trials,
    )


def with_statistics(snapshot: Snapshot, statistics: Statistics) -> Snapshot:
    """The snapshot with the statistics of its runs."""
    made = {run.label: statistics.of(run, snapshot.at) for run in snapshot.runs}
    return replace(snapshot, statistics=made)
