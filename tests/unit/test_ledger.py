"""The rules of attempts, one example a rule; each expected value is worked out by hand."""

from __future__ import annotations

from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from harborlight.ledger import Ledger, LedgerError, Store
from harborlight.ledger.book import Rules
from harborlight.ledger.faults import Boundary, Cause
from harborlight.ledger.jobs import JobState
from harborlight.ledger.outcomes import RewardRule
from harborlight.ledger.ownership import AttemptState, Resolution, TrialState
from harborlight.ledger.runs import RunDefinition
from harborlight.records import JobRecord, TaskRef
from harborlight.sources.observation import JobSighting, Observation
from support.records import (
    DIGEST,
    OTHER_DIGEST,
    TASK,
    Watched,
    job_record,
    logged,
    plan,
    states,
    trial,
)

SUPERSEDING = Rules(runs=(RunDefinition("run", jobs=("main",), supersedes=("regrade",)),))


def _regrade_of(*sources: str, digest: str = DIGEST, **fields: object) -> JobRecord:
    return job_record(
        "regrade",
        *(plan(1, digest=digest, source_trial=source, source_task=TASK) for source in sources),
        created=50.0,
        source_jobs=("main",),
        **fields,
    )


class TestStates:
    """Where an attempt stands."""

    def test_planned_but_not_started_is_queued(self) -> None:
        """A live job's plan is work to come, before any directory exists."""
        watched = Watched()
        watched.see(job_record("main", plan(5)), held=True)
        assert (watched.run().target, states(watched.run())) == (5, "0/0/5/0/0")

    def test_each_state_at_once(self) -> None:
        """One scored 0, one running, one fault, two still queued, in a live job."""
        watched = Watched()
        watched.see(
            job_record("main", plan(5)),
            trial("a", "1", job="main", reward=0.0),
            trial("b", job="main"),
            trial("c", "3", job="main", exceptions=("ApiError",)),
            held=True,
        )
        assert states(watched.run()) == "1/1/2/1/0"
        assert watched.run().passed == 0
        assert watched.run().faults_open == {(Cause.SERVING, Boundary.RESUME): 1}

    def test_a_finished_job_runs_nothing_more(self) -> None:
        """Open trials of an ended job are faults, its unstarted plan is unplanned."""
        watched = Watched()
        watched.see(
            job_record("main", plan(4), finished_at=200.0),
            trial("a", "1", job="main", reward=1.0),
            trial("b", job="main"),
        )
        assert states(watched.run()) == "1/0/0/1/2"
        assert watched.run().faults_open == {(Cause.INTERRUPTED, Boundary.RESUME): 1}

    def test_unverified_leaves_its_attempt_unplanned(self) -> None:
        """Verification was off: neither a verdict nor a fault."""
        watched = Watched()
        watched.see(
            job_record("main", plan(1), finished_at=200.0),
            trial("a", "1", job="main", verification_off=True),
        )
        assert states(watched.run()) == "0/0/0/0/1"
        assert not watched.run().resolutions

    def test_unknown_liveness_counts_as_live(self) -> None:
        """Over a network file system nobody can be seen to hold the log."""
        watched = Watched()
        watched.see(job_record("main", plan(2)), trial("a", job="main"), held=None)
        assert watched.ledger.jobs()[0].state is JobState.UNKNOWN
        assert states(watched.run()) == "0/1/1/0/0"

    def test_let_go_without_an_end_is_interrupted(self) -> None:
        """Held at one look, not held at the next, and no end written."""
        watched = Watched()
        record = job_record("main", plan(2))
        watched.see(record, trial("a", job="main"), held=True)
        watched.see(record, held=False)
        assert watched.ledger.jobs()[0].state is JobState.INTERRUPTED
        assert states(watched.run()) == "0/0/0/1/1"

    def test_a_resume_takes_up_what_an_interruption_left(self) -> None:
        """The old name never comes back; its slot is planned again, then run under a new name."""
        watched = Watched()
        record = job_record("main", plan(2), incarnation=1.0)
        watched.see(record, trial("a", job="main", at=20.0), held=True, listing=frozenset({"a"}))
        watched.see(record, held=False, listing=frozenset({"a"}))
        watched.see(record, held=False, listing=frozenset())
        assert states(watched.run()) == "0/0/0/1/1"
        resumed = replace(record, incarnation=100.0, updated_at=100.0)
        watched.see(resumed, held=True, listing=frozenset())
        assert states(watched.run()) == "0/0/2/0/0"
        watched.see(resumed, trial("b", job="main", at=120.0), held=True, listing=frozenset({"b"}))
        assert states(watched.run()) == "0/1/1/0/0"
        assert watched.run().resolutions == {Resolution.PENDING: 1}

    def test_back_off_before_a_retry_is_running(self) -> None:
        """Harbor removes the directory at once and waits; the slot is still held."""
        watched = Watched()
        record = job_record("main", plan(1), max_retries=2)
        watched.see(record, trial("a", job="main"), held=True, listing=frozenset({"a"}))
        watched.see(record, held=True, listing=frozenset())
        assert states(watched.run()) == "0/1/0/0/0"

    def test_a_seen_fault_in_back_off_is_running_and_pending(self) -> None:
        """The failed execution was caught in time: counted, and its retry awaited."""
        watched = Watched()
        record = job_record("main", plan(1), max_retries=2)
        fault = trial("a", "1", job="main", exceptions=("ApiError",))
        watched.see(record, fault, held=True, listing=frozenset({"a"}))
        assert states(watched.run()) == "0/0/0/1/0"
        watched.see(record, held=True, listing=frozenset())
        assert states(watched.run()) == "0/1/0/0/0"
        assert watched.run().resolutions == {Resolution.PENDING: 1}
        again = trial("a", "2", job="main", reward=1.0, at=200.0)
        watched.see(record, again, held=True, listing=frozenset({"a"}))
        assert states(watched.run()) == "1/0/0/0/0"
        assert watched.run().resolutions == {Resolution.RETRIED: 1}
        assert watched.counter("main", "run_faults_total", "agent", "serving") == 1

    def test_an_excluded_exception_is_not_retried(self) -> None:
        """A vanished fault that the job does not retry stays a fault."""
        watched = Watched()
        record = job_record("main", plan(1), max_retries=2, retry_exclude=("ApiError",))
        fault = trial("a", "1", job="main", exceptions=("ApiError",))
        watched.see(record, fault, held=True, listing=frozenset({"a"}))
        watched.see(record, held=True, listing=frozenset())
        assert states(watched.run()) == "0/0/0/1/0"


