"""Counters that never fall, made of counters that may: restarts, lost ranks, other servers (pure).

A *unit* is what counts the same events: one role and data-parallel rank of a replica. Several
series of a unit (its other ranks, its servers) repeat each other, so that a unit's total is the
highest of theirs and a replica's the sum over its units. Each series is followed on its own, for
what it grew by; a value below the last one is a restart, as Prometheus' ``rate()`` takes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, pairwise

import msgspec

from harborlight.readings import Histogram, Series

Unit = tuple[str, str]
"""Role and data-parallel rank."""


class Meter(msgspec.Struct, frozen=True):
    """One series: what it said last, and what the replica's total is as far as this one counts."""

    last: Histogram
    total: Histogram


def scalar(value: float) -> Histogram:
    """A plain counter as a histogram of one bucket."""
    return Histogram((math.inf,), (value,), 0.0)


def unit_of(series: Series) -> Unit:
    """The unit that a series counts for."""
    return series.role, series.dp_rank


def advance(
    known: Mapping[Series, Meter],
    seen: Mapping[Series, Histogram],
    *,
    first: bool,
    servers: frozenset[str],
) -> dict[Series, Meter]:
    """The meters of one family after a complete look, those that it brought only.

    ``first``: nothing of the replica was ever seen, so that its values are taken as they are.
    ``servers``: those that were seen before; what a new server counted earlier was not for us.
    """
    before = _Units(known.items())
    after = {
        series: _followed(known[series], value, before, unit_of(series))
        for series, value in seen.items()
        if series in known
    }
    followed = _Units(after.items())
    for series, value in seen.items():
        if series in known:
            continue
        unit = unit_of(series)
        if unit in followed:
            # Another rank's report of what was counted already.
            total = followed.highest(unit)
        else:
            total = before.highest(unit) if unit in before else _floor(value)
            if first or series.server in servers:
                total = add(total, value)
        after[series] = Meter(value, total)
    return after


class _Units:
    """The totals of several series, by unit; the highest of a unit is worked out once."""

    def __init__(self, meters: Iterable[tuple[Series, Meter]]) -> None:
        self._totals: dict[Unit, list[Histogram]] = {}
        self._highest: dict[Unit, Histogram] = {}
        for series, meter in meters:
            self._totals.setdefault(unit_of(series), []).append(meter.total)

    def __contains__(self, unit: Unit) -> bool:
        return unit in self._totals

    def __iter__(self) -> Iterator[Unit]:
        return iter(sorted(self._totals))

    def highest(self, unit: Unit) -> Histogram:
        if unit not in self._highest:
            self._highest[unit] = highest(self._totals[unit])
        return self._highest[unit]


def _followed(meter: Meter, value: Histogram, before: _Units, unit: Unit) -> Meter:
    grown = increase(meter.last, value)
    if grown is not None:
        return Meter(value, add(meter.total, grown))
    # It began again; so does its place among the others, who may have counted on.
    return Meter(value, add(before.highest(unit), value))


def increase(last: Histogram, now: Histogram) -> Histogram | None:
    """What was added since; None where something fell or the buckets are others: a restart."""
    if last.bounds != now.bounds or now.sum < last.sum:
        return None
    counts = tuple(b - a for a, b in zip(last.counts, now.counts, strict=True))
    if any(count < 0 for count in counts):
        return None
    return Histogram(now.bounds, counts, now.sum - last.sum)


def add(a: Histogram, b: Histogram) -> Histogram:
    """Both together. What one of them has no bound for counts at its own next higher one."""
    if a.bounds == b.bounds:
        counts = tuple(x + y for x, y in zip(a.counts, b.counts, strict=True))
        return Histogram(a.bounds, counts, a.sum + b.sum)
    counted = dict(zip(a.bounds, a.counts, strict=True))
    for bound, count in zip(b.bounds, b.counts, strict=True):
        counted[bound] = counted.get(bound, 0.0) + count
    bounds = tuple(sorted(counted))
    return Histogram(bounds, tuple(counted[bound] for bound in bounds), a.sum + b.sum)


def highest(several: Iterable[Histogram]) -> Histogram:
    """At every bound the most that one of them counted up to it: it falls with none of them."""
    all_of_them = list(several)
    if len(all_of_them) == 1:
        return all_of_them[0]
    bounds = tuple(sorted({bound for one in all_of_them for bound in one.bounds}))
    up_to = zip(*(_up_to(one, bounds) for one in all_of_them), strict=True)
    cumulative = [max(counts) for counts in up_to]
    counts = tuple(b - a for a, b in pairwise((0.0, *cumulative)))
    return Histogram(bounds, counts, max(one.sum for one in all_of_them))


def _up_to(histogram: Histogram, bounds: tuple[float, ...]) -> list[float]:
    counted = dict(zip(histogram.bounds, histogram.counts, strict=True))
    return list(accumulate(counted.get(bound, 0.0) for bound in bounds))


def _floor(value: Histogram) -> Histogram:
    return Histogram(value.bounds, (0.0,) * len(value.bounds), 0.0)


def by_role(meters: Mapping[Series, Meter]) -> dict[str, Histogram]:
    """A family's totals: the highest of each unit, units added up by role."""
    units = _Units(meters.items())
    roles: dict[str, Histogram] = {}
    for unit in units:
        role, total = unit[0], units.highest(unit)
        roles[role] = add(roles[role], total) if role in roles else total
    return roles
