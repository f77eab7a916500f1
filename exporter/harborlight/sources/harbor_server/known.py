"""What is known of one Harbor server, and how it is brought up to date."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec.structs import replace

from harborlight.records import TrialRecord
from harborlight.sources.fetch import server_key
from harborlight.sources.harbor_files import FileError, JobConfig, read_job_config
from harborlight.sources.harbor_server.answers import JobSummary, Rollout
from harborlight.sources.harbor_server.client import AskError, Client
from harborlight.sources.harbor_server.targets import HarborServerTarget
from harborlight.sources.harbor_server.translate import (
    ended_trial,
    given_up_retries,
    job_record,
    open_trial,
    planned,
    standing_again,
    waits_for_retry,
)
from harborlight.sources.observation import JobSighting, Problem

OVERLAP_SECONDS: Final = 60.0
"""How much of what changed before the last look is read again: a server's clock may be set back."""

ASK_AGAIN_SECONDS: Final = 60.0
"""How long what could not be had of a single job or rollout is left alone."""

MAX_TRIES: Final = 5
"""After so many a rollout's result is done without: the list has its verdict and its error."""


@dataclass(frozen=True, slots=True)
class JobNews:
    """A job and its executions (by rollout id) as they stand."""

    sighting: JobSighting
    trials: Mapping[str, TrialRecord]


@dataclass(frozen=True, slots=True)
class News:
    """All that is known of a server after a look. ``failure``: why the look was not a whole one."""

    jobs: Mapping[str, JobNews] = MappingProxyType({})
    problems: tuple[Problem, ...] = ()
    failure: Problem | None = None


class _Refused(NamedTuple):
    """A job or rollout that could not be had: when to ask again (monotonic), and why."""

    until: float
    tries: int
    problem: Problem


class _Job:
    """One job with its rollouts and what was read of them.

    ``due``: rollouts that are over and whose result is still to be read. ``unread``: why a result
    cannot be read, by rollout. ``shown``: the records of the last news. ``whole``: all rollouts
    were listed once; ``lost``: how many the server counts beyond those that it lists.
    """

    def __init__(self) -> None:
        self.summary: JobSummary | None = None
        self.config: JobConfig | None = None
        self.rollouts: dict[str, Rollout] = {}
        self.due: dict[str, Rollout] = {}
        self.ended: dict[str, TrialRecord] = {}
        self.unread: dict[str, str] = {}
        self.shown: Mapping[str, TrialRecord] = {}
        self.whole = False
        self.lost = 0
        self.changed = True
        self.news: JobNews | None = None

    @property
    def missing(self) -> int:
        """How many rollouts the server counts, as such or as ended ones, beyond those known."""
        if self.summary is None:
            return 0
        ended = sum(1 for rollout in self.rollouts.values() if rollout.terminal)
        counted = self.summary
        return max(0, counted.n_total - len(self.rollouts), counted.n_terminal - ended)

    def take(self, rollout: Rollout) -> None:
        old = self.rollouts.get(rollout.id)
        if old is not None and old.terminal:
            return  # nothing comes after that
        if old is not None and old.at_work and rollout.at_work and not rollout.phase:
            rollout = replace(rollout, phase=old.phase)  # it is between two phases
        if rollout != old:
            self.rollouts[rollout.id] = rollout
            self.changed = True
            if rollout.ran:
                self.due[rollout.id] = rollout


