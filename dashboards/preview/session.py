"""A replay with its Prometheus servers: what is drawn, and from where."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from dashboards.preview.moments import BEGUN, IDLE, Moment, Prometheus, look, steady
from dashboards.preview.processes import (
    PreviewError,
    Program,
    end_group,
    eventually,
    free_port,
    running,
)

REPLAY_OVER: Final = "The replay is over."
_DEMO_JOB = "tb4-glm-5.3-replay"
_BEFORE_START = 5.0
_SETTLE_SECONDS = 60.0
# More than the replayed run took.
_REPLAYED_SECONDS = 250_000.0
_PROMETHEUS_CONFIG = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
scrape_configs:
- job_name: harborlight
  static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


@dataclass(frozen=True, slots=True)
class Session:
    """What a drawing needs to know of a replay; it can be written down and read again."""

    run: str
    replay_url: str
    begun_url: str
    nothing_url: str
    start: float
    moments: dict[Moment, float]
    folder: str
    prometheus_pids: list[int]

    def url(self, moment: Moment) -> str:
        """The Prometheus that shows a moment."""
        if moment is Moment.START:
            return self.begun_url
        return self.nothing_url if moment is Moment.NONE else self.replay_url

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """A session kept before; a PreviewError where it does not run any more."""
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            kept["moments"] = {Moment(name): time for name, time in kept["moments"].items()}
            session = cls(**kept)
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise PreviewError(f"{path} is no session kept by --keep: {error}") from error
        for url in (session.replay_url, session.begun_url, session.nothing_url):
            if not Prometheus(url).ready():
                raise PreviewError(f"The session's Prometheus at {url} does not run any more.")
        return session

    def end(self) -> None:
        """Stop its Prometheus servers and delete their data."""
        for pid in self.prometheus_pids:
            # The number may be somebody else's by now; its command line names our folder.
            command = Path(f"/proc/{pid}/cmdline")
            if command.exists() and self.folder.encode() in command.read_bytes():
                end_group(pid)
        shutil.rmtree(self.folder, ignore_errors=True)


def _harborlight(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "harborlight.cli", *arguments]


def _start_prometheus(port: int, target: int, folder: Path) -> Program:
    folder.mkdir()
    config = folder / "prometheus.yml"
    config.write_text(_PROMETHEUS_CONFIG.format(port=target), encoding="utf-8")
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    return Program("Prometheus", command, folder / "prometheus.log")


class Replay:
    """The demo, the demo in real time, and an exporter without jobs, each with a Prometheus.

    The Prometheus servers run for as long as ``servers`` is open.
    """

    def __init__(self, folder: Path, speed: float, servers: ExitStack) -> None:
        self._folder = folder
        self._seconds = _REPLAYED_SECONDS / speed + _SETTLE_SECONDS
        self._start = time.time()
        self._over: float | None = None
        self._programs: list[Program] = []
        self._servers: list[Program] = []
        (folder / "no-jobs").mkdir()
        idle = ["serve", "--jobs", f"{folder}/no-jobs", "--data-dir", f"{folder}/no-ledger"]
        with ExitStack() as exporters:
            watched = (
                ("replay", ["demo", "--speed", f"{speed:g}", "--dir", f"{folder}/demo"]),
                ("begun", ["demo", "--speed", "1", "--dir", f"{folder}/begun-demo"]),
                ("nothing", [*idle, "--refresh-interval", "1s"]),
            )
            self._busy, self._begun, self._nothing = (
                self._watch(name, command, exporters, servers) for name, command in watched
            )
            self._demo = self._programs[0]
            self._exporters = exporters.pop_all()

    def _watch(
        self, name: str, command: list[str], exporters: ExitStack, servers: ExitStack
    ) -> Prometheus:
        """One exporter, and the Prometheus that scrapes it."""
        exporter, server = free_port(), free_port()
        listen = ["--web.listen-address", f"127.0.0.1:{exporter}"]
        program = Program(
            f"The exporter of {name}",
            _harborlight(*command, *listen),
            self._folder / f"{name}.log",
        )
        exporters.enter_context(running(program))
        self._programs.append(program)
        prometheus = _start_prometheus(server, exporter, self._folder / name)
        # No context manager: one that is forgotten (--keep) ends all the same.
        servers.callback(prometheus.stop)
        self._servers.append(prometheus)
        return Prometheus(f"http://127.0.0.1:{server}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exporters.close()

    def follow(self, wanted: Collection[Moment]) -> Session:
        """Wait for the wanted moments, or the end of the replay if some do not come."""
        every = (self._busy, self._begun, self._nothing)
        self._eventually("Prometheus is ready", lambda: all(one.ready() for one in every))
        moments = self._eventually("The replay's moments", lambda: self._moments(wanted))
        infos = self._busy.labels("last_over_time(harborlight_run_info[1h])")
        runs = sorted(info["run"] for info in infos if info["run"].startswith(_DEMO_JOB))
        if not runs:
            raise PreviewError(f"harborlight_run_info knows no run {_DEMO_JOB}.")
        return Session(
            run=runs[0],
            replay_url=self._busy.url,
            begun_url=self._begun.url,
            nothing_url=self._nothing.url,
            start=self._start - _BEFORE_START,
            moments=moments,
            folder=str(self._folder),
            prometheus_pids=[server.pid for server in self._servers],
        )

    def _eventually[T](self, what: str, attempt: Callable[[], T | None]) -> T:
        def checked() -> T | None:
            for program in (*self._programs, *self._servers):
                program.check()
            return attempt()

        return eventually(what, checked, self._seconds)

    def _moments(self, wanted: Collection[Moment]) -> dict[Moment, float] | None:
        now = time.time()
        if self._over is None and REPLAY_OVER in self._demo.text():
            self._over = now
        found = look(self._busy, self._start, now, self._over)
        for moment, prometheus, query in (
            (Moment.START, self._begun, BEGUN),
            (Moment.NONE, self._nothing, IDLE),
        ):
            time_of = steady(prometheus, query, self._start, now)
            if time_of is not None:
                found[moment] = time_of
        # At the end, what has not come does not come any more.
        if Moment.END in found or all(moment in found for moment in wanted):
            return {moment: time for moment, time in found.items() if moment in wanted}
        return None
