"""What draws: Node, npm and Chromium, and the drawing tool built from this folder."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dashboards.preview.drawings import PREVIEW
from dashboards.preview.processes import PreviewError, Program, eventually, running

_PACKAGES: Final = {
    "node": "nodejs",
    "npm": "npm",
    "chromium": "chromium",
    "prometheus": "prometheus",
}
_OLDEST_NODE = 18
_STEP_SECONDS = 300.0
_DRAW_SECONDS = 30.0


def missing() -> str | None:
    """What is not installed, as a sentence."""
    absent = [name for name in _PACKAGES if shutil.which(name) is None]
    if absent:
        packages = " ".join(_PACKAGES[name] for name in absent)
        verb = "is" if len(absent) == 1 else "are"
        return f"{', '.join(absent)} {verb} not installed (Debian: apt-get install {packages})."
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    match = re.match(r"v(\d+)", version.stdout)
    if match is None or int(match[1]) < _OLDEST_NODE:
        return f"node is {version.stdout.strip()}, and {_OLDEST_NODE} or newer is needed."
    return None


def build(scratch: Path) -> None:
    """Install the packages and build the page, where something changed since the last time."""
    lock = [PREVIEW / "package.json", PREVIEW / "package-lock.json"]
    source = [PREVIEW / "build.mjs", *sorted((PREVIEW / "src").rglob("*.js*"))]
    installed = PREVIEW / "node_modules" / ".preview-stamp"
    built = PREVIEW / "dist" / ".preview-stamp"
    if _read(installed) != _digest(lock):
        # Nothing that the packages would run on installation is needed.
        _run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], scratch)
        installed.write_text(_digest(lock), encoding="utf-8")
    if _read(built) != _digest([*lock, *source]):
        _run("node", ["build.mjs"], scratch)
        built.write_text(_digest([*lock, *source]), encoding="utf-8")


def draw(jobs: Sequence[Mapping[str, Any]], scratch: Path) -> list[dict[str, Any]]:
    """Draw, and return the reports in the order of the jobs."""
    listed, answer = scratch / "jobs.json", scratch / "reports.json"
    listed.write_text(json.dumps(jobs), encoding="utf-8")
    arguments = ["render.mjs", "--jobs", str(listed), "--report", str(answer)]
    seconds = _STEP_SECONDS + _DRAW_SECONDS * len(jobs)
    _run("node", arguments, scratch, seconds, good=(0, 1))
    reports: list[dict[str, Any]] = json.loads(answer.read_text(encoding="utf-8"))
    return reports


def _run(
    name: str,
    arguments: Sequence[str],
    scratch: Path,
    seconds: float = _STEP_SECONDS,
    good: Sequence[int] = (0,),
) -> None:
    log = scratch / f"{name}.log"
    # Chromium's profile goes where everything is deleted in the end.
    program = Program(name, [name, *arguments], log, {"TMPDIR": str(scratch)}, PREVIEW)
    with running(program):
        eventually(f"{name} {arguments[0]}", lambda: program.code() is not None, seconds)
    if program.code() not in good:
        raise PreviewError(f"{name} {arguments[0]} failed:\n{program.tail()}")


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.relative_to(PREVIEW).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
