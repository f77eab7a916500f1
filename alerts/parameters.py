"""Every number that the alerts depend on: the one place to change one (then ``make alerts``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Annotated, Any, Final, override


@dataclass(frozen=True, slots=True)
class Span:
    """A length of time, as PromQL writes it: ``str()`` is a duration, ``seconds`` a number."""

    seconds: float

    def divided(self, scale: float) -> Span:
        return Span(self.seconds / scale)

    @override
    def __str__(self) -> str:
        milliseconds = round(self.seconds * 1000)
        for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
            if milliseconds and milliseconds % length == 0:
                return f"{milliseconds // length}{unit}"
        return f"{milliseconds}ms"


MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86_400


@dataclass(frozen=True)
class Parameters:
    """Thresholds and windows; an amount of time is a ``Span``. README.md shows the meanings."""

    scrape_job: Annotated[str, "`job` of the exporter's targets in Prometheus' configuration."] = (
        "harborlight"
    )
    snapshot_age: Annotated[
        Span, "A page older than that is stale; the exporter looks every 5 s."
    ] = Span(5 * MINUTE)
    abandoned: Annotated[
        Span,
        "A run that no process works on, and of which nothing has changed for a weekend, is "
        "nobody's any more: it alerts nobody.",
    ] = Span(3 * DAY)

    kv_share: Annotated[float, "Used share of a replica's KV cache that counts as saturated."] = (
        0.97
    )
    queue_least: Annotated[int, "Waiting requests of a replica from which a queue can be long."] = 8
    queue_share: Annotated[
        float, "A long queue is at least this share of the running requests."
    ] = 0.5
    token_window: Annotated[
        Span, "Requests that run all this time bring tokens, unless the engine hangs."
    ] = Span(10 * MINUTE)
    lost_window: Annotated[Span, "In which aborted and retracted requests are counted."] = Span(
        15 * MINUTE
    )
    lost_least: Annotated[int, "Aborted or retracted requests of a replica that are many."] = 20
    lost_share: Annotated[float, "Their least share of the requests in the same time."] = 0.3
    silent_window: Annotated[
        Span, "Trials that run all this time without one request are cut off."
    ] = Span(20 * MINUTE)
    silent_trials: Annotated[
        int, "Fewer trials can well be without a request: in a build, a test, a verifier."
    ] = 4
    impaired_window: Annotated[
        Span,
        "So long after a page about its servers, what follows from it in a run stays quiet: the "
        "burst's window and its `for`, and a little.",
    ] = Span(40 * MINUTE)

    burst_window: Annotated[Span, "In which a burst of faults is counted."] = Span(30 * MINUTE)
    burst_least: Annotated[int, "Faults of one cause that can be a burst."] = 5
    burst_share: Annotated[
        float, "Their least share of the executions that ended in the window."
    ] = 0.25
    spread_window: Annotated[Span, "In which a cause's newly hit tasks are counted."] = Span(
        2 * HOUR
    )
    spread_least: Annotated[int, "Newly hit tasks that are many."] = 5
    spread_share: Annotated[float, "Their least share of the run's tasks."] = 0.15
    open_share: Annotated[
        float, "Open faults from this share of the target on are not left for the run's end."
    ] = 0.1
    retry_window: Annotated[Span, "In which retries and verdicts are compared."] = Span(3 * HOUR)
    retry_least: Annotated[int, "Retries that are many."] = 10
    retry_share: Annotated[float, "Retries for each verdict that eat the run."] = 0.5

    first_trial: Annotated[Span, "A job that has started no trial by then is not going to."] = Span(
        20 * MINUTE
    )
    overdue_factor: Annotated[
        float,
        "A trial is overdue from so many times its task's usual duration on: among 315 official "
        "trials of Terminal-Bench 4.0 the most was 4.5.",
    ] = 5
    overdue_least: Annotated[Span, "And at least so long beyond it."] = Span(1 * HOUR)
    stalled_window: Annotated[Span, "A run in which nothing ends for so long may have stalled."] = (
        Span(2 * HOUR)
    )
    stalled_factor: Annotated[
        float, "It has, when every task at work has taken so many times its usual duration."
    ] = 3
    stalled_blind_window: Annotated[
        Span,
        "The same where no usual duration is known yet: longer than the longest official trial of "
        "Terminal-Bench 4.0 (6.9 h).",
    ] = Span(8 * HOUR)
    stalled_trials: Annotated[int, "For that, at least so many attempts run."] = 4
    idle_window: Annotated[
        Span, "A live job that has planned attempts and runs none for so long stands."
    ] = Span(1 * HOUR)
    unchanged: Annotated[
        Span,
        "A job of unknown liveness whose files have not changed for so long is most likely dead: "
        "longer than its longest task's time-out.",
    ] = Span(8 * HOUR)
    slip_window: Annotated[Span, "Over which the estimated end is compared."] = Span(12 * HOUR)
    slip_least: Annotated[
        Span,
        "By which it moves later: of 12 hours, 9 brought the end no nearer. In replays of healthy "
        "runs of 315 trials, 8 to 32 at once, the most was 3.1.",
    ] = Span(9 * HOUR)
    slip_share: Annotated[
        float, "And so much of the target was scored before: earlier the estimate is a guess."
    ] = 0.1
    just: Annotated[Span, "What happened within that has just happened."] = Span(1 * HOUR)
    lately: Annotated[Span, "What changed within that has changed lately."] = Span(6 * HOUR)
    reference_tasks: Annotated[
        int, "Complete tasks that both sides have, before a run is said to be below its reference."
    ] = 10

    def divided(self, scale: float) -> Parameters:
        """The same with every amount of time divided by ``scale``, for a replay that is faster."""
        return _divided(self, scale)


HOLDS: Final[Mapping[str, Span]] = MappingProxyType(
    {
        name: Span(minutes * MINUTE)
        for name, minutes in {
            "HarborlightExporterAbsent": 5,
            "HarborlightExporterDown": 3,
            "HarborlightSnapshotStale": 3,
            "HarborlightCollectorFailing": 10,
            "HarborlightConfigReloadFailed": 5,
            "HarborlightReplicaDown": 2,
            "HarborlightReplicaFrozen": 2,
            "HarborlightReplicaUnauthorized": 5,
            "HarborlightReplicaIncomplete": 10,
            "HarborlightReplicaNoTokens": 5,
            "HarborlightKvCacheSaturated": 30,
            "HarborlightQueueLong": 30,
            "HarborlightRequestsAborted": 5,
            "HarborlightRequestsRetracted": 5,
            "HarborlightTrialsWithoutRequests": 5,
            "HarborlightRequestsWithoutTrials": 30,
            "HarborlightPoolModelMismatch": 10,
            "HarborlightServingImpaired": 0,
            # Longer than that of the replicas' alerts, which then are there first.
            "HarborlightContainerFaultBurst": 5,
            "HarborlightServingFaultBurst": 5,
            "HarborlightVerifierFaultBurst": 5,
            "HarborlightAgentFaultBurst": 5,
            # And these than that of the bursts.
            "HarborlightFaultOnManyTasks": 10,
            "HarborlightRetriesEatRun": 10,
            "HarborlightOpenFaults": 60,
            "HarborlightJobInterrupted": 1,
            "HarborlightJobNeverStarted": 5,
            "HarborlightTrialOverdue": 15,
            "HarborlightRunStalled": 5,
            "HarborlightJobUnknownUnchanged": 5,
            "HarborlightEtaSlipping": 30,
            "HarborlightRunComplete": 0,
            "HarborlightVerdictsDiscarded": 0,
            "HarborlightScoredWithInfrastructureException": 5,
            "HarborlightUnreadableResults": 10,
            "HarborlightTaskContentChanged": 5,
            "HarborlightComparabilityLost": 5,
            "HarborlightSurplusVerdicts": 5,
            "HarborlightBelowReference": 30,
        }.items()
    }
)
"""How long each alert's condition has to hold before it fires (its ``for``)."""


@dataclass(frozen=True)
class Notifying:
    """Alertmanager's waits."""

    group_wait: Annotated[Span, "Before the first notification of a group of alerts."] = Span(30)
    group_interval: Annotated[Span, "Before one that tells what has changed in it."] = Span(
        5 * MINUTE
    )
    repeat_critical: Annotated[Span, "Before a page is repeated."] = Span(4 * HOUR)
    repeat_warning: Annotated[Span, "Before a warning is."] = Span(1 * DAY)
    repeat_info: Annotated[Span, "Before a piece of information is."] = Span(7 * DAY)

    def divided(self, scale: float) -> Notifying:
        return _divided(self, scale)


def _divided[T: Parameters | Notifying](of: T, scale: float) -> T:
    values: dict[str, Any] = {f.name: getattr(of, f.name) for f in fields(of)}
    spans = {name: x.divided(scale) for name, x in values.items() if isinstance(x, Span)}
    return replace(of, **{**values, **spans})
