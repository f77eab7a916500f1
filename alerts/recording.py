"""The recording rules: what several alerts ask for, named ``level:metric:operations``."""

from __future__ import annotations

from alerts.parameters import Parameters
from alerts.rule import Group, Recording, all_of, of_each, on, risen, seconds
from dashboards import queries as q
from dashboards.promql import EVERYTHING as EVERY, any_of, sum_by
from harborlight.ledger.jobs import JobState
from harborlight.ledger.ownership import AttemptState, TrialState
from harborlight.views import catalogue as c


class Recorded:
    """Every recording rule by what it is, for a set of parameters."""

    def __init__(self, p: Parameters) -> None:
        self._rules: list[Recording] = []
        self._runs(p)
        self._faults(p)
        self._serving(p)

    def _new(self, level: str, metric: str, operation: str, expr: str) -> Recording:
        rule = Recording(f"{level}:harborlight_{metric}:{operation}", expr)
        self._rules.append(rule)
        return rule

    @property
    def group(self) -> Group:
        """All of them, each after those that it uses."""
        return Group("harborlight-recording", tuple(self._rules))

    def _runs(self, p: Parameters) -> None:
        self.running = self._new(
            "run", "run_attempts_running", "sum", q.attempts(EVERY, AttemptState.RUNNING)
        )
        self.active = self._new("run", "run_attempts_active", "sum", q.active(EVERY))
        """Attempts that run or are going to."""
        self.missing = self._new("run", "run_attempts_missing", "sum", q.missing(EVERY))
        """Attempts without a verdict."""
        info = EVERY.latest(c.RUN_JOB_INFO)
        changed = EVERY.latest(c.JOB_LAST_CHANGE)
        self.last_change = self._new(
            "run",
            "run_last_change_timestamp_seconds",
            "max",
            of_each(info, "run", "harbor_job", changed),
        )
        live = EVERY.latest(c.JOB_STATE, state=JobState.LIVE)
        recent = (
            f"time() - {self.last_change} < {seconds(p.abandoned)}",
            f"time() - {EVERY.latest(c.RUN_LAST_VERDICT)} < {seconds(p.abandoned)}",
            f"{of_each(info, 'run', 'harbor_job', live)} == 1",
        )
        self.unfinished = self._new(
            "run",
            "run_attempts_unfinished",
            "sum",
            all_of(f"{self.missing} > 0", on("run", "\n  or ".join(recent))),
        )
        """The missing attempts of runs on which somebody works; nothing for the others."""
        self.estimated_end = self._new(
            "run", "run_eta_timestamp_seconds", "preferred", q.estimated_end(EVERY)
        )

    def _faults(self, p: Parameters) -> None:
        def ended(window: object) -> str:
            faults = q.faults_in(EVERY, str(window))
            return f"{faults}\n+ {sum_by('run', EVERY.grown(c.RUN_VERDICTS, str(window)))}"

        self.faults = self._new(
            "run_cause",
            "run_faults",
            f"increase{p.burst_window}",
            q.faults_in(EVERY, str(p.burst_window), "run, cause"),
        )
        self.executions, self.executions_stalled, self.executions_blind = (
            self._new("run", "run_executions", f"increase{window}", ended(window))
            for window in (p.burst_window, p.stalled_window, p.stalled_blind_window)
        )
        """Executions that ended, with a verdict or with a fault."""
        self.fault_tasks = self._new(
            "run_cause",
            "run_fault_tasks",
            f"delta{p.spread_window}",
            risen(c.RUN_FAULT_TASKS, p.spread_window),
        )
        window = str(p.retry_window)
        self.retries = self._new(
            "run", "run_retries", f"increase{window}", EVERY.grown(c.RUN_RETRIES, window)
        )
        self.verdicts = self._new(
            "run",
            "run_verdicts",
            f"increase{window}",
            sum_by("run", EVERY.grown(c.RUN_VERDICTS, window)),
        )

    def _serving(self, p: Parameters) -> None:
        running = any_of((TrialState.RUNNING, TrialState.QUEUED))
        self.trials = self._new(
            "pool", "pool_trials_running", "sum", q.pool_trials(EVERY, TrialState.RUNNING)
        )
        self.unfinished_of_pool = self._new(
            "pool",
            "run_attempts_unfinished",
            "sum",
            of_each(EVERY.latest(c.RUN_POOL_INFO), "pool", "run", str(self.unfinished), "sum"),
        )
        self.in_use = self._new(
            "pool",
            "pool_trials_active",
            "sum",
            all_of(
                f"{q.pool_trials(EVERY, running)} > 0", on("pool", str(self.unfinished_of_pool))
            ),
        )
        """Trials that run or are going to, of a pool with an unfinished run; nothing without."""

        def of_replica(metric: c.Metric) -> str:
            return sum_by("pool, replica", EVERY.latest(metric))

        self.requests = self._new(
            "pool_replica", "replica_running_requests", "sum", of_replica(c.REPLICA_RUNNING)
        )
        self.queue = self._new(
            "pool_replica", "replica_queued_requests", "sum", of_replica(c.REPLICA_QUEUED)
        )
        self.at_servers = self._new(
            "pool",
            "replica_requests_active",
            "sum",
            f"sum by (pool) ({self.requests} + {self.queue})",
        )
        """Requests that run or wait, at all replicas of a pool."""
        used, room = EVERY.latest(c.REPLICA_KV_USED), EVERY.latest(c.REPLICA_KV_CAPACITY)
        self.kv_share = self._new(
            "pool_replica",
            "replica_kv_tokens_used_per_capacity",
            "ratio",
            f"max by (pool, replica) ({used} / {room})",
        )

        def counted(metric: c.Metric, window: str, by: str) -> str:
            return sum_by(by, EVERY.grown(metric, window))

        tokens = str(p.token_window)
        self.tokens = self._new(
            "pool_replica",
            "replica_live_tokens",
            f"increase{tokens}",
            counted(c.REPLICA_LIVE_TOKENS, tokens, "pool, replica"),
        )
        lost = str(p.lost_window)
        self.finished, self.aborted, self.retracted = (
            self._new(
                "pool_replica",
                metric.name.removesuffix("_total"),
                f"increase{lost}",
                counted(metric, lost, "pool, replica"),
            )
            for metric in (c.REPLICA_REQUESTS, c.REPLICA_ABORTED, c.REPLICA_RETRACTED)
        )
        silent = str(p.silent_window)
        self.answered = self._new(
            "pool",
            "replica_requests",
            f"increase{silent}",
            counted(c.REPLICA_REQUESTS, silent, "pool"),
        )
        """Requests that all replicas of a pool finished."""
