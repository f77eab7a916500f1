"""A real Alertmanager that is told of alerts and says what becomes of them."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import requests
import yaml

from support.deadline import eventually

PROGRAM: Final = "prometheus-alertmanager"
START_SECONDS: Final = 30.0

type Labels = Mapping[str, str]


def program() -> str | None:
    """Debian calls it so, everybody else otherwise."""
    return shutil.which(PROGRAM) or shutil.which("alertmanager")


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """Its API, as far as it is used here."""

    url: str

    def tell(self, alerts: Sequence[Labels]) -> None:
        """These alerts fire from now on."""
        body = [{"labels": dict(labels), "annotations": {}} for labels in alerts]
        requests.post(f"{self.url}/api/v2/alerts", json=body, timeout=10).raise_for_status()

    def heard(self) -> list[str]:
        """Names of the alerts that nothing inhibits, in order."""
        asked = {"inhibited": "false", "active": "true"}
        return sorted(alert["labels"]["alertname"] for alert in self._alerts(asked))

    def known(self) -> int:
        """How many alerts it has."""
        return len(self._alerts({}))

    def _alerts(self, asked: Mapping[str, str]) -> list[dict[str, Any]]:
        answer = requests.get(f"{self.url}/api/v2/alerts", params=asked, timeout=10)
        answer.raise_for_status()
        found: list[dict[str, Any]] = answer.json()
        return found


@contextmanager
def alertmanager(folder: Path, configuration: Mapping[str, Any]) -> Iterator[Alertmanager]:
    """One with this configuration, for as long as the block lasts."""
    name = program()
    assert name is not None
    folder.mkdir()
    config = folder / "alertmanager.yml"
    config.write_text(yaml.safe_dump(dict(configuration)))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                name,
                f"--config.file={config}",
                f"--storage.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        server = Alertmanager(f"http://127.0.0.1:{port}")

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            return requests.get(f"{server.url}/-/ready", timeout=5).ok

        eventually(ready, START_SECONDS, what="Alertmanager's readiness")
        yield server
    finally:
        process.terminate()
        process.wait(10)
