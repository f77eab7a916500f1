"""The command line, as a process: exit codes, messages, signals."""

from __future__ import annotations

import hashlib
import http.client
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Self, override

import pytest

import harborlight
from harborlight.cli import UsageError, _parser, _Reader, _rules, _signals, _Sources, main
from harborlight.config import Config, load_config
from harborlight.demo.replay import write_finished_job
from harborlight.ledger import Ledger, Store
from harborlight.service import Service
from harborlight.sources.job_directory import JobDirectorySource
from support.deadline import eventually
from support.exporter import ExporterProcess, command, environment
from support.fake_harbor import FakeHarbor
from support.page import Page, assert_promises

SUCCESS = "harborlight_collector_success"
RELOADED = "harborlight_config_last_reload_successful"
ENDS_WITHIN = 15.0


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command as a process of its own."""
    return subprocess.run(
        [*command(), *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def run_into(output: IO[bytes], *arguments: str | Path) -> tuple[int, str]:
    """Exit code and standard error of a command whose standard output goes there."""
    done = subprocess.run(
        [*command(), *map(str, arguments)],
        env=environment(),
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


class Here:
    """Commands in this process, which is quicker; logging is left as pytest has it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *arguments: str | Path) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        self._capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:  # from argparse
            code = int(end.code or 0)
        return code, *self._capsys.readouterr()

    def shown(self, *arguments: str | Path) -> str:
        """What a command prints that succeeds."""
        code, output, error = self.run(*arguments)
        assert (code, error) == (0, "")
        return output

    def refused(self, *arguments: str | Path) -> str:
        """The one line that a command is refused with."""
        code, output, error = self.run(*arguments)
        assert (code, output) == (2, "")
        (line,) = error.splitlines()
        said = re.fullmatch("harborlight: (.+)", line)
        assert said is not None, line
        return said[1]


@pytest.fixture
def here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Here:
    monkeypatch.setattr("harborlight.cli.configure_logging", lambda *_: None)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    return Here(capsys)


