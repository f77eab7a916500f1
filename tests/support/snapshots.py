"""Recorded jobs, played back into a directory one snapshot at a time."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class RecordedFile:
    """One file of one snapshot; ``content`` is where its bytes are kept."""

    size: int
    mtime_ns: int
    content: Path


@dataclass(frozen=True)
class Snapshot:
    """A job directory at one moment (seconds since the epoch)."""

    time: float
    files: dict[str, RecordedFile]
    directories: frozenset[str]

    @property
    def exists(self) -> bool:
        """Whether there was anything in the job directory, or a directory at all."""
        return bool(self.files or self.directories)


class Sequence:
    """The snapshots of one recorded job, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name

    @cached_property
    def snapshots(self) -> list[Snapshot]:
        """All of them, idle ones included."""
        with (self.folder / "index.jsonl").open() as index:
            return [self._snapshot(json.loads(line)) for line in index]

    def _snapshot(self, line: dict[str, object]) -> Snapshot:
        entries, time = line["files"], line["t"]
        assert isinstance(entries, dict)
        assert isinstance(time, float)
        files: dict[str, RecordedFile] = {}
        directories = set()
        for path, entry in entries.items():
            if entry is None:
                directories.add(path.rstrip("/"))
            else:
                size, mtime_ns, key = entry
                files[path] = RecordedFile(size, mtime_ns, self.folder / "objects" / key)
        return Snapshot(time, files, frozenset(directories))

    def distinct(self) -> list[Snapshot]:
        """Those that differ from the one before, without the wait for the job to appear."""
        kept: list[Snapshot] = []
        for snapshot in self.snapshots:
            if not snapshot.exists and not kept:
                continue
            before = kept[-1] if kept else None
            if before is None or (snapshot.files, snapshot.directories) != (
                before.files,
                before.directories,
            ):
                kept.append(snapshot)
        return kept


class Playback:
    """A job directory that moves from snapshot to snapshot.

    Only what differs is touched: files are created, overwritten in place (as Harbor
    does) or deleted, and get their recorded modification times.
    """

    def __init__(self, job: Path) -> None:
        self.job = job
        self._current = Snapshot(0.0, {}, frozenset())

    def show(self, snapshot: Snapshot) -> None:
        """Make the directory look as it did then."""
        if not snapshot.exists:
            shutil.rmtree(self.job, ignore_errors=True)
            self._current = snapshot
            return
        before = self._current
        for path in before.files.keys() - snapshot.files.keys():
            (self.job / path).unlink()
        for path in sorted(before.directories - snapshot.directories, reverse=True):
            (self.job / path).rmdir()
        self.job.mkdir(parents=True, exist_ok=True)
        for path in sorted(snapshot.directories - before.directories):
            (self.job / path).mkdir(parents=True)
        for path, file in snapshot.files.items():
            if before.files.get(path) != file:
                self._write(self.job / path, file)
        self._current = snapshot

    @staticmethod
    def _write(path: Path, file: RecordedFile) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content.read_bytes())
        os.utime(path, ns=(file.mtime_ns, file.mtime_ns))

    def play(self, *sequences: Sequence) -> Iterator[Snapshot]:
        """Show the distinct snapshots of one recording after another."""
        for sequence in sequences:
            for snapshot in sequence.distinct():
                self.show(snapshot)
                yield snapshot
