"""Every fault, taken apart: where, why, which type, and what became of it."""

from __future__ import annotations

from typing import Final

from dashboards.common import run_variable, standing_annotations
from dashboards.grafana import Board, Line, Section
from dashboards.panels import faults
from dashboards.texts import Text

BOARD: Final = Board(
    name="faults",
    title=Text("Harborlight / Faults", "Harborlight / 故障"),
    about=Text(
        "Executions without a verdict: where and why they ended, and what became of them.",
        "没有 verdict 的执行：在哪里、因何结束，以及去向。",
    ),
    variables=[run_variable(several=True)],
    annotations=standing_annotations(faults.S),
    sections=[
        Section(
            None,
            [
                Line(4, faults.at_a_glance()),
                Line(5, [(24, faults.what_became_of_them())]),
                Line(8, faults.over_time()),
            ],
        ),
        Section(Text("Where and why", "位置与原因"), [Line(9, faults.where_and_why())]),
        Section(
            Text("Types, ends and tasks", "类型、去向与任务"), [Line(9, faults.types_and_tasks())]
        ),
        Section(Text("Verdicts and what to do", "verdict 与处理"), [Line(9, faults.verdicts())]),
    ],
)