def serving(jobs: Path, data: Path, address: str = "127.0.0.1:0") -> list[str | Path]:
    return ["serve", "--jobs", jobs, "--data-dir", data, "--web.listen-address", address]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished job of three tasks x two attempts. Read only."""
    folder = tmp_path_factory.mktemp("cli") / "jobs"
    write_finished_job(folder, "done", 3, 2, fault_ratio=0.0)
    return folder


@pytest.fixture
def known(jobs: Path, tmp_path: Path) -> Path:
    """A data directory that knows that job."""
    data = tmp_path / "data"
    with Store.open_writer(data) as store:
        Service(Ledger(store), [JobDirectorySource([jobs])]).refresh()
    return data


def state(folder: Path) -> dict[str, tuple[int, str]]:
    """Names, times and bytes of a folder and what is in it."""
    files = {path.name: path for path in folder.iterdir()}
    content = {
        name: (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for name, path in files.items()
    }
    return {".": (folder.stat().st_mtime_ns, ""), **content}


# What is refused.


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"harborlight {harborlight.__version__}\n")


@pytest.mark.parametrize("arguments", [["frobnicate"], [], ["ledger"], ["serve", "--jbos", "x"]])
def test_an_unknown_command_is_answered_with_the_usage(here: Here, arguments: list[str]) -> None:
    code, output, error = here.run(*arguments)
    assert (code, output) == (2, "")
    assert error.startswith("usage: harborlight")


@pytest.mark.parametrize("name", ["serve", "metrics", "status"])
def test_nothing_to_watch(here: Here, name: str) -> None:
    assert here.refused(name) == (
        "nothing to watch: give --jobs PATH, --harbor-server URL, --sglang URL or a "
        "configuration file with jobs:, harbor_servers: or pools:"
    )


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:http", "::1:9", "127.0.0.1:70000"])
def test_a_bad_listen_address(here: Here, jobs: Path, tmp_path: Path, address: str) -> None:
    said = here.refused(*serving(jobs, tmp_path / "data", address))
    assert said.startswith("expected ")
    assert address in said
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("duration", ["5x", "-1s", "0s", "1ms", "2h", "five"])
def test_a_bad_refresh_interval(here: Here, jobs: Path, tmp_path: Path, duration: str) -> None:
    said = here.refused(*serving(jobs, tmp_path / "data"), f"--refresh-interval={duration}")
    assert said.startswith("--refresh-interval: expected ")
    assert repr(duration) in said


def test_a_port_that_is_taken(here: Here, jobs: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        said = here.refused(*serving(jobs, tmp_path / "data", address))
    assert said == f"cannot listen on {address}: Address already in use"
    assert not (tmp_path / "data").exists()


def test_a_data_directory_that_cannot_be_made(here: Here, jobs: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    data = tmp_path / "file" / "data"
    said = here.refused(*serving(jobs, data))
    assert said == f"data directory {data} cannot be written: Not a directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_directory_without_permission(here: Here, jobs: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o555)
    said = here.refused(*serving(jobs, data))
    assert said == f"data directory {data} cannot be written: Permission denied"


def test_a_data_directory_in_use(here: Here, jobs: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ExporterProcess([jobs], data) as exporter:
        in_use = f"data directory {data} is in use by another harborlight serve"
        assert here.refused(*serving(jobs, data)) == in_use
        assert here.refused("ledger", "forget", "--job", "done", "--data-dir", data) == in_use
        assert exporter.page().value("harborlight_ledger_trials") == 6


def test_a_foreign_file_in_the_ledgers_place(here: Here, jobs: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_text("shopping list\n" * 100)
    said = here.refused(*serving(jobs, tmp_path))
    assert said == f"ledger in {tmp_path} cannot be opened: file is not a database"
    assert (tmp_path / "ledger.sqlite").read_text().startswith("shopping list")


def test_a_bad_configuration_names_file_line_and_key(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "harborlight.yml"
    file.write_text("jobs: [jobs]\nrefresh_intervall: 5s\n")
    for arguments in (("check-config",), ("serve", "--config.file"), ("metrics", "--config.file")):
        said = here.refused(*arguments, file)
        assert said.startswith(f"{file}:2: ")
        assert "refresh_intervall" in said


def test_check_config(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "harborlight.yml"
    file.write_text("jobs: [jobs]\nruns: [{name: main, jobs: [done]}]\n")
    assert here.shown("check-config", file) == f"{file}: good, 1 run configured\n"
    assert here.refused("check-config", tmp_path / "none").endswith("No such file or directory")


def test_check_config_counts_pools_and_shows_no_address(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "harborlight.yml"
    (tmp_path / "key").write_text("canary")
    replicas = "{name: a, url: http://canary}, {name: b, urls: [http://canary:1, http://canary:2]}"
    pool = f"{{name: main, api_key: {{file: key}}, replicas: [{replicas}]}}"
    file.write_text(f"pools: [{pool}]\n")
    shown = here.shown("check-config", file)
    assert shown == f"{file}: good, 0 runs, 1 pool, 2 replicas configured\n"
    file.write_text(f"pools: [{pool.replace('b,', 'a,')}]\n")
    said = here.refused("check-config", file)
    assert said == f"{file}:1: pools[0].replicas[1].name: 'a' is the name of replicas[0] already"


# One look.


def test_metrics_of_a_folder_that_is_not_there(tmp_path: Path) -> None:
    done = run("metrics", "--jobs", tmp_path / "none")
    assert done.returncode == 0
    page = Page(done.stdout)
    assert page.value(SUCCESS, collector="harbor_jobs") == 0
    assert page.label_values("harborlight_run_attempts", "run") == []
    assert "expected a folder, found nothing" in done.stderr
    assert "of trials that Harbor retried its log tells" in done.stderr


def test_metrics_shows_what_a_ledger_knows_and_leaves_it_alone(here: Here, known: Path) -> None:
    before = state(known)
    page = Page(here.shown("metrics", "--data-dir", known))
    assert_promises(page)
    assert page.states(page.only_run()) == (6, 0, 0, 0, 0)
    assert page.value("harborlight_ledger_trials") == 6
    assert state(known) == before


def test_metrics_of_a_ledger_that_is_not_there(here: Here, tmp_path: Path) -> None:
    said = here.refused("metrics", "--data-dir", tmp_path / "none")
    assert said == f"no ledger in {tmp_path / 'none'}: expected a file ledger.sqlite"
    assert not (tmp_path / "none").exists()


def test_metrics_while_serve_runs(here: Here, jobs: Path, tmp_path: Path) -> None:
    with ExporterProcess([jobs], tmp_path / "data") as exporter:
        page = Page(here.shown("metrics", "--data-dir", tmp_path / "data"))
        served = exporter.page()
        for name in ("harborlight_run_attempts", "harborlight_task_attempts_passed"):
            assert page.values(name) == served.values(name)


@pytest.mark.parametrize("name", ["metrics", "status"])
def test_a_reader_that_had_enough(jobs: Path, name: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        code, error = run_into(pipe, name, "--jobs", jobs)
    assert code == 0, error
    assert "Error" not in error and "Broken" not in error


def test_an_output_that_is_full(jobs: Path) -> None:
    with open("/dev/full", "wb") as full:
        code, error = run_into(full, "metrics", "--jobs", jobs)
    assert code == 2
    assert error.splitlines()[-1] == "harborlight: No space left on device"


def test_status(here: Here, jobs: Path, known: Path) -> None:
    for option, place in (("--jobs", jobs), ("--data-dir", known)):
        shown = here.shown("status", option, place)
        assert "6 / 6 scored (100.0 %)" in shown
        assert "3 of 3 tasks complete" in shown
        assert "task-00000" in shown
        short = here.shown("status", option, place, "--no-collector.task")
        assert "6 / 6 scored (100.0 %)" in short
        assert "task-00000" not in short


# Model servers.


class ModelServer:
    """Answers ``/metrics`` as SGLang does; with a ``key`` only to who has it."""

    def __init__(self, requests: int = 10, key: str = "", host: str = "127.0.0.1") -> None:
        self.requests = requests
        self.key = key
        self.asked: list[str] = []
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                model.asked.append(self.path)
                wanted = f"Bearer {model.key}" if model.key else None
                if self.headers.get("Authorization") != wanted:
                    self.send_error(401)
                elif self.path != "/metrics":
                    self.send_error(404)
                else:
                    self.send_response(200)
                    self.send_header("Content-Type", "text/plain; version=0.0.4")
                    self.end_headers()
                    self.wfile.write(model.page().encode())

            @override
            def log_message(self, *_: object) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        self._server = Server((host, 0), Handler)
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{self._server.server_address[1]}"
        self.url = f"http://{self.address}"

    def page(self) -> str:
        ranks = 'model_name="tiny",engine_type="unified",tp_rank="0",pp_rank="0"'
        return (
            f"sglang:num_running_reqs{{{ranks}}} 3\n"
            f"sglang:num_queue_reqs{{{ranks}}} 2\n"
            f'sglang:num_requests_total{{model_name="tiny"}} {self.requests}\n'
        )

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


REQUESTS = "harborlight_replica_requests_total"
UP = "harborlight_replica_up"


def test_watching_replicas_only(here: Here, model: ModelServer) -> None:
    page = Page(here.shown("metrics", "--sglang", model.url))
    assert page.value(SUCCESS, collector="sglang") == 1
    assert page.label_values(SUCCESS, "collector") == ["sglang"]
    assert page.value("harborlight_pool_info", pool="sglang", title="SGLang") == 1
    assert page.value(UP, pool="sglang", replica="1") == 1
    assert page.value("harborlight_replica_running_requests", role="unified") == 3
    assert page.value(REQUESTS) == 10
    assert model.address not in page.text
    assert not [path for path in model.asked if "health" in path or "generate" in path]
    shown = here.shown("status", "--sglang", model.url)
    assert "Pool SGLang" in shown
    assert model.address not in shown


def test_serving_replicas_only(model: ModelServer, tmp_path: Path) -> None:
    with ExporterProcess([], tmp_path / "data", "--sglang", model.url) as exporter:
        page = exporter.fresh_page()
        assert page.label_values(SUCCESS, "collector") == ["ledger", "sglang", "statistics"]
        assert page.value(UP, pool="sglang", replica="1") == 1
        assert page.value("harborlight_replica_running_requests", role="unified") == 3
        assert exporter.terminate() == 0
    assert model.address not in page.text + "".join(exporter.log)


def test_a_server_with_an_ipv6_address(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "harborlight.yml"
    try:
        server = ModelServer(host="::1")
    except OSError:
        pytest.skip("no IPv6 here")
    with server as model:
        file.write_text(f"pools: [{{name: main, replicas: [{{name: a, url: '{model.url}'}}]}}]\n")
        for option, place in (("--sglang", model.url), ("--config.file", file)):
            page = Page(here.shown("metrics", option, place))
            assert page.value(UP) == 1
            assert page.value("harborlight_replica_running_requests") == 3
            assert "::1" not in page.text


def test_replicas_beside_jobs_and_a_configured_pool(
    here: Here, model: ModelServer, jobs: Path, tmp_path: Path
) -> None:
    file = tmp_path / "harborlight.yml"
    with ModelServer(requests=5) as second, ModelServer(requests=7) as third:
        file.write_text(
            f"pools: [{{name: main, jobs: [x], replicas: [{{name: a, url: '{third.url}'}}]}}]\n"
        )
        more = ("--sglang", model.url, "--sglang", f"{second.url}/")
        code, output, _ = here.run("metrics", "--jobs", jobs, *more, "--config.file", file)
    assert code == 0
    page = Page(output)
    assert page.label_values(SUCCESS, "collector") == ["harbor_jobs", "sglang"]
    replicas = {("sglang", "1"): 10, ("sglang", "2"): 5, ("main", "a"): 7}
    for (pool, replica), requests in replicas.items():
        assert page.value(REQUESTS, pool=pool, replica=replica) == requests
    assert page.sum("harborlight_pool_trials", pool="sglang") == 6
    assert page.sum("harborlight_pool_trials", pool="main") == 0


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("canary:30000", "expected http://HOST:PORT or https://HOST:PORT"),
        ("http://u:canary@h", "a user or password does not belong into a URL, use api_key"),
        (
            "http://canary/?k=v",
            "expected http://HOST:PORT or https://HOST:PORT without anything from ? or # on",
        ),
    ],
)
@pytest.mark.parametrize("name", ["serve", "metrics", "status"])
def test_a_bad_address_of_a_server(here: Here, name: str, url: str, error: str) -> None:
    assert here.refused(name, "--sglang", url) == f"--sglang: {error}"
    assert here.refused(name, "--harbor-server", url) == f"--harbor-server: {error}"


def test_servers_that_are_given_twice(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "harborlight.yml"
    file.write_text("pools: [{name: main, replicas: [{name: a, url: http://canary:1}]}]\n")
    config = ("metrics", "--config.file", file, "--sglang")
    twice = "--sglang: a server is given twice"
    assert here.refused(*config, "http://CANARY:1/") == twice
    assert here.refused(*config, "http://canary:2", "--sglang", "http://canary:2/") == twice
    file.write_text("pools: [{name: sglang, replicas: [{name: a, url: http://canary:1}]}]\n")
    said = here.refused(*config, "http://canary:2")
    assert said == "--sglang: a pool called sglang is configured already"


def test_pools_become_rules_and_targets(tmp_path: Path) -> None:
    """All that is configured arrives where it is used, and shows itself to nobody."""
    file = tmp_path / "harborlight.yml"
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text("canary")
    file.write_text(
        "runs: [{name: r, jobs: [j]}]\n"
        "pools:\n"
        "- name: main\n"
        "  title: T\n"
        "  runs: [r]\n"
        "  jobs: [x-*]\n"
        "  api_key: {file: key}\n"
        "  timeout: 1s\n"
        "  scrape_interval: 2s\n"
        "  frozen_after: 3s\n"
        "  tls: {ca_file: ca, cert_file: cert, key_file: key}\n"
        "  replicas:\n"
        "  - {name: a, urls: [https://canary-1, https://canary-2], data_parallel: 4}\n"
        "  - {name: b, url: https://canary-3}\n"
    )
    config, arguments = load_config(file), _parser().parse_args(["metrics"])
    (pool,) = _rules(config, arguments).pools
    assert (pool.label, pool.title, pool.jobs, pool.runs) == ("main", "T", ("x-*",), ("r",))
    assert (pool.replicas, pool.frozen_after) == (("a", "b"), 3)
    source = _Sources.given(config, arguments).sglang
    assert source is not None
    first, second = source.targets
    assert (first.pool, first.name, second.name) == ("main", "a", "b")
    assert first.urls == ("https://canary-1", "https://canary-2")
    assert (first.data_parallel, second.data_parallel) == (4, None)
    assert (first.api_key, first.timeout, first.scrape_interval) == ("canary", 1, 2)
    assert (first.tls.ca_file, first.tls.verify) == (str(tmp_path / "ca"), True)
    assert (first.tls.cert_file, first.tls.key_file) == tuple(
        str(tmp_path / name) for name in ("cert", "key")
    )
    assert "canary" not in f"{source.targets}{pool}"


def test_a_harbor_server(here: Here, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By flag or by configuration, alone or beside a copy of its job, which counts once."""
    file = tmp_path / "harborlight.yml"
    (tmp_path / "key").write_text("canary\n")
    with FakeHarbor() as server:
        server.submit("a", "b")
        server.start("a")
        server.end("a", reward=1.0)
        page = Page(here.shown("metrics", "--harbor-server", server.url))
        assert page.states(page.only_run()) == (1, 0, 1, 0, 0)
        assert page.label_values(SUCCESS, "collector") == ["harbor_server"]
        assert "job" in here.shown("status", "--harbor-server", server.url)
        server.key = "canary"
        file.write_text(
            f"harbor_servers: [{{name: s, url: '{server.url}', api_key: {{file: key}}}}]\n"
        )
        assert here.shown("check-config", file).endswith("0 runs, 1 Harbor server configured\n")
        page = Page(here.shown("metrics", "--config.file", file))
        assert page.value(SUCCESS, collector="harbor_server") == 1
        twice = here.refused("metrics", "--config.file", file, "--harbor-server", server.url)
        assert twice == "--harbor-server: a server is given twice"
        code, output, said = here.run("metrics", "--harbor-server", server.url)
        assert (code, Page(output).value(SUCCESS, collector="harbor_server")) == (0, 0)
        said += "".join(str(vars(record)) for record in caplog.records)
        assert "HTTP 401; expected to be let in" in said
        assert "canary" not in said and str(server.port) not in said
        with ExporterProcess([], tmp_path / "data", "--config.file", str(file)) as exporter:
            run = eventually(lambda: exporter.page().only_run())
            assert exporter.page().states(run) == (1, 0, 1, 0, 0)
            server.start("b")
            eventually(lambda: exporter.page().states(run) == (1, 1, 0, 0, 0))
            more = ("--data-dir", tmp_path / "data")
            page = Page(here.shown("metrics", "--config.file", file, *more))
            assert page.states(run) == (1, 1, 0, 0, 0)


