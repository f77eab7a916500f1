"""A scrape of the 63-task run, against a fixed page of that size from the same kind of server."""

from __future__ import annotations

import gzip
import http.client
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from benchmarks.measure import Report, median, worker_command, worker_environment
from harborlight.demo.terminal_bench import TerminalBenchDemo
from support.exporter import ExporterProcess

pytestmark = pytest.mark.benchmark

REQUESTS = 2000
"""As many to each of the two, in turns, over about ten refreshes."""


class _Client:
    """One connection that is kept."""

    def __init__(self, address: str, encoding: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=30)
        self._headers = {"Accept": "text/plain", "Accept-Encoding": encoding}
        self.seconds: list[float] = []
        self.last = b""

    def scrape(self) -> None:
        started = time.perf_counter()
        self._connection.request("GET", "/metrics", headers=self._headers)
        with self._connection.getresponse() as answer:
            self.last = answer.read()
        self.seconds.append(time.perf_counter() - started)
        assert answer.status == 200

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _static_server(page: bytes, folder: Path) -> Iterator[str]:
    plain, gzipped = folder / "page", folder / "page.gz"
    plain.write_bytes(page)
    gzipped.write_bytes(gzip.compress(page, compresslevel=3, mtime=0))
    with subprocess.Popen(
        worker_command("static_page", plain, gzipped),
        env=worker_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.communicate()


@contextmanager
def _changing(path: Path) -> Iterator[None]:
    """Give every refresh something new, so that none can take over the page before."""
    ended = threading.Event()

    def change() -> None:
        while not ended.wait(0.5):
            os.utime(path)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_scrape(report: Report, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    demo = TerminalBenchDemo(jobs, say=lambda line: None)
    demo.run(None)
    report.title("A scrape of the 63-task run / a fixed page of that size, refreshed every second")
    exporter = ExporterProcess([jobs], tmp_path / "data", refresh="1s")
    with (
        exporter,
        _static_server(exporter.fetch("/metrics")[1].encode(), tmp_path) as static,
        _changing(demo.job.job_dir / "result.json"),
    ):
        for encoding, how in (("identity", "plain"), ("gzip", "gzip")):
            with (
                closing(_Client(exporter.address, encoding)) as one,
                closing(_Client(static, encoding)) as other,
            ):
                until = time.monotonic() + 10
                while len(one.seconds) < REQUESTS or time.monotonic() < until:
                    one.scrape()
                    other.scrape()
            report.add(f"{how}, median", median(one.seconds) / median(other.seconds), aim=2)
            report.add(f"{how}, median of the scrape", median(one.seconds) * 1000, " ms")
            report.add(f"{how}, size of the page", len(one.last) / 1000, " kB")
