"""What is measured in a process of its own: ``python -m benchmarks.work NAME ARGUMENT...``.

Each function prints nothing; what it returns goes to standard output as JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import JOB, Numbers, median
from harborlight.ledger import Ledger, Store
from harborlight.server import bind, build_app, serve
from harborlight.service import Service
from harborlight.sources.job_directory import JobDirectorySource

FIELDS = (
    "id",
    "task_name",
    "trial_name",
    "verifier_result",
    "exception_info",
    "started_at",
    "finished_at",
)
INTERVAL = 5.0
SWEEP = 60.0
CHANGES = 5


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    kept = action()
    seconds = time.perf_counter() - started
    del kept
    return seconds


def floor(jobs: str) -> Numbers:
    """The least that a reader in plain Python has to do."""

    def read() -> list[list[object]]:
        kept = []
        for entry in os.scandir(Path(jobs) / JOB):
            if entry.is_dir():
                with open(f"{entry.path}/result.json", "rb") as file:
                    result = json.loads(file.read())
                kept.append([result[name] for name in FIELDS])
        return kept

    return {"seconds": _timed(read)}


def look(jobs: str) -> Numbers:
    """Reading alone."""
    source = JobDirectorySource([jobs])
    return {"seconds": _timed(lambda: source.look(time.time()))}


def first_snapshot(jobs: str) -> Numbers:
    """Reading, the ledger's account of it, its commit, and what a snapshot is made of."""
    with _store() as store:

        def read() -> object:
            ledger = Ledger(store)
            ledger.take(JobDirectorySource([jobs]).look(time.time()))
            ledger.commit()
            return ledger.runs(), ledger.jobs(), ledger.counters()

        return {"seconds": _timed(read)}


def first_page(jobs: str) -> Numbers:
    """All of that, and the page rendered and compressed."""
    with _store() as store:
        return {
            "seconds": _timed(
                lambda: Service(Ledger(store), [JobDirectorySource([jobs])]).refresh()
            )
        }


def refreshes(jobs: str, sweep: str) -> Numbers:
    """The first refresh, then those over one whole sweep, then some with one changed file each.

    What changes are running trials that get their result: the one kind of file that every look
    has to notice.
    """
    moments = itertools.count(int(time.time()) + 10, int(INTERVAL))
    now = [float(next(moments))]
    with _store() as store, _held_back(Path(jobs) / JOB) as results:
        source = JobDirectorySource([jobs], sweep_seconds=float(sweep))
        service = Service(Ledger(store), [source], clock=lambda: now[0])

        def refresh() -> float:
            now[0] = float(next(moments))
            return _timed(service.refresh)

        first = refresh()
        unchanged = [refresh() for _ in range(int(SWEEP / INTERVAL))]
        changed = []
        for hidden, result in results:
            hidden.rename(result)
            before = service.snapshot
            changed.append(refresh())
            after = service.snapshot
            assert before is not None and after is not None
            assert after.version != before.version, "the change went unnoticed"
    return {"seconds": first, "unchanged": median(unchanged), "changed": median(changed)}


@contextmanager
def _held_back(job: Path) -> Iterator[list[tuple[Path, Path]]]:
    """Some trials' results, put aside: (where it is, where it belongs)."""
    trials = sorted(path for path in job.iterdir() if path.is_dir())[:CHANGES]
    results = [(trial / ".result.json", trial / "result.json") for trial in trials]
    for hidden, result in results:
        result.rename(hidden)
    try:
        yield results
    finally:
        for hidden, result in results:
            if hidden.exists():
                hidden.rename(result)


@contextmanager
def _store() -> Iterator[Store]:
    with (
        tempfile.TemporaryDirectory(prefix="harborlight-bench-") as folder,
        Store.open_writer(Path(folder)) as store,
    ):
        yield store


class _Fixed:
    """A page that never changes."""

    def __init__(self, page: bytes, gzipped: bytes) -> None:
        self._answer = ("text/plain; version=0.0.4; charset=utf-8", page, gzipped)

    def render(self, accept: str) -> tuple[str, bytes, bytes]:
        return self._answer


def static_page(plain: str, gzipped: str) -> Numbers:
    """Say an address, and serve these two files as its metrics page until standard input ends."""
    page = _Fixed(Path(plain).read_bytes(), Path(gzipped).read_bytes())
    with bind([("127.0.0.1", 0)]) as sockets:
        app = build_app(page=lambda: page, ready=lambda: None)
        with serve(app, sockets):
            sys.stdout.write(sockets.addresses[0] + "\n")
            sys.stdout.flush()
            sys.stdin.read()
    return {}


if __name__ == "__main__":
    _WORK = {
        function.__name__: function
        for function in (floor, look, first_snapshot, first_page, refreshes, static_page)
    }
    json.dump(_WORK[sys.argv[1]](*sys.argv[2:]), sys.stdout)
