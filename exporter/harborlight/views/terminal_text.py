"""What the parts of the terminal's picture write alike."""

from __future__ import annotations

import datetime

from rich import box
from rich.table import Table
from rich.text import Text


def open_table(title: str | None = None) -> Table:
    """A table without borders."""
    return Table(
        title=Text(title, style="italic") if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


def counted(count: int, one: str, many: str = "") -> str:
    """``1 fault``, ``2 faults``; ``many`` where it is not ``one`` with an s."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def time_of_day(seconds: float | None, now: float) -> str:
    """Local time: of today to the second, of another day to the minute with its date."""
    if seconds is None:
        return "?"
    try:
        moment, today = (datetime.datetime.fromtimestamp(t).astimezone() for t in (seconds, now))
    except (OverflowError, ValueError, OSError):  # no year that a calendar has
        return "?"
    if moment.date() == today.date():
        return f"{moment:%H:%M:%S}"
    return f"{moment:%m-%d %H:%M}" if moment.year == today.year else f"{moment:%Y-%m-%d %H:%M}"