class TestVerdicts:
    """What counts as a verdict, and whose it is."""

    def test_a_discarded_verdict_is_counted_and_gives_way(self) -> None:
        """Harbor retried a valid verdict: the last execution's is the lineage's."""
        watched = Watched()
        record = job_record("main", plan(1), max_retries=2)
        first = trial("a", "1", job="main", reward=1.0, exceptions=("ValueError",))
        watched.see(record, first, held=True, listing=frozenset({"a"}))
        assert (states(watched.run()), watched.run().passed) == ("1/0/0/0/0", 1)
        watched.see(record, held=True, listing=frozenset())
        assert states(watched.run()) == "0/1/0/0/0"
        second = trial("a", "2", job="main", reward=0.0, at=200.0)
        watched.see(record, second, held=True, listing=frozenset({"a"}))
        assert (states(watched.run()), watched.run().passed) == ("1/0/0/0/0", 0)
        assert watched.counter("main", "run_verdicts_discarded_total", "passed") == 1
        assert watched.counter("main", "run_verdicts_total", "passed") == 1
        assert watched.counter("main", "run_verdicts_total", "failed") == 1

    @pytest.mark.parametrize(("before", "after"), [(1.0, 0.0), (0.0, 1.0)])
    def test_a_regrade_does_not_replace_a_valid_verdict(self, before: float, after: float) -> None:
        """Nobody can pick the better of two."""
        watched = Watched()
        watched.see(
            job_record("main", plan(1), finished_at=90.0),
            trial("a", "1", job="main", reward=before),
        )
        watched.see(
            _regrade_of("1", finished_at=300.0),
            trial("b", "2", job="regrade", reward=after, at=250.0, source_trial="1"),
        )
        run = watched.run()
        assert (run.target, states(run), run.passed) == (1, "1/0/0/0/0", int(before))
        assert (run.superseded, run.surplus) == (0, 0)

    @pytest.mark.parametrize(("before", "after"), [(1.0, 0.0), (0.0, 1.0)])
    def test_a_superseding_regrade_replaces_it(self, before: float, after: float) -> None:
        """Configuration says so; the attempt stays one and keeps its place."""
        watched = Watched(SUPERSEDING)
        watched.see(
            job_record("main", plan(1), finished_at=90.0),
            trial("a", "1", job="main", reward=before),
        )
        watched.see(
            _regrade_of("1", finished_at=300.0),
            trial("b", "2", job="regrade", reward=after, at=250.0, source_trial="1"),
        )
        run = watched.run("run")
        assert (states(run), run.passed, run.superseded) == ("1/0/0/0/0", int(after), 1)
        assert run.last_verdict == 100.0

    def test_a_regrade_fills_a_missing_verdict(self) -> None:
        """A verifier's fault is closed by the regrade's verdict; a running one holds it."""
        watched = Watched()
        fault = trial("a", "1", job="main", exceptions=("VerifierTimeoutError",))
        fault = replace(fault, separate_verifier=True)
        watched.see(job_record("main", plan(1), finished_at=90.0), fault)
        assert watched.run().faults_open == {(Cause.VERIFIER, Boundary.REGRADE): 1}
        record = _regrade_of("1")
        watched.see(record, held=True)
        assert states(watched.run()) == "0/0/1/0/0"
        watched.see(record, trial("b", job="regrade", at=240.0, source_trial="1"), held=True)
        assert states(watched.run()) == "0/1/0/0/0"
        watched.see(
            replace(record, finished_at=300.0),
            trial("b", "2", job="regrade", reward=1.0, at=250.0, source_trial="1"),
        )
        assert states(watched.run()) == "1/0/0/0/0"
        assert watched.run().resolutions == {Resolution.REGRADED: 1}

    def test_a_running_regrade_leaves_a_scored_lineage_scored(self) -> None:
        """It only looks again."""
        watched = Watched()
        watched.see(job_record("main", plan(1)), trial("a", "1", job="main", reward=1.0))
        watched.see(_regrade_of("1"), trial("b", job="regrade", source_trial="1"), held=True)
        assert states(watched.run()) == "1/0/0/0/0"

    def test_regrades_of_an_unread_source_meet_at_its_id_and_merge_with_it(self) -> None:
        """Two regrades of one trial are one lineage, before and after the source is read."""
        watched = Watched()
        watched.see(
            _regrade_of("1", finished_at=300.0),
            trial("b", "2", job="regrade", reward=1.0, at=250.0, source_trial="1"),
        )
        assert states(watched.run("regrade")) == "1/0/0/0/0"
        watched.see(
            job_record("main", plan(1), finished_at=90.0), trial("a", "1", job="main", reward=0.0)
        )
        run = watched.run("main")
        assert (run.target, states(run), run.passed) == (1, "1/0/0/0/0", 0)
        assert [r.label for r in watched.ledger.runs()] == ["main"]

    def test_a_regrades_copied_usage_and_exception_count_once(self) -> None:
        """Harbor copies tokens, cost and the agent's exception into the regrade's result."""
        watched = Watched()
        usage = {"input_tokens": 100, "cache_tokens": 40, "output_tokens": 7, "cost_usd": 0.5}
        failed = trial("a", "1", job="main", exceptions=("ApiError",), **usage)
        watched.see(job_record("main", plan(1), finished_at=90.0), failed)
        again = replace(failed, job_id="regrade", name="b", execution="2", source_trial="1")
        watched.see(_regrade_of("1", finished_at=300.0), again)
        assert watched.counter("main", "run_tokens_total", "input") == 60
        assert watched.counter("main", "run_tokens_total", "cached_input") == 40
        assert watched.counter("main", "run_cost_usd_total") == 0.5
        assert watched.counter("main", "run_faults_total", "agent", "serving") == 1
        assert watched.run().resolutions == {Resolution.OPEN: 1}

    def test_types_declared_invalid_void_a_reward(self) -> None:
        """Configuration may declare types invalid, never valid."""
        rule = RewardRule(invalid_exceptions=frozenset({"ValueError"}))
        watched = Watched(Rules(runs=(RunDefinition("run", jobs=("main",), reward=rule),)))
        watched.see(
            job_record("main", plan(2), finished_at=200.0),
            trial("a", "1", job="main", reward=1.0, exceptions=("ValueError",)),
            trial("b", "2", job="main", reward=1.0, exceptions=("AgentTimeoutError",)),
        )
        run = watched.run("run")
        assert states(run) == "1/0/0/1/0"
        assert run.scored_with_exception == {Cause.AGENT: 1}

    @pytest.mark.parametrize(
        ("key", "rewards", "passed", "without"),
        [
            (None, (("reward", 1.0), ("style", 0.2)), 1, 0),
            (None, (("accuracy", 1.0),), 1, 0),
            (None, (("accuracy", 1.0), ("speed", 1.0)), 0, 1),
            ("style", (("reward", 1.0), ("style", 0.2)), 0, 0),
            ("style", (("reward", 1.0),), 0, 1),
        ],
    )
    def test_the_reward_key(
        self, key: str | None, rewards: tuple[tuple[str, float], ...], passed: int, without: int
    ) -> None:
        """The configured key, else `reward`, else the only one, else scored without key."""
        watched = Watched(
            Rules(runs=(RunDefinition("run", jobs=("main",), reward=RewardRule(key=key)),))
        )
        watched.see(
            job_record("main", plan(1), finished_at=200.0),
            trial("a", "1", job="main", reward=1.0, rewards=rewards),
        )
        run = watched.run("run")
        assert (states(run), run.passed, run.without_key) == ("1/0/0/0/0", passed, without)


