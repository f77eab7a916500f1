"""Rates and estimated ends; expected values by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harborlight.ledger.ownership import Span
from harborlight.statistics.pace import (
    Method,
    Pace,
    Quantile,
    Window,
    active_seconds,
    pace,
    running_ages,
    waiting,
)
from support.records import Watched, job_record, trial
from support.runs import ran, run, task

HOUR, RUN = Window.HOUR, Window.RUN
POINT = (Method.OBSERVED_RATE, Quantile.POINT)
QUANTILES = [(Method.SIMULATION, q) for q in (Quantile.P10, Quantile.P50, Quantile.P90)]


class TestActiveTime:
    """The time in which at least one trial ran."""

    @pytest.mark.parametrize(
        ("spans", "expected"),
        [
            ([], 0),
            ([(0, 10)], 10),
            ([(0, 10), (5, 20)], 20),
            ([(0, 10), (2, 3)], 10),
            ([(30, 40), (0, 10)], 20),  # a pause between
            ([(0, 10), (10, 20)], 20),
            ([(90, None)], 10),  # it runs still, at 100
            ([(95, 120)], 5),  # a clock that is ahead
            ([(120, None)], 0),
            ([(0, float("inf"))], 0),
        ],
    )
    def test_spans(self, spans: list[tuple[float, float | None]], expected: float) -> None:
        assert active_seconds([Span(*span) for span in spans], 100) == expected

    @given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=8))
    def test_seconds_counted_one_by_one(self, found: list[tuple[int, int]]) -> None:
        spans = [Span(float(min(pair)), float(max(pair))) for pair in found]
        covered = {second for pair in found for second in range(min(pair), max(pair))}
        assert active_seconds(spans, 100) == len(covered)


def test_rates() -> None:
    """Two of three ended trials within the last hour; one ran from 0 to 1000, one at 4000."""
    ours = run(
        task("a", scored=2, running=[9000.0], **ran((0, 1000), (8000, 9000), (9000, None))),
        task("b", scored=1, **ran((5000, 7000))),
    )
    found = pace(ours, 10_000, {})
    assert found.scored[HOUR] == pytest.approx(2 / 3600)
    # 0-1000, 5000-7000, 8000-10000.
    assert found.scored[RUN] == pytest.approx(3 / 5000)
    assert found.terminal == found.scored


def test_a_young_run_has_no_hour() -> None:
    ours = run(task("a", scored=1, **ran((100, 400), (150, None)), running=[150.0]))
    assert pace(ours, 700, {}).scored[HOUR] == pytest.approx(1 / 600)


def test_faults_end_and_regrades_do_not() -> None:
    """A trial that ended without a verdict is terminal; what its regrade scored is not its own."""
    spans = (Span(0, 100), Span(0, 200), Span(100, 400))
    ours = run(task("a", scored=2, faulted=1, spans=spans, scored_at=(100.0,)))
    found = pace(ours, 400, {})
    assert found.terminal[RUN] == pytest.approx(3 / 400)
    assert found.scored[RUN] == pytest.approx(1 / 400)


def test_what_is_dated_in_the_future_has_not_happened() -> None:
    """One trial ran for 100 s; a clock that is ahead says of two that they end tomorrow."""
    spans = (Span(0, 100), Span(100, 90_000), Span(95_000, 96_000))
    ours = run(task("a", scored=3, spans=spans, scored_at=(100.0, 90_000.0, 96_000.0)))
    found = pace(ours, 200, {})
    # Trials run from 0 on, which is all of the last hour that there is.
    assert found.scored == pytest.approx({HOUR: 1 / 200, RUN: 1 / 200})
    assert found.terminal == found.scored


def test_before_anything_ran() -> None:
    assert pace(run(task("a", queued=5)), 100, {}) == Pace({}, {}, {}, None, 100)


def test_observed_rate() -> None:
    """2 scored in 100 s, 3 left: 150 s more. A faulted attempt is left, too."""
    spans: dict[str, Any] = ran((0, 50), (0, 100))
    ours = run(task("a", scored=2, queued=2, faulted=1, **spans))
    assert pace(ours, 100, {}).ends[POINT] == pytest.approx(250)


@pytest.mark.parametrize(
    "more",
    [
        {"live": False},  # nobody works on it
        {"target": None},  # nobody knows what is left
    ],
)
def test_no_estimate(more: dict[str, Any]) -> None:
    ours = run(task("a", scored=2, queued=3, **ran((0, 50), (0, 100))), **more)
    assert pace(ours, 100, {}).ends == {}


def test_no_estimate_where_nothing_goes_on() -> None:
    done = run(task("a", scored=5, **ran((0, 50))))
    stuck = run(task("a", scored=3, faulted=2, **ran((0, 50))))
    for ours in (done, stuck):
        assert (pace(ours, 100, {}).ends, pace(ours, 100, {}).preferred) == ({}, None)


def test_simulation() -> None:
    """Every trial took 100 s: on two workers 4 attempts are two rounds, each of the same 100 s.

    What is censored at 0 and the factor that says how little is known leave the middle there.
    """
    ours = run(
        task("a", target=40, scored=36, queued=4, **ran(*[(n, n + 100) for n in range(36)])),
        concurrency=2,
    )
    found = pace(ours, 1000, {})
    low, middle, high = (found.ends[key] - 1000 for key in QUANTILES)
    assert low < middle < high
    assert middle == pytest.approx(200, rel=0.1)
    assert found.preferred is Method.SIMULATION
    # The same luck at every look.
    assert pace(ours, 1000, {}) == found


def test_a_reference_tells_before_anything_ended() -> None:
    ours = run(task("a", running=[0.0], queued=4, **ran((0, None))), concurrency=1)
    assert pace(ours, 1, {}).ends == {}
    found = pace(ours, 1, {"a": (100.0, 100.0, 100.0)})
    assert set(found.ends) == set(QUANTILES)
    assert found.preferred is Method.SIMULATION
    assert 300 < found.ends[Method.SIMULATION, Quantile.P50] < 800


def test_the_rate_is_preferred_at_first() -> None:
    ours = run(
        task("a", target=100, scored=3, queued=97, **ran((0, 10), (0, 20), (0, 30))), concurrency=3
    )
    found = pace(ours, 30, {})
    assert POINT in found.ends and QUANTILES[1] in found.ends
    assert found.preferred is Method.OBSERVED_RATE


def test_an_earlier_simulation_will_do_for_a_while() -> None:
    """A hundredth of a second for each attempt left: 3 s at 300."""
    ours = run(task("a", target=400, scored=100, queued=300, **ran(*[(0, 60)] * 100)))
    first = pace(ours, 60, {})
    again = pace(ours, 62.9, {}, first)
    assert again.simulated_at == 60
    assert [again.ends[key] for key in QUANTILES] == [first.ends[key] for key in QUANTILES]
    assert again.ends[POINT] != first.ends[POINT]
    for at in (63.1, 59.0):  # later, or a clock that was set back
        assert pace(ours, at, {}, first).simulated_at == at


def test_a_target_that_is_a_slip_of_the_pen() -> None:
    """With more than 100,000 attempts left there is the rate alone, whatever is preferred."""
    ours = run(task("a", target=100_002, scored=1, queued=100_001, **ran((0, 10))))
    found = pace(ours, 10, {"a": (10.0,)})
    assert found.ends == {POINT: 10 + 1_000_010}
    assert found.preferred is Method.OBSERVED_RATE


def test_what_is_given_up_is_not_waited_for() -> None:
    """2 attempts an hour; of 3 that are left nobody is to replay 2."""
    going = task("a", target=2, scored=1, queued=1, **ran((0.0, 1800.0)))
    given_up = task("b", target=2, faulted=1, given_up="broken upstream")
    whole = run(going, given_up)
    assert whole.attempts_given_up == 2
    assert waiting(whole.tasks) == ("a",)
    found = pace(whole, 1800.0, {})
    assert found.ends[Method.OBSERVED_RATE, Quantile.POINT] == pytest.approx(1800.0 + 1800.0)


def test_waiting_in_harbor_s_order() -> None:
    """Every task's second attempt before any third one."""
    tasks = [
        task("a", target=3, scored=1, queued=2),
        task("b", target=3, running=[0.0, 0.0], queued=1),
        task("c", target=2, faulted=1, queued=1),
    ]
    assert waiting(tasks) == ("c", "a", "c", "a", "b")


