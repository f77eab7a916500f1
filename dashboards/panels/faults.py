"""Faults of several runs, taken apart."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dashboards import queries as q
from dashboards.common import NO_FAULT, NO_RUN
from dashboards.grafana import (
    GREEN_AT_ZERO,
    Column,
    Format,
    Panel,
    Query,
    bar_gauge,
    columns_of,
    of_each,
    share_bar,
    stat,
    steps,
    table,
    text,
    time_series,
)
from dashboards.panels import columns
from dashboards.promql import Scope, Variable, any_of, sum_by
from dashboards.texts import (
    BOUNDARIES,
    CAUSES,
    GREEN,
    GREY,
    ORANGE,
    PHASES,
    RED,
    RESOLUTIONS,
    YELLOW,
    Text,
)
from harborlight.ledger.ownership import AttemptState
from harborlight.views import catalogue as c

S = Scope({"run": Variable("run")})


def at_a_glance() -> list[tuple[int, Panel]]:
    resolved = any_of(("retried", "regraded", "replayed"))
    return [
        (
            4,
            stat(
                Text("Open", "未解决"),
                f"sum({S.latest(c.RUN_FAULTS_OPEN)})",
                about=Text(
                    "Faults whose attempt nobody scores, runs or plans.",
                    "其尝试无人计分、运行或安排的故障。",
                ),
                form=Format(thresholds=GREEN_AT_ZERO),
                colour="background_solid",
                no_value=NO_RUN,
            ),
        ),
        (
            12,
            stat(
                Text("All faults ever", "累计故障"),
                [
                    Query(f"sum({S.latest(c.RUN_FAULTS_BY_RESOLUTION)})", Text("All", "合计")),
                    Query(
                        f"sum({S.latest(c.RUN_FAULTS_BY_RESOLUTION, resolution=resolved)})",
                        Text("Replaced", "已替换"),
                    ),
                    Query(
                        f"sum({S.latest(c.RUN_FAULTS_BY_RESOLUTION, resolution='pending')})",
                        Text("Pending", "待补上"),
                    ),
                    Query(
                        f"sum({S.latest(c.RUN_FAULTS_BY_RESOLUTION, resolution='given_up')})",
                        Text("Given up", "已放弃"),
                    ),
                ],
                about=Text(
                    "A fault is kept for ever, whatever became of it.",
                    "故障会永久保留，无论其去向如何。",
                ),
                names=True,
                no_value=NO_RUN,
            ),
        ),
        (
            8,
            stat(
                Text("Verdicts that are worth a look", "值得查看的 verdict"),
                [
                    Query(
                        f"sum({S.latest(c.RUN_DISCARDED)})",
                        Text("Discarded by a retry", "被重试丢弃"),
                    ),
                    Query(
                        f"sum({S.latest(c.RUN_SCORED_WITH_EXCEPTION)})",
                        Text("Scored with an exception", "带异常的计分"),
                    ),
                ],
                about=Text(
                    "Valid verdicts that Harbor deleted by retrying the trial, and verdicts that "
                    "Harbor holds valid although the trial raised an exception.",
                    "Harbor 重试 trial 时删除的有效 verdict，以及 trial 抛出异常但 Harbor "
                    "仍认为有效的 verdict。",
                ),
                form=Format(thresholds=steps("text", (1, ORANGE))),
                names=True,
                no_value=NO_RUN,
            ),
        ),
    ]


def by_exception_type(expr: str, about: Text) -> Panel:
    """Bars of the types, the most frequent first."""
    return bar_gauge(
        Text("By exception type", "按异常类型"),
        [Query(f"sort_desc({expr})", "{{exception_type}}")],
        about=about,
        form=Format(minimum=0, thresholds=steps(ORANGE)),
        names_above=True,
        no_value=NO_FAULT,
    )


def by_resolution(query: Callable[[str], str], about: Text) -> Panel:
    """A bar for each resolution; ``query``: its faults."""
    return bar_gauge(
        Text("What became of them", "故障的去向"),
        of_each(RESOLUTIONS, query),
        about=about,
        form=Format(minimum=0),
        no_value=NO_RUN,
    )


def new_faults(title: Text, query: Callable[[str], str], about: Text) -> Panel:
    """Bars over time, stacked by cause; ``query``: a cause's faults."""
    return time_series(
        title,
        of_each(CAUSES, query),
        about=about,
        form=Format(minimum=0, decimals=0),
        stacked=True,
        bars=True,
        no_value=NO_RUN,
    )


