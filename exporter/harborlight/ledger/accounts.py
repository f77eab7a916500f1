"""What one execution adds to a run's counters, once and for good (pure)."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from harborlight.ledger.faults import cause_of, phase_of
from harborlight.ledger.outcomes import Outcome, outcome, passed
from harborlight.ledger.ownership import TaskRules
from harborlight.records import TrialRecord

VERDICTS: Final = "run_verdicts_total"
DISCARDED: Final = "run_verdicts_discarded_total"
FAULTS: Final = "run_faults_total"
FAULTS_BY_TYPE: Final = "run_faults_by_type_total"
RETRIES: Final = "run_retries_total"
TOKENS: Final = "run_tokens_total"
COST: Final = "run_cost_usd_total"
POOL_RETRIES: Final = "pool_retries_total"
DURATION_BUCKET: Final = "run_trial_phase_duration_seconds_bucket"
DURATION_SUM: Final = "run_trial_phase_duration_seconds_sum"

DURATION_BUCKETS: Final = (1.0, 10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0)
"""Upper bounds in seconds: from an image that is there already to a four-hour agent."""

MAX_EXCEPTION_TYPES: Final = 40

Amounts = dict[tuple[str, tuple[str, ...]], float]
"""What to add, by metric and its label values after the run."""


def result_label(record: TrialRecord, rules: TaskRules) -> str:
    """The ``result`` of a valid verdict, ``unknown`` where not even that there was one is known."""
    if record.retry:
        return "unknown"
    return "passed" if passed(record, rules.reward) else "failed"


def add_execution(
    amounts: Amounts, record: TrialRecord, rules: TaskRules, *, copied_fault: bool = False
) -> None:
    """Add a terminal execution's verdict or fault, tokens, cost and phase durations.

    A regrade carries its source's usage and agent exception (``copied_fault``) along: they count
    with the source.
    """
    match outcome(record, rules.reward.invalid_exceptions):
        case Outcome.SCORED | Outcome.UNKNOWN:
            _add(amounts, (VERDICTS, (result_label(record, rules),)), 1)
        case Outcome.FAULT | Outcome.OPEN if not copied_fault:
            cause = cause_of(record, rules.causes)
            _add(amounts, (FAULTS, (phase_of(record, cause), cause)), 1)
            kind = record.exceptions[0] if record.exceptions else "none"
            _add(amounts, (FAULTS_BY_TYPE, (kind,)), 1)
        case _:
            pass
    if record.source_trial is None:
        cached = record.cache_tokens or 0
        _add(amounts, _INPUT, max(0, (record.input_tokens or 0) - cached))
        _add(amounts, _CACHED_INPUT, max(0, cached))
        _add(amounts, _OUTPUT, max(0, record.output_tokens or 0))
        _add(amounts, _COST, max(0.0, record.cost_usd or 0.0))
    _add_duration(amounts, "environment", record.environment_seconds)
    _add_duration(amounts, "agent_setup", record.agent_setup_seconds)
    _add_duration(amounts, "agent", record.agent_seconds)
    _add_duration(amounts, "verifier", record.verifier_seconds)


def add_discarded(amounts: Amounts, record: TrialRecord, rules: TaskRules) -> None:
    """Add a valid verdict that a later execution of its trial took the place of."""
    _add(amounts, (DISCARDED, (result_label(record, rules),)), 1)


def _add(amounts: Amounts, key: tuple[str, tuple[str, ...]], amount: float) -> None:
    if amount:
        amounts[key] = amounts.get(key, 0.0) + amount


def _add_duration(amounts: Amounts, phase: str, seconds: float | None) -> None:
    if seconds is not None:
        bucket = bucket_label(bisect_left(DURATION_BUCKETS, seconds))
        _add(amounts, (DURATION_BUCKET, (phase, bucket)), 1)
        _add(amounts, (DURATION_SUM, (phase,)), seconds)


_INPUT: Final = (TOKENS, ("input",))
_CACHED_INPUT: Final = (TOKENS, ("cached_input",))
_OUTPUT: Final = (TOKENS, ("output",))
_COST: Final[tuple[str, tuple[str, ...]]] = (COST, ())
_BUCKET_LABELS: Final = (*map(str, DURATION_BUCKETS), "+Inf")


def bucket_label(index: int) -> str:
    """The ``le`` of one bucket (not cumulative here: the exposition adds them up)."""
    return _BUCKET_LABELS[index]
