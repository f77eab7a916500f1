"""The demo until its frozen replica has recovered, as whoever tries it sees it."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import urllib.request
from pathlib import Path

import pytest

from support.deadline import eventually
from support.exporter import command, environment
from support.page import Page, assert_promises

SPEED = 2000
"""The freeze lasts six or seven seconds then, two or three of which it takes to notice it."""

STATE = "harborlight_replica_state"
RUNNING = "harborlight_replica_running_requests"
REQUESTS = "harborlight_replica_requests_total"


class Demo:
    """The process, its lines, and its pages, each of which keeps the promises."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.lines: list[str] = []
        self.pages: list[Page] = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)

    def page(self) -> Page:
        found = [m[1] for line in self.lines if (m := re.search(r"http://(\S+)/metrics", line))]
        assert found, "it has not said where it is"
        with urllib.request.urlopen(f"http://{found[0]}/metrics", timeout=10) as answer:
            page = Page(answer.read().decode())
        try:
            assert_promises(page, self.pages[-1] if self.pages else None)
        except AssertionError as error:
            raise RuntimeError(str(error)) from error  # it is not "not yet"
        self.pages.append(page)
        return page

    def state(self, replica: str) -> str:
        """The one state of a replica."""
        samples = self.page().find(STATE, replica=replica)
        states = [dict(sample.labels)["state"] for sample in samples if sample.value]
        assert len(states) == 1
        return states[0]


@pytest.mark.slow
def test_a_replica_freezes_and_recovers(tmp_path: Path) -> None:
    arguments = ["demo", "--speed", str(SPEED), "--web.listen-address", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command(), *arguments],
        env={**environment(), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        demo = Demo(process)
        try:
            assert eventually(lambda: demo.state("A"), 30, what="the first look") == "up"
            eventually(lambda: demo.state("B") == "frozen", 120, interval=0.3, what="the freeze")
            assert any("hangs" in line for line in demo.lines)
            before = demo.pages[-1]
            assert before.value("harborlight_replica_up", replica="A") == 1
            eventually(lambda: demo.state("B") == "up", 60, interval=0.3, what="the recovery")
            frozen = [page for page in demo.pages if page.value(STATE, replica="B", state="frozen")]
            for page in frozen:
                for name in (RUNNING, REQUESTS):
                    assert page.value(name, replica="B") == before.value(name, replica="B")
            counted = before.value(REQUESTS, replica="B")
            eventually(
                lambda: demo.page().value(REQUESTS, replica="B") > counted, 60, what="new requests"
            )
            assert any("works again" in line for line in demo.lines)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            demo.reader.join(10)
