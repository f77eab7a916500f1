"""The one list of metrics: the exposition shows no other, the README's table is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

PREFIX: Final = "harborlight_"


class Kind(StrEnum):
    """Prometheus' metric types, as far as they are used here."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Metric:
    """One family. ``name`` is without the prefix, as in PromQL (``_total``, ``_info`` included)."""

    group: str
    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str

    @property
    def full_name(self) -> str:
        return PREFIX + self.name


CATALOGUE: Final[dict[str, Metric]] = {}
"""Every metric by its name without the prefix, in the order of the page."""

GROUPS: Final = {
    "run": "Runs",
    "correctness": "Correctness and comparison",
    "task": "Tasks (off with `--no-collector.task`)",
    "job": "Harbor jobs",
    "pool": "Serving pools and their replicas",
    "pace": "Pace and estimated end",
    "self": "The exporter itself",
}


def _define(group: str, kind: Kind, name: str, labels: str, text: str) -> Metric:
    metric = Metric(group, name, kind, tuple(labels.split()), text)
    assert name not in CATALOGUE and group in GROUPS
    CATALOGUE[name] = metric
    return metric


G, C, H, I = Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM, Kind.INFO  # noqa: E741 - a legend

RUN_INFO = _define(
    "run",
    I,
    "run_info",
    "run title agent agent_version model dataset",
    "A run's title, agent, model and dataset; always 1.",
)
RUN_JOB_INFO = _define(
    "run", I, "run_job_info", "run harbor_job", "A job that serves the run; always 1."
)
RUN_POOL_INFO = _define(
    "run", I, "run_pool_info", "run pool", "A pool whose jobs serve the run; always 1."
)
RUN_TARGET_KNOWN = _define(
    "run",
    G,
    "run_target_known",
    "run",
    "Whether the run's target is known (1) or its jobs and configuration do not tell it (0).",
)
RUN_TASKS = _define("run", G, "run_tasks", "run", "Tasks of the run, excluded ones not counted.")
RUN_TASKS_COMPLETE = _define(
    "run", G, "run_tasks_complete", "run", "Tasks whose every attempt is scored."
)
RUN_ATTEMPTS_TARGET = _define(
    "run",
    G,
    "run_attempts_target",
    "run",
    "Attempts that the run is to score: the fixed denominator. Absent while it is not known.",
)
RUN_ATTEMPTS = _define(
    "run",
    G,
    "run_attempts",
    "run state",
    "Attempts by state; the states add up to the target.",
)
RUN_ATTEMPTS_RUNNING = _define(
    "run",
    G,
    "run_attempts_running",
    "run phase",
    "Running attempts by what they do; `unknown` where neither recorder nor Harbor server tells.",
)
RUN_ATTEMPTS_PASSED = _define(
    "run", G, "run_attempts_passed", "run", "Scored attempts whose reward is a success."
)
RUN_ATTEMPTS_SURPLUS = _define(
    "run",
    G,
    "run_attempts_surplus",
    "run",
    "Scored lineages beyond their task's attempts; they own none.",
)
RUN_STALE_CONTENT = _define(
    "run",
    G,
    "run_attempts_stale_content",
    "run",
    "Scored lineages whose verdict was given on another version of the task; they own no attempt.",
)
RUN_WITHOUT_KEY = _define(
    "run",
    G,
    "run_attempts_scored_without_key",
    "run",
    "Scored attempts whose rewards lack the run's reward key; they count as not passed.",
)
RUN_SCORED_WITH_EXCEPTION = _define(
    "run",
    G,
    "run_attempts_scored_with_exception",
    "run cause",
    "Scored attempts that carry an exception which Harbor holds compatible with a valid reward.",
)
RUN_SUPERSEDED = _define(
    "run", G, "run_verdicts_superseded", "run", "Lineages whose verdict a regrade replaced."
)
RUN_VERDICTS = _define(
    "run",
    C,
    "run_verdicts_total",
    "run result",
    "Valid verdicts recorded, once an execution, those of regrades and retried trials included; "
    "`unknown` as below.",
)
RUN_DISCARDED = _define(
    "run",
    C,
    "run_verdicts_discarded_total",
    "run result",
    "Valid verdicts that Harbor deleted by retrying the trial; `unknown` where only its log tells, "
    "by an exception that would have left a reward valid.",
)
RUN_FAULTS_TOTAL = _define(
    "run",
    C,
    "run_faults_total",
    "run phase cause",
    "Executions that ended without a verdict, by phase and cause as known when they were settled.",
)
RUN_FAULTS_BY_TYPE = _define(
    "run",
    C,
    "run_faults_by_type_total",
    "run exception_type",
    "The same faults by the type of their first exception; at most 40 types, then `other`.",
)
RUN_FAULTS_OPEN = _define(
    "run",
    G,
    "run_faults_open",
    "run cause boundary",
    "Faults whose attempt nothing scores, runs or plans, by the point from where to replay them.",
)
RUN_FAULTS_BY_RESOLUTION = _define(
    "run",
    G,
    "run_faults_by_resolution",
    "run resolution",
    "Every fault known, by what became of it.",
)
RUN_FAULT_TASKS = _define(
    "run",
    G,
    "run_fault_tasks",
    "run cause",
    "Tasks that a fault of this cause ever hit, whatever became of it.",
)
RUN_RETRIES = _define(
    "run",
    C,
    "run_retries_total",
    "run",
    "Retries that Harbor says it started. Absent for jobs that serve several runs at once.",
)
RUN_PHASE_DURATION = _define(
    "run",
    H,
    "run_trial_phase_duration_seconds",
    "run phase",
    "How long the phases of finished executions took.",
)
RUN_TOKENS = _define(
    "run",
    C,
    "run_tokens_total",
    "run kind",
    "Tokens of finished executions; `input` is without the cached ones. A regrade's copy of its "
    "source's usage is not counted again.",
)
RUN_COST = _define(
    "run", C, "run_cost_usd_total", "run", "Cost of finished executions in US dollars, likewise."
)
RUN_STARTED = _define(
    "run", G, "run_started_timestamp_seconds", "run", "When the run's first job was made."
)
RUN_LAST_VERDICT = _define(
    "run",
    G,
    "run_last_verdict_timestamp_seconds",
    "run",
    "When the newest of the scored lineages got its first valid verdict.",
)

