"""What a server says of jobs and rollouts, as the records of every source (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from harborlight.records import JobRecord, PlannedTrial, TrialRecord
from harborlight.sources.harbor_files import JobConfig, configured_job, read_trial_result
from harborlight.sources.harbor_server.answers import JobSummary, Rollout

_NS: Final = 1_000_000_000


def configured_model(rollout: Rollout, config: JobConfig) -> str:
    """The model as it is configured.

    Where none is, a server shows the one that the agent told, once it has: which would make another
    evaluation of the trial, in the midst of it.
    """
    if (rollout.agent, rollout.model) in config.agents:
        return rollout.model
    return "" if (rollout.agent, "") in config.agents else rollout.model


def planned(rollouts: Mapping[str, Rollout], config: JobConfig) -> tuple[PlannedTrial, ...]:
    """The job's plan: its trials, whatever number of executions each has had.

    ``rollouts``: the job's, by id. A trial of which nothing was begun and nothing is going to be is
    among the cancelled ones.
    """
    trials: dict[str, Rollout] = {}
    alive: set[str] = set()
    for rollout in rollouts.values():
        trial = rollout.chain[-1]
        if trial not in trials or rollout.id == trial:
            trials[trial] = rollout
        if not rollout.terminal or rollout.ran:
            alive.add(trial)
    counts: Counter[PlannedTrial] = Counter()
    cancelled: Counter[PlannedTrial] = Counter()
    for trial, rollout in trials.items():
        model = configured_model(rollout, config)
        entry = PlannedTrial(rollout.task, rollout.digest, rollout.agent, model, 1)
        counts[entry] += 1
        cancelled[entry] += trial not in alive
    return tuple(
        replace(entry, count=count, cancelled=cancelled[entry]) for entry, count in counts.items()
    )


def job_record(
    job: JobSummary, plan: tuple[PlannedTrial, ...], config: JobConfig, *, settled: bool
) -> JobRecord:
    """The job's record. ``settled``: every result is known, so that its end may be told."""
    ended = job.terminal and settled
    return replace(
        configured_job(job.id, job.name, config),
        created_at=job.created_at,
        started_at=job.started_at or job.created_at,
        updated_at=job.updated_at,
        finished_at=job.finished_at or job.updated_at if ended and not _cancelled(job) else None,
        n_total=sum(entry.count for entry in plan),
        n_completed=job.n_terminal,
        n_running=0 if ended else job.n_at_work,
        # Of a job that goes on, single trials that were cancelled say nothing.
        n_cancelled=max(1, job.n_cancelled) if ended and _cancelled(job) else 0,
        n_retries=job.n_retries,
        plan=plan,
    )


def _cancelled(job: JobSummary) -> bool:
    return job.state == "cancelled"


def waits_for_retry(rollout: Rollout, rollouts: Mapping[str, Rollout]) -> bool:
    """Whether it is to be begun again, after an execution that ran."""
    return not (rollout.terminal or rollout.at_work) and _retries(rollout, rollouts)


def _retries(rollout: Rollout, rollouts: Mapping[str, Rollout]) -> bool:
    return any(rollouts[one].ran for one in _older(rollout) if one in rollouts)


def _older(rollout: Rollout) -> tuple[str, ...]:
    """The ids of the executions before it, the newest first."""
    return rollout.chain[rollout.chain.index(rollout.id) + 1 :]


def open_trial(
    rollout: Rollout, rollouts: Mapping[str, Rollout], config: JobConfig, at: float
) -> TrialRecord:
    """An execution that runs or waits to be retried, as seen at ``at``.

    ``rollouts``: the job's, by id.
    """
    model = configured_model(rollout, config)
    return TrialRecord(
        job_id=rollout.job_id,
        name=rollout.name,
        execution="",
        task=rollout.task,
        digest=rollout.digest,
        agent=rollout.agent,
        model=model,
        model_label=model,
        started_at=rollout.started_at or rollout.created_at,
        phase=rollout.phase if rollout.at_work else "",
        again=_retries(rollout, rollouts),
        mtime_ns=int(at * _NS),
    )


def ended_trial(rollout: Rollout, result: bytes | None, config: JobConfig) -> TrialRecord:
    """An execution that is over, by its result; by what the list says of it where it has none.

    Raises FileError where the result is not what Harbor writes.
    """
    record = _without_result(rollout, config) if result is None else read_trial_result(result)
    finished = record.finished_at or rollout.finished_at or rollout.updated_at
    return replace(
        record,
        job_id=rollout.job_id,
        name=rollout.name,
        execution=rollout.id,
        task=rollout.task,
        digest=rollout.digest,
        # Not when the server was done with it: the retry is made before that.
        mtime_ns=int(finished * _NS),
    )


def _without_result(rollout: Rollout, config: JobConfig) -> TrialRecord:
    model = configured_model(rollout, config)
    return TrialRecord(
        job_id=rollout.job_id,
        name=rollout.name,
        execution=rollout.id,
        task=rollout.task,
        agent=rollout.agent,
        model=model,
        model_label=model,
        started_at=rollout.started_at,
        finished_at=rollout.finished_at,
        verdict_at=rollout.finished_at,
        rewards=rollout.rewards,
        reward_valid=bool(rollout.rewards),
        exceptions=(rollout.exception,) if rollout.exception else (),
        own_exception=rollout.exception,
        input_tokens=rollout.input_tokens,
        cache_tokens=rollout.cache_tokens,
        output_tokens=rollout.output_tokens,
        cost_usd=rollout.cost_usd,
    )


def given_up_retries(rollouts: Mapping[str, Rollout]) -> dict[str, float]:
    """When an execution became its trial's last one again, by its id.

    Its retry was cancelled before it began: that never was an execution, but was shown waiting.
    """
    again: dict[str, float] = {}
    for rollout in rollouts.values():
        if rollout.terminal and not rollout.ran:
            before = next((i for i in _older(rollout) if i in rollouts and rollouts[i].ran), None)
            if before is not None:
                ended = rollout.finished_at or rollout.updated_at
                again[before] = max(again.get(before, 0.0), ended)
    return again


def standing_again(record: TrialRecord, since: float | None) -> TrialRecord:
    """The record of an execution that is its trial's last one again, so that it counts as new."""
    if since is None:
        return record
    return replace(record, mtime_ns=max(record.mtime_ns, int(since * _NS)))
