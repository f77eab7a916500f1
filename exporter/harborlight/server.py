"""The HTTP server: /metrics, a landing page, and what an operator asks (/-/healthy and so on).

It knows nothing of what it serves: pages, readiness and reloading are handed in as functions.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import inspect
import logging
import math
import os
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from types import MappingProxyType, TracebackType
from typing import Final, Protocol, Self, override

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 5.0
"""How long requests under way may take to end after ``stop()``."""

KEEP_ALIVE_SECONDS: Final = 90
"""Longer than a usual scrape interval, so that Prometheus keeps its connection."""

MAX_CONNECTIONS: Final = 256
FIRST_REQUEST_SECONDS: Final = 10.0
"""How long a connection may wait with its first request."""

MAX_HEADER_BYTES: Final = 16 * 1024

type Address = tuple[str, int]
"""Host (empty: all interfaces) and port (0: any free one)."""


class PageSource(Protocol):
    """A metrics page, rendered once in each format."""

    def render(self, accept: str) -> tuple[str, bytes, bytes]:
        """(content type, page, the same gzipped) for an Accept header. From any thread."""
        ...


class ListenError(Exception):
    """An address that cannot be listened on; the message is one line."""


# The application.

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem;
color:#1f2933;background:#fff}
h1{font-size:1.6rem;margin:0}
p{color:#52606d}
dt{margin-top:.8rem}
dd{margin:0;color:#52606d}
a{color:#0b5cad}
@media(prefers-color-scheme:dark){
body{color:#e4e7eb;background:#15191e}
p,dd{color:#9aa5b1}
a{color:#7cc0ff}
}
"""