def test_harbor_servers_become_targets(tmp_path: Path) -> None:
    file = tmp_path / "harborlight.yml"
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text("canary")
    file.write_text(
        "harbor_servers:\n"
        "- name: main\n"
        "  url: https://canary-1/proxy/\n"
        "  api_key: {file: key}\n"
        "  timeout: 1s\n"
        "  tls: {ca_file: ca, cert_file: cert, key_file: key}\n"
    )
    arguments = _parser().parse_args(["serve", "--harbor-server", "http://canary-2"])
    before = _Sources.given(load_config(file), arguments)
    source = before.harbor_servers
    assert source is not None
    first, second = source.targets
    assert (first.name, first.url) == ("main", "https://canary-1/proxy")
    assert (first.api_key, first.timeout) == ("canary", 1)
    assert (first.tls.ca_file, first.tls.verify) == (str(tmp_path / "ca"), True)
    assert (second.name, second.url, second.api_key) == ("flag 1", "http://canary-2", None)
    assert "canary" not in f"{source.targets}"
    again = _Sources.given(load_config(file), arguments, before=before)
    assert again.harbor_servers is source
    without = _parser().parse_args(["serve", "--jobs", "x"])
    assert _Sources.given(Config(), without, before=before).harbor_servers is None


def test_a_source_that_stays_as_it_was_is_kept(jobs: Path) -> None:
    """What it knows of its replicas would be lost else."""
    arguments = _parser().parse_args(["serve", "--jobs", str(jobs), "--sglang", "http://a"])
    more = _parser().parse_args(["serve", "--sglang", "http://a", "--sglang", "http://b"])
    none = _parser().parse_args(["serve", "--jobs", str(jobs)])
    before = _Sources.given(Config(), arguments)
    again = _Sources.given(Config(refresh_interval=1), arguments, before=before)
    assert again.jobs is before.jobs
    assert again.sglang is before.sglang
    changed = _Sources.given(Config(), more, before=before)
    assert changed.jobs is None
    assert changed.sglang is not None and changed.sglang is not before.sglang
    without = _Sources.given(Config(), none, before=changed)
    assert without.jobs is not None and without.sglang is None
    with pytest.raises(UsageError, match="nothing to watch"):
        _Sources.given(Config(), _parser().parse_args(["serve"])).or_complain()