def test_ages_of_what_runs() -> None:
    """A clock that is ahead makes no age below 0, and of two starts one is not known yet."""
    tasks = [
        task("a", running=[30.0, 110.0]),
        task("b", running=[40.0, 0.0], running_starts=(40.0,)),
        task("c", queued=1),
    ]
    assert running_ages(tasks, 100) == (("a", 70), ("a", 0), ("b", 60), ("b", 0))


def test_a_running_attempt_of_unknown_start() -> None:
    """One attempt took 10 s, the other one may just have begun, on the only worker."""
    ours = run(
        task("a", target=2, scored=1, running=[0.0], running_starts=(), **ran((0, 10))),
        concurrency=1,
    )
    found = pace(ours, 10, {})
    assert found.ends[Method.SIMULATION, Quantile.P50] == pytest.approx(10 + 10, rel=0.1)


def test_attempts_of_tasks_that_are_not_seen_yet() -> None:
    """Of a job without a lock: one of 101 attempts took 10 s, and one worker has 100 before it.

    That all durations are off by one factor, which is not known yet, moves the middle a little.
    """
    watched = Watched()
    job = job_record("job", plan=None, n_total=101, n_concurrent=1)
    watched.see(job, trial("t", "e", reward=1.0, at=100.0), held=True)
    found = pace(watched.run(), 100, {})
    assert found.ends[POINT] == pytest.approx(100 + 1000)
    assert found.ends[Method.SIMULATION, Quantile.P50] == pytest.approx(100 + 1000, rel=0.1)


def test_more_running_than_the_jobs_say() -> None:
    """Whatever the configuration says, what runs has a worker."""
    spans = ran(*[(0, 100)] * 10, *[(50, None)] * 4)
    ours = run(task("a", target=14, scored=10, running=[50.0] * 4, **spans), concurrency=1)
    found = pace(ours, 100, {})
    assert found.ends[Method.SIMULATION, Quantile.P50] < 100 + 200


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=6),
    st.lists(st.floats(0, 1e12), max_size=6),
    st.floats(0, 2e9),
)
def test_any_durations(durations: list[float], starts: list[float], at: float) -> None:
    """Neither an error nor a number that is none, whatever clocks and files say."""
    spans = tuple(Span(start, None) for start in starts)
    ours = run(
        task(
            "a",
            target=20,
            scored=len(durations),
            running=starts,
            queued=2,
            durations=tuple(durations),
            spans=spans,
            scored_at=tuple(starts[: len(durations)]),
        ),
    )
    found = pace(ours, at, {"a": tuple(durations)})
    assert all(rate >= 0 for rates in (found.terminal, found.scored) for rate in rates.values())
    ends = [found.ends[key] for key in QUANTILES if key in found.ends]
    assert all(end >= at for end in found.ends.values())
    assert all(a <= b for a, b in pairwise(ends))
