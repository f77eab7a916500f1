"""A real Prometheus that scrapes fixed pages, and answers questions about them."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import requests

from support.deadline import eventually

START_SECONDS: Final = 60.0
_CONFIG: Final = """\
global: {scrape_interval: 1s}
scrape_configs:
"""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """Its API, as far as it is used here."""

    url: str

    def ask(self, expr: str) -> dict[frozenset[tuple[str, str]], str]:
        """An instant query's values as written, by labels; an AssertionError with its error."""
        result = self._get("query", {"query": expr})["result"]
        return {frozenset(s["metric"].items()): s["value"][1] for s in result}

    def ask_range(self, expr: str, start: float, end: float, step: float) -> None:
        """Evaluate a range query, for its errors."""
        self._get("query_range", {"query": expr, "start": start, "end": end, "step": step})

    def _get(self, path: str, asked: Mapping[str, str | float]) -> Any:
        answer = requests.get(f"{self.url}/api/v1/{path}", params=asked, timeout=10)
        body = answer.json()
        assert body["status"] == "success", f"{body['error']}\n{asked['query']}"
        return body["data"]


@contextmanager
def pages(texts: Sequence[str]) -> Iterator[list[str]]:
    """Serves each text as a metrics page; yields their addresses and paths."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = texts[int(self.path.strip("/"))].encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base names it
            """Not on the tests' output."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        try:
            yield [f"127.0.0.1:{port}/{number}" for number in range(len(texts))]
        finally:
            server.shutdown()


@contextmanager
def prometheus(folder: Path, targets: Mapping[str, str]) -> Iterator[Prometheus]:
    """A Prometheus that has scraped each target; ``targets``: address and path by job."""
    folder.mkdir()
    config = folder / "prometheus.yml"
    jobs = "".join(
        f"- job_name: {job}\n  metrics_path: /{target.partition('/')[2]}\n"
        f'  static_configs: [{{targets: ["{target.partition("/")[0]}"]}}]\n'
        for job, target in targets.items()
    )
    config.write_text(_CONFIG + jobs)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        server = Prometheus(f"http://127.0.0.1:{port}")
        # Twice: a rate needs two samples.
        scraped = f"count(count_over_time(up[1m]) >= 2 and up == 1) == {len(targets)}"
        eventually(lambda: server.ask(scraped), START_SECONDS, what="all targets are scraped")
        yield server
    finally:
        process.terminate()
        process.wait(10)
