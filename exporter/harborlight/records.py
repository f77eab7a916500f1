"""The records that sources hand to the ledger: what was read, nothing decided.

Every source (job directories, Harbor servers) translates what it sees into these two
shapes. They carry no prompt, message, traceback, path or address, so nothing
behind this point can leak one. Times are seconds since the epoch (UTC). They are msgspec structs
because there are as many of them as a fleet has trials.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class TaskRef(NamedTuple):
    """A task as its job's lock names it: (source, name).

    ``source`` is the dataset ("" for an ad-hoc task).
    """

    source: str
    name: str


class PlannedTrial(msgspec.Struct, frozen=True, omit_defaults=True):
    """``count`` identical entries of a job's lock, or first executions on a server.

    ``cancelled`` of them were cancelled before they began, so that nobody is going to run them.
    ``agent`` is the agent's configured name (or its import path) and ``model``
    the configured model name ("" where there is none). For a regrade,
    ``source_trial`` is the id of the trial it derives from, ``source_task`` that
    trial's own task.
    """

    task: TaskRef
    digest: str | None
    agent: str
    model: str
    count: int
    source_trial: str | None = None
    source_task: TaskRef | None = None
    cancelled: int = 0

    @property
    def due(self) -> int:
        """How many of them the job runs or has run, unless it ends before."""
        return max(0, self.count - self.cancelled)


class JobRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job as its own files describe it.

    ``plan`` is None while no lock could be read. ``incarnation`` is when the job
    was last started or resumed (Harbor rewrites ``config.json`` only then).
    ``changed_timeouts`` and ``changed_resources``: its configuration overrides those of the tasks.
    """

    job_id: str
    name: str
    created_at: float | None = None
    started_at: float | None = None
    updated_at: float | None = None
    finished_at: float | None = None
    n_total: int | None = None
    n_attempts: int | None = None
    n_agents: int = 1
    n_completed: int = 0
    n_running: int = 0
    n_cancelled: int = 0
    n_retries: int = 0
    n_concurrent: int | None = None
    max_retries: int = 0
    retry_include: tuple[str, ...] | None = None
    retry_exclude: tuple[str, ...] = ()
    harbor_version: str = ""
    plan: tuple[PlannedTrial, ...] | None = None
    source_jobs: tuple[str, ...] = ()
    incarnation: float | None = None
    changed_timeouts: bool = False
    changed_resources: bool = False

    @property
    def made(self) -> float:
        """When the job was made, for putting jobs in order; 0 where nothing tells."""
        return self.created_at or self.started_at or 0.0

    @property
    def recency(self) -> tuple[float, bool]:
        """What tells the later of two states of a job."""
        return (self.updated_at or self.started_at or 0.0, self.finished_at is not None)


class TrialRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One execution of one trial.

    ``execution`` is the trial's own id, "" while it is open (Harbor writes the id
    only with the result). ``source_trial`` is the execution a regrade derives
    from. ``verdict_at`` is when the verifier gave its reward. ``reward_valid``
    is Harbor's own verdict on the reward; ``exceptions`` are type names only. ``phase`` is what an
    open execution does, where the recorder or the server tells ("" otherwise). ``own_exception``:
    the type that Harbor recorded for the trial itself, "" where only its steps have any: a job's
    resume looks at no other. ``raised_in``: the phase in which the first exception occurred, ""
    where its time does not tell. ``interrupted``: its process died before it ended, as the recorder
    tells once the job was resumed. ``again``: the server says of an open execution that it is a
    retry, begun or still waiting. ``retry``: it is the so manieth execution of its trial, which
    Harbor retried, and only the job's log tells of it (0 otherwise); ``reward_valid`` is then
    whether a reward would have been.
    Durations are seconds; ``None`` means that the phase did not run.
    """

    job_id: str
    name: str
    execution: str
    task: TaskRef
    digest: str | None = None
    agent: str = ""
    model: str = ""
    agent_label: str = ""
    agent_version: str = ""
    model_label: str = ""
    source_trial: str | None = None
    started_at: float | None = None
    finished_at: float | None = None
    verdict_at: float | None = None
    rewards: tuple[tuple[str, float], ...] = ()
    reward_valid: bool = False
    exceptions: tuple[str, ...] = ()
    own_exception: str = ""
    raised_in: str = ""
    verification_off: bool = False
    phase: str = ""
    interrupted: bool = False
    again: bool = False
    retry: int = 0
    unreadable: bool = False
    separate_verifier: bool = False
    environment_seconds: float | None = None
    agent_setup_seconds: float | None = None
    agent_seconds: float | None = None
    verifier_seconds: float | None = None
    input_tokens: int | None = None
    cache_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    mtime_ns: int = 0

    @property
    def open(self) -> bool:
        """Whether Harbor has not written this execution's result yet."""
        return self.execution == "" and not self.unreadable
