"""Which servers to ask, and how: what the SGLang source is given."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Tls:
    """How to speak TLS: files of certificates and keys; ``verify`` off trusts anybody."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True


@dataclass(frozen=True, slots=True)
class ReplicaTarget:
    """One replica: the base URLs of its servers, the first of which takes the requests.

    ``data_parallel``: its number of data-parallel ranks, for releases that do not tell.
    Addresses and keys are kept out of ``repr``, so that no log line can show them.
    """

    pool: str
    name: str
    urls: tuple[str, ...] = field(repr=False)
    data_parallel: int | None = None
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 5.0
    scrape_interval: float = 5.0
    tls: Tls = field(default=Tls(), repr=False)


def server_key(url: str) -> str:
    """An opaque name of a server, the same after a restart, that gives no address away."""
    return hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]