class TestOwnership:
    """First come, first served, by the time of the first valid verdict."""

    def test_a_job_found_late_takes_what_was_first(self) -> None:
        """The order of the verdicts decides, not that of the discovery."""
        rules = Rules(runs=(RunDefinition("run", jobs=("main", "late"), attempts=1),))
        watched = Watched(rules)
        watched.see(job_record("main", plan(1)), trial("a", "1", job="main", reward=1.0, at=200.0))
        assert watched.run("run").passed == 1
        watched.see(job_record("late", plan(1)), trial("b", "2", job="late", reward=0.0, at=100.0))
        run = watched.run("run")
        assert (run.target, states(run), run.passed, run.surplus) == (1, "1/0/0/0/0", 0, 1)

    def test_a_rerun_under_a_new_digest_owns_its_predecessors_attempt(self) -> None:
        """Verdicts on another version of the task are stale content."""
        rules = Rules(runs=(RunDefinition("run", jobs=("main", "again")),))
        watched = Watched(rules)
        watched.see(job_record("main", plan(1)), trial("a", "1", job="main", reward=1.0))
        watched.see(
            job_record("again", plan(1, digest=OTHER_DIGEST), created=60.0),
            trial("b", "2", job="again", reward=0.0, at=300.0, digest=OTHER_DIGEST),
        )
        run = watched.run("run")
        assert (run.target, states(run), run.passed) == (1, "1/0/0/0/0", 0)
        assert (run.stale_content, run.surplus) == (1, 0)

    def test_the_content_can_be_configured(self) -> None:
        """Then the older version's verdict counts and the newer one is stale."""
        definition = RunDefinition("run", jobs=("main", "again"), content={"task": DIGEST})
        watched = Watched(Rules(runs=(definition,)))
        watched.see(job_record("main", plan(1)), trial("a", "1", job="main", reward=1.0))
        watched.see(
            job_record("again", plan(1, digest=OTHER_DIGEST), created=60.0),
            trial("b", "2", job="again", reward=0.0, at=300.0, digest=OTHER_DIGEST),
        )
        assert (watched.run("run").passed, watched.run("run").stale_content) == (1, 1)

    def test_a_regrade_on_changed_content_replaces_by_itself(self) -> None:
        """A diff job's regrade keeps the lineage and brings its verdict up to date."""
        watched = Watched()
        watched.see(
            job_record("main", plan(1), finished_at=90.0), trial("a", "1", job="main", reward=1.0)
        )
        watched.see(
            _regrade_of("1", digest=OTHER_DIGEST, finished_at=300.0),
            trial(
                "b", "2", job="regrade", reward=0.0, at=250.0, source_trial="1", digest=OTHER_DIGEST
            ),
        )
        run = watched.run()
        assert (states(run), run.passed, run.superseded) == ("1/0/0/0/0", 0, 1)
        assert run.stale_content == 0

    def test_a_copy_changes_nothing(self) -> None:
        """The same job in another directory, seen in an earlier state."""
        watched = Watched()
        record = job_record("main", plan(2), updated_at=500.0, finished_at=500.0)
        scored = trial("a", "1", job="main", reward=1.0)
        watched.see(record, scored, trial("b", "2", job="main", reward=0.0))
        before = watched.ledger.runs()
        stale = replace(record, name="copy", updated_at=100.0, finished_at=None)
        watched.see(stale, scored, trial("b", job="main", at=90.0))
        assert watched.ledger.runs() == before
        assert watched.ledger.jobs()[0].state is JobState.FINISHED

    def test_a_copy_that_looks_new_takes_no_verdict_away(self) -> None:
        """Half copied without its times, a finished trial looks like one that just started."""
        watched = Watched()
        record = job_record("main", plan(2), updated_at=500.0, finished_at=500.0, max_retries=2)
        watched.see(
            record,
            trial("a", "1", job="main", reward=1.0),
            trial("b", "2", job="main", exceptions=("ApiError",)),
        )
        before, counters = watched.ledger.runs(), watched.ledger.counters()
        copied = trial("a", job="main", at=9000.0)
        watched.see(replace(record, name="copy"), copied)
        assert (watched.ledger.runs(), watched.ledger.counters()) == (before, counters)
        whole = trial("a", "1", job="main", reward=1.0, mtime_ns=9001 * 10**9)
        watched.see(replace(record, name="copy"), whole)
        assert (watched.ledger.runs(), watched.ledger.counters()) == (before, counters)

    def test_a_touched_configuration_interrupts_nothing(self) -> None:
        """A trial that counts as running is no fault, however new the job's files look."""
        watched = Watched()
        record = job_record("main", plan(1))
        watched.see(record, trial("a", job="main"), held=True, listing=frozenset({"a"}))
        watched.see(
            replace(record, incarnation=9000.0), trial("a", job="main"), held=True,
            listing=frozenset({"a"}),
        )  # fmt: skip
        assert states(watched.run()) == "0/1/0/0/0"
        assert watched.counter("main", "run_faults_total", "unknown", "interrupted") == 0

    def test_a_renamed_directory_is_the_same_job_and_run(self) -> None:
        """Its id tells."""
        watched = Watched()
        record = job_record("main", plan(1))
        watched.see(record, trial("a", "1", job="main", reward=1.0))
        watched.see(replace(record, name="renamed"), trial("a", "1", job="main", reward=1.0))
        assert [run.label for run in watched.ledger.runs()] == ["main"]
        assert watched.ledger.n_trials == 1

    def test_a_new_job_in_an_old_folders_place_starts_from_nothing(self) -> None:
        """Another id under the same name is another run, told apart by a short id."""
        watched = Watched()
        watched.see(
            job_record("11111111-1", plan(1), name="main"),
            trial("a", "1", job="11111111-1", reward=1.0),
        )
        watched.see(job_record("22222222-2", plan(1), name="main", created=9.0), held=True)
        assert states(watched.run("main")) == "1/0/0/0/0"
        assert states(watched.run("main-22222222")) == "0/0/1/0/0"

    def test_two_organisations_with_one_task_name_are_two_tasks(self) -> None:
        """A registry prefix is part of a task's name."""
        one, other = TaskRef("set", "first/task"), TaskRef("set", "second/task")
        watched = Watched()
        watched.see(
            job_record("main", plan(1, one), plan(1, other), finished_at=200.0),
            trial("a", "1", job="main", reward=1.0, task=one),
            trial("b", "2", job="main", reward=1.0, task=one, at=120.0),
        )
        run = watched.run()
        assert {task.label: task.states[AttemptState.SCORED] for task in run.tasks} == {
            "first/task": 1,
            "second/task": 0,
        }
        assert run.surplus == 1

    def test_several_evaluations_of_one_job_are_several_runs(self) -> None:
        """One run per agent, model and dataset, named by what differs."""
        watched = Watched()
        watched.see(job_record("main", plan(1), plan(2, agent="pkg.mod:Other")))
        assert {run.label: run.target for run in watched.ledger.runs()} == {
            "main/agent": 1,
            "main/Other": 2,
        }


