"""The terminal view: layout, and text from files shown as text."""

from __future__ import annotations

import dataclasses
import io
import time
from collections.abc import Iterator, Sequence

import pytest
from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from harborlight.ledger import Ledger, Store
from harborlight.ledger.book import Rules
from harborlight.ledger.jobs import JobState
from harborlight.ledger.ownership import AttemptState
from harborlight.ledger.pools import PoolDefinition
from harborlight.ledger.runs import RunDefinition
from harborlight.readings import Number, ReplicaState
from harborlight.records import TaskRef
from harborlight.reference import Reference, ReferenceTask
from harborlight.snapshot import CollectorSnapshot, Snapshot
from harborlight.views import terminal, terminal_statistics
from harborlight.views.terminal_text import time_of_day
from support.metrics import take_snapshot
from support.records import Watched, job_record, plan, trial
from support.replicas import observed, sighting

DAY = 86_400.0
NOW = 1_800_000_000.0
"""15 January 2027, 08:00 UTC."""


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    """Times are shown in local time: let that be UTC."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def shown(ledger: Ledger, *, width: int = 80, tasks: bool = True, at: float = NOW) -> list[str]:
    """What the ledger's picture looks like at a moment."""
    return drawn(take_snapshot(ledger, at=at), width=width, tasks=tasks)


def drawn(snapshot: Snapshot, *, width: int = 80, tasks: bool = True) -> list[str]:
    """The picture's lines on a terminal of that width, in colour, colours taken away again."""
    # With a height too: else a TERM of "dumb" would make every width 80.
    console = Console(
        file=io.StringIO(),
        width=width,
        height=50,
        color_system="truecolor",
        force_terminal=True,
        record=True,
    )
    console.print(terminal.render(snapshot, tasks=tasks))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert all(len(line) <= width for line in lines)
    return lines


def head_of(lines: Sequence[str]) -> list[str]:
    """The titles of the table of tasks."""
    (row,) = (line.split() for line in lines if line.startswith("task  ") and "scored" in line)
    return row


def cells(lines: Sequence[str], first: str) -> list[str]:
    """The cells of the first row below the heads that begins with this."""
    rows = [line.split() for line in lines if not line.startswith("task  ")]
    return next(row for row in rows if row[:1] == [first])


def world(*tasks: str, attempts: int = 5) -> Watched:
    """One job: a scored, a faulted, a running and two queued attempts of every task."""
    seen = Watched()
    refs = [TaskRef("set", task) for task in tasks]
    trials = []
    for i, ref in enumerate(refs):
        trials += [
            replace(trial(f"s{i}", f"xs{i}", reward=1.0, at=NOW - 60), task=ref),
            replace(
                trial(f"f{i}", f"xf{i}", exceptions=("EnvironmentStartTimeoutError",), at=NOW - 60),
                task=ref,
            ),
            replace(trial(f"r{i}", at=NOW - 60), task=ref),
        ]
    seen.see(job_record("job", *[plan(attempts, ref) for ref in refs], created=NOW - 600), *trials)
    return seen


def test_nothing() -> None:
    lines = shown(Ledger(Store.throw_away()))
    assert lines[0].startswith("As of 2027-01-15 08:00:00")
    assert lines[1:] == ["No Harbor jobs found yet."]


def test_summary() -> None:
    """Progress, rate and states; singulars read as well as plurals."""
    lines = shown(world("a", "b").ledger)
    assert lines[1] == "job  agent · model · set"
    assert set(lines[2]) <= {"█", "░"} and len(lines[2]) == 60
    assert lines[3] == "2 / 10 scored (20.0 %)  2 running  4 queued  2 faulted"
    assert lines[4] == "2 of 2 scored attempts passed (100.0 %), 0 of 2 tasks complete"


def test_task_table() -> None:
    """All columns where all are needed, and a name of 30 characters in one piece in 80 columns."""
    name = "thirty-characters-for-one-task"
    assert len(name) == 30
    lines = shown(world(name).ledger)
    assert head_of(lines) == ["task", "scored", "pass", "run", "queue", "fault", "usual"]
    assert cells(lines, name)[1:7] == ["1/5", "1", "1", "2", "1", "10s"]


