"""How far off each estimate of a run's end is: finished runs replayed to fixed parts of their time.

Official: the 315 official durations, attempts shuffled within their tasks, listed attempt-major on
8, 16 and 32 workers. Without a reference only, since these durations are the reference.
Drawn: for each attempt an official duration of its task, with replacement, times 0.5, 1 or 2 (by
repetition) and log-normal noise of sigma 0.3. Other agent: the same times 0.7 or 3, and each task
times log-normal noise of its own of sigma 0.5, which the reference knows nothing of. Both with and
without the official durations as a reference.
Recorded: the largest recorded Harbor job, 30 trials of 2 to 5 s on four workers. One such run is
too small to say which method is better; the other recorded jobs are smaller yet. Its very last
trial takes 5.3 s where none before took more than 3.5 s, which is a tenth of the run that the
simulation cannot foresee; between trials its workers are idle for less than a fiftieth.
Faulty trials that are tried again are not part of the replays.
"""

from __future__ import annotations

import heapq
import json
import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from benchmarks.measure import Report, median
from harborlight.demo.terminal_bench import official_trials
from harborlight.sources.job_directory import JobDirectorySource
from harborlight.statistics.eta import Work, observed_rate, preferred, simulate

pytestmark = pytest.mark.benchmark

FRACTIONS = (0.1, 0.25, 0.5, 0.75, 0.9)
WORKERS = (8, 16, 32)
REPETITIONS = 60
SCALES = {"drawn": (0.5, 1.0, 2.0), "other agent": (0.7, 3.0)}
TASK_SIGMA = {"drawn": 0.0, "other agent": 0.5}
METHODS = {
    "official": ("observed rate", "simulation", "preferred"),
    "drawn": ("observed rate", "simulation", "with reference", "preferred, with reference"),
}
METHODS["other agent"] = METHODS["drawn"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial of a finished run; ``scored`` says whether it got a verdict."""

    task: str
    start: float
    end: float
    scored: bool = True


@dataclass(frozen=True, slots=True)
class Error:
    """Estimate less truth as a share of the run's time; whether p10 to p90 had the truth in it."""

    value: float
    covered: bool | None


def _official() -> dict[str, list[float]]:
    by_task: dict[str, list[float]] = {}
    for trial in official_trials():
        by_task.setdefault(trial.task, []).append(trial.seconds)
    return by_task


def _durations(kind: str, repetition: int) -> list[tuple[str, float]]:
    """The tasks in Harbor's order, with durations."""
    chance = random.Random(f"{kind}:{repetition}")
    by_task = _official()
    for of_task in by_task.values():
        if kind == "official":
            chance.shuffle(of_task)
            continue
        scales = SCALES[kind]
        level = scales[repetition % len(scales)] * math.exp(chance.gauss(0, TASK_SIGMA[kind]))
        of_task[:] = [
            chance.choice(of_task) * level * math.exp(chance.gauss(0, 0.3)) for _ in of_task
        ]
    return [(task, by_task[task][attempt]) for attempt in range(5) for task in by_task]


def _listed(durations: Iterable[tuple[str, float]], workers: int) -> list[Trial]:
    free = [0.0] * workers
    trials = []
    for task, seconds in durations:
        start = free[0]
        heapq.heapreplace(free, start + seconds)
        trials.append(Trial(task, start, start + seconds))
    return trials


def _errors(
    trials: Sequence[Trial],
    workers: int,
    fraction: float,
    methods: Sequence[str],
    seed: int,
) -> dict[str, Error]:
    """How far off each method is at that part of the run; none where it knows nothing."""
    total = max(trial.end for trial in trials)
    now = fraction * total
    over = [trial for trial in trials if trial.end <= now]
    scored = [(trial.task, trial.end - trial.start) for trial in over if trial.scored]
    work = Work(
        finished=tuple(scored),
        running=tuple((t.task, now - t.start) for t in trials if t.start <= now < t.end),
        waiting=tuple(trial.task for trial in trials if trial.start > now),
        workers=workers,
        prior={},
    )
    prior = {task: tuple(seconds) for task, seconds in _official().items()}
    with_prior = Work(work.finished, work.running, work.waiting, workers, prior)
    errors = {}
    for method in methods:
        reference = method.endswith("with reference")
        chosen = method
        if method.startswith("preferred"):
            best = preferred(len(scored), len(trials), reference)
            chosen = "observed rate" if best == "observed_rate" else "simulation"
        if chosen == "observed rate":
            seconds = observed_rate(len(trials) - len(over), len(scored) / now)
            if seconds is not None:
                errors[method] = Error((seconds - (total - now)) / total, None)
            continue
        simulated = simulate(with_prior if reference else work, seed=seed)
        if simulated is not None:
            covered = simulated.p10 <= total - now <= simulated.p90
            errors[method] = Error((simulated.p50 - (total - now)) / total, covered)
    return errors


def _replayed(kind: str, workers: int, repetition: int) -> list[dict[str, Error]]:
    trials = _listed(_durations(kind, repetition), workers)
    return [_errors(trials, workers, at, METHODS[kind], repetition) for at in FRACTIONS]


def _print(report: Report, what: str, runs: Sequence[Sequence[dict[str, Error]]]) -> None:
    """One table row for each method, and every number for the report's file."""
    report.title(f"{what}: bias / mean absolute error / coverage of p10-p90, %")
    print("  " + " " * 26 + "".join(f"{f'at {at:.0%}':>19}" for at in FRACTIONS))  # noqa: T201
    for method in {name: None for run in runs for at in run for name in at}:
        row = f"  {method:<26}"
        for place, at in enumerate(FRACTIONS):
            errors = [run[place][method] for run in runs if method in run[place]]
            bands = [error.covered for error in errors if error.covered is not None]
            if not errors:
                row += f"{'-':>19}"
                continue
            bias = 100 * sum(error.value for error in errors) / len(errors)
            mean = 100 * sum(abs(error.value) for error in errors) / len(errors)
            share = 100 * sum(bands) / len(bands) if bands else None
            covered = "-" if share is None else f"{share:.0f}"
            row += f"{bias:8.1f} /{mean:5.1f} /{covered:>3}"
            for name, value in (("bias", bias), ("mae", mean), ("coverage", share)):
                if value is not None:
                    entry = f"eta, {what}, {method}, at {at:.0%}: {name}"
                    report.results.append(
                        {"name": entry, "value": value, "unit": " %", "aim": None}
                    )
        print(row, flush=True)  # noqa: T201


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", METHODS)
def test_replays(kind: str, workers: int, report: Report) -> None:
    with ProcessPoolExecutor() as pool:
        runs = list(pool.map(partial(_replayed, kind, workers), range(REPETITIONS), chunksize=5))
    _print(report, f"{kind}, {workers} workers, {REPETITIONS} runs", runs)


def test_recorded(harbor_jobs: Path, report: Report) -> None:
    seen = JobDirectorySource([harbor_jobs]).look(time.time())
    (job,) = (job.record for job in seen.jobs.values() if job.record.name == "mixed-6x5")
    trials = [
        Trial(trial.task.name, trial.started_at, trial.finished_at, trial.reward_valid)
        for trial in seen.trials
        if trial.job_id == job.job_id
        and trial.started_at is not None
        and trial.finished_at is not None
    ]
    began = min(trial.start for trial in trials)
    trials = [
        replace(trial, start=trial.start - began, end=trial.end - began)
        for trial in sorted(trials, key=lambda trial: trial.start)
    ]
    workers = job.n_concurrent or 1
    run = [_errors(trials, workers, at, METHODS["official"], 0) for at in FRACTIONS]
    what = f"recorded {job.name}, {len(trials)} trials, {workers} workers, one run"
    _print(report, what, [run])


def test_cost(report: Report) -> None:
    report.title("One simulation of 100 draws, 315 attempts, a tenth of the time gone, 16 workers")
    trials = _listed(_durations("official", 0), 16)
    now = max(trial.end for trial in trials) / 10
    work = Work(
        finished=tuple((t.task, t.end - t.start) for t in trials if t.end <= now),
        running=tuple((t.task, now - t.start) for t in trials if t.start <= now < t.end),
        waiting=tuple(trial.task for trial in trials if trial.start > now),
        workers=16,
        prior={task: tuple(seconds) for task, seconds in _official().items()},
    )
    alone = Work(work.finished, work.running, work.waiting, 16, {})
    larger = Work(work.finished, work.running, work.waiting * 10, 16, work.prior)
    document = json.dumps([[number, f"trial-{number}"] for number in range(100_000)])
    floor = _milliseconds(lambda: json.loads(document))
    report.add("json.loads of 100,000 pairs (2.5 MB)", floor, " ms")
    for what, of in (
        ("without a reference", alone),
        ("with a reference", work),
        ("with a reference, ten times as many waiting", larger),
    ):
        taken = _milliseconds(partial(simulate, of, seed=0))
        report.add(what, taken, " ms", aim=None if of is larger else 50)
        report.add(f"{what} / json.loads", taken / floor)


def _milliseconds(call: Callable[[], object]) -> float:
    taken = []
    for _ in range(9):
        began = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - began))
    return median(taken)
