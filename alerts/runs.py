"""Alerts on the progress of runs and their jobs."""

from __future__ import annotations

from alerts.parameters import Parameters
from alerts.recording import Recorded
from alerts.rule import (
    IMPAIRED,
    RUN,
    Alert,
    Group,
    Severity,
    all_of,
    of_each,
    on,
    seconds,
    told,
    unless,
)
from dashboards import queries as q
from dashboards.promql import EVERYTHING as EVERY, any_of, sum_by
from harborlight.ledger.jobs import JobState
from harborlight.ledger.ownership import AttemptState, Resolution, TrialState
from harborlight.views import catalogue as c

_JOB = "The job {{ $labels.harbor_job }} of the run {{ $labels.run }}"
_OF_JOB = ("run", "harbor_job")
_UNSCORED = any_of((AttemptState.FAULTED, AttemptState.UNPLANNED))
_BEGUN = any_of(state for state in TrialState if state is not TrialState.QUEUED)


def group(p: Parameters, r: Recorded) -> Group:
    return Group(
        "harborlight-runs",
        (
            _interrupted(r),
            _never_started(p, r),
            _unknown(p, r),
            _overdue(p, r),
            _stalled(p, r),
            _slipping(p, r),
            _complete(p),
        ),
    )


def _of_jobs(jobs: str) -> str:
    """Values by ``harbor_job`` for each run that the job serves."""
    return of_each(EVERY.latest(c.RUN_JOB_INFO), "run, harbor_job", "harbor_job", jobs)


def _interrupted(r: Recorded) -> Alert:
    interrupted = EVERY.latest(c.JOB_STATE, state=JobState.INTERRUPTED)
    unscored = sum_by("run", EVERY.latest(c.RUN_ATTEMPTS, state=_UNSCORED))
    # Attempts that are given up stay faulted, and are nobody's work any more.
    given_up = EVERY.latest(c.RUN_FAULTS_BY_RESOLUTION, resolution=Resolution.GIVEN_UP)
    return Alert(
        "HarborlightJobInterrupted",
        Severity.CRITICAL,
        _OF_JOB,
        all_of(
            f"{_of_jobs(interrupted)} == 1",
            on("run", f"{unscored} > {given_up}"),
            on("run", str(r.unfinished)),
        ),
        "A job's process has died before the job ended.",
        f"{_JOB} has no process any more and did not finish; its running trials are lost, and "
        "nothing runs what it had planned. Harbor can resume it.",
        RUN,
    )


def _never_started(p: Parameters, r: Recorded) -> Alert:
    state = EVERY.series(c.JOB_STATE, state=any_of((JobState.LIVE, JobState.UNKNOWN)))
    begun = sum_by("harbor_job", EVERY.latest(c.JOB_TRIALS, state=_BEGUN))
    age = f"time() - {EVERY.latest(c.JOB_STARTED)}"
    return Alert(
        "HarborlightJobNeverStarted",
        Severity.CRITICAL,
        _OF_JOB,
        all_of(
            f"{_of_jobs(f'({age} > {seconds(p.first_trial)})')}",
            on("harbor_job", f"max by (harbor_job) ({state}) == 1"),
            on("harbor_job", f"{begun} == 0"),
            on("run", str(r.unfinished)),
        ),
        "A job has not started a single trial.",
        f"{_JOB} was made {{{{ $value | humanizeDuration }}}} ago and none of its trials has "
        "begun: Harbor waits for something before the first one (an image, a dataset, a lock).",
        RUN,
    )


def _unknown(p: Parameters, r: Recorded) -> Alert:
    unknown = EVERY.latest(c.JOB_STATE, state=JobState.UNKNOWN)
    age = f"time() - {EVERY.latest(c.JOB_LAST_CHANGE)}"
    return Alert(
        "HarborlightJobUnknownUnchanged",
        Severity.WARNING,
        _OF_JOB,
        all_of(
            f"{_of_jobs(f'({age} > {seconds(p.unchanged)})')}",
            on("harbor_job", f"{unknown} == 1"),
            on("run", str(r.unfinished)),
        ),
        "A job of which nobody knows whether it lives has not changed for long.",
        f"{_JOB} counts as live, and no file of it has changed for "
        "{{ $value | humanizeDuration }}: most likely its process is gone. Whether it is can only "
        "be seen on the host where it ran.",
        RUN,
    )


