"""The command line."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import override

from rich.console import Console
from rich.live import Live

from harborlight import __version__, dashboard_files, package_files
from harborlight.alert_files import GRAFANA_URL, RUNBOOK_URL, alert_files, runbooks
from harborlight.config import (
    Config,
    ConfigError,
    HarborServerConfig,
    PoolConfig,
    ReferenceConfig,
    ReplicaConfig,
    TlsConfig,
    load_config,
    parse_duration,
    read_secret,
    server_url,
)
from harborlight.dashboard_files import LANGUAGES, DashboardFile
from harborlight.demo import DEMO_REFERENCE, END_WITH_PARENT, serving
from harborlight.grafana import DEFAULT_FOLDER, Grafana, GrafanaError, GrafanaTarget
from harborlight.labels import safe_label
from harborlight.ledger import Ledger, LedgerError, Store
from harborlight.ledger.book import Rules
from harborlight.ledger.faults import Cause
from harborlight.ledger.outcomes import RewardRule
from harborlight.ledger.pools import PoolDefinition
from harborlight.ledger.replay_plan import JobWork, ReplayPlan, plan_replay
from harborlight.ledger.runs import RunDefinition
from harborlight.ledger.standing import RunStanding
from harborlight.logs import configure_logging
from harborlight.package_files import MissingFilesError, PackageFile
from harborlight.readings import ReplicaSighting, ReplicaState
from harborlight.reference import InvalidReferenceError, Reference, check_headline
from harborlight.server import ListenError, Sockets, bind, build_app, parse_listen_address, serve
from harborlight.service import Reload, Service, Source
from harborlight.snapshot import CollectorSnapshot, Snapshot, of_ledger, with_statistics
from harborlight.sources import reference_files
from harborlight.sources.fetch import Tls
from harborlight.sources.harbor_server.source import PATIENCE_SECONDS, HarborServerSource
from harborlight.sources.harbor_server.targets import HarborServerTarget
from harborlight.sources.job_directory import SETTLE_SECONDS, JobDirectorySource
from harborlight.sources.job_recipe import JobRecipe, changed_tasks, read_recipe
from harborlight.sources.observation import Observation
from harborlight.sources.sglang.source import SglangSource
from harborlight.sources.sglang.targets import ReplicaTarget
from harborlight.statistics.own_reference import reference_tasks
from harborlight.statistics.runs import Statistics
from harborlight.views import terminal
from harborlight.views.faults import FILTERS, as_csv, as_json, as_table, fault_lines
from harborlight.views.metrics import Page
from harborlight.views.replay import as_json as replay_json, as_script, hints, replays
from harborlight.views.terminal_text import counted

log = logging.getLogger("harborlight.cli")

DEFAULT_ADDRESS = "127.0.0.1:10315"
DEFAULT_DATA_DIR = "harborlight-data"

_END_SECONDS = 10.0
"""How long the end waits for a refresh under way."""

_ONE_LOOK_SETTLE_SECONDS = 1.0
"""A single look has no later one to tell a file that is being written from a broken one: it waits
this long for the writer."""

_TOKEN_VARIABLE = "GRAFANA_TOKEN"  # noqa: S105 - its name
"""Holds the token of ``--push``: a command line is for all to see."""

_FLAG_POOL = "sglang"
"""The pool that ``--sglang`` makes."""


class UsageError(Exception):
    """Wrong use, said in one line: exit code 2."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, or 2 where the command could not be carried out."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except (UsageError, ConfigError, LedgerError, ListenError, MissingFilesError) as error:
        print(f"harborlight: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of a pipe had enough (head, say); nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # A full disk behind standard output, or a folder that cannot be made.
        where = f"{error.filename}: " if error.filename else ""
        print(f"harborlight: {where}{error.strerror or error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="harborlight", description="Watch long Harbor evaluations honestly while they run."
    )
    parser.add_argument("--version", action="version", version=f"harborlight {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    serving = commands.add_parser("serve", help="watch jobs and replicas, serve /metrics")
    _add_input(serving)
    _add_logging(serving)
    serving.add_argument(
        "--data-dir",
        type=Path,
        default=Path(DEFAULT_DATA_DIR),
        help="where the ledger lies (default: %(default)s)",
    )
    serving.add_argument(
        "--web.listen-address",
        dest="listen",
        action="append",
        metavar="HOST:PORT",
        help=f"address to serve on, repeatable (default: {DEFAULT_ADDRESS})",
    )
    serving.add_argument(
        "--web.enable-lifecycle",
        dest="lifecycle",
        action="store_true",
        help="allow reloading the configuration by POST /-/reload",
    )
    serving.add_argument(
        "--refresh-interval",
        metavar="DURATION",
        help="how often to look at the jobs (default: 5s)",
    )
    serving.set_defaults(run=_serve)

    metrics = commands.add_parser("metrics", help="look once, print the metrics page and exit")
    _add_input(metrics)
    _add_reading(metrics)
    metrics.set_defaults(run=_metrics)

    status = commands.add_parser("status", help="show runs, tasks and faults in the terminal")
    _add_input(status)
    _add_reading(status)
    status.add_argument("--watch", action="store_true", help="keep it live until Ctrl-C")
    status.set_defaults(run=_status)

    faults = commands.add_parser("faults", help="list every fault and what became of it")
    _add_jobs(faults)
    _add_reading(faults)
    for name, known in FILTERS.items():
        faults.add_argument(
            f"--{name.replace('_', '-')}",
            dest=f"only_{name}",
            action="append",
            choices=known,
            metavar="NAME",
            help=f"only of this {name.replace('_', ' ')}; repeatable",
        )
    faults.add_argument(
        "--format",
        choices=("table", "csv", "json"),
        default="table",
        help="how to print them (default: %(default)s)",
    )
    faults.set_defaults(run=_faults, sglang=[])

    replay = commands.add_parser(
        "replay-plan", help="print the Harbor commands that get a run what it is missing"
    )
    replay.add_argument(
        "label", nargs="?", metavar="RUN", help="which run, where there are several"
    )
    _add_jobs(replay)
    _add_reading(replay)
    replay.add_argument(
        "--format",
        choices=("script", "json"),
        default="script",
        help="how to print it (default: %(default)s)",
    )
    replay.set_defaults(run=_replay_plan, sglang=[])

    reference = commands.add_parser(
        "reference", help="print a job's results as a table to compare others with"
    )
    reference.add_argument("job", metavar="JOB", help="a job directory, or a folder with one")
    reference.add_argument(
        "--run", dest="run_label", metavar="NAME", help="which run, where the job has several"
    )
    reference.set_defaults(run=_reference)

    check = commands.add_parser("check-config", help="check a configuration file")
    check.add_argument("file", type=Path, help="the file to check")
    check.set_defaults(run=_check_config)

    ledger = commands.add_parser("ledger", help="work on the ledger itself")
    ledger_commands = ledger.add_subparsers(metavar="COMMAND", required=True)
    forget = ledger_commands.add_parser("forget", help="take a job out, leaving an audit row")
    forget.add_argument("--job", required=True, metavar="NAME", help="the job's label or id")
    forget.add_argument(
        "--reason", default="", metavar="TEXT", help="why (optional), for the record that stays"
    )
    forget.add_argument(
        "--data-dir",
        type=Path,
        default=Path(DEFAULT_DATA_DIR),
        help="where the ledger lies (default: %(default)s)",
    )
    forget.set_defaults(run=_forget)

    dashboards = commands.add_parser(
        "dashboards", help="write the Grafana dashboards into a folder, or send them to a Grafana"
    )
    dashboards.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="DIR",
        help="where to write them: DIR/LANGUAGE/*.json",
    )
    dashboards.add_argument(
        "--language",
        dest="languages",
        action="append",
        choices=LANGUAGES,
        help="only in this language; repeatable",
    )
    dashboards.add_argument(
        "--push", metavar="URL", help="send them to this Grafana, http://HOST:PORT"
    )
    dashboards.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="with the Grafana's service account token (default: the environment variable "
        f"{_TOKEN_VARIABLE})",
    )
    dashboards.add_argument(
        "--folder",
        dest="grafana_folder",
        metavar="NAME",
        help=f"which of the Grafana's folders; made where missing (default: {DEFAULT_FOLDER})",
    )
    dashboards.set_defaults(run=_dashboards)

    alerts = commands.add_parser(
        "alerts",
        help="write alert rules, their runbooks and an example for Alertmanager into a folder",
    )
    alerts.add_argument("folder", type=Path, metavar="DIR", help="where to write them")
    alerts.add_argument(
        "--grafana-url",
        default=GRAFANA_URL,
        metavar="URL",
        help="where the alerts' links to dashboards lead (default: %(default)s)",
    )
    alerts.add_argument(
        "--runbook-url",
        default=RUNBOOK_URL,
        metavar="URL",
        help="where their links to runbooks lead (default: %(default)s, the exporter)",
    )
    alerts.set_defaults(run=_alerts)

    demo = commands.add_parser("demo", help="replay a Terminal-Bench-sized run and serve it")
    demo.add_argument("--speed", type=_positive, help="how many times faster than the real run")
    demo.add_argument("--web.listen-address", dest="listen", action="append", metavar="HOST:PORT")
    demo.add_argument("--dir", type=Path, help="where to write the jobs (default: a new folder)")
    demo.set_defaults(run=_demo)
    return parser


