"""Verified correctness: the run, its reference, and what is noise."""

from __future__ import annotations

from functools import partial

from dashboards import queries as q
from dashboards.common import NO_REFERENCE, NO_RUN, NO_VERDICT, ONE_RUN as S
from dashboards.grafana import (
    DASHED,
    NOTHING,
    PERCENTAGE_POINTS,
    Column,
    Format,
    Panel,
    Query,
    stat,
    table,
    time_series,
)
from dashboards.promql import Matches, or_blank, shown_as
from dashboards.texts import BLUE, GREEN, NOISE, ORANGE, Choice, Text
from harborlight.views import catalogue as c

SCOPES = (
    Choice("attempted", Text("All attempted tasks", "全部已尝试任务"), "text"),
    Choice("complete", Text("Complete tasks", "完整任务"), "text"),
    Choice("full", Text("All its tasks", "其全部任务"), "text"),
)


MATCHED = Matches("attempted|complete")
"""The scopes in which both sides are of the same tasks."""


SIDES = (
    Choice("run", Text("This run", "本运行"), BLUE),
    Choice("reference", Text("Reference", "参照"), ORANGE),
)


HOLDS = (
    Choice(1, Text("✓ yes", "✓ 是"), GREEN),
    Choice(0, Text("✗ no", "✗ 否"), ORANGE),
)
"""A caveat, not a fault."""

CHECKS = tuple(
    Choice(value, words, "text")
    for value, words in (
        ("one_content", Text("Every task in one version", "每个任务只有一个内容版本")),
        ("one_model", Text("One model", "只有一个模型")),
        ("one_agent_version", Text("One agent version", "只有一个 agent 版本")),
        ("default_timeouts", Text("Time limits not overridden", "未改写超时")),
        ("default_resources", Text("Resources not overridden", "未改写资源")),
        ("same_tasks", Text("The same tasks as the reference", "与参照任务相同")),
        ("same_agent", Text("The same agent as the reference", "与参照 agent 相同")),
        ("same_model", Text("The same model as the reference", "与参照模型相同")),
        ("same_error_rule", Text("The same rule for errors", "错误计分规则相同")),
        ("enough_attempts", Text("As many attempts a task", "每任务尝试数足够")),
    )
)


def ratio(side: str, scope: str) -> str:
    return S.latest(c.RUN_SUCCESS, side=side, scope=scope)


def headline() -> list[tuple[int, Panel]]:
    passed = S.latest(c.RUN_ATTEMPTS_PASSED)
    k_of_n = (
        f"({passed} / ({q.scored(S)} > 0)) * on (run) group_left (k, n) (\n"
        f"  {shown_as('k', passed, 'run')}\n"
        f"  * on (run) group_left (n) {shown_as('n', q.scored(S), 'run')})"
    )
    bound = {which: S.latest(c.RUN_HARD_BOUND, bound=which) for which in ("lower", "upper")}
    percent = Format(unit="percentunit", decimals=2)
    return [
        (
            6,
            stat(
                Text("Current scored attempts", "当前已计分尝试"),
                [Query(k_of_n, Text("{{k}} of {{n}} passed", "{{n}} 次中通过 {{k}} 次"))],
                about=Text(
                    "Passed over scored, of all attempts so far. Biased until the run is "
                    "complete: quick tasks are scored first and tend to be easy. Compare by the "
                    "matched numbers beside it.",
                    "截至目前所有尝试中通过数与已计分数之比。运行完成之前有偏置：快的任务先计分，"
                    "往往也更容易。比较请看旁边的同任务数字。",
                ),
                form=percent,
                names=True,
                no_value=NOTHING,
            ),
        ),
        (
            7,
            stat(
                Text("Completed-task matched", "完整任务同项比较"),
                [
                    Query(ratio("run", "complete"), Text("this run", "本运行"), BLUE),
                    Query(ratio("reference", "complete"), Text("reference", "参照"), ORANGE),
                ],
                about=Text(
                    "Only tasks whose every attempt is scored, the same ones on both sides. At "
                    "the end of the run this is the final comparison.",
                    "只含所有尝试都已计分的任务，两侧任务相同。运行结束时即为最终比较。",
                ),
                form=percent,
                names=True,
                no_value=Text("No complete task seen", "未见完整任务"),
            ),
        ),
        (
            6,
            stat(
                Text("Must end between", "最终必在区间"),
                [
                    Query(bound["lower"], Text("at least", "不低于")),
                    Query(bound["upper"], Text("at most", "不高于")),
                ],
                about=Text(
                    "Passed over target if every attempt that is missing failed, or passed. No "
                    "statistics: the final ratio cannot lie outside.",
                    "若其余尝试全部失败或全部通过，通过数与目标之比。不含统计推断："
                    "最终比例不可能落在此区间之外。",
                ),
                form=percent,
                names=True,
                no_value=NOTHING,
            ),
        ),
        (
            5,
            stat(
                Text("Heading for", "预计最终"),
                [
                    Query(S.latest(c.RUN_PROJECTED), Text("projected", "推算")),
                    Query(
                        S.latest(c.RUN_FAULTS_AS_FAILURES),
                        Text("faults as failures", "故障按失败计"),
                    ),
                ],
                about=Text(
                    "The reference's ratio on the run's tasks plus the difference so far; and the "
                    "run by the leaderboard's rule, which counts open faults as failed.",
                    "参照在本运行任务上的比例加上目前的差值；"
                    "以及按排行榜规则（未解决故障计为失败）计算的比例。",
                ),
                form=percent,
                names=True,
                no_value=NOTHING,
            ),
        ),
    ]


