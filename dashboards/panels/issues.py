"""The issue ledger of one run, and the completion path of its attempts."""

from __future__ import annotations

from functools import partial

from dashboards import queries as q
from dashboards.common import NO_RUN, ONE_RUN as S
from dashboards.grafana import (
    GREEN_AT_ZERO,
    Column,
    Format,
    Panel,
    Query,
    columns_of,
    stat,
    steps,
    table,
)
from dashboards.panels import faults
from dashboards.promql import any_of, sum_by
from dashboards.texts import (
    BLUE,
    BOUNDARIES,
    CAUSES,
    GREEN,
    ORANGE,
    PHASES,
    PURPLE,
    RED,
    YELLOW,
    Text,
)
from harborlight.ledger.ownership import AttemptState, Resolution
from harborlight.views import catalogue as c


def headline() -> list[tuple[int, Panel]]:
    discarded = f"round({sum_by('run', S.latest(c.RUN_DISCARDED))})"
    return [
        (
            24,
            stat(
                Text("Faults are not silently scored", "故障不会被静默计分"),
                [
                    Query(q.faults_open(S), Text("Open", "未解决")),
                    Query(
                        sum_by("run", S.latest(c.RUN_FAULTS_BY_RESOLUTION)),
                        Text("All faults ever", "累计故障"),
                    ),
                    Query(discarded, Text("Discarded verdicts", "被丢弃的 verdict")),
                    Query(
                        sum_by("run", S.latest(c.RUN_SCORED_WITH_EXCEPTION)),
                        Text("Scored with an exception", "带异常的计分"),
                    ),
                    Query(S.latest(c.RUN_RETRIES), Text("Retries by Harbor", "Harbor 重试")),
                    Query(S.latest(c.RUN_ATTEMPTS_SURPLUS), Text("Surplus", "多余计分")),
                    Query(S.latest(c.RUN_STALE_CONTENT), Text("Other content", "内容版本不符")),
                    Query(S.latest(c.RUN_SUPERSEDED), Text("Superseded", "被 regrade 取代")),
                ],
                about=Text(
                    "A fault is an execution without a verdict; it is kept for ever. Discarded: "
                    "valid verdicts that Harbor deleted by retrying. Scored with an exception: "
                    "Harbor holds the reward valid although the trial raised something.",
                    "故障是没有 verdict 的执行，会永久保留。被丢弃：Harbor 重试时删除的有效 "
                    "verdict。带异常的计分：trial 虽抛出异常，但 Harbor 认为其 reward 有效。",
                ),
                form=Format(thresholds=steps("text")),
                each={
                    0: {"thresholds": GREEN_AT_ZERO},
                    2: {"thresholds": steps("text", (1, ORANGE))},
                    3: {"thresholds": steps("text", (1, ORANGE))},
                },
                names=True,
                no_value=NO_RUN,
            ),
        ),
    ]


def taken_apart() -> list[tuple[int, Panel]]:
    def in_phase(phase: str) -> str:
        return f"max by (run, cause) ({S.latest(c.RUN_FAULTS_TOTAL, phase=phase)})"

    cell = partial(Column, cell="text", thresholds=steps("text", (1, ORANGE)))
    return [
        (
            14,
            table(
                Text("Faults by cause and phase", "按原因与阶段的故障"),
                [
                    Column(Text("Cause", "原因"), shows="cause", mappings=CAUSES, width=115),
                    *columns_of(PHASES, in_phase, column=cell),
                    cell(
                        Text("All", "合计"),
                        sum_by("run, cause", S.latest(c.RUN_FAULTS_TOTAL)),
                        width=65,
                    ),
                    Column(
                        Text("Open", "未解决"),
                        q.faults_open(S, "run, cause"),
                        cell="text",
                        thresholds=steps("text", (1, RED)),
                        width=65,
                    ),
                    cell(Text("Tasks hit", "涉及任务"), S.latest(c.RUN_FAULT_TASKS)),
                ],
                hide=("run",),
                about=Text(
                    "Settled faults since the run began, by the phase in which they happened; and "
                    "how many of them are open, over how many tasks.",
                    "自运行开始以来已确认的故障，按发生阶段；以及其中未解决的数量和涉及的任务数。",
                ),
                no_value=NO_RUN,
                sort=Text("All", "合计"),
                descending=True,
            ),
        ),
        (
            5,
            faults.by_exception_type(
                S.latest(c.RUN_FAULTS_BY_TYPE),
                Text(
                    "The same faults by the type of their first exception.",
                    "同样的故障，按第一个异常的类型划分。",
                ),
            ),
        ),
        (
            5,
            faults.by_resolution(
                lambda value: S.latest(c.RUN_FAULTS_BY_RESOLUTION, resolution=value),
                Text(
                    "Open: nobody scores, runs or plans the attempt. Pending: a trial that runs "
                    "or is planned is to replace it.",
                    "未解决：无人计分、运行或安排该尝试。待补上：已有运行中或已安排的 trial "
                    "将替换它。",
                ),
            ),
        ),
    ]


