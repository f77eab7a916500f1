"""What Harbor's files mean, over all its versions; Harbor's own models say what is right."""

from __future__ import annotations

import copy
import json
import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from harbor.models.agent.context import AgentContext
from harbor.models.job.config import JobConfig as HarborJobConfig
from harbor.models.job.result import JobResult as HarborJobResult
from harbor.models.task.id import LocalTaskId
from harbor.models.trial.config import TaskConfig, TrialConfig
from harbor.models.trial.error_policy import ERROR_POLICIES, ErrorPolicyOverride
from harbor.models.trial.result import (
    AgentInfo,
    ExceptionInfo,
    StepResult,
    TimingInfo,
    TrialResult,
)
from harbor.models.verifier.result import VerifierResult
from hypothesis import given, strategies as st
from pydantic import ValidationError

from harborlight.records import PlannedTrial, TaskRef
from harborlight.sources.harbor_files import (
    FileError,
    assemble_job,
    exception_name,
    read_job_config,
    read_job_lock,
    read_job_result,
    read_trial_config,
    read_trial_lock,
    read_trial_result,
    utc_offset,
)

JOB_ID = "3f2b0c0e-8a8b-4b60-9a39-0e4f0b9d4a11"
TRIAL_ID = "9d5c1f9a-61a4-4c5e-8a8e-f6b9a7f5a001"
T0 = datetime(2026, 12, 1, 1, 0, tzinfo=UTC)
BASE: dict[str, Any] = {
    "id": TRIAL_ID,
    "task_name": "sep-a",
    "trial_name": "sep-a__Ab3dE5g",
    "trial_uri": "file:///jobs/x",
    "task_id": {"path": "tasks/sep-a"},
    "source": "set",
    "task_checksum": "abc",
    "config": {"task": {"path": "tasks/sep-a", "source": "set"}, "job_id": JOB_ID},
    "agent_info": {"name": "agent", "version": "1"},
}


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def result(**fields: Any) -> dict[str, Any]:
    return copy.deepcopy(BASE) | fields


def exception(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "exception_type": name,
        "exception_message": "m",
        "exception_traceback": "t",
        "occurred_at": "2026-12-01T01:00:00Z",
    } | fields


def rewarded(rewards: Any, **fields: Any) -> dict[str, Any]:
    return result(verifier_result={"rewards": rewards}, **fields)


RAN = {
    "environment_setup": {"started_at": "2026-12-01T01:00:00Z"},
    "agent_setup": {"started_at": "2026-12-01T01:01:00Z"},
    "agent_execution": {"started_at": "2026-12-01T01:02:00Z"},
    "verifier": {"started_at": "2026-12-01T01:03:00Z"},
}


@pytest.mark.parametrize(
    ("occurred", "ran", "phase"),
    [
        ("2026-12-01T01:00:30Z", RAN, "environment"),
        ("2026-12-01T01:01:00Z", RAN, "agent"),
        ("2026-12-01T01:02:30Z", RAN, "agent"),
        ("2026-12-01T02:03:30+01:00", RAN, "verifier"),
        ("2026-12-01T01:02:30Z", RAN | {"verifier": None}, "agent"),
        ("2026-12-01T00:59:00Z", RAN, ""),
        ("2026-12-01T01:02:30", RAN, ""),  # local time, until Harbor 0.20
        ("yesterday", RAN, ""),
        (None, RAN, ""),
        (5, RAN, ""),
        ("2026-12-01T01:02:30Z", {}, ""),
    ],
)
def test_the_phase_in_which_an_exception_occurred(
    occurred: Any, ran: dict[str, Any], phase: str
) -> None:
    """Harbor verifies after an agent's exception, so the last phase need not be the one."""
    given = result(exception_info=exception("MyOwnError", occurred_at=occurred), **ran)
    record = read_trial_result(encoded(given))
    assert record.raised_in == phase


# Trials, old and new.


def test_the_oldest_result_is_read() -> None:
    """Harbor 0.1: no schema version, validity, policy, steps or job id."""
    old = rewarded({"reward": 1.0}, exception_info=exception("AgentTimeoutError"))
    del old["config"]["job_id"]
    record = read_trial_result(encoded(old), 7)
    assert record.reward_valid
    assert record.rewards == (("reward", 1.0),)
    assert record.exceptions == ("AgentTimeoutError",)
    assert record.execution == TRIAL_ID
    assert (record.job_id, record.source_trial, record.mtime_ns) == ("", None, 7)
    assert not record.open
    assert TrialResult.model_validate(old).reward_valid


def test_a_stored_validity_and_policy_of_another_version_do_not_count() -> None:
    policy = {"should_retry": True, "should_grade": True, "has_valid_reward": True}
    stored = rewarded(
        {"reward": 1},
        reward_valid=True,
        exception_info=exception("ApiRateLimitError") | {"policy": policy},
    )
    assert not TrialResult.model_validate(stored).reward_valid
    assert not read_trial_result(encoded(stored)).reward_valid


