"""Reading on in a text file that somebody else appends to."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Final

_CHUNK_BYTES: Final = 16 * 1024 * 1024


class Tail:
    """The lines of a growing file, each once.

    ``max_line`` in bytes: what is longer is left out. A file that was replaced or cut is read from
    its beginning; ``beginnings`` counts how often that was done, the first time included.
    """

    def __init__(self, path: str, max_line: int) -> None:
        self._path = path
        self._max_line = max_line
        self._inode = 0
        self._offset = 0
        self._rest = b""
        self.beginnings = 0

    def read_on(self) -> Iterator[bytes]:
        """The whole lines beyond what was read, up to what the file holds at the beginning.

        Nothing where there is no regular file, or it cannot be read.
        """
        try:
            # O_NONBLOCK: opening a FIFO that was put in the file's place must not hang.
            file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                return
            if status.st_ino != self._inode or status.st_size < self._offset:
                self.beginnings += 1
                self._inode, self._offset, self._rest = status.st_ino, 0, b""
            while self._offset < status.st_size:
                data = os.pread(file, _CHUNK_BYTES, self._offset)
                if not data:
                    return  # cut while it was read: the next reading begins anew
                yield from self._lines(data)
        except OSError:
            return
        finally:
            os.close(file)

    def _lines(self, data: bytes) -> Iterator[bytes]:
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self._max_line:
            self._rest = b"?" * (self._max_line + 1)  # what it goes on with is no line, either
        yield from (line for line in lines if line and len(line) <= self._max_line)
