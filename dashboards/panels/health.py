"""Is a run healthy: the signs that tell a sick run from a slow one."""

from __future__ import annotations

from dashboards import queries as q
from dashboards.common import NO_POOL, NO_RUN, NO_VERDICT, ONE_RUN as S, RUN_DATA_AGE
from dashboards.grafana import GREEN_AT_ZERO, Format, Panel, link_to, stat, steps
from dashboards.texts import (
    ALL_UP,
    GREEN,
    GREY,
    JOB_STATES,
    NONE,
    RED,
    RUN_STATES,
    YELLOW,
    Choice,
    Text,
    coded,
)

IDLE = (Choice(q.IDLE, Text("nothing runs", "无运行中"), GREY),)


def strip() -> list[tuple[int, Panel]]:
    return [
        (
            3,
            stat(
                Text("State", "状态"),
                q.run_state(S),
                about=Text(
                    "Complete: every attempt of the target is scored. Running or waiting: trials "
                    "run or are planned. Stopped short: attempts are missing and nothing is going "
                    "to run them.",
                    "已完成：目标中的每次尝试都已计分。运行中或等待中：有 trial 在运行或已安排。"
                    "未完成即停：还缺尝试，但没有任何作业会去跑它们。",
                ),
                form=Format(mappings=RUN_STATES),
                no_value=NO_RUN,
                colour="background_solid",
            ),
        ),
        (
            3,
            stat(
                Text("Jobs", "作业"),
                q.livest_job(S),
                about=Text(
                    "The liveliest of the run's Harbor jobs. “Cannot be told”: unfinished, and "
                    "its process cannot be seen from the exporter; that counts as live.",
                    "该运行的 Harbor 作业中最活跃的一个。“无法判断”：尚未结束，但 exporter "
                    "看不到它的进程；按仍在运行处理。",
                ),
                form=Format(mappings=coded(JOB_STATES)),
                no_value=NO_RUN,
            ),
        ),
        (
            3,
            stat(
                Text("Replicas", "副本"),
                q.replicas_not_up(S),
                about=Text(
                    "Model servers behind this run that are frozen, unreachable or answer in part.",
                    "为该运行提供服务的副本中，卡死、无法连接或只有部分应答的数量。",
                ),
                form=Format(
                    unit=Text("suffix: not up", "suffix: 个异常"),
                    mappings=ALL_UP,
                    thresholds=GREEN_AT_ZERO,
                ),
                no_value=NO_POOL,
                links=[link_to("serving", Text("Serving pools", "模型服务池"))],
            ),
        ),
        (
            3,
            stat(
                Text("Faults, 1 h", "故障，1 小时"),
                q.faults_in(S, "1h"),
                about=Text(
                    "Executions that ended without a verdict within the last hour, retried ones "
                    "included. Some are normal over a long run; many at once are a sick "
                    "environment or server.",
                    "最近一小时内没有得到 verdict 就结束的执行，包括已自动重试的。"
                    "长时间运行中偶有故障属正常；短时间内大量出现说明环境或服务有问题。",
                ),
                form=Format(
                    mappings=NONE,
                    thresholds=steps(GREEN, (1, YELLOW), (10, RED)),
                ),
                no_value=NO_RUN,
                links=[link_to("faults", Text("Faults", "故障"), run="${run:percentencode}")],
            ),
        ),
        (
            3,
            stat(
                Text("Open faults", "未解决故障"),
                q.faults_open(S),
                about=Text(
                    "Faults whose attempt nobody scores, runs or plans: they stay until somebody "
                    "replays them. `harborlight replay-plan` prints how.",
                    "其尝试无人计分、运行或安排的故障：在有人补跑之前一直保留。`harborlight "
                    "replay-plan` 会给出补跑命令。",
                ),
                form=Format(
                    mappings=NONE,
                    thresholds=GREEN_AT_ZERO,
                ),
                no_value=NO_RUN,
                links=[link_to("faults", Text("Faults", "故障"), run="${run:percentencode}")],
            ),
        ),
        (
            3,
            stat(
                Text("Overdue", "应到未到"),
                q.verdicts_due(S),
                about=Text(
                    "How many verdicts the run's own pace would have brought since the last one. "
                    "Up to 3 is chance; from 7 on a silence this long happens by chance once in a "
                    "thousand times. Before the first verdict there is no pace to judge by.",
                    "按该运行自己的速度，自上次 verdict 以来本应得到几个 verdict。3 以内属偶然；"
                    "达到 7 时，偶然出现这样长的沉默只有千分之一的可能。没有 trial 运行时为 0；"
                    "首个 verdict 之前没有可参照的速度。",
                ),
                form=Format(
                    unit=Text("suffix: verdicts", "suffix: 个 verdict"),
                    decimals=1,
                    mappings=IDLE,
                    thresholds=steps(GREEN, (q.LATE, YELLOW), (q.OVERDUE, RED)),
                ),
                no_value=NO_VERDICT,
            ),
        ),
        (
            3,
            stat(
                Text("Slowest trial", "最慢的 trial"),
                q.slowest_task(S),
                about=Text(
                    "The running trial that has taken longest, as a multiple of what is usual for "
                    "its task, which is known from its first scored trial on. A slow run has long "
                    "tasks; a sick one has trials far beyond usual.",
                    "正在运行的 trial 中耗时最久者，相对其任务通常耗时的倍数。"
                    "任务首次计分后才有通常耗时。慢的运行是任务本身长；有问题的运行是 trial "
                    "远超通常耗时。",
                ),
                form=Format(
                    mappings=IDLE,
                    unit="suffix: ×",
                    decimals=1,
                    thresholds=steps(GREEN, (3, YELLOW), (6, RED)),
                ),
                no_value=Text("not known yet", "尚不可知"),
            ),
        ),
        (3, RUN_DATA_AGE),
    ]