@pytest.mark.parametrize(
    ("override", "valid"),
    [
        ({"has_valid_reward": False}, False),
        ({"has_valid_reward": True}, True),
        ({"has_valid_reward": None}, True),
        ({"should_retry": False}, True),
        ({}, True),
        (None, True),
    ],
)
def test_policy_override(override: Any, valid: bool) -> None:
    """AgentTimeoutError's reward is valid unless the job says otherwise."""
    document = rewarded(
        {"reward": 1}, exception_info=exception("AgentTimeoutError", policy_override=override)
    )
    assert TrialResult.model_validate(document).reward_valid is valid
    assert read_trial_result(encoded(document)).reward_valid is valid


@pytest.mark.parametrize(
    "verifier", [None, {}, {"rewards": None}, {"rewards": {}}], ids=["none", "empty", "null", "{}"]
)
def test_without_rewards_there_is_no_verdict(verifier: Any) -> None:
    document = result(verifier_result=verifier)
    assert not TrialResult.model_validate(document).reward_valid
    record = read_trial_result(encoded(document))
    assert (record.rewards, record.reward_valid) == ((), False)


def test_a_reward_of_zero_counts() -> None:
    record = read_trial_result(encoded(rewarded({"reward": 0})))
    assert (record.rewards, record.reward_valid) == ((("reward", 0.0),), True)


@pytest.mark.parametrize(
    "rewards",
    [
        b'{"reward": NaN}',
        b'{"reward": Infinity}',
        b'{"reward": -Infinity}',
        b'{"reward": 1e400}',
        b'{"reward": ' + b"9" * 400 + b"}",
        b'{"reward": ' + b"9" * 5000 + b"}",
        b'{"reward": true}',
        b'{"reward": "1.0"}',
        b'{"reward": [1.0]}',
        b'{"reward": {"mean": 1.0}}',
        b'{"reward": null}',
        b'{"reward": 1.0, "other": null}',
        b"[1.0]",
        b"1.0",
        b'"1.0"',
    ],
)
def test_rewards_that_harbor_does_not_write(rewards: bytes) -> None:
    data = encoded(rewarded("HERE")).replace(b'"HERE"', rewards)
    with pytest.raises(FileError):
        read_trial_result(data)


def test_what_harbor_writes_for_a_reward_that_is_no_number_is_no_result() -> None:
    data = model(rewards={"reward": math.nan}).model_dump_json().encode()
    with pytest.raises(ValidationError):
        TrialResult.model_validate_json(data)
    with pytest.raises(FileError):
        read_trial_result(data)


def test_whole_numbers_are_rewards() -> None:
    record = read_trial_result(encoded(rewarded({"b": 2, "a": -1, "reward": 10**18})))
    assert record.rewards == (("reward", 1e18), ("a", -1.0), ("b", 2.0))


def test_of_absurdly_many_rewards_the_first_and_reward_are_kept() -> None:
    record = read_trial_result(
        encoded(rewarded({f"k{n:04}": n for n in range(5000)} | {"reward": 1}))
    )
    assert len(record.rewards) == 64
    assert dict(record.rewards)["reward"] == 1.0
    assert record.reward_valid


@pytest.mark.parametrize("field", ["id", "task_name", "trial_name", "config", "agent_info"])
def test_a_missing_field(field: str) -> None:
    document = result()
    del document[field]
    with pytest.raises(FileError, match=field):
        read_trial_result(encoded(document))


def test_a_missing_task() -> None:
    with pytest.raises(FileError, match="task"):
        read_trial_result(encoded(result(config={"job_id": JOB_ID})))


@pytest.mark.parametrize("version", [0, 2, "1", 1.5, [], True])
def test_a_schema_version_that_harbor_rejects(version: Any) -> None:
    for document in (
        result(schema_version=version),
        result(config=BASE["config"] | {"schema_version": version}),
    ):
        with pytest.raises(FileError):
            read_trial_result(encoded(document))


@pytest.mark.parametrize("version", [{}, {"schema_version": 1}])
def test_a_schema_version_left_out_is_the_first(version: dict[str, Any]) -> None:
    assert read_trial_result(encoded(result(**version))).execution == TRIAL_ID


@pytest.mark.parametrize("identity", ["", "x" * 65, "a\0b", 7, None])
def test_an_id_that_is_none(identity: Any) -> None:
    with pytest.raises(FileError):
        read_trial_result(encoded(result(id=identity)))


@pytest.mark.parametrize("identity", ["x" * 65, "a\0b", 7])
def test_a_job_id_that_is_none(identity: Any) -> None:
    config = BASE["config"] | {"job_id": identity}
    with pytest.raises(FileError):
        read_trial_result(encoded(result(config=config)))
    with pytest.raises(FileError):
        read_trial_config(encoded(config))


