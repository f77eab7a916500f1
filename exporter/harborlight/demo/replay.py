"""Replays an evaluation as Harbor 0.26.0 leaves it on disk, without running anything.

A JobReplay writes one job directory: the same files in the same order as Harbor, rewritten in
place (truncate, then write), with job.log and the running trials' trial.log held open. What is in
the files comes from Harbor's own models. What happens is scripted: each trial has a list of
executions with a reward or an exception and the seconds each phase takes.

Time. A replay has a clock of its own that counts script seconds.
- Virtual (advance(), run(speed=None)): nothing sleeps. A time in a file is `epoch` plus the script
  seconds passed, so durations are the scripted ones; file mtimes are set to the same times. Every
  file action takes half a millisecond, so that no two have the same time.
- Wall (run(speed=N)): N script seconds pass in one real second. Times in files and mtimes are the
  real time of writing, so durations in the files are the scripted ones divided by N.

Known differences from Harbor: the content of agent/ and of tracebacks is a stub, token counts are
made up by whoever writes the script, and Harbor's own log lines about plugins and agents are left
out. All jobs carry `harborlight_replay` in environment.kwargs, so a replay can be told from a run.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import os
import random
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import IO, Literal
from uuid import UUID

from harbor.metrics.mean import Mean
from harbor.models.agent.context import AgentContext
from harbor.models.job.config import DatasetConfig, JobConfig, RetryConfig, SourceJobConfig
from harbor.models.job.lock import (
    HarborLockInfo,
    JobLock,
    SourceTrialLock,
    TaskLock,
    TrialLock,
    VerifierLock,
)
from harbor.models.job.result import JobResult, JobStats
from harbor.models.task.config import VerifierEnvironmentMode
from harbor.models.trial.artifact_manifest import ArtifactManifest, ArtifactManifestEntry
from harbor.models.trial.config import (
    AgentConfig,
    EnvironmentConfig,
    SourceTrialConfig,
    TaskConfig,
    TrialConfig,
    VerifierConfig,
)
from harbor.models.trial.paths import TrialPaths
from harbor.models.trial.result import (
    AgentInfo,
    ExceptionInfo,
    ModelInfo,
    TimingInfo,
    TrialResult,
)
from harbor.models.verifier.result import VerifierResult
from harbor.utils.pass_at_k import compute_pass_at_k_by_evals
from pydantic import ValidationError
from shortuuid import ShortUUID

from harborlight.demo.script import (
    Action,
    Event,
    EventKind,
    Execution,
    JobOptions,
    Step,
    TrialScript,
    Usage,
)

State = Literal["ready", "running", "finished", "cancelled", "killed"]

REPLAY_MARK = "harborlight_replay"
TICK_SECONDS = 0.0005
CLEAN_UP_SECONDS = 0.4
SLEEP_SLICE_SECONDS = 0.1
NAME_CHARACTERS = ShortUUID().get_alphabet()


class ReplayError(Exception):
    """The replay was asked for something Harbor would refuse or that makes no sense now."""


@dataclass(frozen=True, slots=True)
class _Wait:
    until: float


@dataclass(frozen=True, slots=True)
class _Delay:
    seconds: float


class _CancelledError(Exception):
    """Stands for asyncio.CancelledError inside a trial's generator."""


_TimedPhase = Literal["environment_setup", "agent_setup", "agent_execution", "verifier"]
_Steps = Generator[Step, None, None]
_Process = Generator[Step | _Delay, None, None]


@dataclass(slots=True)
class _Slot:
    """One planned trial: what is to run and, for a regrade, what it derives from."""

    key: tuple[str, str]
    script: TrialScript
    config: TrialConfig
    lock: TrialLock
    lock_text: str
    source: TrialResult | None = None
    source_dir: Path | None = None
    name: str = ""

    def trial_config(self) -> TrialConfig:
        return self.config.model_copy(update={"trial_name": self.name})


@dataclass(slots=True)
class _Run:
    """One execution in progress."""

    slot: _Slot
    paths: TrialPaths
    result: TrialResult
    execution: Execution
    environment_ready: bool = False
    outputs_synced: bool = False
    artifacts_collected: bool = False
    agent_started: float | None = None


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _share(usage: Usage | None, part: float) -> AgentContext:
    if usage is None:
        return AgentContext()
    part = min(max(part, 0.0), 1.0)
    return AgentContext(
        n_input_tokens=round(usage.input_tokens * part),
        n_cache_tokens=round(usage.cache_tokens * part),
        n_output_tokens=round(usage.output_tokens * part),
        cost_usd=None if usage.cost_usd is None else round(usage.cost_usd * part, 6),
    )


