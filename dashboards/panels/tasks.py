"""The table of tasks."""

from __future__ import annotations

from functools import partial

from dashboards import queries as q
from dashboards.grafana import DURATION, PERCENTAGE_POINTS, SOME, Column, Panel, steps, table
from dashboards.promql import Contains, Scope, Variable, or_blank, shown_as
from dashboards.texts import BLUE, GREEN, ORANGE, RED, TASK_STATES, Text
from harborlight.ledger.ownership import AttemptState
from harborlight.views import catalogue as c

TASKS = Scope({"run": Variable("run"), "task": Variable("task")})


SEARCHED = Scope({"run": Variable("run"), "task": Contains("search")})


def every_task() -> Panel:
    s = SEARCHED

    def fraction(label: str, part: str, whole: str) -> str:
        """``k/n`` as a label, of two expressions by run and task."""
        k, n = shown_as("k", part, "run, task"), shown_as("n", whole, "run, task")
        joined = f"{k} * on (run, task) group_left (n) {n}"
        return f'max by (run, task, {label}) (label_join({joined}, "{label}", "/", "k", "n"))'

    def selected(expr: str) -> str:
        """Only the tasks of the variable ``task``, beside the search."""
        return f"{expr} and on (run, task) {TASKS.latest(c.TASK_ATTEMPTS_PASSED)}"

    passed = s.latest(c.TASK_ATTEMPTS_PASSED)
    done = s.latest(c.TASK_ATTEMPTS, state=AttemptState.SCORED)
    ours, theirs = s.latest(c.TASK_REFERENCE_PASSED), s.latest(c.TASK_REFERENCE_ATTEMPTS)
    bar = partial(Column, unit="percentunit", decimals=0, cell="bar", minimum=0, maximum=1)
    count = partial(Column, width=90)
    return table(
        Text("Tasks", "任务"),
        [
            Column(Text("Task", "任务"), shows="task"),
            Column(
                Text("State", "状态"),
                selected(f"({q.task_state(s)})"),
                mappings=TASK_STATES,
                cell="text",
                width=130,
            ),
            Column(
                Text("Current k/n", "当前 k/n"),
                selected(fraction("current", passed, done)),
                shows="current",
                width=100,
            ),
            bar(
                Text("Current", "当前"),
                selected(f"({passed} / ({done} > 0))"),
                colour=BLUE,
            ),
            Column(
                Text("Reference k/n", "参照 k/n"),
                selected(fraction("theirs", ours, theirs)),
                shows="theirs",
                width=110,
            ),
            bar(
                Text("Reference", "参照"),
                selected(f"({ours} / ({theirs} > 0))"),
                colour=ORANGE,
            ),
            Column(
                Text("Δ when complete", "完成项差值"),
                selected(f"({or_blank(f'100 * {s.latest(c.TASK_DIFFERENCE)}', passed)})"),
                unit=PERCENTAGE_POINTS,
                decimals=0,
                cell="text",
                thresholds=steps(RED, (-SOME, "text"), (SOME, GREEN)),
                width=140,
            ),
            count(
                Text("Running", "运行中"),
                selected(s.latest(c.TASK_ATTEMPTS, state=AttemptState.RUNNING)),
            ),
            count(
                Text("Faulted", "故障"),
                selected(s.latest(c.TASK_ATTEMPTS, state=AttemptState.FAULTED)),
                cell="text",
                thresholds=steps("text", (1, RED)),
            ),
            Column(
                Text("Usually takes", "通常耗时"),
                selected(s.latest(c.TASK_USUAL_DURATION)),
                unit=DURATION,
                decimals=1,
                width=130,
            ),
        ],
        hide=("run",),
        about=Text(
            "Every task: passed of scored attempts, the reference's, and their difference once "
            "every attempt is scored. Click a header to sort, its funnel to filter, or type into "
            "Search above.",
            "每个任务：已计分尝试中的通过数、参照的数字，以及全部尝试计分后的差值。点击表头排序，"
            "点漏斗筛选，或在上方“搜索”中输入。",
        ),
        no_value=Text(
            "No tasks match this view, or per-task metrics are off.",
            "没有符合条件的任务，或未导出按任务的指标。",
        ),
        sort=Text("Task", "任务"),
        filters=True,
    )
