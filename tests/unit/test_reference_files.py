"""Tables of references: both kinds, what is wrong with one, and the ones that ship."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harborlight.reference import (
    Headline,
    InvalidReferenceError,
    Reference,
    ReferenceTask,
    check_headline,
    totals,
)
from harborlight.sources.reference_files import (
    MAX_FILE_BYTES,
    read_table,
    read_table_file,
    shipped,
    shipped_names,
    write_table,
)

NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=40)
TASKS = st.builds(
    lambda name, passed, failed, errors, durations: ReferenceTask(
        name, passed, passed + failed + errors, errors, tuple(durations)
    ),
    NAMES,
    st.integers(0, 9),
    st.integers(1, 9),
    st.integers(0, 9),
    st.lists(st.integers(0, 10**9).map(float), max_size=5),
)


def test_a_line_a_task() -> None:
    table = b"task,passed,attempts,errors,durations_seconds\na,3,5,1,10 20.5 3e1\nb,0,2,,\n\n"
    assert read_table(table) == {
        "a": ReferenceTask("a", 3, 5, 1, (10.0, 20.5, 30.0)),
        "b": ReferenceTask("b", 0, 2),
    }


def test_columns_in_any_order() -> None:
    """With what a spreadsheet adds: a byte order mark, CRLF, spaces and quotes."""
    table = b'\xef\xbb\xbfattempts, task ,passed\r\n5,"org/a, b",2\r\n'
    assert read_table(table) == {"org/a, b": ReferenceTask("org/a, b", 2, 5)}


def test_a_line_a_trial() -> None:
    """By Harbor's policy UnknownApiError gives no reward, AgentTimeoutError and a success do."""
    table = b"""\
task,reward,duration_seconds,exception_type
a,1,10,
a,0.5,20,
a,0,,UnknownApiError
a,1,30,UnknownApiError
a,1,40,AgentTimeoutError
a,,50,SandboxBuildFailedError
b,2,,
"""
    assert read_table(table) == {
        "a": ReferenceTask("a", 2, 6, 3, (10, 20, 30, 40, 50)),
        "b": ReferenceTask("b", 1, 1),
    }


COLUMNS = b"task,passed,attempts,errors,durations_seconds\n"
WHOLE = "expected a whole number from"


@pytest.mark.parametrize(
    ("table", "error"),
    [
        (b"", "line 1: expected a line of columns: task, passed, attempts"),
        (b"a,1,5\n", "line 1: expected a line of columns"),
        (b"task,passed\n", "line 1: expected a line of columns"),
        (b"task,passed,attempts,colour\n", "line 1: unknown column 'colour'"),
        (b"task,passed,attempts,passed\n", "line 1: the column 'passed' is there twice"),
        (b"task,reward,passed\n", "line 1: unknown column 'passed'"),
        (COLUMNS, "expected at least one task, found none"),
        (COLUMNS + b"a,1,5\n", "line 2: expected 5 values, got 3"),
        (COLUMNS + b"a,1,5,0,\na,1,5,0,\n", "line 3: task: expected every task once, got 'a'"),
        (COLUMNS + b",1,5,0,\n", "line 2: task: expected a task's name, got ''"),
        (COLUMNS + b"a\x1b[31m,1,5,0,\n", r"line 2: task: expected a task's name, got 'a\x1b[31m'"),
        (COLUMNS + b"a,6,5,0,\n", f"line 2: passed: {WHOLE} 0 to 5, got '6'"),
        (COLUMNS + b"a,-1,5,0,\n", f"line 2: passed: {WHOLE} 0 to 5, got '-1'"),
        (COLUMNS + b"a,1.0,5,0,\n", f"line 2: passed: {WHOLE} 0 to 5, got '1.0'"),
        (COLUMNS + "a,\u0663,5,0,\n".encode(), f"line 2: passed: {WHOLE} 0 to 5, got '\u0663'"),
        (COLUMNS + b"a,0,0,0,\n", f"line 2: attempts: {WHOLE} 1 to 1000000, got '0'"),
        (COLUMNS + b"a,3,5,3,\n", f"line 2: errors: {WHOLE} 0 to 2, got '3'"),
        (COLUMNS + b"a,3,5,0,1 -2\n", "line 2: durations_seconds: expected numbers of seconds"),
        (COLUMNS + b"a,3,5,0,nan\n", "line 2: durations_seconds: expected numbers of seconds"),
        (b"task,reward\na,inf\n", "line 2: reward: expected a number, got 'inf'"),
        (b"task,reward\na,yes\n", "line 2: reward: expected a number, got 'yes'"),
        (
            b"task,reward,duration_seconds\na,1,x\n",
            "line 2: duration_seconds: expected a number of seconds, got 'x'",
        ),
        (b"task,reward\n\xff,1\n", "not UTF-8 text"),
        (b'task,reward\n"a,1\n', "line 2: not CSV: unexpected end of data"),
        # Line breaks within quotes, also in the line of columns, and a line that is blank.
        (b'task,"reward\n"\n\na,"1\n\n"\nb,"x\n"\n', "line 7: reward: expected a number, got 'x'"),
        (b" " * (MAX_FILE_BYTES + 1), "larger than 16 MiB"),
    ],
)
def test_wrong(table: bytes, error: str) -> None:
    with pytest.raises(InvalidReferenceError) as raised:
        read_table(table)
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize("number", ["1_0", "\uff11", "0x1", "1e999", "infinity", "1,5", "1 0", "e"])
def test_numbers_that_are_none(number: str) -> None:
    with pytest.raises(InvalidReferenceError, match=r"^line 2: reward: expected a number, got"):
        read_table(f'task,reward\na,"{number}"\n'.encode())
    with pytest.raises(InvalidReferenceError, match=r"^line 2: duration_seconds: expected a num"):
        read_table(f'task,reward,duration_seconds\na,1,"{number}"\n'.encode())


