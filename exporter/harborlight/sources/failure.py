"""Why a server did not say what it was asked, in words that hold nothing of its answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Trouble(StrEnum):
    """What kind of failure it is.

    ``not_found``: it has no such endpoint (HTTP 404). ``wrong_kind``: what it answered is not of
    the kind of server that it should be. ``failed``: it did not answer, or not in a way that can
    be read.
    """

    FAILED = "failed"
    NOT_FOUND = "not_found"
    WRONG_KIND = "wrong_kind"
    UNAUTHORIZED = "unauthorized"


@dataclass(frozen=True, slots=True)
class Failure:
    """``reason``: fixed words such as ``timed out`` or ``HTTP 500``."""

    trouble: Trouble
    reason: str
    timed_out: bool = False


class Unreadable(Exception):  # noqa: N818 - what it says of an answer
    """There is no answer, or none that can be read, or not as the server's that was asked."""

    def __init__(
        self, reason: str, trouble: Trouble = Trouble.FAILED, *, timed_out: bool = False
    ) -> None:
        super().__init__(reason)
        self.failure = Failure(trouble, reason, timed_out)
