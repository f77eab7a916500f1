"""Files that the package comes with: where they lie, and how they get into somebody's folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

PACKAGE: Final = Path(__file__).resolve().parent


class MissingFilesError(Exception):
    """The installation lacks files that it should have come with."""


class PackageFile(Protocol):
    """One of them. ``path``: where it is to lie in the folder that it is written to."""

    @property
    def path(self) -> Path: ...

    @property
    def content(self) -> bytes: ...


def find(what: str, installed: str, sources: str, *, package: Path = PACKAGE) -> Path:
    """The folder with them: in the package where it was built, else in the source checkout.

    ``what``: how an error calls them. ``installed`` and ``sources`` are relative to the package
    and to the checkout. Raises MissingFilesError.
    """
    built, checkout = package / installed, package.parent.parent
    if built.is_dir():
        return built
    generated = checkout / sources
    if (checkout / "pyproject.toml").is_file() and generated.is_dir():
        return generated
    raise MissingFilesError(
        f"this installation has no {what}: expected them in {built}, or, of a source checkout, in "
        f"{generated}"
    )


def write(files: Iterable[PackageFile], folder: Path) -> Iterator[tuple[Path, bool]]:
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
            os.fchmod(handle, 0o644)  # for others to read: Grafana or Prometheus
            file.write(content)
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
