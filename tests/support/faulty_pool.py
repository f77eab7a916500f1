"""Simulated SGLang servers that can be made to fail in every way that is told apart."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self, override

from harborlight.demo.sglang_server import TICK, SglangServer

PACE: Final = 10.0
"""How many times faster than real ones they work: so many more requests in a shorter window."""

MODEL: Final = "glm-5.3-fp8"
"""The model that a replay asks for."""

_ABORTS: Final = 0.5
"""Requests that each client hangs up on in a second of the servers' time, if it does."""


class _Server(SglangServer):
    """Its switches: ``stuck`` (its engine does nothing), ``hung_up`` (clients do), ``full``."""

    def __init__(self, model: str, seed: str, now: float) -> None:
        super().__init__(model, seed, now)
        self.stuck = self.hung_up = self.full = False

    @override
    def _step(self) -> None:
        if self.stuck:
            self._cpu += TICK
            return
        super()._step()
        if self.hung_up:
            chance = _ABORTS * TICK
            self._abort([r for r in self._running if self._random.random() < chance])

    @property
    @override
    def _used(self) -> float:
        # Of its own the share dips whenever one of few large requests ends.
        return self._kv_capacity * 0.99 if self.full else super()._used


class Replica:
    """A server at an address that it keeps; it runs from ``start`` to ``kill``.

    ``unauthorized``: it answers 401 to everything.
    """

    def __init__(self, name: str, model: str) -> None:
        self.name = name
        self.unauthorized = False
        self._model = model
        self._starts = 0
        self._lock = threading.Lock()
        self._port = 0
        self._http: ThreadingHTTPServer | None = None
        self.start()

    def start(self) -> None:
        """A new process: it has forgotten everything."""
        self._starts += 1
        self.server = _Server(self._model, f"{self.name}:{self._starts}", _clock())
        self._works = threading.Event()
        self._works.set()
        replica = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, text = replica.answer(self.path.partition("?")[0])
                kind = "text/plain; version=0.0.4" if "metrics" in self.path else "application/json"
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            @override
            def log_message(self, format: str, *_: object) -> None:
                """Not on the tests' output."""

        self._http = _Http(("127.0.0.1", self._port), Handler)
        self._port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def kill(self) -> None:
        """From now on its address refuses connections."""
        http, self._http = self._http, None
        if http is not None:
            self._works.set()
            http.shutdown()
            http.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def alive(self) -> bool:
        return self._http is not None

    def serve(self, clients: int) -> None:
        """So many agents are at it from now on."""
        with self._lock:
            self.server.advance(_clock(), time.time())
            self.server.clients = clients

    def freeze(self) -> None:
        """Its scheduler stops; HTTP goes on."""
        self.serve(self.server.clients)
        with self._lock:
            self.server.freeze()
        self._works.clear()

    def thaw(self) -> None:
        with self._lock:
            self.server.advance(_clock(), time.time())
            self.server.thaw()
        self._works.set()

    def answer(self, path: str) -> tuple[int, str]:
        """Status and body; what asks the scheduler waits for it."""
        if self.unauthorized:
            return 401, '{"error":"Unauthorized"}'
        if path == "/server_info":
            self._works.wait()
        with self._lock:
            self.server.advance(_clock(), time.time())
            match path:
                case "/metrics":
                    return 200, self.server.metrics()
                case "/v1/loads":
                    return 200, self.server.loads(time.time())
                case "/server_info":
                    return 200, self.server.server_info()
        return 404, '{"detail":"Not Found"}'


class FaultyPool:
    """Replicas that share the trials' requests, as far as they are there."""

    def __init__(self, name: str, replicas: Iterable[str] = ("A",), *, model: str = MODEL) -> None:
        self.name = name
        self.replicas = {replica: Replica(replica, model) for replica in replicas}
        self.factor = 1.0
        """Requests for each trial: 0 where the agents are cut off, several where they are many."""
        self._trials = 0

    def __getitem__(self, replica: str) -> Replica:
        return self.replicas[replica]

    def serve(self, trials: int) -> None:
        """So many trials run from now on."""
        self._trials = trials
        alive = [replica for replica in self.replicas.values() if replica.alive]
        clients = round(trials * self.factor)
        for number, replica in enumerate(alive):
            replica.serve((clients + number) // len(alive))

    def weigh(self, factor: float) -> None:
        """From now on each trial makes so many requests at once."""
        self.factor = factor
        self.serve(self._trials)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for replica in self.replicas.values():
            replica.kill()


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Who asked may have gone meanwhile."""


def _clock() -> float:
    return time.monotonic() * PACE
