"""The model servers: alive or not, how full, how fast; and the trials that wait for them."""

from __future__ import annotations

from typing import Final

from dashboards.common import pool_variable, replica_annotation, replica_variable
from dashboards.grafana import Board, Line, Section
from dashboards.panels import serving
from dashboards.texts import Text

BOARD: Final = Board(
    name="serving",
    title=Text("Harborlight / Serving pools", "Harborlight / 模型服务池"),
    about=Text(
        "The SGLang servers behind the runs: state, load, latency, and the trials that use them.",
        "运行背后的 SGLang 服务：状态、负载、延迟，以及使用它们的 trial。",
    ),
    variables=[pool_variable(), replica_variable()],
    annotations=[replica_annotation(serving.S)],
    since="now-6h",
    sections=[
        Section(
            None,
            [
                Line(4, serving.at_a_glance()),
                Line(5, [(24, serving.replicas())]),
                Line(5, [(24, serving.states())]),
            ],
        ),
        Section(
            Text("Load", "负载"), [Line(8, serving.load()), Line(7, serving.queue_and_cache())]
        ),
        Section(Text("Throughput", "吞吐"), [Line(7, serving.throughput())]),
        Section(
            Text("Latency", "延迟"),
            [
                Line(7, serving.time_to_first_token()),
                Line(7, serving.inter_token_latency()),
                Line(7, serving.time_in_queue()),
            ],
        ),
        Section(Text("Who uses them", "使用情况"), [Line(7, serving.jobs_of_pools())]),
    ],
)