def over_time() -> Panel:
    return faults.new_faults(
        Text("New faults", "新增故障"),
        lambda cause: sum_by("run", S.stepped(c.RUN_FAULTS_TOTAL, cause=cause)),
        Text(
            "Faults settled in each interval, by cause. Bursts of one cause are an outage.",
            "每个时间间隔内确认的故障，按原因。同一原因集中出现意味着一次中断。",
        ),
    )


def way_to_a_verdict() -> Panel:
    """The completion path of an attempt that meets no fault."""
    running = (
        Query(
            S.latest(c.RUN_ATTEMPTS_RUNNING, phase=str(phase.value)),
            Text(f"② {phase.text}", f"② {phase.text.zh}"),
            BLUE,
        )
        for phase in PHASES
    )
    passed = S.latest(c.RUN_ATTEMPTS_PASSED)
    failed = f"{q.scored(S)} - {passed}"
    return stat(
        Text("One owner per attempt: the way to a verdict", "每次尝试只有一个归属：通往 verdict"),
        [
            Query(q.attempts(S, AttemptState.QUEUED), Text("① Planned", "① 已安排")),
            *running,
            Query(passed, Text("③ Verdict: passed", "③ Verdict：通过"), GREEN),
            Query(failed, Text("③ Verdict: failed", "③ Verdict：未通过"), GREEN),
        ],
        about=Text(
            "Attempts on their way: planned, running by phase, with a verdict. A failed verdict "
            "(reward 0) counts as much as a passed one.",
            "尝试所处的位置：已安排、按阶段运行中、已有 verdict。未通过的 verdict（reward 为 0）"
            "与通过的同样计数。",
        ),
        names=True,
        no_value=NO_RUN,
    )


def way_back() -> Panel:
    """The completion path from a fault on: boundary, then owner."""
    boundaries = (
        Query(
            sum_by("run", S.latest(c.RUN_FAULTS_OPEN, boundary=str(boundary.value))),
            Text(f"↳ {boundary.text}", f"↳ {boundary.text.zh}"),
            YELLOW,
        )
        for boundary in BOUNDARIES
    )

    def ended(*resolutions: Resolution) -> str:
        among = S.latest(c.RUN_FAULTS_BY_RESOLUTION, resolution=any_of(resolutions))
        return sum_by("run", among)

    return stat(
        Text("The way back after a fault", "故障之后的补跑路径"),
        [
            Query(q.attempts(S, AttemptState.FAULTED), Text("✗ Faulted", "✗ 故障"), RED),
            *boundaries,
            Query(
                ended(Resolution.PENDING),
                Text("→ Owner waits or runs", "→ 归属已排队或运行"),
                BLUE,
            ),
            Query(
                ended(Resolution.RETRIED, Resolution.REGRADED, Resolution.REPLAYED),
                Text("✓ Replaced", "✓ 已替换"),
                GREEN,
            ),
            Query(q.attempts(S, AttemptState.UNPLANNED), Text("– Unplanned", "– 未安排"), PURPLE),
        ],
        about=Text(
            "A faulted attempt is replayed from the narrowest durable point: regrade where only "
            "the verdict is missing, resume where its job can go on, else rerun.",
            "故障的尝试从最窄的持久化边界补跑：只缺 verdict 的重新评分，作业可继续的续跑，"
            "否则重跑。",
        ),
        names=True,
        no_value=NO_RUN,
    )