class JobReplay:
    """One Harbor job directory, `jobs_dir/name`, written step by step.

    scripts: one per planned trial; the trials of a task are its attempts, and the plan is
    attempt-major as in Harbor (every task's first attempt, then every second ...).
    seed decides names and ids: the same arguments give the same files, times apart (and times
    too, if `epoch` is given). epoch: the aware time of script second 0 on the virtual clock;
    default: far enough back for the run to have ended by now.
    Raises ReplayError if the directory exists already.

    Use advance() for one change at a time, run() for all of it; stop() asks for a Ctrl-C, kill()
    ends the process without any clean-up, resume() is `harbor job resume`. Not thread-safe,
    except that stop() may be called from a signal handler or another thread.
    """

    def __init__(
        self,
        jobs_dir: Path,
        name: str,
        scripts: Iterable[TrialScript],
        *,
        concurrency: int = 4,
        max_retries: int = 0,
        seed: int = 0,
        options: JobOptions | None = None,
        epoch: datetime | None = None,
        listener: Callable[[Event], None] | None = None,
    ) -> None:
        self._setup(
            jobs_dir, name, concurrency, max_retries, seed, options or JobOptions(), listener
        )
        self._scripts = _attempt_major(scripts)
        if not self._scripts:
            raise ReplayError(f"job {name!r} has no trials")
        self._config = self._job_config()
        self._planned = self._plan(self._scripts)
        self._epoch = epoch or self._default_epoch(script for script in self._scripts)
        self._engine: Iterator[Step | _Wait] = self._main(resuming=False, pause=0.0)

    def _setup(
        self,
        jobs_dir: Path,
        name: str,
        concurrency: int,
        max_retries: int,
        seed: int,
        options: JobOptions,
        listener: Callable[[Event], None] | None,
    ) -> None:
        self.jobs_dir = jobs_dir.expanduser().resolve()
        self.name = name
        self.job_dir = self.jobs_dir / name
        if self.job_dir.exists():
            raise ReplayError(f"{self.job_dir} exists already")
        if concurrency < 1 or max_retries < 0:
            raise ReplayError("concurrency must be at least 1 and max_retries at least 0")
        self.concurrency = concurrency
        self.state: State = "ready"
        self._options = options
        self._retry = RetryConfig(
            max_retries=max_retries,
            min_wait_sec=options.min_wait_seconds,
            wait_multiplier=options.wait_multiplier,
            max_wait_sec=options.max_wait_seconds,
        )
        self._random = random.Random(f"{seed}:{name}")
        self._listener = listener
        self._id = self._new_id()
        self._used_names: set[str] = set()
        self._script_of: dict[str, TrialScript] = {}
        self._checksums: dict[tuple[str, str], str] = {}

        self._now = 0.0
        self._wall = False
        self._wall_base = (0.0, 0.0)
        self._speed = 1.0
        self._stop = False
        self._pending: _Wait | None = None
        self._rewrites = True
        self._logs: dict[Path, IO[str]] = {}

        self._existing: list[TrialResult] = []
        self._results: dict[str, TrialResult] = {}
        self._previous: dict[str, TrialResult] = {}
        self._live_rewards: dict[str, dict[str, dict[str, float | int]]] = {}
        self._running: set[str] = set()
        self._cancelled: set[str] = set()
        self._n_retries = 0
        self._job_result: JobResult | None = None

    # What a caller may look at.

    @property
    def job_id(self) -> UUID:
        return self._id

    @property
    def now(self) -> float:
        """Script seconds passed."""
        return self._now

    @property
    def n_total(self) -> int:
        return len(self._planned)

    @property
    def n_completed(self) -> int:
        """Trials with an END, as Harbor counts them (falls when a retry starts)."""
        return self._job_result.stats.n_completed_trials if self._job_result else 0

    @property
    def n_running(self) -> int:
        return len(self._running)

    @property
    def n_retries(self) -> int:
        return self._n_retries

    @property
    def results(self) -> Mapping[str, TrialResult]:
        """The last result of each trial that this process ended, by trial name."""
        return self._results

    @property
    def scripts_by_trial(self) -> Mapping[str, TrialScript]:
        """Which script each trial name ran, names of earlier incarnations included."""
        return self._script_of

    # Driving.

    def start_after(self, pause: float) -> None:
        """Lets `pause` script seconds pass before anything is written; only before the start."""
        if self.state != "ready":
            raise ReplayError(f"job {self.name!r} is {self.state}")
        self._engine = self._main(resuming=False, pause=pause)

    def advance(self) -> Step | None:
        """Makes the next change in the file system; None once the job has ended. Never sleeps."""
        self._pending = None
        for item in self._engine:
            if isinstance(item, Step):
                return item
            self._now = max(self._now, item.until)
        return None

    def steps(self) -> Iterator[Step]:
        """advance() until the job has ended."""
        while (step := self.advance()) is not None:
            yield step

    def run(
        self,
        speed: float | None = None,
        *,
        until: Callable[[], bool] | None = None,
        rewrites: bool = True,
    ) -> State:
        """Runs on until the job has ended, or until `until` holds when time is about to pass.

        speed: script seconds per real second; None: instantly, on the virtual clock.
        rewrites False leaves out the job result's rewrites between first and last.
        """
        if speed is not None and not speed > 0:
            raise ReplayError("speed must be above 0")
        self._rewrites = rewrites
        self._wall = speed is not None
        self._speed = speed or 1.0
        self._wall_base = (self._now, time.monotonic())
        while True:
            if self._pending is not None:
                if until is not None and not self._stop and until():
                    return self.state
                self._pass_time(self._pending.until)
                self._pending = None
            item = next(self._engine, None)
            if item is None:
                return self.state
            if isinstance(item, _Wait):
                self._pending = item

    def stop(self) -> None:
        """Asks for what Ctrl-C does; takes effect as run() or advance() go on."""
        self._stop = True

    def cancel(self) -> None:
        """stop(), and the whole clean-up at once, without sleeping. No effect on an ended job."""
        self.stop()
        while self.advance() is not None:
            pass

    def kill(self) -> None:
        """End as kill -9 does: nothing more is written, what is open is closed as it is."""
        if self.state not in ("ready", "running"):
            return
        self._engine = iter(())
        self._pending = None
        for log in self._logs.values():
            log.close()
        self._logs.clear()
        self._running.clear()
        self.state = "killed"
        self._tell("killed")

    def resume(
        self, *, pause: float = 0.0, filter_errors: Sequence[str] = ("CancelledError",)
    ) -> None:
        """Prepares `harbor job resume` after `pause` script seconds; advance() or run() do it.

        Trials whose exception is in filter_errors and those without a result run again, under
        new names. Raises ReplayError while the job runs or before it wrote its config.json. As
        in Harbor, an empty or broken result.json or lock.json of the job makes the resume fail:
        pydantic's ValidationError or ReplayError from advance() or run().
        """
        if self.state not in ("finished", "cancelled", "killed"):
            raise ReplayError(f"job {self.name!r} is {self.state}; only an ended one can resume")
        if not (self.job_dir / "config.json").exists():
            raise ReplayError(f"job {self.name!r} has no config.json")
        self._stop = False
        self._pending = None
        self.state = "ready"
        self._engine = self._main(resuming=True, pause=pause, filter_errors=tuple(filter_errors))

    # Time.

    def _pass_time(self, until: float) -> None:
        if not self._wall:
            if not self._stop:
                self._now = max(self._now, until)
            return
        base, started = self._wall_base
        due = started + (until - base) / self._speed
        # Short slices, because a signal handler only sets a flag.
        while not self._stop and (left := due - time.monotonic()) > 0:
            time.sleep(min(left, SLEEP_SLICE_SECONDS))
        if self._stop:
            until = min(until, base + (time.monotonic() - started) * self._speed)
        self._now = max(self._now, until)

    def _stamp(self) -> datetime:
        if self._wall:
            return datetime.now(UTC)
        return self._epoch + timedelta(seconds=self._now)

    def _naive(self) -> datetime:
        return self._stamp().astimezone(self._options.zone).replace(tzinfo=None)

    def _default_epoch(self, scripts: Iterable[TrialScript]) -> datetime:
        totals: list[float] = []
        for script in scripts:
            waits = sum(self._back_off(number) for number in range(self._retry.max_retries))
            runs = range(self._retry.max_retries + 1)
            totals.append(waits + sum(script.execution(number).seconds + 1 for number in runs))
        # No list schedule is longer than work / workers + the longest item.
        bound = sum(totals) / self.concurrency + max(totals) + 0.05 * len(totals) + 1
        return datetime.now(UTC) - timedelta(seconds=bound)

    def _tick(self, path: Path | None) -> None:
        if self._wall:
            return
        self._now += TICK_SECONDS
        if path is not None:
            stamp = int(self._stamp().timestamp() * 1_000_000) * 1000
            os.utime(path, ns=(stamp, stamp))

    # Single changes in the file system.

    def _step(self, action: Action, path: Path, trial: str | None = None) -> Step:
        self._tick(path if action in ("open", "truncate", "write", "append") else None)
        return Step(self._stamp(), action, path, trial)

    def _write(self, path: Path, text: str, trial: str | None = None) -> _Steps:
        """Path.write_text in two visible halves; the file is empty between them."""
        with path.open("w", encoding="utf-8") as file:
            yield self._step("truncate", path, trial)
            file.write(text)
        yield self._step("write", path, trial)

    def _mkdir(self, path: Path, trial: str | None = None) -> _Steps:
        path.mkdir(parents=True, exist_ok=True)
        yield self._step("mkdir", path, trial)

    def _open_log(self, path: Path, mode: Literal["w", "a"], trial: str | None = None) -> _Steps:
        # Held open on purpose: that is how a live Harbor process is recognised.
        self._logs[path] = path.open(mode, encoding="utf-8")
        yield self._step("open", path, trial)

    def _close_log(self, path: Path) -> None:
        log = self._logs.pop(path, None)
        if log is not None:
            log.close()

    def _append(self, path: Path, line: str, trial: str | None = None) -> _Steps:
        log = self._logs[path]
        log.write(line + "\n")
        log.flush()
        yield self._step("append", path, trial)

    def _log(self, run: _Run, line: str) -> _Steps:
        """A line of a trial's logger, which goes to trial.log and, through its parent, job.log."""
        if self._options.outputs:
            yield from self._append(run.paths.log_path, line, run.slot.name)
        yield from self._append(self.job_dir / "job.log", line)

    def _remove(self, path: Path, trial: str | None = None) -> _Steps:
        shutil.rmtree(path, ignore_errors=True)
        yield self._step("delete", path, trial)

    # The plan.

    def _new_id(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)

    def _new_name(self, task: str) -> str:
        stem = task.rpartition("/")[2][:32].rstrip("_-")
        while True:
            name = f"{stem}__{''.join(self._random.choices(NAME_CHARACTERS, k=7))}"
            if name not in self._used_names:
                self._used_names.add(name)
                return name

    def _job_config(self) -> JobConfig:
        options = self._options
        attempts = Counter(script.task for script in self._scripts)
        return JobConfig(
            job_name=self.name,
            jobs_dir=self.jobs_dir,
            n_attempts=max(attempts.values()),
            n_concurrent_trials=self.concurrency,
            retry=self._retry,
            environment=EnvironmentConfig(kwargs={REPLAY_MARK: True}),
            verifier=VerifierConfig(disable=not options.verify),
            agents=[
                AgentConfig(
                    name=options.agent,
                    model_name=options.model,
                    kwargs={"version": options.agent_version},
                )
            ],
            datasets=[DatasetConfig(path=Path("datasets") / options.dataset)],
        )

    def _plan(self, scripts: Sequence[TrialScript]) -> list[_Slot]:
        shared: dict[tuple[str, str], _Slot] = {}
        planned: list[_Slot] = []
        for script in scripts:
            key = (script.task, script.version)
            if key not in shared:
                shared[key] = self._slot(key, script)
            slot = replace(shared[key], script=script, name=self._new_name(script.task))
            self._script_of[slot.name] = script
            planned.append(slot)
        return planned

    def _slot(self, key: tuple[str, str], script: TrialScript) -> _Slot:
        config = self._trial_config(
            TaskConfig(
                path=Path("datasets") / self._options.dataset / script.task,
                source=self._options.dataset,
            ),
            self._config.agents[0],
        )
        lock = TrialLock(
            task=TaskLock(
                name=script.task,
                type="local",
                digest=f"sha256:{_digest('content', *key)}",
                source=self._options.dataset,
                path=config.task.path,
            ),
            agent=config.agent,
            environment=config.environment,
            verifier=self._verifier_lock(config),
            artifacts=config.artifacts,
            override_error_policy=config.override_error_policy,
        )
        return _Slot(key, script, config, lock, _lock_text(lock))

    def _verifier_lock(self, config: TrialConfig) -> VerifierLock:
        return VerifierLock(
            **dict(config.verifier),
            environment_mode=VerifierEnvironmentMode(self._options.verifier_mode),
        )

    def _trial_config(
        self, task: TaskConfig, agent: AgentConfig, source: SourceTrialConfig | None = None
    ) -> TrialConfig:
        config = self._config
        return TrialConfig(
            task=task,
            trial_name="planned",
            trials_dir=self.job_dir,
            agent=agent,
            environment=config.environment,
            verifier=config.verifier,
            job_id=self._id,
            source_trial=source,
        )

    # The job.

    def _main(
        self, *, resuming: bool, pause: float, filter_errors: tuple[str, ...] = ()
    ) -> Iterator[Step | _Wait]:
        if pause > 0:
            yield _Wait(self._now + pause)
            if self._stop:
                self.state = "cancelled"
                return
        self.state = "running"
        if resuming:
            yield from self._remove_filtered(filter_errors)
        remaining = yield from self._construct(resuming)
        yield from self._begin(remaining)
        self._tell("resumed" if resuming else "started", detail=f"{len(remaining)} trials to run")

        ended = yield from self._run_trials(remaining)
        if ended:
            yield from self._finish()
        self._close_log(self.job_dir / "job.log")
        self.state = "finished" if ended else "cancelled"
        self._tell(self.state)

    def _remove_filtered(self, filter_errors: tuple[str, ...]) -> _Steps:
        for trial_dir in self._trial_dirs():
            result = _read_result(trial_dir / "result.json")
            info = result.exception_info if result is not None else None
            if info is not None and info.exception_type in filter_errors:
                yield from self._remove(trial_dir, trial_dir.name)

    def _construct(self, resuming: bool) -> Generator[Step, None, list[_Slot]]:
        """Job.__init__: the directory, job.log, and on resume what is left on disk."""
        known = self.job_dir / "result.json"
        before = JobResult.model_validate_json(known.read_text()) if known.exists() else None
        self._job_result = None
        self._existing, self._previous, self._live_rewards = [], {}, {}
        self._running, self._cancelled = set(), set()
        self._n_retries = before.stats.n_retries if before is not None else 0
        if resuming:
            self._id = before.id if before is not None else self._new_id()
            self._planned = self._plan_again()
        yield from self._mkdir(self.job_dir)
        log_mode: Literal["w", "a"] = "w" if before is None else "a"
        yield from self._open_log(self.job_dir / "job.log", log_mode)
        remaining = self._planned
        if resuming:
            remaining = yield from self._reconcile()
        started_at = before.started_at if before is not None else self._naive()
        self._job_result = JobResult(
            id=self._id,
            started_at=started_at,
            updated_at=started_at,
            n_total_trials=len(self._planned),
            stats=JobStats.from_trial_results(
                self._existing, n_total_trials=len(self._planned), n_retries=self._n_retries
            ),
        )
        return remaining

    def _plan_again(self) -> list[_Slot]:
        planned: list[_Slot] = []
        for slot in self._planned:
            config = slot.config.model_copy(update={"job_id": self._id})
            planned.append(replace(slot, config=config, name=self._new_name(slot.key[0])))
        return planned

    def _reconcile(self) -> Generator[Step, None, list[_Slot]]:
        """Keeps what has a readable result, deletes what has none; returns what has to run.

        As in Harbor a kept trial takes the place of its task's first planned one that is free.
        The scripts that the kept ones used up are not run again.
        """
        kept: Counter[tuple[str, str]] = Counter()
        used: Counter[TrialScript] = Counter()
        for trial_dir in self._trial_dirs():
            path = trial_dir / "result.json"
            if not path.exists():
                yield from self._remove(trial_dir, trial_dir.name)
                continue
            result = _read_result(path)
            if result is None:
                line = f"Skipping existing trial directory {trial_dir} because result.json is empty"
                yield from self._append(self.job_dir / "job.log", line)
                continue
            self._existing.append(result)
            self._previous[result.trial_name] = result
            self._reward_live(result)
            script = self._script_of[result.trial_name]
            used[script] += 1
            kept[self._key_of(result, script)] += 1
        left: dict[tuple[str, str], deque[TrialScript]] = {}
        for slot in self._planned:
            if used[slot.script] > 0:
                used[slot.script] -= 1
            else:
                left.setdefault(slot.key, deque()).append(slot.script)
        remaining: list[_Slot] = []
        for slot in self._planned:
            if kept[slot.key] > 0:
                kept[slot.key] -= 1
                continue
            again = replace(slot, script=left[slot.key].popleft())
            self._script_of[again.name] = again.script
            remaining.append(again)
        return remaining

    def _key_of(self, result: TrialResult, script: TrialScript) -> tuple[str, str]:
        return (script.task, script.version)

    def _trial_dirs(self) -> list[Path]:
        return sorted(path for path in self.job_dir.iterdir() if path.is_dir())

    def _begin(self, remaining: Sequence[_Slot]) -> _Steps:
        """Job.run() up to the first trial: config.json, lock.json, result.json."""
        self._refresh(self._naive())
        yield from self._write(self.job_dir / "config.json", self._config.model_dump_json(indent=4))
        yield from self._write(self.job_dir / "lock.json", self._job_lock_text())
        yield from self._write_job_result()

    def _job_lock_text(self) -> str:
        lock = JobLock(
            created_at=self._stamp(),
            harbor=HarborLockInfo(version=version("harbor"), is_editable=False),
            n_concurrent_trials=self.concurrency,
            retry=self._retry,
            trials=[slot.lock for slot in self._planned],
        )
        path = self.job_dir / "lock.json"
        if path.exists():
            try:
                known = JobLock.model_validate_json(path.read_text())
            except ValidationError:
                raise ReplayError(f"{path} could not be parsed; refusing to overwrite it") from None
            lock.created_at, lock.harbor = known.created_at, known.harbor
        text: str = lock.model_dump_json(indent=4, exclude_none=True)
        return text

    def _run_trials(self, remaining: Sequence[_Slot]) -> Generator[Step | _Wait, None, bool]:
        """Runs the plan on `concurrency` slots; False if it was cancelled."""
        waiting = deque(remaining)
        number = 0
        agenda: list[tuple[float, int, _Process]] = []
        while waiting and len(agenda) < self.concurrency:
            agenda.append((self._now, number, self._trial(waiting.popleft())))
            number += 1
        while agenda:
            if agenda[0][0] > self._now and not self._stop:
                yield _Wait(agenda[0][0])
            if self._stop:
                yield from self._cancel_trials([process for _, _, process in sorted(agenda)])
                return False
            at, order, process = heapq.heappop(agenda)
            self._now = max(self._now, at)
            delay = yield from self._drive(process)
            if delay is not None:
                heapq.heappush(agenda, (self._now + delay, order, process))
            elif waiting:
                heapq.heappush(agenda, (self._now, number, self._trial(waiting.popleft())))
                number += 1
        return not (self._stop and waiting)

    def _cancel_trials(self, processes: Sequence[_Process]) -> Iterator[Step | _Wait]:
        self._rewrites = True
        agenda: list[tuple[float, int, _Process]] = []
        for order, process in enumerate(processes):
            delay = yield from self._drive(process, cancel=True)
            if delay is not None:
                heapq.heappush(agenda, (self._now + delay, order, process))
        while agenda:
            at, order, process = heapq.heappop(agenda)
            self._now = max(self._now, at)
            delay = yield from self._drive(process)
            if delay is not None:
                heapq.heappush(agenda, (self._now + delay, order, process))

    def _drive(
        self, process: _Process, *, cancel: bool = False
    ) -> Generator[Step, None, float | None]:
        """Runs one trial to its next delay, which is returned; None when it has ended."""
        try:
            item = process.throw(_CancelledError()) if cancel else next(process)
            while not isinstance(item, _Delay):
                yield item
                item = next(process)
        except (StopIteration, _CancelledError):
            return None
        return item.seconds

    def _finish(self) -> _Steps:
        job = self._job()
        results = [*self._existing, *self._results_of_this_run()]
        stats = JobStats.from_trial_results(
            results, n_total_trials=len(self._planned), n_retries=self._n_retries
        )
        rewards: dict[str, list[dict[str, float | int] | None]] = {}
        for result in results:
            if result.reward_valid and result.verifier_result is not None:
                rewards.setdefault(_evals_key(result), []).append(result.verifier_result.rewards)
        for key, values in rewards.items():
            stats.evals[key].metrics.append(Mean().compute(values))
        for key, pass_at_k in compute_pass_at_k_by_evals(results).items():
            stats.evals[key].pass_at_k = pass_at_k
        job.stats = stats
        finished_at = self._naive()
        job.finished_at = finished_at
        self._refresh(finished_at)
        self._rewrites = True
        yield from self._write_job_result()

    def _results_of_this_run(self) -> Iterator[TrialResult]:
        for slot in self._planned:
            result = self._results.get(slot.name)
            if result is not None:
                yield result

    # The job's result.

    def _job(self) -> JobResult:
        if self._job_result is None:
            raise ReplayError(f"job {self.name!r} has not begun")
        return self._job_result

    def _refresh(self, updated_at: datetime) -> None:
        job = self._job()
        job.updated_at = updated_at
        job.stats.update_progress_counts(
            n_total_trials=job.n_total_trials,
            n_running_trials=len(self._running),
            n_cancelled_trials=len(self._cancelled),
            n_retries=self._n_retries,
        )

    def _refresh_metrics(self, key: str) -> None:
        if not self._rewrites:
            return
        rewards = [dict(value) for value in self._live_rewards.get(key, {}).values()]
        stats = self._job().stats.evals[key]
        stats.metrics = [Mean().compute([*rewards])] if rewards else []

    def _reward_live(self, result: TrialResult) -> None:
        live = self._live_rewards.setdefault(_evals_key(result), {})
        live.pop(result.trial_name, None)
        verdict = result.verifier_result
        if result.reward_valid and verdict is not None and verdict.rewards is not None:
            live[result.trial_name] = verdict.rewards

    def _write_job_result(self) -> _Steps:
        text = self._job().model_dump_json(indent=4, exclude={"trial_results"})
        yield from self._write(self.job_dir / "result.json", text)

    def _on_start(self, name: str) -> _Steps:
        previous = self._previous.pop(name, None)
        if previous is not None:
            key = _evals_key(previous)
            self._live_rewards.get(key, {}).pop(name, None)
            self._job().stats.remove_trial(previous)
            self._n_retries += 1
            self._refresh_metrics(key)
        self._running.add(name)
        yield from self._progress()
        self._tell("trial_started", name)

    def _on_cancel(self, name: str) -> _Steps:
        self._cancelled.add(name)
        yield from self._progress()

    def _on_end(self, result: TrialResult) -> _Steps:
        name = result.trial_name
        self._reward_live(result)
        self._job().stats.update_trial(new_result=result, previous_result=self._previous.get(name))
        self._previous[name] = result
        self._results[name] = result
        self._running.discard(name)
        self._refresh_metrics(_evals_key(result))
        yield from self._progress()

    def _progress(self) -> _Steps:
        self._refresh(self._stamp())
        if self._rewrites:
            yield from self._write_job_result()

    # A trial.

    def _back_off(self, number: int) -> float:
        options = self._options
        wait: float = options.min_wait_seconds * options.wait_multiplier**number
        return min(wait, options.max_wait_seconds)

    def _trial(self, slot: _Slot) -> _Process:
        """One slot's work: execution after execution until none is left to retry."""
        job_log = self.job_dir / "job.log"
        for number in range(self._retry.max_retries + 1):
            run = yield from self._construct_trial(slot, slot.script.execution(number))
            yield from self._execute(run)
            types = [info.exception_type for info in run.result.recorded_exceptions()]
            self._tell("trial_ended", slot.name, ", ".join(types))
            if not types:
                return
            if not all(self._retry.is_retryable(name) for name in types):
                yield from self._append(
                    job_log, "Not retrying trial because an error is excluded by the retry policy"
                )
                return
            if number == self._retry.max_retries:
                yield from self._append(
                    job_log,
                    "Not retrying trial because the maximum number of retries has been reached",
                )
                return
            yield from self._remove(run.paths.trial_dir, slot.name)
            wait = self._back_off(number)
            yield from self._append(
                job_log,
                f"Trial {slot.name} failed with exception {', '.join(types)}. "
                f"Retrying in {wait:.2f} seconds...",
            )
            self._tell("retry", slot.name, ", ".join(types))
            yield _Delay(wait)

    def _construct_trial(self, slot: _Slot, execution: Execution) -> Generator[Step, None, _Run]:
        """Trial.__init__ and the start of run(): everything up to the START hook."""
        paths = TrialPaths(self.job_dir / slot.name)
        trial_id = self._new_id()
        outputs = self._options.outputs
        directories = (paths.agent_dir, paths.verifier_dir, paths.artifacts_dir)
        for directory in directories if outputs else (paths.trial_dir,):
            yield from self._mkdir(directory, slot.name)
        yield from self._write(paths.lock_path, slot.lock_text, slot.name)
        if outputs:
            yield from self._open_log(paths.log_path, "a", slot.name)
            if slot.source is None:
                yield from self._mkdir(paths.artifacts_dir / "logs" / "artifacts", slot.name)
        config = slot.trial_config()
        yield from self._write(paths.config_path, config.model_dump_json(indent=4), slot.name)
        result = TrialResult(
            id=trial_id,
            task_name=slot.script.task,
            trial_name=slot.name,
            trial_uri=paths.trial_dir.as_uri(),
            task_id=config.task.get_task_id(),
            source=config.task.source,
            task_checksum=self._checksum(slot.key),
            config=config,
            agent_info=self._agent_info(slot),
            agent_result=slot.source.agent_result if slot.source is not None else None,
            verifier_environment_mode=VerifierEnvironmentMode(self._options.verifier_mode),
            started_at=self._stamp(),
        )
        return _Run(slot, paths, result, execution)

    def _checksum(self, key: tuple[str, str]) -> str:
        if key not in self._checksums:
            self._checksums[key] = _digest("directory", *key)
        return self._checksums[key]

    def _agent_info(self, slot: _Slot) -> AgentInfo:
        if slot.source is not None:
            return slot.source.agent_info
        model = self._options.model
        return AgentInfo(
            name=self._options.agent,
            version=self._options.agent_version,
            model_info=ModelInfo(name=model) if model is not None else None,
        )

    def _execute(self, run: _Run) -> _Process:
        """Trial.run(): phases, exceptions, cancellation, and result.json whatever happened."""
        name = run.slot.name
        yield from self._on_start(name)
        try:
            failed = yield from self._phases(run)
            if failed:
                yield from self._log(run, f"Trial {name} failed: {run.execution.message}")
                yield from self._record(run, run.execution.exception_type or "", run.execution)
                yield from self._recover(run)
        except _CancelledError:
            yield from self._log(run, f"Trial {name} cancelled")
            yield from self._record(run, "CancelledError", None)
            yield from self._on_cancel(name)
            yield from self._recover(run)
            yield _Delay(CLEAN_UP_SECONDS)
            yield from self._finalize(run)
            raise
        yield from self._finalize(run)

    def _finalize(self, run: _Run) -> _Steps:
        run.result.finished_at = self._stamp()
        yield from self._write(
            run.paths.result_path, run.result.model_dump_json(indent=4), run.slot.name
        )
        yield from self._on_end(run.result)
        self._close_log(run.paths.log_path)

    def _phases(self, run: _Run) -> Generator[Step | _Delay, None, bool]:
        """The phases of an ordinary trial; True if one raised out of the trial."""
        result, execution = run.result, run.execution
        fails = execution.failing_phase
        yield from self._timed(result, "environment_setup", execution.environment)
        if fails == "environment":
            return True
        run.environment_ready = True
        yield from self._timed(result, "agent_setup", execution.agent_setup)
        if fails == "agent_setup":
            return True
        run.agent_started = self._now
        try:
            yield from self._timed(result, "agent_execution", execution.agent)
        except _CancelledError:
            spent = self._now - run.agent_started
            result.agent_result = _share(execution.usage, spent / max(execution.agent, 1e-9))
            raise
        result.agent_result = _share(execution.usage, 1.0)
        if fails == "agent":
            yield from self._record(run, execution.exception_type or "", execution)
        yield from self._sync_outputs(run)
        yield from self._collect(run)
        info = result.exception_info
        if not self._options.verify or (info is not None and not info.policy.should_grade):
            return False
        return (yield from self._verify(run))

    def _verify(self, run: _Run) -> Generator[Step | _Delay, None, bool]:
        result, execution = run.result, run.execution
        yield from self._timed(result, "verifier", execution.verifier)
        if execution.failing_phase == "verifier":
            return True
        if execution.reward is None:
            return False
        name = run.slot.name
        number = float(execution.reward)
        if self._options.outputs:
            text = str(int(number)) if number.is_integer() else str(number)
            yield from self._write(run.paths.test_stdout_path, "", name)
            yield from self._write(run.paths.reward_text_path, f"{text}\n", name)
        result.verifier_result = VerifierResult(rewards={"reward": number})
        return False

    def _timed(
        self, result: TrialResult, phase: _TimedPhase, seconds: float
    ) -> Generator[_Delay, None, None]:
        """Waits, and keeps the phase's times in the result, also when cancelled meanwhile."""
        timing = TimingInfo(started_at=self._stamp())
        setattr(result, phase, timing)
        try:
            yield _Delay(seconds)
        finally:
            timing.finished_at = self._stamp()

    def _record(self, run: _Run, kind: str, execution: Execution | None) -> _Steps:
        """_record_exception: the first one stays; exception.txt holds its traceback."""
        if run.result.exception_info is not None:
            return
        text = "Traceback (most recent call last):\n"
        if execution is None:
            message, text = "", f"{text}asyncio.exceptions.{kind}\n"
        else:
            message, text = execution.message, f"{text}{kind}: {execution.message}\n"
        run.result.exception_info = ExceptionInfo(
            exception_type=kind,
            exception_message=message,
            exception_traceback=text,
            occurred_at=self._stamp(),
        )
        yield from self._write(run.paths.exception_message_path, text, run.slot.name)

    def _recover(self, run: _Run) -> _Steps:
        yield from self._sync_outputs(run)
        yield from self._collect(run)

    def _sync_outputs(self, run: _Run) -> _Steps:
        if run.outputs_synced or run.slot.source is not None:
            return
        run.outputs_synced = True
        if run.agent_started is None or not self._options.outputs:
            return
        yield from self._write(
            run.paths.agent_dir / f"{run.result.agent_info.name}.txt",
            "replayed; no agent ran\n",
            run.slot.name,
        )

    def _collect(self, run: _Run) -> _Steps:
        if run.artifacts_collected or run.slot.source is not None:
            return
        run.artifacts_collected = True
        yield from self._log(run, "Collecting main service artifacts")
        if not self._options.outputs:
            return
        manifest = ArtifactManifest(
            entries=[
                ArtifactManifestEntry(
                    source="/logs/artifacts",
                    destination="artifacts/logs/artifacts",
                    type="directory",
                    status="ok" if run.environment_ready else "failed",
                    exclude=[],
                )
            ]
        )
        yield from self._write(
            run.paths.artifacts_manifest_path,
            json.dumps(manifest.to_json_data(), indent=2),
            run.slot.name,
        )

    def _tell(self, kind: EventKind, trial: str | None = None, detail: str = "") -> None:
        if self._listener is not None:
            self._listener(Event(kind, self.name, trial, detail))


