"""The HTTP server, over real sockets."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
import requests

from harborlight import server
from harborlight.server import (
    Address,
    ListenError,
    Server,
    accepts_gzip,
    bind,
    build_app,
    parse_listen_address,
    serve,
)
from support.deadline import eventually

TEXT = "text/plain; version=0.0.4; charset=utf-8"
BODY = b"# HELP harborlight_x X.\n# TYPE harborlight_x gauge\nharborlight_x 1\n"
LOCAL: list[Address] = [("127.0.0.1", 0)]


@dataclass
class Source:
    """A page that counts its readers, and holds them where a gate is closed."""

    gate: threading.Event = field(default_factory=threading.Event)
    accepts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate.set()

    def render(self, accept: str) -> tuple[str, bytes, bytes]:
        self.accepts.append(accept)
        assert self.gate.wait(30)
        return TEXT, BODY, gzip.compress(BODY, mtime=0)


@dataclass
class World:
    """What the application is about; tests change it under way."""

    page: Source | None = field(default_factory=Source)
    reason: str | None = None
    url: str = ""

    def get(self, path: str, **headers: str) -> requests.Response:
        return requests.get(self.url + path, headers=headers, timeout=10)


RUNBOOKS = {"LampOut.md": "# LampOut\n\nseverity: <critical>\n"}

type Start = Callable[..., Server]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def start(world: World) -> Iterator[Start]:
    """Start a server for the world; ended after the test."""
    servers: list[Server] = []

    def start_one(
        reload: Callable[[], Awaitable[None] | None] | None = None, **options: float
    ) -> Server:
        app = build_app(
            page=lambda: world.page,
            ready=lambda: world.reason,
            reload=reload,
            runbooks=RUNBOOKS,
            title="Lamp <& co>",
            version='1.2 "x"',
        )
        servers.append(serve(app, LOCAL, **options))
        world.url = f"http://{servers[-1].addresses[0]}"
        return servers[-1]

    yield start_one
    for started in servers:
        started.stop()


def test_metrics(world: World, start: Start) -> None:
    """The page as rendered, for the Accept header that was sent."""
    start()
    got = world.get("/metrics", **{"Accept": "text/plain", "Accept-Encoding": ""})
    assert (got.status_code, got.content) == (200, BODY)
    assert got.headers["Content-Type"] == TEXT
    assert got.headers["Content-Length"] == str(len(BODY))
    assert got.headers["Vary"] == "Accept, Accept-Encoding"
    assert "Content-Encoding" not in got.headers
    assert world.page is not None
    assert world.page.accepts == ["text/plain"]


def test_metrics_gzipped(world: World, start: Start) -> None:
    """The gzipped page as it came, where the client takes it."""
    start()
    url = world.url + "/metrics"
    with requests.get(url, headers={"Accept-Encoding": "gzip"}, stream=True, timeout=10) as got:
        raw = got.raw.read(decode_content=False)
        assert got.headers["Content-Encoding"] == "gzip"
        assert got.headers["Content-Length"] == str(len(raw))
        assert got.headers["Vary"] == "Accept, Accept-Encoding"
    assert gzip.decompress(raw) == BODY
    refused = world.get("/metrics", **{"Accept-Encoding": "gzip;q=0"})
    assert "Content-Encoding" not in refused.headers
    assert refused.content == BODY


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", False),
        ("gzip", True),
        ("GZip", True),
        ("x-gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("gzip;q=0.001", True),
        ("*", True),
        ("*;q=0", False),
        ("gzip;q=0, *", False),
        ("identity, gzip;q=0.5", False),
        ("identity;q=0.5, gzip", True),
        ("gzip;q=1.0, identity;q=1", True),
        ("gzip;q=high", False),
        ("gzip;q=2", False),
        ("gzip;q=", False),
        ("br", False),
        ("notgzip", False),
        (",,;,", False),
    ],
)
def test_gzip_negotiation(header: str, expected: bool) -> None:
    """q=0 refuses, what is unreadable refuses, identity may be preferred."""
    assert accepts_gzip(header) is expected


def test_head(world: World, start: Start) -> None:
    """HEAD answers as GET does, without the body."""
    start()
    for path in ("/metrics", "/", "/-/healthy", "/-/ready"):
        head = requests.head(world.url + path, headers={"Accept-Encoding": ""}, timeout=10)
        get = world.get(path, **{"Accept-Encoding": ""})
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["Content-Length"] == str(len(get.content))
        assert head.headers["Content-Type"] == get.headers["Content-Type"]


def test_before_the_first_page(world: World, start: Start) -> None:
    """No page is said in one line, and is no success."""
    world.page = None
    world.reason = "the first look is\nunder way"
    start()
    got = world.get("/metrics")
    assert got.status_code == 503
    assert got.text == "no snapshot yet: the first look at the sources is under way\n"
    not_ready = world.get("/-/ready")
    assert (not_ready.status_code, not_ready.text) == (
        503,
        "not ready: the first look is?under way\n",
    )
    assert world.get("/-/healthy").status_code == 200
    world.page, world.reason = Source(), None
    assert world.get("/metrics").status_code == 200
    assert world.get("/-/ready").text == "ready\n"


def test_runbooks(world: World, start: Start) -> None:
    """A list of them, and each as plain text; no other file under that name."""
    start()
    listed = world.get("/runbooks")
    assert listed.headers["Content-Type"] == "text/html; charset=utf-8"
    links = re.findall(r'<a href="([^"]*)">[^<]*</a></dt><dd>([^<]*)', listed.text)
    assert links == [("/runbooks/LampOut.md", "severity: &lt;critical&gt;")]
    page = world.get(links[0][0])
    assert (page.status_code, page.text) == (200, RUNBOOKS["LampOut.md"])
    assert page.headers["Content-Type"] == "text/plain; charset=utf-8"
    for other in ("LampOut", "../server.py", "%2e%2e/server.py", "%2e%2e%2fserver.py", "x.md"):
        url = f"{world.url}/runbooks/{other}"
        assert requests.get(url, timeout=10).status_code == 404
    assert world.get("/runbooks/").status_code == 404


def test_without_runbooks() -> None:
    app = build_app(page=lambda: None, ready=lambda: None)
    with serve(app, LOCAL) as server:
        url = f"http://{server.addresses[0]}/runbooks"
        assert requests.get(url, timeout=10).text.count("<dt>") == 0
        assert requests.get(f"{url}/LampOut.md", timeout=10).status_code == 404


def test_landing_page(world: World, start: Start) -> None:
    """Links that work, everything escaped, nothing from elsewhere, the style allowed by hash."""
    start()
    got = world.get("/")
    assert got.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<h1>Lamp &lt;&amp; co&gt;</h1>" in got.text
    assert "1.2 &quot;x&quot;" in got.text
    links = re.findall(r'(?:href|src)="([^"]*)"', got.text)
    assert links == ["/metrics", "/-/healthy", "/-/ready", "/runbooks"]
    assert all(world.get(link).status_code == 200 for link in links)
    (style,) = re.findall(r"<style>(.*?)</style>", got.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = got.headers["Content-Security-Policy"]
    assert f"style-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_security_headers(world: World, start: Start) -> None:
    """On every answer, failures included; nobody learns what serves."""
    start()
    for path, status in (("/", 200), ("/metrics", 200), ("/nowhere", 404), ("/-/reload", 405)):
        got = world.get(path)
        assert got.status_code == status
        assert got.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in got.headers["Content-Security-Policy"]
        assert "Server" not in got.headers


def test_security_headers_when_it_breaks(
    world: World, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """A page that cannot be rendered is a plain 500; the reason is in the log alone."""

    class Broken(Source):
        def render(self, accept: str) -> tuple[str, bytes, bytes]:
            raise RuntimeError("secret path")

    world.page = Broken()
    start()
    got = world.get("/metrics")
    assert (got.status_code, got.text) == (500, "Internal Server Error")
    assert got.headers["X-Content-Type-Options"] == "nosniff"
    # The answer goes out first.
    eventually(lambda: "secret path" in caplog.text, what="the log line")


def test_unknown_paths_and_methods(world: World, start: Start) -> None:
    """404 and 405, in one line; no path is guessed."""
    start()
    for path in ("/metrics/", "/metric", "/-/", "//metrics", "/..%2f..%2fetc/passwd"):
        got = requests.get(world.url + path, allow_redirects=False, timeout=10)
        assert (got.status_code, got.text) == (404, "Not Found\n")
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        got = requests.request(method, world.url + "/metrics", timeout=10)
        assert (got.status_code, got.text) == (405, "Method Not Allowed\n")
        assert sorted(got.headers["Allow"].split(", ")) == ["GET", "HEAD"]


def test_reload_is_off(world: World, start: Start) -> None:
    """Without leave, reloading is forbidden."""
    start()
    got = requests.post(world.url + "/-/reload", timeout=10)
    assert (got.status_code, got.text) == (403, "reloading over HTTP is not enabled\n")


def test_reload(world: World, start: Start) -> None:
    """POST reloads once; GET does nothing."""
    calls: list[int] = []
    start(reload=lambda: calls.append(1))
    assert world.get("/-/reload").status_code == 405
    got = requests.post(world.url + "/-/reload", timeout=10)
    assert (got.status_code, got.text) == (200, "reloaded\n")
    assert calls == [1]


def test_reload_as_coroutine(world: World, start: Start) -> None:
    """What the function returns to be awaited is awaited."""
    calls: list[int] = []

    async def reload() -> None:
        calls.append(1)

    start(reload=reload)
    assert requests.post(world.url + "/-/reload", timeout=10).status_code == 200
    assert calls == [1]


def test_reload_that_fails(world: World, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """500 in one line that quotes nothing; the log has the reason."""

    def reload() -> None:
        raise ValueError("runs[0].name: expected a name, got 'secret'")

    start(reload=reload)
    got = requests.post(world.url + "/-/reload", timeout=10)
    assert got.status_code == 500
    assert got.text == "reload failed, the configuration before stays; see the log\n"
    (record,) = (r for r in caplog.records if r.getMessage() == "reload failed")
    assert vars(record)["error"] == "runs[0].name: expected a name, got 'secret'"


def test_reloads_follow_one_another(world: World, start: Start) -> None:
    """Two requests at once never load at once."""
    inside = threading.Semaphore(1)
    calls: list[int] = []

    def reload() -> None:
        assert inside.acquire(blocking=False)
        calls.append(1)
        inside.release()

    start(reload=reload)
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda _: requests.post(world.url + "/-/reload", timeout=10), range(8))
        )
    assert [a.status_code for a in answers] == [200] * 8
    assert len(calls) == 8


def test_parallel_scrapes(world: World, start: Start) -> None:
    """Twenty scrapes that are all under way at once are all answered in full."""
    start()
    assert world.page is not None
    source = world.page
    source.gate.clear()
    with ThreadPoolExecutor(20) as pool:
        answers = [pool.submit(world.get, "/metrics") for _ in range(20)]
        eventually(lambda: len(source.accepts) == 20, what="twenty scrapes at once")
        # Those that wait for a page hold up nobody else.
        assert world.get("/-/healthy").status_code == 200
        source.gate.set()
        assert {(a.result().status_code, a.result().content) for a in answers} == {(200, BODY)}


def test_stop_drains(world: World, start: Start) -> None:
    """A scrape that is under way is answered; a new one is not taken."""
    server = start()
    assert world.page is not None
    source = world.page
    source.gate.clear()
    with ThreadPoolExecutor(2) as pool:
        answer = pool.submit(world.get, "/metrics")
        eventually(lambda: source.accepts, what="the scrape")
        stopped = pool.submit(server.stop)
        eventually(lambda: not _connects(server), what="the closed door")
        assert not stopped.done()
        source.gate.set()
        assert answer.result().content == BODY
        stopped.result(10)


def test_stop_cuts_off_a_stuck_request(world: World, start: Start) -> None:
    """What does not end in the time to drain does not hold the caller."""
    server = start(drain_seconds=0)
    assert world.page is not None
    source = world.page
    source.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(world.get, "/metrics")
        eventually(lambda: source.accepts, what="the scrape")
        server.stop()
        assert isinstance(answer.exception(10), requests.ConnectionError) or not answer.result().ok
        source.gate.set()


def test_stop_does_not_wait_for_idle_connections(world: World, start: Start) -> None:
    """A kept connection, one with half a request, and one that says nothing: all are closed."""
    server = start()
    host, _, port = server.addresses[0].rpartition(":")
    with (
        requests.Session() as session,
        socket.create_connection((host, int(port)), 10) as silent,
        socket.create_connection((host, int(port)), 10) as half,
    ):
        assert session.get(world.url + "/-/healthy", timeout=10).ok
        half.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
        server.stop()
        assert silent.recv(1) == b""
        assert half.recv(1) == b""


def test_stop_twice_and_with(world: World) -> None:
    """Stopping again is nothing; a with block stops."""
    app = build_app(page=lambda: None, ready=lambda: None)
    with serve(app, LOCAL) as server:
        assert _connects(server)
    assert not _connects(server)
    server.stop()


def test_run_in_the_calling_thread() -> None:
    """``run`` returns after ``ask_to_stop``, with its sockets closed."""
    app = build_app(page=lambda: None, ready=lambda: None)
    with bind(LOCAL) as sockets:
        server = Server(app, sockets)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(server.run)
            url = f"http://{server.addresses[0]}/-/healthy"
            assert requests.get(url, timeout=10).text == "healthy\n"
            server.ask_to_stop()
            running.result(10)
        assert not _connects(server)


def test_asked_to_stop_before_it_runs() -> None:
    """A signal that comes early is not lost."""
    server = Server(build_app(page=lambda: None, ready=lambda: None), bind(LOCAL))
    server.ask_to_stop()
    server.run()
    assert not _connects(server)


def test_listening_is_logged(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """With the port that was given."""
    caplog.set_level("INFO", "harborlight")
    server = start()
    records = [r for r in caplog.records if r.getMessage() == "listening"]
    assert [vars(r)["address"] for r in records] == list(server.addresses)


def test_port_taken() -> None:
    """One line that says where and why; what was bound before it is let go."""
    with bind(LOCAL) as sockets:
        taken = int(sockets.addresses[0].rpartition(":")[2])
        with socket.create_server(("127.0.0.1", 0)) as free:
            other = free.getsockname()[1]
        message = f"^cannot listen on 127.0.0.1:{taken}: Address already in use$"
        with pytest.raises(ListenError, match=message):
            bind([("127.0.0.1", other), ("127.0.0.1", taken)])
        bind([("127.0.0.1", other)]).close()
        with pytest.raises(ListenError, match=message):
            serve(build_app(page=lambda: None, ready=lambda: None), [("127.0.0.1", taken)])


def test_host_that_does_not_exist() -> None:
    """A name that cannot be resolved is a ListenError, too."""
    with pytest.raises(ListenError, match=r"^cannot listen on no\.such\.host\.invalid:1: .+$"):
        bind([("no.such.host.invalid", 1)])


def test_several_addresses(world: World) -> None:
    """Each of them answers, and port 0 is shown as the port it became."""
    app = build_app(page=lambda: world.page, ready=lambda: None)
    with serve(app, [("127.0.0.1", 0), ("localhost", 0), ("", 0)]) as server:
        assert len(set(server.addresses)) == 3
        for address in server.addresses:
            port = address.rpartition(":")[2]
            assert port != "0"
            assert requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).content == BODY


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:10315", ("127.0.0.1", 10315)),
        (":10315", ("", 10315)),
        ("localhost:0", ("localhost", 0)),
        ("eval-host_1.example.org:65535", ("eval-host_1.example.org", 65535)),
        ("[::1]:10315", ("::1", 10315)),
        ("[::]:1", ("::", 1)),
        ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1)),
    ],
)
def test_listen_address(text: str, address: Address) -> None:
    """The forms that Prometheus' own programs take."""
    assert parse_listen_address(text) == address


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected HOST:PORT, as in 127.0.0.1:10315, got ''"),
        ("10315", "expected HOST:PORT, as in 127.0.0.1:10315, got '10315'"),
        ("a b:1", "expected HOST:PORT, as in 127.0.0.1:10315, got 'a b:1'"),
        ("http://x:1", "expected HOST:PORT, as in 127.0.0.1:10315, got 'http://x:1'"),
        ("x:1\n", "expected a port from 0 to 65535, got '1\\n' in 'x:1\\n'"),
        ("x:", "expected a port from 0 to 65535, got '' in 'x:'"),
        ("x:http", "expected a port from 0 to 65535, got 'http' in 'x:http'"),
        ("x:-1", "expected a port from 0 to 65535, got '-1' in 'x:-1'"),
        ("x:65536", "expected a port from 0 to 65535, got '65536' in 'x:65536'"),
        ("x:٣", "expected a port from 0 to 65535, got '٣' in 'x:٣'"),
        ("[::1]:x", "expected a port from 0 to 65535, got 'x' in '[::1]:x'"),
        ("::1", "expected an IPv6 address in brackets, as in [::1]:10315, got '::1'"),
        ("::1:10315", "expected an IPv6 address in brackets, as in [::1]:10315, got '::1:10315'"),
    ],
)
def test_listen_address_that_is_wrong(text: str, message: str) -> None:
    """Every error says what was expected and what came."""
    with pytest.raises(ListenError) as caught:
        parse_listen_address(text)
    assert str(caught.value) == message


def _connects(server: Server) -> bool:
    host, _, port = server.addresses[0].rpartition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except OSError:
        return False
    return True


def test_silent_connections_do_not_keep_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than there are places: they are given up, and a scrape gets through."""
    monkeypatch.setattr(server, "FIRST_REQUEST_SECONDS", 0.3)
    app = server.build_app(page=lambda: None, ready=lambda: None)
    with server.serve(app, [("127.0.0.1", 0)]) as running, contextlib.ExitStack() as stack:
        host, _, port = running.addresses[0].rpartition(":")
        for _ in range(server.MAX_CONNECTIONS + 20):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=10))

        def healthy() -> bool:
            return requests.get(f"http://{host}:{port}/-/healthy", timeout=10).status_code == 200

        assert eventually(healthy, 20)
