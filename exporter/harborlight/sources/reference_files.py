"""Tables of references, as CSV: one line a task, or one line a trial."""

from __future__ import annotations

import csv
import io
import math
import re
from _csv import Reader  # what csv.reader makes; the csv module has no name for it
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Final

import yaml
from harbor.models.trial.error_policy import policy_for

from harborlight.reference import (
    Headline,
    InvalidReferenceError,
    Reference,
    ReferenceTask,
    check_headline,
)
from harborlight.sources.safe_read import ReadError, read_stable
from harborlight.words import Words

SHIPPED: Final = resources.files("harborlight") / "references"
"""The folder of the references that come with Harborlight."""

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
MAX_ATTEMPTS: Final = 1_000_000
"""Attempts of one task, as many as a configured run may have."""

_TASK_COLUMNS: Final = ("task", "passed", "attempts", "errors", "durations_seconds")
_TRIAL_COLUMNS: Final = ("task", "reward", "duration_seconds", "exception_type")
_EXPECTED: Final = (
    "expected a line of columns: task, passed, attempts and, if known, errors and "
    "durations_seconds; or task, reward and, if known, duration_seconds and exception_type"
)
_SHOWN_LENGTH: Final = 60
_NUMBER: Final = re.compile(r"[-+.0-9eE]+")
"""What a number is written with; ``float`` alone takes ``1_0`` and other scripts' digits, too."""
_NAME: Final = re.compile(r"\S(.{0,298}\S)?")


def read_table(data: bytes) -> dict[str, ReferenceTask]:
    """A table's tasks by name; an InvalidReferenceError names the line and what was expected.

    A line a task: passed and all attempts, errors among these, durations in seconds with spaces
    between. A line a trial: a reward from 1 on is a success; an exception that Harbor's error
    policy grants no reward makes it an error, and so does a missing reward.
    """
    if len(data) > MAX_FILE_BYTES:
        raise InvalidReferenceError(f"larger than {MAX_FILE_BYTES // 1024 // 1024} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidReferenceError("not UTF-8 text") from None
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = [column.strip() for column in next(lines, [])]
        if {"task", "passed", "attempts"} <= set(columns):
            read, known = _tasks, frozenset(_TASK_COLUMNS)
        elif {"task", "reward"} <= set(columns):
            read, known = _trials, frozenset(_TRIAL_COLUMNS)
        else:
            raise InvalidReferenceError(f"line 1: {_EXPECTED}")
        for column in columns:
            if column not in known:
                raise InvalidReferenceError(f"line 1: unknown column {_shown(column)}, {_EXPECTED}")
            if columns.count(column) > 1:
                raise InvalidReferenceError(f"line 1: the column {_shown(column)} is there twice")
        tasks = read(_Row.all_of(columns, lines))
    except csv.Error as error:
        raise InvalidReferenceError(f"line {max(1, lines.line_num)}: not CSV: {error}") from None
    if not tasks:
        raise InvalidReferenceError("expected at least one task, found none")
    return tasks


def read_table_file(path: Path) -> dict[str, ReferenceTask]:
    """The tasks of the table in a regular file; else an InvalidReferenceError, without the path."""
    try:
        data, _ = read_stable(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        raise InvalidReferenceError("there is no such file") from None
    except ReadError as error:
        raise InvalidReferenceError(error.reason) from None
    return read_table(data)


class _Row:
    """One line's values, with the number in the file of the line where they begin."""

    def __init__(self, number: int, values: Mapping[str, str]) -> None:
        self._number = number
        self._values = values

    @classmethod
    def all_of(cls, columns: list[str], lines: Reader) -> Iterator[_Row]:
        ended = lines.line_num
        for cells in lines:
            # A quoted value can hold line breaks: it begins where the one before it ended.
            number, ended = ended + 1, lines.line_num
            if not cells:
                continue
            if len(cells) != len(columns):
                expected = f"expected {len(columns)} values, got {len(cells)}"
                raise InvalidReferenceError(f"line {number}: {expected}")
            values = (cell.strip() for cell in cells)
            yield cls(number, dict(zip(columns, values, strict=True)))

    def text(self, column: str) -> str:
        return self._values.get(column, "")

    def wrong(self, column: str, expected: str) -> InvalidReferenceError:
        got = _shown(self.text(column))
        return InvalidReferenceError(
            f"line {self._number}: {column}: expected {expected}, got {got}"
        )

    def task(self) -> str:
        name = self.text("task")
        if not _NAME.fullmatch(name) or not name.isprintable():
            raise self.wrong("task", "a task's name")
        return name

    def count(self, column: str, least: int, most: int) -> int:
        value = self.text(column)
        if re.fullmatch(r"[0-9]{1,9}", value, re.ASCII) and least <= int(value) <= most:
            return int(value)
        raise self.wrong(column, f"a whole number from {least} to {most}")

    def number[T](self, column: str, convert: Callable[[str], T], expected: str) -> T:
        try:
            return convert(self.text(column))
        except ValueError:
            raise self.wrong(column, expected) from None


def _tasks(rows: Iterable[_Row]) -> dict[str, ReferenceTask]:
    tasks: dict[str, ReferenceTask] = {}
    for row in rows:
        name = row.task()
        if name in tasks:
            raise row.wrong("task", "every task once")
        attempts = row.count("attempts", 1, MAX_ATTEMPTS)
        passed = row.count("passed", 0, attempts)
        errors = row.count("errors", 0, attempts - passed) if row.text("errors") else 0
        durations = row.number(
            "durations_seconds",
            lambda text: tuple(_seconds(part) for part in text.split()),
            "numbers of seconds with spaces between",
        )
        tasks[name] = ReferenceTask(name, passed, attempts, errors, durations)
    return tasks


def _trials(rows: Iterable[_Row]) -> dict[str, ReferenceTask]:
    rewards: dict[str, list[float | None]] = defaultdict(list)
    durations: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        name = row.task()
        reward: float | None = None
        if row.text("reward"):
            reward = row.number("reward", _finite, "a number")
        exception = row.text("exception_type")
        if exception and not policy_for(exception).has_valid_reward:
            reward = None
        rewards[name].append(reward)
        if row.text("duration_seconds"):
            seconds = row.number("duration_seconds", _seconds, "a number of seconds")
            durations[name].append(seconds)
    return {
        name: ReferenceTask(
            name=name,
            passed=sum(1 for reward in given if reward is not None and reward >= 1),
            attempts=len(given),
            errors=given.count(None),
            durations=tuple(durations[name]),
        )
        for name, given in rewards.items()
    }


def _finite(text: str) -> float:
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _seconds(text: str) -> float:
    value = _finite(text)
    if value < 0:
        raise ValueError(text)
    return value


def _shown(text: str) -> str:
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:_SHOWN_LENGTH])
    return f"'{shown}{'...' if len(text) > _SHOWN_LENGTH else ''}'"