@pytest.mark.parametrize("name", ["x" * 256, "a\0b", 7, None])
def test_a_trial_name_that_is_none(name: Any) -> None:
    with pytest.raises(FileError):
        read_trial_result(encoded(result(trial_name=name)))
    with pytest.raises(FileError):
        read_trial_config(encoded(BASE["config"] | {"trial_name": name}))


def test_bytes_that_are_not_utf8_in_a_field_that_is_skipped() -> None:
    data = encoded(result(trial_uri="HERE")).replace(b"HERE", b"\xff\xfe")
    with pytest.raises(ValidationError):
        TrialResult.model_validate_json(data)
    with pytest.raises(FileError, match="UTF-8"):
        read_trial_result(data)


@pytest.mark.parametrize("where", ["task_name", "trial_uri"])
def test_half_a_surrogate_pair(where: str) -> None:
    data = encoded(result(**{where: "\ud800"}))
    with pytest.raises(ValidationError):
        TrialResult.model_validate_json(data)
    if where == "task_name":
        with pytest.raises(FileError):
            read_trial_result(data)


@pytest.mark.parametrize("depth", [2_000, 200_000])
def test_deep_nesting(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    data = encoded(result(metadata="HERE")).replace(b'"HERE"', deep)
    with pytest.raises(FileError):
        read_trial_result(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b"{}",
        b"1",
        b'"x"',
        encoded(BASE)[:-1],
        encoded(BASE)[: len(encoded(BASE)) // 2],
        encoded(BASE) + b'"}}',
        encoded(BASE) + encoded(BASE),
        encoded(BASE) + b"\0",
        b"\0" * 4096,
        b"\xef\xbb\xbf" + encoded(BASE),
        json.dumps(BASE).encode("utf-16"),
    ],
)
@pytest.mark.parametrize(
    "read",
    [
        read_trial_result,
        read_trial_config,
        read_trial_lock,
        read_job_result,
        read_job_lock,
    ],
)
def test_what_is_no_whole_document(read: Any, data: bytes) -> None:
    with pytest.raises(FileError):
        read(data)


def test_an_error_never_quotes_the_file() -> None:
    for document in (
        result(exception_info={"exception_type": {"secret": "hunter2"}}),
        result(id=["hunter2"]),
        result(started_at="hunter2"),
        rewarded({"hunter2": "hunter2"}),
        result(verifier_result="hunter2"),
    ):
        with pytest.raises(FileError) as caught:
            read_trial_result(encoded(document))
        assert "hunter2" not in str(caught.value)
        assert len(str(caught.value)) <= 200


@pytest.mark.parametrize("tokens", [10**30, -5, 2**63])
def test_a_token_count_that_cannot_be_is_unknown(tokens: int) -> None:
    record = read_trial_result(
        encoded(result(agent_result={"n_input_tokens": tokens, "n_output_tokens": 7}))
    )
    assert (record.input_tokens, record.output_tokens) == (None, 7)


@pytest.mark.parametrize("cost", [-0.5, 1e300])
def test_a_cost_that_cannot_be_is_unknown(cost: float) -> None:
    assert read_trial_result(encoded(result(agent_result={"cost_usd": cost}))).cost_usd is None


def test_costs_of_steps_that_are_too_much_together_are_unknown() -> None:
    steps = [{"step_name": "s", "agent_result": {"cost_usd": 1.7e308}}] * 2
    assert read_trial_result(encoded(result(step_results=steps))).cost_usd is None


# Who the trial is.


def test_a_prefixed_task_name_is_not_the_name_in_the_lock() -> None:
    record = read_trial_result(encoded(result(task_name="research/sep-a")))
    assert record.task == TaskRef("set", "sep-a")


TASKS: list[tuple[dict[str, Any], str]] = [
    ({"path": "tasks/sep-a"}, "sep-a"),
    ({"path": "tasks/sep-a/"}, "sep-a"),
    ({"path": "/abs/tasks/sep-a"}, "sep-a"),
    ({"path": "sep-a"}, "sep-a"),
    ({"name": "org/name"}, "org/name"),
    ({"name": "org/name", "ref": "sha256:" + "0" * 64}, "org/name"),
    ({"path": "sub/t", "git_url": "https://example.org/r.git", "git_commit_id": "c0ffee"}, "t"),
]


@pytest.mark.parametrize(("task", "name"), TASKS)
def test_a_task_is_named_as_in_the_lock(task: dict[str, Any], name: str) -> None:
    assert TaskConfig.model_validate(task).get_task_id().get_name() == name
    config = {"task": task, "job_id": JOB_ID}
    assert read_trial_result(encoded(result(config=config, source=None))).task == ("", name)
    assert read_trial_config(encoded(config)).task == TaskRef("", name)


def test_the_source_stands_in_result_or_configuration() -> None:
    config = {"task": {"path": "t", "source": "from-config"}}
    assert (
        read_trial_result(encoded(result(config=config, source=None))).task.source == "from-config"
    )
    assert read_trial_result(encoded(result(source="set"))).task.source == "set"


def test_an_open_trial() -> None:
    config = {
        "task": {"name": "org/t", "source": "set"},
        "trial_name": "t__Ab3dE5g",
        "job_id": JOB_ID,
        "agent": {"import_path": "mine:Agent", "model_name": "lab/m"},
        "source_trial": {"action": "regrade", "type": "hub", "trial_id": TRIAL_ID},
    }
    record = read_trial_config(encoded(config))
    assert record.open
    assert (record.job_id, record.name, record.execution) == (JOB_ID, "t__Ab3dE5g", "")
    assert (record.task, record.agent, record.model) == (("set", "org/t"), "mine:Agent", "lab/m")
    assert (record.source_trial, record.verification_off) == (TRIAL_ID, False)


@pytest.mark.parametrize("off", [{"verifier": {"disable": True}}, {"install_only": True}])
def test_verification_off(off: dict[str, Any]) -> None:
    config = BASE["config"] | off
    assert read_trial_config(encoded(config)).verification_off
    assert read_trial_result(encoded(result(config=config))).verification_off


def test_a_regrade_whose_source_has_no_id_is_a_regrade() -> None:
    config = BASE["config"] | {
        "source_trial": {"action": "regrade", "type": "local", "path": "/jobs/a/b"}
    }
    assert read_trial_result(encoded(result(config=config))).source_trial == ""
    assert read_trial_config(encoded(config)).source_trial == ""


def test_a_model_is_labelled_by_what_the_agent_says() -> None:
    config = BASE["config"] | {"agent": {"name": "a", "model_name": "lab/m"}}
    said = {"name": "agent", "version": "2", "model_info": {"name": "m", "provider": "lab"}}
    record = read_trial_result(encoded(result(config=config, agent_info=said)))
    assert (record.agent, record.model) == ("a", "lab/m")
    assert (record.agent_label, record.agent_version, record.model_label) == ("agent", "2", "m")
    assert read_trial_result(encoded(result(config=config))).model_label == "lab/m"


# Exceptions.


HOSTILE = [
    "Bad\nharborlight_up 1",
    "E" * 10_000,
    "E" * 81,
    "Ошибка",
    "Error\u202e",
    "",
    " ",
    "Error 1",
    "9Error",
    '"} 1',
    "é",
    "a\0b",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_exception_name_becomes_other(name: str) -> None:
    document = rewarded({"reward": 1}, exception_info=exception(name))
    record = read_trial_result(encoded(document))
    assert exception_name(name) == "other"
    assert record.exceptions == ("other",)
    # Harbor holds the rewards of unknown exceptions valid.
    assert TrialResult.model_validate(document).reward_valid
    assert record.reward_valid


@pytest.mark.parametrize("name", ["ValueError", "litellm.Timeout", "_E1", "E" * 80, "other"])
def test_an_ordinary_exception_name_is_kept(name: str) -> None:
    assert exception_name(name) == name


def test_a_hostile_name_is_judged_by_the_jobs_override_of_it() -> None:
    document = rewarded(
        {"reward": 1},
        exception_info=exception("Bad\nName", policy_override={"has_valid_reward": False}),
    )
    assert not TrialResult.model_validate(document).reward_valid
    record = read_trial_result(encoded(document))
    assert (record.exceptions, record.reward_valid) == (("other",), False)


def test_a_name_that_only_looks_like_a_known_one_is_judged_by_itself() -> None:
    document = rewarded({"reward": 1}, exception_info=exception("ApiRateLimitError\n"))
    assert TrialResult.model_validate(document).reward_valid
    assert read_trial_result(encoded(document)).reward_valid


@pytest.mark.parametrize("info", [{}, {"exception_type": None}, {"exception_type": 3}, [], "x"])
def test_an_exception_without_a_type_is_no_result(info: Any) -> None:
    with pytest.raises(FileError):
        read_trial_result(encoded(rewarded({"reward": 1}, exception_info=info)))


def test_only_the_type_of_an_exception_is_needed() -> None:
    document = rewarded({"reward": 1}, exception_info={"exception_type": "ValueError"})
    assert read_trial_result(encoded(document)).exceptions == ("ValueError",)


# Steps.


def step(**fields: Any) -> dict[str, Any]:
    return {"step_name": "s"} | fields


def span(start: str, end: str | None) -> dict[str, Any]:
    return {"started_at": start, "finished_at": end}


def test_a_trial_of_several_steps() -> None:
    document = rewarded(
        {"reward": 0.5},
        finished_at="2026-12-01T01:10:00Z",
        step_results=[
            step(
                agent_execution=span("2026-12-01T01:00:00Z", "2026-12-01T01:00:30Z"),
                verifier=span("2026-12-01T01:00:30Z", "2026-12-01T01:00:40Z"),
                agent_result={"n_input_tokens": 10, "cost_usd": 0.25},
            ),
            step(
                agent_execution=span("2026-12-01T01:01:00Z", "2026-12-01T01:01:05.5Z"),
                verifier=span("2026-12-01T01:02:00Z", "2026-12-01T01:02:02Z"),
                agent_result={"n_input_tokens": 5, "n_output_tokens": 3, "cost_usd": 0.5},
            ),
            step(exception_info=None, agent_execution=None, verifier=None),
        ],
    )
    record = read_trial_result(encoded(document))
    assert record.agent_seconds == 35.5
    assert record.verifier_seconds == 12.0
    assert record.verdict_at == datetime(2026, 12, 1, 1, 2, 2, tzinfo=UTC).timestamp()
    assert (record.input_tokens, record.cache_tokens, record.output_tokens) == (15, None, 3)
    assert record.cost_usd == 0.75
    assert record.reward_valid


def test_an_exception_of_any_step_counts_once() -> None:
    steps = [
        step(exception_info=exception(name))
        for name in ("ValueError", "ApiRateLimitError", "ValueError")
    ]
    document = rewarded(
        {"reward": 1}, exception_info=exception("ApiRateLimitError"), step_results=steps
    )
    assert not TrialResult.model_validate(document).reward_valid
    record = read_trial_result(encoded(document))
    assert record.exceptions == ("ApiRateLimitError", "ValueError")
    assert not record.reward_valid


@pytest.mark.parametrize("steps", [None, []])
def test_no_steps_are_no_fault(steps: Any) -> None:
    assert read_trial_result(encoded(rewarded({"reward": 1}, step_results=steps))).reward_valid


# Times.


def test_times_and_durations() -> None:
    record = read_trial_result(
        encoded(
            rewarded(
                {"reward": 1},
                started_at="2026-12-01T01:00:00Z",
                finished_at="2026-12-01T02:05:00+01:00",
                environment_setup=span("2026-12-01T01:00:00Z", "2026-12-01T01:00:02.25Z"),
                agent_setup=span("2026-12-01T01:00:03Z", None),
                agent_execution=span("2026-12-01T01:00:05Z", "2026-12-01T01:00:04Z"),
                verifier=span("2026-12-01T01:04:00Z", "2026-12-01T01:04:30Z"),
            )
        )
    )
    start = T0.timestamp()
    assert (record.started_at, record.finished_at) == (start, start + 300)
    assert record.verdict_at == start + 270
    assert record.environment_seconds == 2.25
    assert record.agent_setup_seconds is None  # never finished
    assert record.agent_seconds == 0.0  # a clock that was set back
    assert record.verifier_seconds == 30.0


def test_the_verdict_of_a_verifier_that_did_not_finish_is_the_trials_end() -> None:
    record = read_trial_result(
        encoded(
            rewarded(
                {"reward": 1},
                finished_at="2026-12-01T01:05:00Z",
                verifier=span("2026-12-01T01:04:00Z", None),
            )
        )
    )
    assert record.verdict_at == record.finished_at == T0.timestamp() + 300


def test_extreme_and_mixed_times_do_no_harm() -> None:
    record = read_trial_result(
        encoded(
            result(
                started_at="0001-01-01T00:00:00+14:00",
                finished_at="9999-12-31T23:59:59-14:00",
                verifier=span("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
                agent_execution=span("2026-12-01T01:00:00", "2026-12-01T01:00:10Z"),
                environment_setup=span("0001-01-01T00:00:00", "9999-12-31T23:59:59Z"),
            )
        )
    )
    assert record.agent_seconds == 10.0
    assert record.verifier_seconds is not None and record.verifier_seconds > 3e11


@pytest.mark.parametrize("moment", ["", "yesterday", 5, "2026-13-01T00:00:00Z", {}])
def test_a_time_that_is_none(moment: Any) -> None:
    with pytest.raises(FileError):
        read_trial_result(encoded(result(started_at=moment)))


@pytest.mark.parametrize("hours", [-12, -8, -3.5, 0, 5.5, 5.75, 13.75, 14])
@pytest.mark.parametrize("late", [0.0, 0.5, 300.0])
def test_the_zone_of_a_naive_time(hours: float, late: float) -> None:
    local = T0.astimezone(timezone(timedelta(hours=hours))).replace(tzinfo=None)
    assert utc_offset(local, T0.timestamp() + late) == -hours * 3600


def test_the_zone_is_unknown_where_nothing_tells() -> None:
    naive = T0.replace(tzinfo=None)
    assert utc_offset(None, 1.0) == 0
    assert utc_offset(naive, None) == 0
    assert utc_offset(T0, T0.timestamp() + 8 * 3600) == 0
    assert utc_offset(naive, T0.timestamp() + 16 * 3600) == 0  # there is no such zone


def test_a_job_run_in_los_angeles(harbor_jobs: Path) -> None:
    """Its result says 17:38:30 without a zone, its lock 01:38:30 UTC."""
    folder = harbor_jobs / "tz-la"
    read = read_job_result((folder / "result.json").read_bytes())
    lock = read_job_lock((folder / "lock.json").read_bytes())
    start = datetime(2026, 12, 1, 1, 38, 30, 224070, tzinfo=UTC).timestamp()
    end = datetime(2026, 12, 1, 1, 38, 30, 564540, tzinfo=UTC).timestamp()
    for given_lock in (lock, None):
        record = assemble_job(
            "id", "tz-la", read, given_lock, None, incarnation=None, result_written=end + 0.1
        )
        assert record.started_at == pytest.approx(start, abs=1e-5)
        assert record.updated_at == record.finished_at == pytest.approx(end, abs=1e-5)


# Jobs.


def job(**fields: Any) -> dict[str, Any]:
    return {
        "id": JOB_ID,
        "started_at": "2026-12-01T01:00:00",
        "n_total_trials": 10,
        "stats": {},
    } | fields


FULL = {
    "n_completed_trials": 4,
    "n_errored_trials": 1,
    "n_running_trials": 3,
    "n_pending_trials": 3,
    "n_cancelled_trials": 2,
    "n_retries": 5,
}
JOBS: list[dict[str, Any]] = [
    job(),
    job(stats=None),
    job(stats={"n_trials": 4, "n_errors": 1, "evals": {}}),  # Harbor up to 0.1.45
    job(stats=FULL, updated_at="2026-12-01T01:02:00Z", schema_version=1),
    job(stats=FULL | {"n_trials": 9}),
    job(status=FULL),
    job(status=FULL | {"updated_at": "2026-12-01T01:03:00Z"}),
    job(status=FULL, stats={"n_trials": 6}),
    job(status=FULL, stats={"n_completed_trials": 6, "n_retries": 0}),
    job(status=None),
    job(finished_at="2026-12-01T01:04:00", updated_at=None),
    job(status={"updated_at": None}, finished_at="2026-12-01T01:04:00"),
    job(trial_results=[result()]),
]


@pytest.mark.parametrize("document", JOBS)
def test_a_job_is_read_as_harbor_migrates_it(document: dict[str, Any]) -> None:
    theirs = HarborJobResult.model_validate_json(encoded(document))
    ours = read_job_result(encoded(document))
    stats = theirs.stats
    assert (ours.job_id, ours.n_total) == (str(theirs.id), theirs.n_total_trials)
    assert (ours.n_completed, ours.n_running, ours.n_cancelled, ours.n_retries) == (
        stats.n_completed_trials,
        stats.n_running_trials,
        stats.n_cancelled_trials,
        stats.n_retries,
    )
    assert (ours.started_at, ours.finished_at) == (theirs.started_at, theirs.finished_at)
    assert (ours.updated_at or ours.finished_at or ours.started_at) == theirs.updated_at


@pytest.mark.parametrize("field", ["id", "started_at", "n_total_trials"])
def test_a_job_without_what_harbor_requires(field: str) -> None:
    document = job()
    del document[field]
    with pytest.raises(ValidationError):
        HarborJobResult.model_validate_json(encoded(document))
    with pytest.raises(FileError, match=field):
        read_job_result(encoded(document))


def test_a_trials_result_is_no_jobs_and_the_other_way_round(harbor_jobs: Path) -> None:
    folder = harbor_jobs / "mixed-6x5"
    for path in folder.glob("*/result.json"):
        with pytest.raises(FileError):
            read_job_result(path.read_bytes())
    with pytest.raises(FileError):
        read_trial_result((folder / "result.json").read_bytes())


@pytest.mark.parametrize(("total", "known"), [(-1, 0), (0, 0), (10**30, None)])
def test_an_absurd_total(total: int, known: int | None) -> None:
    assert read_job_result(encoded(job(n_total_trials=total))).n_total == known


@pytest.mark.parametrize("identity", ["", "x" * 65, "a\0b", 7])
def test_a_jobs_id_that_is_none(identity: Any) -> None:
    with pytest.raises(FileError):
        read_job_result(encoded(job(id=identity)))


def test_a_lock_is_a_plan() -> None:
    entry = {
        "task": {"name": "t", "source": "set", "digest": "sha256:1"},
        "agent": {"name": "a", "model_name": "m"},
    }
    regrade = entry | {
        "source_trial": {
            "action": "regrade",
            "type": "local",
            "trial_id": TRIAL_ID,
            "task": {"name": "old", "source": "set"},
        }
    }
    unnamed = {"task": {"name": "org/u"}, "agent": {"import_path": "mine:A"}}
    lock = read_job_lock(
        encoded(
            {
                "schema_version": 3,
                "created_at": "2026-12-01T01:00:00Z",
                "harbor": {"version": "0.26.0"},
                "trials": [entry, regrade, entry, unnamed, entry],
            }
        )
    )
    assert (lock.created_at, lock.harbor_version) == (T0.timestamp(), "0.26.0")
    task = TaskRef("set", "t")
    assert set(lock.plan) == {
        PlannedTrial(task, "sha256:1", "a", "m", 3),
        PlannedTrial(task, "sha256:1", "a", "m", 1, TRIAL_ID, TaskRef("set", "old")),
        PlannedTrial(TaskRef("", "org/u"), None, "mine:A", "", 1),
    }


def test_a_trials_lock() -> None:
    lock = read_trial_lock(
        encoded(
            {
                "task": {"name": "t", "source": "set", "digest": "sha256:1"},
                "source_trial": {"action": "regrade", "trial_id": TRIAL_ID},
            }
        )
    )
    assert (lock.task, lock.digest, lock.source_trial) == (("set", "t"), "sha256:1", TRIAL_ID)


def test_a_jobs_configuration() -> None:
    config = read_job_config(
        encoded(
            {
                "n_attempts": 5,
                "n_concurrent_trials": 64,
                "agents": [{"name": "a"}, {"name": "b"}],
                "retry": {"max_retries": 2, "exclude_exceptions": ["X", "Y"]},
                "source_jobs": [{"job_id": JOB_ID}, {"path": "/x"}, {"job_id": None}],
            }
        )
    )
    assert (config.n_attempts, config.n_concurrent, config.n_agents) == (5, 64, 2)
    assert (config.max_retries, config.retry_include) == (2, None)
    assert config.retry_exclude == ("X", "Y")
    assert config.source_jobs == (JOB_ID,)


@pytest.mark.parametrize(
    ("changes", "timeouts", "resources"),
    [
        ({}, False, False),
        ({"timeout_multiplier": 1, "agent_timeout_multiplier": None}, False, False),
        ({"timeout_multiplier": 2.0}, True, False),
        ({"agent_timeout_multiplier": 1.5}, True, False),
        ({"verifier_timeout_multiplier": 0.5}, True, False),
        ({"agent_setup_timeout_multiplier": 2}, True, False),
        ({"environment_build_timeout_multiplier": 2}, True, False),
        ({"verifier": {"override_timeout_sec": 5}}, True, False),
        ({"verifier": {"max_timeout_sec": 5}}, True, False),
        ({"agents": [{"name": "oracle"}, {"name": "x", "max_timeout_sec": 9}]}, True, False),
        ({"agents": [{"name": "x", "override_timeout_sec": 9}]}, True, False),
        ({"agents": [{"name": "x", "override_setup_timeout_sec": 9}]}, True, False),
        ({"environment": {"type": "docker", "delete": False}}, False, False),
        ({"environment": {"override_cpus": 2}}, False, True),
        ({"environment": {"override_memory_mb": 2}}, False, True),
        ({"environment": {"override_storage_mb": 2}}, False, True),
        ({"environment": {"override_gpus": 0}}, False, True),
    ],
)
def test_what_a_configuration_overrides(
    changes: dict[str, Any], timeouts: bool, resources: bool
) -> None:
    """As Harbor's own model writes it, all its defaults included, and as somebody might."""
    written = HarborJobConfig.model_validate(changes).model_dump_json().encode()
    for document in (written, encoded(changes)):
        config = read_job_config(document)
        assert (config.changed_timeouts, config.changed_resources) == (timeouts, resources)
        record = assemble_job("i", "n", None, None, config, incarnation=None, result_written=None)
        assert (record.changed_timeouts, record.changed_resources) == (timeouts, resources)


def test_an_empty_configuration() -> None:
    config = read_job_config(b"{}")
    assert (config.n_attempts, config.n_agents, config.max_retries) == (None, 1, 0)
    retry = {"max_retries": 10**30, "include_exceptions": [], "exclude_exceptions": None}
    config = read_job_config(encoded({"retry": retry, "source_jobs": None, "n_attempts": -1}))
    assert (config.n_attempts, config.max_retries, config.retry_include) == (0, 0, ())


def test_a_job_of_which_nothing_could_be_read() -> None:
    record = assemble_job("id", "name", None, None, None, incarnation=3.0, result_written=None)
    assert (record.job_id, record.name, record.incarnation) == ("id", "name", 3.0)
    assert (record.plan, record.n_total, record.started_at) == (None, None, None)


# Anything that Harbor's own models can write.

NAMES = st.one_of(
    st.sampled_from(sorted(ERROR_POLICIES)),
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,20}", fullmatch=True),
    st.text(st.characters(codec="utf-8"), max_size=100),
)
MOMENTS = st.datetimes(
    T0.replace(tzinfo=None, year=2020),
    T0.replace(tzinfo=None, year=2035),
    timezones=st.just(UTC),
)
TIMINGS = st.none() | st.builds(
    TimingInfo, started_at=st.none() | MOMENTS, finished_at=st.none() | MOMENTS
)
OVERRIDES = st.none() | st.builds(
    ErrorPolicyOverride,
    should_retry=st.none() | st.booleans(),
    has_valid_reward=st.none() | st.booleans(),
)
EXCEPTIONS = st.none() | st.builds(
    ExceptionInfo,
    exception_type=NAMES,
    exception_message=st.text(st.characters(codec="utf-8"), max_size=20),
    exception_traceback=st.just("t"),
    occurred_at=MOMENTS,
    policy_override=OVERRIDES,
)
REWARDS = st.none() | st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70),
    max_size=5,
)
VERIFIERS = st.none() | st.builds(VerifierResult, rewards=REWARDS)
COUNTS = st.none() | st.integers(0, 2**40)
USAGES = st.none() | st.builds(
    AgentContext,
    n_input_tokens=COUNTS,
    n_cache_tokens=COUNTS,
    n_output_tokens=COUNTS,
    cost_usd=st.none() | st.floats(0, 1e6),
    metadata=st.none() | st.dictionaries(st.text(max_size=3), st.floats(), max_size=2),
)
STEPS = st.builds(
    StepResult,
    step_name=st.just("s"),
    agent_result=USAGES,
    verifier_result=VERIFIERS,
    exception_info=EXCEPTIONS,
    agent_execution=TIMINGS,
    verifier=TIMINGS,
)


