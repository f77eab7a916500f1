"""Runs made by hand, for tests of what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harborlight.ledger.ownership import AttemptState, Setup, Span
from harborlight.ledger.standing import RunStanding, TaskStanding

SETUP = Setup("sha256:1", "agent", "1.0", "model")


def task(
    label: str,
    *,
    target: int = 5,
    scored: int = 0,
    passed: int = 0,
    running: Sequence[float] = (),
    queued: int = 0,
    faulted: int = 0,
    **more: Any,
) -> TaskStanding:
    """A task; ``running``: when its running attempts began. What is left is unplanned."""
    states = {
        AttemptState.SCORED: scored,
        AttemptState.RUNNING: len(running),
        AttemptState.QUEUED: queued,
        AttemptState.FAULTED: faulted,
        AttemptState.UNPLANNED: target - scored - len(running) - queued - faulted,
    }
    given = {
        "target_known": True,
        "usual_duration": None,
        "oldest_running_start": min(running, default=None),
        "faults": (),
        "running_starts": tuple(running),
        "verdicts_of": frozenset({SETUP} if scored else ()),
        "name": label,
    }
    return TaskStanding(label=label, target=target, states=states, passed=passed, **(given | more))


def ran(*spans: tuple[float, float | None]) -> dict[str, Any]:
    """Trials that ran then, and were scored at their end where they had one."""
    ended = [(start, end) for start, end in spans if end is not None]
    return {
        "spans": tuple(Span(start, end) for start, end in spans),
        "scored_at": tuple(end for _, end in ended),
        "durations": tuple(end - start for start, end in ended),
    }


def run(*tasks: TaskStanding, **more: Any) -> RunStanding:
    states = {state: sum(t.states[state] for t in tasks) for state in AttemptState}
    given: dict[str, Any] = {
        "label": "run",
        "title": "Run",
        "jobs": ("job",),
        "agent": "agent",
        "agent_version": "1.0",
        "model": "model",
        "dataset": "set",
        "target": sum(t.target for t in tasks),
        "excluded": {},
        "surplus": 0,
        "stale_content": 0,
        "without_key": 0,
        "scored_with_exception": {},
        "superseded": 0,
        "faults_open": {},
        "resolutions": {},
        "fault_tasks": {},
        "retries_known": True,
        "started": 0.0,
        "last_verdict": None,
        "live": True,
    }
    return RunStanding(
        states=states, passed=sum(t.passed for t in tasks), tasks=tasks, **(given | more)
    )
