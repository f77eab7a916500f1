"""Log lines: one a record, escaped, and not repeated."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Iterator

import pytest

from harborlight.logs import (
    MAX_VALUE,
    JsonFormatter,
    LogfmtFormatter,
    OnceLogger,
    configure_logging,
)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Leave logging as it was found."""
    root, own = logging.getLogger(), logging.getLogger("harborlight")
    before = (root.level, root.handlers[:], own.level)
    yield
    logging.captureWarnings(False)
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    own.setLevel(before[2])


def record(msg: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "harborlight.x", "levelno": logging.INFO, "msg": msg, "args": args, **extra}
    )
    made.created = 1767323045.678
    return made


def logfmt(msg: str, **extra: object) -> str:
    """The line without its time and level."""
    line = LogfmtFormatter().format(record(msg, **extra))
    return line.removeprefix("ts=2026-01-02T03:04:05.678Z level=info ")


def test_logfmt_line() -> None:
    """Time in UTC, level, message, then the extras in their order."""
    line = LogfmtFormatter().format(record("looked at %d jobs", 3, jobs=3, place="/jobs/a b"))
    expected = (
        'ts=2026-01-02T03:04:05.678Z level=info msg="looked at 3 jobs" jobs=3 place="/jobs/a b"'
    )
    assert line == expected


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("127.0.0.1:10315", "127.0.0.1:10315"),
        ("[::1]:10315", "[::1]:10315"),
        ("", '""'),
        ("a=b", '"a=b"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("one\ntwo\r\n", '"one\\ntwo\\r\\n"'),
        ("\x1b[31mred", '"\\u001b[31mred"'),
        ("line\u2028separator", '"line\\u2028separator"'),
        ("right\u202eleft", '"right\\u202eleft"'),
        ("not utf-8: \udcff", '"not utf-8: \\udcff"'),
        ("tag \U000e0041", '"tag \\U000e0041"'),
        ("größer", '"größer"'),
        (None, "null"),
        (True, "true"),
        (0.25, "0.25"),
        (float("nan"), "nan"),
        (("a", 1), "\"('a', 1)\""),
    ],
)
def test_logfmt_value(value: object, shown: str) -> None:
    """Values are bare where that is unambiguous, quoted and escaped otherwise."""
    assert logfmt("x", value=value) == f"msg=x value={shown}"


def test_message_cannot_forge_a_line() -> None:
    """A file called like a log line stays inside its value."""
    name = 'x\nts=2026-01-02T03:04:05Z level=error msg="all is lost"'
    for formatter in (LogfmtFormatter(), JsonFormatter()):
        line = formatter.format(record("unreadable: %s", name, subject=name))
        assert line.isprintable()
    assert json.loads(JsonFormatter().format(record(name)))["msg"] == name
    assert logfmt(name).startswith('msg="x\\nts=')


def test_keys_are_plain_and_never_take_the_place_of_ours() -> None:
    """Extras called ts, level or msg are told apart; odd characters in a key are replaced."""
    line = logfmt("real", ts="forged", **{"level": "forged", "a b=c": 1})
    assert line == "msg=real ts_=forged level_=forged a_b_c=1"


def test_json_line() -> None:
    """Types stay; what JSON cannot say becomes text."""
    line = JsonFormatter().format(record("x", n=1, ratio=float("inf"), ok=False, nothing=None))
    assert json.loads(line) == {
        "ts": "2026-01-02T03:04:05.678Z",
        "level": "info",
        "msg": "x",
        "n": 1,
        "ratio": "inf",
        "ok": False,
        "nothing": None,
    }


def test_json_is_ascii() -> None:
    """Nothing that some reader takes for the end of a line is left in it."""
    line = JsonFormatter().format(record("a\u2028b\u0085c"))
    assert line.isascii()
    assert json.loads(line)["msg"] == "a\u2028b\u0085c"


@pytest.mark.parametrize("formatter", [LogfmtFormatter(), JsonFormatter()])
def test_exception_is_one_line(formatter: logging.Formatter) -> None:
    """A traceback is a value of its record."""
    with pytest.raises(ValueError, match="two") as caught:
        int("two\nlines")
    error = caught.value
    made = record("failed", exc_info=(type(error), error, error.__traceback__))
    line = formatter.format(made)
    assert line.isprintable()
    assert "ValueError" in line
    assert "two\\\\nlines" in line
    assert "Traceback" in line


def test_long_values_are_cut() -> None:
    """One value cannot fill the log."""
    line = logfmt("x", value="a" * (MAX_VALUE + 1))
    assert line == f'msg=x value="{"a" * (MAX_VALUE - 1)}…"'