class KnownServer:
    """One server's jobs and rollouts, as far as they were told.

    ``look`` is for one thread at a time. ``clock``: a monotonic one.
    """

    def __init__(
        self, target: HarborServerTarget, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.target = target
        self.origin = f"server {server_key(target.url)}"
        self.subject = f"harbor server {target.name}"
        self.client = Client(target, clock)
        self._clock = clock
        self._jobs: dict[str, _Job] = {}
        self._changed_until: float | None = None
        self._refused: dict[str, _Refused] = {}
        self._bad_entries: dict[str, Sequence[str]] = {}

    def look(self, now: float) -> News:
        """Ask for what is new. ``now``: seconds since the epoch.

        What was learned before a request failed counts, and the next look goes on from there.
        """
        started = self._clock()
        failure = None
        try:
            self._ask()
        except AskError as error:
            failure = Problem(self.subject, str(error))
        at = now + self._clock() - started
        return News(
            jobs={
                job_id: self._news_of(job, job.summary, at)
                for job_id, job in self._jobs.items()
                if job.summary is not None
                and job.whole
                and (job.config is not None or job_id in self._refused)
            },
            problems=tuple(self._problems()),
            failure=failure,
        )

    # Asking.

    def _ask(self) -> None:
        # Jobs first: what they count now is in the lists that are asked for after.
        self._list_jobs()
        before = self._changed_until
        seen = self._list_at_work() | self._walk(before)
        self._ask_for_those_gone(seen)
        if before is not None and any(job.missing > job.lost for job in self._jobs.values()):
            self._walk(None)
        for job in self._jobs.values():
            job.lost = job.missing
            job.whole = True
        self._read_configs()
        self._read_results()

    def _list_jobs(self) -> None:
        summaries: dict[str, JobSummary] = {}
        bad: list[str] = []
        for entries in self.client.jobs():
            bad += entries.bad
            summaries.update((job.id, job) for job in entries.good)
        self._bad_entries["/jobs"] = bad
        # What is listed no more is another data directory's; unless it could not be read.
        for job_id in [] if bad else [j for j, job in self._jobs.items() if job.summary]:
            if job_id not in summaries:
                for asked in (job_id, *self._jobs.pop(job_id).rollouts):
                    self._refused.pop(asked, None)
        for job_id, summary in summaries.items():
            job = self._jobs.setdefault(job_id, _Job())
            if job.summary != summary:
                job.summary, job.changed = summary, True

    def _list_at_work(self) -> set[str]:
        seen: set[str] = set()
        bad: list[str] = []
        for entries in self.client.at_work():
            bad += entries.bad
            seen.update(map(self._take, entries.good))
        self._bad_entries["/rollouts at work"] = bad
        return seen

    def _walk(self, since: float | None) -> set[str]:
        """Rollouts by their last change, newest first, back to ``since`` (None: all of them)."""
        seen: set[str] = set()
        bad: list[str] = []
        newest = since or 0.0
        for entries in self.client.changed():
            bad += entries.bad
            seen.update(map(self._take, entries.good))
            times = [rollout.updated_at for rollout in entries.good]
            newest = max([newest, *times])
            if since is not None and times and min(times) < since - OVERLAP_SECONDS:
                break
        # What changed meanwhile is newer than all of it: the next walk finds it.
        self._changed_until = newest
        if since is None or bad:
            self._bad_entries["/rollouts"] = bad
        return seen

    def _take(self, rollout: Rollout) -> str:
        self._jobs.setdefault(rollout.job_id, _Job()).take(rollout)
        return rollout.id

    def _ask_for_those_gone(self, seen: set[str]) -> None:
        """Rollouts that ran at the last look and are in no list of this one."""
        for job in list(self._jobs.values()):
            for rollout in [r for r in job.rollouts.values() if r.at_work and r.id not in seen]:
                self._ask_one(job, "rollout", rollout.id, self._ask_again)

    def _ask_again(self, job: _Job, rollout_id: str) -> None:
        job.take(self.client.rollout(rollout_id)[0])

    def _read_configs(self) -> None:
        for job_id, job in self._jobs.items():
            if job.config is None and job.summary is not None:
                self._ask_one(job, "job", job_id, self._read_config)

    def _read_config(self, job: _Job, job_id: str) -> None:
        data = self.client.job_config(job_id)
        try:
            job.config = read_job_config(data)
        except FileError as error:
            raise AskError(f"GET /jobs/ID: config: {error}", of_this=True) from None
        job.changed = True

    def _read_results(self) -> None:
        for job in self._jobs.values():
            for rollout in list(job.due.values()):
                self._ask_one(job, "rollout", rollout.id, self._read_result)
                refused = self._refused.get(rollout.id)
                if refused is not None and refused.tries >= MAX_TRIES:
                    del self._refused[rollout.id]
                    job.unread[rollout.id] = refused.problem.reason
                    self._end(job, rollout, None)

    def _read_result(self, job: _Job, rollout_id: str) -> None:
        _, result = self.client.rollout(rollout_id)
        try:
            self._end(job, job.rollouts[rollout_id], result)
        except FileError as error:
            reason = f"GET /rollouts/ID: result: {error}"
            raise AskError(reason, of_this=True, for_good=True) from None

    def _end(self, job: _Job, rollout: Rollout, result: bytes | None) -> None:
        job.ended[rollout.id] = ended_trial(rollout, result, job.config or JobConfig())
        del job.due[rollout.id]
        job.changed = True

    def _ask_one(self, job: _Job, kind: str, asked: str, ask: Callable[[_Job, str], None]) -> None:
        """Ask for a single job or rollout, unless that failed just now.

        What is wrong with it alone costs nothing else; of a server that hangs nothing more is asked
        at this look.
        """
        before = self._refused.get(asked)
        if before is not None and self._clock() < before.until:
            return
        try:
            ask(job, asked)
        except AskError as error:
            if not error.of_this:
                raise
            tries = MAX_TRIES if error.for_good else (before.tries if before else 0) + 1
            problem = Problem(self._about(kind, asked), str(error))
            self._refused[asked] = _Refused(self._clock() + ASK_AGAIN_SECONDS, tries, problem)
            job.changed = True
            if error.hung:
                raise
        else:
            self._refused.pop(asked, None)

    # What came of it.

    def _news_of(self, job: _Job, summary: JobSummary, at: float) -> JobNews:
        if job.news is not None and not job.changed:
            return job.news
        config = job.config or JobConfig()
        settled = not job.due and all(rollout.terminal for rollout in job.rollouts.values())
        record = job_record(summary, planned(job.rollouts, config), config, settled=settled)
        sighting = JobSighting(
            record=record,
            # It takes what is over to an end, too.
            held=True if not (summary.terminal and settled) else None,
            unreadable_files=len(job.unread) + sum(1 for one in job.due if one in self._refused),
            last_change=summary.updated_at,
            origin=self.origin,
        )
        job.shown = MappingProxyType(dict(_trials(job, config, at)))
        job.news, job.changed = JobNews(sighting, job.shown), False
        return job.news

    def _problems(self) -> Iterator[Problem]:
        for path, bad in self._bad_entries.items():
            if bad:
                reason = f"{len(bad)} entries left out, the first one: {bad[0]}"
                yield Problem(f"{self.subject}{path}", reason)
        for refused in self._refused.values():
            yield refused.problem
        for job in self._jobs.values():
            for rollout_id, reason in job.unread.items():
                yield Problem(self._about("rollout", rollout_id), reason)

    def _about(self, kind: str, asked: str) -> str:
        return f"{self.subject}/{kind} {asked}"


def _trials(job: _Job, config: JobConfig, at: float) -> Iterator[tuple[str, TrialRecord]]:
    """The records of all rollouts that were begun or wait for their retry, by id."""
    again = given_up_retries(job.rollouts)
    for rollout in job.rollouts.values():
        shown = job.shown.get(rollout.id)
        if rollout.id in job.ended:
            yield rollout.id, standing_again(job.ended[rollout.id], again.get(rollout.id))
        elif rollout.at_work or waits_for_retry(rollout, job.rollouts):
            record = open_trial(rollout, job.rollouts, config, at)
            same = shown is not None and replace(record, mtime_ns=shown.mtime_ns) == shown
            yield rollout.id, shown if shown is not None and same else record
        elif rollout.ran and shown is not None:
            yield rollout.id, shown  # it is open until its result was read
