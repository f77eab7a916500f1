"""All runs, pools and jobs, one row each."""

from __future__ import annotations

from functools import partial

from dashboards import queries as q
from dashboards.common import DATA_AGE, NO_EXPORTER, NO_POOL, NO_REFERENCE, NO_RUN
from dashboards.grafana import (
    DURATION,
    GREEN_AT_ZERO,
    PERCENTAGE_POINTS,
    Column,
    Format,
    Panel,
    Query,
    link_to,
    stat,
    steps,
    table,
    time_series,
)
from dashboards.panels import columns
from dashboards.promql import Matches, Scope, Variable, sum_by
from dashboards.texts import (
    ALL_UP,
    GREEN,
    NO_END,
    NOISE,
    RED,
    RUN_STATES,
    YELLOW,
    Text,
)
from harborlight.ledger.jobs import JobState
from harborlight.ledger.ownership import AttemptState, TrialState
from harborlight.views import catalogue as c
from harborlight.views.catalogue import Metric

S = Scope({"run": Variable("run"), "pool": Variable("pool")})


OR_ZERO = f" or 0 * max({S.series(c.SNAPSHOT_TIMESTAMP)})"
"""Where nothing is found, but somebody looks."""


def at_a_glance() -> list[tuple[int, Panel]]:
    running = f"{q.attempts(S, AttemptState.RUNNING)} > 0"
    live = S.latest(c.JOB_STATE, state=JobState.LIVE)
    lost = S.latest(c.JOB_STATE, state=JobState.INTERRUPTED)
    return [
        (
            5,
            stat(
                Text("Runs", "运行"),
                [
                    Query(f"count({S.latest(c.RUN_TARGET_KNOWN)}){OR_ZERO}", Text("known", "已知")),
                    Query(f"count({running}){OR_ZERO}", Text("running", "运行中")),
                ],
                about=Text("Evaluations in this view.", "本视图中的评测运行。"),
                names=True,
                no_value=NO_EXPORTER,
            ),
        ),
        (
            5,
            stat(
                Text("Jobs", "作业"),
                [
                    Query(f"sum({live}){OR_ZERO}", Text("live", "运行中")),
                    Query(f"sum({lost}){OR_ZERO}", Text("interrupted", "已中断")),
                ],
                about=Text(
                    "Harbor jobs whose process lives, and whose process died without an end.",
                    "进程存活的 Harbor 作业，以及进程意外消失的作业。",
                ),
                each={1: {"thresholds": GREEN_AT_ZERO}},
                names=True,
                no_value=NO_EXPORTER,
            ),
        ),
        (
            5,
            stat(
                Text("Attempts open", "待完成尝试"),
                [
                    Query(
                        f"sum({q.attempts(S, AttemptState.RUNNING)}){OR_ZERO}",
                        Text("running", "运行中"),
                    ),
                    Query(
                        f"sum({S.latest(c.RUN_ATTEMPTS, state=Matches('faulted|unplanned'))})"
                        f"{OR_ZERO}",
                        Text("nobody will run", "无人会跑"),
                    ),
                ],
                about=Text(
                    "Attempts that trials hold now, and those that are faulted or unplanned.",
                    "正由 trial 占用的尝试，以及故障或未安排的尝试。",
                ),
                each={1: {"thresholds": GREEN_AT_ZERO}},
                names=True,
                no_value=NO_EXPORTER,
            ),
        ),
        (
            5,
            stat(
                Text("Replicas not up", "异常副本"),
                f"sum(1 - {S.latest(c.REPLICA_UP)})",
                about=Text(
                    "Model servers that are frozen, unreachable or answer in part.",
                    "卡死、无法连接或只有部分应答的模型服务。",
                ),
                form=Format(
                    mappings=ALL_UP,
                    thresholds=GREEN_AT_ZERO,
                ),
                no_value=NO_POOL,
            ),
        ),
        (4, DATA_AGE),
    ]


