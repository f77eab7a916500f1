"""Alerts on the servers of the model, and on what the trials get from them."""

from __future__ import annotations

from alerts.parameters import Parameters, Span
from alerts.recording import Recorded
from alerts.rule import (
    FLEET,
    IMPAIRED,
    SERVING,
    Alert,
    Group,
    Recording,
    Severity,
    all_of,
    of_each,
    on,
    or_none,
    told,
    unless,
)
from dashboards.promql import EVERYTHING as EVERY, any_of, sum_by
from harborlight.ledger.faults import Phase
from harborlight.readings import ReplicaState
from harborlight.views import catalogue as c

_REPLICA = ("pool", "replica")


def group(p: Parameters, r: Recorded) -> Group:
    return Group(
        "harborlight-serving",
        (
            *_states(r),
            _no_tokens(p, r),
            _without_requests(p, r),
            *_load(p, r),
            _without_trials(r),
            _other_model(r),
            _impaired(p),
        ),
    )


def _in_use(r: Recorded) -> str:
    return on("pool", str(r.in_use))


def _states(r: Recorded) -> tuple[Alert, ...]:
    def in_state(*states: ReplicaState) -> str:
        state = states[0] if len(states) == 1 else any_of(states)
        series = EVERY.series(c.REPLICA_STATE, state=state)
        return all_of(f"max by (pool, replica) ({series}) == 1", _in_use(r))

    where = "Replica {{ $labels.replica }} of the pool {{ $labels.pool }}"
    return (
        Alert(
            "HarborlightReplicaDown",
            Severity.CRITICAL,
            _REPLICA,
            in_state(ReplicaState.UNREACHABLE, ReplicaState.NO_METRICS),
            "A replica that trials depend on does not answer.",
            f"{where} cannot be reached or serves no metrics, while trials of the pool's jobs run "
            "or wait. Their requests fail or hang until it is back; what follows from it in the "
            "runs (faults, retries, a later end) is not alerted on separately.",
            SERVING,
        ),
        Alert(
            "HarborlightReplicaFrozen",
            Severity.CRITICAL,
            _REPLICA,
            in_state(ReplicaState.FROZEN),
            "A replica answers, but its scheduler shows no sign of life.",
            f"{where} is frozen: its page stays as it was, so its numbers are old, and requests to "
            "it hang until their time-out. It takes a restart of the server.",
            SERVING,
        ),
        Alert(
            "HarborlightReplicaUnauthorized",
            Severity.WARNING,
            _REPLICA,
            in_state(ReplicaState.UNAUTHORIZED),
            "A replica refuses the exporter's key.",
            f"{where} is not watched: it refuses the key that the exporter has. If its key was "
            "changed, the agents need the new one, too.",
            SERVING,
        ),
        Alert(
            "HarborlightReplicaIncomplete",
            Severity.WARNING,
            _REPLICA,
            in_state(ReplicaState.INCOMPLETE),
            "A part of a replica is missing from its metrics.",
            f"{where} answers in part: a server or a rank of it is missing. Its counters stand "
            "still until it is whole again.",
            SERVING,
        ),
    )


def _before(recorded: Recording, window: Span) -> str:
    """What it was at most in the half window that ended a window ago."""
    return f"max_over_time({recorded}[{window.divided(2)}] offset {window})"


def _no_tokens(p: Parameters, r: Recorded) -> Alert:
    return Alert(
        "HarborlightReplicaNoTokens",
        Severity.CRITICAL,
        _REPLICA,
        all_of(
            f"min_over_time({r.requests}[{p.token_window}]) > 0",
            # A server that has just come back, and compiles, was not there before; a scrape that
            # failed then is no reason.
            on("pool, replica", f"{_before(r.requests, p.token_window)} > 0"),
            on("pool, replica", f"{r.tokens} == 0"),
            on("pool, replica", f"{EVERY.latest(c.REPLICA_UP)} == 1"),
            _in_use(r),
        ),
        "A replica has requests running and makes no tokens.",
        "At replica {{ $labels.replica }} of the pool {{ $labels.pool }} {{ $value }} requests or "
        f"more have run for {p.token_window}, and not one token was computed, found in the cache "
        "or generated. Its scheduler lives, its engine does nothing: this is not a slow server.",
        SERVING,
    )


def _without_requests(p: Parameters, r: Recorded) -> Alert:
    agents = EVERY.latest(c.RUN_ATTEMPTS_RUNNING, phase=any_of((Phase.AGENT, Phase.UNKNOWN)))
    in_agent = of_each(EVERY.latest(c.RUN_POOL_INFO), "pool", "run", sum_by("run", agents), "sum")
    known = f"min by (pool) ({EVERY.latest(c.REPLICA_REQUESTS_KNOWN)})"
    window = p.silent_window
    return Alert(
        "HarborlightTrialsWithoutRequests",
        Severity.CRITICAL,
        ("pool",),
        unless(
            all_of(
                f"min_over_time({r.trials}[{window}]) >= {p.silent_trials}",
                # Who has not looked for so long does not know.
                on("pool", f"{_before(r.trials, window)} >= {p.silent_trials}"),
                on("pool", f"max_over_time({r.at_servers}[{window}]) == 0"),
                on("pool", f"{known} == 1"),
                # A phase that is not known may be the agent's; an environment needs no model.
                on("pool", f"{in_agent} >= {p.silent_trials}"),
                _in_use(r),
            ),
            "pool",
            f"{r.answered} > 0",
        ),
        "Trials run, and none of them sends a request to the model.",
        f"For {window} " + "{{ $value }} trials or more have run at the pool {{ $labels.pool }}, "
        "and its servers, which answer, got no request: the agents are cut off from them (a "
        "gateway, a name, a key, a network policy), or hang themselves.",
        SERVING,
    )