@cache
def configuration() -> TrialConfig:
    return TrialConfig(task=TaskConfig(path=Path("tasks/t")), job_id=UUID(JOB_ID))


def model(rewards: dict[str, float] | None = None, **fields: Any) -> TrialResult:
    given_fields = {"verifier_result": VerifierResult(rewards=rewards)} | fields
    return TrialResult(
        task_name="t",
        trial_name="t__Ab3dE5g",
        trial_uri="file:///t",
        task_id=LocalTaskId(path=Path("tasks/t")),
        task_checksum="c",
        config=configuration(),
        agent_info=AgentInfo(name="a", version="1"),
        **given_fields,
    )


MODELS = st.builds(
    model,
    verifier_result=VERIFIERS,
    exception_info=EXCEPTIONS,
    agent_result=USAGES,
    agent_execution=TIMINGS,
    verifier=TIMINGS,
    started_at=st.none() | MOMENTS,
    finished_at=st.none() | MOMENTS,
    step_results=st.none() | st.lists(STEPS, max_size=4),
)


@given(MODELS)
def test_whatever_harbor_writes_is_read_as_harbor_reads_it(written: TrialResult) -> None:
    data = written.model_dump_json().encode()
    theirs = TrialResult.model_validate_json(data)
    ours = read_trial_result(data)
    assert ours.reward_valid is theirs.reward_valid
    rewards = (theirs.verifier_result.rewards if theirs.verifier_result else None) or {}
    assert dict(ours.rewards) == {key: float(value) for key, value in rewards.items()}
    names = [exception.exception_type for exception in theirs.recorded_exceptions()]
    assert set(ours.exceptions) == {exception_name(name) for name in names}
    assert {n for n in names if n in ERROR_POLICIES} <= set(ours.exceptions)
    n_input, n_cache, n_output, cost = theirs.compute_token_cost_totals()
    assert (ours.input_tokens, ours.cache_tokens, ours.output_tokens) == (
        n_input,
        n_cache,
        n_output,
    )
    assert ours.cost_usd == (None if cost is None else pytest.approx(cost))
    for moment, seconds in ((theirs.started_at, ours.started_at),):
        assert seconds == (None if moment is None else moment.timestamp())
    assert ours.execution == str(theirs.id)


@given(st.binary(max_size=200) | MODELS.map(lambda m: m.model_dump_json().encode()), st.data())
def test_no_bytes_do_worse_than_a_file_error(data: bytes, draw: st.DataObject) -> None:
    place = draw.draw(st.integers(0, len(data)))
    damaged = data[:place] + draw.draw(st.binary(max_size=4)) + data[place + 2 :]
    for read in (
        read_trial_result,
        read_trial_config,
        read_trial_lock,
        read_job_result,
        read_job_lock,
        read_job_config,
    ):
        with suppress(FileError):
            read(damaged)
