"""Text from files as label values: bounded, printable, one line."""

from __future__ import annotations

import hashlib

MAX_LENGTH = 120


def safe_label(text: str) -> str:
    """``text`` as a label value.

    Control characters and lone surrogates are replaced, and it has at most MAX_LENGTH characters;
    what was changed ends in a short hash, so that two stay two.
    """
    shown = "".join(c if c.isprintable() else "?" for c in text)
    if shown != text or len(shown) > MAX_LENGTH:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        shown = f"{shown[: MAX_LENGTH - 9]}~{digest}"
    return shown