_SECURITY_HEADERS: Final = {
    # Nothing is loaded and nothing runs; the one inline style is known by its hash.
    "Content-Security-Policy": (
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "style-src 'sha256-"
        f"{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}

_LINKS: Final = (
    ("/metrics", "What is known, in Prometheus' language"),
    ("/-/healthy", "Whether this process serves"),
    ("/-/ready", "Whether it has looked at its sources"),
    ("/runbooks", "What to do about each alert"),
)


def build_app(
    *,
    page: Callable[[], PageSource | None],
    ready: Callable[[], str | None],
    reload: Callable[[], Awaitable[None] | None] | None = None,
    runbooks: Mapping[str, str] = MappingProxyType({}),
    title: str = "Harborlight",
    version: str = "",
) -> ASGIApp:
    """The application.

    ``page``: the newest page, None before there is one. ``ready``: None, or why not in one line.
    ``reload``: loads the configuration again and raises what is wrong with it; None: reloading
    over HTTP is not allowed. The functions are called from several threads at once, except
    ``reload``, whose calls follow one another. ``runbooks``: texts by what they are asked for by.
    """
    landing = _listing(title, version, _LINKS)
    of_runbooks = _listing(
        "Runbooks",
        version,
        [(f"/runbooks/{name}", _first_line(text)) for name, text in runbooks.items()],
    )
    one_reload = asyncio.Lock()

    def metrics(request: Request) -> Response:
        source = page()
        if source is None:
            return _text("no snapshot yet: the first look at the sources is under way", 503)
        accept = ",".join(request.headers.getlist("accept"))
        content_type, body, zipped = source.render(accept)
        # Without a charset of Starlette's: the content type is the page's own.
        headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
        if accepts_gzip(",".join(request.headers.getlist("accept-encoding"))):
            headers["Content-Encoding"] = "gzip"
            body = zipped
        return Response(body, headers=headers)

    async def index(_: Request) -> Response:
        return HTMLResponse(landing)

    async def list_runbooks(_: Request) -> Response:
        return HTMLResponse(of_runbooks)

    async def runbook(request: Request) -> Response:
        text = runbooks.get(request.path_params["name"])
        if text is None:
            raise HTTPException(404)
        # Not as Markdown, which browsers save instead of showing it.
        return PlainTextResponse(text)

    async def healthy(_: Request) -> Response:
        return _text("healthy")

    def is_ready(_: Request) -> Response:
        reason = ready()
        return _text("ready") if reason is None else _text(f"not ready: {reason}", 503)

    async def do_reload(_: Request) -> Response:
        if reload is None:
            return _text("reloading over HTTP is not enabled", 403)
        async with one_reload:
            try:
                waiting = await run_in_threadpool(reload)
                if inspect.isawaitable(waiting):
                    await waiting
            except Exception as error:  # noqa: BLE001 - whatever it is, the answer says it failed
                # The whole of it may quote the configuration: that is for the log alone.
                log.error(
                    "reload failed", extra={"error": str(error), "error_type": type(error).__name__}
                )
                return _text("reload failed, the configuration before stays; see the log", 500)
        return _text("reloaded")

    async def refuse(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return PlainTextResponse(f"{error.detail}\n", error.status_code, error.headers)

    app = Starlette(
        routes=[
            Route("/", index, methods=["GET"]),
            Route("/metrics", metrics, methods=["GET"]),
            Route("/-/healthy", healthy, methods=["GET"]),
            Route("/-/ready", is_ready, methods=["GET"]),
            Route("/-/reload", do_reload, methods=["POST"]),
            Route("/runbooks", list_runbooks, methods=["GET"]),
            Route("/runbooks/{name}", runbook, methods=["GET"]),
        ],
        exception_handlers={HTTPException: refuse},
    )
    app.router.redirect_slashes = False
    return _with_security_headers(app)


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header prefers gzip, or has it as good as no encoding at all."""
    qualities: dict[str, float] = {}
    for offer in accept_encoding.split(","):
        coding, *parameters = (part.strip().lower() for part in offer.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                # What cannot be read is no permission.
                quality = float(value) if _QUALITY.fullmatch(value.strip()) else 0.0
        coding = "gzip" if coding == "x-gzip" else coding
        qualities[coding] = max(quality, qualities.get(coding, 0.0))
    gzip = qualities.get("gzip", qualities.get("*", 0.0))
    return gzip > 0 and gzip >= qualities.get("identity", 0.0)


_QUALITY: Final = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")


def _text(line: str, status: int = 200) -> Response:
    shown = "".join(c if c.isprintable() else "?" for c in line)
    return PlainTextResponse(f"{shown}\n", status)


def _first_line(text: str) -> str:
    """The first line of a text that is no heading."""
    return next((line for line in text.splitlines() if line and not line.startswith("#")), "")


def _listing(title: str, version: str, of: Iterable[tuple[str, str]]) -> str:
    """A page of links, each with what it leads to."""
    links = "\n".join(
        f'<dt><a href="{escape(path)}">{escape(path)}</a></dt><dd>{escape(what)}</dd>'
        for path, what in of
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n<p>{escape(version)}</p>\n"
        f"<dl>\n{links}\n</dl></body></html>\n"
    )


def _with_security_headers(app: ASGIApp) -> ASGIApp:
    """Around the whole application, so that answers to failures carry them, too."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_SECURITY_HEADERS)
            await send(message)

        await app(scope, receive, send_with_headers)

    return wrapped


# Listening.


def parse_listen_address(text: str) -> Address:
    """``127.0.0.1:10315``, ``:10315`` (all interfaces) or ``[::1]:10315``; else a ListenError."""
    shown = repr(text)
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]:([^:]*)", text)
    if bracketed:
        host, port = bracketed.groups()
    elif text.count(":") > 1 and re.fullmatch(r"[0-9A-Fa-f:.]+", text):
        raise ListenError(f"expected an IPv6 address in brackets, as in [::1]:10315, got {shown}")
    else:
        host, colon, port = text.rpartition(":")
        if not colon or not re.fullmatch(r"[A-Za-z0-9._-]*", host):
            raise ListenError(f"expected HOST:PORT, as in 127.0.0.1:10315, got {shown}")
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > _MAX_PORT:
        raise ListenError(f"expected a port from 0 to {_MAX_PORT}, got {port!r} in {shown}")
    return host, int(port)


_MAX_PORT: Final = 65535


class Sockets:
    """Listening sockets; closed at the end of a ``with`` block. Made by ``bind``."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self.sockets = tuple(sockets)
        self.addresses = tuple(_shown(s.getsockname()) for s in sockets)

    def close(self) -> None:
        """Close them all; nothing happens to those that are closed already."""
        for listener in self.sockets:
            listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def bind(addresses: Sequence[Address]) -> Sockets:
    """Listen on all of these, or on none and a ListenError.

    Connections wait from now on, until a server takes them.
    """
    bound: list[socket.socket] = []
    try:
        bound.extend(map(_bind, addresses))
    except ListenError:
        Sockets(bound).close()
        raise
    return Sockets(bound)


def _bind(address: Address) -> socket.socket:
    host, port = address
    try:
        family, place, dual = _resolve(host, port)
        # Named, because asyncio sends small answers at once only on what it knows to be TCP.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            # A restart need not wait for the connections of the process before.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
            listener.bind(place)
            # Only listening makes the address taken for others.
            listener.listen()
        except OSError:
            listener.close()
            raise
    except OSError as error:
        reason = error.strerror if isinstance(error, socket.gaierror) else _reason(error)
        raise ListenError(f"cannot listen on {_shown(address)}: {reason}") from None
    return listener


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


def _resolve(host: str, port: int) -> tuple[int, tuple[str | int, ...], bool]:
    """(family, socket address, both IP versions at once); IPv4 first where a name has both."""
    if not host:
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", port), True
        return socket.AF_INET, ("0.0.0.0", port), False  # noqa: S104 - what was asked for
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, _, _, _, place = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    # Without support for IPv6 Python types its addresses as bytes; there are none then.
    return family, (str(place[0]), *(part for part in place[1:] if isinstance(part, int))), False


def _shown(address: tuple[str | int, ...]) -> str:
    host, port = str(address[0]), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# Serving.


class _Protocol(H11Protocol):
    """Gives up connections that do not ask for anything.

    The library times out only between requests, so that enough silent connections would take all
    places for good.
    """

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._first_request = self.loop.call_later(FIRST_REQUEST_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if self.cycle is None:
            self.transport.close()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._first_request.cancel()
        super().connection_lost(exc)


class _Uvicorn(uvicorn.Server):
    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the program's business, not this server's."""
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()

    accepting: threading.Event


class Server:
    """Serves an application on bound sockets, in the calling thread or in one of its own.

    It is used once, and closes its sockets at the end.
    """

    def __init__(
        self, app: ASGIApp, sockets: Sockets, *, drain_seconds: float = DRAIN_SECONDS
    ) -> None:
        self.addresses = sockets.addresses
        self._sockets = sockets
        self._drain_seconds = drain_seconds
        self._finished = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                app,
                http=_Protocol,
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                # Nobody's X-Forwarded-For is believed, and nothing here depends on it.
                proxy_headers=False,
                limit_concurrency=MAX_CONNECTIONS,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=max(1, math.ceil(drain_seconds)),
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            )
        )
        self._uvicorn.accepting = threading.Event()

    def run(self) -> None:
        """Serve in this thread until ``stop`` or ``ask_to_stop``."""
        for address in self.addresses:
            log.info("listening", extra={"address": address})
        try:
            asyncio.run(self._uvicorn.serve(sockets=list(self._sockets.sockets)))
        finally:
            self._sockets.close()
            self._finished.set()

    def start(self) -> Self:
        """Serve in a thread of its own; returns once requests are answered."""
        self._thread = threading.Thread(target=self._run_in_thread, name="http", daemon=True)
        self._thread.start()
        self._uvicorn.accepting.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def _run_in_thread(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._failure = error
            log.exception("the HTTP server broke down")
        finally:
            self._uvicorn.accepting.set()

    def ask_to_stop(self) -> None:
        """Begin to stop, without waiting; safe in a signal handler."""
        self._uvicorn.should_exit = True

    def stop(self) -> None:
        """Take no new requests, and return when those under way have ended or were cut off.

        Not to be called from the thread that is in ``run``.
        """
        self.ask_to_stop()
        # The loop looks for the wish ten times a second, and cuts off what did not end in time.
        # Should even that fail, whoever stops is not held up by it.
        self._finished.wait(math.ceil(self._drain_seconds) + 2)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def serve(
    app: ASGIApp, listen: Sequence[Address] | Sockets, *, drain_seconds: float = DRAIN_SECONDS
) -> Server:
    """A server that answers, in a thread of its own; a ListenError where it cannot listen."""
    sockets = listen if isinstance(listen, Sockets) else bind(listen)
    return Server(app, sockets, drain_seconds=drain_seconds).start()