def test_what_a_source_asks_for_makes_it_another_one(tmp_path: Path) -> None:
    """A reload with a new key or server does; what only the ledger minds does not."""
    file, key = tmp_path / "harborlight.yml", tmp_path / "key"
    arguments = _parser().parse_args(["serve", "--config.file", str(file)])
    good = (
        "pools: [{name: main, title: T, frozen_after: 30s, timeout: 5s, scrape_interval: 5s,\n"
        "  api_key: {file: key}, tls: {insecure_skip_verify: false},\n"
        "  replicas: [{name: a, data_parallel: 1, url: https://h}]}]\n"
    )
    key.write_text("one")
    file.write_text(good)
    before = _Sources.given(load_config(file), arguments)
    assert before.sglang is not None

    def is_kept() -> bool:
        return _Sources.given(load_config(file), arguments, before=before).sglang is before.sglang

    for old, new in (("", ""), ("title: T", "title: U"), ("30s", "1m"), ("//h", "//H:443/")):
        file.write_text(good.replace(old, new))
        assert is_kept(), new
    for old, new in (
        ("timeout: 5s", "timeout: 6s"),
        ("interval: 5s", "interval: 6s"),
        ("verify: false", "verify: true"),
        ("parallel: 1", "parallel: 2"),
        ("name: main", "name: other"),
        ("name: a", "name: b"),
        ("https://h", "https://i"),
        ("}]}]", "}, {name: b, url: https://i}]}]"),
        ("api_key: {file: key}, ", ""),
    ):
        assert old in good
        file.write_text(good.replace(old, new))
        assert not is_kept(), new
    file.write_text(good)
    key.write_text("one\n")
    assert is_kept()
    key.write_text("two")
    assert not is_kept()


