"""Servers that answer wrongly, slowly, endlessly or not at all."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Final, Self

CANARY: Final = "canary-4711"
"""Planted wherever a server can say something; it must never come out."""

type Behaviour = Callable[[socket.socket, threading.Event], None]
"""What a server does with a connection whose request was read; the event ends all waiting."""

_TEXT: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"


class RawServer:
    """A port, and for each path what is done with a request for it ("" for all others)."""

    def __init__(self, behaviours: Mapping[str, Behaviour] | Behaviour) -> None:
        self._behaviours = behaviours if isinstance(behaviours, Mapping) else {"": behaviours}
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.requests: list[str] = []
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            with self._lock:
                self._open.add(connection)
                self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            request = connection.recv(65536).decode("latin-1")
            if request:
                self.requests.append(request)
                path = request.split(" ")[1]
                answer = self._behaviours.get(path) or self._behaviours[""]
                answer(connection, self._end)
        with self._lock:
            self._open.discard(connection)

    def asked(self, path: str) -> int:
        """How many requests for the path there were."""
        return sum(1 for request in self.requests if request.split(" ")[1] == path)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)


# Behaviours.


def answer(
    body: bytes,
    *,
    status: int = 200,
    kind: str = "text/plain; version=0.0.4",
    headers: str = "",
    length: int | None = None,
) -> Behaviour:
    """An answer as it should be, or with a length that is not the body's."""

    def behave(connection: socket.socket, _: threading.Event) -> None:
        size = len(body) if length is None else length
        head = f"HTTP/1.1 {status} {CANARY}\r\nContent-Type: {kind}\r\n"
        head += f"Content-Length: {size}\r\nX-Secret: {CANARY}\r\n{headers}\r\n"
        connection.sendall(head.encode("latin-1") + body)

    return behave


def never(_: socket.socket, end: threading.Event) -> None:
    end.wait()


def trickle(start: bytes, piece: bytes = b"a") -> Behaviour:
    """A start, then a byte now and then, for ever: no single wait is ever long."""

    def behave(connection: socket.socket, end: threading.Event) -> None:
        connection.sendall(start)
        while not end.wait(0.02):
            connection.sendall(piece)

    return behave


def endless(start: bytes, piece: bytes) -> Behaviour:
    """A start, then the same again as fast as it goes."""

    def behave(connection: socket.socket, end: threading.Event) -> None:
        connection.sendall(start)
        while not end.is_set():
            connection.sendall(piece)

    return behave


def endless_labels(connection: socket.socket, end: threading.Event) -> None:
    """A wanted family with ever new label values."""
    connection.sendall(_TEXT + b"\r\n")
    for number in itertools.count():
        if end.is_set():
            return
        line = f'sglang:num_requests_total{{priority="{CANARY}{number}"}} 1\n'
        connection.sendall(line.encode())


def endless_headers(connection: socket.socket, end: threading.Event) -> None:
    connection.sendall(_TEXT)
    while not end.is_set():
        connection.sendall(f"X-{CANARY}: {'a' * 60_000}\r\n".encode())


def reset(connection: socket.socket, _: threading.Event) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def say(data: bytes) -> Behaviour:
    """Exactly these bytes, then the end."""

    def behave(connection: socket.socket, _: threading.Event) -> None:
        connection.sendall(data)

    return behave


GZIP = gzip.compress(b"a" * 10_000_000)

HOSTILE: Final[Mapping[str, tuple[Behaviour, str]]] = {
    "hangs": (never, "timed out"),
    "trickles-a-status": (trickle(b"", b"H"), "timed out"),
    "trickles-headers": (trickle(_TEXT + b"X-A: "), "timed out"),
    "trickles-a-body": (trickle(_TEXT + b"\r\n"), "timed out"),
    "trickles-continue": (trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "timed out"),
    "endless-continue": (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 999), "timed out"),
    "endless-line": (endless(_TEXT + b"\r\n", b"x" * 65536), "the answer is too large"),
    "endless-wanted-line": (
        endless(_TEXT + b'\r\nsglang:num_requests_total{a="', b"x" * 65536),
        "a line of the page is too long",
    ),
    "endless-labels": (endless_labels, "too many series on the page"),
    "endless-headers": (endless_headers, "no connection or no HTTP answer"),
    "too-short": (answer(b"sglang:num_requests_total 1\n", length=99), "the answer broke off"),
    "half-a-chunk": (
        say(_TEXT + b"Transfer-Encoding: chunked\r\n\r\n99\r\nsglang:num_requests_total 1\n"),
        "the answer broke off",
    ),
    "no-chunk": (
        say(_TEXT + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nsglang:num_requests_total 1\n"),
        "the answer broke off",
    ),
    "compressed": (
        answer(GZIP, headers="Content-Encoding: gzip\r\n"),
        "the answer is compressed",
    ),
    "html": (answer(CANARY.encode(), kind="text/html"), "the answer is no metrics page"),
    "no-type": (say(b"HTTP/1.1 200 OK\r\n\r\nhello"), "the answer is no metrics page"),
    "redirects": (
        answer(b"", status=302, headers=f"Location: http://127.0.0.1:9/{CANARY}\r\n"),
        "HTTP 302",
    ),
    "unauthorized": (answer(CANARY.encode(), status=401), "HTTP 401"),
    "forbidden": (answer(CANARY.encode(), status=403), "HTTP 403"),
    "not-found": (answer(CANARY.encode(), status=404), "HTTP 404"),
    "broken": (answer(CANARY.encode(), status=500), "HTTP 500"),
    "unavailable": (answer(CANARY.encode(), status=503), "HTTP 503"),
    "partial": (answer(CANARY.encode(), status=206), "HTTP 206"),
    "closes": (say(b""), "no connection or no HTTP answer"),
    "resets": (reset, "no connection or no HTTP answer"),
    "garbage": (say(b"\x00\xff\x12\r\n\r\n" + CANARY.encode()), "no connection or no HTTP answer"),
    "ssh": (say(f"SSH-2.0-{CANARY}\r\n".encode()), "no connection or no HTTP answer"),
    "not-utf8": (
        answer(b'sglang:num_running_reqs{model_name="\xff\xfe"} 1\n'),
        "the page is not UTF-8 text",
    ),
    "no-number": (
        answer(f"sglang:num_running_reqs {CANARY}\n".encode()),
        "a line of the page cannot be read",
    ),
    "no-quote": (
        answer(f'sglang:num_running_reqs{{model_name="{CANARY}}} 1\n'.encode()),
        "a line of the page cannot be read",
    ),
    "another-exporter": (
        answer(f'node_load1{{a="{CANARY}"}} 1\n'.encode()),
        "no SGLang metrics on the page",
    ),
    "router": (
        answer(f'sglang_num_running_reqs{{worker_addr="http://{CANARY}"}} 1\n'.encode()),
        "a router's page: list its workers as replicas",
    ),
}
"""What servers do with a request for their page, and what is said of it."""