def _add_input(parser: argparse.ArgumentParser) -> None:
    """What to watch, and how to show it."""
    _add_jobs(parser)
    parser.add_argument(
        "--sglang",
        action="append",
        default=[],
        metavar="URL",
        help="an SGLang server that serves the model, http://HOST:PORT; repeatable",
    )
    parser.add_argument(
        "--reference",
        metavar="REFERENCE",
        help="what to compare runs with: a table (CSV), a job directory, or the name of one that "
        f"ships: {', '.join(reference_files.shipped_names())}",
    )
    parser.add_argument(
        "--collector.task",
        dest="tasks",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="per-task metrics; in status, the table of tasks",
    )


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    """Where the jobs are, and the rules that apply to them."""
    parser.add_argument(
        "--jobs",
        action="append",
        default=[],
        metavar="PATH",
        help="a jobs folder, a job directory, or a glob of either; repeatable",
    )
    parser.add_argument(
        "--harbor-server",
        dest="harbor_servers",
        action="append",
        default=[],
        metavar="URL",
        help="a Harbor server (harbor serve) whose jobs to watch, http://HOST:PORT; repeatable",
    )
    parser.add_argument(
        "--config.file", dest="config", type=Path, metavar="FILE", help="the configuration file"
    )
    parser.add_argument(
        "--local-jobs",
        action="store_true",
        help="Harbor's processes run on this host and can be seen from here: an unfinished job "
        "whose log nobody holds open was interrupted",
    )


