"""The live page's files as of one snapshot: made when asked for, each once."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final

from harborlight.snapshot import Snapshot
from harborlight.views.feed.build import index_feed, run_feed, run_ids
from harborlight.views.feed.model import IndexFeed, RunFeed
from harborlight.views.feed.publication import Publication
from harborlight.views.feed.schema import schema
from harborlight.views.page.render import ASSETS, render_index, render_run
from harborlight.words import Language

UNCHANGED_SECONDS: Final = 30
"""What would show the same is not made anew sooner, so that readers keep what they have."""

_HTML: Final = "text/html; charset=utf-8"
_JSON: Final = "application/json"

SCHEMA_NAME: Final = "feed.schema.json"
_INDEX: Final = ""
"""Stands for the list of runs where a run's id is expected."""

type _Feed = IndexFeed | RunFeed


@dataclass(frozen=True)
class File:
    """One file. ``lasting``: it changes with Harborlight's version only."""

    name: str
    content_type: str
    body: bytes
    lasting: bool = False

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hexadecimal."""
        return hashlib.sha256(self.body).hexdigest()

    @cached_property
    def etag(self) -> str:
        return f'"{self.digest[:32]}"'

    @cached_property
    def gzipped(self) -> bytes:
        # Without the time, so that equal files are equal.
        return gzip.compress(self.body, compresslevel=6, mtime=0)


@dataclass(frozen=True)
class Made:
    """Documents by run (or list), and files by name and the document that they are of."""

    feeds: dict[str, _Feed] = field(default_factory=dict)
    files: dict[tuple[str, int], File] = field(default_factory=dict)


class Site:
    """All files of the page, by name; safe to use from several threads.

    ``index.html`` is the list of runs, or where one run is shown that run's page. ``before``: what
    the site before had made, which does for a while where it would be made just so again.
    """

    def __init__(
        self, snapshot: Snapshot, publication: Publication, before: Made | None = None
    ) -> None:
        self.snapshot = snapshot
        self.publication = publication
        self._labels = {run_id: label for label, run_id in run_ids(snapshot, publication).items()}
        self._lock = threading.RLock()
        self._before = before or Made()
        self._files: dict[str, File] = {}
        self.made = Made()
        self._makers: dict[str, Callable[[str], File]] = dict.fromkeys(ASSETS, _asset)
        self._makers[SCHEMA_NAME] = _schema
        self._makers["feed.json"] = partial(self._document, _INDEX)
        for language in Language:
            front = next(iter(self._labels)) if len(self._labels) == 1 else _INDEX
            self._makers[page_name("index", language)] = partial(self._page, front, language)
        for run_id in self._labels:
            self._makers[f"run-{run_id}.json"] = partial(self._document, run_id)
            for language in Language:
                name = page_name(f"run-{run_id}", language)
                self._makers[name] = partial(self._page, run_id, language)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all files, those last that lead to others."""
        return tuple(
            sorted(self._makers, key=lambda n: (n.startswith("index"), n not in ASSETS, n))
        )

    def __contains__(self, name: str) -> bool:
        return name in self._makers

    def has_made(self, name: str) -> bool:
        """Whether ``file`` returns at once."""
        return name in self._files or name not in self._makers

    def file(self, name: str) -> File | None:
        """The file of this name; None where there is none."""
        made = self._files.get(name)
        if made is None and name in self._makers:
            with self._lock:
                made = self._files.get(name) or self._makers[name](name)
                self._files[name] = made
        return made

    def index(self) -> IndexFeed:
        """The list of runs."""
        feed = self._feed(_INDEX)
        assert isinstance(feed, IndexFeed)
        return feed

    def runs(self) -> tuple[RunFeed, ...]:
        """Every run that is shown."""
        return tuple(self._run(run_id) for run_id in self._labels)

    def _run(self, run_id: str) -> RunFeed:
        feed = self._feed(run_id)
        assert isinstance(feed, RunFeed)
        return feed

    def _feed(self, run_id: str) -> _Feed:
        with self._lock:
            if run_id not in self.made.feeds:
                fresh = self._fresh(run_id)
                before = self._before.feeds.get(run_id)
                self.made.feeds[run_id] = before if before and _does(before, fresh) else fresh
            return self.made.feeds[run_id]

    def _fresh(self, run_id: str) -> _Feed:
        if run_id == _INDEX:
            return index_feed(self.snapshot, self.publication)
        made = run_feed(self._labels[run_id], self.snapshot, self.publication)
        assert made is not None
        return made

    def _document(self, run_id: str, name: str) -> File:
        feed = self._feed(run_id)
        return self._once(
            name, feed, lambda: File(name, _JSON, f"{feed.model_dump_json()}\n".encode())
        )

    def _page(self, run_id: str, language: Language, name: str) -> File:
        feed = self._feed(run_id)

        def make() -> File:
            if isinstance(feed, RunFeed):
                html = render_run(feed, language, self.index() if len(self._labels) > 1 else None)
            else:
                html = render_index(feed, language)
            return File(name, _HTML, html.encode())

        return self._once(name, feed, make)

    def _once(self, name: str, feed: _Feed, make: Callable[[], File]) -> File:
        """The file, made anew only of another document than before."""
        key = (name, id(feed))
        made = self._before.files.get(key) or make()
        self.made.files[key] = made
        return made


def page_name(stem: str, language: Language) -> str:
    """The file name of a page in a language: English is the plain one."""
    return f"{stem}.html" if language is Language.EN else f"{stem}.{language}.html"


def _does(before: _Feed, fresh: _Feed) -> bool:
    """Whether a document from before says what a fresh one does, and is not too old for it."""
    return (
        0 <= fresh.as_of - before.as_of < UNCHANGED_SECONDS
        and before.model_copy(update={"as_of": fresh.as_of}) == fresh
    )


def _asset(name: str) -> File:
    content_type, body = ASSETS[name]
    return File(name, content_type, body, lasting=True)


def _schema(name: str) -> File:
    return File(name, _JSON, f"{json.dumps(schema(), indent=1)}\n".encode(), lasting=True)


class LivePage:
    """The newest site. ``snapshot`` and ``publication`` say what it is to be made of."""

    def __init__(
        self, snapshot: Callable[[], Snapshot | None], publication: Callable[[], Publication]
    ) -> None:
        self._snapshot = snapshot
        self._publication = publication
        self._site: Site | None = None
        self._lock = threading.Lock()

    def site(self) -> Site | None:
        """The site of the newest snapshot; None before there is one. Cheap: files come later."""
        snapshot, publication = self._snapshot(), self._publication()
        if snapshot is None:
            return None
        with self._lock:
            site = self._site
            if site is None or site.snapshot is not snapshot or site.publication != publication:
                before = site.made if site and site.publication == publication else None
                self._site = site = Site(snapshot, publication, before)
            return site
