"""A receiver of Alertmanager's notifications that keeps what it got."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, override


@dataclass(frozen=True, slots=True)
class Told:
    """One alert of a notification."""

    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    fingerprint: str

    @property
    def name(self) -> str:
        return self.labels["alertname"]

    @property
    def severity(self) -> str:
        return self.labels.get("severity", "")


@dataclass(frozen=True, slots=True)
class Notification:
    """One message. ``at``: when it arrived, in seconds since the epoch."""

    at: float
    receiver: str
    status: str
    alerts: tuple[Told, ...]


class Webhook:
    """Listens from ``with`` on; ``url`` takes the notifications of any receiver."""

    def __init__(self) -> None:
        self._received: list[Notification] = []
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                webhook._received.append(_read(json.loads(self.rfile.read(length))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            @override
            def log_message(self, format: str, *_: object) -> None:
                """Not on the tests' output."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/"

    @property
    def received(self) -> list[Notification]:
        """What has arrived so far, in order."""
        return list(self._received)

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


def _read(message: Mapping[str, Any]) -> Notification:
    return Notification(
        at=time.time(),
        receiver=message["receiver"],
        status=message["status"],
        alerts=tuple(
            Told(one["status"], one["labels"], one["annotations"], one["fingerprint"])
            for one in message["alerts"]
        ),
    )