def _add_reading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir",
        type=Path,
        help="show what this ledger knows (it is only read), too",
    )


def _add_logging(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log.level",
        dest="log_level",
        choices=("debug", "info", "warn", "error"),
        default="info",
        help="from which level on to log (default: %(default)s)",
    )
    parser.add_argument(
        "--log.format",
        dest="log_format",
        choices=("logfmt", "json"),
        default="logfmt",
        help="how to write log lines (default: %(default)s)",
    )


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def _interval(text: str) -> float:
    """Seconds of ``--refresh-interval``, in the configuration file's bounds."""
    try:
        seconds = parse_duration(text)
    except ConfigError as error:
        raise UsageError(f"--refresh-interval: {error}") from None
    if not _SHORTEST_INTERVAL <= seconds <= _LONGEST_INTERVAL:
        raise UsageError(f"--refresh-interval: expected 50ms to 1h, got {text!r}")
    return seconds


_SHORTEST_INTERVAL, _LONGEST_INTERVAL = 0.05, 3600.0


@contextlib.contextmanager
def _signals(*numbers: signal.Signals) -> Iterator[Callable[[], int]]:
    """What waits for the next of these signals, from before anything needs an orderly end.

    A handler in Python runs when the main thread wakes up, and a signal that comes just before it
    goes to sleep, or comes to another thread, does not wake it. A byte that it waits for does.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    with reader, writer:
        other = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        before = {number: signal.signal(number, lambda *_: None) for number in numbers}
        try:
            yield lambda: reader.recv(1)[0]
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(other)


def _load(arguments: argparse.Namespace) -> Config:
    return load_config(arguments.config) if arguments.config else Config()


def _rules(config: Config, arguments: argparse.Namespace) -> Rules:
    """The ledger's rules as configuration and flags say them."""
    return Rules(
        runs=tuple(
            RunDefinition(
                label=run.name,
                title=run.title or run.name,
                jobs=tuple(job.job for job in run.jobs),
                supersedes=tuple(job.job for job in run.jobs if job.supersedes),
                tasks=run.task_names,
                tasks_of=run.tasks_of_job,
                exclude={task: reason.en for task, reason in run.exclude.items()},
                given_up={task: reason.en for task, reason in run.given_up.items()},
                attempts=run.attempts,
                reward=RewardRule(
                    key=run.reward.key,
                    success_at=run.reward.success_at,
                    invalid_exceptions=frozenset(run.invalid_exceptions),
                ),
                agent=run.agent,
                model=run.model,
                dataset=run.dataset,
                content=run.content if isinstance(run.content, dict) else {},
            )
            for run in config.runs
        ),
        pools=tuple(
            PoolDefinition(
                label=pool.name,
                title=pool.title,
                jobs=pool.jobs,
                runs=pool.runs,
                replicas=tuple(replica.name for replica in pool.replicas),
                frozen_after=pool.frozen_after,
            )
            for pool in _pools(config, arguments)
        ),
        causes={name: Cause(cause) for name, cause in config.causes.items()},
        local_jobs=arguments.local_jobs or config.local_jobs,
    )


def _urls(flag: str, given: Sequence[str]) -> list[str]:
    """The servers' URLs that a flag names, every one in one spelling."""
    try:
        return [server_url(url) for url in given]
    except ConfigError as error:
        raise UsageError(f"{flag}: {error}") from None


def _pools(config: Config, arguments: argparse.Namespace) -> tuple[PoolConfig, ...]:
    """The configured pools, and the one that ``--sglang`` makes."""
    if not arguments.sglang:
        return config.pools
    urls = _urls("--sglang", arguments.sglang)
    configured = {url for p in config.pools for replica in p.replicas for url in replica.servers}
    if len(set(urls)) < len(urls) or configured.intersection(urls):
        raise UsageError("--sglang: a server is given twice")
    if any(pool.name == _FLAG_POOL for pool in config.pools):
        raise UsageError(f"--sglang: a pool called {_FLAG_POOL} is configured already")
    replicas = tuple(ReplicaConfig(name=str(number), url=url) for number, url in enumerate(urls, 1))
    return (*config.pools, PoolConfig(name=_FLAG_POOL, title="SGLang", replicas=replicas))


