"""Replicas: alive or not, how full, how fast; and the trials that wait for them."""

from __future__ import annotations

from dashboards import queries as q
from dashboards.common import NO_POOL
from dashboards.grafana import (
    DASHED,
    DURATION,
    GREEN_AT_ZERO,
    NOTHING,
    Column,
    Format,
    Panel,
    Query,
    heatmap,
    stat,
    state_timeline,
    steps,
    table,
    time_series,
)
from dashboards.panels import columns
from dashboards.promql import Matches, Scope, Variable, sum_by
from dashboards.texts import (
    ALL_UP,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    REPLICA_STATES,
    YES_NO,
    Choice,
    Text,
    coded,
)
from harborlight.ledger.ownership import TrialState
from harborlight.views import catalogue as c
from harborlight.views.catalogue import Metric

S = Scope({"pool": Variable("pool"), "replica": Variable("replica")})
EACH = "pool, replica"
NAME = "{{pool}} / {{replica}}"
NO_VALUES = Text("No replica seen that gives this number", "未见提供该数值的副本")


def each(metric: Metric) -> str:
    """A replica's number, its roles added up."""
    return sum_by(EACH, S.latest(metric))


def tokens_out(by: str) -> str:
    """Generated tokens a second: counted while requests run, else when they end."""
    live = sum_by(by, S.rate(c.REPLICA_LIVE_TOKENS, kind="decode"))
    return f"{live} or {sum_by(by, S.rate(c.REPLICA_GENERATION_TOKENS))}"


def tokens_in(by: str) -> str:
    """Prompt tokens a second, cached ones included, likewise."""
    live = sum_by(by, S.rate(c.REPLICA_LIVE_TOKENS, kind=Matches("prefill|cached")))
    return f"{live} or {sum_by(by, S.rate(c.REPLICA_PROMPT_TOKENS))}"


def at_a_glance() -> list[tuple[int, Panel]]:
    up = f"sum({S.latest(c.REPLICA_UP)})"
    running = f"sum({q.pool_trials(S, TrialState.RUNNING)})"
    return [
        (
            4,
            stat(
                Text("Replicas not up", "异常副本"),
                f"count({S.latest(c.REPLICA_UP)}) - {up}",
                about=Text(
                    "Frozen, unreachable, or answering in part only.",
                    "卡死、无法连接，或只有部分应答。",
                ),
                form=Format(
                    mappings=ALL_UP,
                    thresholds=GREEN_AT_ZERO,
                ),
                no_value=NO_POOL,
                colour="background_solid",
            ),
        ),
        (
            8,
            stat(
                Text("Trials of the jobs that use them", "使用它们的作业中的 trial"),
                [
                    Query(f"sum({q.pool_trials(S, q.TERMINAL)})", Text("Terminal", "终态")),
                    Query(running, Text("Running", "运行中")),
                    Query(f"sum({q.pool_trials(S, TrialState.QUEUED)})", Text("Pending", "等待")),
                    Query(f"sum({S.latest(c.POOL_RETRIES)})", Text("Retries", "重试")),
                ],
                about=Text(
                    "Regrades ask no model and are left out. Terminal counts faults, too.",
                    "regrade 不请求模型，不计入。终态包含故障。",
                ),
                names=True,
                no_value=NO_POOL,
            ),
        ),
        (
            4,
            stat(
                Text("Requests", "请求"),
                [
                    Query(f"sum({each(c.REPLICA_RUNNING)})", Text("active", "活跃")),
                    Query(f"sum({each(c.REPLICA_QUEUED)})", Text("waiting", "等待")),
                ],
                about=Text(
                    "What the replicas work on now, and what waits for a place.",
                    "副本正在处理的请求，以及等待位置的请求。",
                ),
                each={1: {"thresholds": steps("text", (1, ORANGE))}},
                names=True,
                no_value=NOTHING,
            ),
        ),
        (
            4,
            stat(
                Text("Tokens generated", "生成 token"),
                f"sum({tokens_out(EACH)})",
                about=Text("Per second, all replicas.", "所有副本每秒生成数。"),
                form=Format(unit="suffix: tok/s", decimals=0),
                no_value=NOTHING,
            ),
        ),
        (
            4,
            stat(
                Text("The model of the run", "运行的模型"),
                f"min({S.latest(c.POOL_MODEL_MATCH)})",
                about=Text(
                    "Whether all replicas serve the model that the runs which use them ask for.",
                    "所有副本提供的是否就是使用它们的运行所请求的模型。",
                ),
                form=Format(
                    mappings=(
                        Choice(1, Text("✓ served", "✓ 一致"), GREEN),
                        Choice(0, Text("✗ another one", "✗ 不一致"), RED),
                    )
                ),
                no_value=Text("not known", "未知"),
            ),
        ),
    ]