def what_became_of_them() -> Panel:
    return share_bar(
        Text("Every fault, by what became of it", "每个故障的去向"),
        S.latest(c.RUN_FAULTS_BY_RESOLUTION),
        row="run",
        column="resolution",
        choices=RESOLUTIONS,
        about=Text(
            "A bar for each run, as long as its faults.", "每个运行一条，长度为其故障总数。"
        ),
        no_value=NO_RUN,
    )


def over_time() -> list[tuple[int, Panel]]:
    return [
        (
            12,
            new_faults(
                Text("New faults by cause", "按原因的新增故障"),
                lambda cause: f"sum({S.stepped(c.RUN_FAULTS_TOTAL, cause=cause)})",
                Text(
                    "Settled in each interval. Many of one cause at once are an outage.",
                    "每个间隔内确认的故障。同一原因同时大量出现意味着一次中断。",
                ),
            ),
        ),
        (
            12,
            time_series(
                Text("Open faults", "未解决故障"),
                of_each(
                    BOUNDARIES,
                    lambda value: f"sum({S.latest(c.RUN_FAULTS_OPEN, boundary=value)})",
                ),
                about=Text(
                    "By the narrowest point from where they can be replayed.",
                    "按可补跑的最窄边界划分。",
                ),
                form=Format(minimum=0, decimals=0),
                stacked=True,
                fill=60,
                no_value=NO_RUN,
            ),
        ),
    ]


def where_and_why() -> list[tuple[int, Panel]]:
    hits = partial(Column, cell="text", thresholds=steps("text", (1, ORANGE)))

    red = partial(Column, cell="text", thresholds=steps("text", (1, RED)))

    def in_phase(phase: str) -> str:
        return sum_by("cause", S.latest(c.RUN_FAULTS_TOTAL, phase=phase))

    def at(boundary: str) -> str:
        return sum_by("cause", S.latest(c.RUN_FAULTS_OPEN, boundary=boundary))

    return [
        (
            12,
            table(
                Text("All faults: cause and phase", "全部故障：原因与阶段"),
                [
                    Column(Text("Cause", "原因"), shows="cause", mappings=CAUSES, width=130),
                    *columns_of(PHASES, in_phase, column=hits),
                    hits(
                        Text("All", "合计"),
                        sum_by("cause", S.latest(c.RUN_FAULTS_TOTAL)),
                    ),
                    hits(
                        Text("Tasks hit", "涉及任务"),
                        sum_by("cause", S.latest(c.RUN_FAULT_TASKS)),
                    ),
                ],
                about=Text(
                    "By the phase in which they happened and the cause, which goes by the "
                    "exception's type.",
                    "按发生阶段和原因；原因由异常类型决定。",
                ),
                no_value=NO_RUN,
                sort=Text("All", "合计"),
                descending=True,
            ),
        ),
        (
            12,
            table(
                Text("Open faults: cause and boundary", "未解决故障：原因与边界"),
                [
                    Column(Text("Cause", "原因"), shows="cause", mappings=CAUSES, width=130),
                    *columns_of(BOUNDARIES, at, red),
                    red(Text("Open", "未解决"), q.faults_open(S, "cause")),
                ],
                about=Text(
                    "Regrade: only the verdict is missing. Resume: the job can run the trial "
                    "again. Rerun: nothing usable is left.",
                    "重新评分：只缺 verdict。续跑：作业可再次运行该 trial。重跑：没有可用的残留。",
                ),
                no_value=NO_RUN,
                sort=Text("Open", "未解决"),
                descending=True,
            ),
        ),
    ]


