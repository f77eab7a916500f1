"""Gates: files that a scripted agent waits for, so that a test decides when it goes on."""

from __future__ import annotations

from pathlib import Path


def gate_path(state: Path, gate: str) -> Path:
    """The file whose existence means that the gate is open."""
    return state / f"{gate}.gate"


def open_gate(state: Path, gate: str) -> None:
    """Let every agent pass that waits at the gate, now or later."""
    gate_path(state, gate).touch()