def replicas() -> Panel:
    used, room = each(c.REPLICA_KV_USED), each(c.REPLICA_KV_CAPACITY)
    info = S.latest(c.REPLICA_INFO)

    def about(label: str) -> str:
        return f"max by ({EACH}, {label}) ({info})"

    return table(
        Text("Replicas", "副本"),
        [
            Column(Text("Pool", "服务池"), shows="pool"),
            Column(Text("Replica", "副本"), shows="replica"),
            Column(
                Text("State", "状态"),
                q.replica_state(S),
                mappings=coded(REPLICA_STATES),
                cell="background",
                width=140,
            ),
            Column(
                Text("Last answer", "最近应答"),
                f"time() - {S.latest(c.REPLICA_LAST_COMPLETE)}",
                unit=DURATION,
                decimals=0,
                no_value=Text("never", "从未"),
                cell="text",
                thresholds=steps("text", (60, RED)),
            ),
            Column(Text("Active requests", "活跃请求"), each(c.REPLICA_RUNNING)),
            Column(Text("At most", "上限"), each(c.REPLICA_MAX_RUNNING)),
            Column(Text("Waiting", "等待"), each(c.REPLICA_QUEUED)),
            Column(Text("KV tokens", "KV token"), used),
            columns.kv_use(f"{used} / {room}"),
            Column(Text("Model", "模型"), about("served_model"), shows="served_model"),
            Column(Text("TP", "TP"), about("tp"), shows="tp", width=60),
            Column(Text("SGLang", "SGLang"), about("version"), shows="version", width=90),
        ],
        about=Text(
            "A dash: the replica does not answer, or does not say. What it said last about itself "
            "stays.",
            "短横线：副本没有应答或未提供。它最近一次的自我描述会保留。",
        ),
        no_value=NO_POOL,
        sort=Text("State", "状态"),
        descending=True,
    )


def states() -> Panel:
    return state_timeline(
        Text("States", "状态变化"),
        [Query(q.replica_state(S), NAME)],
        coded(REPLICA_STATES),
        about=Text(
            "Frozen: it answers, but its scheduler shows no sign of life. A gap: nobody asked it, "
            "because the exporter did not run.",
            "卡死：能应答，但调度器没有任何活动。空白：exporter 未运行，无人查询。",
        ),
        no_value=NO_POOL,
    )


def load() -> list[tuple[int, Panel]]:
    return [
        (
            12,
            time_series(
                Text("Requests running", "活跃请求"),
                [
                    Query(each(c.REPLICA_RUNNING), NAME),
                    Query(
                        f"max({each(c.REPLICA_MAX_RUNNING)})",
                        Text("max-running-requests", "max-running-requests 上限"),
                        GREY,
                        DASHED,
                    ),
                ],
                about=Text(
                    "Against the most that a replica works on at once, the dashed line.",
                    "虚线为单个副本同时处理的上限。",
                ),
                form=Format(minimum=0, decimals=0),
                no_value=NO_VALUES,
            ),
        ),
        (
            12,
            time_series(
                Text("Trials running, requests running", "运行中 trial 与活跃请求"),
                [
                    Query(
                        q.pool_trials(S, TrialState.RUNNING),
                        Text("trials, {{pool}}", "trial，{{pool}}"),
                        GREEN,
                    ),
                    Query(
                        sum_by("pool", S.latest(c.REPLICA_RUNNING)),
                        Text("requests, {{pool}}", "请求，{{pool}}"),
                        BLUE,
                    ),
                    Query(
                        sum_by("pool", S.latest(c.REPLICA_QUEUED)),
                        Text("requests waiting, {{pool}}", "等待请求，{{pool}}"),
                        ORANGE,
                    ),
                ],
                about=Text(
                    "Trials that run while no request does are in a container, a tool or a "
                    "verifier; if that lasts, they wait for something that is broken.",
                    "有 trial 运行却没有请求时，它们在容器、工具或 verifier 中；若持续如此，"
                    "说明在等待已损坏的东西。",
                ),
                form=Format(minimum=0, decimals=0),
                no_value=NO_POOL,
            ),
        ),
    ]