RUN_SUCCESS = _define(
    "correctness",
    G,
    "run_success_ratio",
    "run side scope",
    "Mean of the tasks' success ratios. `attempted` and `complete`: of tasks with one or all of "
    "their attempts scored, that the reference has, too; `full`: of all tasks of the side, the "
    "run's once each has a scored attempt.",
)
RUN_SUCCESS_CI = _define(
    "correctness",
    G,
    "run_success_ratio_ci",
    "run side scope interval bound",
    "Bounds of its 95 % interval. `fixed_task`: the luck of the attempts (1.96 standard errors, as "
    "published); `task_sampling`: that of the choice of tasks, too; `wilson`: of a single task. "
    "Cut off at 0 and 1.",
)
RUN_HARD_BOUND = _define(
    "correctness",
    G,
    "run_success_ratio_hard_bound",
    "run bound",
    "What the ratio of passed attempts to the target cannot fall below or rise above any more.",
)
RUN_FAULTS_AS_FAILURES = _define(
    "correctness",
    G,
    "run_success_ratio_faults_as_failures",
    "run",
    "The run's ratio with faulted attempts counted as failed, which is the leaderboard's rule.",
)
RUN_DIFFERENCE = _define(
    "correctness",
    G,
    "run_success_difference",
    "run scope",
    "Mean difference of the tasks' success ratios, the run's minus the reference's.",
)
RUN_DIFFERENCE_CI = _define(
    "correctness",
    G,
    "run_success_difference_ci",
    "run scope interval bound",
    "Bounds of its 95 % interval, of both sides' attempts or of the paired tasks. Cut off at -1 "
    "and 1.",
)
RUN_INTERVAL_UNDEFINED = _define(
    "correctness",
    G,
    "run_interval_undefined",
    "run side scope interval reason",
    "1 for an interval that is absent, with the reason: a task with a single attempt, or a single "
    "task. The side `difference` is that of the difference.",
)
RUN_PROJECTED = _define(
    "correctness",
    G,
    "run_projected_success_ratio",
    "run",
    "The reference's ratio on the run's tasks plus the difference on those attempted so far, cut "
    "off at 0 and 1.",
)
RUN_MATCHED_TASKS = _define(
    "correctness",
    G,
    "run_matched_tasks",
    "run scope",
    "Tasks that the ratios of this scope are of.",
)
RUN_PASS_AT_K = _define(
    "correctness",
    G,
    "run_pass_at_k",
    "run k",
    "Mean chance of a task that one of k attempts passes, of the tasks with k scored attempts.",
)
RUN_PASS_AT_K_TASKS = _define(
    "correctness", G, "run_pass_at_k_tasks", "run k", "Tasks with k scored attempts or more."
)
RUN_REWARD_MEAN = _define(
    "correctness",
    G,
    "run_reward_mean",
    "run",
    "Mean of the tasks' mean rewards. Absent where every reward is 0 or 1.",
)
RUN_REFERENCE_INFO = _define(
    "correctness",
    I,
    "run_reference_info",
    "run reference title",
    "The reference that the run is compared with; always 1.",
)
RUN_REFERENCE_TASKS = _define(
    "correctness",
    G,
    "run_reference_tasks",
    "run match",
    "Tasks by who has them: `both`, `run` only or `reference` only.",
)
RUN_REFERENCE_ATTEMPTS = _define(
    "correctness",
    G,
    "run_reference_attempts",
    "run result",
    "The reference's attempts at the tasks that both have; `error`: without a verdict, which it "
    "counts as failed.",
)
RUN_COMPARABILITY = _define(
    "correctness",
    G,
    "run_comparability",
    "run check",
    "Whether a condition for comparing holds (1) or not (0); `harborlight status` says why not.",
)

