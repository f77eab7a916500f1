"""The Grafana dashboards that Harborlight comes with, and what Grafana needs to know of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harborlight.package_files import PACKAGE, MissingFilesError, find

LANGUAGES: Final = ("en", "zh")


@dataclass(frozen=True, slots=True)
class DashboardFile:
    """One dashboard in one language. ``name``: its file's, without the suffix."""

    language: str
    name: str
    content: bytes

    @property
    def document(self) -> Mapping[str, Any]:
        """What Grafana calls the JSON model."""
        document: Mapping[str, Any] = json.loads(self.content)
        return document

    @property
    def uid(self) -> str:
        """By which Grafana knows it."""
        return str(self.document["uid"])

    @property
    def path(self) -> Path:
        """Where it lies in a folder of dashboards."""
        return Path(self.language) / f"{self.name}.json"


def dashboards(
    languages: Iterable[str] = LANGUAGES, *, package: Path = PACKAGE
) -> tuple[DashboardFile, ...]:
    """The dashboards in these languages. Raises MissingFilesError.

    ``package``: the folder of the package ``harborlight``.
    """
    folder = find("dashboards", "dashboards", "dashboards/generated", package=package)
    found = []
    for language in dict.fromkeys(languages):
        files = sorted((folder / language).glob("*.json"))
        if not files:
            raise MissingFilesError(f"no dashboards in {folder / language}")
        found += [DashboardFile(language, file.stem, file.read_bytes()) for file in files]
    return tuple(found)
