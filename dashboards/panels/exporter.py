"""Harborlight itself."""

from __future__ import annotations

from typing import Final

from dashboards.common import DATA_AGE, NO_EXPORTER, STALE_SECONDS
from dashboards.grafana import (
    DURATION,
    GREEN_AT_ZERO,
    Column,
    Format,
    Panel,
    Query,
    stat,
    steps,
    table,
    time_series,
)
from dashboards.panels import columns
from dashboards.promql import EVERYTHING, RATE_WINDOW
from dashboards.texts import BLUE, GREEN, GREY, NONE, RED, YELLOW, YES_NO, Choice, Text
from harborlight.views import catalogue as c

S = EVERYTHING


OURS: Final = f"and on (job, instance) {S.series(c.BUILD_INFO)}"
"""Restricts what Prometheus itself or every Python exporter has to this exporter's targets."""


COLLECTORS: Final = (
    Choice("harbor_jobs", Text("Job directories", "作业目录"), "text"),
    Choice("harbor_server", Text("Harbor servers", "Harbor 服务器"), "text"),
    Choice("sglang", Text("SGLang servers", "SGLang 服务器"), "text"),
    Choice("ledger", Text("Ledger", "台账"), "text"),
    Choice("statistics", Text("Statistics", "统计"), "text"),
)


def at_a_glance() -> list[tuple[int, Panel]]:
    unreadable = S.latest(c.JOB_UNREADABLE)
    return [
        (5, DATA_AGE),
        (
            5,
            stat(
                Text("Collectors failing", "失败的采集器"),
                f"sum(1 - {S.latest(c.COLLECTOR_SUCCESS)})",
                about=Text(
                    "Whose last look did not succeed. The others' numbers are served all the same.",
                    "最近一次采集未成功的数量。其他采集器的数字照常提供。",
                ),
                form=Format(mappings=NONE, thresholds=GREEN_AT_ZERO),
                no_value=NO_EXPORTER,
                empty=RED,
            ),
        ),
        (
            5,
            stat(
                Text("Unreadable files", "无法读取的文件"),
                f"sum({unreadable})",
                about=Text(
                    "Files of jobs that cannot be read and are not just being written. The log "
                    "names them; the trials they belong to count as unreadable faults.",
                    "无法读取且并非正在写入的作业文件。日志会列出文件名；对应的 trial "
                    "计为“无法读取”故障。",
                ),
                form=Format(mappings=NONE, thresholds=GREEN_AT_ZERO),
                no_value=Text("No job seen", "未见作业"),
            ),
        ),
        (
            5,
            stat(
                Text("Configuration", "配置"),
                f"min({S.series(c.CONFIG_RELOAD_SUCCESS)})",
                about=Text(
                    "Whether the last reload was taken over. If not, the configuration before "
                    "goes on, and the log says why.",
                    "最近一次重新加载是否生效。未生效时沿用之前的配置，日志说明原因。",
                ),
                form=Format(
                    mappings=(
                        Choice(1, Text("✓ loaded", "✓ 已生效"), GREEN),
                        Choice(0, Text("✗ refused", "✗ 被拒绝"), RED),
                    )
                ),
                no_value=NO_EXPORTER,
                empty=RED,
            ),
        ),
        (
            4,
            stat(
                Text("Executions in the ledger", "台账中的执行"),
                f"max({S.series(c.LEDGER_TRIALS)})",
                about=Text(
                    "Every execution that was ever seen; it never falls but by `ledger forget`.",
                    "曾经见到的每次执行；除 `ledger forget` 外只增不减。",
                ),
                no_value=NO_EXPORTER,
                empty=RED,
            ),
        ),
    ]


def collectors() -> list[tuple[int, Panel]]:
    since = f"time() - {S.latest(c.COLLECTOR_LAST_SUCCESS)}"
    return [
        (
            12,
            table(
                Text("Collectors", "采集器"),
                [
                    Column(Text("Collector", "采集器"), shows="collector", mappings=COLLECTORS),
                    Column(
                        Text("Succeeded", "成功"),
                        S.latest(c.COLLECTOR_SUCCESS),
                        mappings=YES_NO,
                        cell="text",
                        width=110,
                    ),
                    Column(
                        Text("Took", "耗时"), S.latest(c.COLLECTOR_DURATION), unit="s", width=110
                    ),
                    Column(
                        Text("Last success", "最近成功"),
                        since,
                        unit=DURATION,
                        decimals=0,
                        no_value=Text("never", "从未"),
                        cell="text",
                        thresholds=steps("text", (STALE_SECONDS, YELLOW), (300, RED)),
                    ),
                ],
                about=Text(
                    "Each looks on its own: one that fails or hangs does not hold up the others.",
                    "各自独立采集：一个失败或卡住不会拖累其他。",
                ),
                no_value=NO_EXPORTER,
                sort=Text("Succeeded", "成功"),
            ),
        ),
        (
            12,
            time_series(
                Text("Collection time", "单次采集耗时"),
                [Query(S.latest(c.COLLECTOR_DURATION), "{{collector}}")],
                about=Text("Of each collector's last look.", "每个采集器最近一次采集。"),
                form=Format(unit="s", minimum=0),
                no_value=NO_EXPORTER,
            ),
        ),
    ]


