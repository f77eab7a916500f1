"""Recorded Harbor jobs, read once: what the design's rules make of each of them.

The expected numbers were worked out by hand from the jobs' files, without this
code. Nothing tells whether the jobs' processes live, so liveness is unknown
everywhere, except where Harbor itself wrote an end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.exporter import metrics_once
from support.page import Page, assert_promises


@dataclass(frozen=True)
class Row:
    """One run. ``states`` are scored, running, queued, faulted, unplanned.

    ``None`` is not compared. ``faults`` counts all of them, settled ones included.
    """

    jobs: tuple[str, ...]
    target: int
    states: tuple[int, int, int, int, int] | None
    passed: int
    open: int
    options: tuple[str, ...] = ()
    with_exception: int = 0
    unreadable: int = 0
    faults: int | None = None
    stale: int = 0
    superseded: int = 0
    surplus: int = 0
    causes: tuple[tuple[str, int], ...] | None = None
    cancelled: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """A readable test id."""
        return "+".join(self.jobs) + "".join(self.options)


TABLE = [
    Row(("agent-timeout",), 2, (2, 0, 0, 0, 0), 0, 0, with_exception=2),
    Row(("cancel-sigint",), 18, (18, 0, 0, 0, 0), 11, 0),
    Row(
        ("cancel-sigint.before-resume",),
        18,
        (5, 0, 0, 3, 10),
        5,
        3,
        causes=(("cancelled", 3),),
        cancelled=("cancel-sigint.before-resume",),
    ),
    Row(
        ("cancel-sigint", "cancel-sigint.before-resume"),
        18,
        (18, 0, 0, 0, 0),
        11,
        0,
        faults=3,
    ),
    Row(("corrupt-jobresult0",), 18, (5, 3, 10, 0, 0), 5, 0, unreadable=1),
    # Which of the 13 run cannot be known without the lock: see the test below.
    Row(("corrupt-lockbad",), 18, None, 5, 0, unreadable=1),
    Row(("corrupt-trialresult0",), 18, (18, 0, 0, 0, 0), 15, 0, unreadable=1),
    Row(("crash-sigkill",), 18, (18, 0, 0, 0, 0), 11, 0),
    Row(("crash-sigkill.before-resume",), 18, (5, 3, 10, 0, 0), 5, 0),
    Row(
        ("crash-sigkill.before-resume",),
        18,
        (5, 0, 0, 3, 10),
        5,
        3,
        options=("--local-jobs",),
        causes=(("interrupted", 3),),
    ),
    Row(
        ("crash-sigkill", "crash-sigkill.before-resume"),
        18,
        (18, 0, 0, 0, 0),
        11,
        0,
        faults=3,
    ),
    Row(("diff-new",), 4, (4, 0, 0, 0, 0), 2, 0),
    Row(("diff-src",), 6, (6, 0, 0, 0, 0), 3, 0),
    # sep-c was changed and run again (2 stale), sep-a's verifier was changed and
    # its attempts regraded (2 superseded), sep-b was reused.
    Row(("diff-src", "diff-new"), 6, (6, 0, 0, 0, 0), 3, 0, stale=2, superseded=2),
    Row(("faulty-oracle",), 9, (3, 0, 0, 6, 0), 2, 6, faults=6),
    Row(
        ("mixed-6x5",),
        30,
        (29, 0, 0, 1, 0),
        15,
        1,
        with_exception=2,
        faults=1,
        causes=(("serving", 1),),
    ),
    Row(("no-verify",), 6, (0, 0, 0, 0, 6), 0, 0, faults=0),
    Row(("retry-2",), 6, (4, 0, 0, 2, 0), 4, 2, with_exception=1),
    Row(("retry-2-refiltered",), 6, (4, 0, 0, 2, 0), 4, 2, with_exception=1),
    Row(("sep-regrade",), 6, (6, 0, 0, 0, 0), 3, 0),
    Row(("sep-src", "sep-regrade"), 6, (6, 0, 0, 0, 0), 3, 0, faults=0),
    Row(("steps-err",), 1, (0, 0, 0, 1, 0), 0, 1),
    Row(("steps-oracle",), 1, (1, 0, 0, 0, 0), 0, 0),
    Row(("tz-la",), 1, (1, 0, 0, 0, 0), 0, 0),
]


def read_once(copy_jobs: Callable[..., Path], *jobs: str, options: tuple[str, ...] = ()) -> Page:
    """The page over copies of those recorded jobs."""
    page = metrics_once(["--jobs", copy_jobs(*jobs), *options])
    assert_promises(page)
    return page


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id)
def test_a_recorded_run_reads_as_worked_out_by_hand(
    row: Row, copy_jobs: Callable[..., Path]
) -> None:
    page = read_once(copy_jobs, *row.jobs, options=row.options)
    run = page.only_run()
    got = {
        "target": page.value("harborlight_run_attempts_target", run=run),
        "states": page.states(run) if row.states else None,
        "passed": page.value("harborlight_run_attempts_passed", run=run),
        "open faults": page.sum("harborlight_run_faults_open", run=run),
        "scored with exception": page.sum(
            "harborlight_run_attempts_scored_with_exception", run=run
        ),
        "unreadable files": page.sum("harborlight_job_unreadable_files"),
        "stale content": page.value("harborlight_run_attempts_stale_content", run=run),
        "superseded": page.value("harborlight_run_verdicts_superseded", run=run),
        "surplus": page.value("harborlight_run_attempts_surplus", run=run),
    }
    expected = {
        "target": row.target,
        "states": row.states,
        "passed": row.passed,
        "open faults": row.open,
        "scored with exception": row.with_exception,
        "unreadable files": row.unreadable,
        "stale content": row.stale,
        "superseded": row.superseded,
        "surplus": row.surplus,
    }
    if row.faults is not None:
        got["faults in all"] = page.sum("harborlight_run_faults_by_resolution", run=run)
        expected["faults in all"] = row.faults
    for cause, count in row.causes or ():
        got[cause] = page.sum("harborlight_run_faults_open", run=run, cause=cause)
        expected[cause] = count
    for job in row.cancelled:
        got[job] = page.value("harborlight_job_state", harbor_job=job, state="cancelled")
        expected[job] = 1
    assert got == expected


def test_the_table_covers_every_recorded_job(harbor_jobs: Path) -> None:
    recorded = {path.name for path in harbor_jobs.iterdir()}
    assert {job for row in TABLE for job in row.jobs} == recorded


def test_without_a_lock_the_rest_is_running_or_queued(copy_jobs: Callable[..., Path]) -> None:
    page = read_once(copy_jobs, "corrupt-lockbad")
    scored, running, queued, faulted, unplanned = page.states(page.only_run())
    assert (scored, running + queued, faulted, unplanned) == (5, 13, 0, 0)


@pytest.mark.parametrize(("job", "retries"), [("retry-2", 5), ("retry-2-refiltered", 7)])
def test_retries_are_counted_although_harbor_deleted_them(
    job: str, retries: int, copy_jobs: Callable[..., Path]
) -> None:
    page = read_once(copy_jobs, job)
    assert page.value("harborlight_run_retries_total", run=page.only_run()) == retries


@pytest.mark.parametrize(
    "jobs",
    [
        ("cancel-sigint", "cancel-sigint.before-resume"),
        ("crash-sigkill", "crash-sigkill.before-resume"),
        ("diff-src", "diff-new"),
        ("sep-src", "sep-regrade"),
    ],
    ids="+".join,
)
def test_the_order_of_the_directories_changes_nothing(
    jobs: tuple[str, str], copy_jobs: Callable[..., Path]
) -> None:
    """Each directory on its own ``--jobs``, in both orders."""
    root = copy_jobs(*jobs)
    pages = []
    for order in (jobs, jobs[::-1]):
        arguments: list[str] = []
        for name in order:
            arguments += ["--jobs", str(root / name)]
        pages.append(metrics_once(arguments))
    first, second = (
        {s.series: s.value for s in page.samples if _lasting(s.name)} for page in pages
    )
    # Sums of seconds and dollars depend on their order in the last digit.
    assert first == pytest.approx(second, rel=1e-12)
    assert first


def _lasting(name: str) -> bool:
    """Whether the series describes runs and not the moment of reading."""
    if "_eta_" in name or name.endswith("_per_second"):
        return False
    return name.startswith(("harborlight_run_", "harborlight_task_"))
