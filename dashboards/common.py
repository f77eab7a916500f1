"""What all dashboards share: variables, annotations, and panels that each of them has."""

from __future__ import annotations

from typing import Any, Final

from dashboards import queries as q
from dashboards.grafana import Format, Json, Panel, annotation, stat, steps, variable
from dashboards.promql import EVERYTHING, Scope, Variable, sum_by
from dashboards.texts import BLUE, GREEN, ORANGE, RED, YELLOW, Text
from harborlight.ledger.jobs import JobState
from harborlight.reference import Reference
from harborlight.sources.reference_files import shipped, shipped_names
from harborlight.views import catalogue as c
from harborlight.words import Language

ONE_RUN: Final = Scope({"run": Variable("run")})

# What is missing may be missing because nobody looks: these are true without an exporter, too.
NO_RUN: Final = Text("No run seen", "未见运行")
NO_VERDICT: Final = Text("No verdict seen", "未见 verdict")
NO_POOL: Final = Text("No pool seen", "未见服务池")
NO_REFERENCE: Final = Text("No verdict or no reference seen", "未见 verdict 或参照")
NO_FAULT: Final = Text("No fault seen", "未见故障")
NO_EXPORTER: Final = Text("✗ no exporter", "✗ 无 exporter")

STALE_SECONDS: Final = 60
"""The exporter looks every 5 seconds and Prometheus usually twice a minute or more often."""


def data_age(age: str) -> Panel:
    """How old the numbers are."""
    return stat(
        Text("Data age", "数据延迟"),
        age,
        about=Text(
            "How long ago the exporter put these numbers together; of several, the one that is "
            "furthest behind. Old data look like a run that stands still.",
            "exporter 汇总这些数字距今的时间；有多个时取最落后者。数据陈旧时，看起来像运行停滞。",
        ),
        form=Format(
            unit="s", decimals=0, thresholds=steps(GREEN, (STALE_SECONDS, YELLOW), (300, RED))
        ),
        no_value=NO_EXPORTER,
        empty=RED,
    )


_SNAPSHOT: Final = EVERYTHING.series(c.SNAPSHOT_TIMESTAMP)
DATA_AGE: Final = data_age(f"max(time() - {_SNAPSHOT})")
RUN_DATA_AGE: Final = data_age(
    f"time() - max({_SNAPSHOT} and on (job, instance) {ONE_RUN.series(c.RUN_INFO)})"
)
"""Of the newest of the exporters that have the run."""


def run_variable(*, several: bool) -> Any:
    return variable(c.RUN_INFO, "run", Text("Run", "运行"), several=several)


def pool_variable() -> Any:
    return variable(c.POOL_INFO, "pool", Text("Pool", "服务池"))


def replica_variable() -> Any:
    """Those of the pools that are chosen."""
    return variable(
        c.REPLICA_STATE, "replica", Text("Replica", "副本"), scope={"pool": Variable("pool")}
    )


def replica_annotation(s: Scope, of_run: str = "") -> Json:
    """Where replicas in scope were not up."""
    return annotation(
        Text("Replica lost", "副本异常"),
        f"{s.latest(c.REPLICA_UP)} == 0{of_run}",
        RED,
        says=Text("{{pool}} / {{replica}} is not up", "{{pool}} / {{replica}} 不正常"),
    )


def standing_annotations(s: Scope) -> list[Json]:
    """What happened to jobs and replicas, as far as they belong to the runs in scope."""
    jobs, of_run = EVERYTHING, f"and on (harbor_job) {s.latest(c.RUN_JOB_INFO)}"

    def entered(state: JobState) -> str:
        """Jobs that are in the state, and were not a minute ago."""
        now = f"{jobs.latest(c.JOB_STATE, state=state)} == 1"
        before = f"max_over_time({jobs.series(c.JOB_STATE, state=state)}[1m] offset 1m) == 1"
        return f"({now} unless on (harbor_job) ({before})) {of_run}"

    burst, before = (
        sum_by("run, cause", s.grown(c.RUN_FAULTS_TOTAL, "5m", ago)) for ago in ("", "1m")
    )
    return [
        annotation(
            Text("Job started", "作业开始"),
            f"1000 * {jobs.latest(c.JOB_STARTED)} {of_run}",
            BLUE,
            says=Text("{{harbor_job}} started", "{{harbor_job}} 开始"),
            value_is_time=True,
        ),
        annotation(
            Text("Job ended", "作业结束"),
            f"1000 * {jobs.latest(c.JOB_FINISHED)} {of_run}",
            GREEN,
            says=Text("{{harbor_job}} ended", "{{harbor_job}} 结束"),
            value_is_time=True,
        ),
        annotation(
            Text("Job cancelled", "作业取消"),
            entered(JobState.CANCELLED),
            ORANGE,
            says=Text("{{harbor_job}} was cancelled", "{{harbor_job}} 被取消"),
        ),
        annotation(
            Text("Job interrupted", "作业中断"),
            entered(JobState.INTERRUPTED),
            RED,
            says=Text("{{harbor_job}} lost its process", "{{harbor_job}} 的进程已消失"),
        ),
        replica_annotation(jobs, f" and on (pool) {s.latest(c.RUN_POOL_INFO)}"),
        annotation(
            Text("Burst of faults", "故障集中出现"),
            f"{burst} >= {q.BURST} unless {before} >= {q.BURST}",
            YELLOW,
            says=Text("{{run}}: many faults, {{cause}}", "{{run}}：大量故障，{{cause}}"),
        ),
    ]


def published_references() -> Text:
    """The shipped references' headlines and where they were published, in Markdown."""
    references = [shipped(name) for name in shipped_names()]
    return Text(
        "\n".join(f"- {r.title}: {_published(r, Language.EN)}" for r in references),
        "\n".join(f"- {r.title_zh}：{_published(r, Language.ZH)}" for r in references),
    )


def _published(reference: Reference, language: Language) -> str:
    head = reference.headline
    assert head.ratio is not None and head.half_width is not None
    half = 100 * head.half_width
    figures = f"{head.ratio:.2%} ({head.passed} / {head.attempts}, ±{half:.2f} pp)"
    links = (f"[{words.in_language(language)}]({url})" for words, url in reference.links.items())
    return f"**{figures}** {', '.join(links)}"
