"""Every query of every dashboard, evaluated by a real Prometheus over pages of real jobs."""

from __future__ import annotations

import itertools
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.dashboard_lint import generated
from support.prometheus import Prometheus, pages, prometheus
from support.promql import expand

pytestmark = [
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus"),
    pytest.mark.slow,
]

GOLDEN = Path(__file__).parents[1] / "golden"
PAGES = {page.stem: page.read_text() for page in sorted(GOLDEN.glob("*.prom"))}
_RUN = re.compile(r'_run_info\{.*run="(.*?)"')
RUNS = sorted({run for page in PAGES.values() for run in _RUN.findall(page)})
EVERYTHING = {"pool": ".*", "replica": ".*", "task": ".*", "search": ""}
OWN_INSTANCE = "exporter"
"""The dashboard that shows targets, not runs."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Prometheus]]:
    """One that scrapes each page once; and one that does twice, as if two exporters saw a job."""
    folder = tmp_path_factory.mktemp("prometheus")
    with pages(list(PAGES.values())) as served:
        once = {f"page{i}": page for i, page in enumerate(served)}
        twice = once | {f"again{i}": page for i, page in enumerate(served)}
        with (
            prometheus(folder / "once", once) as first,
            prometheus(folder / "twice", twice) as second,
        ):
            yield first, second


def queries() -> Iterator[tuple[str, str, str]]:
    """Dashboard, place, and expression for every run and for all of them."""
    seen = set()
    for board in generated("en"):
        for expression in board.expressions:
            if expression.where.startswith("variable "):
                continue  # a selector, whose labels Grafana takes
            for run in (*RUNS, ".*"):
                expr = expand(expression.expr, {**EVERYTHING, "run": run, "datasource": "x"})
                if expr not in seen:
                    seen.add(expr)
                    yield board.name, f"{board.name}: {expression.where}, {run}", expr


def test_no_query_fails(servers: tuple[Prometheus, Prometheus]) -> None:
    now = time.time()
    failed = []
    for (_, where, expr), server in itertools.product(queries(), servers):
        try:
            server.ask(expr)
            if server is servers[1]:
                server.ask_range(expr, now - 30, now, 10)
        except AssertionError as error:
            failed.append(f"{where}: {error}")
    assert not failed, "\n\n".join(failed)


def test_a_run_that_two_exporters_see_is_shown_once(
    servers: tuple[Prometheus, Prometheus],
) -> None:
    once, twice = servers
    compared = 0
    for name, where, expr in queries():
        if name == OWN_INSTANCE or re.search(r"time\(\)|rate\(|increase\(", expr):
            continue  # another moment, another value
        assert twice.ask(expr) == once.ask(expr), where
        compared += 1
    assert compared > len(RUNS) * 100


def test_most_of_them_find_something(servers: tuple[Prometheus, Prometheus]) -> None:
    """Were the variables wrong, every query would be empty and none would fail."""
    once, _ = servers
    asked = list(queries())
    found = sum(bool(once.ask(expr)) for _, _, expr in asked)
    assert found > 0.6 * len(asked)
