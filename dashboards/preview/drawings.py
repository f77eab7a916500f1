"""Which pictures are drawn, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dashboards.preview.moments import Moment
from dashboards.preview.processes import PreviewError
from dashboards.preview.session import Session

PREVIEW: Final = Path(__file__).parent
GENERATED: Final = PREVIEW.parent / "generated"
PICTURES: Final = PREVIEW / "pictures"
SELFCHECK: Final = PREVIEW / "selfcheck.json"
LANGUAGES: Final = ("en", "zh")
THEMES: Final = ("dark", "light")
WIDTH: Final = 1600
OTHER_WIDTHS: Final = (1280, 2560)
WIDE_BOARD: Final = "run"
"""The dashboard that is also drawn at other widths and in kiosk mode."""

DATA_REQUIRED: Final = frozenset({Moment.HALF, Moment.END})

MAY_BE_EMPTY: Final[Mapping[str, Mapping[str, frozenset[Moment]]]] = {
    "exporter": {"Jobs with unreadable files": DATA_REQUIRED},
    "run": {
        "Estimated end": frozenset({Moment.END}),
        "Completed-task matched": frozenset({Moment.HALF}),
    },
}
"""Panels, by their English titles, that may have no data even then, and when."""

PUBLISHED: Final = PREVIEW.parent / "pictures"
"""Pictures that are committed, for the README."""

FAULTS: Final[Mapping[str | None, frozenset[str]]] = {
    None: frozenset({"annotation-error"}),
    "Bad query": frozenset({"promql-error"}),
    "Unknown override": frozenset({"unknown-override-property", "override-matches-nothing"}),
    "Unknown option": frozenset({"unknown-option", "unknown-field-option"}),
    "Bare no data": frozenset({"bare-no-data", "empty-panel"}),
    "Empty with a text": frozenset({"empty-panel"}),
    "Text that is cut off": frozenset({"text-cut-off"}),
    "Columns that are cut off": frozenset({"table-cut-off"}),
    "A title that is far too long for a panel of this width": frozenset({"title-cut-off"}),
}
"""What has to be reported of SELFCHECK, by panel."""

type Report = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Board:
    """A generated dashboard in one language."""

    name: str
    language: str
    path: Path


@dataclass(frozen=True, slots=True)
class Drawing:
    """One picture: what, when and how."""

    board: Board
    moment: Moment
    theme: str
    width: int = WIDTH
    kiosk: bool = False

    @property
    def picture(self) -> Path:
        """Where it goes, below PICTURES."""
        kind = f"{self.board.language}-{self.theme}-{self.width}{'-kiosk' * self.kiosk}"
        return Path(self.moment) / kind / f"{self.board.name}.png"


@dataclass(frozen=True, slots=True)
class Shown:
    """A picture for the README: down to ``bottom`` pixels, or whole."""

    file: str
    board: str
    language: str
    moment: Moment
    theme: str
    bottom: int | None = None


SHOWN: Final = (
    Shown("run.png", "run", "en", Moment.HALF, "dark", 1370),
    Shown("run-zh.png", "run", "zh", Moment.FROZEN, "light", 1370),
    Shown("serving.png", "serving", "en", Moment.FROZEN, "dark", 1210),
    Shown("fleet.png", "fleet", "en", Moment.FROZEN, "light", 760),
    Shown("faults.png", "faults", "en", Moment.END, "dark", 1120),
)


def boards(languages: Iterable[str], only: Iterable[str] = ()) -> list[Board]:
    """The generated dashboards; a PreviewError if there are none, or not those asked for."""
    names = sorted({path.stem for path in GENERATED.glob("*/*.json")})
    unknown = sorted(set(only) - set(names))
    if unknown or not names:
        have = ", ".join(names) or "none"
        raise PreviewError(f"No dashboard {', '.join(unknown)} in {GENERATED} (there: {have}).")
    return [
        Board(name, language, GENERATED / language / f"{name}.json")
        for name in names
        if name in only or not only
        for language in languages
    ]


def plan(
    every: Sequence[Board], moments: Iterable[Moment], themes: Sequence[str]
) -> Iterator[Drawing]:
    """At the end everything, before that each dashboard once, in alternating languages."""
    languages = sorted({board.language for board in every})
    names = sorted({board.name for board in every})
    for moment in moments:
        turn = list(Moment).index(moment)
        for board in every:
            if moment is Moment.END:
                for theme in themes:
                    yield Drawing(board, moment, theme)
                continue
            theme = themes[turn % len(themes)]
            if moment is Moment.HALF and board.name == WIDE_BOARD:
                for width in OTHER_WIDTHS:
                    yield Drawing(board, moment, theme, width)
                yield Drawing(board, moment, theme, kiosk=True)
            language = languages[(turn + names.index(board.name)) % len(languages)]
            if board.language == language:
                yield Drawing(board, moment, theme)


def may_be_empty(name: str, moment: Moment) -> list[str]:
    """The ids of a dashboard's panels in MAY_BE_EMPTY: the same in every language."""
    listed = MAY_BE_EMPTY.get(name, {})
    dashboard = json.loads((GENERATED / "en" / f"{name}.json").read_text(encoding="utf-8"))
    found = {str(panel["id"]): panel.get("title", "") for panel in dashboard["panels"]}
    unknown = sorted(set(listed) - set(found.values()))
    if unknown:
        raise PreviewError(f"MAY_BE_EMPTY names panels that {name} does not have: {unknown}.")
    return [panel for panel, title in found.items() if moment in listed.get(title, ())]


