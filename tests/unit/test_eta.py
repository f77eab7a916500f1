"""Estimates of a run's end; every expected value was worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, strategies as st

from harborlight.statistics.eta import (
    DurationCurve,
    SimulatedRange,
    Work,
    makespan,
    observed_rate,
    preferred,
    simulate,
)

NOTHING = SimulatedRange(0.0, 0.0, 0.0)


def work(
    *finished: float,
    running: tuple[float, ...] = (),
    waiting: int = 0,
    workers: int = 1,
    prior: tuple[float, ...] = (),
) -> Work:
    """Trials of one task."""
    return Work(
        finished=tuple(("task", seconds) for seconds in finished),
        running=tuple(("task", age) for age in running),
        waiting=("task",) * waiting,
        workers=workers,
        prior={"task": prior} if prior else {},
    )


def curve(ended: list[float], running: list[float]) -> DurationCurve:
    return DurationCurve(np.array(ended), np.array(running))


def test_the_rate() -> None:
    assert observed_rate(30, 0.5) == 60
    assert observed_rate(0, 0.0) == 0
    for rate in (0.0, -1.0, math.nan, math.inf, 5e-324):
        assert observed_rate(30, rate) is None


@pytest.mark.parametrize(
    ("free_at", "queue", "expected"),
    [
        # 3 on the first from 1 to 4, 5 on one of them from 4 to 9, 2 on the other from 4 to 6.
        pytest.param([1, 4], [3, 5, 2], 9, id="hand-value-7"),
        pytest.param([0], [3, 5, 2], 10, id="one-worker"),
        pytest.param([0] * 5, [3, 5, 2], 5, id="more-workers-than-trials"),
        pytest.param([2, 7], [], 7, id="nothing-waits"),
        pytest.param([], [3, 2], 5, id="no-worker-named"),
        pytest.param([], [], 0, id="nothing"),
    ],
)
def test_makespan(free_at: list[float], queue: list[float], expected: float) -> None:
    assert makespan(free_at, queue) == expected


seconds = st.floats(0, 1e6)


@given(st.lists(seconds, min_size=1), st.lists(seconds), seconds)
def test_a_longer_queue_never_ends_earlier(
    free_at: list[float], queue: list[float], more: float
) -> None:
    assert makespan(free_at, [*queue, more]) >= makespan(free_at, queue)


@given(st.integers(1, 20), st.integers(0, 50), st.integers(1, 1000))
def test_equal_trials_go_in_rounds(workers: int, trials: int, each: int) -> None:
    ends = makespan([0] * workers, [each] * trials)
    assert ends == math.ceil(trials / workers) * each
    assert makespan([0] * (workers + 1), [each] * trials) <= ends


@given(st.integers(1, 8), st.lists(st.integers(0, 1000), min_size=1))
def test_within_the_bounds_of_list_scheduling(workers: int, queue: list[int]) -> None:
    """Graham, 1969: no less than the mean load, and less than that and the longest one."""
    ends = makespan([0] * workers, queue)
    assert max(*queue, sum(queue) / workers) <= ends
    assert ends <= sum(queue) / workers + max(queue) * (1 - 1 / workers) + 1e-6


def test_curve_of_hand_value_8() -> None:
    of_three = curve([2, 4], [3])
    found = of_three.survival(np.array([0, 1.9, 2, 3, 3.9, 4]))
    assert found == pytest.approx([1, 1, 2 / 3, 2 / 3, 2 / 3, 0])
    # Of three one ends at 2, of one one at 4; then one for each 9 / 2 of exposure by event.
    assert of_three.hazard(np.array([1, 2, 3, 4, 8.5])) == pytest.approx(
        [0, 1 / 3, 1 / 3, 4 / 3, 7 / 3]
    )
    drawn = of_three.draw(np.random.default_rng(0), np.full(50, 3.0))
    assert (drawn - 3 == 1).all()


def test_an_event_comes_before_what_is_censored_then() -> None:
    assert curve([2], [2, 5]).survival(np.array([2.0])) == pytest.approx(2 / 3)


def test_weights_count_events_several_times() -> None:
    weighted = DurationCurve(np.array([1.0, 2.0]), np.array([3.0]), np.array([2.0, 1.0]))
    # Two of four at 1, one of two at 2.
    assert weighted.survival(np.array([1.0, 2.0])) == pytest.approx([1 / 2, 1 / 4])


def test_beyond_the_last_event_it_falls_by_events_per_exposure() -> None:
    drawn = curve([2, 4], [12]).draw(np.random.default_rng(0), np.full(20_000, 12.0))
    # Mean 18 / 2; its standard error here is 9 / sqrt(20000) = 0.06.
    assert (drawn > 12).all() and (drawn - 12).mean() == pytest.approx(9, abs=0.3)


def test_durations_are_drawn_by_the_curve() -> None:
    drawn = curve([2, 4], [3]).draw(np.random.default_rng(0), np.zeros(20_000))
    # 2 a third of the time, with a standard error of 0.0033.
    assert set(drawn.tolist()) == {2.0, 4.0}
    assert (drawn == 2).mean() == pytest.approx(1 / 3, abs=0.015)


durations = st.lists(st.integers(1, 50).map(float), min_size=1, max_size=40)


@given(durations, durations)
def test_the_curve_is_scipys(ended: list[float], running: list[float]) -> None:
    censored = scipy.stats.CensoredData(uncensored=ended, right=running)
    of_scipy = scipy.stats.ecdf(censored).sf
    times = np.arange(0.0, max(ended))
    assert curve(ended, running).survival(times) == pytest.approx(of_scipy.evaluate(times))


def test_nothing_is_left() -> None:
    assert simulate(work(), seed=1) == NOTHING
    assert simulate(work(3, 4, prior=(5,)), seed=1) == NOTHING


def test_nothing_is_known() -> None:
    assert simulate(work(running=(3,), waiting=4), seed=1) is None
    assert simulate(work(math.nan, 0, -3, running=(3,), prior=(0, math.inf)), seed=1) is None


def test_the_same_for_a_seed() -> None:
    some = work(10, 20, 40, running=(5, 15), waiting=20, workers=3, prior=(10, 30))
    assert simulate(some, seed=4) == simulate(some, seed=4)
    assert simulate(some, seed=4) != simulate(some, seed=5)


def test_many_equal_trials() -> None:
    """10,000 of 60 s, then 12 on four workers: three rounds, give or take what is not sure."""
    found = simulate(work(*[60.0] * 10_000, waiting=12, workers=4), seed=1)
    assert found is not None
    assert [found.p10, found.p50, found.p90] == pytest.approx([180] * 3, rel=0.02)


def test_running_trials_need_the_rest_only() -> None:
    found = simulate(work(*[60.0] * 10_000, running=(20, 50), workers=2), seed=1)
    assert found is not None and found.p50 == pytest.approx(40, rel=0.05)


def test_more_running_than_workers() -> None:
    """10, 20 and 30 s are left; with two workers the waiting one starts when two have ended."""
    some = work(*[60.0] * 10_000, running=(50, 40, 30), waiting=1, workers=2)
    found = simulate(some, seed=1)
    assert found is not None and found.p50 == pytest.approx(80, rel=0.05)


def test_the_reference_by_task_before_anything_finished() -> None:
    prior = {"short": (10.0,) * 500, "long": (1000.0,) * 500}
    for task, each in (("short", 10), ("long", 1000)):
        found = simulate(Work((), (), (task,) * 40, 1, prior), seed=1, draws=400)
        assert found is not None
        # How fast we are is not known, by a factor that is log-normal: exp(1.28 * 0.5) = 1.9.
        assert found.p50 == pytest.approx(40 * each, rel=0.15)
        assert found.p90 / found.p10 == pytest.approx(1.9**2, rel=0.4)


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_our_own_speed_scales_the_reference(scale: float) -> None:
    """Tasks that never ran here take as many times as long as those that did."""
    chance = np.random.default_rng(3)
    known = {"a": chance.lognormal(4, 0.4, 200), "b": chance.lognormal(6, 0.4, 200)}
    prior = {task: tuple(of_task.tolist()) for task, of_task in known.items()}
    ours = tuple(("a", float(value)) for value in scale * chance.lognormal(4, 0.4, 400))
    found = simulate(Work(ours, (), ("b",) * 100, 1, prior), seed=1)
    assert found is not None
    assert found.p50 == pytest.approx(scale * 100 * math.exp(6 + 0.4**2 / 2), rel=0.12)


def test_trials_that_run_long_slow_the_reference_down() -> None:
    """Nothing has finished, and all have run for four times what the reference needed."""
    prior = tuple(np.random.default_rng(3).lognormal(4, 0.4, 200).tolist())
    young, old = (
        simulate(work(running=(age,) * 8, waiting=50, workers=8, prior=prior), seed=1)
        for age in (1, 4 * math.exp(4))
    )
    assert young is not None and old is not None and old.p50 > 3 * young.p50


anything = st.one_of(st.floats(), st.sampled_from([0.0, -1.0, 1e-300, 1e300, math.nan, math.inf]))
named = st.tuples(st.sampled_from("abc"), anything)
works = st.builds(
    Work,
    finished=st.lists(named, max_size=8).map(tuple),
    running=st.lists(named, max_size=8).map(tuple),
    waiting=st.lists(st.sampled_from("abcd"), max_size=30).map(tuple),
    workers=st.one_of(st.integers(-1, 40), st.just(10**12)),
    prior=st.dictionaries(st.sampled_from("abc"), st.lists(anything, max_size=5).map(tuple)),
)


@given(works, st.integers(0, 2**32))
def test_any_input_gives_an_ordered_range_or_nothing(some: Work, seed: int) -> None:
    found = simulate(some, seed=seed, draws=20)
    assert found is None or 0 <= found.p10 <= found.p50 <= found.p90 < math.inf


def test_thousands_of_waiting_trials() -> None:
    found = simulate(work(*[60.0] * 10_000, waiting=20_000, workers=10), seed=1, draws=10)
    assert found is not None and found.p50 == pytest.approx(120_000, rel=0.02)


@pytest.mark.parametrize(
    ("n_finished", "target", "has_prior", "expected"),
    [
        (0, 315, False, "observed_rate"),
        (62, 315, False, "observed_rate"),
        (63, 315, False, "simulation"),
        (315, 315, False, "simulation"),
        (0, 0, False, "observed_rate"),
        (0, 315, True, "simulation"),
    ],
)
def test_which_to_prefer(n_finished: int, target: int, has_prior: bool, expected: str) -> None:
    assert preferred(n_finished, target, has_prior) == expected


@pytest.mark.parametrize("factor", [1 / 1000, 1 / 225, 0.5, 3, 500])
def test_far_from_the_reference_s_speed(factor: float) -> None:
    """Every trial takes the same there and, by a factor, here: ten on one worker take ten."""
    given = work(*[100 * factor] * 60, waiting=10, prior=(100.0,) * 5)
    found = simulate(given, seed=1)
    assert found is not None
    assert found.p50 == pytest.approx(1000 * factor, rel=0.25)
    assert found.p10 <= 1000 * factor <= found.p90