def freshness() -> list[tuple[int, Panel]]:
    return [
        (
            12,
            time_series(
                Text("Age of the page", "页面时效"),
                [Query(f"time() - {S.series(c.SNAPSHOT_TIMESTAMP)}", "{{instance}}", BLUE)],
                about=Text(
                    "Between putting the numbers together and their scrape. A line that climbs is "
                    "an exporter that hangs.",
                    "从汇总数字到被抓取的时间。持续上升说明 exporter 卡住。",
                ),
                form=Format(
                    unit="s", minimum=0, thresholds=steps("transparent", (STALE_SECONDS, RED))
                ),
                no_value=NO_EXPORTER,
            ),
        ),
        (
            12,
            table(
                Text("Jobs with unreadable files", "含无法读取文件的作业"),
                [
                    Column(Text("Job", "作业"), shows="harbor_job"),
                    Column(
                        Text("Files", "文件数"),
                        f"{S.latest(c.JOB_UNREADABLE)} > 0",
                        cell="text",
                        thresholds=steps(RED),
                        width=100,
                    ),
                    columns.last_change(
                        f"time() - {S.latest(c.JOB_LAST_CHANGE)} "
                        f"and on (harbor_job) ({S.latest(c.JOB_UNREADABLE)} > 0)"
                    ),
                ],
                about=Text(
                    "Broken, torn or not allowed to be read; the rest of the job counts.",
                    "损坏、不完整或无权读取；作业其余部分照常计数。",
                ),
                no_value=Text("No unreadable file seen", "未见无法读取的文件"),
            ),
        ),
    ]


def cost() -> list[tuple[int, Panel]]:
    seconds, samples = "scrape_duration_seconds", "scrape_samples_scraped"
    cpu, memory = "process_cpu_seconds_total", "process_resident_memory_bytes"
    return [
        (
            6,
            time_series(
                Text("Scrape duration", "抓取耗时"),
                [Query(f"{seconds} {OURS}", "{{instance}}", BLUE)],
                about=Text("As Prometheus measured it.", "由 Prometheus 测得。"),
                form=Format(unit="s", minimum=0),
                no_value=NO_EXPORTER,
                legend_below=True,
            ),
        ),
        (
            6,
            time_series(
                Text("Samples a scrape", "每次抓取的样本数"),
                [Query(f"{samples} {OURS}", "{{instance}}", GREY)],
                about=Text(
                    "Series of one page. `--no-collector.task` takes off those of tasks.",
                    "单页的序列数。`--no-collector.task` 可去掉按任务的序列。",
                ),
                form=Format(unit="none", minimum=0, decimals=0),
                no_value=NO_EXPORTER,
                legend_below=True,
            ),
        ),
        (
            6,
            time_series(
                Text("Processor", "处理器"),
                [Query(f"rate({cpu}[{RATE_WINDOW}]) {OURS}", "{{instance}}", GREEN)],
                about=Text("Share of one core.", "占用单核的比例。"),
                form=Format(unit="percentunit", minimum=0),
                no_value=NO_EXPORTER,
                legend_below=True,
            ),
        ),
        (
            6,
            time_series(
                Text("Memory", "内存"),
                [Query(f"{memory} {OURS}", "{{instance}}", YELLOW)],
                about=Text("Resident memory.", "常驻内存。"),
                form=Format(unit="bytes", minimum=0),
                no_value=NO_EXPORTER,
                legend_below=True,
            ),
        ),
    ]


def build() -> Panel:
    info = S.series(c.BUILD_INFO)

    def version_of(label: str) -> str:
        return f"max by (instance, {label}) ({info})"

    return table(
        Text("Versions", "版本"),
        [
            Column(Text("Instance", "实例"), shows="instance"),
            Column(Text("Harborlight", "Harborlight"), version_of("version"), shows="version"),
            Column(
                Text("Harbor's error policy", "Harbor 错误策略"),
                version_of("harbor_version"),
                shows="harbor_version",
            ),
            Column(
                Text("Python", "Python"),
                version_of("python_version"),
                shows="python_version",
            ),
        ],
        about=Text(
            "Harborlight, the Harbor library whose error policy it applies, and Python.",
            "Harborlight、所采用错误策略的 Harbor 库以及 Python 的版本。",
        ),
        no_value=NO_EXPORTER,
    )
