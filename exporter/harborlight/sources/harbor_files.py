"""What Harbor's JSON files mean, from Harbor 0.1 to 0.26, as records.

Only the fields that are kept are decoded: no message, traceback, path, prompt or
metadata is ever built as an object here, let alone handed on. Each function
takes the bytes of one file and raises FileError where they are not what Harbor
writes.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, overload

import msgspec
from harbor.models.trial.error_policy import ErrorPolicyOverride, policy_for

from harborlight.records import JobRecord, PlannedTrial, TaskRef, TrialRecord

EXCEPTION_TYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,79}")
UNNAMED_EXCEPTION = "other"
MAX_REWARD_KEYS = 64
MAX_ID_LENGTH = 64
MAX_NAME_LENGTH = 255
"""A trial's name is a directory's name."""
MAX_COUNT = 2**53
"""A count beyond this is none: it could not even be shown as a float."""


class FileError(Exception):
    """A file that can be read but is not what Harbor writes; the text says what was expected."""


class _Timing(msgspec.Struct):
    started_at: datetime | None = None
    finished_at: datetime | None = None


class _PolicyOverride(msgspec.Struct):
    should_retry: bool | None = None
    should_grade: bool | None = None
    has_valid_reward: bool | None = None


class _Exception(msgspec.Struct):
    exception_type: str
    occurred_at: Any = None  # only a help, and nothing to call a result unreadable for
    policy_override: _PolicyOverride | None = None


class _Usage(msgspec.Struct):
    n_input_tokens: int | None = None
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None


class _Rewards(msgspec.Struct):
    rewards: dict[str, float] | None = None


class _Step(msgspec.Struct):
    agent_result: _Usage | None = None
    exception_info: _Exception | None = None
    agent_execution: _Timing | None = None
    verifier: _Timing | None = None


class _Task(msgspec.Struct):
    path: str | None = None
    name: str | None = None
    source: str | None = None


class _Agent(msgspec.Struct):
    name: str | None = None
    import_path: str | None = None
    model_name: str | None = None


class _Verifier(msgspec.Struct):
    disable: bool = False


class _SourceTrial(msgspec.Struct):
    trial_id: str | None = None


class _TrialConfig(msgspec.Struct):
    task: _Task
    schema_version: Literal[1] = 1
    trial_name: str = ""
    job_id: str | None = None
    agent: _Agent = msgspec.field(default_factory=_Agent)
    verifier: _Verifier = msgspec.field(default_factory=_Verifier)
    install_only: bool = False
    source_trial: _SourceTrial | None = None


class _ModelInfo(msgspec.Struct):
    name: str


class _AgentInfo(msgspec.Struct):
    name: str
    version: str = ""
    model_info: _ModelInfo | None = None


class _TrialResult(msgspec.Struct):
    id: str
    task_name: str
    trial_name: str
    config: _TrialConfig
    agent_info: _AgentInfo
    schema_version: Literal[1] = 1
    source: str | None = None
    agent_result: _Usage | None = None
    verifier_result: _Rewards | None = None
    verifier_environment_mode: str | None = None
    exception_info: _Exception | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    environment_setup: _Timing | None = None
    agent_setup: _Timing | None = None
    agent_execution: _Timing | None = None
    verifier: _Timing | None = None
    step_results: list[_Step] | None = None


class _LockedTask(msgspec.Struct):
    name: str
    digest: str | None = None
    source: str | None = None


class _LockedSourceTrial(msgspec.Struct):
    trial_id: str | None = None
    task: _LockedTask | None = None


class _TrialLock(msgspec.Struct):
    task: _LockedTask
    agent: _Agent = msgspec.field(default_factory=_Agent)
    source_trial: _LockedSourceTrial | None = None


class _Harbor(msgspec.Struct):
    version: str | None = None


class _JobLock(msgspec.Struct):
    trials: list[_TrialLock]
    created_at: datetime | None = None
    harbor: _Harbor = msgspec.field(default_factory=_Harbor)


class _Retry(msgspec.Struct):
    max_retries: int = 0
    include_exceptions: list[str] | None = None
    exclude_exceptions: list[str] | None = None


class _SourceJob(msgspec.Struct):
    job_id: str | None = None


# What only has to be told from a default may be of any kind.


class _JobAgent(_Agent):
    override_timeout_sec: Any = None
    override_setup_timeout_sec: Any = None
    max_timeout_sec: Any = None


class _JobVerifier(msgspec.Struct):
    override_timeout_sec: Any = None
    max_timeout_sec: Any = None


class _JobEnvironment(msgspec.Struct):
    override_cpus: Any = None
    override_memory_mb: Any = None
    override_storage_mb: Any = None
    override_gpus: Any = None
    override_tpu: Any = None


class _JobConfig(msgspec.Struct):
    n_attempts: int | None = None
    n_concurrent_trials: int | None = None
    timeout_multiplier: Any = None
    agent_timeout_multiplier: Any = None
    verifier_timeout_multiplier: Any = None
    agent_setup_timeout_multiplier: Any = None
    environment_build_timeout_multiplier: Any = None
    environment: _JobEnvironment | None = None
    verifier: _JobVerifier | None = None
    retry: _Retry = msgspec.field(default_factory=_Retry)
    agents: list[_JobAgent] = []
    source_jobs: list[_SourceJob] | None = None


class _JobStats(msgspec.Struct):
    # Harbor up to 0.1.45 wrote n_trials and n_errors only.
    n_trials: int | None = None
    n_completed_trials: int | None = None
    n_running_trials: int | None = None
    n_cancelled_trials: int | None = None
    n_retries: int | None = None


class _JobStatus(msgspec.Struct):
    # Some versions wrote the counts in a block of their own.
    updated_at: datetime | None = None
    n_completed_trials: int | None = None
    n_running_trials: int | None = None
    n_cancelled_trials: int | None = None
    n_retries: int | None = None


class _JobResult(msgspec.Struct):
    # What Harbor requires is required: a trial's result in a job's place is not a job.
    id: str
    n_total_trials: int
    started_at: datetime
    updated_at: datetime | None = None
    finished_at: datetime | None = None
    stats: _JobStats | None = None
    status: _JobStatus | None = None


_trial_result = msgspec.json.Decoder(_TrialResult)
_trial_config = msgspec.json.Decoder(_TrialConfig)
_trial_lock = msgspec.json.Decoder(_TrialLock)
_job_result = msgspec.json.Decoder(_JobResult)
_job_lock = msgspec.json.Decoder(_JobLock)
_job_config = msgspec.json.Decoder(_JobConfig)


def decode[T](decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """What the decoder makes of it; a FileError that holds nothing of the data."""
    try:
        # The decoder skips what it does not keep without looking at its encoding.
        str(data, "utf-8")
        return decoder.decode(data)
    except UnicodeDecodeError:
        raise FileError("expected UTF-8 text") from None
    except msgspec.ValidationError as error:
        # Names the expected type and the field, never the value.
        raise FileError(re.sub(r"`\$(.*)`$", r"field \1", str(error))[:200]) from None
    except msgspec.DecodeError:
        raise FileError("expected one complete JSON document") from None
    except (RecursionError, OverflowError, ValueError):
        raise FileError("expected a JSON document with ordinary values") from None


def locked_name(task: _Task) -> str:
    """The name that a job's lock gives to a configured task.

    Harbor's own rule (``get_task_id().get_name()``): a package task's registry name, else the last
    component of its path.
    """
    if task.name:
        return task.name
    return (task.path or "").rstrip("/").rpartition("/")[2] or "unnamed"


def _agent_key(agent: _Agent) -> str:
    return sys.intern(agent.name or agent.import_path or "")


@functools.lru_cache(maxsize=4096)
def task_ref(source: str | None, name: str) -> TaskRef:
    """One object for the many trials of a task."""
    return TaskRef(sys.intern(source or ""), sys.intern(name))


@overload
def epoch(moment: datetime, offset: float = 0.0) -> float: ...
@overload
def epoch(moment: None, offset: float = 0.0) -> None: ...
@overload
def epoch(moment: datetime | None, offset: float = 0.0) -> float | None: ...
def epoch(moment: datetime | None, offset: float = 0.0) -> float | None:
    """Seconds since the epoch; a naive time is local with ``offset`` seconds to UTC added."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC).timestamp() + offset
    return moment.timestamp()


