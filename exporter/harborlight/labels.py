"""Text from files as label values: bounded, printable, one line."""

from __future__ import annotations

import hashlib
import re

MAX_LENGTH = 120

_PLACE = re.compile(r"^(/|~/|\.{1,2}/|\\\\|[A-Za-z]:[/\\])|//")
"""A path, or an address (or a model server's path behind its name)."""


def safe_label(text: str) -> str:
    """``text`` as a label value.

    Control characters and lone surrogates are replaced, of a path or an address only the last
    component is left (agents, models and datasets can be named by one), and it has at most
    MAX_LENGTH characters; what was changed ends in a short hash, so that two stay two.
    """
    shown = "".join(c if c.isprintable() else "?" for c in text)
    if _PLACE.search(shown):
        shown = _last_component(shown)
    if shown != text or len(shown) > MAX_LENGTH:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        shown = f"{shown[: MAX_LENGTH - 9]}~{digest}"
    return shown


def _last_component(place: str) -> str:
    """Of a path its last part; of an address its path's, never the host."""
    _, address, rest = place.partition("://")
    if address:
        place = rest.partition("/")[2]
    return re.split(r"[/\\]", place.rstrip("/\\"))[-1] or "unnamed"
