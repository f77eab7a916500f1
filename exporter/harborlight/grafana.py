"""The dashboards in a Grafana, over its HTTP API."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from harborlight import __version__
from harborlight.labels import safe_label
from harborlight.sources.failure import Unreadable
from harborlight.sources.fetch import MAX_JSON_BYTES, Tls, body, exchanged

DEFAULT_FOLDER: Final = "Harborlight"
FOLDER_UID: Final = "harborlight"

_OK, _MULTIPLE_CHOICES, _BAD_REQUEST, _FORBIDDEN, _NOT_FOUND = 200, 300, 400, 403, 404
_GRAFANAS_OWN: Final = ("id", "version")
"""Keys of a dashboard that Grafana sets."""

_MOST_FOLDERS: Final = 1000


class GrafanaError(Exception):
    """Grafana did not do as asked: its status and short message, or fixed words."""


@dataclass(frozen=True, slots=True)
class GrafanaTarget:
    """Where a Grafana is. ``url``: with the path that it is served under, if any.

    Address and key are kept out of ``repr``, so that no log line can show them.
    """

    url: str = field(repr=False)
    api_key: str = field(repr=False)
    timeout: float = 15.0
    tls: Tls = field(default=Tls(), repr=False)


class Grafana:
    """Asks one Grafana, each request with a deadline."""

    def __init__(self, target: GrafanaTarget) -> None:
        self._target = target

    def folder(self, name: str = DEFAULT_FOLDER) -> str:
        """The uid of the folder, which is made where there is none. Raises GrafanaError.

        The one that was made here is known by its uid, whatever it is called by now; another one
        by its name.
        """
        uid = FOLDER_UID
        if name != DEFAULT_FOLDER:
            uid += "-" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        status, document = self._ask("GET", f"/api/folders/{uid}")
        if status == _OK:
            return uid
        # Who may not see every folder is not told of one that does not exist that it does not.
        if status not in (_NOT_FOUND, _FORBIDDEN):
            raise self._refused(status, document)
        status, folders = self._ask("GET", f"/api/folders?limit={_MOST_FOLDERS}")
        if status == _OK and isinstance(folders, list):
            for folder in folders:
                match folder:
                    case {"title": title, "uid": str(known)} if title == name:
                        return known
        status, document = self._ask("POST", "/api/folders", {"uid": uid, "title": name})
        if status != _OK:
            raise self._refused(status, document)
        return uid

    def push(self, dashboard: Mapping[str, Any], folder: str) -> bool:
        """Whether it had to be stored: the same one, there already, stays the version it is.

        Raises GrafanaError.
        """
        status, found = self._ask("GET", f"/api/dashboards/uid/{dashboard['uid']}")
        if status not in (_OK, _NOT_FOUND):
            raise self._refused(status, found)
        if status == _OK and _is_there(found, dashboard, folder):
            return False
        stored = {
            "dashboard": {**dashboard, "id": None},
            "folderUid": folder,
            "overwrite": True,
            "message": f"harborlight {__version__}",
        }
        status, answer = self._ask("POST", "/api/dashboards/db", stored)
        if status != _OK:
            raise self._refused(status, answer)
        return True

    def _ask(
        self, method: str, path: str, sent: Mapping[str, Any] | None = None
    ) -> tuple[int, Any]:
        """The status, and the answer's JSON (None where it is none)."""
        target = self._target
        data = None if sent is None else json.dumps(sent).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        deadline = time.monotonic() + target.timeout
        url = target.url.rstrip("/") + path
        try:
            with exchanged(target, method, url, "application/json", deadline, headers, data) as (
                response,
                guard,
            ):
                content = b"".join(body(response, MAX_JSON_BYTES, guard))
                status = response.status_code
        except Unreadable as unreadable:
            reason = unreadable.failure.reason
            if unreadable.failure.timed_out:
                reason += f"; expected an answer within {target.timeout:g} s"
            raise GrafanaError(reason) from None
        try:
            return status, json.loads(content)
        except (ValueError, RecursionError):
            if status == _OK:
                raise GrafanaError("HTTP 200; expected the answer of a Grafana") from None
            return status, None

    def _refused(self, status: int, answer: Any) -> GrafanaError:
        if _MULTIPLE_CHOICES <= status < _BAD_REQUEST:
            return GrafanaError(f"HTTP {status}; expected Grafana itself, not a redirect to it")
        message = answer.get("message") if isinstance(answer, dict) else None
        if not isinstance(message, str) or not message or self._target.api_key in message:
            return GrafanaError(f"HTTP {status}")
        return GrafanaError(f"HTTP {status}: {safe_label(message)}")


def _is_there(found: Any, dashboard: Mapping[str, Any], folder: str) -> bool:
    match found:
        case {"dashboard": dict(there), "meta": dict(meta)}:
            here = meta.get("folderUid", folder) == folder or meta.get("provisioned") is True
            return here and _content(there) == _content(dashboard)
        case _:
            raise GrafanaError("HTTP 200; expected the answer of a Grafana")


def _content(dashboard: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in dashboard.items() if key not in _GRAFANAS_OWN}