def types_and_tasks() -> list[tuple[int, Panel]]:
    faulted = S.latest(c.TASK_ATTEMPTS, state=AttemptState.FAULTED)
    return [
        (
            8,
            by_exception_type(
                sum_by("exception_type", S.latest(c.RUN_FAULTS_BY_TYPE)),
                Text(
                    "The type of a fault's first exception; beyond 40 types they are `other`.",
                    "故障第一个异常的类型；超过 40 种时归为 `other`。",
                ),
            ),
        ),
        (
            8,
            by_resolution(
                lambda value: f"sum({S.latest(c.RUN_FAULTS_BY_RESOLUTION, resolution=value)})",
                Text(
                    "Retried by Harbor in the same trial, regraded, or replayed by a later trial.",
                    "由 Harbor 在同一 trial 内重试、重新评分，或由之后的 trial 补跑。",
                ),
            ),
        ),
        (
            8,
            table(
                Text("Tasks with faulted attempts", "有故障尝试的任务"),
                [
                    Column(
                        Text("Run", "运行"),
                        shows="run",
                        links=columns.to_run(),
                    ),
                    Column(Text("Task", "任务"), shows="task"),
                    Column(
                        Text("Faulted", "故障"),
                        f"{faulted} > 0",
                        cell="text",
                        thresholds=steps(RED),
                        width=90,
                    ),
                    Column(
                        Text("Scored", "已计分"),
                        f"{S.latest(c.TASK_ATTEMPTS, state=AttemptState.SCORED)} "
                        f"and on (run, task) ({faulted} > 0)",
                        width=90,
                    ),
                ],
                about=Text("Attempts that nothing replaces yet.", "尚无任何 trial 替换的尝试。"),
                no_value=Text(
                    "No task with a faulted attempt, or per-task metrics are off",
                    "没有故障尝试的任务，或未导出按任务的指标",
                ),
                sort=Text("Faulted", "故障"),
                descending=True,
            ),
        ),
    ]


def verdicts() -> list[tuple[int, Panel]]:
    def scored(cause: str) -> str:
        return f"sum({S.latest(c.RUN_SCORED_WITH_EXCEPTION, cause=cause)})"

    causes = [
        choice for choice in CAUSES if choice.value in ("container", "serving", "agent", "verifier")
    ]
    discarded = S.latest(c.RUN_DISCARDED)
    results = (
        ("passed", Text("Passed", "通过"), GREEN),
        ("failed", Text("Failed", "未通过"), YELLOW),
        ("unknown", Text("Not known", "未知"), GREY),
    )
    return [
        (
            8,
            bar_gauge(
                Text("Scored with an exception", "带异常的计分"),
                of_each(causes, scored),
                about=Text(
                    "By the exception's cause. Harbor holds types that it does not know for "
                    "valid; `invalid_exceptions` in the configuration takes one out.",
                    "按异常原因。Harbor 把未知类型视为有效；可在配置中用 `invalid_exceptions` "
                    "排除。",
                ),
                form=Format(minimum=0),
                no_value=NO_RUN,
            ),
        ),
        (
            8,
            bar_gauge(
                Text("Verdicts discarded by retries", "被重试丢弃的 verdict"),
                [
                    Query(
                        f"sum({S.latest(c.RUN_DISCARDED, result=result)}) or sum({discarded}) * 0",
                        title,
                        colour,
                    )
                    for result, title, colour in results
                ],
                about=Text(
                    "Harbor retries some exceptions whose reward it holds valid, and deletes the "
                    "verdict. Many of them bias a run: only bad luck gets a second try.",
                    "Harbor 会重试某些它认为 reward 有效的异常，并删除该 verdict。"
                    "数量多时会使结果产生偏差：只有坏运气得到第二次机会。",
                ),
                form=Format(minimum=0),
                no_value=NO_RUN,
            ),
        ),
        (
            8,
            text(
                Text("Which ones, and what to do", "具体是哪些，怎么处理"),
                Text(
                    "Metrics hold no trial and no message. On the exporter's host:\n\n"
                    "```sh\nharborlight faults --data-dir harborlight-data --resolution open\n"
                    "harborlight replay-plan RUN --data-dir harborlight-data\n```\n\n"
                    "The first lists every fault with its trial; the second prints the Harbor "
                    "commands that replay what is missing, from the narrowest point, and runs "
                    "none.",
                    "指标中没有 trial 和消息。在 exporter 所在主机上执行：\n\n"
                    "```sh\nharborlight faults --data-dir harborlight-data --resolution open\n"
                    "harborlight replay-plan RUN --data-dir harborlight-data\n```\n\n"
                    "前者列出每个故障及其 trial；后者给出从最窄边界补跑缺失部分的 Harbor 命令，"
                    "但不会执行。",
                ),
                about=Text("From a count to the trials behind it.", "从数量到背后的 trial。"),
            ),
        ),
    ]