def queue_and_cache() -> list[tuple[int, Panel]]:
    cached = sum_by(EACH, S.rate(c.REPLICA_CACHED_TOKENS))
    prompt = sum_by(EACH, S.rate(c.REPLICA_PROMPT_TOKENS))
    return [
        (
            8,
            time_series(
                Text("Requests waiting", "等待请求"),
                [Query(each(c.REPLICA_QUEUED), NAME)],
                about=Text(
                    "More trials than the replicas have places for, or too little KV cache.",
                    "trial 多于副本的位置，或 KV 缓存不足。",
                ),
                form=Format(minimum=0, decimals=0),
                no_value=NO_VALUES,
                legend_below=True,
            ),
        ),
        (
            8,
            time_series(
                Text("KV cache in use", "KV 缓存占用"),
                [Query(f"{each(c.REPLICA_KV_USED)} / {each(c.REPLICA_KV_CAPACITY)}", NAME)],
                about=Text(
                    "Tokens that running requests need, of those that there is room for. Near 1 "
                    "requests are retracted.",
                    "运行中请求所需 token 占总容量的比例。接近 1 时请求会被撤回。",
                ),
                form=Format(
                    unit="percentunit",
                    minimum=0,
                    maximum=1,
                    thresholds=steps("transparent", (0.9, RED)),
                ),
                no_value=NO_VALUES,
                legend_below=True,
            ),
        ),
        (
            8,
            time_series(
                Text("Prompt tokens from the cache", "缓存命中的 prompt token"),
                [Query(f"{cached} / ({prompt} > 0)", NAME)],
                about=Text(
                    "Share of the finished requests' prompt tokens that the prefix cache held.",
                    "已完成请求的 prompt token 中由前缀缓存提供的比例。",
                ),
                form=Format(unit="percentunit", minimum=0, maximum=1),
                no_value=Text("No finished request in this time", "未见结束的请求"),
                legend_below=True,
            ),
        ),
    ]


def throughput() -> list[tuple[int, Panel]]:
    return [
        (
            8,
            time_series(
                Text("Tokens generated", "生成 token"),
                [Query(tokens_out(EACH), NAME)],
                about=Text(
                    "Per second. Counted while requests run (SGLang 0.5.7 on), before that when "
                    "they end.",
                    "每秒。SGLang 0.5.7 起在请求运行时计数，之前在请求结束时计数。",
                ),
                form=Format(unit="suffix: tok/s", minimum=0),
                no_value=NO_VALUES,
                legend_below=True,
            ),
        ),
        (
            8,
            time_series(
                Text("Prompt tokens", "prompt token"),
                [Query(tokens_in(EACH), NAME)],
                about=Text(
                    "Per second, those found in the prefix cache included.",
                    "每秒，包含前缀缓存命中的部分。",
                ),
                form=Format(unit="suffix: tok/s", minimum=0),
                no_value=NO_VALUES,
                legend_below=True,
            ),
        ),
        (
            8,
            time_series(
                Text("Finished, aborted and retracted", "完成、中止与撤回的请求"),
                [
                    Query(
                        sum_by("pool", S.rate(c.REPLICA_REQUESTS)),
                        Text("finished, {{pool}}", "完成，{{pool}}"),
                        GREEN,
                    ),
                    Query(
                        sum_by("pool", S.rate(c.REPLICA_ABORTED)),
                        Text("aborted, {{pool}}", "中止，{{pool}}"),
                        ORANGE,
                    ),
                    Query(
                        sum_by("pool", S.rate(c.REPLICA_RETRACTED)),
                        Text("retracted, {{pool}}", "撤回，{{pool}}"),
                        RED,
                    ),
                ],
                about=Text(
                    "Requests a second. Aborted counts signals and is no rate of errors; "
                    "retracted ones went back into the queue because the KV cache was full.",
                    "每秒请求数。中止统计的是信号，并非错误率；撤回的请求因 KV "
                    "缓存已满而回到队列。",
                ),
                form=Format(unit="reqps", minimum=0),
                no_value=NO_VALUES,
                legend_below=True,
            ),
        ),
    ]


