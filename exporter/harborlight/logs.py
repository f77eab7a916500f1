"""Logging to standard error: one record a line, as logfmt or JSON.

File names, messages of other libraries and everything else that reaches a log line is escaped,
so that nobody can forge a line or drive a terminal by the name of a file.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, TextIO, override

LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}
FORMATS: Final = ("logfmt", "json")

MAX_VALUE: Final = 8192
"""Characters of one value; a longer one ends in an ellipsis."""

_OWN_FIELDS: Final = ("ts", "level", "msg")
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_BARE: Final = re.compile(r"[A-Za-z0-9_./:@+,%()\[\]*-]+")
_NOT_IN_KEYS: Final = re.compile(r"[^A-Za-z0-9_.]")
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}

type Value = str | int | float | bool | None


class LogfmtFormatter(logging.Formatter):
    """``ts=2026-01-02T03:04:05.678Z level=info msg="two words" key=value``."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_logfmt(value)}" for key, value in _fields(record).items())


class JsonFormatter(logging.Formatter):
    """One JSON object a line, in ASCII; the keys are those of logfmt."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_fields(record), allow_nan=False)


def configure_logging(
    level: str = "info", log_format: str = "logfmt", stream: TextIO | None = None
) -> None:
    """Send all logging to ``stream`` (default: standard error), replacing what was set up before.

    ``level`` is one of LEVELS, ``log_format`` one of FORMATS; anything else is a ValueError.
    Other libraries are heard from warnings on, or in full at ``debug``.
    """
    if level not in LEVELS:
        raise ValueError(f"expected a log level of {', '.join(LEVELS)}, got {level!r}")
    if log_format not in FORMATS:
        raise ValueError(f"expected a log format of {', '.join(FORMATS)}, got {log_format!r}")
    number = LEVELS[level]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else LogfmtFormatter())
    others = number if number <= logging.DEBUG else max(number, logging.WARNING)
    logging.basicConfig(level=others, handlers=[handler], force=True)
    logging.getLogger("harborlight").setLevel(number)
    logging.captureWarnings(True)


class OnceLogger:
    """Logs a message about a subject once, and again only when what it says has changed.

    A refresh every few seconds would otherwise repeat a broken file's warning for days. What is
    remembered is bounded by what is the matter now: see ``forget_others``. Safe to share between
    threads.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._lock = threading.Lock()
        self._said: dict[tuple[str, str], tuple[int, dict[str, object]]] = {}
        self._current: dict[str, frozenset[tuple[str, str]]] = {}

    def log(self, level: int, event: str, subject: str, **fields: object) -> bool:
        """Log ``event`` about ``subject`` unless that was its last word; whether it was logged."""
        saying = (level, fields)
        with self._lock:
            if self._said.get((event, subject)) == saying:
                return False
            self._said[event, subject] = saying
        self._logger.log(level, event, extra={"subject": subject, **fields})
        return True

    def info(self, event: str, subject: str, **fields: object) -> bool:
        """``log`` at level info."""
        return self.log(logging.INFO, event, subject, **fields)

    def warning(self, event: str, subject: str, **fields: object) -> bool:
        """``log`` at level warn."""
        return self.log(logging.WARNING, event, subject, **fields)

    def error(self, event: str, subject: str, **fields: object) -> bool:
        """``log`` at level error."""
        return self.log(logging.ERROR, event, subject, **fields)

    def forget_others(
        self, scope: str, current: Iterable[tuple[str, str]]
    ) -> frozenset[tuple[str, str]]:
        """Keep, of what ``scope`` had the matter, only ``current``: (event, subject) pairs.

        What went away, which is returned, is logged again if it comes back. Other scopes are left
        alone.
        """
        now = frozenset(current)
        with self._lock:
            gone = self._current.get(scope, frozenset()) - now
            self._current[scope] = now
            still = frozenset[tuple[str, str]]().union(*self._current.values())
            for key in gone - still:
                self._said.pop(key, None)
        return gone - still


def _fields(record: logging.LogRecord) -> dict[str, Value]:
    moment = datetime.fromtimestamp(record.created, UTC)
    fields: dict[str, Value] = {
        "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": _level_name(record.levelno),
        "msg": _bounded(_message(record)),
    }
    for name, value in vars(record).items():
        if name not in _STANDARD:
            key = _NOT_IN_KEYS.sub("_", name) or "_"
            fields[f"{key}_" if key in _OWN_FIELDS else key] = _plain(value)
    if record.exc_info and record.exc_info[0] is not None:
        kind, error, _ = record.exc_info
        fields["error_type"] = kind.__name__
        fields["error"] = _bounded(str(error))
        # The end of a traceback is the part that tells.
        fields["traceback"] = logging.Formatter().formatException(record.exc_info)[-MAX_VALUE:]
    return fields


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        # Arguments that do not fit the message: what there is beats nothing.
        return f"{record.msg} {record.args}"


def _level_name(number: int) -> str:
    name = "debug"
    for candidate, at_least in LEVELS.items():
        if number >= at_least:
            name = candidate
    return name


def _plain(value: object) -> Value:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return _bounded(str(value))


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"


def _logfmt(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if _BARE.fullmatch(text):
        return text
    return f'"{"".join(_escaped(c) for c in text)}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    # Not printable are also line separators, marks that turn the reading direction, and halves
    # of surrogate pairs (bytes of a file name that are not UTF-8).
    if character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if character <= "\uffff" else f"\\U{ord(character):08x}"
