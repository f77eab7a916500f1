"""All runs, pools and jobs, one row each."""

from __future__ import annotations

from typing import Final

from dashboards.common import pool_variable, run_variable, standing_annotations
from dashboards.grafana import Board, Line, Section
from dashboards.panels import fleet
from dashboards.texts import Text

BOARD: Final = Board(
    name="fleet",
    title=Text("Harborlight / Fleet", "Harborlight / 总览"),
    about=Text("All runs, serving pools and jobs at a glance.", "所有运行、模型服务池与作业一览。"),
    variables=[run_variable(several=True), pool_variable()],
    annotations=standing_annotations(fleet.S),
    sections=[
        Section(None, [Line(4, fleet.at_a_glance()), Line(8, [(24, fleet.runs())])]),
        Section(
            Text("Over time", "随时间变化"),
            [Line(8, [(12, fleet.progress()), (12, fleet.running())])],
        ),
        Section(
            Text("Pools and jobs", "服务池与作业"),
            [Line(6, [(24, fleet.pools())]), Line(7, [(24, fleet.jobs())])],
        ),
    ],
)
