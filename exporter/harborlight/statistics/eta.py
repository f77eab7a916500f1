"""When a run will be over: by its rate, and by simulating the trials that are left (pure).

The rate takes the end for as busy as the rest, which it is not: the last trials run on few
workers, and the long ones end last. The simulation draws what every running trial still needs and
how long every waiting one takes, and lists them on the workers as Harbor does. Its durations come
from a Kaplan-Meier curve in which running trials are censored; taken from finished trials alone
they would be too short. All times are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

type Floats = NDArray[np.float64]

SHORTEST, LONGEST = 1e-3, 1e9
"""A duration outside of these is no trial's, and is left out."""

PRIOR_EVENTS = 30.0
"""How many of our own finished trials all of the reference's together weigh in the curve's shape;
10 and 100 did about as well in the evaluation."""

LEVEL_EVENTS = 0.5
"""How many of a task's reference trials the mean over all tasks weighs in that task's level."""

SCALE_EVENTS = 1.0
"""How many finished trials the guess weighs that we are as fast as the reference."""

SPREAD = 0.5
"""Standard deviation of a log duration about its task's level; 0.44 in the official trials."""

TRUSTED_SHARE = 0.2
"""From this share of the target on the simulation is better than the rate, without a reference."""

_BLOCK = 10  # draws at a time, so that a large job needs no more memory than a small one


@dataclass(frozen=True, slots=True)
class Work:
    """What is known of a run's trials; durations and ages in seconds.

    ``finished`` (scored trials only), ``running`` and ``waiting`` (in Harbor's order) name the
    task; ``workers`` is how many trials run at a time; ``prior`` has the durations of a
    reference by task and may be empty.
    """

    finished: tuple[tuple[str, float], ...]
    running: tuple[tuple[str, float], ...]
    waiting: tuple[str, ...]
    workers: int
    prior: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class SimulatedRange:
    """Seconds until the last trial ends: quantiles of the simulation, no confidence interval."""

    p10: float
    p50: float
    p90: float


class DurationCurve:
    """The Kaplan-Meier curve of durations; ``running`` ones are censored, ``weights`` of events.

    Beyond the last event it falls exponentially, by events per exposure. It needs one event.
    """

    def __init__(self, ended: Floats, running: Floats, weights: Floats | None = None) -> None:
        at = np.concatenate([ended, running])
        is_event = np.concatenate([np.ones(len(ended)), np.zeros(len(running))])
        weight = np.ones(len(at))
        if weights is not None:
            weight[: len(ended)] = weights
        # An event comes before what is censored at the same time.
        order = np.lexsort((1 - is_event, at))
        at, is_event, weight = at[order], is_event[order], weight[order]
        at_risk = np.cumsum(weight[::-1])[::-1]
        hazard = is_event * weight / at_risk
        events = is_event > 0
        self._times: Floats = at[events]
        self._survival: Floats = np.concatenate([[1.0], np.cumprod(1 - hazard)[events]])
        self._hazard: Floats = np.concatenate([[0.0], np.cumsum(hazard)[events]])
        self._mean = float((at * weight).sum() / (is_event * weight).sum())

    def survival(self, time: Floats) -> Floats:
        """The share that takes longer than that, as far as there are events."""
        left: Floats = self._survival[np.searchsorted(self._times, time, side="right")]
        return left

    def hazard(self, time: Floats) -> Floats:
        """How many events are expected of one trial up to then (Nelson-Aalen)."""
        beyond = np.maximum(time - self._times[-1], 0.0) / self._mean
        expected: Floats = self._hazard[np.searchsorted(self._times, time, side="right")] + beyond
        return expected

    def draw(self, chance: np.random.Generator, age: Floats) -> Floats:
        """A duration of a trial for each of those ages that was reached; never less than it."""
        goal = self.survival(age) * chance.random(age.shape)
        place = np.searchsorted(-self._survival[1:], -goal)
        last = self._times[-1]
        beyond = (place == len(self._times)) | (age >= last)
        event = self._times[np.minimum(place, len(self._times) - 1)]
        tail = np.maximum(age, last) + self._mean * chance.standard_exponential(age.shape)
        drawn: Floats = np.maximum(np.where(beyond, tail, event), age)
        return drawn


def observed_rate(remaining: int, scored_per_second: float) -> float | None:
    """Seconds at the rate so far: remaining / rate. None while nothing is scored."""
    if remaining <= 0:
        return 0.0
    if not (0.0 < scored_per_second < math.inf):
        return None
    seconds = remaining / scored_per_second
    return seconds if math.isfinite(seconds) else None


def makespan(free_at: Sequence[float], queue: Sequence[float]) -> float:
    """When the last one ends if each of the queue in turn takes the worker that is free first.

    ``free_at``: when each worker becomes free; none at all: one that is free now.
    """
    ends = list(free_at) or [0.0]
    heapify(ends)
    for duration in queue:
        heapreplace(ends, ends[0] + duration)
    return max(ends)