def comparison() -> Panel:
    def interval(which: str, bound: str) -> str:
        known = f"100 * {S.latest(c.RUN_DIFFERENCE_CI, interval=which, bound=bound)}"
        return or_blank(known, S.latest(c.RUN_MATCHED_TASKS))

    points = partial(Column, unit=PERCENTAGE_POINTS, decimals=2)
    percent = partial(Column, unit="percentunit", decimals=2)
    return table(
        Text("Compared on the same tasks", "同任务比较"),
        [
            Column(Text("Of", "范围"), shows="scope", mappings=SCOPES, width=190),
            Column(Text("Tasks", "任务数"), S.latest(c.RUN_MATCHED_TASKS), width=80),
            percent(
                Text("This run", "本运行"),
                S.latest(c.RUN_SUCCESS, side="run", scope=MATCHED),
            ),
            percent(
                Text("Reference", "参照"),
                S.latest(c.RUN_SUCCESS, side="reference", scope=MATCHED),
            ),
            points(Text("Difference", "差值"), f"100 * {S.latest(c.RUN_DIFFERENCE)}"),
            points(Text("Luck from", "运气下限"), interval("fixed_task", "lower")),
            points(Text("Luck to", "运气上限"), interval("fixed_task", "upper")),
            points(
                Text("Tasks from", "任务下限"),
                interval("task_sampling", "lower"),
            ),
            points(
                Text("Tasks to", "任务上限"),
                interval("task_sampling", "upper"),
            ),
            Column(
                Text("What it says", "结论"),
                f"{q.beyond_noise(S, q.ATTEMPTED_TASKS)}\nor {q.beyond_noise(S, q.COMPLETE_TASKS)}",
                mappings=NOISE,
                cell="text",
                width=220,
            ),
        ],
        hide=("run",),
        about=Text(
            "Mean of the tasks' ratios, both sides on the same tasks. 95 % intervals of the "
            "difference: “luck” is that of the attempts at these tasks, “tasks” also that of "
            "which tasks there are. What it says goes by luck; at the end of a run with a single "
            "attempt a task, which has no luck to see, by tasks.",
            "各任务比例的平均，两侧任务相同。差值的 95% 区间：“运气”只含这些任务上尝试的随机性，"
            "“任务”还包含任务选取的随机性。结论按“运气”；"
            "每个任务只有一次尝试的运行结束时按“任务”。",
        ),
        no_value=NO_REFERENCE,
    )


