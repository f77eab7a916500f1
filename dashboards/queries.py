"""Expressions that several dashboards show, so that the same word is the same number."""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.promql import EVERYTHING, Matches, Scope, any_of, first_that_holds, sum_by
from dashboards.texts import JOB_STATES, REPLICA_STATES, Choice
from harborlight.ledger.ownership import AttemptState, TrialState
from harborlight.views import catalogue as c
from harborlight.views.catalogue import Metric

ACTIVE = (AttemptState.RUNNING, AttemptState.QUEUED)
ATTEMPTED_TASKS, COMPLETE_TASKS = Matches("attempted"), Matches("complete")
"""Scopes of comparisons, as matchers that leave the label in."""

TERMINAL = any_of((TrialState.SCORED, TrialState.FAULTED, TrialState.UNVERIFIED))

OVERDUE, LATE = 7.0, 4.0
"""Verdicts due: with verdicts at random times, none for 7 usual gaps has a chance of 1 in 1000
(exp(-7)), for 4 of 1 in 50."""

BURST = 5
"""Faults of one cause within five minutes that are marked as a burst."""


# Runs


def attempts(s: Scope, state: str) -> str:
    return s.latest(c.RUN_ATTEMPTS, state=state)


def scored(s: Scope) -> str:
    return attempts(s, AttemptState.SCORED)


def target(s: Scope) -> str:
    return s.latest(c.RUN_ATTEMPTS_TARGET)


def active(s: Scope) -> str:
    """Attempts that run or are going to."""
    return sum_by("run", s.latest(c.RUN_ATTEMPTS, state=any_of(ACTIVE)))


def missing(s: Scope) -> str:
    """Attempts that are not scored."""
    others = any_of(state for state in AttemptState if state is not AttemptState.SCORED)
    return sum_by("run", s.latest(c.RUN_ATTEMPTS, state=others))


def share_scored(s: Scope) -> str:
    return f"{scored(s)} / {target(s)}"


def run_state(s: Scope) -> str:
    """``texts.RUN_STATES``: complete, running, waiting, stopped short, or without a target."""
    running, queued = attempts(s, AttemptState.RUNNING), attempts(s, AttemptState.QUEUED)
    return first_that_holds(
        [
            f"{scored(s)} >= {target(s)}",
            f"{running} > 0",
            f"{queued} > 0",
            f"{scored(s)} < {target(s)}",
            f"{scored(s)} >= 0",
        ]
    )


def of_pools(s: Scope, by_pool: str) -> str:
    """What an expression by ``pool`` adds up to for the pools of each run."""
    return f"sum by (run) ({s.latest(c.RUN_POOL_INFO)} * on (pool) group_left () {by_pool})"


def livest_job(s: Scope) -> str:
    """The place in ``texts.JOB_STATES`` of the run's liveliest job."""

    def of_jobs(state: str) -> str:
        jobs = EVERYTHING.latest(c.JOB_STATE, state=state)
        return f"max by (run) ({s.latest(c.RUN_JOB_INFO)} * on (harbor_job) group_left () {jobs})"

    return first_that_holds([f"{of_jobs(str(choice.value))} > 0" for choice in JOB_STATES])


def replicas_not_up(s: Scope) -> str:
    """Replicas of the run's pools that are in another state than up."""
    return of_pools(s, sum_by("pool", f"1 - {EVERYTHING.latest(c.REPLICA_UP)}"))


def faults_in(s: Scope, window: str, by: str = "run") -> str:
    return sum_by(by, s.grown(c.RUN_FAULTS_TOTAL, window))


def faults_open(s: Scope, by: str = "run") -> str:
    return sum_by(by, s.latest(c.RUN_FAULTS_OPEN))


def verdict_age(s: Scope, now: str = "time()") -> str:
    return f"clamp_min({now} - {s.latest(c.RUN_LAST_VERDICT)}, 0)"


def verdicts_due(s: Scope) -> str:
    """How many verdicts the run's pace would have given between the last one and the snapshot.

    ``IDLE`` while nothing runs; nothing before the first verdict: there is no pace to judge by.
    """
    looked = f"scalar(max({EVERYTHING.series(c.SNAPSHOT_TIMESTAMP)}))"
    since = verdict_age(s, looked)
    # After a pause only what has run since counts.
    at_work = f"{looked} - min by (run) ({s.latest(c.TASK_OLDEST_START)})"
    since = f"(({since} < {at_work}) or ({at_work}) or {since})"
    return _while_it_runs(s, f"{since} * {s.latest(c.RUN_SCORED_RATE, window='run')}")