def _targets(pools: Sequence[PoolConfig]) -> tuple[ReplicaTarget, ...]:
    """Whom to ask for the pools' replicas."""
    return tuple(
        ReplicaTarget(
            pool=pool.name,
            name=replica.name,
            urls=replica.servers,
            data_parallel=replica.data_parallel,
            api_key=pool.api_key.get_secret_value() if pool.api_key is not None else None,
            timeout=pool.timeout,
            scrape_interval=pool.scrape_interval,
            tls=_tls(pool.tls),
        )
        for pool in pools
        for replica in pool.replicas
    )


def _tls(config: TlsConfig) -> Tls:
    return Tls(
        ca_file=config.ca_file,
        cert_file=config.cert_file,
        key_file=config.key_file,
        verify=not config.insecure_skip_verify,
    )


def _harbor_servers(
    config: Config, arguments: argparse.Namespace
) -> tuple[HarborServerTarget, ...]:
    """The configured Harbor servers, and those of ``--harbor-server``."""
    urls = _urls("--harbor-server", arguments.harbor_servers)
    servers = (
        *config.harbor_servers,
        *(HarborServerConfig(name=f"flag {n}", url=url) for n, url in enumerate(urls, 1)),
    )
    if len({server.url for server in servers}) < len(servers):
        raise UsageError("--harbor-server: a server is given twice")
    return tuple(
        HarborServerTarget(
            name=server.name,
            url=server.url,
            api_key=server.api_key.get_secret_value() if server.api_key is not None else None,
            timeout=server.timeout,
            tls=_tls(server.tls),
        )
        for server in servers
    )


@dataclass(frozen=True, slots=True)
class _Sources:
    """What is looked at. A source that a reload leaves as it was is kept with all it has read."""

    jobs: JobDirectorySource | None
    harbor_servers: HarborServerSource | None
    sglang: SglangSource | None

    @classmethod
    def given(
        cls,
        config: Config,
        arguments: argparse.Namespace,
        *,
        before: _Sources | None = None,
        settle_seconds: float = SETTLE_SECONDS,
        patience: float | None = PATIENCE_SECONDS,
    ) -> _Sources:
        """The sources that configuration and flags name."""
        places = [*arguments.jobs, *config.job_places]
        servers = _harbor_servers(config, arguments)
        targets = _targets(_pools(config, arguments))
        jobs = before.jobs if before is not None else None
        harbor_servers = before.harbor_servers if before is not None else None
        sglang = before.sglang if before is not None else None
        fresh = JobDirectorySource(places, settle_seconds=settle_seconds) if places else None
        if fresh is None or jobs is None or fresh.places != jobs.places:
            jobs = fresh
        if harbor_servers is None or harbor_servers.targets != servers:
            harbor_servers = HarborServerSource(servers, patience=patience) if servers else None
        if sglang is None or sglang.targets != targets:
            sglang = SglangSource(targets) if targets else None
        return cls(jobs, harbor_servers, sglang)

    @property
    def all(self) -> tuple[Source, ...]:
        """Jobs first: their news need not wait for a replica that hangs."""
        given = (self.jobs, self.harbor_servers, self.sglang)
        return tuple(source for source in given if source is not None)

    def or_complain(self) -> _Sources:
        """Themselves; a UsageError if there are none."""
        if not self.all:
            raise UsageError(
                "nothing to watch: give --jobs PATH, --harbor-server URL, --sglang URL or a "
                "configuration file with jobs:, harbor_servers: or pools:"
            )
        return self


def _serve(arguments: argparse.Namespace) -> int:
    configure_logging(arguments.log_level, arguments.log_format)
    config = _load(arguments)
    sources = _Sources.given(config, arguments).or_complain()
    addresses = [parse_listen_address(text) for text in arguments.listen or [DEFAULT_ADDRESS]]
    given = _interval(arguments.refresh_interval) if arguments.refresh_interval else None
    statistics = _statistics(config, arguments.reference)

    def load() -> Reload:
        nonlocal sources
        again = _load(arguments)
        statistics = _statistics(again, arguments.reference)
        sources = _Sources.given(again, arguments, before=sources).or_complain()
        interval = given or again.refresh_interval
        return Reload(_rules(again, arguments), sources.all, statistics, interval)

    with (
        _signals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as next_signal,
        bind(addresses) as sockets,
        Store.open_writer(arguments.data_dir) as store,
    ):
        service = Service(
            Ledger(store, _rules(config, arguments)),
            sources.all,
            statistics=statistics,
            interval=given or config.refresh_interval,
            tasks=arguments.tasks,
        )
        _run(service, sockets, next_signal, load=load, lifecycle=arguments.lifecycle)
    return 0