def _seconds(timing: _Timing | None) -> float | None:
    if timing is None or timing.started_at is None or timing.finished_at is None:
        return None
    try:
        return max(0.0, (timing.finished_at - timing.started_at).total_seconds())
    except TypeError:  # one of them without a zone
        return max(0.0, epoch(timing.finished_at, 0.0) - epoch(timing.started_at, 0.0))


def exception_name(name: str) -> str:
    """The type name if it looks like one, else ``other``."""
    return sys.intern(name) if EXCEPTION_TYPE.fullmatch(name) else UNNAMED_EXCEPTION


def _has_valid_reward(exception: _Exception) -> bool:
    override = exception.policy_override
    if override is None:
        return policy_for(exception.exception_type).has_valid_reward
    given = ErrorPolicyOverride(
        should_retry=override.should_retry,
        should_grade=override.should_grade,
        has_valid_reward=override.has_valid_reward,
    )
    return policy_for(exception.exception_type, given).has_valid_reward


def _raised_in(exception: _Exception, *phases: tuple[str, _Timing | None]) -> str:
    """The latest of ``phases`` that had begun when it occurred, "" where no time tells.

    Harbor goes on to verify after an agent's exception, so the last phase that ran need not be it.
    """
    try:
        occurred = datetime.fromisoformat(exception.occurred_at)
        return next(
            phase
            for phase, timing in phases
            if timing is not None
            and timing.started_at is not None
            and timing.started_at <= occurred
        )
    except (TypeError, ValueError, StopIteration):  # or a time without a zone, until Harbor 0.20
        return ""


