"""What one execution adds to a run's counters, once and for good (pure)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
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
DURATION_BUCKET: Final = "run_trial_phase_duration_seconds_bucket"
DURATION_SUM: Final = "run_trial_phase_duration_seconds_sum"

DURATION_BUCKETS: Final = (15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0)
"""Upper bounds in seconds: from an image that is there already to a four-hour agent."""

MAX_EXCEPTION_TYPES: Final = 40

Amount = tuple[str, tuple[str, ...], float]
"""(metric, label values after the run, what to add)."""


def result_label(record: TrialRecord, rules: TaskRules) -> str:
    """The ``result`` of a valid verdict."""
    return "passed" if passed(record, rules.reward) else "failed"


def of_execution(record: TrialRecord, rules: TaskRules) -> Iterator[Amount]:
    """Verdict or fault, tokens, cost and phase durations of a terminal execution.

    A regrade carries its source's usage and agent exception along: they count with the source.
    """
    regrade = record.source_trial is not None
    match outcome(record, rules.reward.invalid_exceptions):
        case Outcome.SCORED:
            yield VERDICTS, (result_label(record, rules),), 1
        case Outcome.FAULT | Outcome.OPEN:
            cause = cause_of(record, rules.causes)
            yield FAULTS, (phase_of(record, cause), cause), 1
            yield FAULTS_BY_TYPE, (record.exceptions[0] if record.exceptions else "none",), 1
        case Outcome.UNVERIFIED:
            pass
    if not regrade:
        cached = record.cache_tokens or 0
        for kind, tokens in (
            ("input", max(0, (record.input_tokens or 0) - cached)),
            ("cached_input", cached),
            ("output", record.output_tokens or 0),
        ):
            if tokens > 0:
                yield TOKENS, (kind,), tokens
        if record.cost_usd is not None and record.cost_usd > 0:
            yield COST, (), record.cost_usd
    for phase, seconds in (
        ("environment", record.environment_seconds),
        ("agent_setup", record.agent_setup_seconds),
        ("agent", record.agent_seconds),
        ("verifier", record.verifier_seconds),
    ):
        if seconds is not None:
            bucket = bisect_left(DURATION_BUCKETS, seconds)
            yield DURATION_BUCKET, (phase, bucket_label(bucket)), 1
            yield DURATION_SUM, (phase,), seconds


_BUCKET_LABELS: Final = (*map(str, DURATION_BUCKETS), "+Inf")


def bucket_label(index: int) -> str:
    """The ``le`` of one bucket (not cumulative here: the exposition adds them up)."""
    return _BUCKET_LABELS[index]