def _run(
    service: Service,
    sockets: Sockets,
    next_signal: Callable[[], int],
    *,
    load: Callable[[], Reload] | None = None,
    lifecycle: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT comes in; SIGHUP reloads, where there is what to ``load``."""
    by_http = partial(service.reload, load) if load is not None and lifecycle else None
    app = build_app(
        page=lambda: service.page,
        ready=lambda: None if service.ready else "the first look at the jobs is under way",
        reload=by_http,
        runbooks=_runbooks(),
        version=f"harborlight {__version__}",
    )
    stop = threading.Event()
    # A file system that hangs must not hold up the end: the ledger outlives being cut off.
    refreshing = threading.Thread(target=service.run, args=(stop,), name="refresh", daemon=True)
    refreshing.start()
    try:
        with serve(app, sockets):
            while next_signal() == signal.SIGHUP and load is not None:
                try:
                    service.reload(load)
                except Exception as error:  # noqa: BLE001 - the exporter goes on as it was
                    log.error("configuration not reloaded", extra={"error": str(error)})
            log.info("stopping")
    finally:
        stop.set()
        service.wake()
        refreshing.join(_END_SECONDS)


def _runbooks() -> Mapping[str, str]:
    """None of them is no reason not to serve."""
    try:
        return runbooks()
    except MissingFilesError as error:
        log.warning("no runbooks to serve", extra={"error": str(error)})
        return {}


def _statistics(config: Config, given: str | None) -> Statistics:
    """What makes the statistics, with the references of the configuration and of ``--reference``.

    ``given``: what that flag names, if it is there.
    """
    configured = {entry.name: entry for entry in config.references}
    references: dict[str, Reference] = {}
    for run in config.runs:
        if run.reference is None:
            continue
        entry = configured.get(run.reference)
        if entry is None:
            references[run.name] = reference_files.shipped(run.reference)
        elif entry.table is not None:
            references[run.name] = entry.reference(entry.table)
        else:
            references[run.name] = _of_job(entry, config.reference_job(entry))
    return Statistics(references, _default_reference(given) if given else None)


def _of_job(entry: ReferenceConfig, place: str) -> Reference:
    """A reference whose results are those of a Harbor job."""
    try:
        reference = entry.reference(reference_tasks(_only_run(place)))
        check_headline(reference)
    except (InvalidReferenceError, UsageError) as error:
        raise ConfigError([f"references: {entry.name}: {error}"]) from None
    return reference


def _default_reference(given: str) -> Reference:
    """What ``--reference`` names: one that ships, a table, or a Harbor job."""
    path = Path(given)
    shipped = reference_files.shipped_names()
    expected = f"expected a table, a job directory, or one of: {', '.join(shipped)}"
    if "://" in given:  # it can hold a password, and is not repeated
        raise UsageError(f"--reference: {expected}, got a URL")
    if given not in shipped and not path.exists():
        raise UsageError(f"--reference {given}: {expected}")
    try:
        if given in shipped:
            return reference_files.shipped(given)
        if path.is_dir():
            run = _only_run(given)
            agent, model = run.agent, run.model
            reference = Reference(run.label, run.title, reference_tasks(run), agent, model)
        else:
            tasks = reference_files.read_table_file(path)
            reference = Reference(safe_label(path.stem), safe_label(path.stem), tasks)
        check_headline(reference)
    except (InvalidReferenceError, UsageError) as error:
        raise UsageError(f"--reference {given}: {error}") from None
    return reference


def _only_run(place: str, label: str | None = None, *, choice: bool = False) -> RunStanding:
    """The run of this label, or the only one, in a job directory or a folder of jobs.

    ``choice``: a label can be given.
    """
    source = JobDirectorySource([place], settle_seconds=_ONE_LOOK_SETTLE_SECONDS)
    ledger = Ledger(Store.throw_away(), Rules())
    _complain(_look_once(source, ledger))
    runs = {run.label: run for run in ledger.runs()}
    if label is not None and label in runs:
        return runs[label]
    if label is not None or len(runs) != 1:
        found = ", ".join(runs) or "none"
        wanted = f"the run {label}" if label is not None else "one run"
        hint = " (choose one with --run)" if label is None and choice and runs else ""
        raise UsageError(f"expected {wanted}, found {found}{hint}")
    return next(iter(runs.values()))


def _reference(arguments: argparse.Namespace) -> int:
    """Print a job's results as a table."""
    configure_logging("warn")
    try:
        run = _only_run(arguments.job, arguments.run_label, choice=True)
    except UsageError as error:
        raise UsageError(f"reference {arguments.job}: {error}") from None
    tasks = reference_tasks(run)
    if not tasks:
        raise UsageError(f"reference {arguments.job}: no attempt of {run.label} is scored")
    sys.stdout.write(reference_files.write_table(tasks.values()))
    partly = [task.label for task in run.tasks if not task.complete and task.label in tasks]
    missing = [task.label for task in run.tasks if task.label not in tasks]
    for labels, what in (
        (partly, "not every attempt is scored of"),
        (missing, "without a scored attempt, and not in the table:"),
    ):
        if labels:
            print(f"harborlight: {what} {', '.join(labels)}", file=sys.stderr)
    return 0


class _Reader:
    """One look, or one after the other, without writing anything.

    ``jobs_only``: no replica is asked, and nothing is compared.
    """

    def __init__(self, arguments: argparse.Namespace, *, jobs_only: bool = False) -> None:
        config = _load(arguments)
        self._sources = _Sources.given(
            config, arguments, settle_seconds=_ONE_LOOK_SETTLE_SECONDS, patience=None
        )
        if jobs_only:
            self._sources = replace(self._sources, sglang=None)
        if arguments.data_dir is None:
            self._sources.or_complain()
        self._data_dir: Path | None = arguments.data_dir
        self._rules = _rules(config, arguments)
        self._statistics = None if jobs_only else _statistics(config, arguments.reference)
        self._ledger: Ledger | None = None
        self._replicas: dict[tuple[str, str], ReplicaSighting] = {}

    @property
    def reads_jobs(self) -> bool:
        """Whether there are jobs to look at."""
        return self._sources.jobs is not None

    def globs_of(self, label: str) -> tuple[str, ...] | None:
        """The jobs of a configured run; None for an automatic one."""
        return next((run.jobs for run in self._rules.runs if run.label == label), None)

    def works(self) -> tuple[dict[str, JobWork], dict[str, Path]]:
        """What the jobs were to do, and where they stand, by job id, as of the last look."""
        assert self._ledger is not None
        jobs = self._sources.jobs
        works, directories = {}, {}
        for job_id, work in self._ledger.works().items():
            directory = jobs.directory_of(job_id) if jobs is not None else None
            if directory is not None:
                directories[job_id] = directory
                works[job_id] = work
            else:  # known, but not where: nothing can be done in it
                works[job_id] = replace(work, present=False, resumable=False)
        return works, directories

    def look(self) -> Snapshot:
        """What the ledger knows, and what jobs and replicas show beyond it."""
        if self._data_dir is not None:
            with Store.open_reader(self._data_dir) as store:
                self._ledger = Ledger(store, self._rules)
            if self._sources.jobs is not None:
                self._sources.jobs.start_anew()
            if self._sources.harbor_servers is not None:
                self._sources.harbor_servers.start_anew()
            # A replica is not asked at every look. What it counted then may be behind the ledger.
            before = (replace(replica, complete=False) for replica in self._replicas.values())
            self._ledger.take(Observation(replicas=tuple(before)))
        elif self._ledger is None:
            self._ledger = Ledger(Store.throw_away(), self._rules)
        ledger = self._ledger
        assert ledger is not None
        collectors = tuple(self._collect(source, ledger) for source in self._sources.all)
        snapshot = replace(of_ledger(ledger, time.time()), collectors=collectors)
        if self._statistics is None:
            return snapshot
        return with_statistics(snapshot, self._statistics)

    def _collect(self, source: Source, ledger: Ledger) -> CollectorSnapshot:
        started = time.monotonic()
        observation = _look_once(source, ledger)
        self._replicas.update({(seen.pool, seen.replica): seen for seen in observation.replicas})
        _complain(observation)
        now = time.time()
        success = not observation.failures
        took = time.monotonic() - started
        return CollectorSnapshot(source.name, success, took, now if success else None)


def _look_once(source: Source, ledger: Ledger) -> Observation:
    """What a single look brings, taken in; a file that is being written is waited for."""
    observation = source.look(time.time())
    ledger.take(observation)
    if observation.unsettled:
        time.sleep(_ONE_LOOK_SETTLE_SECONDS)
        observation = source.look(time.time())
        ledger.take(observation)
    return observation


def _complain(observation: Observation) -> None:
    for problem in observation.failures:
        log.warning("cannot look", extra={"subject": problem.subject, "reason": problem.reason})
    for problem in observation.problems:
        log.warning("unreadable file", extra={"subject": problem.subject, "reason": problem.reason})
    for replica in observation.replicas:
        if replica.state is not ReplicaState.UP:
            log.warning(
                "replica state",
                extra={
                    "subject": f"{replica.pool}/{replica.replica}",
                    "state": replica.state.value,
                    "reason": replica.reason,
                },
            )


def _metrics(arguments: argparse.Namespace) -> int:
    configure_logging("warn")
    reader = _Reader(arguments)
    if arguments.data_dir is None and reader.reads_jobs:
        print(
            "harborlight: read once, without a ledger: of trials that Harbor retried its log tells "
            "no more than the exceptions",
            file=sys.stderr,
        )
    _, page, _ = Page(reader.look(), tasks=arguments.tasks).render("text/plain")
    sys.stdout.buffer.write(page)
    sys.stdout.buffer.flush()
    return 0


class _Console(Console):
    @override
    def on_broken_pipe(self) -> None:
        """No failure: see ``main``."""
        raise BrokenPipeError


def _console() -> Console:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an ASCII terminal shows what it can
    return _Console()


def _status(arguments: argparse.Namespace) -> int:
    configure_logging("error" if arguments.watch else "warn")
    reader = _Reader(arguments)
    console = _console()
    if not arguments.watch:
        console.print(terminal.render(reader.look(), tasks=arguments.tasks))
        return 0
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            picture = terminal.render(
                reader.look(), tasks=arguments.tasks, height=console.size.height
            )
            live.update(picture, refresh=True)
            time.sleep(_WATCH_SECONDS)


def _faults(arguments: argparse.Namespace) -> int:
    configure_logging("warn")
    snapshot = _Reader(arguments, jobs_only=True).look()
    for what, labels in (
        ("run", {run.label for run in snapshot.runs}),
        ("task", {task.label for run in snapshot.runs for task in run.tasks}),
        ("job", {job.label for job in snapshot.jobs}),
    ):
        for label in getattr(arguments, f"only_{what}") or ():
            if label not in labels:
                raise UsageError(f"faults: no {what} is called {label}")
    lines = [
        line
        for line in fault_lines(snapshot)
        if all(
            (wanted := getattr(arguments, f"only_{name}")) is None or getattr(line, name) in wanted
            for name in FILTERS
        )
    ]
    match arguments.format:
        case "csv":
            sys.stdout.write(as_csv(lines))
        case "json":
            sys.stdout.write(as_json(lines))
        case _:
            _console().print(as_table(lines, snapshot.at))
    return 0


def _replay_plan(arguments: argparse.Namespace) -> int:
    configure_logging("warn")
    reader = _Reader(arguments, jobs_only=True)
    snapshot = reader.look()
    runs = {run.label: run for run in snapshot.runs}
    label = arguments.label or (next(iter(runs)) if len(runs) == 1 else None)
    if label not in runs:
        found = ", ".join(runs) or "none"
        wanted = f"the run {label}" if label is not None else "the name of a run"
        raise UsageError(f"replay-plan: expected {wanted}, found {found}")
    works, directories = reader.works()
    plan = plan_replay(runs[label], snapshot.runs, works)
    recipes = _recipes(plan, directories)
    changed = {
        job_id: tasks
        for job_id, recipe in recipes.items()
        if (tasks := changed_tasks(recipe, works[job_id].locked))
    }
    if changed:
        works |= {job_id: replace(works[job_id], resumable=False) for job_id in changed}
        plan = plan_replay(runs[label], snapshot.runs, works)
        recipes |= _recipes(plan, directories)
    steps = replays(plan, recipes, {job.label for job in snapshot.jobs})
    globs = reader.globs_of(plan.run)
    versions = {works[job_id].label: tasks for job_id, tasks in changed.items()}
    told = hints(plan, steps, jobs=runs[plan.run].jobs, globs=globs, changed=versions)
    written = replay_json if arguments.format == "json" else as_script
    sys.stdout.write(written(plan, steps, told))
    return 0


def _recipes(plan: ReplayPlan, directories: Mapping[str, Path]) -> dict[str, JobRecipe]:
    """Of the plan's jobs, by id. Without one there is no command, and the step says why."""
    recipes = {}
    for job_id in {step.job_id for step in plan.steps}:
        with contextlib.suppress(OSError, ValueError):
            recipes[job_id] = read_recipe(directories[job_id])
    return recipes


def _check_config(arguments: argparse.Namespace) -> int:
    config = load_config(arguments.file)
    _statistics(config, None)
    replicas = sum(len(pool.replicas) for pool in config.pools)
    counts = [counted(len(config.runs), "run")]
    if config.harbor_servers:
        counts.append(counted(len(config.harbor_servers), "Harbor server"))
    if config.pools:
        counts += [counted(len(config.pools), "pool"), counted(replicas, "replica")]
    print(f"{arguments.file}: good, {', '.join(counts)} configured")
    return 0


def _forget(arguments: argparse.Namespace) -> int:
    if not (arguments.data_dir / "ledger.sqlite").is_file():
        raise LedgerError(f"no ledger in {arguments.data_dir}: expected a file ledger.sqlite")
    with Store.open_writer(arguments.data_dir) as store:
        gone = Ledger(store).forget(arguments.job, time.time(), arguments.reason)
    print(f"forgot job {gone.label}; executions taken out of the ledger: {gone.trials}")
    return 0


def _dashboards(arguments: argparse.Namespace) -> int:
    """Write the dashboards, send them, or both."""
    grafana = None
    if arguments.push is not None:
        grafana = Grafana(_grafana_target(arguments))
    elif arguments.token_file is not None or arguments.grafana_folder is not None:
        raise UsageError("dashboards: --token-file and --folder go with --push URL")
    elif arguments.folder is None:
        raise UsageError("dashboards: give a folder to write to, or --push URL")
    files = dashboard_files.dashboards(arguments.languages or LANGUAGES)
    if arguments.folder is not None:
        _write(files, arguments.folder)
    if grafana is None:
        return 0
    return _push(grafana, files, arguments.grafana_folder or DEFAULT_FOLDER)


def _write(files: Iterable[PackageFile], folder: Path) -> None:
    for place, written in package_files.write(files, folder):
        print(f"{'wrote' if written else 'unchanged'} {place}")


def _alerts(arguments: argparse.Namespace) -> int:
    """Write everything about alerts."""
    try:
        grafana, runbook = (
            server_url(url) for url in (arguments.grafana_url, arguments.runbook_url)
        )
    except ConfigError as error:
        raise UsageError(f"--grafana-url, --runbook-url: {error}") from None
    _write(alert_files(grafana_url=grafana, runbook_url=runbook), arguments.folder)
    return 0


def _grafana_target(arguments: argparse.Namespace) -> GrafanaTarget:
    """The Grafana of ``--push``, and the token that lets one in."""
    try:
        url = server_url(arguments.push, key=f"--token-file or {_TOKEN_VARIABLE}")
    except ConfigError as error:
        raise UsageError(f"--push: {error}") from None
    if arguments.token_file is None and _TOKEN_VARIABLE not in os.environ:
        raise UsageError(
            f"dashboards: expected a token: --token-file FILE or the variable {_TOKEN_VARIABLE}"
        )
    place = arguments.token_file or _TOKEN_VARIABLE
    try:
        return GrafanaTarget(url, read_secret(place).get_secret_value())
    except ConfigError as error:
        raise UsageError(f"dashboards: {error}") from None


def _push(grafana: Grafana, files: Sequence[DashboardFile], folder_name: str) -> int:
    """Send them, each for itself; 2 where one could not be."""
    try:
        folder = grafana.folder(folder_name)
    except GrafanaError as error:
        print(f"harborlight: the Grafana's folder: {error}", file=sys.stderr)
        return 2
    failed = False
    for file in files:
        try:
            stored = grafana.push(file.document, folder)
        except GrafanaError as error:
            failed = True
            print(f"harborlight: {file.uid}: {error}", file=sys.stderr)
        else:
            print(f"{'pushed' if stored else 'unchanged'} {file.uid}")
    return 2 if failed else 0


def _demo(arguments: argparse.Namespace) -> int:
    configure_logging("warn")
    addresses = [parse_listen_address(text) for text in arguments.listen or [DEFAULT_ADDRESS]]
    with contextlib.ExitStack() as stack:
        next_signal = stack.enter_context(_signals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        sockets = stack.enter_context(bind(addresses))
        if arguments.dir is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="harborlight-demo-"))
        else:
            folder = str(arguments.dir)
        jobs = Path(folder) / "jobs"
        jobs.mkdir(parents=True, exist_ok=True)
        if any(jobs.iterdir()):
            raise UsageError(f"demo --dir {folder}: expected a new or empty folder")
        ledger = Path(folder) / "ledger"
        store = stack.enter_context(Store.open_writer(ledger))
        command = [sys.executable, "-m", "harborlight.demo.replay", "--jobs", str(jobs)]
        if arguments.speed is not None:
            command += ["--speed", str(arguments.speed)]
        with contextlib.ExitStack() as handed_over:
            # Sockets that listen before there is anybody: whoever asks too early waits in line.
            listeners = [handed_over.enter_context(serving.listener()) for _ in serving.REPLICAS]
            descriptors = [listening.fileno() for listening in listeners]
            command += ["--serve-on", ",".join(map(str, descriptors))]
            targets = [
                ReplicaTarget(
                    serving.POOL,
                    name,
                    (serving.url(listening),),
                    scrape_interval=serving.SCRAPE_INTERVAL,
                )
                for name, listening in zip(serving.REPLICAS, listeners, strict=True)
            ]
            stack.enter_context(_child(command, descriptors))
        pool = PoolDefinition(
            serving.POOL,
            serving.POOL_TITLE,
            jobs=(),
            runs=(),
            replicas=serving.REPLICAS,
            frozen_after=serving.FROZEN_AFTER,
        )
        service = Service(
            Ledger(store, Rules(pools=(pool,), local_jobs=True)),
            [JobDirectorySource([jobs]), SglangSource(targets)],
            statistics=Statistics(default=reference_files.shipped(DEMO_REFERENCE)),
            interval=1.0,
        )
        program = sys.argv[0] if sys.argv[0].endswith("harborlight") else "harborlight"
        shown = _DEMO_TEXT.format(
            address=sockets.addresses[0],
            program=program,
            ledger=ledger,
            reference=DEMO_REFERENCE,
            kept="" if arguments.dir else " and deletes all of this (--dir DIR keeps it)",
        )
        print(shown, flush=True)
        _run(service, sockets, next_signal)
    return 0


