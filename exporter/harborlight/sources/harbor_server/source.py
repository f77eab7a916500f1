"""Asks every Harbor server on its own, so that none delays another, nor anything else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from harborlight.records import TrialRecord
from harborlight.sources.harbor_server.known import JobNews, KnownServer, News
from harborlight.sources.harbor_server.targets import HarborServerTarget
from harborlight.sources.observation import JobSighting, Observation, Problem

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 0.5
"""How long a look waits for servers, those that were prompt the last time."""

_GRACE_SECONDS: Final = 2.0
"""How much later than its deadline a request may end, and its answer be read: then it hangs where
no deadline reaches it, in the name of its host."""


class HarborServerSource:
    """The jobs of all Harbor servers.

    ``patience``: how many seconds a look waits at most; what comes later is the next look's (None:
    it waits for all that answer, in a single look). ``clock``: a monotonic one.
    """

    name = "harbor_server"

    def __init__(
        self,
        targets: Sequence[HarborServerTarget],
        *,
        patience: float | None = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.targets = tuple(targets)
        self._patience = patience
        self._clock = clock
        self._servers = [_Server(KnownServer(target, clock)) for target in targets]
        self._changed = threading.Condition()

    def look(self, now: float) -> Observation:
        """Start asking, wait a little, and hand over what is new of all that has come in."""
        with self._changed:
            failures = list(self._begin(now))
            self._wait()
            jobs: dict[str, JobSighting] = {}
            trials: list[TrialRecord] = []
            for server in self._servers:
                server.note_hanging(self._clock())
                server.tell(jobs, trials)
            failures += [server.failure for server in self._servers if server.failure is not None]
            present = frozenset(job_id for server in self._servers for job_id in server.jobs)
            return Observation(
                jobs=jobs,
                trials=tuple(trials),
                # One that did not answer yet may have any job that is known from before.
                present_jobs=present if all(s.answered for s in self._servers) else None,
                problems=tuple(problem for s in self._servers for problem in s.problems),
                failures=tuple(failures),
                source=self.name,
                unreachable=frozenset(s.known.origin for s in self._servers if s.failure),
            )

    def start_anew(self) -> None:
        """Forget what was handed over: the next look brings everything that is known."""
        with self._changed:
            for server in self._servers:
                server.told = {}

    def _begin(self, now: float) -> Iterator[Problem]:
        for server in self._servers:
            if server.asking:
                continue
            worker = threading.Thread(
                target=self._work,
                args=(server, now),
                name=f"harbor server {server.known.target.name}",
                daemon=True,
            )
            server.begin(self._clock())
            try:
                worker.start()
            except RuntimeError:
                server.asking = False
                yield Problem(server.known.subject, "no thread to ask it with")

    def _wait(self) -> None:
        """Until all have answered that are waited for, patience is at an end, or they hang."""
        end = None if self._patience is None else self._clock() + self._patience
        while True:
            now = self._clock()
            awaited = [
                server
                for server in self._servers
                if server.asking and not server.hangs(now) and (end is None or server.prompt)
            ]
            if not awaited or (end is not None and now >= end):
                break
            hanging = max(server.known.client.deadline for server in awaited) + _GRACE_SECONDS
            self._changed.wait(max(0.001, (hanging if end is None else min(end, hanging)) - now))

    def _work(self, server: _Server, now: float) -> None:
        known = server.known
        try:
            news = known.look(now)
        except Exception as error:  # noqa: BLE001 - a mistake of ours; it costs this server only
            # Its text may have what the server said.
            log.error(
                "server not read", extra={"subject": known.subject, "error": type(error).__name__}
            )
            news = News(failure=Problem(known.subject, "internal error"))
        with self._changed:
            took = self._clock() - server.began
            server.take(news, prompt=self._patience is None or took <= self._patience)
            self._changed.notify_all()


class _Server:
    """One server: what it said, how asking it goes, and what was handed on of it.

    ``began``: when it was asked, on the monotonic clock. ``prompt``: its last answers came in time.
    ``answered``: it was asked in full once.
    """

    def __init__(self, known: KnownServer) -> None:
        self.known = known
        self.asking = False
        self.began = 0.0
        self.prompt = True
        self.answered = False
        self.jobs: Mapping[str, JobNews] = {}
        self.problems: tuple[Problem, ...] = ()
        self.failure: Problem | None = None
        self.told: dict[str, JobNews] = {}
        self._told_lost = False

    def begin(self, now: float) -> None:
        self.asking, self.began = True, now
        self.known.client.deadline = now + self.known.target.timeout

    def hangs(self, now: float) -> bool:
        return self.asking and now > self.known.client.deadline + _GRACE_SECONDS

    def note_hanging(self, now: float) -> None:
        if self.hangs(now):
            reason = f"timed out; expected an answer within {self.known.target.timeout:g} s"
            self.failure = Problem(self.known.subject, reason)

    def take(self, news: News, *, prompt: bool) -> None:
        """What came of asking. Of a look that failed at once the jobs stay as they were."""
        self.asking, self.prompt = False, prompt
        self.jobs = news.jobs or (self.jobs if news.failure else {})
        self.problems, self.failure = news.problems, news.failure
        self.answered |= news.failure is None

    def tell(self, jobs: dict[str, JobSighting], trials: list[TrialRecord]) -> None:
        """Add what is new since the last time.

        After the server was lost that it works on its jobs is said anew.
        """
        lost = self.failure is not None
        for job_id, news in self.jobs.items():
            before = self.told.get(job_id)
            if before is None or before.sighting != news.sighting or self._told_lost > lost:
                jobs[job_id] = news.sighting
            if before is not news:
                known = before.trials if before is not None else {}
                trials += [
                    record for key, record in news.trials.items() if known.get(key) != record
                ]
        self.told, self._told_lost = dict(self.jobs), lost