class TestCounters:
    """What was counted stays whose it was."""

    def test_a_configured_run_does_not_take_over_an_automatic_ones_label(self) -> None:
        """Nor does the automatic run, back again, have counted what the other did."""
        watched = Watched()
        watched.see(job_record("main", plan(1)), trial("a", "1", job="main", reward=1.0))
        watched.see(job_record("else", plan(1)), trial("b", "2", job="else", reward=1.0))
        watched.ledger.configure(Rules(runs=(RunDefinition("main", jobs=("*",)),)))
        assert watched.counter("main", "run_verdicts_total", "passed") == 2
        watched.ledger.configure(Rules())
        assert watched.counter("main", "run_verdicts_total", "passed") == 1

    def test_retries_belong_to_each_run_that_a_job_ever_served(self) -> None:
        watched = Watched()
        watched.see(job_record("main", plan(1), n_retries=3))
        watched.ledger.configure(Rules(runs=(RunDefinition("all", jobs=("*",)),)))
        assert watched.counter("all", "run_retries_total") == 3
        watched.see(job_record("main", plan(1), n_retries=5))
        assert watched.counter("all", "run_retries_total") == 5
        watched.ledger.configure(Rules())
        assert watched.counter("main", "run_retries_total") == 5

    def test_a_type_that_nobody_knows_counts_for_the_phase_it_occurred_in(self) -> None:
        """Not for the verifier's, which ran after it."""
        watched = Watched()
        own = {"exceptions": ("MyOwnError",), "raised_in": "agent"}
        watched.see(job_record("job", plan(1)), trial("a", "1", **own))  # type: ignore[arg-type]
        (task,) = watched.run().tasks
        assert [(str(f.phase), str(f.cause)) for f in task.faults] == [("agent", "agent")]


