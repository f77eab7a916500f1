"""The demo's serving pool: simulated SGLang servers, over HTTP on this host.

The replay says how many trials run; half of them are clients of each replica. One replica freezes
for a while, as a server does whose scheduler hangs: its page stays as it was, ``/v1/loads`` shows a
time that stands still, ``/server_info`` does not answer, and new trials go to the other replica.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self, override

from harborlight.demo.sglang_server import KV_CAPACITY, SglangServer

POOL: Final = "main"
POOL_TITLE: Final = "Demo pool"
REPLICAS: Final = ("A", "B")
FREEZES: Final = "B"
"""Which of them freezes."""

SCRAPE_INTERVAL: Final = 1.0
FROZEN_AFTER: Final = 2.0
"""Seconds without a sign of life. Working servers show one at every look."""

_HEALTH_SECONDS: Final = 20.0
"""After so long without its scheduler a server says that it is not healthy."""

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_JSON: Final = "application/json"


def listener() -> socket.socket:
    """A socket to serve one replica on: of this host only, on a port that is free."""
    return socket.create_server(("127.0.0.1", 0), backlog=64)


def url(listening: socket.socket) -> str:
    """Where what is served on it is found."""
    host, port = listening.getsockname()
    return f"http://{host}:{port}"


class ServingPool:
    """The replicas, at work from ``with`` on, each on one of the ``listeners`` (which it closes).

    ``kv_capacity``: of each. ``clock``: a monotonic one, ``wall``: seconds since the epoch.
    Thread-safe.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        *,
        model: str,
        seed: int = 0,
        kv_capacity: int = KV_CAPACITY,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        self._trials = 0
        self._stuck = 0
        self._closed = False
        now = clock()
        self._servers = {
            name: SglangServer(model, f"{seed}:{name}", now, kv_capacity=kv_capacity)
            for name in REPLICAS
        }
        self._works = {name: threading.Event() for name in REPLICAS}
        for works in self._works.values():
            works.set()
        self._http = [
            _HttpServer(listening, self, name)
            for name, listening in zip(REPLICAS, listeners, strict=True)
        ]

    def __enter__(self) -> Self:
        for http in self._http:
            threading.Thread(
                target=http.serve_forever, args=(0.1,), name=f"replica {http.name}", daemon=True
            ).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed = True
        for works in self._works.values():
            works.set()
        for http in self._http:
            http.shutdown()
            http.server_close()

    # What happens to it.

    def serve(self, trials: int) -> None:
        """So many trials run from now on."""
        with self._lock:
            self._advance()
            self._trials = trials
            self._spread()

    def trial_ended(self) -> None:
        """One has ended: if it hung at the frozen replica, the next one will not."""
        with self._lock:
            self._stuck = max(0, self._stuck - 1)

    def freeze(self) -> None:
        """The scheduler of one replica stops."""
        with self._lock:
            self._advance()
            server = self._servers[FREEZES]
            self._stuck = server.clients
            server.freeze()
            self._works[FREEZES].clear()
            self._spread()

    def thaw(self) -> None:
        """It goes on."""
        with self._lock:
            self._advance()
            self._stuck = 0
            self._servers[FREEZES].thaw()
            self._works[FREEZES].set()
            self._spread()

    def _advance(self) -> None:
        now, wall = self._clock(), self._wall()
        for server in self._servers.values():
            server.advance(now, wall)

    def _spread(self) -> None:
        first, second = self._servers.values()
        if second.frozen:
            second.clients = min(self._stuck, self._trials)
        else:
            second.clients = self._trials // 2
        first.clients = self._trials - second.clients

    # What is asked of it.

    def answer(self, name: str, path: str) -> tuple[int, str, str]:
        """Status, content type and body; it takes its time where the server would."""
        server, works = self._servers[name], self._works[name]
        if path in ("/server_info", "/get_server_info"):
            works.wait()
        elif path == "/health" and not works.wait(_HEALTH_SECONDS):
            return 503, _TEXT, ""
        if self._closed:
            return 503, _TEXT, ""
        with self._lock:
            self._advance()
            pages: Mapping[str, tuple[str, Callable[[], str]]] = {
                "/metrics": (_TEXT, server.metrics),
                "/v1/loads": (_JSON, lambda: server.loads(self._wall())),
                "/server_info": (_JSON, server.server_info),
                "/get_server_info": (_JSON, server.server_info),
                "/health": (_TEXT, lambda: ""),
            }
            if path not in pages:
                return 404, _JSON, '{"detail":"Not Found"}'
            kind, make = pages[path]
            return 200, kind, make()


class _HttpServer(ThreadingHTTPServer):
    """Serves one replica on a socket that listens already."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, pool: ServingPool, name: str) -> None:
        super().__init__(listening.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.pool = pool
        self.name = name


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer

    def do_GET(self) -> None:
        status, kind, text = self.server.pool.answer(self.server.name, self.path.partition("?")[0])
        body = text.encode()
        # Whoever asked may have gone meanwhile.
        with suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    @override
    def log_message(self, format: str, *_: object) -> None:
        """Nothing: it is asked every second."""
