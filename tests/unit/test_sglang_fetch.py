"""One request to servers that do whatever a server can do wrong."""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
import ssl
import subprocess
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from harborlight import __version__
from harborlight.sources.failure import Failure, Trouble, Unreadable
from harborlight.sources.fetch import Tls, fetch_json
from harborlight.sources.sglang.answers import read_loads, read_server_info
from harborlight.sources.sglang.fetch import fetch_page
from harborlight.sources.sglang.page import PageReader, PageReading
from harborlight.sources.sglang.targets import ReplicaTarget
from support.hostile import (
    CANARY,
    GZIP,
    HOSTILE,
    Behaviour,
    RawServer,
    answer,
    endless,
    never,
    say,
    trickle,
)

KEY = "canary-key-0815"
PAGE = b"sglang:num_requests_total 5\n"
SOON, LATER = 0.3, 20.0
"""Deadlines that are to be met, and that are not to matter."""


def page_of(url: str, seconds: float = LATER, **target: object) -> PageReading | Failure:
    """What a page says, or why it does not."""
    reader = PageReader("s")
    asked = ReplicaTarget("p", "r", (), **target)  # type: ignore[arg-type]
    try:
        fetch_page(asked, f"{url}/metrics", reader.feed, time.monotonic() + seconds)
        return reader.close()
    except Unreadable as unreadable:
        return unreadable.failure


def failure_of(url: str, seconds: float = LATER, **target: object) -> Failure:
    found = page_of(url, seconds, **target)
    assert isinstance(found, Failure)
    return found


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each ends in time, with fixed words, and nothing of it reaches a log."""
    behaviour, reason = HOSTILE[name]
    with caplog.at_level(logging.DEBUG), RawServer(behaviour) as server:
        started = time.monotonic()
        slow = reason == "timed out"
        failure = failure_of(server.url, SOON if slow else LATER, api_key=KEY)
        assert time.monotonic() - started < 10
        assert failure.reason == reason
        assert failure.timed_out == slow
        said = repr(failure) + caplog.text + "".join(map(repr, caplog.records))
        for secret in (CANARY, KEY, str(server.port)):
            assert secret not in said


TEXT = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
CHUNKED = TEXT + b"Transfer-Encoding: chunked\r\n\r\n"
MOVED = f"HTTP/1.1 302 Found\r\nLocation: http://{CANARY}/\r\n".encode()
PACKED = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(GZIP) + GZIP


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (endless(MOVED + b"\r\n", b"x" * 65536), "HTTP 302"),
        (trickle(MOVED + b"\r\n"), "HTTP 302"),
        (say(MOVED + PACKED), "HTTP 302"),
        (say(MOVED.replace(b"http://", b"http://[") + b"\r\n"), "HTTP 302"),
        (endless(CHUNKED + b"-1\r\n", b"x\n" * 32768), "the answer broke off"),
        (endless(CHUNKED + b"-5\r\n", b"x\n" * 32768), "the answer broke off"),
        (endless(CHUNKED + b"1;", b"x" * 65536), "no connection or no HTTP answer"),
        (
            say(TEXT + b"X: %s\r\n" % (b"x" * 60_000) * 90 + b"\r\n"),
            "no connection or no HTTP answer",
        ),
    ],
)
def test_what_would_fill_the_memory(behaviour: Behaviour, reason: str) -> None:
    """None is read further than it takes to see what it is, nor until the deadline."""
    with RawServer(behaviour) as server:
        tracemalloc.start()
        try:
            started = time.monotonic()
            assert failure_of(server.url).reason == reason
            assert time.monotonic() - started < LATER / 2
            assert tracemalloc.get_traced_memory()[1] < 5_000_000
        finally:
            tracemalloc.stop()


def test_cookies_are_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few of the longest would take seconds, which no deadline ends."""
    read: list[object] = []
    monkeypatch.setattr("http.cookiejar.parse_ns_headers", read.append)
    monkeypatch.setattr("http.cookiejar.split_header_words", read.append)
    cookies = "Set-Cookie: a=b\r\nset-cookie: c=d\r\nSet-Cookie2: e=f; Version=1\r\n"
    with RawServer(answer(PAGE, headers=cookies)) as server:
        assert isinstance(page_of(server.url), PageReading)
    assert read == []


def test_half_a_page_does_not_count() -> None:
    """Without a length only its last line tells; with one it need not have an end."""
    half = PAGE.rstrip()
    for head in (b"\r\n", b"Content-Length: many\r\n\r\n", b"Content-Length: -1\r\n\r\n"):
        with RawServer(say(TEXT + head + half)) as server:
            assert failure_of(server.url).reason == "the answer broke off"
    with RawServer(answer(half)) as server:
        assert isinstance(page_of(server.url), PageReading)
    packed = CHUNKED.replace(b"chunked", b"gzip, chunked")
    with RawServer(say(packed + b"%x\r\n%s\r\n0\r\n\r\n" % (len(PAGE), PAGE))) as server:
        assert failure_of(server.url).reason == "the answer is compressed"