def test_widest_task_table() -> None:
    """All columns at once, and large numbers in them."""
    name = "thirty-characters-for-one-task"
    counts = dict(zip(AttemptState, (100, 60, 80, 70, 90), strict=True))
    snapshot = take_snapshot(world(name).ledger)
    (run,) = snapshot.runs
    task = dataclasses.replace(
        run.tasks[0], target=400, states=counts, passed=99, usual_duration=86_340.0, faults=()
    )
    snapshot = dataclasses.replace(snapshot, runs=(dataclasses.replace(run, tasks=(task,)),))
    lines = drawn(snapshot)
    assert head_of(lines) == [
        "task", "scored", "pass", "run", "queue", "fault", "unplan", "usual"
    ]  # fmt: skip
    assert cells(lines, name) == [name, "100/400", "99", "60", "80", "70", "90", "23h59m"]


def test_empty_columns_are_hidden() -> None:
    seen = Watched()
    seen.see(job_record("job", plan(1), finished_at=NOW), trial("t", "x", reward=1.0, at=NOW))
    assert head_of(shown(seen.ledger)) == ["task", "scored", "pass", "usual"]


def test_without_tasks() -> None:
    lines = shown(world("a").ledger, tasks=False)
    assert not any("scored" in line and line.startswith("task") for line in lines)
    assert any(line.startswith("Jobs") for line in lines)


def test_unknown_target() -> None:
    seen = Watched()
    work = replace(trial("t", "x", reward=0.0), task=TaskRef("set", "work"))
    seen.see(job_record("job", plan=None, n_total=None), work)
    lines = shown(seen.ledger)
    assert "1 scored, target unknown" in lines
    assert "0 of 1 scored attempts passed (0.0 %), 0 of 1 tasks complete" in lines
    assert cells(lines, "work") == ["work", "1/?", "0", "10s"]


def test_open_faults() -> None:
    """The type in one piece, the time of day alone where it was today."""
    lines = shown(world("compile-compiler").ledger)
    assert "Open faults" in lines
    row = next(line for line in lines if "EnvironmentStartTimeoutError" in line).split()
    assert row == [
        "compile-compiler", "container", "EnvironmentStartTimeoutError", "resume", "07:59:00"
    ]  # fmt: skip
    wide = shown(world("compile-compiler").ledger, width=100)
    row = next(line for line in wide if "EnvironmentStartTimeoutError" in line).split()
    assert row[1:3] == ["container", "verifier"]


@pytest.mark.parametrize(
    ("days", "expected"), [(0, "07:59:00"), (1, "01-15 07:59"), (365, "2027-01-15 07:59")]
)
def test_moments(days: int, expected: str) -> None:
    """To the second today, to the minute later, with the year only where it is another one."""
    lines = shown(world("a").ledger, at=NOW + days * DAY)
    assert any(line.endswith(expected) for line in lines if "EnvironmentStart" in line)


def test_long_exception_type() -> None:
    """What cannot fit is folded; nothing of it is lost."""
    name = "A" * 40 + "B" * 37
    seen = Watched()
    seen.see(
        job_record("job", plan(1), finished_at=NOW),
        trial("t", "x", exceptions=(name,), at=NOW),
    )
    lines = shown(seen.ledger)
    below = lines[lines.index("Open faults") : lines.index("Jobs")]
    text = "".join("".join(below).split())
    assert text.count("A") >= 40 and text.count("B") == 37


HOSTILE = "[red]x[/]"


def test_no_markup() -> None:
    """Square brackets are square brackets, in names of tasks, jobs and exception types."""
    seen = Watched()
    seen.see(
        job_record(
            "job", plan(1, TaskRef("set", HOSTILE)), name="[bold]job[/bold]", finished_at=NOW
        ),
        replace(
            trial("t", "x", exceptions=("[link=file:///]E[/link]",), at=NOW),
            task=TaskRef("set", HOSTILE),
            agent_label="[blink]agent",
        ),
    )
    text = "\n".join(shown(seen.ledger, width=120))
    assert text.count(HOSTILE) == 2
    assert text.count("[bold]job[/bold]") == 2
    assert "[link=file:///]E[/link]" in text


def test_unbalanced_markup() -> None:
    """What rich would refuse as markup is shown."""
    assert any("[/]" in line for line in shown(world("[/]").ledger))


def test_no_control_characters() -> None:
    """A task's name cannot drive the terminal or write lines of its own."""
    seen = world("\x1b[2J\x1b]0;title\x07", "two\nlines", "\u202egnp")
    lines = shown(seen.ledger)
    assert not any(ord(c) < 32 or c in "\u202e\x7f" for line in lines for c in line)
    assert any(line.startswith("two?lines~") for line in lines)


