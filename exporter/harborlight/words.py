"""Text in the two languages of pages."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Language(StrEnum):
    """The languages that a page can be read in."""

    EN = "en"
    ZH = "zh"


class Words(NamedTuple):
    """One text in both languages."""

    en: str
    zh: str

    def in_language(self, language: Language) -> str:
        return self.zh if language is Language.ZH else self.en


def same(text: str) -> Words:
    """A text that reads alike in both: a name, or what was given in one language only."""
    return Words(text, text)
