"""What a Harbor server's JSON answers mean.

Only the fields that are kept are decoded: the answers about one job and one rollout hold prompts,
messages, paths and credentials, and none of these is ever built as an object here. Each function
takes the bytes of one answer, or of one entry of a list, and raises FileError where they are not
what a server answers. Times are seconds since the epoch (UTC).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from harborlight.records import TaskRef
from harborlight.sources.harbor_files import (
    FileError,
    amount,
    checked_name,
    decode,
    epoch,
    exception_name,
    kept_rewards,
    known_count,
    task_ref,
)

MAX_TOKEN_CHARACTERS: Final = 4096
"""Harbor takes no longer ones either."""

_MAX_CHAIN: Final = 1000
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

type State = Literal["queued", "running", "paused", "cancelling", "finished", "cancelled"]

TERMINAL: Final = ("finished", "cancelled")
AT_WORK: Final = ("running", "cancelling")


class _Task(msgspec.Struct):
    name: str
    digest: str | None = None
    source: str | None = None


class _Named(msgspec.Struct):
    name: str | None = None


class _Usage(msgspec.Struct):
    n_input_tokens: int | None = None
    n_cached_input_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None


class _Rollout(msgspec.Struct):
    id: str
    job_id: str
    name: str
    state: State
    task: _Task
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    retry_ids: list[str] = []
    phase: str | None = None
    agent: _Named = msgspec.field(default_factory=_Named)
    model: _Named = msgspec.field(default_factory=_Named)
    rewards: dict[str, float | None] | None = None
    usage: _Usage = msgspec.field(default_factory=_Usage)
    error_type: str | None = None


class _Counts(msgspec.Struct):
    n_total: int
    n_running: int = 0
    n_cancelling: int = 0
    n_cancelled: int = 0
    n_finished: int = 0


class _Job(msgspec.Struct):
    id: str
    name: str
    state: State
    created_at: datetime
    updated_at: datetime
    rollouts: _Counts
    started_at: datetime | None = None
    finished_at: datetime | None = None
    n_retries: int = 0


class _Page(msgspec.Struct):
    items: list[msgspec.Raw]
    next_page_token: str = ""


class _OneRollout(msgspec.Struct):
    rollout: msgspec.Raw


class _Result(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw(b"null")


class _Config(msgspec.Struct):
    config: msgspec.Raw


class _OneJob(msgspec.Struct):
    job: _Config


_page = msgspec.json.Decoder(_Page)
_rollout = msgspec.json.Decoder(_Rollout)
_job = msgspec.json.Decoder(_Job)
_one_rollout = msgspec.json.Decoder(_OneRollout)
_result = msgspec.json.Decoder(_Result)
_one_job = msgspec.json.Decoder(_OneJob)


class Rollout(msgspec.Struct, frozen=True, gc=False):
    """One execution as a server lists it.

    ``chain``: the ids of all executions of its trial, the newest first. ``agent`` and ``model`` as
    configured, or as the agent told them where no model is. ``rewards``: those that are valid.
    ``exception``: the first exception's type, "" where there is none.
    """

    id: str
    job_id: str
    name: str
    state: State
    chain: tuple[str, ...]
    task: TaskRef
    digest: str | None
    agent: str
    model: str
    created_at: float
    updated_at: float
    started_at: float | None
    finished_at: float | None
    phase: str
    rewards: tuple[tuple[str, float], ...]
    exception: str
    input_tokens: int | None
    cache_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def at_work(self) -> bool:
        return self.state in AT_WORK

    @property
    def ran(self) -> bool:
        """Whether it is over, and was begun before."""
        return self.terminal and self.started_at is not None


class JobSummary(msgspec.Struct, frozen=True):
    """One job as a server lists it. The counts are of executions, so retries add to them."""

    id: str
    name: str
    state: State
    created_at: float
    updated_at: float
    started_at: float | None
    finished_at: float | None
    n_total: int
    n_terminal: int
    n_at_work: int
    n_cancelled: int
    n_retries: int

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL


class Page(msgspec.Struct, frozen=True):
    """Entries to be read one by one, and what to ask the next page with ("": there is none)."""

    items: tuple[bytes, ...]
    next_token: str


def read_page(data: bytes) -> Page:
    """One page of a list."""
    page = decode(_page, data)
    if len(page.next_page_token) > MAX_TOKEN_CHARACTERS:
        raise FileError(f"expected a page token of at most {MAX_TOKEN_CHARACTERS} characters")
    return Page(tuple(bytes(item) for item in page.items), page.next_page_token)


def read_rollout(data: bytes) -> Rollout:
    """One entry of the list of rollouts."""
    rollout = decode(_rollout, data)
    this = _checked_id(rollout.id)
    usage = rollout.usage
    rewards = {key: value for key, value in (rollout.rewards or {}).items() if value is not None}
    if not all(map(math.isfinite, rewards.values())):
        raise FileError("expected finite rewards")
    return Rollout(
        id=this,
        job_id=sys.intern(_checked_id(rollout.job_id)),
        name=checked_name(rollout.name),
        state=rollout.state,
        chain=_chain(this, rollout.retry_ids),
        task=task_ref(rollout.task.source, rollout.task.name),
        digest=sys.intern(rollout.task.digest) if rollout.task.digest else None,
        agent=sys.intern(rollout.agent.name or ""),
        model=sys.intern(rollout.model.name or ""),
        created_at=epoch(rollout.created_at),
        updated_at=epoch(rollout.updated_at),
        started_at=epoch(rollout.started_at),
        finished_at=epoch(rollout.finished_at),
        phase=_PHASES.get(rollout.phase or "", ""),
        rewards=kept_rewards(rewards),
        exception=exception_name(rollout.error_type) if rollout.error_type else "",
        input_tokens=amount(usage.n_input_tokens),
        cache_tokens=amount(usage.n_cached_input_tokens),
        output_tokens=amount(usage.n_output_tokens),
        cost_usd=amount(usage.cost_usd),
    )


_PHASES: Final = {
    "environment_setup": "environment",
    "agent_setup": "environment",
    "agent_execution": "agent",
    "verifier": "verifier",
}
"""As the recorder tells them: until the agent begins it is the environment's phase."""


