"""The dashboards' two languages beside each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

TEXTS: Final = frozenset(
    {"title", "description", "label", "legendFormat", "noValue", "text", "content", "name"}
    | {
        "titleFormat",
        "textFormat",
        "axisLabel",
        "displayName",
        "custom.axisLabel",
        "custom.fillBelowTo",
    }
    | {"unit"}
)
"""Keys, and options of overrides, under which there are words for people."""

_FIELDS: Final = re.compile(r"\.renameByName\.[^.]+$|\.matcher\.options$|\.sort\[\d+\]\.field$")
"""Where a field's name stands, which is such a text, too, if it was given one."""

UNTRANSLATED: Final = frozenset(
    {
        # Proper nouns.
        *("Agent", "Harbor", "Harborlight", "Python", "SGLang"),
        # Words of Harbor and of model serving that Chinese users say in English.
        *("exporter", "prompt", "token", "tok", "trial", "verdict", "KV", "TP", "PP", "DP"),
        # Quantiles, "a second", percentage points.
        *("p", "s", "pp"),
    }
)
"""Words of which a Chinese text may consist."""

THEIR_OWN: Final = frozenset(
    {
        # The links from either language to the other are in the language that they lead to.
        ("中文", "English"),
        # Grafana shows its own word for a variable's `$__all`.
        ("All", "All"),
    }
)
"""Texts, in English and in Chinese, that are as they are."""

_CHINESE: Final = re.compile(r"[\u3400-\u9fff]")
_LABEL: Final = re.compile(r"\{\{\s*\w+\s*\}\}|\$\{[^}]*\}|\$\w+|__auto")
_WORD: Final = re.compile(r"[^\W\d_]+")
_UNIT: Final = re.compile(r"(suffix|prefix):(.*)")


def differences(en: Any, zh: Any, place: str = "", key: str = "") -> Iterator[str]:
    """Where the one is built differently from the other, and texts that are in a wrong language.

    ``key``: under which it stands.
    """
    match en, zh:
        case {"id": str(option), "value": one}, {"id": str(same), "value": other} if option == same:
            yield from differences(one, other, f"{place}.{option}", option)
        case dict(), dict():
            for name in sorted(en.keys() ^ zh.keys()):
                yield f"{place}.{name}: in one language only"
            for name in sorted(en.keys() & zh.keys()):
                yield from differences(en[name], zh[name], f"{place}.{name}", name)
        case list(), list():
            if len(en) != len(zh):
                yield f"{place}: {len(en)} in English, {len(zh)} in Chinese"
            for i, (one, other) in enumerate(zip(en, zh, strict=False)):
                yield from differences(one, other, f"{place}[{i}]", key)
        case str(), str() if key == "unit":
            yield from _units(en, zh, place)
        case str(), str() if key in TEXTS and not _is_variable(place):
            yield from _texts(en, zh, place)
        case str(), str() if _FIELDS.search(place) and en != zh:
            yield from _texts(en, zh, place)
        case _:
            if type(en) is not type(zh) or _neutral(en) != _neutral(zh):
                yield f"{place}: {en!r} in English, {zh!r} in Chinese"


def _is_variable(place: str) -> bool:
    """The name of a variable, which queries use: it is no text."""
    return re.search(r"\.templating\.list\[\d+\]\.name$", place) is not None


def _units(en: str, zh: str, place: str) -> Iterator[str]:
    """Grafana translates its own units; a date's pattern is either language's own."""
    one, other = _UNIT.fullmatch(en), _UNIT.fullmatch(zh)
    if one and other and one[1] == other[1]:
        yield from _texts(one[2], other[2], place)
    elif en != zh and not (en.startswith("time:") and zh.startswith("time:")):
        yield f"{place}: {en!r} in English, {zh!r} in Chinese"


def _texts(en: str, zh: str, place: str) -> Iterator[str]:
    if (en, zh) in THEIR_OWN or (zh, en) in THEIR_OWN:
        return
    if _CHINESE.search(en):
        yield f"{place}: {en!r} is not English"
    if sorted(_LABEL.findall(en)) != sorted(_LABEL.findall(zh)):
        yield f"{place}: {en!r} and {zh!r} name other labels"
    words = set(_WORD.findall(_LABEL.sub("", zh)))
    if bool(words) != bool(_WORD.findall(_LABEL.sub("", en))):
        yield f"{place}: {en!r} in English, {zh!r} in Chinese"
    if not _CHINESE.search(zh) and not words <= UNTRANSLATED:
        yield f"{place}: {zh!r} is not Chinese"


def _neutral(value: Any) -> Any:
    """Without the language in identifiers: those of dashboards, their tags and links to them."""
    if not isinstance(value, str):
        return value
    return re.sub(r"\b(harborlight(?:-\w+)?)-(en|zh)\b", r"\1", value)
