"""Which text may leave the house (pure).

Names come from files and servers, other text from whoever wrote the configuration. Neither may be,
or contain, an address or a path.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

NAME_LENGTH: Final = 100
LINE_LENGTH: Final = 500
PARAGRAPH_LENGTH: Final = 2000

NAME_PATTERN: Final = r"^[\p{L}\p{N}][\p{L}\p{M}\p{N} ._+@:/~()#,-]*$"
"""A name's characters, in the syntax of a JSON Schema."""

EXCEPTION_TYPE_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_.]{0,79}$"

_NAME: Final = re.compile(rf"\w[\w ._+@:/~()#,-]{{0,{NAME_LENGTH - 1}}}")
_EXCEPTION_TYPE: Final = re.compile(EXCEPTION_TYPE_PATTERN)

_CUT: Final = re.compile(r"~[0-9a-f]{8}$")
"""How a label ends that was a path, an address, or too long: see ``labels.safe_label``."""

_PLACES: Final = re.compile(
    r"""
      ://                                          # an address
    | //                                           # or what is left of one, or of a path
    | (?<![\w.])\d{1,3}(\.\d{1,3}){3}(?![\w.])     # IPv4
    | (?=[0-9a-f:]*(::|[a-f]))(?<![\w:])([0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:])  # IPv6
    | \b[\w-]*[a-z][\w-]*(\.[\w-]+)*:\d{4,5}(?!\d)  # host and port
    | \blocalhost\b
    | [\w.+-]+@[\w-]+(\.[\w-]+)+                   # user at host
    | (?<![\w.)])(~|\.{1,2})?/[\w.@+-]              # a path from the root, from home, from here
    | (?<!\w)[a-z]:[\\/]                            # of Windows
    | \\\\
    """,
    re.VERBOSE | re.IGNORECASE,
)


def names_a_place(text: str) -> bool:
    """Whether a path, an address or a host's port is in it."""
    return _PLACES.search(text) is not None


def public_name(label: str) -> str | None:
    """The name, if it is one that can be shown; None for anything that may not be a mere name."""
    name = label.strip()
    if not _NAME.fullmatch(name) or name[0] == "_" or _CUT.search(name) or names_a_place(name):
        return None
    return name


def public_line(text: str) -> str | None:
    """A line that the configuration's author wrote; None where it cannot be shown."""
    return _public(text, LINE_LENGTH)


def public_paragraph(text: str) -> str | None:
    """The same of a longer text."""
    return _public(text, PARAGRAPH_LENGTH)


def _public(text: str, length: int) -> str | None:
    line = text.strip()
    if not line or len(line) > length or not line.isprintable() or names_a_place(line):
        return None
    return line


def exception_type(name: str, known: frozenset[str]) -> str:
    """The type, if it is one of the ``known``; what else a trial may have raised is ``other``."""
    return name if name in known and _EXCEPTION_TYPE.fullmatch(name) else "other"


def pseudonym(kind: str, text: str) -> str:
    """What stands for a name that is not shown: the same for the same name."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{kind}-{digest[:8]}"
