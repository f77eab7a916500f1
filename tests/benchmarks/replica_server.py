"""A model server in a process of its own: ``replica_server PAGE LOADS`` prints its port.

It answers below any path, so that one of it can stand for many replicas.
"""

from __future__ import annotations

import socketserver
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import override


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = True
    request_queue_size = 512


def main(page: bytes, loads: bytes) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, kind = b"", ""
            if self.path.endswith("/metrics"):
                body, kind = page, "text/plain; version=0.0.4"
            elif self.path.endswith("/v1/loads"):
                body, kind = loads, "application/json"
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *_: object) -> None:
            """Nothing: it is measured."""

    with _Server(("127.0.0.1", 0), Handler) as server:
        print(server.server_port, flush=True)  # noqa: T201
        server.serve_forever()


if __name__ == "__main__":
    main(*(Path(argument).read_bytes() for argument in sys.argv[1:]))
