"""Waiting for something to become true, always with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually[T](
    attempt: Callable[[], T],
    timeout: float = 10.0,
    *,
    interval: float = 0.02,
    what: str = "",
) -> T:
    """Call ``attempt`` until it returns something true, and return that.

    An assertion, a lookup or an input/output error counts as "not yet"; the last
    one is the cause of the ``TimeoutError`` raised at the deadline.
    """
    deadline = time.monotonic() + timeout
    last: Exception | None = None
    result: T | None = None
    while True:
        try:
            result = attempt()
        except (AssertionError, LookupError, OSError) as error:
            last = error
        else:
            last = None
            if result:
                return result
        if time.monotonic() >= deadline:
            break
        time.sleep(interval)
    name = what or getattr(attempt, "__name__", "condition")
    seen = f"{type(last).__name__}: {last}" if last else f"it returned {result!r}"
    raise TimeoutError(f"{name} did not hold within {timeout:g} s; {seen}") from last