class TestLoggedRetries:
    """Executions that only the job's log tells of; ``ApiError`` voids a reward."""

    def test_they_are_faults_that_harbor_retried(self) -> None:
        watched = Watched()
        watched.see(
            job_record("job", plan(1), max_retries=2),
            logged("a", 1),
            logged("a", 2),
            trial("a", "e3", reward=1.0),
        )
        run = watched.run()
        assert states(run) == "1/0/0/0/0"
        assert run.resolutions == {Resolution.RETRIED: 2}
        assert watched.counter("job", "run_faults_total", "unknown", "serving") == 2
        assert watched.counter("job", "run_verdicts_total", "passed") == 1

    def test_a_reward_may_have_been_lost(self) -> None:
        """Harbor holds rewards beside types that it does not know for valid, and retries them."""
        watched = Watched()
        record = job_record("job", plan(1), max_retries=2)
        watched.see(record, logged("a", 1, "ValueError"))
        assert states(watched.run()) == "0/0/1/0/0"  # nothing says that anything was lost
        watched.see(record, trial("a", "e2", reward=1.0))
        assert states(watched.run()) == "1/0/0/0/0"
        assert watched.run().resolutions == {}
        watched.see(record, logged("a", 1, "ValueError"))
        for metric in ("run_verdicts_total", "run_verdicts_discarded_total"):
            assert watched.counter("job", metric, "unknown") == 1
        assert watched.counter("job", "run_verdicts_discarded_total", "passed") == 0

    @pytest.mark.parametrize("log_first", [True, False])
    def test_one_that_was_seen_is_not_told_of_again(self, log_first: bool) -> None:
        """Its result was caught before Harbor deleted it: one fault, counted once."""
        watched = Watched()
        record = job_record("job", plan(1), max_retries=2)
        seen = trial("a", "e1", at=50.0, exceptions=("ApiError",))
        last = trial("a", "e3", at=150.0, exceptions=("ApiError",))
        lines = (logged("a", 1), logged("a", 2))
        first, second = (lines, (seen,)) if log_first else ((seen,), lines)
        watched.see(record, last, *first)
        watched.see(record, *second)
        assert watched.run().resolutions == {Resolution.RETRIED: 2, Resolution.OPEN: 1}
        counted = watched.ledger.counters()["job"]["run_faults_total"]
        assert sum(counted.values()) == 3
        watched.see(record, last, seen, *lines)
        assert watched.run().resolutions == {Resolution.RETRIED: 2, Resolution.OPEN: 1}
        assert sum(watched.ledger.counters()["job"]["run_faults_total"].values()) == 3

    def test_one_that_was_seen_stands_for_the_line_with_its_exceptions(self) -> None:
        watched = Watched()
        watched.see(
            job_record("job", plan(1), max_retries=2),
            logged("a", 1, "ApiError"),
            logged("a", 2, "RateLimitError"),
            trial("a", "e2", at=50.0, exceptions=("RateLimitError",)),
            trial("a", "e3", at=150.0, reward=1.0),
        )
        (task,) = watched.run().tasks
        assert {f.exception_type for f in task.faults} == {"ApiError", "RateLimitError"}

    def test_the_last_execution_stands_for_no_line(self) -> None:
        """It has the same exception as the two before it: three faults."""
        watched = Watched()
        watched.see(
            job_record("job", plan(1), max_retries=2),
            *(logged("a", 1), logged("a", 2)),
            trial("a", "e3", exceptions=("ApiError",)),
        )
        assert watched.run().resolutions == {Resolution.RETRIED: 2, Resolution.OPEN: 1}

    def test_in_back_off_the_one_that_was_seen_is_the_one_of_the_log(self) -> None:
        watched = Watched()
        record = job_record("job", plan(1), max_retries=2)
        watched.see(record, trial("a", "e1", exceptions=("ApiError",)), listing=frozenset({"a"}))
        watched.see(record, logged("a", 1), listing=frozenset())
        assert states(watched.run()) == "0/1/0/0/0"
        assert sum(watched.run().resolutions.values()) == 1

    def test_of_a_trial_before_a_resume_nothing_else_is_left(self) -> None:
        """Its name will not come back: it holds no slot of the plan and runs no more."""
        watched = Watched()
        watched.see(
            job_record("job", plan(1), max_retries=2, incarnation=500.0),
            logged("a", 1),
            trial("b", at=600.0),
            held=True,
        )
        assert states(watched.run()) == "0/1/0/0/0"
        assert watched.run().resolutions == {Resolution.PENDING: 1}


