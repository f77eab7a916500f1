"""The feed as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from harborlight.views.feed.model import IndexFeed, RunFeed
from harborlight.words import Language

ASSETS: Final[Mapping[str, tuple[str, bytes]]] = MappingProxyType({})
"""Content type and body of the files that every page uses, by name."""


def render_run(feed: RunFeed, language: Language, index: IndexFeed | None) -> str:
    """A run's page; ``index``: the list that it is one of, where there are several."""
    raise NotImplementedError


def render_index(feed: IndexFeed, language: Language) -> str:
    """The page of the list of runs."""
    raise NotImplementedError
