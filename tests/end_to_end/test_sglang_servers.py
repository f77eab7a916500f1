"""The whole exporter beside servers that do everything wrong at once, and two that do not.

Whatever a server can say has a canary in it; none may come out, nor any address, nor the key.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.deadline import eventually
from support.exporter import ExporterProcess, Watcher, command, environment
from support.hostile import CANARY, HOSTILE, Behaviour, RawServer, answer
from support.page import Page

KEY = "canary-key-0815"
JSON = "application/json"
MEGABYTES = 250
STATES = {
    "unauthorized": "unauthorized",
    "forbidden": "unauthorized",
    "not-found": "no_metrics",
    "html": "no_metrics",
    "no-type": "no_metrics",
    "another-exporter": "no_metrics",
    "router": "no_metrics",
}
"""All others are unreachable."""


def planted(page: str) -> str:
    """A page with a canary in every label that is free, and more families with more of them."""
    page = page.replace('model_name="tiny"', f'model_name="/{CANARY}/tiny",region="{CANARY}"')
    page = page.replace('endpoint="', f'endpoint="/{CANARY}')
    return (
        f"# HELP sglang:{CANARY.replace('-', '_')} {CANARY}\n"
        + page
        + f'{CANARY.replace("-", "_")}{{a="{CANARY}"}} 1\n'
        + f'sglang:num_running_reqs{{priority="{CANARY}",tp_rank="0",model_name="tiny"}} 99\n'
    )


def answers(sglang: Path, page: str) -> dict[str, Behaviour]:
    """A good server, whose every JSON field is planted where that does not make it a bad one."""
    recorded = sglang / "sglang-expositions" / page
    info = json.loads((sglang / "http/auth_server_info.json").read_text())
    needed = ("version", "tp_size", "dp_size", "pp_size", "max_total_num_tokens")
    for field in info:
        if field not in needed and field != "internal_states":
            info[field] = f"/{CANARY}/{field}"
    info["internal_states"] = [{**info["internal_states"][0], CANARY: CANARY}]
    loads = json.loads((sglang / "http/tp1_v1_loads.out").read_text())
    loads |= {"accelerator": CANARY, "error": CANARY, CANARY: CANARY}
    loads["loads"][0] |= {"node": CANARY, "num_running_reqs": 5}
    cookie = f"Set-Cookie: session={CANARY}\r\nServer: {CANARY}\r\n"
    return {
        "/metrics": answer(planted(recorded.read_text()).encode(), headers=cookie),
        "/v1/loads": answer(json.dumps(loads).encode(), kind=JSON, headers=cookie),
        "/server_info": answer(json.dumps(info).encode(), kind=JSON, headers=cookie),
        "": answer(CANARY.encode(), status=404),
    }


class Scene:
    """All servers, the configuration that names them, and the exporter."""

    def __init__(self, stack: ExitStack, work: Path, sglang: Path) -> None:
        self.good = stack.enter_context(RawServer(answers(sglang, "real-0.5.23-cpu-tp1-busy.txt")))
        self.secret = stack.enter_context(RawServer(answers(sglang, "0.5.23-tp8.txt")))
        self.hostile = {
            name: stack.enter_context(RawServer(behaviour))
            for name, (behaviour, _) in HOSTILE.items()
        }
        self.config = work / "config.yaml"
        replicas = [("good", self.good), ("secret", self.secret), *self.hostile.items()]
        self.ports = [str(server.port) for _, server in replicas]
        self.config.write_text(
            json.dumps(
                {
                    "pools": [
                        {
                            "name": "main",
                            "api_key": {"env": "SGLANG_TEST_KEY"},
                            "timeout": "1s",
                            "scrape_interval": "200ms",
                            "replicas": [
                                {"name": name, "url": server.url} for name, server in replicas
                            ],
                        }
                    ]
                }
            )
        )
        self.data = work / "data"
        self.exporter = ExporterProcess(
            [], self.data, "--config.file", str(self.config), "--log.level", "debug"
        )

    def states(self, page: Page) -> dict[str, str]:
        """The replicas' states, as far as they were looked at."""
        labels = [dict(s.labels) for s in page.find("harborlight_replica_state") if s.value]
        return {label["replica"]: label["state"] for label in labels}

    def run(self, name: str) -> str:
        """All that a one-shot command says."""
        done = subprocess.run(
            [*command(), name, "--config.file", str(self.config)],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def scene(tmp_path: Path, sglang: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setenv("SGLANG_TEST_KEY", KEY)
    with ExitStack() as stack:
        yield Scene(stack, tmp_path, sglang)


def test_bad_servers_cost_their_own_numbers_only(scene: Scene) -> None:
    expected = {name: STATES.get(name, "unreachable") for name in HOSTILE}
    expected |= {"good": "up", "secret": "up"}
    with scene.exporter as exporter, Watcher(exporter) as watcher:

        def all_known() -> Page:
            page = exporter.page()
            assert scene.states(page) == expected
            return page

        eventually(all_known, 60, what="every replica's state")
        asked = scene.good.asked("/metrics")
        # Refreshes go on, and so do the questions to those that answer.
        eventually(lambda: scene.good.asked("/metrics") >= asked + 10, 60, what="ten more looks")
        watcher.check()
        page = exporter.fresh_page()
        assert page.value("harborlight_replica_running_requests", replica="good") == 5
        assert page.value("harborlight_replica_requests_total", replica="good") == 10
        assert page.value("harborlight_replica_requests_total", replica="secret") == 20
        assert page.value("harborlight_collector_success", collector="sglang") == 1
        said = [page.text, exporter.fetch("/")[1], exporter.fetch("/-/ready")[1]]
        status = Path(f"/proc/{exporter.process.pid}/status").read_text()
        (peak,) = [int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line]
        assert peak < MEGABYTES * 1024
    said += exporter.log
    assert any("replica state" in line for line in exporter.log)
    said += [scene.run("metrics"), scene.run("status")]
    for text in said:
        assert CANARY not in text
        assert KEY not in text
        assert not [port for port in scene.ports if f":{port}" in text]
        assert "127.0.0.1" not in text.replace(exporter.address, "")
    for file in scene.data.iterdir():
        kept = file.read_bytes()
        for secret in (CANARY, KEY, "127.0.0.1"):
            assert secret.encode() not in kept