TASK_ATTEMPTS_TARGET = _define(
    "task",
    G,
    "task_attempts_target",
    "run task",
    "Attempts that the task is to get. Absent while it is not known.",
)
TASK_ATTEMPTS = _define(
    "task",
    G,
    "task_attempts",
    "run task state",
    "The task's attempts by state; the states add up to its target.",
)
TASK_ATTEMPTS_PASSED = _define(
    "task", G, "task_attempts_passed", "run task", "Scored attempts whose reward is a success."
)
TASK_USUAL_DURATION = _define(
    "task",
    G,
    "task_usual_duration_seconds",
    "run task",
    "Median wall time of the task's scored trials.",
)
TASK_OLDEST_START = _define(
    "task",
    G,
    "task_oldest_running_start_timestamp_seconds",
    "run task",
    "When the task's longest running trial started. Absent while none runs.",
)

TASK_REFERENCE_ATTEMPTS = _define(
    "task",
    G,
    "task_reference_attempts",
    "run task",
    "The reference's attempts at the task.",
)
TASK_REFERENCE_PASSED = _define(
    "task",
    G,
    "task_reference_passed",
    "run task",
    "Those of the reference's attempts at the task that passed.",
)
TASK_DIFFERENCE = _define(
    "task",
    G,
    "task_success_difference",
    "run task",
    "The task's success ratio minus the reference's, once its every attempt is scored.",
)

JOB_INFO = _define(
    "job",
    I,
    "job_info",
    "harbor_job harbor_version",
    "A job that was read, with the Harbor version in its lock; always 1.",
)
JOB_STATE = _define(
    "job",
    G,
    "job_state",
    "harbor_job state",
    "1 for the job's state, 0 for the others. `unknown`: unfinished, and whether its process "
    "lives cannot be told from here.",
)
JOB_TRIALS = _define(
    "job",
    G,
    "job_trials",
    "harbor_job state",
    "The job's trials by state; one that a resume replaced stays as it ended.",
)
JOB_STARTED = _define(
    "job", G, "job_started_timestamp_seconds", "harbor_job", "When the job was made."
)
JOB_FINISHED = _define(
    "job", G, "job_finished_timestamp_seconds", "harbor_job", "When the job finished, if it did."
)
JOB_LAST_CHANGE = _define(
    "job",
    G,
    "job_last_change_timestamp_seconds",
    "harbor_job",
    "Newest modification time of the files that Harbor writes while it works.",
)
JOB_UNREADABLE = _define(
    "job",
    G,
    "job_unreadable_files",
    "harbor_job",
    "Files of the job that cannot be read and are not just being written; the log names them.",
)

