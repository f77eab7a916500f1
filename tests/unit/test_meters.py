"""Totals that outlive what they are made of; every value here was added up by hand."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, strategies as st

from harborlight.ledger.meters import Meter, add, advance, by_role, highest, increase, scalar
from harborlight.readings import Histogram, Series
from support.replicas import INF, histogram, series


class Family:
    """One family of one replica over several complete looks."""

    def __init__(self) -> None:
        self.meters: dict[Series, Meter] = {}

    def look(self, seen: Mapping[Series, Histogram | float]) -> None:
        values = {s: v if isinstance(v, Histogram) else scalar(v) for s, v in seen.items()}
        servers = frozenset(s.server for s in self.meters)
        self.meters.update(advance(self.meters, values, first=not self.meters, servers=servers))

    def total(self, role: str = "unified") -> float:
        return sum(by_role(self.meters)[role].counts)


def totals(*looks: Mapping[Series, float]) -> list[float]:
    """The family's total after each look."""
    family, found = Family(), []
    for seen in looks:
        family.look(seen)
        found.append(family.total())
    return found


A = series()
TP0, TP1, TP2 = (series(f"tp_rank={rank}") for rank in range(3))
DP0, DP1 = (series("tp_rank=0", dp=str(rank)) for rank in range(2))


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        pytest.param([{A: 20}, {A: 25}, {A: 25}], [20, 25, 25], id="grows"),
        pytest.param([{A: 20}, {A: 3}, {A: 5}], [20, 23, 25], id="restart"),
        pytest.param([{A: 20}, {A: 0}, {A: 0}, {A: 1}], [20, 20, 20, 21], id="restart-at-0"),
        # A preset directory of metrics is not emptied: the count goes on, and that is no restart.
        pytest.param([{A: 25}, {A: 50}], [25, 50], id="kept-directory"),
        pytest.param([{A: 20}, {}, {A: 22}], [20, 20, 22], id="absent-for-a-while"),
        pytest.param([{TP0: 7, TP1: 7}, {TP0: 9, TP1: 9}], [7, 9], id="ranks-repeat"),
        pytest.param([{TP0: 7, TP1: 5}, {TP0: 9, TP1: 10}], [7, 10], id="one-rank-lags"),
        pytest.param([{TP0: 7}, {TP0: 9, TP1: 9}, {TP0: 9, TP1: 12}], [7, 9, 12], id="later-rank"),
        pytest.param([{TP0: 7, TP1: 7}, {TP1: 9}, {TP0: 9, TP1: 9}], [7, 9, 9], id="lost-rank"),
        pytest.param([{TP0: 0, TP1: 50}, {TP0: 0, TP1: 54}], [50, 54], id="a-silent-rank"),
        pytest.param([{TP0: 50, TP1: 50}, {TP0: 4, TP1: 4}], [50, 54], id="ranks-restart"),
        pytest.param([{DP0: 7, DP1: 5}, {DP0: 9, DP1: 6}], [12, 15], id="dp-adds-up"),
        pytest.param([{DP0: 7, DP1: 5}, {DP0: 9}, {DP0: 10, DP1: 1}], [12, 14, 16], id="dp-lost"),
        pytest.param([{DP0: 7}, {DP0: 9, DP1: 3}], [7, 12], id="dp-begins-later"),
        # Nobody has counted yet; then one process does, with labels of its own.
        pytest.param([{A: 0}, {TP0: 1}, {TP0: 3}], [0, 1, 3], id="first-event"),
        pytest.param([{A: 0}, {DP1: 1}, {DP0: 2, DP1: 1}], [0, 1, 3], id="first-event-of-a-rank"),
        # An upgrade that changes the labels: what the new series counted was after the restart.
        pytest.param([{TP0: 70}, {series("ep=0,tp_rank=0"): 4}], [70, 74], id="other-labels"),
        # Another server in the replica's place: what it did before was not for this replica.
        pytest.param(
            [{A: 70}, {series(server="b"): 1000}, {series(server="b"): 1003}],
            [70, 70, 73],
            id="another-server",
        ),
        pytest.param(
            [{TP0: 7, series("tp_rank=8", server="b"): 7}, {TP0: 8}], [7, 8], id="two-nodes"
        ),
    ],
)
def test_totals(looks: list[dict[Series, float]], expected: list[float]) -> None:
    assert totals(*looks) == expected


