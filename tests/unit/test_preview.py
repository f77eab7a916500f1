"""The preview's moments, its list of drawings, and how it judges reports; without a browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dashboards.preview import drawings, toolchain
from dashboards.preview.drawings import FAULTS, SELFCHECK, WIDTH, Board, Drawing
from dashboards.preview.moments import Moment, find
from dashboards.preview.processes import PreviewError
from dashboards.preview.session import Session

RUN = {
    "target": {2.0: 10.0, 3.0: 10.0, 4.0: 10.0, 5.0: 10.0, 6.0: 10.0, 7.0: 10.0},
    "scored": {1.0: 0.0, 2.0: 0.0, 3.0: 3.0, 4.0: 5.0, 5.0: 7.0, 6.0: 9.0, 7.0: 9.0},
    "moving": {2.0: 9.0, 3.0: 6.0, 4.0: 0.0, 5.0: 2.0, 6.0: 0.0, 7.0: 0.0},
    "frozen": {2.0: 0.0, 3.0: 1.0, 4.0: 1.0, 5.0: 1.0, 6.0: 0.0, 7.0: 1.0},
}
SESSION = Session(
    run="replay",
    replay_url="http://127.0.0.1:1",
    begun_url="http://127.0.0.1:3",
    nothing_url="http://127.0.0.1:2",
    start=0.0,
    moments={Moment.START: 10.0, Moment.HALF: 20.0, Moment.END: 30.0, Moment.NONE: 30.0},
    folder="/nowhere",
    prometheus_pids=[],
)
BOARDS = [
    Board(name, language, Path(f"{language}/{name}.json"))
    for name in ("fleet", "run")
    for language in ("en", "zh")
]


def report(**found: Any) -> dict[str, Any]:
    return {"errors": [], "warnings": [], "panels": [], "missingFiles": [], **found}


def issue(panel: str | None, code: str) -> dict[str, Any]:
    return {"panel": panel, "code": code, "message": "as it is"}


def test_moments_of_a_run() -> None:
    assert find(RUN, over=4.0) == {
        Moment.HALF: 4.0,
        Moment.FROZEN: 4.0,
        Moment.END: 6.0,
    }


def test_nothing_running_is_no_end_while_the_replay_goes_on() -> None:
    assert Moment.END not in find(RUN, over=None)


def test_a_replica_that_is_frozen_still_is_waited_for() -> None:
    assert Moment.FROZEN not in find({**RUN, "frozen": {5.0: 0.0, 6.0: 1.0}}, over=None)


def test_no_moment_without_series() -> None:
    assert find({name: {} for name in RUN}, over=1.0) == {}


def test_at_the_end_every_language_and_theme_is_drawn() -> None:
    drawn = list(drawings.plan(BOARDS, [Moment.END], ["dark", "light"]))
    assert {(d.board.name, d.board.language, d.theme) for d in drawn} == {
        (name, language, theme)
        for name in ("fleet", "run")
        for language in ("en", "zh")
        for theme in ("dark", "light")
    }


def test_before_the_end_each_dashboard_is_drawn_once_and_languages_alternate() -> None:
    drawn = list(drawings.plan(BOARDS, [Moment.START, Moment.HALF, Moment.FROZEN], ["dark"]))
    plain = {(d.moment, d.board.name, d.board.language) for d in drawn if d.width == WIDTH}
    assert plain >= {
        (Moment.START, "fleet", "en"),
        (Moment.START, "run", "zh"),
        (Moment.HALF, "fleet", "zh"),
        (Moment.HALF, "run", "en"),
        (Moment.FROZEN, "fleet", "en"),
        (Moment.FROZEN, "run", "zh"),
    }


def test_a_moment_that_is_left_out_changes_nothing_for_the_others() -> None:
    alone = set(drawings.plan(BOARDS, [Moment.FROZEN], ["dark", "light"]))
    among = set(drawings.plan(BOARDS, [Moment.START, Moment.FROZEN], ["dark", "light"]))
    assert alone <= among


def test_at_half_the_run_is_drawn_at_other_widths_and_as_a_kiosk_in_both_languages() -> None:
    drawn = [d for d in drawings.plan(BOARDS, [Moment.HALF], ["dark"]) if d.board.name == "run"]
    other = {(1280, False), (2560, False), (1600, True)}
    shown = [(d.board.language, d.width, d.kiosk) for d in drawn]
    assert {(lang, *how) for lang in ("en", "zh") for how in other} < set(shown)
    assert len({d.picture for d in drawn}) == len(drawn) == 7


@pytest.mark.parametrize(
    ("moment", "required", "url"),
    [
        (Moment.START, False, SESSION.begun_url),
        (Moment.END, True, SESSION.replay_url),
        (Moment.NONE, False, SESSION.nothing_url),
    ],
)
def test_a_job_asks_the_right_prometheus_about_the_moment(
    moment: Moment, required: bool, url: str
) -> None:
    [board] = drawings.boards(["en"], ["run"])
    job = drawings.job(Drawing(board, moment, "dark"), SESSION)
    assert (job["requireData"], job["prometheus"]) == (required, url)
    assert (job["from"], job["to"]) == (0, SESSION.moments[moment] * 1000)


def test_panels_that_may_be_empty_exist() -> None:
    for board in drawings.boards(["en"]):
        for moment in drawings.DATA_REQUIRED:
            drawings.may_be_empty(board.name, moment)
    assert set(drawings.MAY_BE_EMPTY) <= {board.name for board in drawings.boards(["en"])}


def test_an_unknown_dashboard_is_an_error() -> None:
    with pytest.raises(PreviewError, match="no-such"):
        drawings.boards(["en"], ["no-such"])


def test_errors_say_where_they_are() -> None:
    drawing = Drawing(BOARDS[3], Moment.END, "light")
    found = report(errors=[issue("Progress", "bare-no-data")], warnings=[issue("x", "y")])
    assert drawings.errors(drawing, found) == [
        "end/zh-light-1600/run.png: Progress: bare-no-data: as it is"
    ]


def test_a_fault_that_is_not_reported_fails_the_self_check() -> None:
    faults = [(panel, code) for panel, codes in FAULTS.items() for code in codes]
    every = [issue(*fault) for fault in faults]
    assert drawings.unreported(report(errors=every)) == []
    for left_out in every:
        rest = [one for one in every if one is not left_out]
        [line] = drawings.unreported(report(warnings=rest))
        assert left_out["code"] in line


def test_the_self_check_has_a_panel_for_every_fault() -> None:
    titles = {panel["title"] for panel in json.loads(SELFCHECK.read_text())["panels"]}
    assert {panel for panel in FAULTS if panel is not None} == titles


def test_a_session_can_be_kept_and_is_not_believed(tmp_path: Path) -> None:
    kept = tmp_path / "pictures" / "session.json"
    SESSION.write(kept)
    with pytest.raises(PreviewError, match="does not run any more"):
        Session.read(kept)
    kept.write_text("{}")
    with pytest.raises(PreviewError, match="no session"):
        Session.read(kept)


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None if name == "chromium" else name)
    assert toolchain.missing() == "chromium is not installed (Debian: apt-get install chromium)."