POOL_INFO = _define("pool", I, "pool_info", "pool title", "A pool's title; always 1.")
POOL_TRIALS = _define(
    "pool",
    G,
    "pool_trials",
    "pool state",
    "Trials of the jobs that use the pool, by state; regrades, which ask no model, are left out.",
)
POOL_RETRIES = _define(
    "pool",
    C,
    "pool_retries_total",
    "pool",
    "Retries that Harbor says it started in the jobs that use the pool.",
)
POOL_MODEL_MATCH = _define(
    "pool",
    G,
    "pool_model_match",
    "pool run",
    "Whether the replicas serve (1) or do not serve (0) the model of a run that uses the pool.",
)
REPLICA_INFO = _define(
    "pool",
    I,
    "replica_info",
    "pool replica version served_model tp pp dp",
    "What a replica said last about itself; empty labels are not known. Always 1.",
)
REPLICA_UP = _define(
    "pool", G, "replica_up", "pool replica", "Whether the replica's state is `up`."
)
REPLICA_STATE = _define(
    "pool",
    G,
    "replica_state",
    "pool replica state",
    "1 for the state at the last look, 0 for the others. `frozen`: it answers, but its scheduler "
    "shows no sign of life.",
)
REPLICA_LAST_COMPLETE = _define(
    "pool",
    G,
    "replica_last_complete_timestamp_seconds",
    "pool replica",
    "When all servers of the replica last answered in full.",
)
REPLICA_REQUESTS_KNOWN = _define(
    "pool",
    G,
    "replica_requests_known",
    "pool replica",
    "Whether running and queued requests are known (1) or left out, because they cannot be (0).",
)
REPLICA_KV_KNOWN = _define(
    "pool",
    G,
    "replica_kv_tokens_known",
    "pool replica",
    "Whether used tokens and capacity of the KV cache are known (1) or left out (0).",
)
REPLICA_RUNNING = _define(
    "pool",
    G,
    "replica_running_requests",
    "pool replica role",
    "Requests that the replica works on, each counted once whatever the parallelism.",
)
REPLICA_QUEUED = _define(
    "pool", G, "replica_queued_requests", "pool replica role", "Requests that wait for a place."
)
REPLICA_MAX_RUNNING = _define(
    "pool",
    G,
    "replica_max_running_requests",
    "pool replica role",
    "The most requests that it works on at once.",
)
REPLICA_KV_USED = _define(
    "pool",
    G,
    "replica_kv_tokens_used",
    "pool replica role",
    "Tokens in the KV cache that running requests need, data-parallel ranks added up.",
)
REPLICA_KV_CAPACITY = _define(
    "pool",
    G,
    "replica_kv_tokens_capacity",
    "pool replica role",
    "Tokens that the KV cache has room for, data-parallel ranks added up.",
)
_SINCE: Final = " Goes on over restarts of the server."
REPLICA_REQUESTS = _define(
    "pool", C, "replica_requests_total", "pool replica role", "Finished requests." + _SINCE
)
REPLICA_ABORTED = _define(
    "pool",
    C,
    "replica_aborted_requests_total",
    "pool replica role",
    "Signals to abort a request; no rate of errors." + _SINCE,
)
REPLICA_RETRACTED = _define(
    "pool",
    C,
    "replica_retracted_requests_total",
    "pool replica role",
    "Requests put back into the queue because the KV cache was full." + _SINCE,
)
REPLICA_PROMPT_TOKENS = _define(
    "pool",
    C,
    "replica_prompt_tokens_total",
    "pool replica role",
    "Prompt tokens of finished requests, cached ones included." + _SINCE,
)
REPLICA_CACHED_TOKENS = _define(
    "pool",
    C,
    "replica_cached_tokens_total",
    "pool replica role",
    "Prompt tokens of finished requests that came from the prefix cache." + _SINCE,
)
REPLICA_GENERATION_TOKENS = _define(
    "pool",
    C,
    "replica_generation_tokens_total",
    "pool replica role",
    "Generated tokens of finished requests." + _SINCE,
)
REPLICA_LIVE_TOKENS = _define(
    "pool",
    C,
    "replica_live_tokens_total",
    "pool replica role kind",
    "Tokens counted while requests run, of aborted ones too: `prefill` computed, `cached` found "
    "in the prefix cache, `decode` generated (SGLang 0.5.7 on)." + _SINCE,
)
REPLICA_TTFT = _define(
    "pool",
    H,
    "replica_time_to_first_token_seconds",
    "pool replica role",
    "From a request's arrival to its first token." + _SINCE,
)
REPLICA_ITL = _define(
    "pool",
    H,
    "replica_inter_token_latency_seconds",
    "pool replica role",
    "From one token to the next." + _SINCE,
)
REPLICA_LATENCY = _define(
    "pool",
    H,
    "replica_request_latency_seconds",
    "pool replica role",
    "From a request's arrival to its end." + _SINCE,
)
REPLICA_QUEUE_TIME = _define(
    "pool",
    H,
    "replica_queue_time_seconds",
    "pool replica role",
    "How long requests waited for a place." + _SINCE,
)

