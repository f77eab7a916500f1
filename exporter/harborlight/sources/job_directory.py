"""Harbor job directories, read while Harbor writes them.

Queued trials have no directory, an open trial has ``config.json`` and no valid
``result.json``, a finished one has both. Only new and changed files are parsed; finished
trials are looked at again in turns, so that all of them are seen anew within
``sweep_seconds``.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from msgspec.structs import replace

from harborlight.records import JobRecord, PlannedTrial, TrialRecord
from harborlight.sources.harbor_files import (
    FileError,
    JobConfig,
    JobLock,
    JobResult,
    TrialLock,
    assemble_job,
    leave_reward_valid,
    read_job_config,
    read_job_lock,
    read_job_result,
    read_trial_config,
    read_trial_lock,
    read_trial_result,
    trial_name_stem,
)
from harborlight.sources.job_log import JobLog, LoggedRetry
from harborlight.sources.observation import JobSighting, Observation, Problem
from harborlight.sources.processes import LogHolders
from harborlight.sources.recorder_file import RecorderFile
from harborlight.sources.safe_read import MIB, ReadError, Signature, look, read_stable

TRIAL_FILE_LIMIT = 64 * MIB
JOB_FILE_LIMIT = 512 * MIB
SETTLE_SECONDS = 5.0
"""How long a file must stay bad, untouched, before it is called unreadable: Harbor rewrites its
files in place within milliseconds, attribute caches of network file systems lag by seconds."""

_FRESH_SECONDS = 2.0
"""A directory changed this recently is listed again: its time stamp is coarser than its changes."""

_TRIAL_NAME = re.compile(r".+__[0-9A-Za-z]{7}")
_JOB_FILES = ("config.json", "lock.json", "result.json")


_UNKNOWN_STATUS = os.stat_result([0] * 10)
"""In place of a status that could not be had."""


class _State(Enum):
    NEW = "new"
    OPEN = "open"
    DONE = "done"


class _File[T]:
    """One file, parsed again when it changed; the last good value is kept."""

    __slots__ = (
        "bad_since",
        "parse",
        "passing",
        "path",
        "problem",
        "settled",
        "signature",
        "value",
    )

    def __init__(self, path: str, parse: Callable[[bytes], T]) -> None:
        self.path = path
        self.parse = parse
        self.value: T | None = None
        self.signature: Signature | None = None
        self.problem: str | None = None
        self.bad_since = 0.0
        self.settled = False
        self.passing = False

    @property
    def good(self) -> bool:
        """Whether the file stands and could be read, as far as is settled."""
        return self.value is not None and self.signature is not None and not self.settled

    def refresh(self, now: float, limit: int, settle: float) -> bool:
        """Read the file if it changed; whether the value is a new one."""
        current = look(self.path)
        passing, self.passing = self.passing, False
        if current is None:
            self.problem, self.settled, self.signature = None, False, None
            return False
        if current == self.signature and (self.problem is None or self.settled) and not passing:
            return False
        before = self.signature if self.problem else None
        try:
            data, self.signature = read_stable(self.path, limit)
            self.value = self.parse(data)
        except FileNotFoundError:
            self.problem, self.settled, self.signature = None, False, None
            return False
        except (ReadError, FileError) as error:
            if self.problem is None or current != before:
                self.bad_since = now
            self.bad_since = min(self.bad_since, now)  # the clock may be set back
            self.problem, self.signature, self.passing = str(error), current, _passing(error)
            self.settled = _stood(now, self.bad_since, current, error) >= settle
            return False
        self.problem, self.settled = None, False
        return True


@dataclass(slots=True)
class _Trial:
    """One trial directory as it was last seen."""

    name: str
    job_id: str = ""
    state: _State = _State.NEW
    result: Signature | None = None
    config: Signature | None = None
    config_record: TrialRecord | None = None
    problem: str | None = None
    bad_since: float = 0.0
    settled: bool = False
    passing: bool = False
    """The problem may end without the file changing."""
    may_retry: bool = False
    """Harbor may remove it and begin anew under the same name, between two looks."""


@dataclass(slots=True)
class _JobDirectory:
    path: str
    name: str
    origin: str
    config: _File[JobConfig]
    lock: _File[JobLock]
    result: _File[JobResult]
    recorder: RecorderFile
    job_log: JobLog
    trials: dict[str, _Trial] = field(default_factory=dict)
    listed: Signature | None = None
    listed_at: float = 0.0
    was_listed: bool = False
    sweep: Iterator[str] = field(default_factory=lambda: iter(()))
    sweep_credit: float = 0.0
    job_id: str = ""
    digests: dict[tuple[str, str], str | None] = field(default_factory=dict)
    changed: bool = True
    log: Signature | None = None
    ids: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()

    @classmethod
    def at(cls, path: str, status: os.stat_result) -> _JobDirectory:
        return cls(
            path=path,
            name=_printable(os.path.basename(path)),
            origin=_origin(status),
            config=_File(f"{path}/config.json", read_job_config),
            lock=_File(f"{path}/lock.json", read_job_lock),
            result=_File(f"{path}/result.json", read_job_result),
            recorder=RecorderFile(path),
            job_log=JobLog(path),
        )

    def was_cleared(self) -> bool:
        """Whether the job that was read is no longer here, though a directory of its number is.

        File systems give a removed directory's number to the next one. A job's result stands
        from its first second on, resumes included; a new job writes its configuration first.
        """
        if self.result.value is None or not _is_gone(self.result.path):
            return False
        return _is_gone(self.config.path) or look(self.config.path) not in (
            None,
            self.config.signature,
        )

    @property
    def files(self) -> tuple[_File[JobConfig], _File[JobLock], _File[JobResult]]:
        return (self.config, self.lock, self.result)


class JobDirectorySource:
    """Reads the job directories below given places.

    ``places`` are jobs folders, single job directories, or globs of either. ``sweep_seconds``:
    within this time every finished trial's file is compared again (0: at every look). ``settle``:
    see SETTLE_SECONDS.
    """

    name = "harbor_jobs"

    def __init__(
        self,
        places: Iterable[str | Path],
        *,
        sweep_seconds: float = 60.0,
        settle_seconds: float = SETTLE_SECONDS,
        holders: LogHolders | None = None,
    ) -> None:
        self.places = tuple(dict.fromkeys(str(place) for place in places))
        self._sweep_seconds = sweep_seconds
        self._settle = settle_seconds
        self._holders = holders or LogHolders()
        self._directories: dict[str, _JobDirectory] = {}
        self._last_look: float | None = None
        self._sighted: dict[str, JobSighting] = {}
        self._copies: dict[str, tuple[str, ...]] = {}
        self._latest: dict[str, str] = {}
        self._matched: dict[str, tuple[str, ...]] = {}

    def look(self, now: float, *, progress: Callable[[int], None] | None = None) -> Observation:
        """Everything that is new; never raises for what it finds on disk.

        ``now``: seconds since the epoch. ``progress`` is told how many trials were read so far.
        """
        failures: list[Problem] = []
        found = self._find_jobs(failures)
        for path in [p for p in self._directories if p not in found]:
            del self._directories[path]
        for path, status in found.items():
            known = self._directories.get(path)
            if (
                known is None
                or (status.st_ino and known.origin != _origin(status))
                or known.was_cleared()
            ):
                self._directories[path] = _JobDirectory.at(path, status)
        # Who holds the logs is asked first: a job that wrote its end and let go since must not
        # look like one that let go without an end.
        held = self._holders.look(Path(p) / "job.log" for p in self._directories)
        trials: list[TrialRecord] = []
        unsettled = 0
        elapsed = None if self._last_look is None else max(0.0, now - self._last_look)
        self._last_look = now
        for directory in self._directories.values():
            unsettled += self._look_at_job(directory, now)
            before = len(trials)
            # Before what else tells of an execution: its end is written before its retry.
            directory.job_log.read_on(now)
            unsettled += self._look_at_trials(directory, now, elapsed, trials, failures)
            trials += self._recorded(directory)
            trials += self._retried(directory, now, settled=elapsed is None)
            if progress is not None and len(trials) > before:
                progress(len(trials))
        jobs = self._sightings(held)
        return Observation(
            source=self.name,
            jobs=jobs,
            trials=tuple(trials),
            present_jobs=frozenset(self._sighted),
            problems=tuple(p for d in self._directories.values() for p in d.problems),
            failures=tuple(failures),
            unsettled=unsettled,
        )

    def directory_of(self, job_id: str) -> Path | None:
        """Where a job stood at the last look, in its latest state, with most of its trials."""
        path = self._latest.get(job_id)
        return Path(path) if path is not None else None

    def start_anew(self) -> None:
        """Forget what was seen: the next look brings everything."""
        self._directories, self._sighted, self._last_look = {}, {}, None
        self._copies, self._matched, self._latest = {}, {}, {}

    # Finding job directories.

    def _find_jobs(self, failures: list[Problem]) -> dict[str, os.stat_result]:
        found: dict[str, os.stat_result] = {}
        for place in self.places:
            paths = self._match(place)
            if not paths:
                failures.append(Problem(place, "expected at least one match of this pattern"))
            for path in sorted(map(os.path.abspath, paths)):
                try:
                    if not self._find_below(path, found):
                        failures.append(Problem(path, "expected a job or a jobs folder"))
                except FileNotFoundError:
                    failures.append(Problem(path, "expected a folder, found nothing"))
                except NotADirectoryError:
                    failures.append(Problem(path, "expected a folder, found a file"))
                except OSError as error:
                    failures.append(Problem(path, f"expected a folder: {error.strerror}"))
                    # It may be a passing failure of the file system: what is known stays.
                    for known in self._directories:
                        if known == path or known.startswith(f"{path.rstrip('/')}/"):
                            found.setdefault(known, _UNKNOWN_STATUS)
        return found

    def _match(self, place: str) -> list[str]:
        """The paths that a place stands for now.

        A pattern that meets a failing folder finds nothing there and says nothing, so what matched
        before stays as long as it is not known to be gone.
        """
        if not glob.has_magic(place):
            return [place]
        paths = set(glob.glob(place))
        paths.update(path for path in self._matched.get(place, ()) if not _is_gone(path))
        if not paths and os.path.exists(place):
            return [place]
        self._matched[place] = tuple(sorted(paths))
        return list(self._matched[place])

    def _find_below(self, path: str, found: dict[str, os.stat_result]) -> bool:
        """Add ``path`` itself if it is a job directory, else the job directories in it.

        False where it is neither but a trial's directory.
        """
        children = _entries(path)
        if any(child.name == "trial.log" for child in children):
            return False
        if path in self._directories or _is_job(children):
            found[path] = _status(path)
            return True
        for child in sorted(children, key=lambda e: e.name):
            try:
                if not child.is_dir():
                    continue
                if child.path in self._directories or _is_job(_entries(child.path)):
                    found[child.path] = os.stat(child.path)
            except FileNotFoundError:
                continue
            except OSError:
                # Not permitted: it may well be a job, so it is looked at and reported as one.
                # What is known stays: it may be a passing failure of the file system.
                status = _status(child.path)
                if status is not _UNKNOWN_STATUS or child.path in self._directories:
                    found[child.path] = status
        return True

    # One job's own files.

    def _look_at_job(self, directory: _JobDirectory, now: float) -> int:
        for file in directory.files:
            problem, settled = file.problem, file.settled
            if file.refresh(now, JOB_FILE_LIMIT, self._settle):
                directory.changed = True
                if file is directory.lock:
                    directory.digests = {}
            directory.changed |= (file.problem, file.settled) != (problem, settled)
        log = look(f"{directory.path}/job.log")
        if log != directory.log:
            directory.log, directory.changed = log, True
        if directory.result.value is not None:
            job_id = directory.result.value.job_id
            if directory.job_id not in ("", job_id):
                # A new job in an old one's place: nothing of the old one is its own.
                for file in (directory.config, directory.lock):
                    file.value, file.signature = None, None
                    file.refresh(now, JOB_FILE_LIMIT, self._settle)
                directory.digests, directory.trials, directory.listed = {}, {}, None
            directory.job_id = job_id
        if directory.lock.value is not None and not directory.digests:
            for entry in directory.lock.value.plan:
                key = (entry.task.source, entry.task.name)
                other = directory.digests.setdefault(key, entry.digest)
                if other != entry.digest:
                    directory.digests[key] = None  # several versions: ask the trial's own lock
        return sum(1 for file in directory.files if file.problem and not file.settled)

    # Its trials.

    def _look_at_trials(
        self,
        directory: _JobDirectory,
        now: float,
        elapsed: float | None,
        trials: list[TrialRecord],
        failures: list[Problem],
    ) -> int:
        self._list_trials(directory, now, elapsed, failures)
        unsettled = 0
        for dirname in self._due(directory, elapsed):
            trial = directory.trials[dirname]
            was_bad = trial.problem is not None and trial.settled
            record = self._look_at_trial(directory, dirname, trial, now)
            if record is not None and not (
                not record.execution and self._is_done_elsewhere(directory, dirname, record.job_id)
            ):
                trials.append(record)
            if record is not None or was_bad != (trial.problem is not None and trial.settled):
                directory.changed = True
            if trial.problem and not trial.settled:
                unsettled += 1
        return unsettled

    def _recorded(self, directory: _JobDirectory) -> list[TrialRecord]:
        """What the recorder tells: executions that ended, and open trials in another phase.

        Whose they are has to be known first: nothing is read twice.
        """
        if not directory.job_id:
            return []
        recorder = directory.recorder
        told = recorder.read_on()
        if directory.was_listed:
            told += recorder.left_behind(_incarnation(directory), directory.trials)
        records = [
            replace(record, job_id=record.job_id or directory.job_id)
            for record in told
            if record.job_id in ("", directory.job_id)
        ]
        for dirname, (phase, since) in recorder.phases.items():
            trial = directory.trials.get(dirname)
            if trial is None or trial.state is not _State.OPEN or trial.config_record is None:
                continue
            if trial.config_record.phase != phase:
                trial.config_record = replace(
                    trial.config_record, phase=phase, mtime_ns=int(since * 1e9)
                )
                records.append(trial.config_record)
        return records

    def _retried(self, directory: _JobDirectory, now: float, *, settled: bool) -> list[TrialRecord]:
        """The executions that only the job's log tells of, as soon as nothing else can any more.

        No more lines are believed than retries that Harbor counted: a trial's own output is in the
        log, too. ``settled``: there is nothing to wait for.
        """
        job_log, result = directory.job_log, directory.result.value
        if not job_log.pending or result is None:
            return []
        records: list[TrialRecord] = []
        waiting: list[LoggedRetry] = []
        planned = _planned_trials(directory)
        for retry in job_log.pending:
            record = None
            if retry.number > directory.recorder.ended[retry.trial]:
                fresh = not settled and abs(now - retry.seen) < self._settle
                if job_log.taken >= result.n_retries or fresh:
                    waiting.append(retry)
                    continue
                record = self._retried_trial(directory, retry, planned)
                if record is None:
                    waiting.append(retry)
                    continue
                records.append(record)
            job_log.taken += 1
        job_log.pending = waiting
        return records

    def _retried_trial(
        self,
        directory: _JobDirectory,
        retry: LoggedRetry,
        planned: Mapping[str, Sequence[PlannedTrial]],
    ) -> TrialRecord | None:
        """What is known of an execution that was retried, None where not even its task is."""
        trial = None
        if retry.trial in directory.trials:
            trial = self._configured_trial(directory, retry.trial)
        if trial is None:
            trial = _planned_trial(directory, retry.trial, planned)
        if trial is None:
            return None
        return replace(
            trial,
            execution=f"{trial.job_id}/{retry.trial}#{retry.number}",
            exceptions=retry.exceptions,
            reward_valid=leave_reward_valid(retry.exceptions),
            retry=retry.number,
        )

    def _configured_trial(self, directory: _JobDirectory, dirname: str) -> TrialRecord | None:
        """Who the trial of a directory is, by its configuration."""
        folder = f"{directory.path}/{dirname}"
        try:
            record = read_trial_config(read_stable(f"{folder}/config.json", TRIAL_FILE_LIMIT)[0])
        except (OSError, ReadError, FileError):
            return None
        return self._completed(directory, folder, record)

    def _is_done_elsewhere(self, here: _JobDirectory, dirname: str, job_id: str) -> bool:
        """Whether another directory of the job has this trial's result.

        Then what looks open is a copy without it: half made, or of an earlier time.
        """
        return any(
            directory is not here
            and job_id in directory.ids
            and (trial := directory.trials.get(dirname)) is not None
            and trial.state is _State.DONE
            for directory in self._directories.values()
        )

    def _list_trials(
        self,
        directory: _JobDirectory,
        now: float,
        elapsed: float | None,
        failures: list[Problem],
    ) -> None:
        current = look(directory.path)
        fresh = current is not None and now - current.mtime_ns / 1e9 < _FRESH_SECONDS
        stale = now - directory.listed_at >= max(self._sweep_seconds, _FRESH_SECONDS)
        if current is not None and current == directory.listed and not fresh and not stale:
            return
        try:
            names = {
                entry.name
                for entry in _entries(directory.path)
                if _is_folder(entry, otherwise=entry.name in directory.trials)
            }
        except FileNotFoundError:
            return
        except OSError as error:
            failures.append(
                Problem(_printable(directory.path), f"cannot be listed: {error.strerror}")
            )
            return
        directory.listed, directory.listed_at = current, now
        if not directory.was_listed:
            directory.was_listed = directory.changed = True
        if names != directory.trials.keys():
            directory.changed = True
            directory.trials = {
                name: directory.trials.get(name) or _Trial(_printable(name))
                for name in sorted(names)
            }

    def _due(self, directory: _JobDirectory, elapsed: float | None) -> list[str]:
        """The trials to look at now: all that are not done, and a share of the others."""
        trials = directory.trials
        if elapsed is None or self._sweep_seconds <= 0:
            return list(trials)
        finished = directory.result.value is not None and directory.result.value.finished_at
        due = [
            name
            for name, trial in trials.items()
            if trial.state is not _State.DONE
            or (trial.may_retry and not finished)
            or (trial.problem and not trial.settled)
        ]
        share = len(trials) * elapsed / self._sweep_seconds + directory.sweep_credit
        count = min(int(share) + 1, len(trials))
        directory.sweep_credit = share - int(share)
        seen = set(due)
        while count > 0:
            name = next(directory.sweep, None)
            if name is None:
                directory.sweep = iter(list(trials))
                name = next(directory.sweep, None)
                if name is None:
                    break
            count -= 1
            if name not in seen and name in trials:
                seen.add(name)
                due.append(name)
        return due

    def _look_at_trial(
        self, directory: _JobDirectory, dirname: str, trial: _Trial, now: float
    ) -> TrialRecord | None:
        """A record if the trial changed since the last look."""
        folder = f"{directory.path}/{dirname}"
        path = f"{folder}/result.json"
        if trial.state is not _State.NEW:
            current = look(path)
            if current is None:
                trial.result = None
                return self._look_at_start(directory, folder, trial, now)
            if (
                current == trial.result
                and (trial.problem is None or trial.settled)
                and not trial.passing
            ):
                return None
        try:
            data, signature = read_stable(path, TRIAL_FILE_LIMIT)
            record = read_trial_result(data, signature.mtime_ns)
        except FileNotFoundError:
            trial.result = None
            return self._look_at_start(directory, folder, trial, now)
        except (ReadError, FileError) as error:
            return self._look_at_bad(directory, folder, trial, now, error, look(path))
        trial.problem, trial.settled, trial.passing = None, False, False
        trial.result, trial.config, trial.config_record = signature, None, None
        trial.state, trial.may_retry = _State.DONE, bool(record.exceptions)
        record = self._completed(directory, folder, record)
        trial.name, trial.job_id = record.name, record.job_id
        return record

    def _look_at_start(
        self, directory: _JobDirectory, folder: str, trial: _Trial, now: float
    ) -> TrialRecord | None:
        """The open trial of a directory without a result; None before it started."""
        path = f"{folder}/config.json"
        trial.state = _State.OPEN
        current = look(path)
        if current is None:
            trial.config, trial.problem, trial.settled, trial.passing = None, None, False, False
            return None
        if current == trial.config and (
            trial.config_record is not None or (trial.settled and not trial.passing)
        ):
            if trial.config_record is not None:
                trial.problem, trial.settled, trial.passing = None, False, False
            return None
        try:
            data, signature = read_stable(path, TRIAL_FILE_LIMIT)
            record = read_trial_config(data)
        except FileNotFoundError:
            return None
        except (ReadError, FileError) as error:
            self._mark_bad(trial, now, error, current, current != trial.config)
            trial.config, trial.config_record = current, None
            return None
        trial.config, trial.problem = signature, None
        trial.settled, trial.passing = False, False
        record = self._completed(
            directory,
            folder,
            replace(record, started_at=signature.mtime_ns / 1e9, mtime_ns=signature.mtime_ns),
        )
        trial.name, trial.job_id, trial.config_record = record.name, record.job_id, record
        return record

    def _mark_bad(
        self,
        trial: _Trial,
        now: float,
        error: Exception,
        signature: Signature | None,
        new: bool,
    ) -> None:
        if trial.problem is None or new:
            trial.bad_since = now
        trial.bad_since = min(trial.bad_since, now)  # the clock may be set back
        trial.problem, trial.passing = str(error), _passing(error)
        trial.settled = _stood(now, trial.bad_since, signature, error) >= self._settle

    def _look_at_bad(
        self,
        directory: _JobDirectory,
        folder: str,
        trial: _Trial,
        now: float,
        error: Exception,
        signature: Signature | None,
    ) -> TrialRecord | None:
        """A result that cannot be read: still being written, or unreadable once it stands still."""
        record = None
        if trial.state is not _State.DONE:
            # Who the trial is, its config still tells.
            before = (trial.problem, trial.settled, signature == trial.result)
            record = self._look_at_start(directory, folder, trial, now)
            trial.problem = before[0]
            if record is None and before == (str(error), True, True):
                trial.settled, trial.passing = True, _passing(error)
                return None  # tried again in vain
        self._mark_bad(trial, now, error, signature, signature != trial.result)
        trial.result = signature
        directory.changed = True
        if trial.settled and trial.state is not _State.DONE and trial.config_record is not None:
            record = replace(trial.config_record, unreadable=True)
        return record

    def _completed(self, directory: _JobDirectory, folder: str, record: TrialRecord) -> TrialRecord:
        """The record with what its own file does not say: job, digest, a regrade's source."""
        job_id = record.job_id or directory.job_id or f"dir:{directory.name}"
        if not directory.job_id and (_has_job_files(directory) or not record.job_id):
            # Trials without any job file may belong to several jobs, others to this one.
            directory.job_id = job_id
        digest = directory.digests.get((record.task.source, record.task.name))
        source = record.source_trial
        if digest is None or source == "":
            lock = _read_lock(f"{folder}/lock.json")
            if lock is not None:
                digest = digest or lock.digest
                source = (lock.source_trial or "") if source == "" else source
        if record.name == "":
            record = replace(record, name=_printable(os.path.basename(folder)))
        if digest is None and source == record.source_trial and job_id == record.job_id:
            return record
        return replace(record, job_id=job_id, digest=digest, source_trial=source)

    # What came of it.

    def _sightings(self, held: dict[Path, bool | None]) -> dict[str, JobSighting]:
        """The jobs whose sighting changed; copies of a job are one, in its latest state."""
        by_job: dict[str, list[_JobDirectory]] = {}
        for directory in self._directories.values():
            if directory.changed:
                ids = {trial.job_id for trial in directory.trials.values() if trial.job_id}
                directory.ids = frozenset(ids | {directory.job_id} - {""})
                directory.problems = tuple(_problems(directory))
            for job_id in directory.ids:
                by_job.setdefault(job_id, []).append(directory)
        changed: dict[str, JobSighting] = {}
        now_sighted: dict[str, JobSighting] = {}
        copies: dict[str, tuple[str, ...]] = {}
        for job_id, directories in by_job.items():
            previous = self._sighted.get(job_id)
            holds = [held.get(Path(d.path) / "job.log") for d in directories]
            any_held = True if True in holds else False if False in holds else None
            gone = any_held is not True and any(_is_dead(d) for d in directories)
            paths = tuple(directory.path for directory in directories)
            copies[job_id] = paths
            same_copies = self._copies.get(job_id) == paths
            unchanged = same_copies and not any(d.changed for d in directories)
            if previous and (previous.held, previous.gone) == (any_held, gone) and unchanged:
                now_sighted[job_id] = previous
                continue
            sighting = self._sight(job_id, directories, any_held, gone)
            now_sighted[job_id] = sighting
            if sighting != previous:
                changed[job_id] = sighting
        for directory in self._directories.values():
            directory.changed = False
        self._sighted, self._copies = now_sighted, copies
        return changed

    def _sight(
        self, job_id: str, directories: list[_JobDirectory], held: bool | None, gone: bool
    ) -> JobSighting:
        own = [d for d in directories if d.job_id == job_id] or directories
        records = [(self._record(job_id, directory), directory) for directory in own]
        record, latest = max(records, key=lambda item: _recency(item[0]))
        # Copies may lack trials: what is to be done is done where most of them are.
        equal = [item for item in records if item[0].recency == record.recency]
        _, fullest = max(equal, key=lambda item: (len(item[1].trials), _recency(item[0])))
        self._latest[job_id] = fullest.path
        if record.plan is None:
            plan = next((r.plan for r, _ in records if r.plan is not None), None)
            record = replace(record, plan=plan)
        names = frozenset(
            trial.name
            for directory in directories
            for trial in directory.trials.values()
            if trial.job_id == job_id
            or (trial.job_id == "" and trial.problem and directory.job_id == job_id)
        )
        return JobSighting(
            record=record,
            names=frozenset(directory.name for directory in own),
            held=held,
            gone=gone,
            # A resume runs again what it does not find.
            resumable=all(file.good for file in fullest.files)
            and all(d.trials.keys() <= fullest.trials.keys() for _, d in equal),
            unreadable_files=sum(len(directory.problems) for directory in own),
            last_change=max((t for d in directories for t in _changes(d)), default=None),
            # A folder that could not be listed yet may hold anything.
            listing=names if all(d.was_listed for d in directories) else None,
            origin=latest.origin,
        )

    def _record(self, job_id: str, directory: _JobDirectory) -> JobRecord:
        own = directory.job_id == job_id
        config, lock, result = directory.files
        return assemble_job(
            job_id,
            directory.name,
            result.value if own else None,
            lock.value if own else None,
            config.value if own else None,
            incarnation=_incarnation(directory),
            result_written=result.signature.mtime_ns / 1e9 if result.signature else None,
        )


