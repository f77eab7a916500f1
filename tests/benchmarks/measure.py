"""What the benchmarks share: fresh processes, and a report of ratios with the aims beside them."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from support.exporter import environment

TESTS = Path(__file__).resolve().parent.parent
TASKS, ATTEMPTS = 4000, 5
JOB = "big"

type Numbers = dict[str, float]


def worker_command(work: str, *arguments: str | Path) -> list[str]:
    """How to start one function of ``benchmarks.work`` in a process of its own."""
    return [sys.executable, "-m", "benchmarks.work", work, *map(str, arguments)]


def worker_environment() -> dict[str, str]:
    """An environment in which the worker finds this package and Harborlight."""
    env = environment()
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS), env.get("PYTHONPATH")]))
    return env


def in_fresh_process(work: str, *arguments: str | Path) -> Numbers:
    """What that function measured, none of what an earlier one left in memory about it."""
    done = subprocess.run(
        worker_command(work, *arguments),
        env=worker_environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{work} exited {done.returncode}:\n{done.stderr}"
    return {name: float(value) for name, value in json.loads(done.stdout).items()}


def best_of(times: int, measure: Callable[[], Numbers]) -> Numbers:
    """The quickest of several: what the machine does when nothing disturbs it."""
    return min((measure() for _ in range(times)), key=lambda numbers: numbers["seconds"])


def median(values: list[float]) -> float:
    return statistics.median(values)


@dataclass
class Report:
    """Prints each result as it comes in, and keeps all for a file."""

    results: list[dict[str, object]] = field(default_factory=list)

    def add(self, what: str, value: float, unit: str = "", *, aim: float | None = None) -> None:
        """One line. Nothing is asserted: another machine has other numbers."""
        self.results.append({"name": what, "value": value, "unit": unit, "aim": aim})
        wanted = "" if aim is None else f"   (aim: at most {aim:g}{unit})"
        print(f"  {what:<58} {value:9.3f}{unit}{wanted}", flush=True)  # noqa: T201

    def title(self, text: str) -> None:
        print(f"\n{text}", flush=True)  # noqa: T201

    def write(self, path: Path) -> None:
        """Everything, with what is needed to compare it with another run."""
        content = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
            "trials": TASKS * ATTEMPTS,
            "results": self.results,
        }
        path.write_text(json.dumps(content, indent=2) + "\n")
