"""A replica over time, its pool, and what of both the ledger keeps."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from harborlight.ledger import Ledger, Store
from harborlight.ledger.book import Rules
from harborlight.ledger.ownership import TrialState
from harborlight.ledger.pools import PoolDefinition, PoolStanding, serves_model
from harborlight.ledger.replicas import MAX_METERS, Replica, ReplicaStanding
from harborlight.ledger.runs import RunDefinition
from harborlight.readings import Number, Pulse, ReplicaInfo, ReplicaState, Total
from support.records import Watched, job_record, plan, trial
from support.replicas import observed, series, sighting

POOL = PoolDefinition("pool", "The pool", jobs=(), runs=(), replicas=("r1",))


def standing(ledger: Ledger, pool: int = 0) -> ReplicaStanding:
    return ledger.pools()[pool].replicas[0]


def requests(ledger: Ledger) -> float:
    """The finished requests of the one replica."""
    return sum(standing(ledger).totals[Total.REQUESTS].values())


class TestState:
    """Frozen is told from idle and from dead by signs of life over several looks."""

    def state(
        self, *looks: tuple[float, ReplicaState, dict[str, Pulse]], after: float = 30.0
    ) -> ReplicaState | None:
        replica = Replica("pool", "r1")
        for at, state, pulses in looks:
            replica.take(sighting(at=at, state=state, pulses=pulses))
        return replica.standing(after).state

    def test_not_asked_yet(self) -> None:
        assert self.state() is None

    def test_an_idle_scheduler_moves(self) -> None:
        looks = [(float(at), ReplicaState.UP, {"0": Pulse(at)}) for at in range(0, 100, 5)]
        assert self.state(*looks) is ReplicaState.UP

    @pytest.mark.parametrize(("still", "expected"), [(29, "up"), (30, "frozen"), (300, "frozen")])
    def test_a_scheduler_that_stands_still(self, still: float, expected: str) -> None:
        looks = [(at, ReplicaState.UP, {"0": Pulse(7.0)}) for at in (1000.0, 1000.0 + still)]
        assert self.state(*looks) == expected

    def test_moves_again(self) -> None:
        looks = [(at, ReplicaState.UP, {"0": Pulse(7.0)}) for at in (0.0, 60.0)]
        assert self.state(*looks) is ReplicaState.FROZEN
        assert self.state(*looks, (65.0, ReplicaState.UP, {"0": Pulse(8.0)})) is ReplicaState.UP

    def test_one_rank_of_two(self) -> None:
        looks = [
            (at, ReplicaState.UP, {"0": Pulse(7.0), "1": Pulse(at)}) for at in (0.0, 30.0, 60.0)
        ]
        assert self.state(*looks) is ReplicaState.FROZEN

    def test_some_signs_are_given_more_time(self) -> None:
        looks = [(at, ReplicaState.UP, {"0": Pulse(7.0, patience=90)}) for at in (0.0, 89.0)]
        assert self.state(*looks) is ReplicaState.UP
        looks.append((90.0, ReplicaState.UP, {"0": Pulse(7.0, patience=90)}))
        assert self.state(*looks) is ReplicaState.FROZEN

    def test_a_first_look_believes_the_server_s_clock(self) -> None:
        assert self.state((1000.0, ReplicaState.UP, {"0": Pulse(7.0, age=55)})) == "frozen"
        assert self.state((1000.0, ReplicaState.UP, {"0": Pulse(7.0, age=2)})) == "up"

    def test_a_node_whose_clock_is_behind(self) -> None:
        """It looks an hour old at every look, and moves."""
        looks = [(at, ReplicaState.UP, {"0": Pulse(at, age=3600)}) for at in (0.0, 5.0)]
        assert self.state(looks[0]) is ReplicaState.FROZEN
        assert self.state(*looks) is ReplicaState.UP

    def test_dead_is_not_frozen(self) -> None:
        still = {"0": Pulse(7.0)}
        looks = [(0.0, ReplicaState.UP, still), (60.0, ReplicaState.UNREACHABLE, {})]
        assert self.state(*looks) is ReplicaState.UNREACHABLE

    def test_frozen_across_a_failure(self) -> None:
        still = {"0": Pulse(7.0)}
        looks = [
            (0.0, ReplicaState.UP, still),
            (20.0, ReplicaState.UNREACHABLE, {}),
            (40.0, ReplicaState.UP, still),
        ]
        assert self.state(*looks) is ReplicaState.FROZEN

    def test_no_sign_to_go_by(self) -> None:
        assert self.state((0.0, ReplicaState.UP, {}), (1e6, ReplicaState.UP, {})) == "up"


class TestTotals:
    """Counters in the ledger."""

    @pytest.fixture
    def ledger(self) -> Ledger:
        return Ledger(Store.throw_away(), Rules(pools=(POOL,)))

    def test_a_partial_look_adds_nothing(self, ledger: Ledger) -> None:
        ledger.take(observed(sighting(requests=10)))
        partial = sighting(requests=15, complete=False, state=ReplicaState.INCOMPLETE)
        ledger.take(observed(partial))
        assert requests(ledger) == 10
        assert standing(ledger).state is ReplicaState.INCOMPLETE
        ledger.take(observed(sighting(requests=16)))
        assert requests(ledger) == 16

    def test_a_server_that_died_keeps_what_it_counted(self, ledger: Ledger) -> None:
        known = {Number.RUNNING: 3.0, Number.QUEUED: 0.0}
        ledger.take(observed(sighting(at=1, requests=10, numbers=known)))
        assert standing(ledger).knows(Number.RUNNING, Number.QUEUED)
        down = sighting(at=6, state=ReplicaState.UNREACHABLE, complete=False)
        ledger.take(observed(down))
        assert requests(ledger) == 10
        assert not standing(ledger).knows(Number.RUNNING)
        assert standing(ledger).last_complete == 1
        ledger.take(observed(sighting(at=11, requests=2)))
        assert requests(ledger) == 12

    def test_what_is_known_of_it_is_not_forgotten(self, ledger: Ledger) -> None:
        ledger.take(observed(sighting(info=ReplicaInfo("0.5.23", "tiny", 8, 1, 1))))
        ledger.take(observed(sighting(info=ReplicaInfo(served_model="other", dp=2))))
        assert standing(ledger).info == ReplicaInfo("0.5.23", "other", 8, 1, 2)

    def test_restarts_of_the_exporter(self, tmp_path: Path) -> None:
        for count, expected in ((10, 10), (13, 13), (2, 15)):
            with Store.open_writer(tmp_path) as store:
                ledger = Ledger(store, Rules(pools=(POOL,)))
                ledger.take(observed(sighting(requests=count)))
                ledger.commit()
                assert requests(ledger) == expected
        with Store.open_reader(tmp_path) as store:
            read = Ledger(store, Rules(pools=(POOL,)))
            assert requests(read) == 15
            assert standing(read).state is None

    def test_an_older_ledger_is_taken_over(self, tmp_path: Path) -> None:
        """Schema 1 had no replicas; its jobs and runs stay."""
        with Store.open_writer(tmp_path) as store:
            Watched(store=store).see(job_record(), trial("t", "e", reward=1.0))
        with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as connection, connection:
            connection.execute("DROP TABLE meters")
            connection.execute("UPDATE meta SET value = '1' WHERE name = 'schema'")
        with Store.open_writer(tmp_path) as store:
            ledger = Ledger(store, Rules(pools=(POOL,)))
            assert ledger.n_trials == 1
            ledger.take(observed(sighting(requests=3)))
            ledger.commit()
            assert requests(ledger) == 3

    def test_endless_ranks_are_refused(self, ledger: Ledger) -> None:
        """A server that invents ranks at every look cannot fill the ledger."""
        for look in range(4):
            ranks = range(look * 4096, (look + 1) * 4096)
            seen = {series(f"tp_rank={rank}"): 1.0 for rank in ranks}
            ledger.take(observed(sighting(requests=seen)))
        shown = standing(ledger)
        assert (shown.state, shown.reason) == (ReplicaState.INCOMPLETE, "too many series")
        replica = ledger._replicas["pool", "r1"]
        assert sum(map(len, replica.meters.values())) == MAX_METERS


class TestPool:
    """Trials of the jobs that use it."""

    def watched(self, *pools: PoolDefinition, runs: tuple[RunDefinition, ...] = ()) -> Watched:
        return Watched(Rules(pools=pools, runs=runs))

    def pool(self, watched: Watched) -> PoolStanding:
        return watched.ledger.pools()[0]

    def test_trials_by_state(self) -> None:
        """Six planned: one scored, one lost, two running, so two are queued."""
        watched = self.watched(POOL)
        watched.see(
            job_record("job", plan(6), n_retries=3),
            trial("a", "e1", reward=0.0),
            trial("b", "e2", exceptions=("ApiError",)),
            trial("c"),
            trial("d"),
        )
        pool = self.pool(watched)
        assert pool.trials == {
            TrialState.SCORED: 1,
            TrialState.FAULTED: 1,
            TrialState.RUNNING: 2,
            TrialState.QUEUED: 2,
            TrialState.UNVERIFIED: 0,
        }
        assert pool.retries == 3

    def test_a_regrade_asks_no_model(self) -> None:
        watched = self.watched(POOL)
        watched.see(job_record("job", plan(1)), trial("a", "e1", exceptions=("VerifierError",)))
        watched.see(
            job_record("again", plan(1, source_trial="e1")),
            trial("a", job="again", source_trial="e1"),
        )
        assert self.pool(watched).trials[TrialState.RUNNING] == 0
        assert self.pool(watched).trials[TrialState.QUEUED] == 0
        assert self.pool(watched).trials[TrialState.FAULTED] == 1

    @pytest.mark.parametrize(
        ("pool", "running"),
        [
            (replace(POOL, jobs=("main-*",)), 1),
            (replace(POOL, jobs=("main-*", "other")), 3),
            (replace(POOL, runs=("run",)), 2),
            (replace(POOL, jobs=("main-*",), runs=("run",)), 3),
            (replace(POOL, jobs=("nothing",)), 0),
            (POOL, 3),
        ],
    )
    def test_which_jobs(self, pool: PoolDefinition, running: int) -> None:
        watched = self.watched(pool, runs=(RunDefinition("run", jobs=("other",)),))
        watched.see(job_record("main-1", plan(1)), trial("a", job="main-1"))
        watched.see(
            job_record("other", plan(2)),
            trial("b", job="other"),
            trial("c", job="other"),
        )
        assert self.pool(watched).trials[TrialState.RUNNING] == running

    def test_whose_jobs(self) -> None:
        """Two jobs of one run, one of which uses the pool; then a job of two runs, too."""
        pool = replace(POOL, jobs=("second", "shared"))
        first = RunDefinition("first", jobs=("main", "second", "shared"))
        watched = self.watched(pool, runs=(RunDefinition("zero", jobs=("shared",)), first))
        watched.see(job_record("main", plan(1)))
        assert self.pool(watched).runs == ()
        watched.see(job_record("second", plan(1), created=2.0))
        assert watched.run("first").jobs == ("main", "second")
        assert self.pool(watched).runs == ("first",)
        watched.see(job_record("shared", plan(1), created=3.0))
        assert watched.run("first").jobs == ("main", "second", "shared")
        assert watched.run("zero").jobs == ("shared",)
        assert self.pool(watched).runs == ("first", "zero")
        watched.ledger.forget("shared", 1.0, "")
        assert self.pool(watched).runs == ("first",)

    def test_retries_stay_when_a_job_is_forgotten(self) -> None:
        watched = self.watched(POOL)
        watched.see(job_record("job", plan(1), n_retries=3), trial("a"))
        watched.ledger.forget("job", 1.0, "")
        assert self.pool(watched).retries == 3

    @pytest.mark.parametrize(("served", "expected"), [("model", True), ("another", False)])
    def test_model_match(self, served: str, expected: bool) -> None:
        watched = self.watched(POOL)
        watched.see(job_record("job", plan(1)), trial("a"))
        assert self.pool(watched).model_match == {}
        watched.ledger.take(observed(sighting(info=ReplicaInfo(served_model=served))))
        assert list(self.pool(watched).model_match.values()) == [expected]


@pytest.mark.parametrize(
    ("model", "served", "expected"),
    [
        ("glm", "glm", True),
        ("openai/glm", "glm", True),
        ("hosted_vllm/zai-org/GLM-5.3", "zai-org/GLM-5.3", True),
        ("hosted_vllm/zai-org/GLM-5.3", "GLM-5.3", True),
        ("openai/glm", "m", False),
        ("openai/glm-4", "glm", False),
        ("glm", "openai/glm", False),
    ],
)
def test_serves_model(model: str, served: str, expected: bool) -> None:
    assert serves_model(model, served) is expected