def _planned_trials(directory: _JobDirectory) -> dict[str, list[PlannedTrial]]:
    """The plan, regrades left out, by what the names of its trials begin with."""
    planned: dict[str, list[PlannedTrial]] = {}
    for entry in directory.lock.value.plan if directory.lock.value is not None else ():
        if entry.source_trial is None:
            planned.setdefault(trial_name_stem(entry.task.name), []).append(entry)
    return planned


def _planned_trial(
    directory: _JobDirectory, name: str, planned: Mapping[str, Sequence[PlannedTrial]]
) -> TrialRecord | None:
    """The planned trial that a name can only be of; None where there are none or several."""
    found = planned.get(name.rpartition("__")[0], ())
    if len(found) != 1 or not directory.job_id:
        return None
    (entry,) = found
    return TrialRecord(
        job_id=directory.job_id,
        name=name,
        execution="",
        task=entry.task,
        digest=entry.digest,
        agent=entry.agent,
        model=entry.model,
        model_label=entry.model,
    )


def _is_dead(directory: _JobDirectory) -> bool:
    """Whether the recorder's process, which works on this job, is gone from this host."""
    return directory.recorder.dead_since(_incarnation(directory))


def _incarnation(directory: _JobDirectory) -> float | None:
    """When the job was last started or resumed."""
    config = directory.config.signature
    return config.mtime_ns / 1e9 if config else None


