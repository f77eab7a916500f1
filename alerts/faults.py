"""Alerts on executions that ended without a verdict."""

from __future__ import annotations

from alerts.parameters import Parameters
from alerts.recording import Recorded
from alerts.rule import FAULTS, IMPAIRED, Alert, Group, Severity, all_of, on, told, unless
from dashboards.promql import EVERYTHING as EVERY, any_of, sum_by
from dashboards.queries import target
from harborlight.ledger.faults import Cause
from harborlight.views import catalogue as c

_RUN = "of the run {{ $labels.run }}"
_BURST = "Harborlight.+FaultBurst"


def group(p: Parameters, r: Recorded) -> Group:
    return Group(
        "harborlight-faults",
        (
            _burst(
                p,
                r,
                Cause.CONTAINER,
                Severity.CRITICAL,
                "The trials' containers fail in bursts.",
                "The container runtime, its disk, its registry or its network is broken.",
            ),
            _burst(
                p,
                r,
                Cause.SERVING,
                Severity.CRITICAL,
                "Trials fail in bursts at the model's API.",
                "The servers, the gateway before them or the key is broken, although the replicas "
                "that are watched were not paged about.",
            ),
            _burst(
                p,
                r,
                Cause.VERIFIER,
                Severity.CRITICAL,
                "Trials get no verdict: their verifiers fail in bursts.",
                "Where a fault's boundary is `regrade`, what the agent did is kept, and a regrade "
                "closes it once the verifier works.",
            ),
            _burst(
                p,
                r,
                Cause.AGENT,
                Severity.WARNING,
                "Agents fail in bursts without leaving a verdict.",
                "The agent's installation or its version is the first to suspect.",
            ),
            _many_tasks(p, r),
            _open(p, r),
            _retries(p, r),
        ),
    )


def _burst(
    p: Parameters, r: Recorded, cause: Cause, severity: Severity, summary: str, suspect: str
) -> Alert:
    faults = f'{r.faults}{{cause="{cause}"}}'
    return Alert(
        f"Harborlight{cause.capitalize()}FaultBurst",
        severity,
        ("run", "cause"),
        all_of(
            f"{faults} >= {p.burst_least}",
            on("run", f"{faults} >= on (run) {p.burst_share:g} * {r.executions}"),
            on("run", str(r.unfinished)),
        ),
        summary,
        f"{{{{ $value }}}} executions {_RUN} ended by a fault of cause {cause} within "
        f"{p.burst_window}, {p.burst_share:.0%} or more of those that ended. {suspect}",
        FAULTS,
    )


def _many_tasks(p: Parameters, r: Recorded) -> Alert:
    # A Ctrl-C or a dead process hits whatever runs, and is alerted on by itself.
    causes = any_of(x for x in Cause if x not in (Cause.CANCELLED, Cause.INTERRUPTED))
    hit = f'{r.fault_tasks}{{cause=~"{causes.pattern}"}}'
    share = f"{p.spread_share:g} * {EVERY.latest(c.RUN_TASKS)}"
    return Alert(
        "HarborlightFaultOnManyTasks",
        Severity.WARNING,
        ("run", "cause"),
        unless(
            all_of(
                f"{hit} >= {p.spread_least}",
                on("run, cause", f"{hit} >= on (run) group_left () {share}"),
                on("run", str(r.unfinished)),
            ),
            "run, cause",
            told("run, cause", p.spread_window, _BURST),
        ),
        "One cause of faults hits many tasks.",
        f"Within {p.spread_window} faults of cause {{{{ $labels.cause }}}} hit {{{{ $value }}}} "
        f"tasks {_RUN} that they had not hit before: it is not the tasks.",
        FAULTS,
    )


def _open(p: Parameters, r: Recorded) -> Alert:
    # Who pressed Ctrl-C knows.
    causes = any_of(cause for cause in Cause if cause is not Cause.CANCELLED)
    faults = sum_by("run", EVERY.latest(c.RUN_FAULTS_OPEN, cause=causes))
    idle = f"({faults} > 0 unless on (run) {r.active} > 0)"
    many = f"{faults} >= {p.open_share:g} * {target(EVERY)}"
    return Alert(
        "HarborlightOpenFaults",
        Severity.WARNING,
        ("run",),
        all_of(f"({idle}\nor {many})", on("run", str(r.unfinished))),
        "A run has faults that nobody replays.",
        f"{{{{ $value }}}} faults {_RUN} are open: no trial runs or is planned for their attempts, "
        "and the run cannot become complete without. `harborlight replay-plan` says what to run; "
        "what is not to be replayed can be given up in the configuration.",
        FAULTS,
    )


def _retries(p: Parameters, r: Recorded) -> Alert:
    return Alert(
        "HarborlightRetriesEatRun",
        Severity.WARNING,
        ("run",),
        unless(
            all_of(
                f"{r.retries} >= {p.retry_least}",
                on("run", f"{r.retries} >= {p.retry_share:g} * {r.verdicts}"),
                on("run", str(r.unfinished)),
            ),
            "run",
            told("run", p.retry_window, f"{_BURST}|{IMPAIRED}"),
        ),
        "A run spends much of its time on retries.",
        f"Harbor retried {{{{ $value }}}} trials {_RUN} within {p.retry_window}, "
        f"{p.retry_share:g} or more for each verdict: time, tokens and money go into executions "
        "that it deletes.",
        FAULTS,
    )
