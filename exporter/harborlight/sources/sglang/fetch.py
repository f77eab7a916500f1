"""Fetching a metrics page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harborlight.sources.failure import Trouble, Unreadable
from harborlight.sources.fetch import Access, answered, body

MAX_PAGE_BYTES: Final = 32 * 1024 * 1024
"""A scanner that leaves thousands of paths in a server's labels makes pages of megabytes."""

_PAGE_TYPES: Final = ("text/plain", "application/openmetrics-text")


def fetch_page(access: Access, url: str, consume: Callable[[bytes], None], deadline: float) -> None:
    """GET a metrics page, handed over piece by piece. Raises Unreadable, also out of ``consume``.

    ``deadline``: on the monotonic clock, for all of it.
    """
    # Without colons in the names, which other types are answered with.
    accept = "text/plain;version=0.0.4"
    with answered(access, url, accept, deadline) as (response, guard):
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind not in _PAGE_TYPES:
            raise Unreadable("the answer is no metrics page", Trouble.WRONG_KIND)
        endless = response.raw.length_remaining is None and not response.raw.chunked
        last = b"\n"
        for chunk in body(response, MAX_PAGE_BYTES, guard):
            consume(chunk)
            last = chunk
        if endless and not last.endswith(b"\n"):
            # Its end is wherever the connection ended: in the midst of a number, perhaps.
            raise Unreadable("the answer broke off")
