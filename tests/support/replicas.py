"""Short ways to say what a look at a replica brought."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from harborlight.readings import (
    Histogram,
    Number,
    ReplicaSighting,
    ReplicaState,
    Series,
    Total,
)
from harborlight.sources.observation import Observation

INF = math.inf


def series(ranks: str = "", *, dp: str = "", server: str = "a", role: str = "unified") -> Series:
    return Series(server, role, dp, ranks)


def sighting(
    *,
    at: float = 1000.0,
    pool: str = "pool",
    replica: str = "r1",
    state: ReplicaState = ReplicaState.UP,
    complete: bool = True,
    requests: Mapping[Series, float] | float | None = None,
    numbers: Mapping[Number, float] | None = None,
    **fields: Any,
) -> ReplicaSighting:
    """A look that brought a count of requests, of one process or of several."""
    if isinstance(requests, float | int):
        requests = {series(): float(requests)}
    return ReplicaSighting(
        pool=pool,
        replica=replica,
        at=at,
        state=state,
        complete=complete,
        totals={} if requests is None else {Total.REQUESTS: dict(requests)},
        numbers={} if numbers is None else {"unified": dict(numbers)},
        **fields,
    )


def observed(*sightings: ReplicaSighting) -> Observation:
    """What a source of replicas hands over."""
    return Observation(replicas=sightings)


def histogram(buckets: Mapping[float, float], total: float) -> Histogram:
    """Counts by upper bound, not cumulative."""
    return Histogram(tuple(buckets), tuple(buckets.values()), total)
