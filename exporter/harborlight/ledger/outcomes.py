"""How one execution ended: scored, fault, unverified, or still open (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harborlight.records import TrialRecord


class Outcome(StrEnum):
    """How a trial ended. ``OPEN``: Harbor has not written a result yet.

    ``UNKNOWN``: Harbor retried it, and took back a verdict if there was one. Only the job's log
    tells of it, by an exception that would have left a reward valid.
    """

    OPEN = "open"
    SCORED = "scored"
    FAULT = "fault"
    UNVERIFIED = "unverified"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RewardRule:
    """Which reward counts, and from where on it is a success.

    ``key`` None: ``reward``, else the trial's only key. ``invalid_exceptions`` are types that void
    a reward which Harbor holds valid; the opposite cannot be said.
    """

    key: str | None = None
    success_at: float = 1.0
    invalid_exceptions: frozenset[str] = frozenset()


def outcome(record: TrialRecord, invalid_exceptions: frozenset[str] = frozenset()) -> Outcome:
    """The outcome by Harbor's error policy, narrowed by the types declared invalid."""
    if record.open:
        return Outcome.OPEN
    if record.reward_valid and invalid_exceptions.isdisjoint(record.exceptions):
        return Outcome.UNKNOWN if record.retry else Outcome.SCORED
    if record.verification_off and not record.exceptions and not record.unreadable:
        return Outcome.UNVERIFIED
    return Outcome.FAULT


def reward_of(record: TrialRecord, rule: RewardRule) -> float | None:
    """The reward that the rule picks, None where the trial has no such key."""
    rewards = dict(record.rewards)
    if rule.key is not None:
        return rewards.get(rule.key)
    if "reward" in rewards:
        return rewards["reward"]
    return next(iter(rewards.values())) if len(rewards) == 1 else None


def passed(record: TrialRecord, rule: RewardRule) -> bool:
    """Whether a scored execution is a success. Without the reward's key it is not."""
    reward = reward_of(record, rule)
    return reward is not None and reward >= rule.success_at
