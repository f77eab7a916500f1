"""Around one run: the replicas that serve it, its jobs, and what its numbers mean."""

from __future__ import annotations

from dashboards import queries as q
from dashboards.common import NO_POOL, NO_RUN, ONE_RUN as S, published_references
from dashboards.grafana import (
    DATE,
    Column,
    Panel,
    Query,
    stat,
    table,
    text,
)
from dashboards.panels import columns
from dashboards.promql import Matches, Scope, sum_by
from dashboards.texts import REPLICA_STATES, Text, coded
from harborlight.ledger.ownership import TrialState
from harborlight.views import catalogue as c


def serving() -> list[tuple[int, Panel]]:
    pools = Scope({})
    of_run = f"and on (pool) {S.latest(c.RUN_POOL_INFO)}"

    def each(expr: str) -> str:
        return f"({expr}) {of_run}"

    def summed(metric: c.Metric) -> str:
        return sum_by("pool, replica", pools.latest(metric))

    def trials(state: str | Matches) -> str:
        return q.of_pools(S, q.pool_trials(pools, state))

    used = summed(c.REPLICA_KV_USED)
    return [
        (
            6,
            stat(
                Text("Trials of its pools", "服务池中的 trial"),
                [
                    Query(trials(q.TERMINAL), Text("Terminal", "终态")),
                    Query(trials(TrialState.RUNNING), Text("Running", "运行中")),
                    Query(trials(TrialState.QUEUED), Text("Pending", "等待")),
                    Query(
                        q.of_pools(S, sum_by("pool", pools.latest(c.POOL_RETRIES))),
                        Text("Retries", "重试"),
                    ),
                ],
                about=Text(
                    "All jobs that use the pools of this run, other runs' included. Terminal "
                    "counts faults, too: it is not the scored attempts.",
                    "使用该运行服务池的全部作业，含其他运行。终态包含故障，因此不等于已计分尝试。",
                ),
                names=True,
                no_value=NO_POOL,
            ),
        ),
        (
            18,
            table(
                Text("Replicas", "副本"),
                [
                    Column(
                        Text("Pool", "服务池"),
                        shows="pool",
                        links=columns.to_pool(Text("Serving pools", "模型服务池")),
                    ),
                    Column(Text("Replica", "副本"), shows="replica"),
                    Column(
                        Text("State", "状态"),
                        each(q.replica_state(pools)),
                        mappings=coded(REPLICA_STATES),
                        cell="text",
                        width=130,
                    ),
                    Column(Text("Active", "活跃请求"), each(summed(c.REPLICA_RUNNING))),
                    Column(Text("At most", "上限"), each(summed(c.REPLICA_MAX_RUNNING))),
                    Column(Text("Waiting", "等待"), each(summed(c.REPLICA_QUEUED))),
                    Column(Text("KV tokens", "KV token"), each(used)),
                    columns.kv_use(each(f"{used} / {summed(c.REPLICA_KV_CAPACITY)}")),
                ],
                about=Text(
                    "The model servers behind this run. A dash: it does not answer, or does not "
                    "say.",
                    "为该运行提供服务的副本。短横线：没有应答，或未提供该数值。",
                ),
                no_value=Text("No pool of this run seen", "未见该运行的服务池"),
            ),
        ),
    ]


def jobs() -> Panel:
    every = Scope({})
    of_run = f"and on (harbor_job) {S.latest(c.RUN_JOB_INFO)}"

    def each(expr: str) -> str:
        return f"({expr}) {of_run}"

    def trials(state: str | Matches) -> str:
        return each(sum_by("harbor_job", every.latest(c.JOB_TRIALS, state=state)))

    return table(
        Text("Harbor jobs of the run", "该运行的 Harbor 作业"),
        [
            Column(Text("Job", "作业"), shows="harbor_job"),
            columns.job_state(each(q.job_state(every))),
            Column(
                Text("Started", "开始"),
                each(f"1000 * {every.latest(c.JOB_STARTED)}"),
                unit=DATE,
            ),
            columns.last_change(each(f"time() - {every.latest(c.JOB_LAST_CHANGE)}")),
            Column(Text("Scored", "已计分"), trials(TrialState.SCORED), width=80),
            Column(Text("Running", "运行中"), trials(TrialState.RUNNING), width=80),
            Column(Text("Queued", "排队中"), trials(TrialState.QUEUED), width=80),
            columns.faulted(trials(TrialState.FAULTED)),
            columns.unreadable_files(each(every.latest(c.JOB_UNREADABLE))),
        ],
        about=Text(
            "Trials of a job are executions: faults that were retried or resumed stay in it, so "
            "they are not the attempts of the run.",
            "作业中的 trial 是执行：被重试或续跑的故障仍留在其中，因此与运行的尝试数不同。",
        ),
        no_value=NO_RUN,
    )


def notes() -> list[tuple[int, Panel]]:
    return [
        (
            12,
            text(
                Text("Why this is not Harbor's own count", "为什么不直接使用 Harbor 的终态数量"),
                Text(
                    "A trial that Harbor calls finished may have no verdict: a container that did "
                    "not start, a model API that refused, a verifier that ran out of time. None of "
                    "these says anything about the model, so none advances the bar; each stays in "
                    "the issue ledger and is replayed from the narrowest point that is still "
                    "there. A verdict of 0 is a verdict, and counts.\n\n"
                    "The target is fixed: tasks that a run leaves out are taken from it by the "
                    "configuration, with the reason, never by themselves.",
                    "Harbor 标为结束的 trial 可能没有 verdict：容器未能启动、模型 API 拒绝请求、"
                    "verifier 超时。这些都不反映模型本身，因此不推进进度；它们留在问题台账中，"
                    "并从仍然可用的最窄边界补跑。reward 为 0 的 verdict 也是 verdict，照样计数。"
                    "\n\n"
                    "分母固定：运行不包含的任务由配置连同理由移出，绝不会自行减少。",
                ),
                about=Text("What counts, and why.", "计数规则及其理由。"),
            ),
        ),
        (
            12,
            text(
                Text("What this view leaves out", "本视图不包含什么"),
                Text(
                    "Prompts, trajectories, messages and tracebacks, addresses and paths, "
                    "credentials, the content of requests and the ids of trials: none of them is "
                    "read into the metrics behind this page.\n\n"
                    "Published results of the references that ship:\n\n" + published_references(),
                    "prompt、轨迹、消息与 traceback、地址与路径、凭据、请求内容以及 trial id："
                    "这些都不会进入本页背后的指标。\n\n随附参照的公开结果：\n\n"
                    + published_references().zh,
                ),
                about=Text("What is never shown here.", "此处永不显示的内容。"),
            ),
        ),
    ]
