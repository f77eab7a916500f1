"""Who a process is, so that it can be told later, on the same host, whether it lives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypedDict

_PROC = Path("/proc")


class Identity(TypedDict):
    """A process and where its number holds.

    ``started``: clock ticks after the boot; a number that was given away since has another one.
    """

    boot: str
    namespace: str
    pid: int
    started: int


def own_identity(proc: Path = _PROC) -> Identity:
    """This process; ``boot`` is "" where there is no ``/proc`` to tell."""
    pid = os.getpid()
    try:
        return Identity(
            boot=_boot(proc), namespace=_namespace(proc), pid=pid, started=_started(proc, pid)
        )
    except (OSError, ValueError, IndexError):
        return Identity(boot="", namespace="", pid=pid, started=0)


def lives(identity: Identity, proc: Path = _PROC) -> bool | None:
    """Whether the process is still there; None where that cannot be told from here."""
    try:
        if (identity["boot"], identity["namespace"]) != (_boot(proc), _namespace(proc)):
            return None
    except OSError:
        return None
    try:
        return _started(proc, identity["pid"]) == identity["started"]
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return None if _is_hidden(identity["pid"]) else False
    except (OSError, ValueError, IndexError):
        return None


def _is_hidden(pid: int) -> bool:
    """Whether a process that ``/proc`` does not show is there: it may hide those of others."""
    try:
        os.kill(pid, 0)  # no signal, only the question
    except PermissionError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def _boot(proc: Path) -> str:
    return (proc / "sys/kernel/random/boot_id").read_text("ascii").strip()


def _namespace(proc: Path) -> str:
    return os.readlink(proc / "self/ns/pid")


def _started(proc: Path, pid: int) -> int:
    """The 22nd field; the second, a name in brackets, may hold anything. A zombie is gone."""
    fields = (proc / str(pid) / "stat").read_text("latin-1").rpartition(")")[2].split()
    if fields[0] in ("Z", "X"):
        raise ProcessLookupError
    return int(fields[19])