def test_counters_go_on_from_the_ledger(here: Here, model: ModelServer, tmp_path: Path) -> None:
    arguments = _parser().parse_args(["serve", "--sglang", model.url])
    source = _Sources.given(Config(), arguments).sglang
    assert source is not None
    with Store.open_writer(tmp_path / "data") as store:
        Service(Ledger(store, _rules(Config(), arguments)), [source]).refresh()
    before = state(tmp_path / "data")
    model.requests = 4  # it was started again
    page = Page(here.shown("metrics", "--data-dir", tmp_path / "data", "--sglang", model.url))
    assert page.value(REQUESTS) == 14
    assert state(tmp_path / "data") == before


def test_a_replica_is_known_between_two_requests(
    model: ModelServer, known: Path, tmp_path: Path
) -> None:
    """``status --watch`` looks more often than replicas are asked."""
    file = tmp_path / "harborlight.yml"
    file.write_text(
        "pools: [{name: main, scrape_interval: 1h, "
        f"replicas: [{{name: a, url: '{model.url}'}}]}}]\n"
    )
    for data in ((), ("--data-dir", str(known))):
        model.asked.clear()
        reader = _Reader(_parser().parse_args(["status", "--config.file", str(file), *data]))
        for _ in range(3):
            (pool,) = reader.look().pools
            assert [(replica.state, replica.reason) for replica in pool.replicas] == [("up", "")]
            assert pool.replicas[0].numbers
        assert model.asked.count("/metrics") == 1


# Forgetting.


def test_forgetting_a_job(here: Here, known: Path) -> None:
    unknown = here.refused("ledger", "forget", "--job", "dnoe", "--data-dir", known)
    assert unknown == "no job dnoe in the ledger; it has: done"
    reason = ("--reason", "a trial")
    said = here.shown("ledger", "forget", "--job", "done", *reason, "--data-dir", known)
    assert said == "forgot job done; executions taken out of the ledger: 6\n"
    with Store.open_reader(known) as store:
        stored = store.load()
    assert (stored.jobs, stored.trials) == ({}, {})
    (row,) = stored.forgotten
    assert (row.label, row.reason, row.trials) == ("done", "a trial", 6)


def test_forgetting_makes_no_ledger(here: Here, tmp_path: Path) -> None:
    said = here.refused("ledger", "forget", "--job", "x", "--data-dir", tmp_path)
    assert said == f"no ledger in {tmp_path}: expected a file ledger.sqlite"
    assert list(tmp_path.iterdir()) == []


# Signals.


def test_sigterm_ends_it_in_spite_of_an_open_connection(jobs: Path, tmp_path: Path) -> None:
    with (
        ExporterProcess([jobs], tmp_path / "data") as exporter,
        closing(http.client.HTTPConnection(exporter.address, timeout=30)) as kept,
    ):
        kept.request("GET", "/metrics")
        kept.getresponse().read()
        assert exporter.terminate(ENDS_WITHIN) == 0
    assert not [line for line in exporter.log if "level=error" in line or "Traceback" in line]


@pytest.mark.slow
def test_sigterm_lets_a_scrape_under_way_come_to_its_end(tmp_path: Path) -> None:
    """The page is larger than what the two sockets hold, so its sender is still at work."""
    write_finished_job(tmp_path / "jobs", "large", 1000, 1)
    with (
        ExporterProcess([tmp_path / "jobs"], tmp_path / "data") as exporter,
        socket.socket() as client,
    ):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(30)
        host, _, port = exporter.address.rpartition(":")
        client.connect((host, int(port)))
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        received = client.recv(1024)
        exporter.process.send_signal(signal.SIGTERM)
        eventually(lambda: any("msg=stopping" in line for line in exporter.log), what="the signal")
        assert exporter.process.poll() is None
        while part := client.recv(65536):
            received += part
        head, _, body = received.partition(b"\r\n\r\n")
        length = re.search(rb"(?im)^content-length: (\d+)", head)
        assert length is not None
        assert len(body) == int(length[1]) > 500_000
        assert exporter.terminate(ENDS_WITHIN) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_at_any_moment_of_the_start_ends_it_in_order(
    jobs: Path, tmp_path: Path, number: signal.Signals
) -> None:
    exporter = subprocess.Popen(
        [*command(), *map(str, serving(jobs, tmp_path / "data"))],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    with exporter:
        # The data directory is the first that it makes.
        eventually((tmp_path / "data").exists, 30, interval=0.001, what="the data directory")
        exporter.send_signal(number)
        _, said = exporter.communicate(timeout=30)
    assert exporter.returncode == 0, said
    assert "Traceback" not in said


def test_a_signal_that_another_thread_gets_is_not_lost() -> None:
    """On a busy machine it may be any thread's, and the one that waits sleeps on."""
    with _signals(signal.SIGHUP) as next_signal:
        # Later: by then this thread waits.
        sender = threading.Timer(
            0.1, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGHUP)
        )
        sender.start()
        assert next_signal() == signal.SIGHUP
        sender.join()