class TestTargets:
    """The denominator."""

    def test_it_comes_from_the_lock_and_may_differ_per_task(self) -> None:
        """The lock's multiset."""
        watched = Watched()
        watched.see(job_record("main", plan(5), plan(2, TaskRef("set", "other"))))
        assert watched.run().target == 7

    def test_a_replay_does_not_raise_it(self) -> None:
        """Jobs of one run plan the same attempts, they do not add up."""
        rules = Rules(runs=(RunDefinition("run", jobs=("*",)),))
        watched = Watched(rules)
        watched.see(job_record("main", plan(5)))
        watched.see(job_record("replay", plan(2), created=9.0))
        assert watched.run("run").target == 5

    def test_a_fixed_list_with_exclusions(self) -> None:
        """Configured tasks and attempts stand before any job does, and do not shrink."""
        definition = RunDefinition(
            "run",
            jobs=("main",),
            tasks=("task", "other", "gpu"),
            exclude={"gpu": "needs a GPU"},
            attempts=5,
        )
        watched = Watched(Rules(runs=(definition,)))
        assert (watched.run("run").target, states(watched.run("run"))) == (10, "0/0/0/0/10")
        watched.see(job_record("main", plan(3), plan(3, TaskRef("set", "gpu"))), held=True)
        assert states(watched.run("run")) == "0/0/3/0/7"

    def test_without_a_lock_it_is_the_total(self) -> None:
        """Attempts a task from the configuration, the rest belongs to tasks not seen yet."""
        watched = Watched()
        record = replace(job_record("main"), plan=None, n_total=6, n_attempts=2)
        watched.see(record, trial("a", "1", job="main", reward=1.0), held=True)
        assert (watched.run().target, states(watched.run())) == (6, "1/0/5/0/0")

    def test_without_lock_and_configuration_it_is_still_the_total(self) -> None:
        """Then nobody knows how many attempts a task gets, but the sum is known."""
        watched = Watched()
        record = replace(job_record("main"), plan=None, n_total=6)
        watched.see(record, trial("a", "1", job="main", reward=1.0), held=True)
        assert (watched.run().target, states(watched.run())) == (6, "1/0/5/0/0")

    def test_a_stray_task_gets_no_attempts(self) -> None:
        """A trial of a task that the lock does not plan is surplus, and the target stays known."""
        watched = Watched()
        watched.see(
            job_record("main", plan(2), finished_at=200.0),
            trial("a", "1", job="main", reward=1.0, task=TaskRef("set", "stray")),
        )
        run = watched.run()
        assert (run.target, states(run), run.surplus) == (2, "0/0/0/0/2", 1)
        assert run.tasks_complete == 0

    def test_unknown_is_said_not_guessed(self) -> None:
        """No job files at all: no target."""
        watched = Watched()
        record = replace(job_record("main"), plan=None, n_total=None, started_at=None)
        watched.see(record, trial("a", "1", job="main", reward=1.0))
        assert watched.run().target is None
        assert watched.run().states[AttemptState.SCORED] == 1

    def test_a_lost_lock_does_not_shrink_it(self) -> None:
        """The last good plan holds."""
        watched = Watched()
        record = job_record("main", plan(5))
        watched.see(record)
        watched.see(replace(record, plan=None, n_total=3))
        assert watched.run().target == 5


class TestNames:
    """Tasks that the configuration names."""

    def test_a_slip_of_the_pen(self) -> None:
        """Known as soon as there is a job; what the run lists need not be in any."""
        definition = RunDefinition(
            "run",
            jobs=("*",),
            exclude={"tsak": "a slip", "set/task": "by its label"},
            given_up={"othr": "a slip", "other": "by its name"},
        )
        watched = Watched(Rules(runs=(definition,)))
        assert watched.run().unknown_tasks == ()
        watched.see(job_record("job", plan(1), plan(1, TaskRef("set", "other"))))
        assert watched.run().unknown_tasks == ("tsak", "othr")
        listed = replace_fields(definition, tasks=("other", "tsak", "othr"))
        watched.ledger.configure(Rules(runs=(listed,)))
        assert watched.run().unknown_tasks == ()