class RegradeReplay(JobReplay):
    """A job that verifies recorded trials of another job anew, as `harbor job regrade` does.

    source: a job directory. verdicts: for each trial name to be regraded how its verifier ends
    (reward or exception, and `verifier` seconds; other phases do not happen). Harbor's command
    takes every trial of a directory; naming fewer here gives what it makes of a directory that
    holds only those. Raises ReplayError if a named trial has no readable result.
    """

    def __init__(
        self,
        jobs_dir: Path,
        name: str,
        source: Path,
        verdicts: Mapping[str, Execution],
        *,
        concurrency: int = 4,
        seed: int = 0,
        options: JobOptions | None = None,
        epoch: datetime | None = None,
        listener: Callable[[Event], None] | None = None,
    ) -> None:
        self._setup(jobs_dir, name, concurrency, 0, seed, options or JobOptions(), listener)
        if self._options.verifier_mode != "separate":
            raise ReplayError("only tasks with a separate verifier environment can be regraded")
        self._source_dir = source.expanduser().resolve()
        self._config = self._regrade_config()
        self._planned = [
            self._regrade_slot(trial_name, verdicts[trial_name]) for trial_name in sorted(verdicts)
        ]
        if not self._planned:
            raise ReplayError("no trials to regrade")
        self._epoch = epoch or self._default_epoch(slot.script for slot in self._planned)
        self._engine = self._main(resuming=False, pause=0.0)

    def _regrade_config(self) -> JobConfig:
        path = self._source_dir / "result.json"
        source_id = JobResult.model_validate_json(path.read_text()).id if path.exists() else None
        return JobConfig(
            job_name=self.name,
            jobs_dir=self.jobs_dir,
            n_concurrent_trials=self.concurrency,
            retry=self._retry,
            environment=EnvironmentConfig(kwargs={REPLAY_MARK: True}),
            datasets=[DatasetConfig(path=Path("datasets") / self._options.dataset)],
            source_jobs=[
                SourceJobConfig(
                    action="regrade", type="local", job_id=source_id, path=self._source_dir
                )
            ],
        )

    def _regrade_slot(self, source_name: str, verdict: Execution) -> _Slot:
        source_dir = self._source_dir / source_name
        source = _read_result(source_dir / "result.json")
        if source is None:
            raise ReplayError(f"{source_dir} has no readable result.json to regrade")
        source_lock = TrialLock.model_validate_json((source_dir / "lock.json").read_text())
        config = self._trial_config(
            source.config.task,
            source.config.agent,
            SourceTrialConfig(
                action="regrade", type="local", trial_id=source.id, path=source_dir.resolve()
            ),
        )
        lock = source_lock.model_copy(
            update={
                "environment": config.environment,
                "verifier": self._verifier_lock(config),
                "source_trial": SourceTrialLock(
                    action="regrade",
                    type="local",
                    trial_id=source.id,
                    path=source_dir.resolve(),
                    task=source_lock.task,
                ),
            }
        )
        key = (source.task_name, str(source.id))
        self._checksums[key] = source.task_checksum
        script = TrialScript(source.task_name, (verdict,), version=str(source.id))
        name = self._new_name(source.task_name)
        self._script_of[name] = script
        return _Slot(key, script, config, lock, _lock_text(lock), source, source_dir, name)

    def _phases(self, run: _Run) -> Generator[Step | _Delay, None, bool]:
        source, source_dir = run.slot.source, run.slot.source_dir
        if source is None or source_dir is None:
            raise ReplayError("a regrade needs its source")
        name, recorded = run.slot.name, TrialPaths(source_dir)
        for origin, target in (
            (recorded.agent_dir, run.paths.agent_dir),
            (recorded.artifacts_dir, run.paths.artifacts_dir),
        ):
            if origin.is_dir():
                shutil.copytree(origin, target, dirs_exist_ok=True)
                yield self._step("copy", target, name)
        failed = yield from self._verify(run)
        if not failed:
            run.result.exception_info = _agent_exception(source)
        return failed