def _overdue(p: Parameters, r: Recorded) -> Alert:
    age = f"(time() - {EVERY.latest(c.TASK_OLDEST_START)})"
    usual = EVERY.latest(c.TASK_USUAL_DURATION)
    return Alert(
        "HarborlightTrialOverdue",
        Severity.WARNING,
        ("run", "task"),
        all_of(
            f"{age} / {usual} >= {p.overdue_factor:g}",
            on("run, task", f"{age} - {usual} >= {seconds(p.overdue_least)}"),
            on("run", str(r.unfinished)),
        ),
        "A trial has run far longer than is usual for its task.",
        "The longest running trial of the task {{ $labels.task }} in the run {{ $labels.run }} has "
        'taken {{ $value | printf "%.1f" }} times the task\'s usual duration. It may hang; its '
        "time-out, where it has one, is going to end it.",
        RUN,
    )


def _stalled(p: Parameters, r: Recorded) -> Alert:
    age = f"(time() - {EVERY.latest(c.TASK_OLDEST_START)})"
    ratio = f"{age} / {EVERY.latest(c.TASK_USUAL_DURATION)}"
    every = f"count by (run) ({age}) == count by (run) ({ratio})"
    slow = all_of(
        f"min by (run) ({age})",
        on("run", f"{r.executions_stalled} == 0"),
        on("run", f"min by (run) ({ratio}) >= {p.stalled_factor:g}"),
        on("run", f"min by (run) ({age}) >= {seconds(p.stalled_window)}"),
        on("run", every),
    )
    blind = all_of(
        f"max by (run) ({age}) >= {seconds(p.stalled_blind_window)}",
        on("run", f"{r.executions_blind} == 0"),
        on("run", f"{r.running} >= {p.stalled_trials}"),
    )
    queued = q.attempts(EVERY, AttemptState.QUEUED)
    idle = all_of(
        f"time() - {r.last_change} >= {seconds(p.idle_window)}",
        on("run", f"{queued} > 0"),
        on("run", f"max_over_time({r.running}[{p.idle_window}]) == 0"),
    )
    return Alert(
        "HarborlightRunStalled",
        Severity.WARNING,
        ("run",),
        all_of(f"({slow}\nor {blind}\nor {idle})", on("run", str(r.unfinished))),
        "A run has come to a standstill.",
        "In the run {{ $labels.run }} no execution has ended for "
        f"{p.stalled_window} or more and every trial at work is far beyond what is usual, or "
        "nothing runs at all although attempts are planned; it has been so for "
        "{{ $value | humanizeDuration }} at least. A run that is only slow ends a trial now and "
        "then.",
        RUN,
    )


def _slipping(p: Parameters, r: Recorded) -> Alert:
    scored = EVERY.series(c.RUN_ATTEMPTS, state=AttemptState.SCORED)
    before = f"max by (run) ({scored} offset {p.slip_window})"
    return Alert(
        "HarborlightEtaSlipping",
        Severity.WARNING,
        ("run",),
        unless(
            all_of(
                f"{r.estimated_end} - {r.estimated_end} offset {p.slip_window} "
                f"> {seconds(p.slip_least)}",
                on("run", f"{before} >= {p.slip_share:g} * {q.target(EVERY)}"),
                on("run", f"{r.active} > 0"),
                on("run", str(r.unfinished)),
            ),
            "run",
            told("run", p.slip_window, f"Harborlight.+FaultBurst|{IMPAIRED}"),
        ),
        "A run's estimated end moves away nearly as fast as time passes.",
        "The estimated end of the run {{ $labels.run }} has moved "
        f"{{{{ $value | humanizeDuration }}}} later within {p.slip_window}: at this pace it never "
        "ends.",
        RUN,
    )


def _complete(p: Parameters) -> Alert:
    last = f"time() - {EVERY.latest(c.RUN_LAST_VERDICT)}"
    return Alert(
        "HarborlightRunComplete",
        Severity.INFO,
        ("run",),
        all_of(
            f"{q.scored(EVERY)} >= {q.target(EVERY)}",
            on("run", f"{last} < {seconds(p.just)}"),
        ),
        "A run is complete.",
        "Every one of the {{ $value }} attempts of the run {{ $labels.run }} is scored.",
        RUN,
    )