class TestKeeping:
    """Nothing seen is lost."""

    def test_everything_survives_a_restart(self, tmp_path: Path) -> None:
        """A second ledger on the same data shows the same runs, jobs and counters."""
        with Store.open_writer(tmp_path) as store:
            watched = Watched(store=store)
            watched.see(
                job_record("main", plan(5), n_retries=3),
                trial("a", "1", job="main", reward=1.0, cost_usd=0.25),
                trial("b", "2", job="main", exceptions=("ApiError",)),
                trial("c", job="main"),
                held=True,
            )
            runs, jobs = watched.ledger.runs(), watched.ledger.jobs()
            counters = watched.ledger.counters()
        with Store.open_writer(tmp_path) as store:
            again = Ledger(store)
            assert (again.runs(), again.jobs(), again.counters()) == (runs, jobs, counters)
            assert again.n_trials == 3

    def test_what_was_counted_is_not_counted_again(self, tmp_path: Path) -> None:
        """A restart reads every file anew."""
        record = job_record("main", plan(1), n_retries=2)
        scored = trial("a", "1", job="main", reward=1.0, output_tokens=7)
        for _ in range(3):
            with Store.open_writer(tmp_path) as store:
                watched = Watched(store=store)
                watched.see(record, scored)
                assert watched.counter("main", "run_verdicts_total", "passed") == 1
                assert watched.counter("main", "run_tokens_total", "output") == 7
                assert watched.counter("main", "run_retries_total") == 2

    def test_a_deleted_job_directory_changes_no_count(self) -> None:
        """It is kept as it was last seen."""
        watched = Watched()
        watched.see(
            job_record("main", plan(2), finished_at=200.0),
            trial("a", "1", job="main", reward=1.0),
            trial("b", "2", job="main", exceptions=("ApiError",)),
        )
        before = watched.run()
        watched.ledger.take(Observation(present_jobs=frozenset()))
        after = watched.run()
        assert (after.target, after.states, after.passed) == (
            before.target,
            before.states,
            before.passed,
        )
        assert after.faults_open == {(Cause.SERVING, Boundary.RERUN): 1}
        assert not watched.ledger.jobs()[0].present

    def test_a_job_of_several_sources(self) -> None:
        """It is there while any has it; that nobody works on it, all who have it must say."""
        watched, job = Watched(), job_record("main", plan(1))

        def take(source: str, held: bool | None, origin: str = "", **fields: Any) -> None:
            # A copy on disk is of an earlier time than what the server says.
            record = job if source == "server" else replace(job, updated_at=0.5)
            sighting = JobSighting(record, held=held, origin=origin)
            watched.ledger.take(
                Observation(
                    jobs={"main": sighting},
                    trials=(trial("a", job="main"),),
                    present_jobs=frozenset({"main"}),
                    source=source,
                    **fields,
                )
            )

        def shown() -> tuple[bool, str]:
            (standing,) = watched.ledger.jobs()
            return standing.present, standing.state

        take("server", True, "there")
        assert shown() == (True, "live")
        take("jobs", False)
        assert shown() == (True, "live")
        lost = Observation(source="server", unreachable=frozenset({"there"}))
        watched.ledger.take(lost)
        assert shown() == (True, "unknown")
        take("server", True, "there", unreachable=frozenset({"elsewhere"}))
        assert shown() == (True, "live")
        watched.ledger.take(Observation(source="jobs", present_jobs=frozenset()))
        assert shown() == (True, "live")
        watched.ledger.take(Observation(source="server", present_jobs=frozenset()))
        assert shown() == (False, "unknown")
        watched.ledger.take(Observation(source="server", present_jobs=frozenset({"main"})))
        assert shown() == (True, "unknown")
        take("jobs", False)
        watched.ledger.take(Observation(source="server", present_jobs=frozenset()))
        assert shown() == (True, "interrupted")

    def test_what_sources_said_of_a_job_outlives_the_process(self, tmp_path: Path) -> None:
        """So that a server that cannot be reached after a restart has its jobs' states unknown."""
        job = JobSighting(job_record("main", plan(1)), held=True, origin="there")
        seen = Observation(jobs={"main": job}, present_jobs=frozenset({"main"}), source="server")
        with Store.open_writer(tmp_path) as store:
            ledger = Ledger(store)
            ledger.take(seen)
            ledger.commit()
        with Store.open_writer(tmp_path) as store:
            ledger = Ledger(store)
            ledger.take(Observation(source="jobs", present_jobs=frozenset()))
            ledger.take(Observation(source="server", unreachable=frozenset({"there"})))
            (standing,) = ledger.jobs()
            assert (standing.present, standing.state) == (True, "unknown")

    def test_a_retry_by_the_word_of_its_server(self) -> None:
        """Harbor would not retry a verdict by itself, so that elsewhere it is a copy."""
        for again, expected in ((True, "0/1/0/0/0"), (False, "1/0/0/0/0")):
            watched = Watched()
            first = trial("a", "1", reward=1.0, at=100.0)
            second = trial("a", at=200.0, again=again)
            watched.see(job_record("job", plan(1)), first, second, held=True)
            assert states(watched.run()) == expected
            assert watched.counter("job", "run_verdicts_discarded_total", "passed") == 0

    def test_slots_that_were_cancelled_before_they_began(self) -> None:
        watched = Watched()
        watched.see(job_record("job", plan(3, cancelled=1)), trial("a"), held=True)
        assert states(watched.run()) == "0/1/1/0/1"
        assert watched.run().target == 3
        (job,) = watched.ledger.jobs()
        assert job.trials[TrialState.QUEUED] == 1
        watched.see(job_record("job", plan(3), updated_at=2.0), held=True)
        assert states(watched.run()) == "0/1/2/0/0"

    def test_a_failed_write_stays_pending(self, tmp_path: Path) -> None:
        """A full disk, say: the next commit writes all of it."""
        with Store.open_writer(tmp_path) as store:
            watched = Watched(store=store)
            watched.ledger.take(
                Observation(
                    jobs={"main": JobSighting(job_record("main", plan(1)))},
                    trials=(trial("a", "1", job="main", reward=1.0),),
                    present_jobs=frozenset({"main"}),
                )
            )
            with sa.create_engine(f"sqlite:///{tmp_path / 'ledger.sqlite'}").connect() as other:
                other.exec_driver_sql("BEGIN EXCLUSIVE")
                store._engine.dispose()
                with store._engine.connect() as connection:
                    connection.exec_driver_sql("PRAGMA busy_timeout=0")
                with pytest.raises(sa.exc.OperationalError):
                    watched.ledger.commit()
            watched.ledger.commit()
        with Store.open_reader(tmp_path) as store:
            assert Ledger(store).n_trials == 1

    def test_a_data_directory_has_one_writer(self, tmp_path: Path) -> None:
        """A second one refuses, a reader does not."""
        with Store.open_writer(tmp_path):
            with pytest.raises(LedgerError, match="in use by another harborlight serve"):
                Store.open_writer(tmp_path)
            Store.open_reader(tmp_path).close()
        Store.open_writer(tmp_path).close()

    def test_what_is_no_ledger_is_refused(self, tmp_path: Path) -> None:
        """One line saying so."""
        with pytest.raises(LedgerError, match="no ledger in"):
            Store.open_reader(tmp_path)
        (tmp_path / "ledger.sqlite").write_text("not a database, not at all" * 100)
        with pytest.raises(LedgerError, match="cannot be opened: file is not a database"):
            Store.open_writer(tmp_path)

    def test_forgetting_is_on_purpose_and_leaves_a_row(self, tmp_path: Path) -> None:
        """The job is gone, its counters are not, and it does not come back by itself."""
        with Store.open_writer(tmp_path) as store:
            watched = Watched(store=store)
            record = job_record("main", plan(1))
            scored = trial("a", "1", job="main", reward=1.0)
            watched.see(record, scored)
            gone = watched.ledger.forget("main", at=5.0, reason="wrong model")
            assert (gone.label, gone.trials, gone.reason) == ("main", 1, "wrong model")
            watched.see(record, scored)
            assert watched.ledger.runs() == ()
            kept = store.load().counters
            assert kept["main", "run_verdicts_total", "passed"] == 1
            with pytest.raises(LedgerError, match="no job main in the ledger"):
                watched.ledger.forget("main", at=6.0, reason="again")
        with Store.open_reader(tmp_path) as store:
            assert [item.label for item in store.load().forgotten] == ["main"]