def leave_reward_valid(exceptions: Iterable[str]) -> bool:
    """Whether a reward given beside exceptions of these types counts, by Harbor's error policy."""
    return all(policy_for(name).has_valid_reward for name in exceptions)


def trial_name_stem(task_name: str) -> str:
    """What the names of a task's trials begin with, before ``__`` and seven random characters.

    Harbor's own rule (``TrialConfig.generate_trial_name``).
    """
    return task_name.rpartition("/")[2][:32].rstrip("_-")


def _total[N: (int, float)](values: Iterable[N | None]) -> N | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def read_trial_result(data: bytes, mtime_ns: int = 0) -> TrialRecord:
    """A trial's ``result.json``. Its ``digest`` is not in there and stays None."""
    result = decode(_trial_result, data)
    config = result.config
    rewards = (result.verifier_result.rewards if result.verifier_result else None) or {}
    for value in rewards.values():
        if not math.isfinite(value):
            raise FileError("expected finite rewards")
    exceptions = [result.exception_info] if result.exception_info else []
    verifier = result.verifier
    agent_seconds, verifier_seconds = _seconds(result.agent_execution), _seconds(verifier)
    usage = result.agent_result or _Usage()
    raised_in = ""
    if result.exception_info:
        raised_in = _raised_in(
            result.exception_info,
            ("verifier", verifier),
            ("agent", result.agent_execution),
            ("agent", result.agent_setup),
            ("environment", result.environment_setup),
        )
    if result.step_results:
        # A multi-step trial has all of this in its steps, and null at its own level.
        steps = result.step_results
        failed = [(step, step.exception_info) for step in steps if step.exception_info]
        exceptions += [exception for _, exception in failed]
        if failed and result.exception_info is None:
            step, exception = failed[0]
            raised_in = _raised_in(
                exception, ("verifier", step.verifier), ("agent", step.agent_execution)
            )
        agent_seconds = _total([agent_seconds, *(_seconds(s.agent_execution) for s in steps)])
        verifier_seconds = _total([verifier_seconds, *(_seconds(s.verifier) for s in steps)])
        verified = [step.verifier for step in steps if step.verifier and step.verifier.finished_at]
        verifier = verified[-1] if verified else verifier
        if result.agent_result is None:
            usage = _summed([step.agent_result for step in steps if step.agent_result])
    finished_at = epoch(result.finished_at)
    verdict_at = epoch(verifier.finished_at) if verifier else None
    info = result.agent_info
    model = sys.intern(config.agent.model_name or "")
    source = config.source_trial
    return TrialRecord(
        job_id=sys.intern(_id(config.job_id)) if config.job_id else "",
        name=checked_name(result.trial_name),
        execution=_id(result.id),
        task=task_ref(result.source or config.task.source, locked_name(config.task)),
        agent=_agent_key(config.agent),
        model=model,
        agent_label=sys.intern(info.name),
        agent_version=sys.intern(info.version),
        model_label=sys.intern(info.model_info.name) if info.model_info else model,
        source_trial=(source.trial_id or "") if source else None,
        started_at=epoch(result.started_at),
        finished_at=finished_at,
        verdict_at=finished_at if verdict_at is None else verdict_at,
        rewards=kept_rewards(rewards),
        reward_valid=bool(rewards) and all(map(_has_valid_reward, exceptions)),
        exceptions=(
            tuple(dict.fromkeys(exception_name(e.exception_type) for e in exceptions))
            if exceptions
            else ()
        ),
        own_exception=(
            exception_name(result.exception_info.exception_type) if result.exception_info else ""
        ),
        raised_in=raised_in,
        verification_off=config.verifier.disable or config.install_only,
        separate_verifier=result.verifier_environment_mode == "separate",
        environment_seconds=_seconds(result.environment_setup),
        agent_setup_seconds=_seconds(result.agent_setup),
        agent_seconds=agent_seconds,
        verifier_seconds=verifier_seconds,
        input_tokens=amount(usage.n_input_tokens),
        cache_tokens=amount(usage.n_cache_tokens),
        output_tokens=amount(usage.n_output_tokens),
        cost_usd=amount(usage.cost_usd),
        mtime_ns=mtime_ns,
    )


