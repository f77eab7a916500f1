"""Our reading of a trial's result equals Harbor's own, for every recorded trial and error type."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from harbor.models.trial.error_policy import ERROR_POLICIES
from harbor.models.trial.result import TimingInfo, TrialResult
from pydantic import ValidationError

from harborlight.records import TrialRecord
from harborlight.sources.harbor_files import FileError as Unreadable, read_trial_result


def our_reading(data: bytes) -> TrialRecord:
    """What Harborlight makes of the bytes of a trial's ``result.json``.

    The one place that knows the reader's interface; an ``Unreadable`` means that the
    file is not a result.
    """
    return read_trial_result(data)


def seconds(moment: datetime | None) -> float | None:
    """A time as records hold it."""
    return None if moment is None else moment.timestamp()


def duration(*phases: TimingInfo | None) -> float | None:
    """How long the phases took together; None if none of them ran."""
    ran = [
        (p.finished_at - p.started_at).total_seconds()
        for p in phases
        if p is not None and p.started_at is not None and p.finished_at is not None
    ]
    return sum(ran) if ran else None


def verdict_time(result: TrialResult) -> datetime | None:
    """When the verifier gave its reward: the last step's time counts."""
    steps = [s.verifier for s in result.step_results or [] if s.verifier is not None]
    verifier = result.verifier or (steps[-1] if steps else None)
    moment: datetime | None = verifier.finished_at if verifier else None
    return moment or result.finished_at


def harbors_reading(result: TrialResult) -> dict[str, Any]:
    """The facts that both sides know, as Harbor's model has them."""
    steps = result.step_results or []
    n_input, n_cache, n_output, cost = result.compute_token_cost_totals()
    rewards = result.verifier_result.rewards if result.verifier_result else None
    source = result.config.source_trial
    model = result.agent_info.model_info
    return {
        "job_id": str(result.config.job_id),
        "name": result.trial_name,
        "execution": str(result.id),
        "task": (result.source or "", result.config.task.get_task_id().get_name()),
        "model": result.config.agent.model_name or "",
        "model_label": model.name if model else result.config.agent.model_name or "",
        "agent_label": result.agent_info.name,
        "reward_valid": result.reward_valid,
        "rewards": {key: float(value) for key, value in (rewards or {}).items()},
        "exceptions": sorted({e.exception_type for e in result.recorded_exceptions()}),
        "input_tokens": n_input,
        "cache_tokens": n_cache,
        "output_tokens": n_output,
        "cost_usd": cost,
        "started_at": seconds(result.started_at),
        "finished_at": seconds(result.finished_at),
        "verdict_at": seconds(verdict_time(result)) if result.reward_valid else None,
        "verification_off": result.config.verifier.disable or result.config.install_only,
        "source_trial": str(source.trial_id) if source else None,
        "separate_verifier": result.verifier_environment_mode == "separate",
        "agent_version": result.agent_info.version,
        "environment_seconds": duration(result.environment_setup),
        "agent_setup_seconds": duration(result.agent_setup),
        "agent_seconds": duration(result.agent_execution, *(s.agent_execution for s in steps)),
        "verifier_seconds": duration(result.verifier, *(s.verifier for s in steps)),
    }


def as_compared(record: TrialRecord) -> dict[str, Any]:
    """The same facts, as our record has them."""
    return {
        "job_id": record.job_id,
        "name": record.name,
        "execution": record.execution,
        "task": tuple(record.task),
        "model": record.model,
        "model_label": record.model_label,
        "agent_label": record.agent_label,
        "reward_valid": record.reward_valid,
        "rewards": dict(record.rewards),
        "exceptions": sorted(record.exceptions),
        "input_tokens": record.input_tokens,
        "cache_tokens": record.cache_tokens,
        "output_tokens": record.output_tokens,
        "cost_usd": record.cost_usd,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "verdict_at": record.verdict_at if record.reward_valid else None,
        "verification_off": record.verification_off,
        "source_trial": record.source_trial,
        "separate_verifier": record.separate_verifier,
        "agent_version": record.agent_version,
        "environment_seconds": record.environment_seconds,
        "agent_setup_seconds": record.agent_setup_seconds,
        "agent_seconds": record.agent_seconds,
        "verifier_seconds": record.verifier_seconds,
    }