def write_table(tasks: Iterable[ReferenceTask]) -> str:
    """The table of these tasks, a line a task, as ``read_table`` reads it."""
    table = io.StringIO()
    lines = csv.writer(table, lineterminator="\n")
    lines.writerow(_TASK_COLUMNS)
    for task in sorted(tasks, key=lambda task: task.name):
        durations = " ".join(f"{seconds:.10g}" for seconds in task.durations)
        lines.writerow((task.name, task.passed, task.attempts, task.errors, durations))
    return table.getvalue()


def shipped_names() -> tuple[str, ...]:
    """The names of the references that come with Harborlight."""
    names = (file.name.removesuffix(".yml") for file in SHIPPED.iterdir() if ".yml" in file.name)
    return tuple(sorted(names))


def shipped(name: str) -> Reference:
    """A reference that comes with Harborlight; an InvalidReferenceError where there is none."""
    if name not in shipped_names():
        known = ", ".join(shipped_names())
        raise InvalidReferenceError(f"no reference of this name ships with Harborlight: {known}")
    about = yaml.safe_load((SHIPPED / f"{name}.yml").read_text("utf-8"))
    reference = Reference(
        name=name,
        title=about["title"]["en"],
        title_zh=about["title"]["zh"],
        tasks=read_table((SHIPPED / f"{name}.csv").read_bytes()),
        agent=about["agent"],
        model=about["model"],
        headline=Headline(**about["headline"]),
        links={Words(link["en"], link["zh"]): link["url"] for link in about["links"]},
        note=Words(**about["note"]),
    )
    check_headline(reference)
    return reference
