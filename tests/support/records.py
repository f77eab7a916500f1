"""Short ways to say what a source saw, for tests of what is made of it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from harborlight.ledger import Ledger, Store
from harborlight.ledger.book import Rules
from harborlight.ledger.jobs import Job
from harborlight.ledger.ownership import AttemptState, Execution
from harborlight.ledger.standing import RunStanding
from harborlight.records import JobRecord, PlannedTrial, TaskRef, TrialRecord
from harborlight.sources.observation import JobSighting, Observation

TASK = TaskRef("set", "task")
DIGEST = "sha256:" + "1" * 64
OTHER_DIGEST = "sha256:" + "2" * 64


def trial(
    name: str,
    execution: str = "",
    *,
    job: str = "job",
    reward: float | None = None,
    exceptions: tuple[str, ...] = (),
    at: float = 100.0,
    **fields: Any,
) -> TrialRecord:
    """An execution; with a reward it is scored, with an execution id alone a fault."""
    record = TrialRecord(
        job_id=job,
        name=name,
        execution=execution,
        task=TASK,
        digest=DIGEST,
        agent="agent",
        model="model",
        started_at=at - 10,
        finished_at=at if execution else None,
        verdict_at=at if execution else None,
        rewards=(("reward", reward),) if reward is not None else (),
        reward_valid=reward is not None,
        exceptions=exceptions,
        own_exception=exceptions[0] if exceptions else "",
        agent_seconds=5.0,
        verifier_seconds=1.0,
    )
    return replace(record, **fields)


def logged(
    name: str, number: int, exception: str = "ApiError", *, job: str = "job", **fields: Any
) -> TrialRecord:
    """The ``number``-th execution of a trial, retried by Harbor, as only the job's log tells it."""
    record = TrialRecord(
        job_id=job,
        name=name,
        execution=f"{job}/{name}#{number}",
        task=TASK,
        digest=DIGEST,
        agent="agent",
        model="model",
        exceptions=(exception,),
        reward_valid=exception == "ValueError",
        retry=number,
    )
    return replace(record, **fields)


def plan(count: int, task: TaskRef = TASK, digest: str = DIGEST, **fields: Any) -> PlannedTrial:
    return replace(PlannedTrial(task, digest, "agent", "model", count), **fields)


def job_record(
    job_id: str = "job", *entries: PlannedTrial, created: float = 1.0, **fields: Any
) -> JobRecord:
    record = JobRecord(
        job_id=job_id,
        name=fields.pop("name", job_id),
        created_at=created,
        started_at=created,
        updated_at=created,
        n_total=sum(entry.count for entry in entries),
        plan=tuple(entries),
        incarnation=created,
    )
    return replace(record, **fields)


def live(job_id: str = "job", **fields: Any) -> Job:
    return Job(job_record(job_id, **fields), job_id, held=True, seen_held=True)


def finished(job_id: str = "job", **fields: Any) -> Job:
    return Job(job_record(job_id, finished_at=1000.0, **fields), job_id)


def executions(*records: TrialRecord) -> list[Execution]:
    return [Execution(record) for record in records]


class Watched:
    """A ledger that is told what a source saw, job by job."""

    def __init__(self, rules: Rules | None = None, store: Store | None = None) -> None:
        self.ledger = Ledger(store or Store.throw_away(), rules)
        self._present: set[str] = set()

    def see(
        self,
        job: JobRecord,
        *trials: TrialRecord,
        held: bool | None = None,
        listing: frozenset[str] | None = None,
        **fields: Any,
    ) -> None:
        self._present.add(job.job_id)
        sighting = JobSighting(record=job, held=held, listing=listing, origin=job.name, **fields)
        self.ledger.take(
            Observation(
                jobs={job.job_id: sighting}, trials=trials, present_jobs=frozenset(self._present)
            )
        )
        self.ledger.commit()

    def run(self, label: str | None = None) -> RunStanding:
        runs = {run.label: run for run in self.ledger.runs()}
        if label is None:
            assert len(runs) == 1, list(runs)
            return next(iter(runs.values()))
        return runs[label]

    def counter(self, run: str, metric: str, *labels: str) -> float:
        return self.ledger.counters().get(run, {}).get(metric, {}).get(labels, 0.0)


def states(run: RunStanding) -> str:
    """The five states as scored/running/queued/faulted/unplanned."""
    return "/".join(str(run.states[state]) for state in AttemptState)
