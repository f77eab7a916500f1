"""What the dashboards' queries say, worked out by hand and evaluated by promtool."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from dashboards import queries as q
from dashboards.promql import Scope
from harborlight.views import catalogue as c
from support.dashboard_lint import generated
from support.promql import expand

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")

type Series = Mapping[str, float | str]
"""By series, without the metrics' prefix: its value, or its values minute by minute."""

NOW = 600
"""Seconds since the epoch at which they are evaluated."""

EVERY = Scope({})


def evaluate(folder: Path, series: Series, expr: str, expected: Mapping[str, float]) -> None:
    """Fails with promtool's words where the result is not as expected, by labels."""
    test = {
        "interval": "1m",
        "input_series": [
            {
                "series": f"harborlight_{name}",
                "values": value if isinstance(value, str) else f"{value}x20",
            }
            for name, value in series.items()
        ],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": f"{NOW}s",
                "exp_samples": [
                    {"labels": f"{{{labels}}}", "value": value}
                    for labels, value in expected.items()
                ],
            }
        ],
    }
    file = folder / "test.yml"
    file.write_text(yaml.safe_dump({"tests": [test]}))
    found = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr


def attempts(**states: int) -> dict[str, float]:
    """The five states of run r, those not named 0."""
    every = ("scored", "running", "queued", "faulted", "unplanned")
    return {f'run_attempts{{run="r", state="{s}"}}': states.get(s, 0) for s in every}


TARGET = {'run_attempts_target{run="r"}': 10.0}


@pytest.mark.parametrize(
    ("series", "state"),
    [
        (attempts(scored=10) | TARGET, 1),
        (attempts(scored=9, running=1) | TARGET, 2),
        (attempts(scored=8, running=1, queued=1) | TARGET, 2),
        (attempts(scored=9, queued=1) | TARGET, 3),
        (attempts(scored=9, faulted=1) | TARGET, 4),
        (attempts(unplanned=10) | TARGET, 4),
        (attempts(scored=3, running=1), 2),
        (attempts(scored=3), 5),
    ],
)
def test_state_of_a_run(tmp_path: Path, series: Series, state: int) -> None:
    evaluate(tmp_path, series, q.run_state(EVERY), {'run="r"': state})


def jobs(**states: str) -> dict[str, float]:
    """Jobs of run r by state, and a live one of another run."""
    known = ("live", "finished", "cancelled", "interrupted", "unknown")
    found: dict[str, float] = {'run_job_info{run="other", harbor_job="z"}': 1}
    for job, state in {**states, "z": "live"}.items():
        if job != "z":
            found[f'run_job_info{{run="r", harbor_job="{job}"}}'] = 1
        for name in known:
            found[f'job_state{{harbor_job="{job}", state="{name}"}}'] = float(name == state)
    return found


@pytest.mark.parametrize(
    ("series", "place"),
    [
        (jobs(a="finished", b="live"), 1),
        (jobs(a="finished", b="unknown"), 2),
        (jobs(a="finished", b="interrupted", c="cancelled"), 3),
        (jobs(a="finished", b="cancelled"), 4),
        (jobs(a="finished"), 5),
    ],
)
def test_liveliest_job(tmp_path: Path, series: Series, place: int) -> None:
    evaluate(tmp_path, series, q.livest_job(EVERY), {'run="r"': place, 'run="other"': 1})


def test_replicas_that_are_not_up_count_for_every_run_that_their_pool_serves(
    tmp_path: Path,
) -> None:
    series = {
        'run_pool_info{run="r", pool="p"}': 1,
        'run_pool_info{run="r", pool="q"}': 1,
        'run_pool_info{run="s", pool="q"}': 1,
        'replica_up{pool="p", replica="1"}': 0,
        'replica_up{pool="p", replica="2"}': 1,
        'replica_up{pool="q", replica="1"}': 0,
        'replica_up{pool="nobodys", replica="1"}': 0,
    }
    evaluate(tmp_path, series, q.replicas_not_up(EVERY), {'run="r"': 2, 'run="s"': 1})


SNAPSHOT = {"snapshot_timestamp_seconds": float(NOW)}
VERDICT = {'run_last_verdict_timestamp_seconds{run="r"}': NOW - 100.0}
PACE = {'run_scored_attempts_per_second{run="r", window="run"}': 0.0625}