def runs() -> Panel:
    percent = partial(Column, unit="percentunit", decimals=1)
    return table(
        Text("Runs", "运行"),
        [
            Column(
                Text("Run", "运行"),
                shows="run",
                width=190,
                links=columns.to_run(),
            ),
            Column(
                Text("State", "状态"), q.run_state(S), mappings=RUN_STATES, cell="text", width=130
            ),
            Column(Text("Scored", "已计分"), q.scored(S), width=80),
            Column(Text("Target", "目标"), q.target(S), width=80, no_value=Text("?", "?")),
            Column(
                Text("Progress", "进度"),
                q.share_scored(S),
                unit="percentunit",
                decimals=0,
                cell="bar",
                minimum=0,
                maximum=1,
                colour=GREEN,
            ),
            percent(
                Text("Ratio", "比例"),
                S.latest(c.RUN_SUCCESS, side="run", scope="attempted"),
            ),
            Column(
                Text("Difference", "差值"),
                q.difference(S),
                unit=PERCENTAGE_POINTS,
                decimals=1,
            ),
            Column(
                Text("What it says", "结论"),
                q.beyond_noise(S, q.ATTEMPTED_TASKS),
                mappings=NOISE,
                cell="text",
                width=170,
                no_value=NO_REFERENCE,
            ),
            Column(
                Text("Open faults", "未解决故障"),
                q.faults_open(S),
                cell="text",
                thresholds=GREEN_AT_ZERO,
                width=105,
                links=[
                    link_to(
                        "faults",
                        Text("Faults", "故障"),
                        run="${__data.fields[0]:percentencode}",
                    )
                ],
            ),
            Column(
                Text("Faults, 1 h", "故障，1 小时"),
                q.faults_in(S, "1h"),
                cell="text",
                thresholds=steps(GREEN, (1, YELLOW), (10, RED)),
                width=105,
            ),
            Column(
                Text("Time left", "剩余时间"),
                q.seconds_left(S),
                unit=DURATION,
                decimals=1,
                mappings=NO_END,
                width=130,
            ),
            Column(
                Text("Last verdict", "最近 verdict"),
                q.verdict_age(S),
                unit=DURATION,
                decimals=0,
                width=105,
            ),
        ],
        about=Text(
            "Ratio and difference are those of the tasks attempted so far, on the same tasks as "
            "the reference; new faults are those of the last hour. Follow a run's name to its "
            "dashboard.",
            "比例与差值针对目前已尝试的任务，与参照任务相同；故障为最近一小时内的。"
            "点击运行名称进入其看板。",
        ),
        no_value=NO_RUN,
        sort=Text("State", "状态"),
        descending=True,
        filters=True,
        hide=("scope",),
    )


def pools() -> Panel:
    def summed(metric: Metric) -> str:
        return sum_by("pool", S.latest(metric))

    return table(
        Text("Serving pools", "模型服务池"),
        [
            Column(
                Text("Pool", "服务池"),
                shows="pool",
                links=columns.to_pool(Text("Open the pool", "打开服务池")),
            ),
            Column(
                Text("Replicas", "副本"), f"count by (pool) ({S.latest(c.REPLICA_UP)})", width=90
            ),
            Column(
                Text("Not up", "异常"),
                sum_by("pool", f"1 - {S.latest(c.REPLICA_UP)}"),
                cell="text",
                thresholds=GREEN_AT_ZERO,
                width=80,
            ),
            Column(Text("Active requests", "活跃请求"), summed(c.REPLICA_RUNNING)),
            Column(Text("Waiting", "等待"), summed(c.REPLICA_QUEUED)),
            columns.kv_use(f"{summed(c.REPLICA_KV_USED)} / {summed(c.REPLICA_KV_CAPACITY)}"),
            Column(Text("Running trials", "运行中 trial"), q.pool_trials(S, TrialState.RUNNING)),
            Column(Text("Retries", "重试"), summed(c.POOL_RETRIES)),
        ],
        about=Text("Follow a pool's name to its replicas.", "点击服务池名称查看其副本。"),
        no_value=NO_POOL,
    )


def jobs() -> Panel:
    def trials(state: str) -> str:
        return sum_by("harbor_job", S.latest(c.JOB_TRIALS, state=state))

    return table(
        Text("Harbor jobs", "Harbor 作业"),
        [
            Column(Text("Job", "作业"), shows="harbor_job"),
            columns.job_state(q.job_state(S)),
            columns.last_change(f"time() - {S.latest(c.JOB_LAST_CHANGE)}"),
            Column(Text("Running", "运行中"), trials(TrialState.RUNNING), width=80),
            Column(Text("Queued", "排队中"), trials(TrialState.QUEUED), width=80),
            Column(Text("Scored", "已计分"), trials(TrialState.SCORED), width=80),
            columns.faulted(trials(TrialState.FAULTED)),
            columns.unreadable_files(S.latest(c.JOB_UNREADABLE)),
        ],
        about=Text(
            "A job's trials are executions; the attempts they count for are in the runs.",
            "作业中的 trial 是执行；它们对应的尝试见运行。",
        ),
        no_value=Text("No job seen", "未见作业"),
        filters=True,
    )


def progress() -> Panel:
    return time_series(
        Text("Progress of the runs", "各运行的进度"),
        [Query(q.share_scored(S), "{{run}}")],
        about=Text("Share of the target that is scored.", "目标中已计分的比例。"),
        form=Format(unit="percentunit", minimum=0, maximum=1),
        no_value=NO_RUN,
    )


def running() -> Panel:
    return time_series(
        Text("Running attempts", "运行中的尝试"),
        [Query(q.attempts(S, AttemptState.RUNNING), "{{run}}")],
        about=Text("Attempts that a live trial holds.", "由存活的 trial 占用的尝试。"),
        form=Format(minimum=0, decimals=0),
        no_value=NO_RUN,
    )
