"""What of a snapshot is published, as the operator says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType

from harborlight.ledger.faults import CAUSES
from harborlight.words import Words


class TaskNames(StrEnum):
    """How tasks are called in public: by their names, by pseudonyms, or by numbers."""

    SHOWN = "shown"
    HASHED = "hashed"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class RunWords:
    """What the operator has to say of a run; None: nothing of one's own.

    ``side``: what the run is called beside its reference. ``exclude``: why tasks are left out.
    """

    title: Words | None = None
    side: Words | None = None
    denominator: Words | None = None
    comparison: Words | None = None
    exclude: Mapping[str, Words] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Publication:
    """What is shown.

    ``runs``: globs over the labels of those that are shown; None: the configured ones, which
    ``words`` has by label, or all where there are none. ``hash_key``: what pseudonyms of tasks are
    made with. ``exception_types``: those that may be named. ``stale_after``: seconds.
    """

    title: Words | None = None
    runs: tuple[str, ...] | None = None
    words: Mapping[str, RunWords] = MappingProxyType({})
    task_names: TaskNames = TaskNames.SHOWN
    hash_key: bytes = b""
    exception_types: frozenset[str] = frozenset(CAUSES)
    stale_after: int = 120

    def shows(self, label: str) -> bool:
        """Whether the run of this label is public."""
        if self.runs is not None:
            return any(fnmatchcase(label, glob) for glob in self.runs)
        return not self.words or label in self.words
