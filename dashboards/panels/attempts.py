"""The attempt ledger: how far a run is, how fast, and until when."""

from __future__ import annotations

from dashboards import queries as q
from dashboards.common import NO_REFERENCE, NO_RUN, NO_VERDICT, ONE_RUN as S
from dashboards.grafana import (
    DASHED,
    DATE,
    DURATION,
    NOTHING,
    PERCENTAGE_POINTS,
    Column,
    Format,
    Panel,
    Query,
    of_each,
    share_bar,
    stat,
    table,
    time_series,
)
from dashboards.promql import Matches, shown_as
from dashboards.texts import ATTEMPT_STATES, BLUE, GREEN, NO_END, NOISE, Choice, Text
from harborlight.views import catalogue as c

PER_HOUR = Text("suffix: /h", "suffix: /小时")


def headline() -> list[tuple[int, Panel]]:
    of_target = shown_as("target", q.target(S), "run")
    of_tasks = shown_as("tasks", S.latest(c.RUN_TASKS), "run")
    complete = S.latest(c.RUN_TASKS_COMPLETE)
    return [
        (
            5,
            stat(
                Text("Scored attempts", "已计分尝试"),
                [
                    Query(
                        f"{q.scored(S)} * on (run) group_left (target) {of_target}\n"
                        f"or on (run) {q.scored(S)}",
                        Text("scored, of {{target}} fixed target", "已计分，固定目标 {{target}}"),
                    ),
                    Query(q.share_scored(S), Text("of the target", "占目标")),
                ],
                about=Text(
                    "Attempts with a valid verdict, of the fixed target. A reward of 0 counts; a "
                    "fault without a reward does not, and consumes nothing of the target.",
                    "已有有效 verdict 的尝试数，相对固定目标。reward 为 0 也计数；没有 reward "
                    "的故障不计数，也不占用目标次数。",
                ),
                each={1: {"unit": "percentunit", "decimals": 1}},
                names=True,
                no_value=NO_RUN,
            ),
        ),
        (
            4,
            stat(
                Text("Complete tasks", "完整任务"),
                [
                    Query(
                        f"{complete} * on (run) group_left (tasks) {of_tasks}",
                        Text(
                            "complete, of {{tasks}} tasks",
                            "已完整，共 {{tasks}} 项",
                        ),
                    )
                ],
                about=Text(
                    "Tasks whose every attempt is scored. They come late: Harbor runs the first "
                    "attempt of every task before any second one.",
                    "所有尝试都已计分的任务。它们出现得晚：Harbor 先跑完每个任务的第一次尝试，"
                    "再跑第二次。",
                ),
                names=True,
                no_value=NO_RUN,
            ),
        ),
        (
            5,
            stat(
                Text("Observed rate", "实测速率"),
                [
                    Query(
                        f"3600 * {S.latest(c.RUN_TERMINAL_RATE, window='1h')}",
                        Text("terminal trials, last hour", "终态 trial，最近一小时"),
                    ),
                    Query(
                        f"3600 * {S.latest(c.RUN_SCORED_RATE, window='run')}",
                        Text("scored, whole run", "已计分，整个运行"),
                    ),
                ],
                about=Text(
                    "Trials that ended per hour in the last hour, faults and retries included; "
                    "and attempts scored per hour over all the time in which trials ran.",
                    "最近一小时内每小时结束的 trial 数（含故障与重试），以及在有 trial "
                    "运行的全部时间里每小时计分的尝试数。",
                ),
                form=Format(unit=PER_HOUR, decimals=1),
                names=True,
                sideways=True,
                no_value=NOTHING,
            ),
        ),
        (
            5,
            stat(
                Text("Main-run ETA", "主跑预计剩余"),
                [
                    Query(q.seconds_left(S), Text("time left", "剩余时间")),
                    Query(f"1000 * {q.estimated_end(S)}", Text("estimated end", "预计结束")),
                ],
                about=Text(
                    "By the method to trust at this point of the run, regrades excluded: the "
                    "observed rate early on, a simulation of what is left once its long trials "
                    "decide. The table has both, with the range.",
                    "采用当前阶段更可信的方法，不含 regrade：前期按实测速率，后期由少数长 trial "
                    "决定时改用对剩余部分的模拟。下方表格列出两种方法及范围。",
                ),
                form=Format(
                    unit=DURATION,
                    decimals=1,
                    mappings=NO_END,
                ),
                each={1: {"unit": DATE, "mappings": ()}},
                names=True,
                sideways=True,
                no_value=NO_RUN,
            ),
        ),
        (
            5,
            stat(
                Text("Against the reference", "与参照相比"),
                [
                    Query(
                        q.beyond_noise(S, q.ATTEMPTED_TASKS),
                        Text("all attempted tasks", "全部已尝试任务"),
                    ),
                    Query(q.difference(S), Text("difference", "差值")),
                ],
                about=Text(
                    "On the same tasks as the reference, those with a scored attempt. Within "
                    "noise: the 95 % interval of the difference holds 0. While trials run or "
                    "wait, quick attempts weigh more than slow ones, which no interval knows: "
                    "until then the run is only ahead or behind “so far”.",
                    "与参照在相同任务（已有计分尝试的任务）上比较。在噪声之内：差值的 95% 区间含 "
                    "0。仍有 trial 运行或排队时，快的尝试比慢的更早计入，"
                    "任何区间都不包含这一偏置，因此只说“目前”领先或落后。",
                ),
                form=Format(mappings=NOISE),
                each={1: {"unit": PERCENTAGE_POINTS, "decimals": 1, "mappings": ()}},
                names=True,
                sideways=True,
                no_value=NO_REFERENCE,
            ),
        ),
    ]


