"""SGLang's JSON answers: only what is allowed out of them ever becomes an object.

``/server_info`` has the server's keys in it, three times, beside paths and addresses. The types
here name the fields that are wanted; the decoder passes over all others.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from harborlight.labels import safe_label
from harborlight.sources.failure import Unreadable

_MAX_NUMBER: Final = 2**53
_VERSION: Final = re.compile(r"[0-9]+(\.[0-9A-Za-z]+){1,5}([+-][0-9A-Za-z.-]+)?")
_MAX_VERSION: Final = 60
MAX_ROWS: Final = 4_096
ROLES: Final = ("unified", "prefill", "decode", "dynamic")


class _Disaggregation(msgspec.Struct):
    mode: Any = None


class _Row(msgspec.Struct):
    dp_rank: Any = None
    timestamp: Any = None
    num_running_reqs: Any = None
    num_waiting_reqs: Any = None
    num_used_tokens: Any = None
    max_total_num_tokens: Any = None
    max_running_requests: Any = None
    disaggregation: _Disaggregation | None = None


class _Loads(msgspec.Struct):
    timestamp: Any = None
    version: Any = None
    loads: list[_Row] | None = None


class _InternalState(msgspec.Struct):
    effective_max_running_requests_per_dp: Any = None


class _ServerInfo(msgspec.Struct):
    served_model_name: Any = None
    version: Any = None
    tp_size: Any = None
    dp_size: Any = None
    pp_size: Any = None
    disaggregation_mode: Any = None
    max_total_num_tokens: Any = None
    max_running_requests: Any = None
    internal_states: list[_InternalState] | None = None


_loads = msgspec.json.Decoder(_Loads)
_server_info = msgspec.json.Decoder(_ServerInfo)


@dataclass(frozen=True, slots=True)
class LoadRow:
    """One data-parallel rank; None is not known.

    ``timestamp``: when its scheduler said so (its own clock), ``age`` seconds before the answer.
    """

    dp_rank: str
    role: str = ROLES[0]
    running: float | None = None
    queued: float | None = None
    used: float | None = None
    capacity: float | None = None
    max_running: float | None = None
    timestamp: float | None = None
    age: float | None = None


@dataclass(frozen=True, slots=True)
class LoadsReading:
    """What ``/v1/loads`` said, a row a data-parallel rank."""

    rows: tuple[LoadRow, ...] = ()
    version: str = ""


@dataclass(frozen=True, slots=True)
class InfoReading:
    """What ``/server_info`` said, as far as it may be known; "" and None is not said.

    ``capacity`` and ``max_running`` are of one data-parallel rank.
    """

    version: str = ""
    served_model: str = ""
    role: str = ""
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    capacity: float | None = None
    max_running: float | None = None


def read_loads(body: bytes) -> LoadsReading:
    """``/v1/loads``, of 0.5.8 on. Raises Unreadable."""
    answer = _decoded(_loads, body)
    if answer.loads is None or len(answer.loads) > MAX_ROWS:
        raise Unreadable("not an answer of /v1/loads")
    at = _moment(answer.timestamp)
    rows = tuple(_row(row, position, at) for position, row in enumerate(answer.loads))
    if len({row.dp_rank for row in rows}) != len(rows):
        raise Unreadable("not an answer of /v1/loads")
    return LoadsReading(rows, _version(answer.version))


def read_server_info(body: bytes) -> InfoReading:
    """``/server_info``, or ``/get_server_info`` of 0.4.1 on. Raises Unreadable."""
    answer = _decoded(_server_info, body)
    served = answer.served_model_name
    effective = [
        _number(state.effective_max_running_requests_per_dp)
        for state in answer.internal_states or ()
    ]
    return InfoReading(
        version=_version(answer.version),
        served_model=model_label([served]) if isinstance(served, str) and served else "",
        role=_role(answer.disaggregation_mode) if answer.disaggregation_mode else "",
        tp=_size(answer.tp_size),
        pp=_size(answer.pp_size),
        dp=_size(answer.dp_size),
        capacity=_number(answer.max_total_num_tokens),
        max_running=effective[0] if effective else None,
    )


def model_label(names: Sequence[str]) -> str:
    """Served names as one label: a path shows its last part only."""
    return safe_label(",".join(safe_label(name) for name in names))


def _decoded[T](decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Its words quote what was in the answer.
        raise Unreadable("not the JSON that was expected") from None


def _row(row: _Row, position: int, at: float | None) -> LoadRow:
    rank = _number(row.dp_rank)
    timestamp = _number(row.timestamp)
    mode = row.disaggregation.mode if row.disaggregation is not None else None
    return LoadRow(
        dp_rank=str(position if rank is None else int(rank)),
        role=_role(mode),
        running=_number(row.num_running_reqs),
        queued=_number(row.num_waiting_reqs),
        used=_number(row.num_used_tokens),
        capacity=_number(row.max_total_num_tokens),
        max_running=_number(row.max_running_requests),
        timestamp=timestamp,
        age=None if at is None or timestamp is None else at - timestamp,
    )


def _role(mode: object) -> str:
    return mode if isinstance(mode, str) and mode in ROLES else ROLES[0]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _MAX_NUMBER else None


def _size(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number >= 1 else None


def _version(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_VERSION:
        return ""
    return value if _VERSION.fullmatch(value) else ""


def _moment(value: object) -> float | None:
    if not isinstance(value, str):
        return _number(value)
    try:
        moment = datetime.datetime.fromisoformat(value)
        return moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp()
    except (ValueError, OverflowError):
        return None
