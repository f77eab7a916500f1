"""Which processes on this host hold a job's log open: the only proof that a job lives."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

_ACCESS_MODE = os.O_RDONLY | os.O_WRONLY | os.O_RDWR


class LogHolders:
    """Finds the writers of given log files through ``/proc/*/fd``.

    A whole scan costs a readlink for every open file of the host, so a known holder is asked
    first, and only logs without one make a scan.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._known: dict[tuple[int, int], str] = {}

    def look(self, logs: Iterable[Path]) -> dict[Path, bool | None]:
        """For each log: True held for writing, False not, None where it cannot be told.

        It cannot be told where there is no such file or no ``/proc``, or where the log belongs to
        another user whose processes this one may not inspect.
        """
        answers: dict[Path, bool | None] = {}
        wanted: dict[tuple[int, int], list[Path]] = {}
        for log in logs:
            try:
                status = os.stat(log)
            except OSError:
                answers[log] = None
                continue
            identity = (status.st_dev, status.st_ino)
            held = self._known.get(identity)
            if held is not None and self._holds(held, identity):
                answers[log] = True
                continue
            self._known.pop(identity, None)
            wanted.setdefault(identity, []).append(log)
            own = os.geteuid() in (0, status.st_uid)
            answers[log] = False if own and self._proc.is_dir() else None
        if wanted:
            for identity, descriptor in self._scan(wanted).items():
                self._known[identity] = descriptor
                for log in wanted[identity]:
                    answers[log] = True
        return answers

    def _scan(self, wanted: Mapping[tuple[int, int], object]) -> dict[tuple[int, int], str]:
        found: dict[tuple[int, int], str] = {}
        try:
            processes = [name for name in os.listdir(self._proc) if name.isdigit()]
        except OSError:
            return found
        for process in processes:
            folder = f"{self._proc}/{process}/fd"
            try:
                descriptors = os.listdir(folder)
            except OSError:
                continue
            for number in descriptors:
                descriptor = f"{folder}/{number}"
                try:
                    target = os.readlink(descriptor)
                except OSError:
                    continue
                if not target.removesuffix(" (deleted)").endswith("/job.log"):
                    continue
                identity = _identity(descriptor)
                if (
                    identity is not None
                    and identity in wanted
                    and self._holds(descriptor, identity)
                ):
                    found[identity] = descriptor
        return found

    def _holds(self, descriptor: str, identity: tuple[int, int]) -> bool:
        """Whether the descriptor still is this file, open for writing (not a reader's ``tail``)."""
        if _identity(descriptor) != identity:
            return False
        folder, _, number = descriptor.rpartition("/fd/")
        try:
            info = Path(f"{folder}/fdinfo/{number}").read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            return False
        for line in info.splitlines():
            name, _, value = line.partition(":")
            if name == "flags":
                return int(value, 8) & _ACCESS_MODE != os.O_RDONLY
        return False


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
