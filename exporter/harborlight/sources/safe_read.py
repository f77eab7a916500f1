"""Reading files that somebody else is rewriting.

Harbor truncates and writes its files in place, so a read can meet an empty file,
half a file, or a new beginning with an old tail.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

MIB = 1024 * 1024


class Signature(NamedTuple):
    """What a file looked like when it was read; equal signatures, equal contents."""

    size: int
    mtime_ns: int
    inode: int


class ReadError(Exception):
    """A file is there but cannot be read as it is; ``reason`` says why, path left out.

    ``passing``: the operating system would not give it. That may end (a permission granted, a
    file server back) without the file changing, so it has to be tried again.
    """

    def __init__(
        self, reason: str, signature: Signature | None = None, *, passing: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.signature = signature
        self.passing = passing


def signature_of(status: os.stat_result) -> Signature:
    """The signature in a file's status."""
    return Signature(status.st_size, status.st_mtime_ns, status.st_ino)


def look(path: str | Path) -> Signature | None:
    """The file's signature, or None where there is none to be had."""
    try:
        return signature_of(os.stat(path))
    except OSError:
        return None


def read_stable(path: str | Path, limit: int) -> tuple[bytes, Signature]:
    """The bytes of a regular file that stood still while it was read.

    Status, one read of size + 1, status again. Raises FileNotFoundError where there
    is no file, ReadError where it is empty, larger than ``limit`` bytes, not a regular
    file, not permitted, or changed under the read.
    """
    try:
        # O_NONBLOCK: opening a FIFO that was put in a file's place must not hang.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:
        raise FileNotFoundError(str(error)) from None
    except OSError as error:
        raise ReadError(os.strerror(error.errno or 0), passing=True) from None
    try:
        before = os.fstat(handle)
        signature = signature_of(before)
        if not stat.S_ISREG(before.st_mode):
            raise ReadError("not a regular file", signature)
        if before.st_size > limit:
            raise ReadError(f"larger than {limit // MIB} MiB", signature)
        data = os.read(handle, before.st_size + 1)
        after = os.fstat(handle)
    except OSError as error:
        raise ReadError(os.strerror(error.errno or 0), passing=True) from None
    finally:
        os.close(handle)
    if len(data) != before.st_size or signature_of(after) != signature:
        raise ReadError("changed while it was read", signature_of(after))
    if not data:
        raise ReadError("empty", signature)
    return data, signature