def test_what_cannot_be_told_is_explained() -> None:
    """A job that may be dead, and a source that could not be read."""
    seen = world("a")
    assert any(line.startswith("unknown: it cannot be told") for line in shown(seen.ledger))
    seen.see(job_record("job", plan(5, TaskRef("set", "a")), created=NOW - 600), held=True)
    assert not any(line.startswith("unknown:") for line in shown(seen.ledger))
    bad = CollectorSnapshot("harbor_server", success=False, duration_seconds=1.0, last_success=None)
    snapshot = dataclasses.replace(take_snapshot(seen.ledger, at=NOW), collectors=(bad,))
    (said,) = (line for line in drawn(snapshot) if line.startswith("harbor_server"))
    assert said == "harbor_server could not be looked at in full: the log says why."


def test_given_up() -> None:
    rules = Rules(runs=(RunDefinition("run", jobs=("*",), given_up={"task": "its image is gone"}),))
    seen = Watched(rules)
    seen.see(job_record("job", plan(1)), trial("a", "1", exceptions=("ApiError",)))
    assert "1 of the tasks given up: task (its image is gone)" in shown(seen.ledger)


def test_jobs() -> None:
    """State and trials; broken files only where there are any."""
    seen = world("a")
    lines = shown(seen.ledger)
    start = lines.index("Jobs")
    assert lines[start + 1].split() == ["job", "state", "trials", "last", "change"]
    assert lines[start + 3].split()[:2] == ["job", JobState.UNKNOWN]
    seen.see(job_record("job", plan(5, TaskRef("set", "a")), created=NOW - 600), unreadable_files=2)
    lines = shown(seen.ledger)
    start = lines.index("Jobs")
    assert lines[start + 1].endswith("unreadable")
    assert lines[start + 3].endswith(" 2")


@pytest.mark.parametrize("width", [20, 40, 60])
def test_narrow(width: int) -> None:
    """No line is wider than the terminal, whatever its width."""
    assert shown(world("thirty-characters-for-one-task").ledger, width=width)


def test_pools() -> None:
    """A replica that is not up comes first, with what is the matter; what is not known is ``?``."""
    pool = PoolDefinition("main", "GLM", jobs=(), runs=(), replicas=("r1", "r2", "r3"))
    world = Watched(Rules(pools=(pool,)))
    world.see(job_record("job", plan(3)), trial("a"), trial("b"))
    known = {
        Number.RUNNING: 37.0,
        Number.QUEUED: 4.0,
        Number.MAX_RUNNING: 64.0,
        Number.KV_USED: 262_300.0,
        Number.KV_CAPACITY: 430_000.0,
    }
    down = sighting(
        pool="main",
        replica="r2",
        state=ReplicaState.UNREACHABLE,
        reason="timed out",
        complete=False,
    )
    world.ledger.take(observed(sighting(pool="main", numbers=known), down))
    lines = shown(world.ledger)
    start = lines.index("Pool GLM: 2 trials running")
    assert [line.split() for line in lines[start + 1 : start + 6]] == [
        ["replica", "state", "requests", "queued", "KV"],
        ["─" * len(lines[start + 2].strip())],
        ["r2", "unreachable:", "timed", "out", "?", "?", "?"],
        ["r3", "not", "asked", "yet", "?", "?", "?"],
        ["r1", "up", "37/64", "4", "61", "%"],
    ]