# Reloading.


@pytest.fixture
def configured(jobs: Path, tmp_path: Path) -> Iterator[tuple[ExporterProcess, Path]]:
    """An exporter with a configuration file, which may be reloaded by HTTP."""
    file = tmp_path / "harborlight.yml"
    file.write_text("runs: [{name: one, jobs: [done]}]\n")
    more = ("--config.file", str(file), "--web.enable-lifecycle")
    with ExporterProcess([jobs], tmp_path / "data", *more) as exporter:
        yield exporter, file


def _shows(exporter: ExporterProcess, run: str, reloaded: int) -> bool:
    page = exporter.page()
    return page.only_run() == run and page.value(RELOADED) == reloaded


def _post(exporter: ExporterProcess) -> int:
    request = urllib.request.Request(f"http://{exporter.address}/-/reload", method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_sighup_reloads(configured: tuple[ExporterProcess, Path]) -> None:
    exporter, file = configured
    assert _shows(exporter, "one", 1)
    file.write_text("runs: [{name: two, jobs: [done]}]\n")
    exporter.process.send_signal(signal.SIGHUP)
    eventually(lambda: _shows(exporter, "two", 1), what="the new run")
    file.write_text("runs: [{nmae: three}]\n")
    exporter.process.send_signal(signal.SIGHUP)
    eventually(lambda: _shows(exporter, "two", 0), what="the refusal")
    (said,) = [line for line in exporter.log if "configuration not reloaded" in line]
    assert "nmae" in said
    assert str(file) in said
    file.write_text("runs: [{name: three, jobs: [done]}]\n")
    exporter.process.send_signal(signal.SIGHUP)
    eventually(lambda: _shows(exporter, "three", 1), what="the run after that")
    assert exporter.terminate() == 0


def test_reloading_by_http(configured: tuple[ExporterProcess, Path]) -> None:
    exporter, file = configured
    file.write_text("runs: [{name: two, jobs: [done]}]\n")
    assert _post(exporter) == 200
    eventually(lambda: _shows(exporter, "two", 1), what="the new run")
    file.write_text("runs: 3\n")
    assert _post(exporter) == 500
    eventually(lambda: _shows(exporter, "two", 0), what="the refusal")


def test_a_reload_may_change_the_jobs(jobs: Path, tmp_path: Path) -> None:
    file = tmp_path / "harborlight.yml"
    (tmp_path / "empty").mkdir()
    file.write_text(f"jobs: [{tmp_path / 'empty'}]\n")
    with ExporterProcess([], tmp_path / "data", "--config.file", str(file)) as exporter:
        assert exporter.value("harborlight_ledger_trials") == 0
        file.write_text(f"jobs: [{jobs}]\n")
        exporter.process.send_signal(signal.SIGHUP)
        eventually(lambda: exporter.value("harborlight_ledger_trials") == 6, what="the job")


def test_a_reload_may_change_a_key_and_a_wrong_one_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "harborlight.yml"
    key = tmp_path / "key"
    key.write_text("canary-old\n")
    with ModelServer(key="canary-new") as model:
        good = (
            "pools: [{name: main, scrape_interval: 100ms, api_key: {file: key}, "
            f"replicas: [{{name: a, url: '{model.url}'}}]}}]\n"
        )
        file.write_text(good)
        options = ("--config.file", str(file), "--log.level", "debug")
        with ExporterProcess([], tmp_path / "data", *options) as exporter:

            def is_up() -> bool:
                return exporter.value(UP, pool="main", replica="a") == 1

            state = "harborlight_replica_state"
            eventually(lambda: exporter.value(state, state="unauthorized") == 1, what="the refusal")
            key.write_text("canary-new\n")
            assert not is_up()
            exporter.process.send_signal(signal.SIGHUP)
            eventually(is_up, what="the new key")
            for wrong in (
                good.replace(model.url, "http://u:canary@h"),
                good.replace("key: {file: key}", "key: {env: HL_UNSET}"),
            ):
                file.write_text(wrong)
                exporter.process.send_signal(signal.SIGHUP)
                eventually(lambda: exporter.value(RELOADED) == 0, what="the refusal")
                exporter.fresh_page()
                assert is_up()
                file.write_text(good)
                exporter.process.send_signal(signal.SIGHUP)
                eventually(lambda: exporter.value(RELOADED) == 1, what="the way back")
            page = exporter.page()
            assert exporter.terminate() == 0
        log = "".join(exporter.log)
        assert "pools[0].replicas[0].url: a user or password does not belong into a URL" in log
        assert "the environment has no variable HL_UNSET" in log
        for secret in ("canary", model.address):
            assert secret not in log + page.text


def test_reloading_by_http_has_to_be_allowed(jobs: Path, tmp_path: Path) -> None:
    with ExporterProcess([jobs], tmp_path / "data") as exporter:
        assert _post(exporter) == 403


# Faults.


def test_faults(here: Here, harbor_jobs: Path) -> None:
    """6 faults of 9 trials, by Harbor's own results; cut down by what they are."""
    place = ("--jobs", harbor_jobs / "faulty-oracle", "--format", "csv")

    def listed(*only: str) -> list[str]:
        code, output, _ = here.run("faults", *place, *only)
        assert code == 0
        head, *lines = output.splitlines()
        assert head.startswith("run,task,job,trial,at,")
        return [line.split(",")[7] for line in lines]

    assert sorted(listed()) == [
        "EnvironmentStartTimeoutError",
        "RewardFileEmptyError",
        "RewardFileNotFoundError",
        "SandboxBuildFailedError",
        "VerifierOutputParseError",
        "VerifierTimeoutError",
    ]
    assert sorted(listed("--cause", "container")) == [
        "EnvironmentStartTimeoutError",
        "SandboxBuildFailedError",
    ]
    kinds = ("--exception-type", "VerifierTimeoutError", "--exception-type", "x")
    assert listed(*kinds) == ["VerifierTimeoutError"]
    assert listed("--resolution", "retried") == []
    assert "6 faults: 6 open" in here.run("faults", "--jobs", harbor_jobs / "faulty-oracle")[1]


def test_faults_of_what_there_is_not(here: Here, harbor_jobs: Path) -> None:
    """A slip of the pen is not an empty list; a task without faults is."""
    place = ("faults", "--jobs", harbor_jobs / "mixed-6x5")
    for what in ("run", "task", "job"):
        assert here.refused(*place, f"--{what}", "none") == f"faults: no {what} is called none"
    for what in ("phase", "cause", "resolution"):
        code, output, error = here.run(*place, f"--{what}", "none")
        assert (code, output) == (2, "")
        assert "invalid choice: 'none'" in error
    assert here.shown(*place, "--task", "hello-file") == "No faults.\n"


def test_faults_ask_no_replica(
    here: Here, harbor_jobs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is down would be in the log, and one that hangs waited for."""
    file = tmp_path / "harborlight.yml"
    pool = "{name: p, replicas: [{name: r, url: 'http://127.0.0.1:1'}]}"
    file.write_text(f"jobs: [{harbor_jobs / 'sep-src'}]\npools: [{pool}]\n")
    here.run("status", "--config.file", file)
    assert "replica state" in caplog.messages
    caplog.clear()
    assert here.shown("faults", "--config.file", file) == "No faults.\n"
    assert here.shown("replay-plan", "--config.file", file).endswith(" 0 attempts missing.\n")
    assert caplog.messages == []


def test_replay_plan(here: Here, harbor_jobs: Path) -> None:
    """13 attempts that a Ctrl-C left: 3 cancelled and 10 not begun; as JSON the same."""
    place = ("replay-plan", "--jobs", harbor_jobs / "cancel-sigint.before-resume")
    script = here.shown(*place)
    first, *_ = script.splitlines()
    assert first.startswith("# Run cancel-sigint.before-resume: 13 attempts missing, ")
    assert first.endswith("13 planned here (13 with the agent).")
    commands = [line for line in script.splitlines() if line and not line.startswith("#")]
    folder = harbor_jobs / "cancel-sigint.before-resume"
    assert commands == [f"harbor job resume -p {folder} -f CancelledError"]
    (step,) = json.loads(here.shown(*place, "--format", "json"))["steps"]
    assert (step["boundary"], sum(step["attempts"].values())) == ("resume", 13)
    said = here.refused(*place, "another")
    assert said == "replay-plan: expected the run another, found cancel-sigint.before-resume"


def test_replay_plan_of_a_job_that_may_be_dead(here: Here, harbor_jobs: Path) -> None:
    """It holds 3 trials and 10 queued ones; whether that is so, only the reader can know."""
    place = ("replay-plan", "--jobs", harbor_jobs / "crash-sigkill.before-resume")
    script = here.shown(*place)
    assert script.startswith("# Run crash-sigkill.before-resume: 0 attempts missing.\n")
    assert "Whether anybody works on these jobs cannot be told: crash-sigkill" in script
    assert "--local-jobs" in script
    assert "13 attempts missing, 13 planned here" in here.shown(*place, "--local-jobs")


# References.


def compared(here: Here, *arguments: str | Path) -> Page:
    code, output, error = here.run("metrics", *arguments)
    assert (code, error.count("\n")) == (0, 1)  # read once, without a ledger
    return Page(output)


def test_a_job_as_a_reference(here: Here, jobs: Path, tmp_path: Path) -> None:
    """Printed as a table and read again, a job differs from itself by nothing."""
    table = here.shown("reference", jobs)
    head, *lines = table.splitlines()
    assert head == "task,passed,attempts,errors,durations_seconds"
    assert len(lines) == 3 and all(line.split(",")[2:4] == ["2", "0"] for line in lines)
    file = tmp_path / "done.csv"
    file.write_text(table, "utf-8")
    for reference in (file, jobs / "done"):
        page = compared(here, "--jobs", jobs, "--reference", reference)
        assert page.value("harborlight_run_reference_info", reference="done") == 1
        assert page.value("harborlight_run_matched_tasks", scope="complete") == 3
        assert page.value("harborlight_run_success_difference", scope="complete") == 0


def test_a_job_that_is_not_through_is_said(here: Here, harbor_jobs: Path) -> None:
    """29 of its 30 attempts are scored: one of sort-words was lost to ApiRateLimitError."""
    code, output, error = here.run("reference", harbor_jobs / "mixed-6x5")
    assert code == 0
    assert error == "harborlight: not every attempt is scored of sort-words\n"
    counts = [line.rsplit(",", 1)[0] for line in output.splitlines()[1:]]
    assert counts == [
        "count-lines,0,5,0",
        "frac-reward,2,5,0",
        "hello-file,5,5,0",
        "multi-key,3,5,0",
        "slow-verify,3,5,0",
        "sort-words,2,4,0",
    ]


def test_a_reference_of_several_runs(here: Here, harbor_jobs: Path, tmp_path: Path) -> None:
    places = tmp_path / "two"
    places.mkdir()
    for name in ("mixed-6x5", "agent-timeout"):
        (places / name).symlink_to(harbor_jobs / name)
    error = here.refused("reference", places)
    found = "expected one run, found agent-timeout, mixed-6x5"
    assert error == f"reference {places}: {found} (choose one with --run)"
    assert "count-lines" in here.run("reference", places, "--run", "mixed-6x5")[1]
    error = here.refused("reference", places, "--run", "x")
    expected = "expected the run x, found agent-timeout, mixed-6x5"
    assert error == f"reference {places}: {expected}"


def test_no_reference_there(here: Here, jobs: Path, tmp_path: Path) -> None:
    assert here.refused("reference", tmp_path).endswith("expected one run, found none")
    known = "expected a table, a job directory, or one of: terminal-bench-4.0-glm-5.3"
    assert here.refused("metrics", "--jobs", jobs, "--reference", "x") == f"--reference x: {known}"
    url = "https://user:secret@host/t.csv"
    error = here.refused("metrics", "--jobs", jobs, "--reference", url)
    assert error == f"--reference: {known}, got a URL"
    table = tmp_path / "t.csv"
    table.write_text("task,reward\na,b\n", "utf-8")
    error = here.refused("status", "--jobs", jobs, "--reference", table)
    assert error == f"--reference {table}: line 2: reward: expected a number, got 'b'"


def test_references_of_a_configuration(here: Here, jobs: Path, tmp_path: Path) -> None:
    """A table and a job, seen from the file's folder, each for its run."""
    (tmp_path / "t.csv").write_text(here.shown("reference", jobs), "utf-8")
    file = tmp_path / "h.yml"
    file.write_text(
        f"""\
runs:
  - {{name: one, jobs: [done], reference: by-table}}
  - {{name: two, jobs: [done], reference: by-job}}
  - {{name: three, jobs: [done]}}
references:
  - {{name: by-table, title: A table, table: t.csv}}
  - {{name: by-job, job: {jobs.name}}}
""",
        "utf-8",
    )
    (tmp_path / jobs.name).symlink_to(jobs)
    assert here.shown("check-config", file).endswith("good, 3 runs configured\n")
    page = compared(here, "--jobs", jobs, "--config.file", file)
    infos = [dict(sample.labels) for sample in page.find("harborlight_run_reference_info")]
    assert [(i["run"], i["reference"], i["title"]) for i in infos] == [
        ("one", "by-table", "A table"),
        ("two", "by-job", "by-job"),
    ]
    assert page.value("harborlight_run_success_difference", run="two", scope="complete") == 0
    (tmp_path / jobs.name).unlink()
    error = here.refused("check-config", file)
    assert error == "references: by-job: expected one run, found none"


# The demo.


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


@pytest.mark.slow
def test_the_demo_cleans_up_after_itself(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*command(), "demo", "--speed", "3000", "--web.listen-address", "127.0.0.1:0"],
        env={**environment(), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as demo:
        try:
            assert demo.stdout is not None
            address = next(
                found[1] for line in demo.stdout if (found := re.search(r"http://(\S+)/", line))
            )
            said = threading.Thread(target=demo.stdout.read)
            said.start()
            before: Page | None = None
            scored: set[int] = set()

            def look() -> bool:
                nonlocal before
                with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
                    page = Page(answer.read().decode())
                assert page.runs(), "the job is not there yet"
                assert page.sum("harborlight_run_attempts_target") == 315
                broken_promises_stop_the_wait(page, before)
                before = page
                scored.add(page.states(page.only_run())[0])
                # The simulated replicas serve it: both are up and have its model and its load.
                assert page.sum("harborlight_replica_up", pool="main") == 2
                assert page.value("harborlight_pool_model_match", pool="main") == 1
                assert page.value("harborlight_run_pool_info", run=page.only_run()) == 1
                return len(scored) >= 3 and page.sum("harborlight_replica_running_requests") > 0

            eventually(look, 60, interval=0.1, what="three looks that differ")
            (child,) = _children(demo.pid)
            assert list(tmp_path.iterdir()), "it works in a temporary folder"
            demo.send_signal(signal.SIGTERM)
            assert demo.wait(ENDS_WITHIN) == 0
            said.join(10)
            assert list(tmp_path.iterdir()) == []
            assert not Path(f"/proc/{child}").exists()
        finally:
            demo.kill()


def broken_promises_stop_the_wait(page: Page, before: Page | None) -> None:
    """``eventually`` takes an assertion for "not yet"; a broken promise is no such thing."""
    try:
        assert_promises(page, before)
    except AssertionError as error:
        raise RuntimeError(str(error)) from error


def test_a_demo_in_a_place_that_cannot_be(here: Here, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "demo"
    said = here.refused("demo", "--dir", place, "--web.listen-address", "127.0.0.1:0")
    assert said == f"{place / 'jobs'}: Not a directory"


def test_a_demo_needs_a_speed_above_zero(here: Here) -> None:
    for speed in ("0", "nan", "fast"):
        code, _, error = here.run("demo", "--speed", speed)
        assert code == 2
        assert f"argument --speed: expected a number above 0, got '{speed}'" in error