@pytest.mark.parametrize("number", ["1", "1.0", "+1", "1e0", "10E-1", "1.", ".1e1"])
def test_numbers_in_any_usual_spelling(number: str) -> None:
    table = f"task,reward,duration_seconds\na,{number},{number}\n".encode()
    assert read_table(table) == {"a": ReferenceTask("a", 1, 1, durations=(1.0,))}


def test_files(tmp_path: Path) -> None:
    """What is no regular file is not waited for."""
    table, pipe = tmp_path / "t.csv", tmp_path / "p.csv"
    table.write_bytes(b"task,passed,attempts\na,1,2\n")
    assert read_table_file(table) == {"a": ReferenceTask("a", 1, 2)}
    os.mkfifo(pipe)
    for path, error in (
        (pipe, "not a regular file"),
        (tmp_path, "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path / "missing", "there is no such file"),
    ):
        with pytest.raises(InvalidReferenceError, match=error):
            read_table_file(path)


def test_a_long_value_is_shortened() -> None:
    with pytest.raises(InvalidReferenceError) as raised:
        read_table(b"task,reward\na," + b"x" * 1000)
    assert str(raised.value) == f"line 2: reward: expected a number, got '{'x' * 60}...'"


@given(st.lists(TASKS, min_size=1, max_size=8, unique_by=lambda task: task.name))
def test_written_and_read_again(tasks: list[ReferenceTask]) -> None:
    table = write_table(tasks)
    assert read_table(table.encode()) == {task.name: task for task in tasks}


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    """A table or an error, nothing else."""
    for table in (data, COLUMNS + data, b"task,reward\n" + data):
        said, tasks = "", {}
        try:
            tasks = read_table(table)
        except InvalidReferenceError as error:
            said = str(error)
        assert bool(said) != bool(tasks)
        assert said.isprintable()
        assert all(0 <= t.passed <= t.attempts - t.errors for t in tasks.values())


def test_shipped() -> None:
    """Counts as published: 138 of 330, by tasks with 0 to 5 passes."""
    assert shipped_names() == ("terminal-bench-4.0-glm-5.3",)
    reference = shipped("terminal-bench-4.0-glm-5.3")
    passed = [task.passed for task in reference.tasks.values()]
    assert [passed.count(k) for k in range(6)] == [28, 3, 7, 6, 7, 15]
    assert (totals(reference.tasks.values()), len(reference.tasks)) == ((330, 138, 3), 66)
    assert {task.attempts for task in reference.tasks.values()} == {5}
    assert {len(task.durations) for task in reference.tasks.values()} == {5}
    assert all(link.startswith("https://") for link in reference.links.values())


def test_not_shipped() -> None:
    with pytest.raises(InvalidReferenceError, match="ships with Harborlight: terminal-bench-4"):
        shipped("../cli")


def reference(headline: Headline, *passed: int, of: int = 5) -> Reference:
    tasks = {str(n): ReferenceTask(str(n), k, of) for n, k in enumerate(passed)}
    return Reference("r", "R", tasks, headline=headline)


FROM_TABLE = "from the table"


@pytest.mark.parametrize(
    ("headline", "error"),
    [
        (Headline(), ""),
        (Headline(0.45, 0.155, 9, 20), ""),  # [5, 3, 0, 1] of 5: .45 with .15495
        (Headline(0.4501), ""),
        (Headline(0.4502), "ratio 0.4502 published, 0.450000 from the table"),
        (Headline(None, 0.1), "half_width 0.1 published, 0.154952 from the table"),
        (Headline(None, None, 8, 20), "passed 8 published, 9 from the table"),
        (
            Headline(0.5, None, 9, 21),
            f"ratio 0.5 published, 0.450000 {FROM_TABLE}; attempts 21 published, 20 {FROM_TABLE}",
        ),
    ],
)
def test_headline(headline: Headline, error: str) -> None:
    given_one = reference(headline, 5, 3, 0, 1)
    if not error:
        check_headline(given_one)
        return
    with pytest.raises(InvalidReferenceError) as raised:
        check_headline(given_one)
    assert str(raised.value) == f"the headline is not that of the table: {error}"


def test_headline_of_single_attempts() -> None:
    with pytest.raises(InvalidReferenceError, match=r"half_width 0\.1 published, none from"):
        check_headline(reference(Headline(None, 0.1), 1, 0, of=1))
    with pytest.raises(InvalidReferenceError, match="at least one task"):
        check_headline(reference(Headline()))