RUN_TERMINAL_RATE = _define(
    "pace",
    G,
    "run_terminal_trials_per_second",
    "run window",
    "Trials that ended, faults and retried ones included, regrades not: in the last hour (or since "
    "the start), or in all the time in which trials of the run ran.",
)
RUN_SCORED_RATE = _define(
    "pace",
    G,
    "run_scored_attempts_per_second",
    "run window",
    "Attempts that got the verdict of their own trial, likewise; a regrade's verdict is left out.",
)
RUN_ETA = _define(
    "pace",
    G,
    "run_eta_timestamp_seconds",
    "run method estimate",
    "When every attempt of the target will be scored, faulted ones run again. `observed_rate`: by "
    "the scored attempts' rate over the run; `simulation`: quantiles of simulated ends, which are "
    "no confidence interval. Absent where nothing runs or is queued.",
)
RUN_ETA_PREFERRED = _define(
    "pace",
    G,
    "run_eta_preferred",
    "run method",
    "1 for the method to trust at this point of the run, 0 for the other.",
)


BUILD_INFO = _define(
    "self",
    I,
    "build_info",
    "version harbor_version python_version",
    "Versions of harborlight, of the Harbor library whose error policy it applies, and of Python.",
)
COLLECTOR_SUCCESS = _define(
    "self", G, "collector_success", "collector", "Whether the collector's last look succeeded."
)
COLLECTOR_DURATION = _define(
    "self", G, "collector_duration_seconds", "collector", "How long the last look took."
)
COLLECTOR_LAST_SUCCESS = _define(
    "self",
    G,
    "collector_last_success_timestamp_seconds",
    "collector",
    "When a look last succeeded.",
)
SNAPSHOT_TIMESTAMP = _define(
    "self", G, "snapshot_timestamp_seconds", "", "When the values on this page were put together."
)
LEDGER_TRIALS = _define("self", G, "ledger_trials", "", "Executions in the ledger.")
CONFIG_RELOAD_SUCCESS = _define(
    "self",
    G,
    "config_last_reload_successful",
    "",
    "Whether the last configuration reload was taken over; on 0 the one before goes on.",
)
CONFIG_RELOAD_TIMESTAMP = _define(
    "self",
    G,
    "config_last_reload_success_timestamp_seconds",
    "",
    "When configuration was last taken over.",
)


def markdown_table() -> str:
    """The catalogue as the README shows it."""
    lines = []
    for group, title in GROUPS.items():
        lines += [f"**{title}**", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
        for metric in CATALOGUE.values():
            if metric.group == group:
                labels = ", ".join(f"`{label}`" for label in metric.labels)
                lines.append(f"| `{metric.full_name}` | {metric.kind} | {labels} | {metric.help} |")
        lines.append("")
    return "\n".join(lines)