class TestStatistics:
    """Every ratio is shown with what it is of."""

    REFERENCE = Reference(
        "row",
        "A published row",
        {
            "a": ReferenceTask("a", 5, 5),
            "b": ReferenceTask("b", 1, 5, errors=1),
            "gpu": ReferenceTask("gpu", 0, 5),
        },
    )

    def lines(self, reference: Reference | None = None) -> list[str]:
        """Tasks a and b with one scored attempt, a fault and one running each, of 5."""
        return drawn(take_snapshot(world("a", "b").ledger, NOW, reference), tasks=False)

    def test_without_a_reference(self) -> None:
        lines = self.lines()
        # In the 70 s in which trials ran 2 were scored, and 2 more ended: 2 / 70 * 3600.
        rates = "An hour: scored attempts 102.9 (last hour 102.9), ended trials 205.7 (last hour"
        assert rates in lines
        assert "In the end 20.00 % to 100.00 % of 10 attempts passed, whatever comes" in lines
        assert "50.00 % with 2 faulted attempts counted as failed, the leaderboards' rule" in lines
        assert not any("reference" in line for line in lines)
        # Two tasks that passed alike show no spread; one attempt each no luck.
        mean = "Mean of all 2 tasks: 100.00 % ± ? by the attempts' luck, ± 0.00 with the choice"
        assert any(line.startswith(mean) for line in lines)

    def test_another_benchmark(self) -> None:
        """That nothing matches is said, not kept silent."""
        other = Reference("row", "Another row", {"x": ReferenceTask("x", 1, 5)})
        lines = self.lines(other)
        nothing = "The run and the reference have no task in common: nothing is compared"
        assert nothing in lines
        assert "2 of 2 tasks only in this run: a, b" in lines
        assert "1 of 1 tasks only in the reference: x" in lines

    def test_compared(self) -> None:
        """The one attempt each has no interval; theirs is sqrt(.8 * .2 / 4) / 2 * 1.96."""
        lines = self.lines(self.REFERENCE)
        start = lines.index("Against A published row: means of tasks, ± for 95 %")
        rows = [line.split() for line in lines[start + 1 : start + 5]]
        assert rows[2] == [
            *("2", "attempted", "100.00", "±", "?", "60.00", "±", "19.60"),
            *("+40.00", "±", "?", "±", "508.25"),
        ]
        assert rows[3][:5] == ["3", "reference", "40.00", "±", "13.07"]
        counts = "The reference on the 2 tasks of both: 6 of 10 passed (6 of 9 with a verdict)"
        assert counts in lines
        assert any(line.startswith("Projected on the 2 tasks of both: 100.00 %") for line in lines)
        assert "1 of 3 tasks only in the reference: gpu" in lines
        assert "  same_tasks: 1 of the reference's tasks are not in the run" in lines

    def test_tasks(self) -> None:
        """The reference's attempts beside ours, the difference once all of ours are scored."""
        seen = world("a", "b", "c")
        seen.see(
            job_record("full", plan(1, TaskRef("set", "a")), created=NOW - 600, finished_at=NOW),
            replace(trial("x", "y", job="full", reward=0.0, at=NOW), task=TaskRef("set", "a")),
        )
        lines = drawn(take_snapshot(seen.ledger, NOW, self.REFERENCE))
        heads = [line.split() for line in lines if line.startswith("task  ") and "diff" in line]
        assert [head[-2:] for head in heads] == [["there", "diff"]] * 2
        rows = [line.split() for line in lines if line.split()[:1] in (["a"], ["b"], ["c"])]
        shown_rows = {(row[0], row[1]): row[-2:] for row in rows if "/" in row[1]}
        assert shown_rows == {
            ("a", "1/1"): ["5/5", "-100"],
            ("a", "1/5"): ["5/5", "·"],
            ("b", "1/5"): ["1/5", "·"],
            ("c", "1/5"): ["·", "·"],
        }

    def test_on_a_small_screen(self) -> None:
        """What matters most fits: ends, the comparison, how many checks fail."""
        snapshot = take_snapshot(world("a", "b").ledger, NOW, self.REFERENCE)
        (run,) = snapshot.runs
        parts = terminal_statistics.render(run, snapshot.statistics[run.label], NOW, brief=True)
        texts = [part.plain for part in parts if isinstance(part, Text)]
        assert len(parts) == len(texts) + 1 <= 7
        assert texts[-1] == "2 checks of comparability fail"

    def test_estimated_ends(self) -> None:
        lines = self.lines()
        (point,) = (line for line in lines if line.startswith("End at the observed rate"))
        # 8 left at 2 in 70 s: 280 s after 08:00:00.
        assert point == "End at the observed rate, regrades left out: 08:04:40"
        (simulated,) = (line for line in lines if line.startswith("End by simulation: 08:0"))
        assert "simulated range 08:0" in simulated
        assert "  with 2 attempts that nothing is going to run, run again" in lines

    def test_before_the_first_verdict(self) -> None:
        seen = Watched()
        seen.see(job_record("job", plan(3), created=NOW - 600), trial("a", at=NOW - 60))
        lines = shown(seen.ledger, tasks=False)
        assert lines[4] == "0 of 0 scored attempts passed (no rate yet), 0 of 1 tasks complete"
        assert lines[5] == ""

    def test_a_title_is_no_markup(self) -> None:
        reference = dataclasses.replace(self.REFERENCE, title="[bold]x[/bold] \x1b[31m")
        assert any("Against [bold]x[/bold] ?[31m~" in line for line in self.lines(reference))

    def test_an_end_beyond_the_calendar(self) -> None:
        assert time_of_day(1e300, NOW) == "?"
        assert time_of_day(1e12, NOW) == "?"