def assert_same(data: bytes) -> None:
    """Fail with the facts that differ."""
    theirs = harbors_reading(TrialResult.model_validate_json(data))
    ours = as_compared(our_reading(data))
    differing = {
        fact: {"ours": ours[fact], "Harbor's": theirs[fact]}
        for fact in theirs
        if not _same(ours[fact], theirs[fact])
    }
    assert not differing


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return ours == pytest.approx(theirs, rel=0, abs=2e-6)
    return bool(ours == theirs)


def recorded_results(harbor_jobs: Path, third_party: Path) -> list[Path]:
    """Every trial result among the recordings, broken ones included."""
    return sorted(harbor_jobs.glob("*/*/result.json")) + sorted(third_party.rglob("result.json"))


def test_every_recorded_result_reads_as_harbor_reads_it(
    harbor_jobs: Path, third_party: Path
) -> None:
    compared, unlike = 0, {}
    for path in recorded_results(harbor_jobs, third_party):
        data = path.read_bytes()
        if not data:
            continue
        try:
            assert_same(data)
        except AssertionError as error:
            unlike[f"{path.parent.parent.name}/{path.parent.name}"] = str(error)
        compared += 1
    assert unlike == {}
    assert compared == 161 + 225


def test_what_harbor_refuses_is_not_a_result_for_us_either(harbor_jobs: Path) -> None:
    whole = sample(harbor_jobs)
    broken = [b"", b"null", b"[]", b"{}", whole[: len(whole) // 2], whole + b"}", b"\xff" + whole]
    for data in broken:
        with pytest.raises(ValidationError):
            TrialResult.model_validate_json(data)
        with pytest.raises(Unreadable):
            our_reading(data)


@cache
def sample(harbor_jobs: Path) -> bytes:
    """A scored trial that also carries an exception."""
    (path, *_) = sorted((harbor_jobs / "agent-timeout").glob("*/result.json"))
    return path.read_bytes()


def varied(harbor_jobs: Path, exception: str, override: dict[str, bool] | None = None) -> bytes:
    """That trial with another exception type; Harbor's stored verdicts are left out."""
    result = json.loads(sample(harbor_jobs))
    del result["reward_valid"]
    del result["exception_info"]["policy"]
    result["exception_info"]["exception_type"] = exception
    if override is not None:
        result["exception_info"]["policy_override"] = override
    return json.dumps(result).encode()


@pytest.mark.parametrize("exception", [*sorted(ERROR_POLICIES), "ValueError", "NeverHeardOfError"])
def test_every_error_type_is_judged_as_harbor_judges_it(exception: str, harbor_jobs: Path) -> None:
    data = varied(harbor_jobs, exception)
    theirs = TrialResult.model_validate_json(data)
    ours = our_reading(data)
    assert ours.exceptions == (exception,)
    assert ours.reward_valid is theirs.reward_valid


@pytest.mark.parametrize("valid", [True, False])
@pytest.mark.parametrize("exception", ["AgentTimeoutError", "ApiRateLimitError", "ValueError"])
def test_a_jobs_own_error_policy_is_respected(
    exception: str, valid: bool, harbor_jobs: Path
) -> None:
    data = varied(harbor_jobs, exception, {"has_valid_reward": valid})
    assert TrialResult.model_validate_json(data).reward_valid is valid
    assert our_reading(data).reward_valid is valid


def test_an_exception_of_a_step_counts(harbor_jobs: Path) -> None:
    (path,) = sorted((harbor_jobs / "steps-err").glob("*/result.json"))
    ours = our_reading(path.read_bytes())
    assert ours.exceptions == ("ApiRateLimitError",)
    assert ours.reward_valid is False
