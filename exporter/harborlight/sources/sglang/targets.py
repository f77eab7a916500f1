"""Which servers to ask, and how: what the SGLang source is given."""

from __future__ import annotations

from dataclasses import dataclass, field

from harborlight.sources.fetch import Tls


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
