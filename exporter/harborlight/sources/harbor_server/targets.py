"""Which Harbor servers to ask, and how."""

from __future__ import annotations

from dataclasses import dataclass, field

from harborlight.sources.fetch import Tls


@dataclass(frozen=True, slots=True)
class HarborServerTarget:
    """One server by its base URL. ``timeout``: seconds that one request may take.

    Address and key are kept out of ``repr``, so that no log line can show them.
    """

    name: str
    url: str = field(repr=False)
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 5.0
    tls: Tls = field(default=Tls(), repr=False)
