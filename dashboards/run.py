"""One run: is it healthy, how far is it, until when, better or worse, and what broke."""

from __future__ import annotations

from dashboards.common import ONE_RUN, run_variable, standing_annotations
from dashboards.grafana import Board, Line, Section, search_box, variable
from dashboards.panels import attempts, context, correctness, health, issues, tasks
from dashboards.promql import Variable
from dashboards.texts import Text
from harborlight.views import catalogue as c

BOARD = Board(
    name="run",
    title=Text("Harborlight / Run", "Harborlight / 运行"),
    about=Text(
        "One evaluation: health, progress, estimated end, correctness against the reference, "
        "faults and what became of them.",
        "单个评测运行：健康状况、进度、预计结束、与参照相比的正确率，以及故障及其去向。",
    ),
    variables=[
        run_variable(several=False),
        variable(
            c.TASK_ATTEMPTS_PASSED,
            "task",
            Text("Task", "任务"),
            scope={"run": Variable("run")},
        ),
        search_box("search", Text("Search tasks", "搜索任务")),
    ],
    annotations=standing_annotations(ONE_RUN),
    sections=[
        Section(None, [Line(4, health.strip())]),
        Section(
            Text("Attempt ledger", "尝试台账"),
            [
                Line(5, attempts.headline()),
                Line(5, [(24, attempts.states_bar())]),
                Line(9, [(12, attempts.progress()), (12, correctness.over_time())]),
                Line(7, attempts.pace()),
            ],
        ),
        Section(
            Text("Verified correctness", "Verifier 正确率"),
            [
                Line(4, correctness.headline()),
                Line(5, [(24, correctness.comparison())]),
                Line(9, [(14, correctness.ratios()), (10, correctness.comparability())]),
            ],
        ),
        Section(Text("Tasks", "任务"), [Line(16, [(24, tasks.every_task())])]),
        Section(Text("Serving pools", "模型服务池"), [Line(6, context.serving())]),
        Section(
            Text("Issue ledger", "问题台账"),
            [
                Line(4, issues.headline()),
                Line(9, issues.taken_apart()),
                Line(7, [(24, issues.over_time())]),
            ],
        ),
        Section(
            Text("Completion path", "完成路径"),
            [Line(4, [(24, issues.way_to_a_verdict())]), Line(4, [(24, issues.way_back())])],
        ),
        Section(
            Text("Jobs, and what the numbers mean", "作业与数字的含义"),
            [Line(6, [(24, context.jobs())]), Line(6, context.notes())],
        ),
    ],
)
