"""What replicas that hang cost a refresh, and the others."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.measure import Report, worker_environment
from harborlight.ledger import Ledger, Store
from harborlight.ledger.book import Rules
from harborlight.ledger.pools import PoolDefinition
from harborlight.readings import ReplicaState
from harborlight.service import Service
from harborlight.sources.sglang.source import SglangSource
from harborlight.sources.sglang.targets import ReplicaTarget

pytestmark = pytest.mark.benchmark

REPLICAS, HUNG = 100, 10
TIMEOUT = 5.0


@pytest.fixture
def server(sglang: Path) -> Iterator[str]:
    """The base URL of a server with the page of a real one."""
    page = sglang / "sglang-expositions/real-0.5.23-cpu-tp1-busy.txt"
    command = [sys.executable, "-m", "benchmarks.replica_server"]
    with subprocess.Popen(
        [*command, str(page), str(sglang / "http/tp1_v1_loads.out")],
        env=worker_environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.kill()


def test_hung_replicas(server: str, tmp_path: Path, report: Report) -> None:
    report.title(f"{REPLICAS} replicas of which {HUNG} hang, timeout {TIMEOUT:g} s")
    names = [f"r{number}" for number in range(REPLICAS)]
    pool = PoolDefinition("pool", "Pool", jobs=(), runs=(), replicas=tuple(names))
    with (
        socket.create_server(("127.0.0.1", 0), backlog=REPLICAS) as hung,
        Store.open_writer(tmp_path) as store,
    ):
        nobody = f"http://127.0.0.1:{hung.getsockname()[1]}"
        targets = [
            ReplicaTarget("pool", name, (f"{nobody if n < HUNG else server}/{name}",), None, None)
            for n, name in enumerate(names)
        ]
        service = Service(Ledger(store, Rules(pools=(pool,))), [SglangSource(targets)])
        up = []
        for look in ("first", "second", "third"):
            began, cpu = time.monotonic(), time.process_time()
            started = time.time()
            snapshot = service.refresh().snapshot
            took, used = time.monotonic() - began, time.process_time() - cpu
            (standing,) = snapshot.pools
            up = [r for r in standing.replicas if r.state is ReplicaState.UP]
            fresh = [r for r in up if (r.last_complete or 0.0) >= started]
            aim = 1.1 if look == "first" else None
            report.add(f"{look} refresh / timeout", took / TIMEOUT, aim=aim)
            report.add(f"{look} refresh, processor time a replica", 1000 * used / REPLICAS, " ms")
            report.add(f"{look} refresh, replicas up and fresh", float(len(fresh)))
            # The interval of the replicas, who are not asked before it is over.
            time.sleep(max(0.0, TIMEOUT - (time.monotonic() - began)))
        assert len(up) == REPLICAS - HUNG
