"""Every fault that the ledger has, one line each: as a table, as CSV and as JSON."""

from __future__ import annotations

import csv
import datetime
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from harborlight.ledger.faults import Cause, Phase
from harborlight.ledger.ownership import Fault, Resolution
from harborlight.snapshot import Snapshot
from harborlight.views.terminal_text import counted, open_table, time_of_day


class FaultLine(NamedTuple):
    """One fault. ``at``: when it ended, else began, in seconds since the epoch.

    ``trial``: Harbor's name of the trial, the same for its retries. ``boundary``: from where to
    replay an open one, "" for the others.
    """

    run: str
    task: str
    job: str
    trial: str
    at: float | None
    phase: str
    cause: str
    exception_type: str
    resolution: str
    boundary: str


FILTERS: Final[Mapping[str, tuple[str, ...] | None]] = {
    "run": None,
    "task": None,
    "job": None,
    "phase": tuple(Phase),
    "cause": tuple(Cause),
    "exception_type": None,
    "resolution": tuple(Resolution),
}
"""What the list can be cut down by, and the values of what has but few."""


def fault_lines(snapshot: Snapshot) -> list[FaultLine]:
    """All faults of all runs, oldest first."""
    jobs = {job.job_id: job.label for job in snapshot.jobs}
    lines = [
        _line(run.label, task.label, jobs, fault)
        for run in snapshot.runs
        for task in run.tasks
        for fault in task.faults
    ]
    return sorted(lines, key=lambda line: (line.at or 0.0, line))


def _line(run: str, task: str, jobs: dict[str, str], fault: Fault) -> FaultLine:
    record = fault.record
    return FaultLine(
        run=run,
        task=task,
        job=jobs.get(record.job_id, ""),
        trial=record.name,
        at=record.finished_at or record.started_at,
        phase=fault.phase,
        cause=fault.cause,
        exception_type=fault.exception_type,
        resolution=fault.resolution,
        boundary=fault.boundary or "",
    )


def as_csv(lines: Iterable[FaultLine]) -> str:
    """With a head line; times are UTC."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(FaultLine._fields)
    writer.writerows(_plain(line).values() for line in lines)
    return table.getvalue()


def as_json(lines: Iterable[FaultLine]) -> str:
    """A list of objects; what is not known is null."""
    rows = [{k: v or None for k, v in _plain(line).items()} for line in lines]
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"


def _plain(line: FaultLine) -> dict[str, str]:
    moment = ""
    if line.at is not None:
        moment = datetime.datetime.fromtimestamp(line.at, datetime.UTC).isoformat()
    return {**line._asdict(), "at": moment}


def as_table(lines: Sequence[FaultLine], now: float) -> RenderableType:
    """For a terminal: with the run only where there are several."""
    if not lines:
        return Text("No faults.")
    several = len({line.run for line in lines}) > 1
    table = open_table()
    heads = [*(["run"] if several else []), "when", "task", "cause", "phase", "exception", "became"]
    for head in heads:
        table.add_column(head, overflow="fold", no_wrap=head in ("when", "cause", "phase"))
    for line in lines:
        became = line.resolution
        if line.resolution == Resolution.OPEN:
            became = f"open, {line.boundary}"
        cells = [*([line.run] if several else []), time_of_day(line.at, now), line.task]
        cells += [line.cause, line.phase, line.exception_type, became]
        table.add_row(*map(Text, cells))
    return Group(table, Text("\n" + _summary(lines)))


def _summary(lines: Sequence[FaultLine]) -> str:
    counts = Counter(line.resolution for line in lines)
    became = [f"{counts[name]} {name}" for name in Resolution if counts[name]]
    return f"{counted(len(lines), 'fault')}: " + ", ".join(became)