@pytest.mark.parametrize(
    ("series", "due"),
    [
        (attempts(running=1) | VERDICT | PACE, 6.25),  # 100 s at one in 16
        (attempts(scored=1) | VERDICT | PACE, q.IDLE),
        (
            # Resumed 40 s ago after a pause.
            attempts(running=1)
            | VERDICT
            | PACE
            | {'task_oldest_running_start_timestamp_seconds{run="r", task="t"}': NOW - 40.0},
            2.5,
        ),
        (
            attempts(running=1)
            | VERDICT
            | PACE
            | {'task_oldest_running_start_timestamp_seconds{run="r", task="t"}': NOW - 400.0},
            6.25,
        ),
        (attempts(running=1) | PACE, None),
        (attempts(running=1), None),
        (
            attempts(running=1)
            | PACE
            | {'run_last_verdict_timestamp_seconds{run="r"}': NOW + 50.0},
            0,
        ),
    ],
)
def test_verdicts_that_are_due(tmp_path: Path, series: Series, due: float | None) -> None:
    expected = {} if due is None else {'run="r"': due}
    evaluate(tmp_path, {**series, **SNAPSHOT}, q.verdicts_due(EVERY), expected)


def test_the_slowest_trial_is_that_of_the_most_usual_durations(tmp_path: Path) -> None:
    series = attempts(running=2) | {
        'task_oldest_running_start_timestamp_seconds{run="r", task="long"}': NOW - 300.0,
        'task_usual_duration_seconds{run="r", task="long"}': 300.0,
        'task_oldest_running_start_timestamp_seconds{run="r", task="short"}': NOW - 200.0,
        'task_usual_duration_seconds{run="r", task="short"}': 50.0,
        'task_oldest_running_start_timestamp_seconds{run="r", task="first"}': NOW - 500.0,
    }
    evaluate(tmp_path, series, q.slowest_task(EVERY), {'run="r"': 4})
    evaluate(tmp_path, attempts(scored=2), q.slowest_task(EVERY), {'run="r"': q.IDLE})
    first = {'task_oldest_running_start_timestamp_seconds{run="r", task="first"}': NOW - 500.0}
    evaluate(tmp_path, attempts(running=1) | first, q.slowest_task(EVERY), {})


def ends(point: float, p50: float, preferred: str) -> dict[str, float]:
    eta, trust = "run_eta_timestamp_seconds", "run_eta_preferred"
    return {
        f'{eta}{{run="r", method="observed_rate", estimate="point"}}': point,
        f'{eta}{{run="r", method="simulation", estimate="p10"}}': p50 - 50,
        f'{eta}{{run="r", method="simulation", estimate="p50"}}': p50,
        f'{eta}{{run="r", method="simulation", estimate="p90"}}': p50 + 50,
        f'{trust}{{run="r", method="observed_rate"}}': float(preferred == "observed_rate"),
        f'{trust}{{run="r", method="simulation"}}': float(preferred == "simulation"),
    }


@pytest.mark.parametrize(
    ("series", "left"),
    [
        (attempts(scored=5, running=5) | TARGET | ends(NOW + 70, NOW + 90, "simulation"), 90),
        (attempts(scored=5, running=5) | TARGET | ends(NOW + 70, NOW + 90, "observed_rate"), 70),
        (attempts(scored=5, running=5) | TARGET | ends(NOW - 70, NOW - 90, "simulation"), 0),
        (attempts(scored=10) | TARGET, q.COMPLETE),
        (attempts(running=1, queued=9) | TARGET, q.TOO_EARLY),
        (attempts(queued=10) | TARGET, q.TOO_EARLY),
        (attempts(scored=9, faulted=1) | TARGET, q.NOTHING_RUNS),
        (attempts(scored=9, running=1), q.TOO_EARLY),
    ],
)
def test_seconds_left(tmp_path: Path, series: Series, left: float) -> None:
    evaluate(tmp_path, series, q.seconds_left(EVERY), {'run="r"': left})


def interval(kind: str, lower: float, upper: float, scope: str = "attempted") -> dict[str, float]:
    name = f'run_success_difference_ci{{run="r", scope="{scope}", interval="{kind}"'
    return {f'{name}, bound="lower"}}': lower, f'{name}, bound="upper"}}': upper}


DONE, GOES_ON = attempts(scored=10), attempts(scored=5, running=1, queued=4)
BETTER, WORSE, WITHIN, AHEAD, BEHIND, TOO_EARLY, NO_INTERVAL = 1, 2, 3, 4, 5, 6, 7