class TestStore:
    """What is not a ledger, or not one of ours."""

    def test_another_schema_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        """A newer version's ledger is not touched."""
        Store.open_writer(tmp_path).close()
        engine = sa.create_engine(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
        with engine.begin() as connection:
            connection.exec_driver_sql("UPDATE meta SET value = '99'")
            connection.exec_driver_sql("DROP TABLE runs")
        with pytest.raises(LedgerError, match="ledger has schema 99, this harborlight expects 2"):
            Store.open_writer(tmp_path)
        assert not sa.inspect(engine).has_table("runs")
        engine.dispose()

    def test_a_row_that_makes_no_sense_is_said_in_one_line(self, tmp_path: Path) -> None:
        """No traceback for the one at the terminal."""
        with Store.open_writer(tmp_path) as store:
            Watched(store=store).see(job_record("main", plan(1)))
        engine = sa.create_engine(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
        with engine.begin() as connection:
            connection.exec_driver_sql("UPDATE jobs SET body = X'7B'")
        engine.dispose()
        with (
            Store.open_reader(tmp_path) as store,
            pytest.raises(LedgerError, match="ledger cannot be read: DecodeError"),
        ):
            Ledger(store)


class TestWhatStatisticsNeed:
    """Times, rewards and set-ups of a task's attempts."""

    def test_of_each_kind_of_trial(self) -> None:
        """One scored at 100 after 10 s, one running since 190, a fault that ended at 150."""
        watched = Watched()
        watched.see(
            job_record("main", plan(4), n_concurrent=8),
            trial("a", "1", job="main", reward=0.5, at=100.0, agent_version="1.2"),
            trial("b", job="main", at=200.0),
            trial("c", "3", job="main", exceptions=("ApiError",), at=150.0),
            held=True,
        )
        run = watched.run()
        (task,) = run.tasks
        assert task.rewards == (0.5,)
        assert task.running_starts == (190.0,)
        assert task.scored_at == (100.0,)
        assert set(task.spans) == {(90.0, 100.0), (190.0, None), (140.0, 150.0)}
        assert task.verdicts_of == {(DIGEST, "agent", "1.2", "model")}
        assert task.durations == (10.0,)
        assert (run.live, run.concurrency) == (True, 8)

    def test_a_regrade_s_verdict_has_its_trial_s_time(self) -> None:
        """Its reward counts; that it was given says nothing about how fast trials are."""
        watched = Watched()
        watched.see(
            job_record("main", plan(1), finished_at=60.0),
            trial("a", "1", job="main", exceptions=("VerifierTimeoutError",), at=50.0),
        )
        watched.see(
            _regrade_of("1"),
            trial("g", "2", job="regrade", reward=1.0, at=80.0, source_trial="1"),
        )
        (task,) = watched.run().tasks
        assert states(watched.run()) == "1/0/0/0/0"
        assert (task.rewards, task.scored_at) == ((1.0,), ())
        assert task.spans == ((40.0, 50.0),)

    def test_executions_that_harbor_retried(self) -> None:
        """They are trials that ended, too, as far as they were seen."""
        watched = Watched()
        job = job_record("main", plan(1), max_retries=2)
        first = trial("a", "1", job="main", exceptions=("ApiError",), at=50.0)
        watched.see(job, first, held=True)
        watched.see(job, trial("a", "2", job="main", reward=1.0, at=90.0), held=True)
        (task,) = watched.run().tasks
        assert set(task.spans) == {(40.0, 50.0), (80.0, 90.0)}
        assert task.scored_at == (90.0,)

    def test_what_came_to_nothing_ended_at_no_time(self) -> None:
        """A trial whose process died has no end, and does not run."""
        watched = Watched(Rules(local_jobs=True))
        watched.see(job_record("main", plan(1)), trial("a", job="main", at=100.0), held=False)
        run = watched.run()
        assert states(run) == "0/0/0/1/0"
        assert (run.tasks[0].spans, run.tasks[0].running_starts) == ((), ())
        assert (run.live, run.concurrency) == (False, None)

    def test_surplus_counts_for_nothing(self) -> None:
        watched = Watched()
        watched.see(
            job_record("main", plan(1)),
            trial("a", "1", job="main", reward=1.0, at=100.0),
            trial("b", "2", job="main", reward=0.25, at=200.0),
        )
        (task,) = watched.run().tasks
        assert (task.rewards, task.scored_at) == ((1.0,), (100.0,))

    def test_workers_of_several_jobs_add_up(self) -> None:
        """Only of jobs that have not ended; not known where one tells nothing."""
        definition = RunDefinition("run", jobs=("*",))
        watched = Watched(Rules(runs=(definition,)))
        watched.see(job_record("one", plan(2), n_concurrent=8), held=True)
        watched.see(job_record("two", plan(2), n_concurrent=4), held=True)
        watched.see(job_record("over", plan(2), n_concurrent=64, finished_at=9.0))
        assert watched.run().concurrency == 12
        watched.see(job_record("three", plan(2), n_concurrent=None), held=True)
        assert watched.run().concurrency is None

    def test_jobs_that_override_something(self) -> None:
        watched = Watched(Rules(runs=(RunDefinition("run", jobs=("*",)),)))
        watched.see(job_record("one", plan(1), changed_timeouts=True))
        watched.see(job_record("two", plan(1), created=2.0, changed_resources=True))
        run = watched.run()
        assert (run.changed_timeouts, run.changed_resources) == (("one",), ("two",))
