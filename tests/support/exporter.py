"""Harborlight as its users run it: a process, a port, a page."""

from __future__ import annotations

import http.client
import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from support.deadline import eventually
from support.page import Page, assert_promises

_LISTENING = re.compile(r'msg="?listening"?\b.*?\baddress="?(?P<host>[^\s"]+):(?P<port>\d+)')
_START_TIMEOUT = 20.0


def command() -> list[str]:
    """How to start Harborlight with this interpreter: its console script, else its module."""
    script = Path(sys.executable).with_name("harborlight")
    if script.exists():
        return [str(script)]
    return [sys.executable, "-m", "harborlight.cli"]


def environment() -> dict[str, str]:
    """This process's environment, so that the child imports the same package."""
    env = dict(os.environ)
    spec = importlib.util.find_spec("harborlight")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        root = str(Path(location).parent)
        if "site-packages" not in root:
            env["PYTHONPATH"] = os.pathsep.join(filter(None, [root, env.get("PYTHONPATH")]))
    return env


def metrics_once(args: Sequence[str | Path], timeout: float = 60.0) -> Page:
    """What ``harborlight metrics ARGS`` prints; an AssertionError if it does not exit 0."""
    done = subprocess.run(
        [*command(), "metrics", *map(str, args)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"harborlight metrics exited {done.returncode}:\n{done.stderr}"
    return Page(done.stdout)


class ExporterProcess:
    """``harborlight serve`` over job directories, with a ledger that outlives it.

    Starting reads the port it was given from its log; every start gets a new one. ``refresh``:
    None where the configuration says it.
    """

    def __init__(
        self,
        jobs: Sequence[Path],
        data_dir: Path,
        *extra: str,
        refresh: str | None = "0.2s",
        program: Sequence[str] | None = None,
    ) -> None:
        self.arguments = [*(program or command()), "serve"]
        for path in jobs:
            self.arguments += ["--jobs", str(path)]
        self.arguments += ["--data-dir", str(data_dir)]
        if refresh is not None:
            self.arguments += ["--refresh-interval", refresh]
        self.arguments += ["--web.listen-address", "127.0.0.1:0", *extra]
        self.address = ""
        self.log: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        """The process of the latest start."""
        assert self._process is not None, "the exporter was not started"
        return self._process

    def start(self, timeout: float = _START_TIMEOUT) -> Self:
        """Start it and wait until it says that it is ready."""
        self.address, self.log = "", []
        self._process = subprocess.Popen(
            self.arguments,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read_log, args=(self._process,), daemon=True)
        self._reader.start()
        try:
            eventually(self._has_address, timeout, what="the exporter's listening line")
            eventually(self.ready, timeout, what="the exporter's readiness")
        except (TimeoutError, RuntimeError) as error:
            self.kill()
            raise AssertionError(f"{error}\nits log:\n{''.join(self.log)}") from error
        return self

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.log.append(line)
            if match := _LISTENING.search(line):
                self.address = f"{match['host']}:{match['port']}"

    def _has_address(self) -> bool:
        if self.process.poll() is not None and not self.address:
            raise RuntimeError(f"the exporter exited {self.process.returncode} at start")
        return bool(self.address)

    def fetch(self, path: str, timeout: float = 10.0) -> tuple[int, str]:
        """GET a path: status and body, whatever the status; an OSError if there is none."""
        request = urllib.request.Request(
            f"http://{self.address}{path}", headers={"Accept": "text/plain"}
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except http.client.HTTPException as error:
            raise ConnectionError(f"{path}: the answer broke off: {error!r}") from error

    def ready(self) -> bool:
        """Whether ``/-/ready`` answers 200."""
        return self.fetch("/-/ready")[0] == 200

    def page(self) -> Page:
        """The metrics page of this moment; a ConnectionError before there is a first one."""
        status, body = self.fetch("/metrics")
        if status == 503 and body.startswith("no snapshot yet"):
            raise ConnectionError(body)
        assert status == 200, f"/metrics answered {status}: {body[:200]}"
        return Page(body)

    def fresh_page(self, timeout: float = 15.0) -> Page:
        """A page whose refresh began after this call.

        The refresh that is under way may have read half of what changed; the one
        after it has not.
        """
        name = "harborlight_snapshot_timestamp_seconds"
        seen = {self.page().value(name)}

        def advanced() -> Page | None:
            page = self.page()
            seen.add(page.value(name))
            return page if len(seen) > 2 else None

        page = eventually(advanced, timeout, interval=0.01, what="two refreshes")
        assert page is not None
        return page

    def value(self, name: str, **labels: str) -> float:
        """One value of the page of this moment."""
        return self.page().value(name, **labels)

    def terminate(self, timeout: float = 15.0) -> int:
        """SIGTERM, and the exit code."""
        return self._end(signal.SIGTERM, timeout)

    def kill(self) -> None:
        """SIGKILL; nothing happens if it has ended already."""
        if self._process is not None:
            self._end(signal.SIGKILL, 10.0)

    def restart(self, *, gracefully: bool = True) -> None:
        """End it one way or the other, and start it again on the same ledger."""
        if gracefully:
            self.terminate()
        else:
            self.kill()
        self.start()

    def _end(self, number: signal.Signals, timeout: float) -> int:
        process = self.process
        if process.poll() is None:
            process.send_signal(number)
        code = process.wait(timeout)
        if self._reader is not None:
            self._reader.join(timeout)
        if process.stderr is not None:
            process.stderr.close()
        return code

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hold the whole process still, so that a change on disk is one step for it."""
        process = self.process
        process.send_signal(signal.SIGSTOP)
        try:
            eventually(lambda: stopped(process.pid), what="the exporter's stop")
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


def stopped(pid: int) -> bool:
    """Whether every thread of the process is stopped."""
    stats = [p.read_text() for p in Path(f"/proc/{pid}/task").glob("*/stat")]
    return bool(stats) and all(s.rpartition(") ")[2].startswith("T") for s in stats)


class Watcher:
    """Scrapes in the background and holds every page to its promises.

    The first failure ends the watch; it is raised by ``check()`` and at the end of
    the ``with`` block. While the exporter is down (between a kill and the first
    page after the next start) there is nothing to hold; the last page before is kept
    for comparison.
    """

    def __init__(self, exporter: ExporterProcess, interval: float = 0.1) -> None:
        self.exporter = exporter
        self.interval = interval
        self.pages: list[Page] = []
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="watcher")
        self._watch_ended: Future[None] | None = None

    def _watch(self) -> None:
        while not self._stop.wait(self.interval):
            try:
                page = self.exporter.page()
            except OSError:
                continue
            previous = self.pages[-1] if self.pages else None
            self.pages.append(page)
            assert_promises(page, previous)

    def check(self) -> None:
        """Raise what the watch has found."""
        if self._watch_ended is not None and self._watch_ended.done():
            self._watch_ended.result()

    def highest(self, name: str, **labels: str) -> float:
        """The largest sum the watched pages showed."""
        return max((p.sum(name, **labels) for p in self.pages), default=0.0)

    def __enter__(self) -> Self:
        self._watch_ended = self._pool.submit(self._watch)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._pool.shutdown()
        if kind is None:
            self.check()
            assert self.pages, "the watcher never got a page"