def read_job(data: bytes) -> JobSummary:
    """One entry of the list of jobs."""
    job = decode(_job, data)
    counts = job.rollouts
    return JobSummary(
        id=sys.intern(_checked_id(job.id)),
        name=checked_name(job.name),
        state=job.state,
        created_at=epoch(job.created_at),
        updated_at=epoch(job.updated_at),
        started_at=epoch(job.started_at),
        finished_at=epoch(job.finished_at),
        n_total=known_count(counts.n_total) or 0,
        n_terminal=(known_count(counts.n_finished) or 0) + (known_count(counts.n_cancelled) or 0),
        n_at_work=(known_count(counts.n_running) or 0) + (known_count(counts.n_cancelling) or 0),
        n_cancelled=known_count(counts.n_cancelled) or 0,
        n_retries=known_count(job.n_retries) or 0,
    )


def read_one_rollout(data: bytes) -> tuple[Rollout, bytes | None]:
    """The answer about one rollout: its entry, and its result where it has one.

    The result is what Harbor writes into a trial's ``result.json``.
    """
    raw = bytes(decode(_one_rollout, data).rollout)
    result = bytes(decode(_result, raw).result)
    return read_rollout(raw), None if result == b"null" else result


def read_job_config_of(data: bytes) -> bytes:
    """What is a job's ``config.json`` elsewhere, out of the answer about one job."""
    return bytes(decode(_one_job, data).job.config)


def _checked_id(text: str) -> str:
    """An id as it is; it becomes part of the paths that are asked."""
    if not _ID.fullmatch(text):
        raise FileError("expected a UUID as an id")
    return text


def _chain(this: str, ids: Sequence[str]) -> tuple[str, ...]:
    if this not in ids or len(ids) > _MAX_CHAIN:
        return (this,)
    return tuple(_checked_id(one) for one in ids)
