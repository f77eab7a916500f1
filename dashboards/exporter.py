"""Harborlight itself: are its numbers fresh, what can it not read, what does it cost."""

from __future__ import annotations

from typing import Final

from dashboards.grafana import Board, Line, Section
from dashboards.panels import exporter
from dashboards.texts import Text

BOARD: Final = Board(
    name="exporter",
    title=Text("Harborlight / Exporter", "Harborlight / Exporter 自身"),
    about=Text(
        "Whether the numbers on the other dashboards are fresh and whole, and what they cost.",
        "其他看板上的数字是否新鲜、完整，以及代价。",
    ),
    variables=[],
    since="now-6h",
    sections=[
        Section(None, [Line(4, exporter.at_a_glance()), Line(8, exporter.collectors())]),
        Section(Text("Fresh and whole", "新鲜与完整"), [Line(7, exporter.freshness())]),
        Section(
            Text("Cost", "代价"), [Line(7, exporter.cost()), Line(5, [(24, exporter.build())])]
        ),
    ],
)