def _problems(directory: _JobDirectory) -> Iterator[Problem]:
    for file in directory.files:
        if file.problem and file.settled:
            yield Problem(_printable(file.path), file.problem)
    for dirname, trial in directory.trials.items():
        if trial.problem and trial.settled:
            yield Problem(_printable(f"{directory.path}/{dirname}"), trial.problem)


def _passing(error: Exception) -> bool:
    return isinstance(error, ReadError) and error.passing


def _stood(now: float, bad_since: float, signature: Signature | None, error: Exception) -> float:
    """How long the file has been bad; its age tells nothing where it could not be opened."""
    seen = now - bad_since
    if signature is None or _passing(error):
        return seen
    return max(seen, now - signature.mtime_ns / 1e9)


def _origin(status: os.stat_result) -> str:
    return f"{status.st_dev:x}:{status.st_ino:x}"


def _printable(name: str) -> str:
    """A file name as text: bytes that are not UTF-8 are shown escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _is_job(children: Iterable[os.DirEntry[str]]) -> bool:
    """Whether a folder with these entries is a job directory.

    It has the job's files or log, or holds trials (whose directories have a job's file names in
    them too, but no log of a job).
    """
    for child in children:
        if child.name == "job.log" or child.name in _JOB_FILES:
            return True
        if _TRIAL_NAME.fullmatch(child.name) and _is_trial(child):
            return True
    return False


def _entries(path: str) -> list[os.DirEntry[str]]:
    """What is in a folder, hidden entries left out."""
    with os.scandir(path) as entries:
        return [entry for entry in entries if not entry.name.startswith(".")]


def _is_trial(entry: os.DirEntry[str]) -> bool:
    """Whether what is named like a trial is no job with such a name, and no file."""
    if not _is_folder(entry) or os.path.exists(f"{entry.path}/job.log"):
        return False
    try:
        return not any(_TRIAL_NAME.fullmatch(child.name) for child in _entries(entry.path))
    except OSError:
        return True


def _status(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError:
        return _UNKNOWN_STATUS


def _is_gone(path: str) -> bool:
    """Whether it is certain that there is nothing at this path."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _is_folder(entry: os.DirEntry[str], *, otherwise: bool = False) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return otherwise


def _has_job_files(directory: _JobDirectory) -> bool:
    return any(look(file.path) is not None for file in directory.files)


def _read_lock(path: str) -> TrialLock | None:
    try:
        return read_trial_lock(read_stable(path, TRIAL_FILE_LIMIT)[0])
    except (OSError, ReadError, FileError):
        return None


def _recency(record: JobRecord) -> tuple[float, bool, float, str]:
    """The later state of a job, whichever copy it is found in.

    Of equal states the older directory's: a copy's files may all look new, and nothing was
    started by copying it.
    """
    return (*record.recency, -(record.incarnation or 0.0), record.name)


def _changes(directory: _JobDirectory) -> Iterator[float]:
    """Modification times of the files that Harbor touches while it works."""
    for file in directory.files:
        if file.signature is not None:
            yield file.signature.mtime_ns / 1e9
    if directory.log is not None:
        yield directory.log.mtime_ns / 1e9
    for trial in directory.trials.values():
        for signature in (trial.result, trial.config):
            if signature is not None:
                yield signature.mtime_ns / 1e9