def ratios() -> Panel:
    def interval(which: str, bound: str) -> str:
        return S.latest(c.RUN_SUCCESS_CI, interval=which, bound=bound)

    percent = partial(Column, unit="percentunit", decimals=2)
    # Of an interval that is cut off at 0 or 1, the side that is not.
    value, up, low = S.latest(c.RUN_SUCCESS), interval("fixed_task", "upper"), "lower"
    above, below = f"({up} - {value})", f"({value} - {interval('fixed_task', low)})"
    half = f"100 * (({above} >= {below}) or {below})"
    return table(
        Text("Ratios and their 95 % intervals", "比例及其 95% 区间"),
        [
            Column(Text("Whose", "对象"), shows="side", mappings=SIDES, width=100, cell="text"),
            Column(Text("Of", "范围"), shows="scope", mappings=SCOPES, width=160),
            percent(Text("Ratio", "比例"), S.latest(c.RUN_SUCCESS)),
            Column(Text("±", "±"), half, unit=PERCENTAGE_POINTS, decimals=2),
            percent(
                Text("Tasks from", "任务下限"),
                interval("task_sampling", "lower"),
            ),
            percent(
                Text("Tasks to", "任务上限"),
                interval("task_sampling", "upper"),
            ),
        ],
        hide=("run",),
        about=Text(
            "“All its tasks” has two denominators: the run's tasks, and all the reference has, as "
            "published. ± is that of leaderboards: the luck of the attempts.",
            "“其全部任务”两侧分母不同：本运行的任务，以及参照公布的全部任务。± 与排行榜相同："
            "只含尝试的随机性。",
        ),
        no_value=NO_REFERENCE,
        sort=Text("Whose", "对象"),
        descending=True,
    )


def over_time() -> Panel:
    band = {
        bound: S.latest(
            c.RUN_SUCCESS_CI, side="run", scope="attempted", interval="fixed_task", bound=bound
        )
        for bound in ("lower", "upper")
    }
    edge = {
        "custom.lineWidth": 0,
        "custom.hideFrom": {"legend": True, "tooltip": False, "viz": False},
    }
    low = Text("95 % interval: from", "95% 区间：下限")
    return time_series(
        Text("Correctness over time", "正确率随时间变化"),
        [
            Query(
                ratio("run", "attempted"),
                Text("This run, attempted tasks", "本运行，已尝试任务"),
                BLUE,
            ),
            Query(band["lower"], low, BLUE, edge),
            Query(
                band["upper"],
                Text("95 % interval: to", "95% 区间：上限"),
                BLUE,
                {**edge, "custom.fillBelowTo": low, "custom.fillOpacity": 15},
            ),
            Query(
                ratio("reference", "attempted"),
                Text("Reference, same tasks", "参照，相同任务"),
                ORANGE,
            ),
            Query(
                ratio("reference", "full"),
                Text("Reference, all its tasks", "参照，其全部任务"),
                ORANGE,
                DASHED,
            ),
        ],
        about=Text(
            "The run's ratio with the 95 % interval of the attempts' luck, and the reference on "
            "the tasks that the run has attempted by then. The dashed line is the published ratio.",
            "本运行的比例及尝试随机性的 95% 区间，以及参照在同一批已尝试任务上的比例。"
            "虚线为公布的比例。",
        ),
        form=Format(unit="percentunit", minimum=0, maximum=1, decimals=1),
        no_value=NO_VERDICT,
    )


def comparability() -> Panel:
    return table(
        Text("What the comparison rests on", "可比性"),
        [
            Column(Text("Condition", "条件"), shows="check", mappings=CHECKS),
            Column(
                Text("Holds", "成立"),
                S.latest(c.RUN_COMPARABILITY),
                mappings=HOLDS,
                cell="text",
                width=100,
            ),
        ],
        hide=("run",),
        about=Text(
            "A condition that does not hold takes nothing away from the numbers: it says what "
            "they are not. `harborlight status` gives the reason.",
            "条件不成立并不改变数字，只说明它们不代表什么。`harborlight status` 会给出原因。",
        ),
        no_value=NO_RUN,
        sort=Text("Holds", "成立"),
    )
