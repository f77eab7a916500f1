"""One HTTP request to a server that may be slow, huge, hung or hostile.

Nothing of what the server or a library says about it leaves here: failures are fixed words, and
the libraries' own logs, which name hosts and paths, are switched off.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol, Self, override

import requests
import requests.adapters
import urllib3
import urllib3.connection
import urllib3.exceptions

from harborlight import __version__
from harborlight.sources.failure import Trouble, Unreadable

MAX_JSON_BYTES: Final = 4 * 1024 * 1024

_CHUNK_BYTES: Final = 64 * 1024
_MAX_HEADER_BYTES: Final = 4 * 1024
"""Of one header. http.client takes a hundred of 64 KiB, and makes 50 MB of objects of them."""

_UNWANTED_HEADERS: Final = ("Location", "Set-Cookie", "Set-Cookie2")

for _name in ("urllib3", "requests"):
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


@dataclass(frozen=True, slots=True)
class Tls:
    """How to speak TLS: files of certificates and keys; ``verify`` off trusts anybody."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True


class Access(Protocol):
    """How to be let in by a server: what the target of a request brings along."""

    @property
    def api_key(self) -> str | None: ...

    @property
    def tls(self) -> Tls: ...


def fetch_json(
    access: Access,
    url: str,
    deadline: float,
    *,
    most: int = MAX_JSON_BYTES,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """GET a JSON document of at most ``most`` bytes. Raises Unreadable.

    ``deadline``: on the monotonic clock, for all of it.
    """
    with answered(access, url, "application/json", deadline, headers) as (response, guard):
        return b"".join(body(response, most, guard))


def server_key(url: str) -> str:
    """An opaque name of a server, the same after a restart, that gives no address away."""
    return hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]


class Guard:
    """Ends a request at its deadline, whatever it is waiting for but the name of the host.

    Timeouts of sockets are for one read each: a byte now and then would never reach them.
    """

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(max(0.0, self.remaining), self._expire)
        self._timer.daemon = True
        self.expired = False

    @property
    def remaining(self) -> float:
        return self._deadline - time.monotonic()

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._drop()

    def connect(self, host: str, port: int) -> socket.socket:
        """A connection to the first of the host's addresses that answers in time."""
        failure: OSError = socket.gaierror("no address")
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for tried, (family, kind, protocol, _, address) in enumerate(addresses):
            if self.remaining <= 0:
                raise TimeoutError
            candidate = socket.socket(family, kind, protocol)
            try:
                # One that drops packets leaves time for those after it.
                candidate.settimeout(self.remaining / (len(addresses) - tried))
                candidate.connect(address)
                candidate.settimeout(max(0.001, self.remaining))
                candidate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._watch(candidate)
            except OSError as error:
                candidate.close()
                failure = error
            else:
                return candidate
        raise failure

    def _watch(self, connected: socket.socket) -> None:
        with self._lock:
            if self.expired:
                raise TimeoutError
            # A second descriptor: TLS takes the first one over.
            self._socket = connected.dup()

    def _expire(self) -> None:
        with self._lock:
            self.expired = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            self._drop()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Stream(io.BufferedReader):
    """Bounds what http.client does not: for a chunk of -1 bytes it reads until the end."""

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            raise http.client.IncompleteRead(b"")
        return super().read(size)

    @override
    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(_MAX_HEADER_BYTES)
        if len(line) == _MAX_HEADER_BYTES and not line.endswith(b"\n"):
            raise http.client.LineTooLong("header")
        return line


class _Response(http.client.HTTPResponse):
    """An answer without the headers that requests would act on by itself.

    Of a redirect it reads and unpacks the whole body, however large, also where it is not to
    follow it; cookies can be such that it takes seconds to read them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fp = _Stream(self.fp.detach())

    @override
    def begin(self) -> None:
        super().begin()
        for name in _UNWANTED_HEADERS:
            del self.headers[name]


class _Adapter(requests.adapters.HTTPAdapter):
    """Connects under a guard, and warns of nothing (a warning would name the host)."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        super().__init__(max_retries=0)

    @override
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        guard = self._guard

        class Connection(urllib3.connection.HTTPConnection):
            response_class = _Response

            @override
            def _new_conn(self) -> socket.socket:
                return guard.connect(self._dns_host, self.port)

        class TlsConnection(urllib3.connection.HTTPSConnection):
            response_class = _Response

            @override
            def _new_conn(self) -> socket.socket:
                return guard.connect(self._dns_host, self.port)

        class Pool(urllib3.HTTPConnectionPool):
            ConnectionCls = Connection

        class TlsPool(urllib3.HTTPSConnectionPool):
            ConnectionCls = TlsConnection

            @override
            def _validate_conn(self, conn: Any) -> None:
                if conn.is_closed:
                    conn.connect()

        self.poolmanager.pool_classes_by_scheme = {"http": Pool, "https": TlsPool}


