"""The list of faults: what is in it, in which order, and in each form."""

from __future__ import annotations

import csv
import io
import json

import pytest
from rich.console import Console

from harborlight.snapshot import Snapshot
from harborlight.views.faults import FaultLine, as_csv, as_json, as_table, fault_lines
from support.metrics import take_snapshot
from support.records import TASK, Watched, job_record, plan, trial

NOW = 1_800_000_000.0


@pytest.fixture
def snapshot() -> Snapshot:
    """A fault that Harbor retried, one that is open, and one whose regrade was scored."""
    watched = Watched()
    job = job_record("main", plan(3), max_retries=1, finished_at=300.0)
    watched.see(
        job,
        trial("a", "1", job="main", exceptions=("ApiRateLimitError",), at=50.0),
        trial("a", "2", job="main", reward=1.0, at=90.0),
        trial("b", "3", job="main", exceptions=("ApiError",), at=70.0),
        trial("c", "4", job="main", exceptions=("VerifierTimeoutError",), at=60.0),
    )
    watched.see(
        job_record(
            "again",
            plan(1, source_trial="4", source_task=TASK),
            created=400.0,
            source_jobs=("main",),
            finished_at=500.0,
        ),
        trial("g", "5", job="again", reward=0.0, at=450.0, source_trial="4"),
    )
    return take_snapshot(watched.ledger, NOW)


EXPECTED = [
    ("a", 50.0, "agent", "serving", "ApiRateLimitError", "retried", ""),
    ("c", 60.0, "verifier", "verifier", "VerifierTimeoutError", "regraded", ""),
    ("b", 70.0, "agent", "serving", "ApiError", "open", "resume"),
]


def test_lines(snapshot: Snapshot) -> None:
    """Oldest first, each once."""
    lines = fault_lines(snapshot)
    assert [line[3:] for line in lines] == EXPECTED
    assert {line[:3] for line in lines} == {("main", "task", "main")}


def test_csv(snapshot: Snapshot) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(fault_lines(snapshot)))))
    assert tuple(rows[0]) == FaultLine._fields
    assert [row["trial"] for row in rows] == ["a", "c", "b"]
    assert rows[2]["at"] == "1970-01-01T00:01:10+00:00"


def test_json(snapshot: Snapshot) -> None:
    rows = json.loads(as_json(fault_lines(snapshot)))
    assert [row["resolution"] for row in rows] == ["retried", "regraded", "open"]
    assert [row["boundary"] for row in rows] == [None, None, "resume"]
    assert json.loads(as_json([])) == []


def test_a_time_that_is_not_known() -> None:
    line = FaultLine("r", "t", "j", "x", None, "unknown", "interrupted", "none", "open", "rerun")
    assert json.loads(as_json([line]))[0]["at"] is None
    assert ",x,,unknown," in as_csv([line])


def drawn(lines: list[FaultLine], width: int = 120) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=50, record=True)
    console.print(as_table(lines, NOW))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_table(snapshot: Snapshot) -> None:
    lines = drawn(fault_lines(snapshot))
    assert lines[0].split() == ["when", "task", "cause", "phase", "exception", "became"]
    assert lines[-1] == "3 faults: 1 open, 1 retried, 1 regraded"
    assert lines[4].split()[-2:] == ["open,", "resume"]
    assert drawn([]) == ["No faults."]


def test_table_of_several_runs(snapshot: Snapshot) -> None:
    """With the run then; and text from files stays text."""
    one = fault_lines(snapshot)[0]
    lines = drawn([one, one._replace(run="[red]other[/red]")])
    assert lines[0].split()[0] == "run"
    assert lines[3].startswith("[red]other[/red]")
