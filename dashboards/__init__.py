"""Grafana dashboards: grafanalib code, and the JSON generated from it in two languages.

Only the generator needs grafanalib; ``harborlight dashboards`` writes what it generated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dashboards import exporter, faults, fleet, run, serving
from dashboards.grafana import Board, as_json
from harborlight.words import Language

GENERATED: Final = Path(__file__).parent / "generated"
"""Where the JSON lies: ``<language>/<dashboard>.json``."""

BOARDS: Final[tuple[Board, ...]] = (
    fleet.BOARD,
    run.BOARD,
    serving.BOARD,
    faults.BOARD,
    exporter.BOARD,
)


def build(language: Language) -> dict[str, dict[str, Any]]:
    """Every dashboard's JSON in one language, by its name."""
    return {board.name: as_json(board, language) for board in BOARDS}


def files() -> dict[Path, str]:
    """What the generated files are to hold, by path."""
    return {
        GENERATED / language / f"{name}.json": json.dumps(
            dashboard, indent=1, ensure_ascii=False, sort_keys=True
        )
        + "\n"
        for language in Language
        for name, dashboard in build(language).items()
    }


def drift(wanted: Mapping[Path, str]) -> list[Path]:
    """Generated files that are missing, differ, or belong to no dashboard any more.

    ``wanted``: what ``files()`` gave.
    """
    found = set(GENERATED.rglob("*.json"))
    return sorted(
        {path for path, text in wanted.items() if path not in found or path.read_text() != text}
        | (found - set(wanted))
    )
