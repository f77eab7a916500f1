"""A Grafana's HTTP API, as far as dashboards and folders go.

Endpoints, statuses and messages are those of Grafana 9 to 12 (pkg/api/dashboard.go,
pkg/api/folder.go, pkg/services/dashboards/errors.go).
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable
from typing import Any, Self, override

TOKEN = "glsa_canary-token-4711"  # noqa: S105 - of no Grafana there is

type Answer = tuple[int, Any]


class FakeGrafana:
    """Serves under ``path``. What it holds can be changed, and so can what it answers.

    ``answers``: by "METHOD /path", instead of what it would answer itself.
    """

    def __init__(self, path: str = "", token: str = TOKEN) -> None:
        self.token = token
        self.path = path
        self.folders: dict[str, str] = {}
        self.dashboards: dict[str, dict[str, Any]] = {}
        self.folder_of: dict[str, str] = {}
        self.provisioned: set[str] = set()
        self.messages: list[str] = []
        self.answers: dict[str, Answer] = {}
        self.headers: dict[str, str] = {}
        self.requests: list[str] = []
        self.authorizations: set[str | None] = set()
        grafana = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._do("GET")

            def do_POST(self) -> None:
                self._do("POST")

            def _do(self, method: str) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                sent = self.rfile.read(length)
                authorization = self.headers.get("Authorization")
                status, answer = grafana._answer(method, self.path, authorization, sent)
                content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                for name, value in grafana.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            @override
            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}{path}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def writes(self) -> list[str]:
        """The requests that were to change something."""
        return [request for request in self.requests if request.startswith("POST")]

    def _answer(self, method: str, path: str, authorization: str | None, sent: bytes) -> Answer:
        if not path.startswith(f"{self.path}/api/"):
            return 404, b"<html>404 page not found</html>"
        path = path.removeprefix(self.path)
        request = f"{method} {path}"
        self.requests.append(request)
        self.authorizations.add(authorization)
        if request in self.answers:
            return self.answers[request]
        if authorization != f"Bearer {self.token}":
            return 401, {
                "extra": None,
                "message": "Invalid API key",
                "messageId": "api-key.invalid",
                "statusCode": 401,
                "traceID": "",
            }
        handlers: dict[str, Callable[[dict[str, Any]], Answer]] = {
            "POST /api/dashboards/db": self._store,
            "POST /api/folders": self._make_folder,
        }
        if request in handlers:
            return handlers[request](json.loads(sent))
        if request.startswith("GET /api/folders?"):
            return 200, [{"id": 1, "uid": u, "title": t} for u, t in self.folders.items()]
        kind, _, uid = path.removeprefix("/api/").rpartition("/")
        if kind == "folders":
            return self._folder(uid)
        return self._dashboard(uid)

    def _folder(self, uid: str) -> Answer:
        if uid not in self.folders:
            return 404, {"message": "folder not found", "status": "not-found"}
        return 200, {"id": 1, "uid": uid, "title": self.folders[uid], "version": 1}

    def _make_folder(self, sent: dict[str, Any]) -> Answer:
        if sent["uid"] in self.folders:
            return 412, {
                "message": "the folder has been changed by someone else",
                "status": "version-mismatch",
            }
        self.folders[sent["uid"]] = sent["title"]
        return self._folder(sent["uid"])

    def _dashboard(self, uid: str) -> Answer:
        if uid not in self.dashboards:
            return 404, {"message": "Dashboard not found", "traceID": ""}
        meta = {
            "type": "db",
            "slug": "x",
            "folderUid": self.folder_of[uid],
            "version": self.dashboards[uid]["version"],
            "provisioned": uid in self.provisioned,
        }
        return 200, {"meta": meta, "dashboard": self.dashboards[uid]}

    def _store(self, sent: dict[str, Any]) -> Answer:
        dashboard = sent["dashboard"]
        uid = dashboard["uid"]
        if uid in self.provisioned:
            return 400, {"message": "Cannot save provisioned dashboard", "traceID": ""}
        if sent["folderUid"] not in self.folders:
            return 400, {"message": "folder not found", "traceID": ""}
        if uid in self.dashboards and not sent.get("overwrite"):
            return 412, {
                "message": "The dashboard has been changed by someone else",
                "status": "version-mismatch",
            }
        version = self.dashboards.get(uid, {}).get("version", 0) + 1
        self.dashboards[uid] = {**dashboard, "id": 1 + len(self.dashboards), "version": version}
        self.folder_of[uid] = sent["folderUid"]
        self.messages.append(sent["message"])
        return 200, {
            "id": self.dashboards[uid]["id"],
            "uid": uid,
            "url": f"{self.path}/d/{uid}/x",
            "status": "success",
            "version": version,
            "slug": "x",
        }
