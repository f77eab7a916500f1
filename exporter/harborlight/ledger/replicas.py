"""What is known of a replica: its state over time, and totals that outlive its restarts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from harborlight.ledger.meters import Meter, advance, by_role, scalar
from harborlight.readings import (
    Histogram,
    Latency,
    Number,
    Pulse,
    ReplicaInfo,
    ReplicaSighting,
    ReplicaState,
    Series,
    Total,
)

MAX_METERS: Final = 8192
"""Series kept of one replica: eight families of a thousand ranks. Beyond, new ones are refused."""

_MAY_BE_FROZEN: Final = (ReplicaState.UP, ReplicaState.INCOMPLETE, ReplicaState.NO_METRICS)


class MeterKey(NamedTuple):
    """A series of a family (the value of a Total or a Latency) of a replica."""

    pool: str
    replica: str
    family: str
    series: Series


@dataclass(frozen=True, slots=True)
class ReplicaStanding:
    """A replica as the ledger knows it. ``state`` is None before its first look.

    ``reason``: why it is not up, in fixed words.

    ``numbers``: by role, as of the last look that brought them; none while it does not answer.
    ``totals`` and ``latencies``: by role, since the ledger knows the replica.
    ``last_complete``: when it last answered in full.
    """

    pool: str
    label: str
    state: ReplicaState | None = None
    reason: str = ""
    info: ReplicaInfo = field(default_factory=ReplicaInfo)
    numbers: Mapping[str, Mapping[Number, float]] = field(default_factory=dict)
    totals: Mapping[Total, Mapping[str, float]] = field(default_factory=dict)
    latencies: Mapping[Latency, Mapping[str, Histogram]] = field(default_factory=dict)
    last_complete: float | None = None

    def knows(self, *numbers: Number) -> bool:
        """Whether each of them is known, for some role."""
        return any(all(number in known for number in numbers) for known in self.numbers.values())


class Replica:
    """One replica. ``meters``: by family and series, as kept."""

    def __init__(self, pool: str, label: str) -> None:
        self.pool = pool
        self.label = label
        self.meters: dict[str, dict[Series, Meter]] = {}
        self._servers: frozenset[str] = frozenset()
        self._n_meters = 0
        self._sighting: ReplicaSighting | None = None
        self._info = ReplicaInfo()
        self._changed: dict[str, tuple[Any, float]] = {}
        self._overfull = False
        self._last_complete: float | None = None

    def restore(self, family: str, series: Series, meter: Meter) -> None:
        """Take over what was kept."""
        self._keep(family, series, meter)

    def take(self, sighting: ReplicaSighting) -> list[tuple[str, Series]]:
        """Take in a look; the series whose meters moved."""
        self._sighting = sighting
        if sighting.state is ReplicaState.UNREACHABLE:
            return []
        self._info = _merged(self._info, sighting.info)
        self._feel(sighting.pulses, sighting.at)
        if not sighting.complete:
            return []
        self._last_complete = sighting.at
        first = not self.meters
        servers = self._servers
        moved: list[tuple[str, Series]] = []
        families: list[tuple[str, Mapping[Series, Histogram]]] = [
            (total.value, {series: scalar(value) for series, value in values.items()})
            for total, values in sighting.totals.items()
        ]
        families += [(latency.value, values) for latency, values in sighting.latencies.items()]
        for family, seen in families:
            known = self.meters.get(family, {})
            for series, meter in advance(known, seen, first=first, servers=servers).items():
                if known.get(series) == meter:
                    continue
                if series not in known and self._n_meters >= MAX_METERS:
                    self._overfull = True
                    continue
                self._keep(family, series, meter)
                moved.append((family, series))
        return moved

    def _keep(self, family: str, series: Series, meter: Meter) -> None:
        meters = self.meters.setdefault(family, {})
        self._n_meters += series not in meters
        self._servers |= {series.server}
        meters[series] = meter

    def _feel(self, pulses: Mapping[str, Pulse], at: float) -> None:
        """Note for each sign of life since when it has stood still."""
        changed: dict[str, tuple[Any, float]] = {}
        for key, pulse in pulses.items():
            before = self._changed.get(key)
            if before is not None and before[0] == pulse.value:
                changed[key] = before
            elif before is not None:
                changed[key] = (pulse.value, at)
            else:
                # The server's clock may be another host's: it is believed for the first look only.
                changed[key] = (pulse.value, at - max(0.0, pulse.age or 0.0))
        self._changed = changed

    def _condition(self, frozen_after: float) -> tuple[ReplicaState | None, str]:
        """Its state as of its last look, and why it is not up.

        Frozen is what stood still for too long although it moves in a healthy server.
        """
        sighting = self._sighting
        if sighting is None:
            return None, ""
        if sighting.state in _MAY_BE_FROZEN:
            for key, pulse in sighting.pulses.items():
                if sighting.at - self._changed[key][1] >= max(frozen_after, pulse.patience):
                    return ReplicaState.FROZEN, "its scheduler shows no sign of life"
        if sighting.state is ReplicaState.UP and self._overfull:
            return ReplicaState.INCOMPLETE, "too many series"
        return sighting.state, sighting.reason

    def standing(self, frozen_after: float) -> ReplicaStanding:
        """How it stands; ``frozen_after``: seconds that a scheduler may show no sign of life."""
        sighting = self._sighting
        state, reason = self._condition(frozen_after)
        totals = {
            total: {role: sum(value.counts) for role, value in by_role(meters).items()}
            for total in Total
            if (meters := self.meters.get(total.value))
        }
        latencies = {
            latency: by_role(meters)
            for latency in Latency
            if (meters := self.meters.get(latency.value))
        }
        return ReplicaStanding(
            pool=self.pool,
            label=self.label,
            state=state,
            reason=reason,
            info=self._info,
            numbers=sighting.numbers if sighting is not None else {},
            totals=totals,
            latencies=latencies,
            last_complete=self._last_complete,
        )


def _merged(old: ReplicaInfo, new: ReplicaInfo) -> ReplicaInfo:
    """What is not told this time is as it was."""
    return ReplicaInfo(
        version=new.version or old.version,
        served_model=new.served_model or old.served_model,
        tp=old.tp if new.tp is None else new.tp,
        pp=old.pp if new.pp is None else new.pp,
        dp=old.dp if new.dp is None else new.dp,
    )
