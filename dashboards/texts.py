"""Texts in both languages, and the words that label values are shown by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

from harborlight.ledger.faults import Boundary, Cause, Phase
from harborlight.ledger.jobs import JobState
from harborlight.ledger.ownership import AttemptState, Resolution
from harborlight.readings import ReplicaState
from harborlight.words import Language


class Text(str):
    """A text in both languages. As a plain string it is the English one."""

    __slots__ = ("zh",)

    zh: str

    def __new__(cls, en: str, zh: str) -> Self:
        text = super().__new__(cls, en)
        text.zh = zh
        return text

    def in_language(self, language: Language) -> str:
        return self.zh if language is Language.ZH else str(self)

    def plus(self, en: str, zh: str | None = None) -> Text:
        """This text with another one behind it."""
        return Text(self + en, self.zh + (en if zh is None else zh))


def localised(value: Any, language: Language) -> Any:
    """Grafanalib's objects as plain JSON values, each ``Text`` in one language."""
    if isinstance(value, Text):
        return value.in_language(language)
    if hasattr(value, "to_json_data"):
        return localised(value.to_json_data(), language)
    if isinstance(value, dict):
        return {localised(k, language): localised(v, language) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [localised(item, language) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the values that a label or a code can have, and how it is shown.

    The sign in front of a text tells it apart where colours do not.
    """

    value: str | int
    text: Text
    color: str


GREEN, BLUE, ORANGE, RED = "semi-dark-green", "blue", "dark-orange", "semi-dark-red"
YELLOW, PURPLE, GREY = "dark-yellow", "semi-dark-purple", "#8a8f98"

ATTEMPT_STATES: Final = (
    Choice(AttemptState.SCORED, Text("Scored", "已计分"), GREEN),
    Choice(AttemptState.RUNNING, Text("Running", "运行中"), BLUE),
    Choice(AttemptState.QUEUED, Text("Queued", "排队中"), GREY),
    Choice(AttemptState.FAULTED, Text("Faulted", "故障"), RED),
    Choice(AttemptState.UNPLANNED, Text("Unplanned", "未安排"), PURPLE),
)

JOB_STATES: Final = (
    Choice(JobState.LIVE, Text("▶ live", "▶ 运行中"), GREEN),
    Choice(JobState.UNKNOWN, Text("? cannot be told", "? 无法判断"), YELLOW),
    Choice(JobState.INTERRUPTED, Text("✗ interrupted", "✗ 已中断"), RED),
    Choice(JobState.CANCELLED, Text("■ cancelled", "■ 已取消"), ORANGE),
    Choice(JobState.FINISHED, Text("✓ finished", "✓ 已结束"), GREY),
)
"""The liveliest first."""

REPLICA_STATES: Final = (
    Choice(ReplicaState.UP, Text("✓ up", "✓ 正常"), GREEN),
    Choice(ReplicaState.FROZEN, Text("✗ frozen", "✗ 卡死"), PURPLE),
    Choice(ReplicaState.INCOMPLETE, Text("◐ incomplete", "◐ 不完整"), ORANGE),
    Choice(ReplicaState.UNREACHABLE, Text("✗ unreachable", "✗ 无法连接"), RED),
    Choice(ReplicaState.NO_METRICS, Text("? no metrics", "? 无指标"), ORANGE),
    Choice(ReplicaState.UNAUTHORIZED, Text("? unauthorized", "? 未授权"), ORANGE),
)

CAUSES: Final = (
    Choice(Cause.CONTAINER, Text("Container", "容器"), ORANGE),
    Choice(Cause.SERVING, Text("Model serving", "模型服务"), RED),
    Choice(Cause.AGENT, Text("Agent", "Agent 自身"), PURPLE),
    Choice(Cause.VERIFIER, Text("Verifier", "Verifier 自身"), YELLOW),
    Choice(Cause.CANCELLED, Text("Cancelled", "被取消"), GREY),
    Choice(Cause.INTERRUPTED, Text("Interrupted", "进程中断"), "#5a6270"),
    Choice(Cause.UNREADABLE, Text("Unreadable", "无法读取"), "#b877d9"),
)

PHASES: Final = (
    Choice(Phase.ENVIRONMENT, Text("Environment", "环境"), ORANGE),
    Choice(Phase.AGENT, Text("Agent", "Agent 执行"), BLUE),
    Choice(Phase.VERIFIER, Text("Verifier", "Verifier 评分"), YELLOW),
    Choice(Phase.UNKNOWN, Text("Not known", "未知"), GREY),
)

BOUNDARIES: Final = (
    Choice(Boundary.REGRADE, Text("Regrade", "重新评分"), YELLOW),
    Choice(Boundary.RESUME, Text("Resume", "续跑"), BLUE),
    Choice(Boundary.RERUN, Text("Rerun", "重跑"), ORANGE),
)

RESOLUTIONS: Final = (
    Choice(Resolution.OPEN, Text("Open", "未解决"), RED),
    Choice(Resolution.PENDING, Text("Pending", "待补上"), BLUE),
    Choice(Resolution.RETRIED, Text("Retried", "已自动重试"), "light-green"),
    Choice(Resolution.REGRADED, Text("Regraded", "已重新评分"), GREEN),
    Choice(Resolution.REPLAYED, Text("Replayed", "已补跑"), "dark-green"),
    Choice(Resolution.GIVEN_UP, Text("Given up", "已放弃"), GREY),
)

RUN_STATES: Final = (
    Choice(1, Text("✓ complete", "✓ 已完成"), GREEN),
    Choice(2, Text("▶ running", "▶ 运行中"), BLUE),
    Choice(3, Text("… waiting", "… 等待中"), GREY),
    Choice(4, Text("■ stopped short", "■ 未完成即停"), RED),
    Choice(5, Text("? target unknown", "? 目标未知"), YELLOW),
)
"""Codes of ``queries.run_state``."""

TASK_STATES: Final = (
    Choice(1, Text("✓ complete", "✓ 已完成"), GREEN),
    Choice(2, Text("▶ running", "▶ 运行中"), BLUE),
    Choice(3, Text("✗ fault open", "✗ 故障未补"), RED),
    Choice(4, Text("… queued", "… 排队中"), GREY),
    Choice(5, Text("– unplanned", "– 未安排"), PURPLE),
)
"""Codes of ``queries.task_state``."""

NO_END: Final = (
    Choice(-1, Text("✓ complete", "✓ 已完成"), GREEN),
    Choice(-2, Text("… too early", "… 为时过早"), GREY),
    Choice(-3, Text("■ nothing runs", "■ 无运行中"), ORANGE),
)
"""Codes of ``queries.seconds_left``: why there is no estimated end."""

NOISE: Final = (
    Choice(1, Text("▲ better, beyond noise", "▲ 更好，超出噪声"), GREEN),
    Choice(2, Text("▼ worse, beyond noise", "▼ 更差，超出噪声"), RED),
    Choice(3, Text("≈ within noise", "≈ 在噪声之内"), GREY),
    Choice(4, Text("▲ ahead so far", "▲ 目前领先"), BLUE),
    Choice(5, Text("▼ behind so far", "▼ 目前落后"), BLUE),
    Choice(6, Text("… too early to say", "… 尚不能判断"), GREY),
    Choice(7, Text("? no interval", "? 无区间"), GREY),
)
"""Codes of ``queries.beyond_noise``."""

YES_NO: Final = (
    Choice(1, Text("✓ yes", "✓ 是"), GREEN),
    Choice(0, Text("✗ no", "✗ 否"), RED),
)


NONE: Final = (Choice(0, Text("✓ none", "✓ 无"), GREEN),)
ALL_UP: Final = (Choice(0, Text("✓ all up", "✓ 全部正常"), GREEN),)
"""What a count of things that are wrong says when there is none."""


def coded(choices: Iterable[Choice]) -> tuple[Choice, ...]:
    """The same choices under the codes 1, 2, … that a query gives them."""
    return tuple(Choice(i, choice.text, choice.color) for i, choice in enumerate(choices, 1))