def _agent_exception(source: TrialResult) -> ExceptionInfo | None:
    """What a regrade keeps of its source's exception: the agent's, not the old verifier's."""
    info, verifier = source.exception_info, source.verifier
    if info is None:
        return None
    if verifier is not None and verifier.started_at is not None:
        return info if info.occurred_at <= verifier.started_at else None
    return info if source.verifier_result is not None or verifier is None else None


def _attempt_major(scripts: Iterable[TrialScript]) -> list[TrialScript]:
    """All first attempts in order of first appearance, then all second ones, and so on."""
    seen: Counter[str] = Counter()
    order: dict[str, int] = {}
    keyed: list[tuple[int, int, TrialScript]] = []
    for script in scripts:
        place = order.setdefault(script.task, len(order))
        keyed.append((seen[script.task], place, script))
        seen[script.task] += 1
    return [script for _, _, script in sorted(keyed, key=lambda item: item[:2])]


def _lock_text(lock: TrialLock) -> str:
    text: str = lock.model_dump_json(indent=4, exclude_none=True)
    return text


def _evals_key(result: TrialResult) -> str:
    model = result.agent_info.model_info
    key: str = JobStats.format_agent_evals_key(
        result.agent_info.name,
        model.name if model is not None else None,
        result.source or "adhoc",
    )
    return key


