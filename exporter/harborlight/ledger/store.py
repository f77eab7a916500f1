"""Where the ledger lies: SQLAlchemy Core on SQLite, one writer, any number of readers."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import sqlalchemy as sa
from msgspec.structs import force_setattr
from sqlalchemy.dialects.sqlite import insert

from harborlight.ledger.jobs import Job
from harborlight.ledger.meters import Meter
from harborlight.ledger.ownership import Execution
from harborlight.ledger.replicas import MeterKey
from harborlight.readings import Series
from harborlight.records import TaskRef, TrialRecord

SCHEMA_VERSION: Final = 2

metadata = sa.MetaData()

_meta = sa.Table(
    "meta",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("value", sa.String, nullable=False),
)
_jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("job_id", sa.String, primary_key=True),
    sa.Column("label", sa.String, nullable=False, unique=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
_trials = sa.Table(
    "trials",
    metadata,
    sa.Column("job_id", sa.String, primary_key=True),
    sa.Column("name", sa.String, primary_key=True),
    # "" while open: Harbor gives an id only with the result.
    sa.Column("execution", sa.String, primary_key=True),
    sa.Column("present", sa.Boolean, nullable=False),
    sa.Column("dead", sa.Boolean, nullable=False),
    sa.Column("counted", sa.String, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
_runs = sa.Table(
    "runs",
    metadata,
    sa.Column("key", sa.String, primary_key=True),
    sa.Column("label", sa.String, nullable=False, unique=True),
)
_counters = sa.Table(
    "counters",
    metadata,
    sa.Column("account", sa.String, primary_key=True),
    sa.Column("metric", sa.String, primary_key=True),
    sa.Column("labels", sa.String, primary_key=True),
    sa.Column("value", sa.Float, nullable=False),
)
_forgotten = sa.Table(
    "forgotten",
    metadata,
    sa.Column("job_id", sa.String, primary_key=True),
    sa.Column("label", sa.String, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("reason", sa.String, nullable=False),
    sa.Column("trials", sa.Integer, nullable=False),
)
_meters = sa.Table(
    "meters",
    metadata,
    sa.Column("pool", sa.String, primary_key=True),
    sa.Column("replica", sa.String, primary_key=True),
    sa.Column("family", sa.String, primary_key=True),
    sa.Column("server", sa.String, primary_key=True),
    sa.Column("role", sa.String, primary_key=True),
    sa.Column("dp_rank", sa.String, primary_key=True),
    sa.Column("ranks", sa.String, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

CounterKey = tuple[str, str, str]
"""(a run's account, metric, label values joined by a newline)."""

TrialKey = tuple[str, str, str]
"""(job id, trial name, execution id or "")."""

_job_body = msgspec.json.Decoder(Job)
_trial_body = msgspec.json.Decoder(TrialRecord)
_encode = msgspec.json.Encoder().encode
# JSON has no infinity, which is every histogram's last bound.
_meter_body = msgspec.msgpack.Decoder(Meter)
_encode_meter = msgspec.msgpack.Encoder().encode


class LedgerError(Exception):
    """The ledger cannot be opened; the text is one line for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A job that was taken out on purpose: the audit row."""

    job_id: str
    label: str
    at: float
    reason: str
    trials: int


@dataclass(slots=True)
class Changes:
    """What one refresh is going to write, all of it or nothing."""

    jobs: dict[str, Job]
    trials: dict[TrialKey, Execution | None]
    runs: dict[str, str]
    counters: dict[CounterKey, float]
    meters: dict[MeterKey, Meter]

    @classmethod
    def none(cls) -> Changes:
        return cls({}, {}, {}, {}, {})

    def __bool__(self) -> bool:
        return bool(self.jobs or self.trials or self.runs or self.counters or self.meters)


@dataclass(frozen=True, slots=True)
class Stored:
    """All that a ledger holds."""

    jobs: dict[str, Job]
    trials: dict[TrialKey, Execution]
    runs: dict[str, str]
    counters: dict[CounterKey, float]
    meters: dict[MeterKey, Meter]
    forgotten: tuple[Forgotten, ...]


class Store:
    """A ledger's database. Use ``open_writer``, ``open_reader`` or ``throw_away``."""

    def __init__(self, engine: sa.Engine, lock: int | None = None) -> None:
        self._engine = engine
        self._lock = lock
        self._file: Path | None = None
        self._inode = 0

    @classmethod
    def open_writer(cls, data_dir: Path) -> Store:
        """The one writer of a data directory. Raises LedgerError, in use or not writable."""
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            lock = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise LedgerError(
                f"data directory {data_dir} cannot be written: {error.strerror}"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise LedgerError(
                f"data directory {data_dir} is in use by another harborlight serve"
            ) from None
        engine = sa.create_engine(f"sqlite:///{data_dir / 'ledger.sqlite'}")
        sa.event.listen(engine, "connect", _durable)
        store = cls(engine, lock)
        try:
            store._create()
            store._file = data_dir / "ledger.sqlite"
            store._inode = store._file.stat().st_ino
        except sa.exc.DatabaseError as error:
            store.close()
            raise LedgerError(f"ledger in {data_dir} cannot be opened: {_plain(error)}") from None
        except LedgerError:
            store.close()
            raise
        return store

    @classmethod
    def open_reader(cls, data_dir: Path) -> Store:
        """Look at a ledger while its writer goes on. Raises LedgerError where there is none."""
        path = data_dir / "ledger.sqlite"
        if not path.is_file():
            raise LedgerError(f"no ledger in {data_dir}: expected a file ledger.sqlite")
        # Without a log of recent writes nobody is writing, and reading must leave nothing behind.
        alone = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
        place = urllib.parse.quote(str(path.absolute()))
        engine = sa.create_engine(
            f"sqlite:///file:{place}?mode=ro{alone}&uri=true", connect_args={"timeout": 10}
        )
        store = cls(engine)
        try:
            store._check_version()
        except sa.exc.DatabaseError as error:
            store.close()
            raise LedgerError(f"ledger in {data_dir} cannot be opened: {_plain(error)}") from None
        return store

    @classmethod
    def throw_away(cls) -> Store:
        """A ledger in memory, for one look."""
        engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
        store = cls(engine)
        store._create()
        return store

    def _create(self) -> None:
        if sa.inspect(self._engine).has_table(_meta.name):
            self._upgrade()
            self._check_version()
            return
        with self._engine.begin() as connection:
            metadata.create_all(connection)
            connection.execute(sa.insert(_meta), {"name": "schema", "value": str(SCHEMA_VERSION)})

    def _upgrade(self) -> None:
        """Schema 2 only added a table to schema 1."""
        with self._engine.begin() as connection:
            at_1 = _meta.c.name == "schema", _meta.c.value == "1"
            if connection.scalar(sa.select(_meta.c.value).where(*at_1)) is not None:
                metadata.create_all(connection)
                connection.execute(sa.update(_meta).where(*at_1).values(value="2"))

    def _check_version(self) -> None:
        with self._engine.connect() as connection:
            version = connection.scalar(sa.select(_meta.c.value).where(_meta.c.name == "schema"))
        if version != str(SCHEMA_VERSION):
            raise LedgerError(
                f"ledger has schema {version}, this harborlight expects {SCHEMA_VERSION}"
            )

    def load(self) -> Stored:
        """Everything, in one consistent read. Raises LedgerError where it makes no sense."""
        try:
            return self._load()
        except (msgspec.DecodeError, sa.exc.DatabaseError) as error:
            raise LedgerError(f"ledger cannot be read: {type(error).__name__}") from None

    def _load(self) -> Stored:
        with self._engine.connect() as connection:
            jobs = {
                job_id: _job_body.decode(body)
                for job_id, body in connection.execute(sa.select(_jobs.c.job_id, _jobs.c.body))
            }
            trials: dict[TrialKey, Execution] = {}
            interned: dict[str, frozenset[str]] = {}
            for row in connection.execution_options(yield_per=2000).execute(sa.select(_trials)):
                counted = interned.setdefault(row.counted, _labels(row.counted))
                trials[row.job_id, row.name, row.execution] = Execution(
                    _shared(_trial_body.decode(row.body)), row.present, row.dead, counted
                )
            runs = {row.key: row.label for row in connection.execute(sa.select(_runs))}
            counters = {
                (row.account, row.metric, row.labels): row.value
                for row in connection.execute(sa.select(_counters))
            }
            forgotten = tuple(
                Forgotten(row.job_id, row.label, row.at, row.reason, row.trials)
                for row in connection.execute(sa.select(_forgotten))
            )
            meters = {
                MeterKey(
                    row.pool,
                    row.replica,
                    row.family,
                    Series(row.server, row.role, row.dp_rank, row.ranks),
                ): _meter_body.decode(row.body)
                for row in connection.execute(sa.select(_meters))
            }
        return Stored(jobs, trials, runs, counters, meters, forgotten)

    def write(self, changes: Changes) -> None:
        """All changes in one transaction.

        Raises sqlalchemy.exc.SQLAlchemyError or LedgerError; nothing was written then.
        """
        self._check_file()
        with self._engine.begin() as connection:
            _replace(
                connection,
                _jobs,
                [
                    {"job_id": job_id, "label": job.label, "body": _encode(job)}
                    for job_id, job in changes.jobs.items()
                ],
            )
            gone = [key for key, execution in changes.trials.items() if execution is None]
            if gone:
                connection.execute(
                    sa.delete(_trials).where(
                        _trials.c.job_id == sa.bindparam("j"),
                        _trials.c.name == sa.bindparam("n"),
                        _trials.c.execution == sa.bindparam("e"),
                    ),
                    [{"j": j, "n": n, "e": e} for j, n, e in gone],
                )
            _replace(connection, _trials, _trial_rows(changes.trials))
            _replace(
                connection,
                _runs,
                [{"key": key, "label": label} for key, label in changes.runs.items()],
            )
            _replace(
                connection,
                _counters,
                [
                    {"account": account, "metric": metric, "labels": labels, "value": value}
                    for (account, metric, labels), value in changes.counters.items()
                ],
            )
            _replace(connection, _meters, _meter_rows(changes.meters))

    def _check_file(self) -> None:
        """A database that was removed or replaced would take writes that nobody ever sees."""
        if self._file is None:
            return
        try:
            same = self._file.stat().st_ino == self._inode
        except OSError:
            same = False
        if not same:
            raise LedgerError(f"{self._file} was removed or replaced; restart to begin a new one")

    def forget(self, job_id: str, label: str, at: float, reason: str) -> Forgotten:
        """Take a job and its trials out, leaving an audit row. Counters stay as they are."""
        with self._engine.begin() as connection:
            trials = connection.execute(
                sa.delete(_trials).where(_trials.c.job_id == job_id)
            ).rowcount
            connection.execute(sa.delete(_jobs).where(_jobs.c.job_id == job_id))
            row = {"job_id": job_id, "label": label, "at": at, "reason": reason, "trials": trials}
            _replace(connection, _forgotten, [row])
        return Forgotten(job_id, label, at, reason, trials)

    def close(self) -> None:
        self._engine.dispose()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _durable(connection: Any, _: object) -> None:
    """WAL lets readers look while one writes; FULL makes a commit survive a power cut."""
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")


def _replace(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    statement = insert(table)
    keys = [column.name for column in table.primary_key]
    statement = statement.on_conflict_do_update(
        index_elements=keys,
        set_={c.name: statement.excluded[c.name] for c in table.columns if c.name not in keys},
    )
    connection.execute(statement, list(rows))


def _trial_rows(trials: Mapping[TrialKey, Execution | None]) -> list[dict[str, Any]]:
    return [
        {
            "job_id": key[0],
            "name": key[1],
            "execution": key[2],
            "present": execution.present,
            "dead": execution.dead,
            "counted": "\n".join(sorted(execution.counted)),
            "body": _encode(execution.record),
        }
        for key, execution in trials.items()
        if execution is not None
    ]


def _meter_rows(meters: Mapping[MeterKey, Meter]) -> list[dict[str, Any]]:
    return [
        {
            "pool": key.pool,
            "replica": key.replica,
            "family": key.family,
            **key.series._asdict(),
            "body": _encode_meter(meter),
        }
        for key, meter in meters.items()
    ]


def _shared(record: TrialRecord) -> TrialRecord:
    """The record, with one object for each text that many records have."""
    for name in ("job_id", "agent", "model", "agent_label", "agent_version", "model_label"):
        force_setattr(record, name, sys.intern(getattr(record, name)))
    if record.digest is not None:
        force_setattr(record, "digest", sys.intern(record.digest))
    force_setattr(record, "task", _task(*record.task))
    return record


@functools.lru_cache(maxsize=4096)
def _task(source: str, name: str) -> TaskRef:
    return TaskRef(source, name)


def _labels(text: str) -> frozenset[str]:
    return frozenset(text.split("\n")) if text else frozenset()


def _plain(error: sa.exc.DatabaseError) -> str:
    return str(error.orig).splitlines()[0] if error.orig else type(error).__name__
