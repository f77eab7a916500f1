"""The truths of the ledger, for any history of looks."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from harborlight.ledger import Ledger, Store
from harborlight.ledger.book import Rules
from harborlight.ledger.ownership import AttemptState
from harborlight.ledger.runs import RunDefinition
from harborlight.ledger.standing import RunStanding
from harborlight.records import JobRecord, TaskRef, TrialRecord
from harborlight.sources.observation import JobSighting, Observation
from support.records import DIGEST, OTHER_DIGEST, job_record, logged, plan, trial

TASKS = (TaskRef("set", "one"), TaskRef("set", "two"))
RULES = Rules(runs=(RunDefinition("run", jobs=("main", "again")),))


@st.composite
def _jobs(draw: st.DrawFn) -> list[JobRecord]:
    """A main job, perhaps a second one of the same run, a regrade of the first, and another run."""
    records = []
    for job_id, sources in (("main", ()), ("again", ()), ("regrade", ("main",)), ("other", ())):
        entries = [plan(draw(st.integers(1, 3)), task) for task in TASKS]
        if draw(st.booleans()):
            entries[0] = replace(entries[0], digest=OTHER_DIGEST)
        if sources:
            entries = [plan(1, TASKS[0], source_trial="e1", source_task=TASKS[0])]
        updated = draw(st.floats(1, 1000))
        records.append(
            job_record(
                job_id,
                *entries,
                created=draw(st.floats(1, 5)),
                updated_at=updated,
                finished_at=draw(st.sampled_from([None, updated])),
                n_cancelled=draw(st.sampled_from([0, 0, 1])),
                max_retries=draw(st.integers(0, 1)),
                source_jobs=sources,
            )
        )
    return records


@st.composite
def _trials(draw: st.DrawFn) -> list[TrialRecord]:
    records: dict[str, TrialRecord] = {}
    for number in range(draw(st.integers(0, 8))):
        job = draw(st.sampled_from(["main", "again", "regrade", "other"]))
        terminal = draw(st.booleans())
        reward = draw(st.sampled_from([None, 0.0, 1.0])) if terminal else None
        name = draw(st.sampled_from(["x", "y", "z"]))
        task = TASKS[name == "z"]
        record = trial(
            name,
            f"e{number}" if terminal else "",
            job=job,
            reward=reward,
            at=float(draw(st.integers(10, 500))),
            task=task,
            digest=draw(st.sampled_from([DIGEST, OTHER_DIGEST])),
            exceptions=() if reward is not None else ("ApiError",) * terminal,
            source_trial="e1" if job == "regrade" else None,
            mtime_ns=draw(st.integers(1, 10**12)),
            again=draw(st.booleans()),
        )
        key = record.execution or f"{job}/{name}"
        records[key] = record
    for job in ("main", "again"):
        for number in range(1, 1 + draw(st.integers(0, 3))):
            kind = draw(st.sampled_from(["ApiError", "ApiError", "ValueError"]))
            record = logged("x", number, kind, job=job, task=TASKS[0])
            records[record.execution] = record
    return list(records.values())


def _observation(jobs: list[JobRecord], trials: list[TrialRecord]) -> Observation:
    return Observation(
        jobs={job.job_id: JobSighting(job, origin=job.job_id) for job in jobs},
        trials=tuple(trials),
        present_jobs=frozenset(job.job_id for job in jobs),
    )


def _accounts(ledger: Ledger) -> list[tuple[object, ...]]:
    """All that a run shows of its attempts."""
    return [
        (
            run.label,
            run.target,
            dict(run.states),
            run.passed,
            run.surplus,
            run.stale_content,
            run.superseded,
            dict(run.resolutions),
            dict(run.faults_open),
            [(task.label, dict(task.states), task.passed) for task in run.tasks],
        )
        for run in ledger.runs()
    ]


def _adds_up(run: RunStanding) -> bool:
    return sum(run.states.values()) == run.target and all(
        sum(task.states.values()) == task.target for task in run.tasks
    )


@given(_jobs(), _trials())
def test_the_states_add_up_for_every_run_and_task(
    jobs: list[JobRecord], trials: list[TrialRecord]
) -> None:
    """Whatever was seen: promise one."""
    ledger = Ledger(Store.throw_away(), RULES)
    ledger.take(_observation(jobs, trials))
    assert {run.label for run in ledger.runs()} == {"run", "other"}
    assert all(_adds_up(run) for run in ledger.runs())
    for run in ledger.runs():
        assert run.states[AttemptState.SCORED] <= (run.target or 0)


@given(_jobs(), _trials(), st.randoms(use_true_random=False))
def test_order_and_repeats_of_reading_change_nothing(
    jobs: list[JobRecord], trials: list[TrialRecord], random: Random
) -> None:
    """All at once, or in any order, one look each, with everything read twice."""
    at_once = Ledger(Store.throw_away(), RULES)
    at_once.take(_observation(jobs, trials))
    piecemeal = Ledger(Store.throw_away(), RULES)
    pieces: list[tuple[list[JobRecord], list[TrialRecord]]] = [([job], []) for job in jobs]
    pieces += [(jobs, [record]) for record in trials] * 2
    random.shuffle(pieces)
    for some_jobs, some_trials in pieces:
        seen = _observation(some_jobs, some_trials)
        ids = frozenset(job.job_id for job in jobs)
        piecemeal.take(Observation(seen.jobs, seen.trials, ids))
    assert _accounts(piecemeal) == _accounts(at_once)


@settings(max_examples=40)
@given(_jobs(), _trials(), st.integers(0, 8))
def test_a_restart_changes_nothing_and_no_counter_falls(
    jobs: list[JobRecord], trials: list[TrialRecord], cut: int
) -> None:
    """Half is seen before the process ends, the rest and all of it again after."""
    with tempfile.TemporaryDirectory() as folder:
        with Store.open_writer(Path(folder)) as store:
            ledger = Ledger(store, RULES)
            ledger.take(_observation(jobs, trials[:cut]))
            ledger.commit()
            before, counters = _accounts(ledger), ledger.counters()
        with Store.open_writer(Path(folder)) as store:
            ledger = Ledger(store, RULES)
            assert _accounts(ledger) == before
            ledger.take(_observation(jobs, trials))
            ledger.commit()
            after = ledger.counters()
        for run, metrics in counters.items():
            for metric, values in metrics.items():
                for labels, value in values.items():
                    assert after[run][metric][labels] >= value