def test_arguments_that_do_not_fit() -> None:
    """A wrong call still gives its line."""
    assert LogfmtFormatter().format(record("%d jobs", "no")).endswith("msg=\"%d jobs ('no',)\"")


@pytest.mark.parametrize(
    ("number", "name"),
    [(5, "debug"), (10, "debug"), (20, "info"), (25, "info"), (30, "warn"), (50, "error")],
)
def test_level_names(number: int, name: str) -> None:
    """Every number has one of the four names."""
    made = record("x")
    made.levelno = number
    assert f"level={name} " in LogfmtFormatter().format(made)


def test_configure_sets_levels() -> None:
    """Ours from the level given on, others from warnings on."""
    stream = io.StringIO()
    configure_logging("info", "logfmt", stream)
    logging.getLogger("harborlight.x").debug("own detail")
    logging.getLogger("harborlight.x").info("own news")
    logging.getLogger("other").info("other news")
    logging.getLogger("other").warning("other warning")
    assert re.findall(r'msg="([^"]+)"', stream.getvalue()) == ["own news", "other warning"]


def test_configure_replaces_what_was() -> None:
    """Configured twice, a record still gives one line, in the later format."""
    first, second = io.StringIO(), io.StringIO()
    configure_logging("info", "logfmt", first)
    configure_logging("debug", "json", second)
    logging.getLogger("other").debug("detail")
    assert first.getvalue() == ""
    assert json.loads(second.getvalue())["msg"] == "detail"


def test_configure_catches_warnings() -> None:
    """Python's own warnings are log lines, too."""
    stream = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        configure_logging("warn", "logfmt", stream)
        warnings.warn("old", UserWarning, stacklevel=1)
        logging.captureWarnings(False)
    assert stream.getvalue().count("\n") == 1
    assert "UserWarning: old" in stream.getvalue()


def test_configure_refuses_others() -> None:
    """Levels and formats are closed lists."""
    with pytest.raises(ValueError, match="debug, info, warn, error, got 'loud'"):
        configure_logging("loud")
    with pytest.raises(ValueError, match="logfmt, json, got 'xml'"):
        configure_logging("info", "xml")


@pytest.fixture
def once(caplog: pytest.LogCaptureFixture) -> OnceLogger:
    caplog.set_level(logging.INFO, "once")
    return OnceLogger(logging.getLogger("once"))


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    return [
        (r.levelname, r.getMessage(), f"{vars(r)['subject']}: {vars(r)['reason']}")
        for r in caplog.records
    ]


def test_once_until_it_changes(once: OnceLogger, caplog: pytest.LogCaptureFixture) -> None:
    """The same words about the same subject are said once; other words are news."""
    assert once.warning("unreadable", "a", reason="empty")
    assert not once.warning("unreadable", "a", reason="empty")
    assert once.warning("unreadable", "b", reason="empty")
    assert once.warning("unreadable", "a", reason="not JSON")
    assert once.error("unreadable", "a", reason="not JSON")
    assert once.info("gone", "a", reason="not JSON")
    assert said(caplog) == [
        ("WARNING", "unreadable", "a: empty"),
        ("WARNING", "unreadable", "b: empty"),
        ("WARNING", "unreadable", "a: not JSON"),
        ("ERROR", "unreadable", "a: not JSON"),
        ("INFO", "gone", "a: not JSON"),
    ]


def test_once_again_when_it_comes_back(once: OnceLogger, caplog: pytest.LogCaptureFixture) -> None:
    """What was put right and breaks again is said again; what stayed is not."""
    for name in ("a", "b"):
        once.warning("unreadable", name, reason="empty")
    once.forget_others("jobs", {("unreadable", "a"), ("unreadable", "b")})
    once.forget_others("jobs", {("unreadable", "a")})
    assert not once.warning("unreadable", "a", reason="empty")
    assert once.warning("unreadable", "b", reason="empty")
    assert len(caplog.records) == 3


def test_scopes_do_not_forget_for_each_other(once: OnceLogger) -> None:
    """A subject that another scope still has the matter stays said."""
    once.warning("unreachable", "a", reason="timeout")
    once.forget_others("jobs", {("unreachable", "a")})
    once.forget_others("server", {("unreachable", "a")})
    once.forget_others("jobs", set())
    assert not once.warning("unreachable", "a", reason="timeout")
    once.forget_others("server", set())
    assert once.warning("unreachable", "a", reason="timeout")
