"""Columns that several tables have, and where their names lead."""

from __future__ import annotations

from dashboards.grafana import DURATION, Column, Json, link_to, steps
from dashboards.texts import BLUE, JOB_STATES, ORANGE, RED, Text, coded

_THE_VALUE = "${__value.raw:percentencode}"


def to_run() -> list[Json]:
    """From the name of a run."""
    return [link_to("run", Text("Open the run", "打开运行"), run=_THE_VALUE)]


def to_pool(title: Text) -> list[Json]:
    """From the name of a pool."""
    return [link_to("serving", title, pool=_THE_VALUE)]


def kv_use(expr: str) -> Column:
    return Column(
        Text("KV use", "KV 占用"),
        expr,
        unit="percentunit",
        decimals=0,
        cell="bar",
        minimum=0,
        maximum=1,
        colour=BLUE,
    )


def job_state(expr: str) -> Column:
    return Column(Text("State", "状态"), expr, mappings=coded(JOB_STATES), cell="text", width=140)


def last_change(expr: str) -> Column:
    return Column(Text("Last change", "最近变化"), expr, unit=DURATION, decimals=0)


def faulted(expr: str) -> Column:
    return Column(
        Text("Faulted", "故障"), expr, width=80, cell="text", thresholds=steps("text", (1, ORANGE))
    )


def unreadable_files(expr: str) -> Column:
    return Column(
        Text("Unreadable files", "无法读取的文件"),
        expr,
        width=130,
        cell="text",
        thresholds=steps("text", (1, RED)),
    )
