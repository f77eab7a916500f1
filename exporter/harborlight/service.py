"""The loop: look at the sources, keep what is new, put a page together."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import sqlalchemy.exc

from harborlight.ledger.book import Ledger, Rules
from harborlight.ledger.store import LedgerError
from harborlight.logs import OnceLogger
from harborlight.readings import ReplicaState
from harborlight.snapshot import CollectorSnapshot, Snapshot, of_ledger, with_statistics
from harborlight.sources.observation import Observation
from harborlight.statistics.runs import Statistics
from harborlight.views.metrics import Page

log = logging.getLogger(__name__)

_NOTHING = -1
"""The version of a snapshot that stands in before the ledger's first commit."""


class Source(Protocol):
    """Something that is looked at. ``look`` never raises for what it finds."""

    name: str

    def look(self, now: float) -> Observation: ...


@dataclass(frozen=True, slots=True)
class Reload:
    """A configuration to take over: rules, sources and statistics that go with it, interval."""

    rules: Rules
    sources: tuple[Source, ...]
    statistics: Statistics
    interval: float


class Service:
    """Refreshes a snapshot from sources and ledger; one thread refreshes, any number read.

    ``statistics`` has the references. ``interval``: seconds between refreshes. ``tasks``: whether
    pages have the per-task families. ``clock``: seconds since the epoch.
    """

    def __init__(
        self,
        ledger: Ledger,
        sources: Sequence[Source],
        *,
        statistics: Statistics | None = None,
        interval: float = 5.0,
        tasks: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ledger = ledger
        self._interval = interval
        self._sources = tuple(sources)
        self._statistics = statistics or Statistics()
        self._tasks = tasks
        self._clock = clock
        self._page: Page | None = None
        self._collectors: dict[str, CollectorSnapshot] = {}
        self._once = OnceLogger(log)
        self._wake = threading.Event()
        self._pending: Reload | None = None
        self._reload_success = True
        self._reload_timestamp = clock()
        # What an earlier process committed can be shown even if this one cannot write.
        self._loaded = replace(of_ledger(ledger, 0.0), version=_NOTHING)

    @property
    def page(self) -> Page | None:
        """The newest page; None before the first refresh."""
        return self._page

    @property
    def ready(self) -> bool:
        """Whether a page shows what the ledger holds: not before its first commit."""
        return self._page is not None and self._page.snapshot.version != _NOTHING

    @property
    def snapshot(self) -> Snapshot | None:
        return self._page.snapshot if self._page else None

    def refresh(self) -> Page:
        """One round. A broken source costs its own news, a failed write the whole round's."""
        self._take_over()
        for source in self._sources:
            self._look(source)
        committed = self._collect("ledger", self._ledger.commit)
        page = self._put_together(fresh=committed)
        page.prepare()
        self._tell(page.snapshot)
        self._page = page
        return page

    def _tell(self, snapshot: Snapshot) -> None:
        """Log what there is to see as it changes, replicas that are not up, runs without a job."""
        counts = {"jobs": len(snapshot.jobs), "runs": len(snapshot.runs)}
        if snapshot.pools:
            counts["replicas"] = sum(len(pool.replicas) for pool in snapshot.pools)
        self._once.info("watching", "jobs", **counts)
        idle = [run.label for run in snapshot.runs if not run.jobs]
        for label in idle:
            self._once.warning("no job belongs to the run", label)
        self._once.forget_others("runs", [("no job belongs to the run", label) for label in idle])
        strange = [f"{run.label}: {task}" for run in snapshot.runs for task in run.unknown_tasks]
        for name in strange:
            self._once.warning("no job has the task", name)
        self._once.forget_others("tasks", [("no job has the task", name) for name in strange])
        replicas = [replica for pool in snapshot.pools for replica in pool.replicas]
        for replica in replicas:
            if replica.state is not None:
                self._once.log(
                    logging.INFO if replica.state is ReplicaState.UP else logging.WARNING,
                    "replica state",
                    f"{replica.pool}/{replica.label}",
                    state=replica.state.value,
                    **({"reason": replica.reason} if replica.reason else {}),
                )
        self._once.forget_others(
            "replicas", [("replica state", f"{r.pool}/{r.label}") for r in replicas]
        )

    def run(self, stop: threading.Event) -> None:
        """Refresh every ``interval`` seconds, or at once when woken, until ``stop`` is set."""
        while not stop.is_set():
            started = time.monotonic()
            try:
                self.refresh()
            except Exception:
                # Whatever it is, the exporter goes on serving what it has.
                log.exception("refresh failed")
            self._wake.wait(max(0.0, self._interval - (time.monotonic() - started)))
            self._wake.clear()

    def wake(self) -> None:
        """End the wait for the next refresh."""
        self._wake.set()

    def reload(self, load: Callable[[], Reload]) -> None:
        """Take over a new configuration with the next refresh.

        What ``load`` raises is passed on; the configuration before goes on and a metric says so.
        """
        try:
            self._pending = load()
            self._reload_success = True
        except Exception:
            self._reload_success = False
            raise
        finally:
            self.wake()

    def _take_over(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            self._ledger.configure(pending.rules)
            self._sources = pending.sources
            self._statistics = pending.statistics
            self._interval = pending.interval
            self._reload_timestamp = self._clock()
            log.info("configuration reloaded")

    def _look(self, source: Source) -> None:
        def look() -> bool:
            observation = source.look(self._clock())
            self._ledger.take(observation)
            matters = [("unreadable file", problem) for problem in observation.problems]
            matters += [("cannot look", problem) for problem in observation.failures]
            for event, problem in matters:
                self._once.warning(event, problem.subject, reason=problem.reason)
            over = self._once.forget_others(source.name, [(e, p.subject) for e, p in matters])
            for event, subject in sorted(over):
                if event == "cannot look":
                    log.info("can look again", extra={"subject": subject})
            return not observation.failures

        self._collect(source.name, look)

    def _collect(self, name: str, work: Callable[[], bool | None]) -> bool:
        """Do a collector's work, time it, and turn whatever it raises into its failure."""
        started = time.monotonic()
        last = self._collectors.get(name)
        try:
            success = work() is not False
        except (sqlalchemy.exc.SQLAlchemyError, LedgerError) as error:
            self._once.error("collector failed", name, error=_reason(error))
            success = False
        except Exception:
            log.exception("collector failed", extra={"collector": name})
            success = False
        self._once.forget_others(
            f"collector {name}", [] if success else [("collector failed", name)]
        )
        self._collectors[name] = CollectorSnapshot(
            name=name,
            success=success,
            duration_seconds=time.monotonic() - started,
            last_success=self._clock() if success else last.last_success if last else None,
        )
        return success

    def _put_together(self, *, fresh: bool) -> Page:
        """The next page; without a commit the one before, with the failure shown on it."""
        last = self._page
        if fresh:
            snapshot = self._with_statistics(of_ledger(self._ledger, self._clock()))
        else:
            snapshot = last.snapshot if last else self._loaded
        snapshot = replace(
            snapshot,
            collectors=tuple(self._collectors[name] for name in sorted(self._collectors)),
            config_reload_success=self._reload_success,
            config_reload_timestamp=self._reload_timestamp,
        )
        return Page(snapshot, tasks=self._tasks, previous=last)

    def _with_statistics(self, snapshot: Snapshot) -> Snapshot:
        def make() -> None:
            nonlocal snapshot
            snapshot = with_statistics(snapshot, self._statistics)

        self._collect("statistics", make)
        return snapshot


def _reason(error: Exception) -> str:
    """The error's own first line: of SQLAlchemy's, the database's (no statement, no values)."""
    if isinstance(error, sqlalchemy.exc.DBAPIError):
        return str(error.orig).partition("\n")[0]
    return str(error).partition("\n")[0]