def preferred(
    n_finished: int, target: int, has_prior: bool
) -> Literal["observed_rate", "simulation"]:
    """Which estimate is closer to the truth at that point, by tests/benchmarks/test_eta.py."""
    enough = n_finished > 0 and n_finished >= TRUSTED_SHARE * target
    return "simulation" if has_prior or enough else "observed_rate"


def simulate(work: Work, *, seed: int, draws: int = 100) -> SimulatedRange | None:
    """Seconds until all running and waiting trials have ended; the same for the same seed.

    Every duration is a task's level (from the reference; one for all without it) times what is
    drawn from the curve of such ratios. None where nothing can be known: no finished trial and
    no reference. Zeros where nothing is left.
    """
    running = [(task, age if age > 0 else 0.0) for task, age in work.running if not age > LONGEST]
    if not running and not work.waiting:
        return SimulatedRange(0.0, 0.0, 0.0)
    finished = [(task, seconds) for task, seconds in work.finished if _possible(seconds)]
    reference = _Reference(work.prior)
    ended = _array(seconds for _, seconds in finished) / reference.levels(t for t, _ in finished)
    of_running = reference.levels(task for task, _ in running)
    of_waiting = reference.levels(work.waiting)
    ages = _array(age for _, age in running) / of_running
    curve = _curve(ended, ages, reference.ratios)
    if curve is None:
        return None

    chance = np.random.default_rng(seed)
    workers = max(work.workers, 1)
    idle = [0.0] * min(workers - len(running), len(work.waiting))
    # All durations of a draw are off by the same: what so few trials say is not sure.
    unsure = SPREAD / math.sqrt(len(ended) + SCALE_EVENTS)
    ends: list[float] = []
    while len(ends) < draws:
        n = min(_BLOCK, draws - len(ends))
        off = np.exp(unsure * chance.standard_normal((n, 1)))
        reached = ages / off
        left = (curve.draw(chance, reached) - reached) * off * of_running
        taken = curve.draw(chance, np.zeros((n, len(work.waiting)))) * off * of_waiting
        # Of more than there are workers, the first to end leave no room for another.
        left = np.sort(left)[:, max(len(running) - workers, 0) :]
        pairs = zip(left.tolist(), taken.tolist(), strict=True)
        ends += [makespan(idle + free_at, queue) for free_at, queue in pairs]
    p10, p50, p90 = np.percentile(ends, [10, 50, 90]).tolist()
    return SimulatedRange(p10, p50, p90)


class _Reference:
    """The reference's durations as a level by task and ratios to it."""

    def __init__(self, prior: Mapping[str, tuple[float, ...]]) -> None:
        logs = {
            task: [math.log(seconds) for seconds in durations if _possible(seconds)]
            for task, durations in prior.items()
        }
        every = [log for of_task in logs.values() for log in of_task]
        middle = math.fsum(every) / len(every) if every else 0.0
        levels = {
            task: (math.fsum(of_task) + LEVEL_EVENTS * middle) / (len(of_task) + LEVEL_EVENTS)
            for task, of_task in logs.items()
        }
        self.ratios = _array(
            math.exp(log - levels[task]) for task, of_task in logs.items() for log in of_task
        )
        self._levels = {task: math.exp(level) for task, level in levels.items()}
        self._middle = math.exp(middle)

    def levels(self, tasks: Iterable[str]) -> Floats:
        """The geometric mean of each task's durations, drawn a little to that of all of them."""
        return _array(self._levels.get(task, self._middle) for task in tasks)


def _curve(ended: Floats, ages: Floats, reference: Floats) -> DurationCurve | None:
    """Our own ratios, with those of the reference, scaled to ours, as a few more of them."""
    if not len(reference):
        return DurationCurve(ended, ages) if len(ended) else None
    scale = _scale(DurationCurve(reference, _array(())), ended, ages)
    weight = min(PRIOR_EVENTS / len(reference), 1.0)
    weights = np.concatenate([np.ones(len(ended)), np.full(len(reference), weight)])
    return DurationCurve(np.concatenate([ended, reference * scale]), ages, weights)


def _scale(reference: DurationCurve, ended: Floats, ages: Floats) -> float:
    """How many times as long as the reference we take, between a millionth and a million.

    It is where as many events are expected as there were (the one-sample log-rank statistic is
    0), so that running trials count with their ages. The guess of 1 is one event more, which is
    expected once there and only with the logarithm oftener where we are faster: a replay that is
    a thousand times as fast is to be recognised, too.
    """
    exposure = np.concatenate([ended, ages])
    events = len(ended) + SCALE_EVENTS
    low, high = -math.log(1e6), math.log(1e6)
    for _ in range(30):
        middle = (low + high) / 2
        expected = reference.hazard(exposure * math.exp(-middle)).sum()
        if expected + SCALE_EVENTS * math.log2(1 + math.exp(-middle)) > events:
            low = middle
        else:
            high = middle
    return math.exp(low)


def _possible(seconds: float) -> bool:
    return SHORTEST <= seconds <= LONGEST


def _array(values: Iterable[float]) -> Floats:
    return np.fromiter(values, dtype=np.float64)