def _load(p: Parameters, r: Recorded) -> tuple[Alert, ...]:
    where = "replica {{ $labels.replica }} of the pool {{ $labels.pool }}"
    every = "pool, replica"
    return (
        Alert(
            "HarborlightKvCacheSaturated",
            Severity.WARNING,
            _REPLICA,
            all_of(f"{r.kv_share} >= {p.kv_share:g}", _in_use(r)),
            "A replica's KV cache has been full for long.",
            f"Running requests use {{{{ $value | humanizePercentage }}}} of the KV cache of {where}"
            ". It retracts requests and computes them again: fewer at once, or more room, would "
            "be faster.",
            SERVING,
        ),
        Alert(
            "HarborlightQueueLong",
            Severity.WARNING,
            _REPLICA,
            all_of(
                f"{r.queue} >= {p.queue_least}",
                on(every, f"{r.queue} >= {p.queue_share:g} * {r.requests}"),
                _in_use(r),
            ),
            "Requests have been waiting at a replica for long.",
            f"{{{{ $value }}}} requests wait at {where}, at least {p.queue_share:g} for each that "
            "runs. Agents wait as long, and their time-outs go on: the run is slower than it has "
            "to be, and agents may be cut off by their own limits.",
            SERVING,
        ),
        Alert(
            "HarborlightRequestsAborted",
            Severity.WARNING,
            _REPLICA,
            all_of(
                f"{r.aborted} >= {p.lost_least}",
                on(
                    every,
                    f"{r.aborted} >= {p.lost_share:g} "
                    f"* ({r.aborted} + {or_none(r.finished, r.aborted)})",
                ),
                _in_use(r),
            ),
            "Many requests at a replica are given up before they end.",
            f"{{{{ $value }}}} requests to {where} were aborted within {p.lost_window}, "
            f"{p.lost_share:.0%} or more of those that ended: clients run into their time-outs, "
            "or hang up and ask again.",
            SERVING,
        ),
        Alert(
            "HarborlightRequestsRetracted",
            Severity.WARNING,
            _REPLICA,
            all_of(
                f"{r.retracted} >= {p.lost_least}",
                on(
                    every,
                    f"{r.retracted} >= {p.lost_share:g} * {or_none(r.finished, r.retracted)}",
                ),
                _in_use(r),
            ),
            "A replica keeps putting running requests back into its queue.",
            f"{{{{ $value }}}} requests were retracted at {where} within {p.lost_window}, "
            f"{p.lost_share:.0%} or more of those that finished: its KV cache is too small for "
            "what it lets in, and work is done twice.",
            SERVING,
        ),
    )


def _without_trials(r: Recorded) -> Alert:
    return Alert(
        "HarborlightRequestsWithoutTrials",
        Severity.WARNING,
        ("pool",),
        all_of(
            f"{r.at_servers} > 0",
            on("pool", f"{r.trials} == 0"),
            on("pool", str(r.unfinished_of_pool)),
        ),
        "Requests run at a pool although none of its trials does.",
        "{{ $value }} requests run or wait at the pool {{ $labels.pool }} while no trial of its "
        "unfinished runs does: agents that were left behind by a job that ended, or somebody "
        "else's load.",
        SERVING,
    )


def _other_model(r: Recorded) -> Alert:
    match = f"min by (pool, run) ({EVERY.series(c.POOL_MODEL_MATCH)})"
    return Alert(
        "HarborlightPoolModelMismatch",
        Severity.WARNING,
        ("pool", "run"),
        all_of(
            f"{match} == 0",
            on("run", f"{r.active} > 0"),
            on("run", str(r.unfinished)),
        ),
        "A pool serves another model than its run asks for.",
        "The replicas of the pool {{ $labels.pool }} name another model than the run "
        "{{ $labels.run }}: it may be scoring the wrong one.",
        FLEET,
    )


def _impaired(p: Parameters) -> Alert:
    """Carries what is known of a pool over to its runs, for Alertmanager's inhibitions."""
    fired = told(
        "pool",
        p.impaired_window,
        "HarborlightReplica(Down|Frozen|NoTokens)|HarborlightTrialsWithoutRequests",
    )
    return Alert(
        IMPAIRED,
        Severity.NONE,
        ("run", "pool"),
        of_each(EVERY.latest(c.RUN_POOL_INFO), "run, pool", "pool", fired),
        "The servers of a run are, or were until shortly, the subject of a page.",
        "Tells nobody anything: it keeps what follows from that page at the pool "
        "{{ $labels.pool }} and in the run {{ $labels.run }} from being alerted on separately.",
        SERVING,
    )