def slowest_task(s: Scope) -> str:
    """How many times its task's usual duration the slowest running trial has taken, likewise."""
    age = f"(time() - {s.latest(c.TASK_OLDEST_START)})"
    return _while_it_runs(s, f"max by (run) ({age} / {s.latest(c.TASK_USUAL_DURATION)})")


IDLE = -1
"""In place of a number that only a running attempt gives."""


def _while_it_runs(s: Scope, expr: str) -> str:
    """The expression for runs with a running attempt, ``IDLE`` for the others."""
    running = f"{attempts(s, AttemptState.RUNNING)} > 0"
    return f"({expr} and {running})\nor ({scored(s)} * 0 + ({IDLE}) unless {running})"


def estimated_end(s: Scope) -> str:
    """Unix time by the method to trust."""
    ends = s.latest(c.RUN_ETA, estimate=Matches("point|p50"))
    preferred = f"{s.latest(c.RUN_ETA_PREFERRED)} == 1"
    return f"max by (run) ({ends} and on (run, method) ({preferred}))"


COMPLETE, TOO_EARLY, NOTHING_RUNS = -1, -2, -3


def seconds_left(s: Scope) -> str:
    """Until the estimated end; where there is none, one of the codes of ``texts.NO_END``."""
    left = f"clamp_min({estimated_end(s)} - time(), 0)"
    complete = f"({scored(s)} >= {target(s)}) * 0 + ({COMPLETE})"
    early = f"({active(s)} > 0) * 0 + ({TOO_EARLY})"
    stopped = f"{scored(s)} * 0 + ({NOTHING_RUNS})"
    return f"({complete})\nor ({left})\nor ({early})\nor ({stopped})"


def difference(s: Scope, scope: str = "attempted") -> str:
    """Percentage points."""
    return f"100 * {s.latest(c.RUN_DIFFERENCE, scope=scope)}"


def beyond_noise(s: Scope, scope: Matches) -> str:
    """``texts.NOISE``: by the interval of the attempts' luck, else by that of the tasks' choice.

    Over all attempted tasks it is a result only when every attempt is scored: until then quick
    attempts weigh more than slow ones (those of a run that died, too), which no interval knows,
    and without the interval of the attempts' luck nothing is said.
    """

    def bounds(interval: str) -> list[str]:
        return [
            s.latest(c.RUN_DIFFERENCE_CI, interval=interval, bound=bound, scope=scope)
            for bound in ("lower", "upper")
        ]

    luck, tasks = bounds("fixed_task"), bounds("task_sampling")
    lower, upper = (f"({a} or {b})" for a, b in zip(luck, tasks, strict=True))
    settled = "" if scope == COMPLETE_TASKS else f" and on (run) ({missing(s)} == 0)"
    return first_that_holds(
        [
            f"{lower} > 0{settled}",
            f"{upper} < 0{settled}",
            f"({luck[0]} <= 0 and {luck[1]} >= 0) or ({lower} <= 0 and {upper} >= 0{settled})",
            f"{luck[0]} > 0",
            f"{luck[1]} < 0",
            f"{lower} <= {upper}",
            f"{s.latest(c.RUN_DIFFERENCE, scope=scope)} >= -1",
        ]
    )


# Tasks


def task_state(s: Scope) -> str:
    """``texts.TASK_STATES``."""

    def of(state: AttemptState) -> str:
        return s.latest(c.TASK_ATTEMPTS, state=state)

    return first_that_holds(
        [
            f"{of(AttemptState.SCORED)} >= {s.latest(c.TASK_ATTEMPTS_TARGET)}",
            f"{of(AttemptState.RUNNING)} > 0",
            f"{of(AttemptState.FAULTED)} > 0",
            f"{of(AttemptState.QUEUED)} > 0",
            f"{of(AttemptState.SCORED)} >= 0",
        ]
    )


# Jobs, pools and replicas


def job_state(s: Scope) -> str:
    """The place of each job's state in ``texts.JOB_STATES``."""
    return _place(s, c.JOB_STATE, JOB_STATES)


def replica_state(s: Scope) -> str:
    """The place of each replica's state in ``texts.REPLICA_STATES``."""
    return _place(s, c.REPLICA_STATE, REPLICA_STATES)


def _place(s: Scope, metric: Metric, states: Sequence[Choice]) -> str:
    """Which of the states holds, from 1 on; ``metric`` is 1 for it and 0 for the others."""
    return first_that_holds(
        [f"{s.latest(metric, state=str(choice.value))} == 1" for choice in states]
    )


def pool_trials(s: Scope, state: str | Matches) -> str:
    """Trials of the jobs that use a pool, by pool."""
    return sum_by("pool", s.latest(c.POOL_TRIALS, state=state))