@pytest.mark.parametrize(
    ("series", "says"),
    [
        (DONE | interval("fixed_task", 0.01, 0.05), BETTER),
        (DONE | interval("fixed_task", -0.05, -0.01), WORSE),
        (DONE | interval("fixed_task", -0.01, 0.05), WITHIN),
        (DONE | interval("fixed_task", 0.0, 0.05), WITHIN),
        (DONE | interval("fixed_task", -0.05, 0.0), WITHIN),
        (GOES_ON | interval("fixed_task", 0.01, 0.05), AHEAD),
        (GOES_ON | interval("fixed_task", -0.05, -0.01), BEHIND),
        (GOES_ON | interval("fixed_task", -0.01, 0.01), WITHIN),
        (attempts(scored=4, faulted=2, unplanned=4) | interval("fixed_task", 0.01, 0.2), AHEAD),
        (DONE | {'run_success_difference{run="r", scope="attempted"}': 0.05}, NO_INTERVAL),
        (DONE | interval("task_sampling", 0.01, 0.05), BETTER),
        (DONE | interval("task_sampling", -0.01, 0.05), WITHIN),
        (GOES_ON | interval("task_sampling", 0.01, 0.05), TOO_EARLY),
        (GOES_ON | interval("task_sampling", -0.01, 0.05), TOO_EARLY),
        (
            DONE | interval("fixed_task", -0.01, 0.05) | interval("task_sampling", 0.01, 0.02),
            WITHIN,
        ),
    ],
)
def test_beyond_noise(tmp_path: Path, series: Series, says: int) -> None:
    expr = q.beyond_noise(EVERY, q.ATTEMPTED_TASKS)
    evaluate(tmp_path, series, expr, {'run="r", scope="attempted"': says})


def test_complete_tasks_are_compared_before_the_run_is_over(tmp_path: Path) -> None:
    series = GOES_ON | interval("fixed_task", 0.01, 0.05, "complete")
    labels = 'run="r", scope="complete"'
    evaluate(tmp_path, series, q.beyond_noise(EVERY, q.COMPLETE_TASKS), {labels: BETTER})


def test_nothing_is_said_without_an_interval(tmp_path: Path) -> None:
    evaluate(tmp_path, DONE, q.beyond_noise(EVERY, q.ATTEMPTED_TASKS), {})


def task(target: int = 5, **states: int) -> dict[str, float]:
    every = ("scored", "running", "queued", "faulted", "unplanned")
    found = {f'task_attempts{{run="r", task="t", state="{s}"}}': states.get(s, 0) for s in every}
    return {**found, 'task_attempts_target{run="r", task="t"}': target}


@pytest.mark.parametrize(
    ("series", "state"),
    [
        (task(scored=5), 1),
        (task(scored=3, running=1, faulted=1), 2),
        (task(scored=3, queued=1, faulted=1), 3),
        (task(scored=3, queued=2), 4),
        (task(scored=3, unplanned=2), 5),
    ],
)
def test_state_of_a_task(tmp_path: Path, series: Series, state: int) -> None:
    evaluate(tmp_path, series, q.task_state(EVERY), {'run="r", task="t"': state})


def panel_query(title: str, ref: str) -> str:
    """A query of the Run dashboard, for run r, every task and no search."""
    [run] = [board for board in generated("en") if board.name == "run"]
    [panel] = [panel for panel in run.shown if panel["title"] == title]
    [expr] = [target["expr"] for target in panel["targets"] if target["refId"] == ref]
    return expand(expr, {"run": "r", "task": ".*", "search": "", "datasource": "x"})


def test_passed_of_scored_attempts_is_the_cells_text(tmp_path: Path) -> None:
    series = task(scored=3, running=2) | {'task_attempts_passed{run="r", task="t"}': 2}
    expected = {'run="r", task="t", current="2/3"': 1}
    evaluate(tmp_path, series, panel_query("Tasks", "B"), expected)


@pytest.mark.parametrize(("scored", "legend"), [(4, 'k="1", n="4"'), (0, None)])
def test_passed_of_scored_attempts_of_the_run(
    tmp_path: Path, scored: int, legend: str | None
) -> None:
    series = attempts(scored=scored) | {'run_attempts_passed{run="r"}': min(scored, 1)}
    expected = {} if legend is None else {f'run="r", {legend}': 0.25}
    evaluate(tmp_path, series, panel_query("Current scored attempts", "A"), expected)


FAULTS = 'run_faults_total{run="r", phase="agent", cause="serving"}'


def test_faults_of_an_hour_are_counted_to_the_event(tmp_path: Path) -> None:
    """3 since the minute before the fourth; what was there before the first scrape is not new."""
    series = {FAULTS: "7 7 7 7 8 8 10 10 10 10 10 10"}
    evaluate(tmp_path, series, q.faults_in(EVERY, "1h"), {'run="r"': 3})


def test_bars_add_up_to_what_happened(tmp_path: Path) -> None:
    """Ten minutes of bars of a minute each."""
    series = {FAULTS: "0 0 2 2 2 3 3 3 3 3 8"}
    bars = EVERY.stepped(c.RUN_FAULTS_TOTAL).replace("$__interval", "1m")
    summed = f"sum_over_time(({bars})[10m:1m])"
    evaluate(tmp_path, series, summed, {'run="r", phase="agent", cause="serving"': 8})
