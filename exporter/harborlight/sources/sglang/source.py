"""Asks every replica on its own, so that none waits for another that hangs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from harborlight.readings import ReplicaSighting, ReplicaState
from harborlight.sources.failure import Failure, Trouble, Unreadable
from harborlight.sources.fetch import fetch_json, server_key
from harborlight.sources.observation import Observation, Problem
from harborlight.sources.sglang.answers import (
    InfoReading,
    LoadsReading,
    read_loads,
    read_server_info,
)
from harborlight.sources.sglang.fetch import fetch_page
from harborlight.sources.sglang.page import PageReader, PageReading
from harborlight.sources.sglang.replica import ServerAnswers, sighting
from harborlight.sources.sglang.targets import ReplicaTarget

log = logging.getLogger(__name__)

ASK_AGAIN_SECONDS: Final = 300.0
"""How long it is believed what a server said of itself, and that it has no such endpoint."""

MAX_PAUSE_SECONDS: Final = 30.0
"""The longest pause between two requests to a server that does not answer."""

_GRACE_SECONDS: Final = 0.2
"""How much later than its deadline a scrape may end: threads need a moment to be woken."""

_EARLY: Final = 0.1
"""How much of its interval too early a look may ask: no two looks start at exactly the same pace.

Without it, of two looks an interval apart the second asks nothing if it starts a moment early.
"""

_SHARE: Final = 3
"""What comes after the page may take a third of the timeout each."""

_INFO_PATHS: Final = ("/server_info", "/get_server_info")
"""The second one is the name up to 0.5.7."""

_TIMED_OUT: Final = Failure(Trouble.FAILED, "timed out", timed_out=True)


class SglangSource:
    """The replicas of all pools. ``clock``: a monotonic one."""

    name = "sglang"

    def __init__(
        self,
        targets: Sequence[ReplicaTarget],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.targets = tuple(targets)
        self._clock = clock
        self._replicas = [_Replica(target) for target in targets]
        self._changed = threading.Condition()

    def look(self, now: float) -> Observation:
        """Ask what is due, wait for those that answered in time before, hand over what is new.

        At most the longest timeout passes. Of a replica that did not answer in time before, the
        result comes with a later look.
        """
        started = self._clock()
        failures: tuple[Problem, ...] = ()
        with self._changed:
            try:
                # Whoever has waited longest goes first, should there not be threads for all.
                for replica in sorted(self._replicas, key=lambda replica: replica.due):
                    if replica.scrape is None and started >= replica.due:
                        self._begin(replica, now, started)
            except RuntimeError:
                failures = (Problem("replicas", "no thread to ask them with"),)
            awaited = [r for r in self._replicas if r.scrape is not None and r.prompt]
            self._changed.wait_for(
                lambda: all(replica.scrape is None for replica in awaited),
                timeout=max(
                    (r.scrape.deadline - started + _GRACE_SECONDS for r in awaited if r.scrape),
                    default=0.0,
                ),
            )
            for replica in self._replicas:
                self._give_up(replica)
            found = [r.result for r in self._replicas if r.result is not None]
            for replica in self._replicas:
                replica.result = None
        return Observation(replicas=tuple(found), failures=failures)

    def _begin(self, replica: _Replica, now: float, started: float) -> None:
        scrape = _Scrape(now, started, started + replica.target.timeout)
        worker = threading.Thread(
            target=self._work,
            args=(replica, scrape, replica.memory),
            name=f"sglang {replica.target.pool}/{replica.target.name}",
            daemon=True,
        )
        worker.start()  # where there is no thread to be had, the next look tries again
        replica.scrape = scrape

    def _work(self, replica: _Replica, scrape: _Scrape, memory: _Memory) -> None:
        target = replica.target
        try:
            servers, memory = _ask(replica, scrape.deadline, memory, self._clock)
            at = scrape.now + self._clock() - scrape.started
            found = sighting(
                target.pool, target.name, at, servers, data_parallel=target.data_parallel
            )
        except Exception as error:  # noqa: BLE001 - a mistake of ours; it costs this replica only
            _log_mistake(target, error)
            found = self._lost(replica, scrape, "internal error")
        ended = self._clock()
        with self._changed:
            if not scrape.given_up:
                replica.take(found, took=ended - scrape.started, ended=ended)
            if found.state is ReplicaState.UNREACHABLE:
                memory = _Memory()  # who answers next may be another server
            replica.memory = memory
            replica.scrape = None
            self._changed.notify_all()

    def _give_up(self, replica: _Replica) -> None:
        """A scrape that outlives its deadline is stuck where nothing can reach it."""
        scrape, ended = replica.scrape, self._clock()
        if scrape is None or scrape.given_up or ended < scrape.deadline + _GRACE_SECONDS:
            return
        scrape.given_up = True
        lost = self._lost(replica, scrape, "timed out")
        replica.take(lost, took=ended - scrape.started, ended=ended)

    def _lost(self, replica: _Replica, scrape: _Scrape, reason: str) -> ReplicaSighting:
        at = scrape.now + self._clock() - scrape.started
        target = replica.target
        return ReplicaSighting(target.pool, target.name, at, ReplicaState.UNREACHABLE, reason)


@dataclass(slots=True)
class _Scrape:
    """One under way. ``now``: its start on the wall clock, the others on the monotonic one."""

    now: float
    started: float
    deadline: float
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class _Memory:
    """What need not be asked every time, and until when (monotonic) it is not asked again."""

    info: InfoReading | None = None
    info_until: float = float("-inf")
    no_loads_until: float = float("-inf")


class _Replica:
    """One replica and how asking it goes.

    ``prompt``: its last answer came in time. ``followers``: who asked its further servers last.
    """

    def __init__(self, target: ReplicaTarget) -> None:
        self.target = target
        self.followers: dict[str, _Follower] = {}
        self.memory = _Memory()
        self.scrape: _Scrape | None = None
        self.result: ReplicaSighting | None = None
        self.due = float("-inf")
        self.prompt = True
        self._failures = 0

    def take(self, found: ReplicaSighting, *, took: float, ended: float) -> None:
        self.result = found
        # What hangs behind the page takes a share: it too may delay one look only.
        self.prompt = took < max(self.target.timeout / _SHARE, _GRACE_SECONDS)
        interval = self.target.scrape_interval
        if found.state is ReplicaState.UNREACHABLE:
            pause = interval * 2.0**self._failures
            self._failures = min(self._failures + 1, 30)
            self.due = ended + max(interval, min(pause, MAX_PAUSE_SECONDS))
        else:
            self._failures = 0
            self.due = ended - took + interval * (1 - _EARLY)


def _ask(
    replica: _Replica, deadline: float, memory: _Memory, clock: Callable[[], float]
) -> tuple[list[ServerAnswers], _Memory]:
    """What all servers of a replica say by the deadline; the first is asked for more."""
    target, followers = replica.target, replica.followers
    url, *others = target.urls
    for other in others:
        # No second thread for a server whose last one is stuck in the name of its host.
        if other not in followers or not followers[other].is_alive():
            follower = _Follower(target, other, deadline)
            follower.start()
            followers[other] = follower
    page = _page(target, url, deadline)
    loads: LoadsReading | Failure | None = None
    talks = isinstance(page, PageReading) or page.trouble in (
        Trouble.NOT_FOUND,
        Trouble.WRONG_KIND,
    )
    share = target.timeout / _SHARE
    if talks and clock() >= memory.no_loads_until:
        loads = _loads(target, url, min(deadline, clock() + share))
        if isinstance(loads, Failure) and loads.trouble is Trouble.NOT_FOUND:
            memory = replace(memory, no_loads_until=clock() + ASK_AGAIN_SECONDS)
    if talks and clock() >= memory.info_until:
        info = _info(target, url, min(deadline, clock() + share))
        if isinstance(info, InfoReading):
            memory = replace(memory, info=info)
        # A server that just starts is asked again soon, one whose scheduler hangs is left alone.
        soon = isinstance(info, Failure) and info.trouble is Trouble.FAILED and not info.timed_out
        pause = MAX_PAUSE_SECONDS if soon else ASK_AGAIN_SECONDS
        memory = replace(memory, info_until=clock() + pause)
    leader = ServerAnswers(server_key(url), page, loads, memory.info)
    return [leader, *(followers[other].answers(clock) for other in others)], memory


class _Follower(threading.Thread):
    """Asks a further server of a replica at the same time."""

    def __init__(self, target: ReplicaTarget, url: str, deadline: float) -> None:
        super().__init__(name=f"sglang {target.pool}/{target.name} +", daemon=True)
        self._target, self._url, self._deadline = target, url, deadline
        self._page: PageReading | Failure = _TIMED_OUT
        self._given_up = False

    def run(self) -> None:
        try:
            self._page = _page(self._target, self._url, self._deadline)
        except Exception as error:  # noqa: BLE001 - a mistake of ours; it costs this server only
            _log_mistake(self._target, error)
            self._page = Failure(Trouble.FAILED, "internal error")

    def answers(self, clock: Callable[[], float]) -> ServerAnswers:
        """What it said; that it timed out, once and for all, where it is still waiting."""
        if not self._given_up:
            self.join(max(0.0, self._deadline - clock()) + _GRACE_SECONDS / 2)
            self._given_up = self.is_alive()
        return ServerAnswers(server_key(self._url), _TIMED_OUT if self._given_up else self._page)


def _log_mistake(target: ReplicaTarget, error: Exception) -> None:
    # Its text may have what the server said.
    subject = f"{target.pool}/{target.name}"
    log.error("replica not read", extra={"subject": subject, "error": type(error).__name__})


def _page(target: ReplicaTarget, url: str, deadline: float) -> PageReading | Failure:
    reader = PageReader(server_key(url))
    try:
        fetch_page(target, _at(url, "/metrics"), reader.feed, deadline)
        return reader.close()
    except Unreadable as unreadable:
        return unreadable.failure


def _loads(target: ReplicaTarget, url: str, deadline: float) -> LoadsReading | Failure:
    try:
        return read_loads(fetch_json(target, _at(url, "/v1/loads"), deadline))
    except Unreadable as unreadable:
        return unreadable.failure


def _info(target: ReplicaTarget, url: str, deadline: float) -> InfoReading | Failure:
    failure = Failure(Trouble.NOT_FOUND, "HTTP 404")
    for path in _INFO_PATHS:
        try:
            return read_server_info(fetch_json(target, _at(url, path), deadline))
        except Unreadable as unreadable:
            failure = unreadable.failure
            if failure.trouble is not Trouble.NOT_FOUND:
                break
    return failure


def _at(url: str, path: str) -> str:
    return url.rstrip("/") + path