def test_roles_are_apart() -> None:
    family = Family()
    prefill, decode = series(role="prefill"), series(role="decode")
    family.look({prefill: 10, decode: 12})
    family.look({prefill: 11, decode: 15})
    assert (family.total("prefill"), family.total("decode")) == (11, 15)


def test_histogram_over_a_restart() -> None:
    family = Family()
    family.look({A: histogram({0.1: 3, 0.2: 4, INF: 1}, 2.5)})
    family.look({A: histogram({0.1: 4, 0.2: 4, INF: 1}, 2.6)})
    # 9 observations before, 8 after: the server began again.
    family.look({A: histogram({0.1: 0, 0.2: 8, INF: 0}, 1.2)})
    (total,) = by_role(family.meters).values()
    assert total.bounds == (0.1, 0.2, INF)
    assert total.counts == (4, 12, 1)
    assert total.sum == pytest.approx(3.8)


def test_a_fallen_bucket_is_a_restart_although_the_count_grew() -> None:
    assert increase(histogram({1: 5, INF: 0}, 2), histogram({1: 4, INF: 9}, 99)) is None
    assert increase(histogram({1: 5, INF: 0}, 2), histogram({1: 6, INF: 9}, 1)) is None


def test_other_buckets_after_an_upgrade() -> None:
    """What lies below an old bound is known to be below the next new one only."""
    family = Family()
    family.look({A: histogram({0.1: 3, 0.4: 4, INF: 1}, 2.5)})
    family.look({A: histogram({0.1: 1, 0.3: 2, INF: 2}, 7.0)})
    (total,) = by_role(family.meters).values()
    # Up to 0.1: 3 + 1. Up to 0.3: 3 + 3. Up to 0.4: 7 + 3. All: 8 + 5.
    assert total.bounds == (0.1, 0.3, 0.4, INF)
    assert list(accumulate(total.counts)) == [4, 6, 10, 13]
    assert total.sum == pytest.approx(9.5)


def test_highest_at_every_bound() -> None:
    """Two ranks that saw the same ten tokens with other latencies."""
    total = highest([histogram({1: 6, 2: 4, INF: 0}, 12), histogram({1: 5, 2: 4, INF: 1}, 14)])
    assert list(accumulate(total.counts)) == [6, 10, 10]
    assert total.sum == 14


# For any history at all.

ranks = st.builds(
    lambda rank, dp, server: series(f"tp_rank={rank}", dp=dp, server=server),
    st.integers(0, 2),
    st.sampled_from(["", "0", "1"]),
    st.sampled_from(["a", "b"]),
)
counts = st.lists(st.integers(0, 9), min_size=3, max_size=3)
bounds = st.sampled_from([(0.1, 0.2, INF), (0.1, 0.3, INF)])
values = st.builds(
    lambda b, c, s: Histogram(b, tuple(map(float, c)), float(s)), bounds, counts, st.integers(0, 20)
)


@given(st.lists(st.dictionaries(ranks, values, max_size=5), min_size=1, max_size=8))
def test_nothing_ever_falls(looks: list[dict[Series, Histogram]]) -> None:
    """No bucket, count or sum, whatever ranks and servers come, go and begin again."""
    family = Family()
    before = Histogram((INF,), (0.0,), 0.0)
    for seen in looks:
        family.look(seen)
        now = by_role(family.meters).get("unified", before)
        assert all(count >= 0 for count in now.counts)
        cumulative = dict(zip(now.bounds, accumulate(now.counts), strict=True))
        for bound, count in zip(before.bounds, accumulate(before.counts), strict=True):
            assert cumulative[bound] >= count
        assert now.sum >= before.sum
        before = now


@given(st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=2), max_size=10))
def test_a_repeating_rank_changes_nothing(steps: list[list[int]]) -> None:
    """Two data-parallel ranks, each reported by one process or by three."""
    alone, repeated = Family(), Family()
    so_far = [0, 0]
    for step in steps:
        so_far = [a + b for a, b in zip(so_far, step, strict=True)]
        seen = [(str(dp), float(value)) for dp, value in enumerate(so_far)]
        alone.look({series("tp_rank=0", dp=dp): value for dp, value in seen})
        repeated.look(
            {series(f"tp_rank={tp}", dp=dp): value for dp, value in seen for tp in range(3)}
        )
        assert alone.total() == repeated.total() == sum(so_far)


@given(values, values)
def test_adding(a: Histogram, b: Histogram) -> None:
    total = add(a, b)
    assert sum(total.counts) == sum(a.counts) + sum(b.counts)
    assert all(x < y for x, y in pairwise(total.bounds))
