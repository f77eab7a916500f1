"""The truths of ownership, for any input."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, strategies as st

from harborlight.ledger.jobs import Job
from harborlight.ledger.ownership import AttemptState, Execution, TaskRules, balance_task
from support.records import DIGEST, OTHER_DIGEST, finished, job_record, live, trial

_JOBS = ("a", "b", "c")
_IDS = tuple(f"id{number}" for number in range(8))


@st.composite
def _execution(draw: st.DrawFn) -> Execution:
    terminal = draw(st.booleans())
    reward = draw(st.sampled_from([None, 0.0, 0.5, 1.0])) if terminal else None
    exceptions = draw(st.sampled_from([(), ("ValueError",), ("ApiError",), ("CancelledError",)]))
    record = trial(
        name=draw(st.sampled_from(["x", "y", "z"])),
        execution=draw(st.sampled_from(_IDS)) if terminal else "",
        job=draw(st.sampled_from(_JOBS)),
        reward=reward,
        exceptions=exceptions if terminal else (),
        at=draw(st.floats(0, 1000)),
        digest=draw(st.sampled_from([DIGEST, OTHER_DIGEST, None])),
        source_trial=draw(st.sampled_from([None, None, *_IDS])),
        unreadable=not terminal and draw(st.booleans()),
        verification_off=draw(st.booleans()),
        mtime_ns=draw(st.integers(0, 10**12)),
    )
    return Execution(record, present=draw(st.booleans()), dead=draw(st.booleans()))


@st.composite
def _jobs(draw: st.DrawFn) -> Mapping[str, Job]:
    retries = draw(st.integers(0, 2))
    return {
        name: draw(
            st.sampled_from(
                [
                    live(name, max_retries=retries),
                    finished(name, max_retries=retries),
                    Job(job_record(name, max_retries=retries), name),
                    Job(job_record(name, n_cancelled=1), name, held=False),
                    Job(job_record(name, incarnation=500.0), name, held=False, local=True),
                ]
            )
        )
        for name in _JOBS
    }


@st.composite
def _rules(draw: st.DrawFn) -> TaskRules:
    return TaskRules(
        target=draw(st.one_of(st.none(), st.integers(0, 6))),
        digest=draw(st.sampled_from([None, DIGEST, OTHER_DIGEST])),
        supersedes=draw(st.frozensets(st.sampled_from(_JOBS))),
        planned=draw(st.dictionaries(st.sampled_from(_JOBS), st.integers(0, 4))),
        planned_regrades=draw(
            st.dictionaries(st.sampled_from(_JOBS), st.frozensets(st.sampled_from(_IDS)))
        ),
    )


def _unique(executions: list[Execution]) -> list[Execution]:
    """One of each key, and one of each id, as a ledger holds them."""
    kept: dict[tuple[str, str, str], Execution] = {}
    ids: set[str] = set()
    for execution in executions:
        record = execution.record
        if record.execution in ids:
            continue
        kept.setdefault((record.job_id, record.name, record.execution), execution)
        if record.execution:
            ids.add(record.execution)
    return list(kept.values())


_SITUATION = (_rules(), st.lists(_execution(), max_size=10).map(_unique), _jobs())


@given(*_SITUATION)
def test_the_five_states_add_up_to_the_target(
    rules: TaskRules, executions: list[Execution], jobs: Mapping[str, Job]
) -> None:
    """Every attempt is in exactly one state, whatever happened."""
    balance = balance_task(rules, executions, jobs)
    assert set(balance.states) == set(AttemptState)
    assert all(count >= 0 for count in balance.states.values())
    assert sum(balance.states.values()) == balance.target
    if rules.target is not None:
        assert balance.target == rules.target
        assert balance.states[AttemptState.SCORED] <= rules.target
    assert balance.passed <= balance.states[AttemptState.SCORED]


@given(*_SITUATION, st.randoms(use_true_random=False))
def test_the_order_of_reading_changes_nothing(
    rules: TaskRules, executions: list[Execution], jobs: Mapping[str, Job], random: object
) -> None:
    """Files may be read in any order."""
    shuffled = list(executions)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = balance_task(rules, executions, jobs), balance_task(rules, shuffled, jobs)
    assert one.states == other.states
    assert (one.passed, one.surplus, one.stale_content, one.superseded) == (
        other.passed,
        other.surplus,
        other.stale_content,
        other.superseded,
    )
    assert sorted(map(repr, one.faults)) == sorted(map(repr, other.faults))


@given(*_SITUATION)
def test_open_faults_are_the_faulted_attempts(
    rules: TaskRules, executions: list[Execution], jobs: Mapping[str, Job]
) -> None:
    """Each faulted attempt has one open fault with a boundary, and no other fault is open."""
    balance = balance_task(rules, executions, jobs)
    opened = [fault for fault in balance.faults if fault.boundary is not None]
    assert len(opened) == balance.states[AttemptState.FAULTED]


@given(*_SITUATION)
def test_an_attempt_is_counted_only_for_a_valid_verdict(
    rules: TaskRules, executions: list[Execution], jobs: Mapping[str, Job]
) -> None:
    """There are never more scored lineages than valid rewards."""
    balance = balance_task(rules, executions, jobs)
    valid = sum(1 for execution in executions if execution.record.reward_valid)
    assert balance.states[AttemptState.SCORED] + balance.surplus + balance.stale_content <= valid