@contextlib.contextmanager
def _child(command: Sequence[str], descriptors: Sequence[int]) -> Iterator[None]:
    """A process that ends with the block and has these file descriptors, too."""
    process = subprocess.Popen(  # noqa: S603 - our own module, arguments not a shell's
        command,
        env={**os.environ, END_WITH_PARENT: str(os.getpid())},
        pass_fds=descriptors,
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


_WATCH_SECONDS = 2.0

_DEMO_TEXT = """\
Harborlight demo: a REPLAY, not a measurement. It writes Harbor job directories of a run of 63 tasks
x 5 attempts with the officially published rewards and durations of Terminal-Bench 4.0, sped up,
with some container, API and verifier faults, retries, a Ctrl-C and a regrade put in. Faults that
Harbor retries leave a line in its log and no more: it deletes their directories at once. The SGLang
replicas A and B of the pool "main" are SIMULATED: no model runs. Their load follows the replay, in
sizes and rates that are made up; B freezes for a while when about 62 % of the trials have ended.

  metrics   http://{address}/metrics
  status    {program} status --data-dir {ledger} --reference {reference} --watch
  faults    {program} faults --data-dir {ledger}
  e.g.      curl -s {address}/metrics | grep harborlight_run_attempts

Ctrl-C ends it{kept}."""


if __name__ == "__main__":
    raise SystemExit(main())