def _summed(usages: list[_Usage]) -> _Usage:
    return _Usage(
        _total(usage.n_input_tokens for usage in usages),
        _total(usage.n_cache_tokens for usage in usages),
        _total(usage.n_output_tokens for usage in usages),
        _total(usage.cost_usd for usage in usages),
    )


def kept_rewards(rewards: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """All rewards; of an absurd number of them ``reward`` and the first ones."""
    keys = sorted(rewards, key=lambda key: (key != "reward", key)) if len(rewards) > 1 else rewards
    return tuple((sys.intern(key), rewards[key]) for key in itertools.islice(keys, MAX_REWARD_KEYS))


def read_trial_config(data: bytes) -> TrialRecord:
    """A trial's ``config.json``: who an open trial is. ``started_at`` is the reader's to add."""
    config = decode(_trial_config, data)
    model = sys.intern(config.agent.model_name or "")
    return TrialRecord(
        job_id=sys.intern(_id(config.job_id)) if config.job_id else "",
        name=checked_name(config.trial_name),
        execution="",
        task=task_ref(config.task.source, locked_name(config.task)),
        agent=_agent_key(config.agent),
        model=model,
        model_label=model,
        source_trial=config.source_trial.trial_id or "" if config.source_trial else None,
        verification_off=config.verifier.disable or config.install_only,
    )


@dataclass(frozen=True, slots=True)
class TrialLock:
    """What only a trial's ``lock.json`` tells: the digest and a regrade's source."""

    task: TaskRef
    digest: str | None
    agent: str
    model: str
    source_trial: str | None


def read_trial_lock(data: bytes) -> TrialLock:
    """A trial's ``lock.json`` (Harbor 0.17 and later)."""
    lock = decode(_trial_lock, data)
    return TrialLock(
        task=task_ref(lock.task.source, lock.task.name),
        digest=lock.task.digest,
        agent=_agent_key(lock.agent),
        model=sys.intern(lock.agent.model_name or ""),
        source_trial=lock.source_trial.trial_id or "" if lock.source_trial else None,
    )


@dataclass(frozen=True, slots=True)
class JobResult:
    """A job's ``result.json``; naive times are still to be placed with ``utc_offset``."""

    job_id: str
    started_at: datetime | None
    updated_at: datetime | None
    finished_at: datetime | None
    n_total: int | None
    n_completed: int
    n_running: int
    n_cancelled: int
    n_retries: int


def read_job_result(data: bytes) -> JobResult:
    """A job's ``result.json``; the per-trial lists in it are skipped."""
    result = decode(_job_result, data)
    stats, status = result.stats or _JobStats(), result.status or _JobStatus()
    return JobResult(
        job_id=sys.intern(_id(result.id)),
        started_at=result.started_at,
        updated_at=result.updated_at or status.updated_at,
        finished_at=result.finished_at,
        n_total=known_count(result.n_total_trials),
        n_completed=known_count(stats.n_completed_trials, stats.n_trials, status.n_completed_trials)
        or 0,
        n_running=known_count(stats.n_running_trials, status.n_running_trials) or 0,
        n_cancelled=known_count(stats.n_cancelled_trials, status.n_cancelled_trials) or 0,
        n_retries=known_count(stats.n_retries, status.n_retries) or 0,
    )


def known_count(*values: int | None) -> int | None:
    """The first value that is there; a negative count is zero, an absurd one is none."""
    for value in values:
        if value is not None:
            return max(0, value) if value <= MAX_COUNT else None
    return None


def amount[N: (int, float)](value: N | None) -> N | None:
    """What was used up, unless it is negative or absurd."""
    return value if value is not None and 0 <= value <= MAX_COUNT else None


def _id(text: str) -> str:
    """An id as it is, if it can be one."""
    if not 0 < len(text) <= MAX_ID_LENGTH or "\0" in text:
        raise FileError("expected an id of 1 to 64 characters")
    return text


def checked_name(text: str) -> str:
    """A trial's name as it is ("" where there is none), if it can be one."""
    if len(text) > MAX_NAME_LENGTH or "\0" in text:
        raise FileError("expected a name of at most 255 characters")
    return text


@dataclass(frozen=True, slots=True)
class JobLock:
    """A job's ``lock.json``: the plan, equal entries together."""

    created_at: float | None
    harbor_version: str
    plan: tuple[PlannedTrial, ...]


def read_job_lock(data: bytes) -> JobLock:
    """A job's ``lock.json``: the only place that tells what is planned."""
    lock = decode(_job_lock, data)
    entries = Counter(
        PlannedTrial(
            task=task_ref(trial.task.source, trial.task.name),
            digest=sys.intern(trial.task.digest) if trial.task.digest else None,
            agent=_agent_key(trial.agent),
            model=sys.intern(trial.agent.model_name or ""),
            count=1,
            source_trial=source.trial_id or "" if (source := trial.source_trial) else None,
            source_task=(
                task_ref(source.task.source, source.task.name) if source and source.task else None
            ),
        )
        for trial in lock.trials
    )
    return JobLock(
        created_at=epoch(lock.created_at),
        harbor_version=(lock.harbor.version or "")[:64],
        plan=tuple(
            PlannedTrial(e.task, e.digest, e.agent, e.model, n, e.source_trial, e.source_task)
            for e, n in entries.items()
        ),
    )


@dataclass(frozen=True, slots=True)
class JobConfig:
    """What a job's ``config.json`` tells that is kept.

    ``agents``: the names (or import paths) and models that are configured, "" for no model.
    """

    n_attempts: int | None = None
    n_concurrent: int | None = None
    n_agents: int = 1
    max_retries: int = 0
    retry_include: tuple[str, ...] | None = None
    retry_exclude: tuple[str, ...] = ()
    source_jobs: tuple[str, ...] = ()
    changed_timeouts: bool = False
    changed_resources: bool = False
    agents: tuple[tuple[str, str], ...] = ()


def read_job_config(data: bytes) -> JobConfig:
    """A job's ``config.json``."""
    config = decode(_job_config, data)
    include = config.retry.include_exceptions
    return JobConfig(
        n_attempts=known_count(config.n_attempts),
        n_concurrent=known_count(config.n_concurrent_trials),
        n_agents=max(1, len(config.agents)),
        max_retries=known_count(config.retry.max_retries) or 0,
        retry_include=tuple(include) if include is not None else None,
        retry_exclude=tuple(config.retry.exclude_exceptions or ()),
        source_jobs=tuple(job.job_id for job in config.source_jobs or () if job.job_id),
        changed_timeouts=_changes_timeouts(config),
        changed_resources=_changes(config.environment),
        agents=tuple((_agent_key(agent), agent.model_name or "") for agent in config.agents),
    )


def _changes_timeouts(config: _JobConfig) -> bool:
    multipliers = (
        config.timeout_multiplier,
        config.agent_timeout_multiplier,
        config.verifier_timeout_multiplier,
        config.agent_setup_timeout_multiplier,
        config.environment_build_timeout_multiplier,
    )
    return (
        any(multiplier not in (None, 1) for multiplier in multipliers)
        or _changes(config.verifier)
        or any(
            value is not None
            for agent in config.agents
            for value in (
                agent.override_timeout_sec,
                agent.override_setup_timeout_sec,
                agent.max_timeout_sec,
            )
        )
    )


def _changes(overrides: _JobEnvironment | _JobVerifier | None) -> bool:
    """Whether any of them is set."""
    return overrides is not None and any(
        value is not None for value in msgspec.structs.asdict(overrides).values()
    )


def utc_offset(naive: datetime | None, absolute: float | None) -> float:
    """Seconds to add to a naive local time, from one moment known both ways.

    Rounded to the 15 minutes that time zones are made of; 0 where nothing is known.
    """
    if naive is None or absolute is None or naive.tzinfo is not None:
        return 0.0
    quarter = 15 * 60
    offset = round((absolute - naive.replace(tzinfo=UTC).timestamp()) / quarter) * quarter
    return float(offset) if abs(offset) <= 15 * 3600 else 0.0


def configured_job(job_id: str, name: str, config: JobConfig) -> JobRecord:
    """A job's record with what its configuration says, and nothing else."""
    return JobRecord(
        job_id=job_id,
        name=name,
        n_attempts=config.n_attempts,
        n_agents=config.n_agents,
        n_concurrent=config.n_concurrent,
        max_retries=config.max_retries,
        retry_include=config.retry_include,
        retry_exclude=config.retry_exclude,
        source_jobs=config.source_jobs,
        changed_timeouts=config.changed_timeouts,
        changed_resources=config.changed_resources,
    )


def assemble_job(
    job_id: str,
    name: str,
    result: JobResult | None,
    lock: JobLock | None,
    config: JobConfig | None,
    *,
    incarnation: float | None,
    result_written: float | None,
) -> JobRecord:
    """One record from a job's files, whichever of them could be read.

    ``incarnation`` and ``result_written`` are the modification times of ``config.json`` and
    ``result.json``. Naive times get their zone from the lock's absolute creation time, else from
    when the result was written.
    """
    record = msgspec.structs.replace(
        configured_job(job_id, name, config or JobConfig()),
        created_at=lock.created_at if lock else None,
        harbor_version=lock.harbor_version if lock else "",
        plan=lock.plan if lock else None,
        incarnation=incarnation,
    )
    if result is None:
        return record
    if lock and lock.created_at is not None:
        offset = utc_offset(result.started_at, lock.created_at)
    else:
        offset = utc_offset(result.updated_at or result.finished_at, result_written)
    return msgspec.structs.replace(
        record,
        started_at=epoch(result.started_at, offset),
        updated_at=epoch(result.updated_at or result.finished_at, offset),
        finished_at=epoch(result.finished_at, offset),
        n_total=result.n_total,
        n_completed=result.n_completed,
        n_running=result.n_running,
        n_cancelled=result.n_cancelled,
        n_retries=result.n_retries,
    )
