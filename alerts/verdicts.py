"""Alerts on what the numbers are worth."""

from __future__ import annotations

from alerts.parameters import Parameters
from alerts.recording import Recorded
from alerts.rule import (
    FLEET,
    RUN,
    Alert,
    Group,
    Severity,
    all_of,
    of_each,
    on,
    risen,
    seconds,
)
from dashboards.promql import EVERYTHING as EVERY, any_of, sum_by
from harborlight.ledger.faults import Cause
from harborlight.statistics.comparability import Check
from harborlight.views import catalogue as c

_RUN = "the run {{ $labels.run }}"


def group(p: Parameters, r: Recorded) -> Group:
    return Group(
        "harborlight-verdicts",
        (
            _discarded(p, r),
            _with_exception(r),
            _unreadable(p, r),
            _content(p, r),
            _comparability(p, r),
            _surplus(p),
            _below_reference(p),
        ),
    )


def _discarded(p: Parameters, r: Recorded) -> Alert:
    return Alert(
        "HarborlightVerdictsDiscarded",
        Severity.WARNING,
        ("run",),
        all_of(
            f"{sum_by('run', EVERY.grown(c.RUN_DISCARDED, str(p.just)))} > 0",
            on("run", str(r.unfinished)),
        ),
        "Harbor has deleted valid verdicts by retrying their trials.",
        f"Within {p.just} {{{{ $value }}}} valid verdicts of {_RUN} were deleted, because the "
        "trial carried an exception type that Harbor retries: the task gets another try, and only "
        "the last result counts. Leave the type out of the job's retries.",
        RUN,
    )


def _with_exception(r: Recorded) -> Alert:
    causes = any_of((Cause.SERVING, Cause.CONTAINER))
    return Alert(
        "HarborlightScoredWithInfrastructureException",
        Severity.WARNING,
        ("run", "cause"),
        all_of(
            f"{EVERY.latest(c.RUN_SCORED_WITH_EXCEPTION, cause=causes)} > 0",
            on("run", str(r.unfinished)),
        ),
        "Attempts were scored although the infrastructure failed under them.",
        f"{{{{ $value }}}} attempts of {_RUN} are scored and carry an exception of cause "
        "{{ $labels.cause }}: Harbor holds their rewards valid, though a broken server or "
        "container may have made them. The configuration can declare the type invalid.",
        RUN,
    )


def _unreadable(p: Parameters, r: Recorded) -> Alert:
    unreadable = EVERY.latest(c.JOB_UNREADABLE)
    info = EVERY.latest(c.RUN_JOB_INFO)
    recent = f"time() - {EVERY.latest(c.JOB_LAST_CHANGE)} < {seconds(p.abandoned)}"
    # Of a job whose first files cannot be read nobody knows the run, or what it is to score.
    known = f"{of_each(info, 'harbor_job', 'run', EVERY.latest(c.RUN_TARGET_KNOWN))} == 1"
    without_run = f"({recent} unless on (harbor_job) ({known}))"
    unfinished = of_each(info, "harbor_job", "run", str(r.unfinished))
    return Alert(
        "HarborlightUnreadableResults",
        Severity.WARNING,
        ("harbor_job",),
        all_of(f"{unreadable} > 0", on("harbor_job", f"{unfinished}\n  or {without_run}")),
        "Files of a job cannot be read.",
        "{{ $value }} files of the job {{ $labels.harbor_job }} cannot be read and are not just "
        "being written; what they hold is missing from its run. The exporter's log names them and "
        "says what is wrong.",
        FLEET,
    )


def _content(p: Parameters, r: Recorded) -> Alert:
    changed = _lost(p, f'{{check="{Check.ONE_CONTENT}"}}')
    return Alert(
        "HarborlightTaskContentChanged",
        Severity.WARNING,
        ("run",),
        all_of(
            f"(max by (run) ({risen(c.RUN_STALE_CONTENT, p.lately)}) > 0\n"
            f"or max by (run) ({changed}))",
            on("run", str(r.unfinished)),
        ),
        "Tasks were changed in the middle of a run.",
        f"Within {p.lately} verdicts of {_RUN} turned out to be of different versions of a task. "
        "Those on another version than the newest own no attempt and have to be run again, or the "
        "configuration has to pin the version that is meant.",
        RUN,
    )


def _comparability(p: Parameters, r: Recorded) -> Alert:
    return Alert(
        "HarborlightComparabilityLost",
        Severity.WARNING,
        ("run", "check"),
        all_of(
            _lost(p, f'{{check!="{Check.ONE_CONTENT}"}}'),
            on("run", str(r.unfinished)),
        ),
        "A run has stopped being comparable.",
        f"The condition {{{{ $labels.check }}}} of {_RUN} held before and does not any more: what "
        "is scored from here on is not the same measurement. `harborlight status` says why not.",
        RUN,
    )


def _lost(p: Parameters, matchers: str) -> str:
    """Conditions that held lately and do not: 0, by run and check."""
    check = f"{c.RUN_COMPARABILITY.full_name}{matchers}"
    return (
        f"(max by (run, check) ({check}) == 0\n"
        f"and on (run, check) (max by (run, check) (max_over_time({check}[{p.lately}])) == 1))"
    )


def _surplus(p: Parameters) -> Alert:
    return Alert(
        "HarborlightSurplusVerdicts",
        Severity.INFO,
        ("run",),
        f"{risen(c.RUN_ATTEMPTS_SURPLUS, p.lately)} > 0",
        "A run gets more verdicts than it has attempts for.",
        f"{{{{ $value }}}} verdicts of {_RUN} came within {p.lately} for tasks whose attempts were "
        "all scored: they do not count, and cost as much as the others. Two jobs run the same "
        "tasks.",
        RUN,
    )


def _below_reference(p: Parameters) -> Alert:
    upper = EVERY.latest(
        c.RUN_DIFFERENCE_CI, scope="complete", interval="fixed_task", bound="upper"
    )
    tasks = EVERY.latest(c.RUN_MATCHED_TASKS, scope="complete")
    age = f"time() - {EVERY.latest(c.RUN_LAST_VERDICT)}"
    difference = EVERY.latest(c.RUN_DIFFERENCE, scope="complete")
    return Alert(
        "HarborlightBelowReference",
        Severity.INFO,
        ("run",),
        all_of(
            difference,
            on("run", f"{upper} < 0"),
            on("run", f"{tasks} >= {p.reference_tasks}"),
            on("run", f"{age} < {seconds(p.abandoned)}"),
        ),
        "A run is below its reference, beyond the luck of its attempts.",
        f"On the tasks that are complete, {_RUN} stands at {{{{ $value | humanizePercentage }}}} "
        "against its reference, and the 95 % interval of the attempts' luck ends below 0. If "
        "model and agent are the reference's, something differs.",
        RUN,
    )