@contextlib.contextmanager
def answered(
    access: Access,
    url: str,
    accept: str,
    deadline: float,
    more_headers: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[requests.Response, Guard]]:
    """An answer with status 200 to a GET, its body to be read. Raises Unreadable."""
    with exchanged(access, "GET", url, accept, deadline, more_headers) as (response, guard):
        _check_status(response)
        yield response, guard


@contextlib.contextmanager
def exchanged(
    access: Access,
    method: str,
    url: str,
    accept: str,
    deadline: float,
    more_headers: Mapping[str, str] = MappingProxyType({}),
    data: bytes | None = None,
) -> Iterator[tuple[requests.Response, Guard]]:
    """An answer of whatever status, its body to be read. Raises Unreadable.

    A connection a request: servers close idle ones when they like, just then perhaps. Redirects
    are not followed, they would take the key along.
    """
    headers = {
        **more_headers,
        "Accept": accept,
        "Accept-Encoding": "identity",
        "Connection": "close",
        "User-Agent": f"harborlight/{__version__}",
    }
    if access.api_key is not None:
        headers["Authorization"] = f"Bearer {access.api_key}"
    tls = access.tls
    with Guard(deadline) as guard, requests.Session() as session:
        session.trust_env = False
        session.mount("http://", _Adapter(guard))
        session.mount("https://", _Adapter(guard))
        try:
            with session.request(
                method,
                url,
                headers=headers,
                data=data,
                stream=True,
                allow_redirects=False,
                timeout=max(0.001, guard.remaining),
                verify=(tls.ca_file or True) if tls.verify else False,
                cert=(tls.cert_file, tls.key_file or tls.cert_file) if tls.cert_file else None,
            ) as response:
                if guard.expired:
                    raise TimeoutError  # what there was of headers ended with the connection
                yield response, guard
        except _LIBRARIES_ERRORS as error:
            raise _unreadable(error, guard) from None


_LIBRARIES_ERRORS: Final = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    OSError,
    ValueError,
)


def _check_status(response: requests.Response) -> None:
    status = response.status_code
    if status in (401, 403):
        raise Unreadable(f"HTTP {status}", Trouble.UNAUTHORIZED)
    if status == 404:  # noqa: PLR2004 - HTTP's own number
        raise Unreadable("HTTP 404", Trouble.NOT_FOUND)
    if status != 200:  # noqa: PLR2004 - HTTP's own number
        raise Unreadable(f"HTTP {status}")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Unreadable("the answer is compressed")
    if response.headers.get("Transfer-Encoding", "chunked").lower() != "chunked":
        raise Unreadable("the answer is compressed")


def body(response: requests.Response, most: int, guard: Guard) -> Iterator[bytes]:
    """The body; Unreadable where it is too large or comes to an early end."""
    size = 0
    while chunk := response.raw.read(_CHUNK_BYTES, decode_content=False):
        size += len(chunk)
        if size > most:
            raise Unreadable("the answer is too large")
        yield chunk
    if guard.expired:
        # Without a length, a connection that is shut down looks like the end of the answer.
        raise TimeoutError


def _unreadable(error: BaseException, guard: Guard) -> Unreadable:
    """What went wrong in fixed words: the errors' own have addresses in them."""
    causes = list(_causes(error))
    if guard.expired or any(
        isinstance(cause, TimeoutError | requests.Timeout | urllib3.exceptions.TimeoutError)
        for cause in causes
    ):
        return Unreadable("timed out", timed_out=True)
    for kind, reason in (
        (ssl.SSLError, "TLS failed"),
        (urllib3.exceptions.SSLError, "TLS failed"),
        (socket.gaierror, "name not found"),
        (ConnectionRefusedError, "connection refused"),
        (urllib3.exceptions.IncompleteRead, "the answer broke off"),
        (http.client.IncompleteRead, "the answer broke off"),
    ):
        if any(isinstance(cause, kind) for cause in causes):
            return Unreadable(reason)
    return Unreadable("no connection or no HTTP answer")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and all that it wraps, however the libraries do so."""
    waiting: list[object] = [error]
    seen: set[int] = set()
    while waiting:
        cause = waiting.pop()
        if isinstance(cause, BaseException) and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            wrapped = getattr(cause, "reason", None)
            waiting += [cause.__cause__, cause.__context__, wrapped, *cause.args]