def _read_result(path: Path) -> TrialResult | None:
    try:
        return TrialResult.model_validate_json(path.read_text())
    except (OSError, UnicodeDecodeError, ValidationError):
        return None


def write_finished_job(
    jobs_dir: Path,
    name: str,
    n_tasks: int,
    attempts: int,
    seed: int = 0,
    *,
    concurrency: int = 64,
    pass_ratio: float = 0.4,
    fault_ratio: float = 0.02,
    outputs: bool = False,
) -> JobReplay:
    """Writes a whole finished job of made-up results at once; for benchmarks.

    pass_ratio of the scored trials pass, fault_ratio of all trials end in VerifierTimeoutError.
    outputs: see JobOptions. Same seed, same verdicts, names and ids.
    """
    chance = random.Random(f"{seed}:finished")
    scripts: list[TrialScript] = []
    for _ in range(attempts):
        for task in range(n_tasks):
            faulty = chance.random() < fault_ratio
            agent = round(chance.uniform(60.0, 3600.0), 1)
            execution = Execution(
                reward=None if faulty else float(chance.random() < pass_ratio),
                exception_type="VerifierTimeoutError" if faulty else None,
                agent=agent,
                usage=Usage(round(agent * 900), round(agent * 700), round(agent * 30), agent / 1e4),
            )
            scripts.append(TrialScript(f"task-{task:05d}", (execution,)))
    replay = JobReplay(
        jobs_dir,
        name,
        scripts,
        concurrency=concurrency,
        seed=seed,
        options=JobOptions(outputs=outputs),
    )
    replay.run(rewrites=False)
    return replay


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo scenario; see harborlight.demo.terminal_bench.main."""
    from harborlight.demo.terminal_bench import main as demo  # noqa: PLC0415 - it imports this

    return demo(argv)


if __name__ == "__main__":
    raise SystemExit(main())