def states_bar() -> Panel:
    return share_bar(
        Text("The target, by state of its attempts", "固定目标，按尝试状态划分"),
        S.latest(c.RUN_ATTEMPTS),
        row="run",
        column="state",
        choices=ATTEMPT_STATES,
        about=Text(
            "Every attempt of the target is in exactly one state, so the bar is always as long as "
            "the target. It advances only when a verifier returned a reward that counts.",
            "目标中的每次尝试都恰好处于一个状态，因此整条的长度始终等于目标。只有 verifier "
            "返回有效 reward 时才会推进。",
        ),
        no_value=NO_RUN,
    )


def progress() -> Panel:
    states = of_each(ATTEMPT_STATES, lambda state: q.attempts(S, state))
    return time_series(
        Text("Progress", "进度"),
        [
            *states,
            Query(
                q.target(S),
                Text("Fixed target", "固定目标"),
                "text",
                {
                    "custom.stacking": {"mode": "none", "group": "B"},
                    "custom.fillOpacity": 0,
                    **DASHED,
                },
            ),
        ],
        about=Text(
            "The five states over time. They add up to the target, the dashed line.",
            "五种状态随时间的变化，总和等于目标（虚线）。",
        ),
        form=Format(minimum=0, decimals=0),
        stacked=True,
        fill=70,
        no_value=NO_RUN,
    )


def pace() -> list[tuple[int, Panel]]:
    return [
        (
            10,
            table(
                Text("Estimated end", "预计结束"),
                [
                    Column(
                        Text("Method", "方法"),
                        shows="method",
                        width=120,
                        mappings=(
                            Choice("observed_rate", Text("Observed rate", "按实测速率"), "text"),
                            Choice("simulation", Text("Simulation", "按模拟"), "text"),
                        ),
                    ),
                    Column(
                        Text("Earliest", "最早"),
                        f"1000 * {S.latest(c.RUN_ETA, estimate='p10')}",
                        unit=DATE,
                    ),
                    Column(
                        Text("Estimate", "估计"),
                        "1000 * max by (run, method) "
                        f"({S.latest(c.RUN_ETA, estimate=Matches('point|p50'))})",
                        unit=DATE,
                    ),
                    Column(
                        Text("Latest", "最晚"),
                        f"1000 * {S.latest(c.RUN_ETA, estimate='p90')}",
                        unit=DATE,
                    ),
                    Column(
                        Text("To trust", "更可信"),
                        S.latest(c.RUN_ETA_PREFERRED),
                        mappings=(
                            Choice(1, Text("◀ this one", "◀ 采用"), BLUE),
                            Choice(0, Text("–", "–"), "text"),
                        ),
                        width=100,
                    ),
                ],
                hide=("run",),
                about=Text(
                    "When every attempt of the target will be scored, faulted ones run again. The "
                    "range holds 8 of 10 simulated ends; it is no confidence interval.",
                    "目标中的每次尝试（含需补跑的故障）全部计分的时间。范围包含 10 次模拟中的 8 "
                    "次，并不是置信区间。",
                ),
                no_value=Text(
                    "Too early to tell, or nothing runs", "为时过早，或没有运行中的 trial"
                ),
            ),
        ),
        (
            4,
            stat(
                Text("Started · last verdict", "开始 · 最近 verdict"),
                [
                    Query(f"1000 * {S.latest(c.RUN_STARTED)}", Text("started", "开始于")),
                    Query(q.verdict_age(S), Text("since the last verdict", "距上次 verdict")),
                ],
                about=Text(
                    "When the run's first job was made, and how long ago the newest verdict came.",
                    "该运行第一个作业的创建时间，以及距最近一次 verdict 的时长。",
                ),
                form=Format(unit=DATE),
                each={1: {"unit": DURATION, "decimals": 1}},
                names=True,
                no_value=NOTHING,
                sideways=True,
            ),
        ),
        (
            10,
            time_series(
                Text("Pace", "速率"),
                [
                    Query(
                        f"3600 * {S.latest(c.RUN_TERMINAL_RATE, window='1h')}",
                        Text("Terminal trials, last hour", "终态 trial，最近一小时"),
                        BLUE,
                    ),
                    Query(
                        f"3600 * {S.latest(c.RUN_SCORED_RATE, window='1h')}",
                        Text("Scored attempts, last hour", "已计分尝试，最近一小时"),
                        GREEN,
                    ),
                    Query(
                        f"3600 * {S.latest(c.RUN_SCORED_RATE, window='run')}",
                        Text("Scored attempts, whole run", "已计分尝试，整个运行"),
                        GREEN,
                        DASHED,
                    ),
                ],
                about=Text(
                    "Per hour. A gap between ended and scored trials is faults and retries.",
                    "每小时数量。终态与已计分之间的差距就是故障与重试。",
                ),
                form=Format(unit=PER_HOUR, minimum=0),
                no_value=NO_VERDICT,
            ),
        ),
    ]
