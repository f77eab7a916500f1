"""The Grafana dashboards that Harborlight comes with, and how they get into a folder."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

LANGUAGES: Final = ("en", "zh")

_HERE: Final = Path(__file__).resolve().parent


class NoDashboardsError(Exception):
    """The installation has no dashboards."""


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
    languages: Iterable[str] = LANGUAGES, *, package: Path = _HERE
) -> tuple[DashboardFile, ...]:
    """The dashboards in these languages. Raises NoDashboardsError.

    ``package``: the folder of the package ``harborlight``.
    """
    folder = _folder(package)
    found = []
    for language in dict.fromkeys(languages):
        files = sorted((folder / language).glob("*.json"))
        if not files:
            raise NoDashboardsError(f"no dashboards in {folder / language}")
        found += [DashboardFile(language, file.stem, file.read_bytes()) for file in files]
    return tuple(found)


def _folder(package: Path) -> Path:
    """In the package where it was built, beside it where it runs from its sources."""
    installed, sources = package / "dashboards", package.parent.parent
    if installed.is_dir():
        return installed
    generated = sources / "dashboards" / "generated"
    if (sources / "pyproject.toml").is_file() and generated.is_dir():
        return generated
    raise NoDashboardsError(
        f"this installation has no dashboards: expected them in {installed}, or, of a source "
        f"checkout, in {generated}"
    )


def write(files: Iterable[DashboardFile], folder: Path) -> Iterator[tuple[Path, bool]]:
    """Write each where it is not there already: its place, and whether it was written.

    A reader never sees half of one: Grafana looks into its folders all the time.
    """
    for file in files:
        place = folder / file.path
        try:
            same = place.read_bytes() == file.content
        except FileNotFoundError:
            same = False
        if not same:
            place.parent.mkdir(parents=True, exist_ok=True)
            _replace(place, file.content)
        yield place, not same


def _replace(place: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{place.stem}-", suffix=".tmp", dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o644)  # for Grafana to read, which is somebody else
            file.write(content)
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
