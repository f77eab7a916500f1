"""Small Harbor tasks: write the word ``done`` to /app/answer.txt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

_ANSWERED = '[ "$(cat /app/answer.txt 2>/dev/null)" = "done" ]'

ZERO_OR_ONE = f"if {_ANSWERED}; then r=1; else r=0; fi; echo $r > /logs/verifier/reward.txt"
"""The usual verifier: reward 1 for the right answer, else 0."""

PARTIAL = f"if {_ANSWERED}; then r=1; else r=0.25; fi; echo $r > /logs/verifier/reward.txt"
"""A wrong answer still earns a quarter."""

SEVERAL_KEYS = (
    f"if {_ANSWERED}; then r=1; else r=0; fi; "
    """echo "{\\"reward\\": $r, \\"style\\": 0.5}" > /logs/verifier/reward.json"""
)
"""A reward file with a second key."""

NO_REWARD_FILE = "echo forgotten; exit 1"
"""The verifier ends without a verdict."""


def until_mended(broken: str) -> str:
    """A verifier that does what is ``broken`` as long as its variable ``VERDICT`` is empty."""
    return f'if [ -z "$VERDICT" ]; then {broken}; exit; fi; {ZERO_OR_ONE}'


def unless_told(variable: str) -> str:
    """A verifier that gives no verdict while an environment variable is not set."""
    return f'if [ -z "${variable}" ]; then exit 1; fi; {ZERO_OR_ONE}'


def write_task(
    folder: Path,
    name: str,
    *,
    verifier: str = ZERO_OR_ONE,
    separate_verifier: bool = False,
    agent_timeout: float = 60,
    verifier_timeout: float = 30,
    build_timeout: float = 30,
    network: str = "public",
    environment: Mapping[str, str] | None = None,
) -> Path:
    """Write one task into a dataset folder.

    With a separate verifier a job over the task can be regraded. ``environment``
    are extra files of its environment directory, for instance ``START_FAIL``. A ``network`` mode
    that the sandbox lacks (``no-network``) makes the construction of its trials fail.
    """
    task = folder / name
    head = 'artifacts = ["/app/answer.txt"]\n' if separate_verifier else ""
    mode = 'environment_mode = "separate"\n[verifier.environment]\n' if separate_verifier else ""
    settings = (
        f'{head}schema_version = "1.0"\n'
        f"[verifier]\ntimeout_sec = {verifier_timeout}\n{mode}"
        f"[agent]\ntimeout_sec = {agent_timeout}\n"
        f"[environment]\nbuild_timeout_sec = {build_timeout}\n"
        f'network_mode = "{network}"\n'
    )
    _write(task / "task.toml", settings)
    _write(task / "instruction.md", "Write the word done to /app/answer.txt\n")
    _write(task / "environment" / "Dockerfile", "FROM scratch\n")
    for file, content in (environment or {}).items():
        _write(task / "environment" / file, content)
    _write_script(task / "tests" / "test.sh", verifier)
    if separate_verifier:
        _write(task / "tests" / "Dockerfile", "FROM scratch\n")
    _write_script(task / "solution" / "solve.sh", "echo done > /app/answer.txt")
    return task


def write_tasks(folder: Path, names: Sequence[str]) -> Path:
    """Write a dataset of plain tasks and return its folder."""
    for name in names:
        write_task(folder, name)
    return folder


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def _write_script(path: Path, body: str) -> None:
    _write(path, f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)