def latency(metric: Metric, title: Text, spread: Text, about: Text) -> list[tuple[int, Panel]]:
    """Quantiles of a latency by replica, and how it is spread over all of them."""
    return [
        (
            12,
            time_series(
                title,
                [
                    Query(S.quantile(0.95, metric, EACH), f"p95, {NAME}"),
                    Query(S.quantile(0.5, metric, EACH), f"p50, {NAME}", style=DASHED),
                ],
                about=about.plus(
                    " Quantiles are interpolated within the server's buckets.",
                    "分位数在服务端的桶内插值得到。",
                ),
                form=Format(unit="s", minimum=0),
                no_value=Text("No request in this time", "未见请求"),
            ),
        ),
        (
            12,
            heatmap(
                spread,
                S.buckets(metric),
                about=about.plus(
                    " Stronger colour: more a second in this bucket, see the scale.",
                    "颜色越强：落在该桶中的每秒次数越多，见下方色标。",
                ),
                no_value=Text("No request in this time", "未见请求"),
            ),
        ),
    ]


def time_to_first_token() -> list[tuple[int, Panel]]:
    return latency(
        c.REPLICA_TTFT,
        Text("Time to first token", "首 token 延迟"),
        Text("Time to first token, spread", "首 token 延迟分布"),
        Text("From a request's arrival to its first token.", "从请求到达到首个 token。"),
    )


def inter_token_latency() -> list[tuple[int, Panel]]:
    return latency(
        c.REPLICA_ITL,
        Text("Inter-token latency", "token 间延迟"),
        Text("Inter-token latency, spread", "token 间延迟分布"),
        Text("From one token to the next.", "相邻 token 之间的间隔。"),
    )


def time_in_queue() -> list[tuple[int, Panel]]:
    return latency(
        c.REPLICA_QUEUE_TIME,
        Text("Time in the queue", "排队时间"),
        Text("Time in the queue, spread", "排队时间分布"),
        Text("How long requests waited for a place.", "请求等待位置的时间。"),
    )


def jobs_of_pools() -> list[tuple[int, Panel]]:
    states = (
        (q.TERMINAL, Text("Terminal", "终态"), GREEN),
        (TrialState.RUNNING, Text("Running", "运行中"), BLUE),
        (TrialState.QUEUED, Text("Pending", "等待"), GREY),
    )
    return [
        (
            10,
            time_series(
                Text("Trials by state", "按状态的 trial"),
                [
                    Query(f"sum({q.pool_trials(S, state)})", title, colour)
                    for state, title, colour in states
                ],
                about=Text("Of all jobs that use the pools.", "使用这些服务池的全部作业。"),
                form=Format(minimum=0, decimals=0),
                stacked=True,
                fill=60,
                no_value=NO_POOL,
            ),
        ),
        (
            6,
            time_series(
                Text("Retries", "重试"),
                [Query(S.stepped(c.POOL_RETRIES), "{{pool}}", PURPLE)],
                about=Text(
                    "Retries that Harbor started in each interval, in the jobs that use the pools.",
                    "使用这些服务池的作业中，每个间隔内 Harbor 发起的重试。",
                ),
                form=Format(minimum=0, decimals=0),
                bars=True,
                no_value=NO_POOL,
            ),
        ),
        (
            8,
            table(
                Text("Runs that use them", "使用它们的运行"),
                [
                    Column(Text("Pool", "服务池"), shows="pool"),
                    Column(
                        Text("Run", "运行"),
                        S.latest(c.RUN_POOL_INFO),
                        shows="run",
                        links=columns.to_run(),
                    ),
                    Column(
                        Text("Its model", "模型一致"),
                        S.latest(c.POOL_MODEL_MATCH),
                        mappings=YES_NO,
                        cell="text",
                        width=100,
                        no_value=Text("not known", "未知"),
                    ),
                ],
                about=Text(
                    "Whether the pool serves the model that the run asks for.",
                    "服务池提供的是否就是该运行请求的模型。",
                ),
                no_value=Text("No run uses a pool", "未见使用服务池的运行"),
            ),
        ),
    ]