def job(drawing: Drawing, session: Session) -> dict[str, Any]:
    """A drawing for render.mjs."""
    return {
        **_place(session, drawing.moment),
        "dashboard": str(drawing.board.path),
        "out": str(PICTURES / drawing.picture),
        "theme": drawing.theme,
        "width": drawing.width,
        "kiosk": drawing.kiosk,
        "requireData": drawing.moment in DATA_REQUIRED,
        "allowEmpty": may_be_empty(drawing.board.name, drawing.moment),
    }


def shown_job(shown: Shown, session: Session) -> dict[str, Any]:
    """A picture for the README, for render.mjs."""
    (board,) = boards([shown.language], [shown.board])
    drawing = Drawing(board, shown.moment, shown.theme)
    out = str(PUBLISHED / shown.file)
    return {**job(drawing, session), "out": out, "bottom": shown.bottom}


def selfcheck_job(session: Session, moment: Moment) -> dict[str, Any]:
    """The dashboard full of faults, for render.mjs."""
    return {
        **_place(session, moment),
        "dashboard": str(SELFCHECK),
        "out": str(PICTURES / "selfcheck.png"),
        "requireData": True,
    }


def _place(session: Session, moment: Moment) -> dict[str, Any]:
    return {
        "prometheus": session.url(moment),
        "from": round(session.start * 1000),
        "to": round(session.moments[moment] * 1000),
        "scrapeInterval": 1,
    }


def unreported(report: Report) -> list[str]:
    """Faults of SELFCHECK that the drawing tool did not see."""
    issues = [*report["errors"], *report["warnings"]]
    seen = {(issue["panel"], issue["code"]) for issue in issues}
    return [
        f"self-check: {panel or 'the dashboard'}: {code} was not reported"
        for panel, codes in FAULTS.items()
        for code in sorted(codes)
        if (panel, code) not in seen
    ]


def errors(drawing: Drawing, report: Report) -> list[str]:
    """A picture's errors, one a line."""
    lines = []
    for issue in report["errors"]:
        panel = issue["panel"] or "the dashboard"
        lines.append(f"{drawing.picture}: {panel}: {issue['code']}: {issue['message']}")
    lines += [f"{drawing.picture}: not found: {name}" for name in report["missingFiles"]]
    return lines


def table(rows: Sequence[tuple[Drawing, Report]]) -> str:
    """Pictures with the number of errors and warnings of each."""
    width = max((len(str(drawing.picture)) for drawing, _ in rows), default=0)
    lines = [f"{'picture':{width}}  errors  warnings  empty panels"]
    for drawing, report in rows:
        empty = sum(panel["empty"] for panel in report["panels"])
        counts = f"{len(report['errors']):6}  {len(report['warnings']):8}  {empty:12}"
        lines.append(f"{drawing.picture!s:{width}}  {counts}")
    return "\n".join(lines)