def test_kinds_of_trouble() -> None:
    """They decide on the replica's state."""
    kinds = {
        "unauthorized": Trouble.UNAUTHORIZED,
        "forbidden": Trouble.UNAUTHORIZED,
        "not-found": Trouble.NOT_FOUND,
        "html": Trouble.WRONG_KIND,
        "no-type": Trouble.WRONG_KIND,
        "another-exporter": Trouble.WRONG_KIND,
        "router": Trouble.WRONG_KIND,
        "broken": Trouble.FAILED,
        "redirects": Trouble.FAILED,
        "hangs": Trouble.FAILED,
    }
    for name, trouble in kinds.items():
        with RawServer(HOSTILE[name][0]) as server:
            assert failure_of(server.url, SOON if name == "hangs" else LATER).trouble is trouble


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert failure_of(f"http://127.0.0.1:{port}").reason == "connection refused"
    assert failure_of("http://no-such-host.invalid:1").reason == "name not found"
    assert failure_of("http://a..b:1").reason == "no connection or no HTTP answer"


def test_an_address_that_drops_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves time for the next one of the host: IPv6 that leads nowhere, say."""
    with (
        RawServer(answer(PAGE)) as server,
        socket.create_server(("127.0.0.1", 0), backlog=0) as hole,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(4):  # a queue that is full answers nobody
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(hole.getsockname())
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", address)
            for address in (hole.getsockname(), ("127.0.0.1", server.port))
        ]
        monkeypatch.setattr("harborlight.sources.fetch.socket.getaddrinfo", lambda *_, **__: found)
        assert isinstance(page_of("http://two.invalid:1", 2.0), PageReading)


def test_a_page_without_a_length_and_one_in_chunks() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(PAGE), PAGE)
    for rest in (b"\r\n" + PAGE, chunked):

        def behave(connection: socket.socket, _: threading.Event, rest: bytes = rest) -> None:
            connection.sendall(head + rest)

        with RawServer(behave) as server:
            assert isinstance(page_of(server.url), PageReading)


def test_what_is_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The key only where there is one; nothing from the environment, no cookie, no reuse."""
    (tmp_path / ".netrc").write_text(f"machine 127.0.0.1 login me password {CANARY}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with RawServer(answer(PAGE, headers=f"Set-Cookie: a={CANARY}\r\n")) as server:
        assert isinstance(page_of(server.url), PageReading)
        assert isinstance(page_of(server.url, api_key=KEY), PageReading)
    without, with_key = (
        dict(line.split(": ", 1) for line in request.strip().split("\r\n")[1:])
        for request in server.requests
    )
    expected = {
        "Host": f"127.0.0.1:{server.port}",
        "User-Agent": f"harborlight/{__version__}",
        "Accept": "text/plain;version=0.0.4",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    assert without == expected
    assert with_key == {**expected, "Authorization": f"Bearer {KEY}"}


def test_a_redirect_is_not_followed() -> None:
    with RawServer(answer(PAGE)) as other:
        moved = answer(b"", status=307, headers=f"Location: {other.url}/metrics\r\n")
        with RawServer(moved) as server:
            assert failure_of(server.url, api_key=KEY).reason == "HTTP 307"
    assert other.requests == []


def test_json_that_is_none() -> None:
    for body, reason in (
        (b"[" * 1_000_000, "not the JSON that was expected"),
        (b"\xff", "not the JSON that was expected"),
        (b'{"loads": 5}', "not the JSON that was expected"),
        (b"{}", "not an answer of /v1/loads"),
    ):
        with RawServer(answer(body)) as server:
            got = fetch_json(
                ReplicaTarget("p", "r", ()), server.url + "/x", time.monotonic() + LATER
            )
            with pytest.raises(Unreadable) as raised:
                read_loads(got)
            assert raised.value.failure.reason == reason
    start = b'HTTP/1.1 200 OK\r\n\r\n{"version": "'
    with RawServer(endless(start, b"x" * 65536)) as server, pytest.raises(Unreadable) as raised:
        fetch_json(ReplicaTarget("p", "r", ()), server.url, time.monotonic() + LATER)
    assert raised.value.failure.reason == "the answer is too large"
    with pytest.raises(Unreadable):
        read_server_info(b"[]")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    request = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*request.split(), *names], check=True, capture_output=True)
    return cert, key


@pytest.mark.parametrize(
    ("tls", "expected"),
    [("trusted", "read"), ("unchecked", "read"), ("unknown", "TLS failed")],
)
def test_tls(certificate: tuple[Path, Path], tls: str, expected: str) -> None:
    """Warnings are errors here: an unchecked certificate must not cause one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    options = {
        "trusted": Tls(ca_file=str(certificate[0])),
        "unchecked": Tls(verify=False),
        "unknown": Tls(),
    }[tls]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve_tls, args=(listener, context))
        thread.start()
        found = page_of(f"https://127.0.0.1:{listener.getsockname()[1]}", tls=options)
        thread.join(10)
    assert ("read" if isinstance(found, PageReading) else found.reason) == expected


def _serve_tls(listener: socket.socket, context: ssl.SSLContext) -> None:
    connection, _ = listener.accept()
    with connection:
        try:
            with context.wrap_socket(connection, server_side=True) as secure:
                secure.recv(65536)
                answer(PAGE)(secure, threading.Event())
        except OSError:
            pass  # the client wants no such certificate


def test_tls_that_never_shakes_hands() -> None:
    with RawServer(never) as server:
        failure = failure_of(server.url.replace("http:", "https:"), SOON)
    assert failure.reason == "timed out"
