"""``harborlight dashboards``: into a folder and into a Grafana."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harborlight import __version__
from harborlight.cli import main
from harborlight.dashboard_files import LANGUAGES, dashboards
from harborlight.grafana import FOLDER_UID, Grafana, GrafanaError, GrafanaTarget
from harborlight.package_files import MissingFilesError
from support.grafana import TOKEN, FakeGrafana
from support.hostile import RawServer, never

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "dashboards" / "generated"
FILES = dashboards()
UIDS = [file.uid for file in FILES]
ENGLISH = [file.uid for file in FILES if file.language == "en"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of ``harborlight dashboards``."""
    capsys.readouterr()
    code = main(["dashboards", *map(str, arguments)])
    output, errors = capsys.readouterr()
    assert TOKEN not in output + errors
    return code, output, errors


# Into a folder


def test_what_there_is() -> None:
    """Every generated dashboard, in both languages."""
    assert {file.path for file in FILES} == {
        path.relative_to(GENERATED) for path in GENERATED.rglob("*.json")
    }
    assert {file.language for file in FILES} == set(LANGUAGES)
    assert len(set(UIDS)) == len(FILES) > 0


def test_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once, as they are, for all to read; a second time nothing is touched."""
    folder = tmp_path / "new" / "dashboards"
    code, output, errors = run(capsys, folder)
    assert (code, errors) == (0, "")
    assert output.splitlines() == [f"wrote {folder / file.path}" for file in FILES]
    for file in FILES:
        place = folder / file.path
        assert place.read_bytes() == (GENERATED / file.path).read_bytes()
        assert place.stat().st_mode & 0o777 == 0o644
        os.utime(place, (1, 1))
    assert {p.suffix for p in folder.rglob("*") if p.is_file()} == {".json"}

    changed = folder / FILES[0].path
    changed.write_text("{}")
    code, output, _ = run(capsys, folder)
    assert code == 0
    assert output.splitlines() == [
        f"{'wrote' if folder / file.path == changed else 'unchanged'} {folder / file.path}"
        for file in FILES
    ]
    assert changed.read_bytes() == FILES[0].content
    assert {(folder / file.path).stat().st_mtime for file in FILES[1:]} == {1}


def test_one_language(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, tmp_path, "--language", "zh", "--language", "zh")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["zh"]
    with pytest.raises(SystemExit, match="2"):
        main(["dashboards", str(tmp_path), "--language", "tlh"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "give a folder to write to, or --push URL"),
        (("d", "--token-file", "t"), "go with --push"),
        (("d", "--folder", "F"), "go with --push"),
        (("--push", "http://127.0.0.1:1"), "expected a token"),
        (("--push", "http://user:pw-canary@host"), "use --token-file or GRAFANA_TOKEN"),
        (("--push", "ftp://host"), "expected http://HOST:PORT"),
        (("--push", "http://127.0.0.1:1", "--token-file", "none"), "'none' cannot be read"),
    ],
)
def test_wrong_use(
    arguments: tuple[str, ...],
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAFANA_TOKEN", raising=False)
    code, output, errors = run(capsys, *arguments)
    assert (code, output) == (2, "") and expected in errors and errors.count("\n") == 1
    assert "canary" not in errors
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    code, _, errors = run(capsys, tmp_path / "file")
    assert code == 2 and "Not a directory" in errors


def test_installation_without_dashboards(tmp_path: Path) -> None:
    """It says where they should be; a folder of that name beside a package is nobody's sources."""
    package = tmp_path / "lib" / "site-packages" / "harborlight"
    package.mkdir(parents=True)
    (tmp_path / "lib" / "dashboards" / "generated").mkdir(parents=True)
    with pytest.raises(MissingFilesError, match="this installation has no dashboards"):
        dashboards(package=package)
    (package / "dashboards" / "en").mkdir(parents=True)
    with pytest.raises(MissingFilesError, match=r"no dashboards in .*/en"):
        dashboards(package=package)
    (package / "dashboards" / "en" / "run.json").write_text('{"uid": "u"}')
    assert [file.uid for file in dashboards(["en"], package=package)] == ["u"]


# Into a Grafana


@pytest.fixture
def grafana(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGrafana]:
    """A Grafana whose token the environment holds."""
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    with FakeGrafana() as server:
        yield server


def test_pushed(grafana: FakeGrafana, capsys: pytest.CaptureFixture[str]) -> None:
    """All of them, into a folder that is made; the second time no new version is stored."""
    code, output, errors = run(capsys, "--push", grafana.url)
    assert (code, errors) == (0, "")
    assert output.splitlines() == [f"pushed {uid}" for uid in UIDS]
    assert grafana.folders == {FOLDER_UID: "Harborlight"}
    assert set(grafana.folder_of.values()) == {FOLDER_UID}
    assert set(grafana.messages) == {f"harborlight {__version__}"}
    for file in FILES:
        stored = {k: v for k, v in grafana.dashboards[file.uid].items() if k != "version"}
        assert {**stored, "id": None} == {
            **{k: v for k, v in file.document.items() if k != "version"},
            "id": None,
        }
    assert grafana.authorizations == {f"Bearer {TOKEN}"}

    grafana.requests.clear()
    code, output, errors = run(capsys, "--push", grafana.url)
    assert (code, errors, grafana.writes) == (0, "", [])
    assert output.splitlines() == [f"unchanged {uid}" for uid in UIDS]
    assert {dashboard["version"] for dashboard in grafana.dashboards.values()} == {1}


def test_only_what_changed(grafana: FakeGrafana, capsys: pytest.CaptureFixture[str]) -> None:
    """What somebody edited, or moved, is put back."""
    run(capsys, "--push", grafana.url)
    grafana.dashboards[UIDS[0]]["title"] = "edited"
    grafana.folder_of[UIDS[1]] = "elsewhere"
    _, output, _ = run(capsys, "--push", grafana.url)
    assert output.splitlines() == [
        f"{'pushed' if uid in UIDS[:2] else 'unchanged'} {uid}" for uid in UIDS
    ]
    assert grafana.folder_of[UIDS[1]] == FOLDER_UID


def test_both_at_once(
    grafana: FakeGrafana, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output, _ = run(capsys, tmp_path, "--push", grafana.url, "--language", "en")
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()] == [
        *(["wrote"] * len(ENGLISH)),
        *(["pushed"] * len(ENGLISH)),
    ]
    assert list(grafana.dashboards) == ENGLISH


def test_under_a_path(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    with FakeGrafana("/some/grafana") as server:
        assert run(capsys, "--push", f"{server.url}/")[0] == 0
        assert list(server.dashboards) == UIDS


def test_token_file(
    grafana: FakeGrafana,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It wins over the environment; one that holds no token is not sent."""
    monkeypatch.setenv("GRAFANA_TOKEN", "another")
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    push = ("--push", grafana.url, "--token-file", file)
    assert run(capsys, *push)[0] == 0
    for bad, why in (
        ("", "is empty"),
        ("two\nlines-canary", "is not one line of printable ASCII"),
        ("x" * 5000, "is larger than 4 KiB"),
    ):
        file.write_text(bad)
        grafana.requests.clear()
        code, output, errors = run(capsys, *push)
        assert (code, output, grafana.requests) == (2, "", [])
        assert why in errors and "canary" not in errors


# Folders


def test_folder_is_there(grafana: FakeGrafana, capsys: pytest.CaptureFixture[str]) -> None:
    """By its uid, whatever somebody called it since."""
    grafana.folders[FOLDER_UID] = "Evaluations"
    assert run(capsys, "--push", grafana.url)[0] == 0
    assert grafana.folders == {FOLDER_UID: "Evaluations"}


def test_folder_by_name(grafana: FakeGrafana, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody else's of that name, or a new one, which is found again."""
    grafana.folders["abc"] = "Team"
    assert run(capsys, "--push", grafana.url, "--folder", "Team")[0] == 0
    assert set(grafana.folder_of.values()) == {"abc"}
    for _ in range(2):
        assert run(capsys, "--push", grafana.url, "--folder", "Other")[0] == 0
    assert list(grafana.folders.values()) == ["Team", "Other"]
    assert FOLDER_UID not in grafana.folders


def test_folder_that_may_not_be_seen(
    grafana: FakeGrafana, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who may not see all folders gets 403 for one that does not exist: it is made all the same."""
    denied = (403, {"message": "You'll need additional permissions", "title": "Access denied"})
    grafana.answers[f"GET /api/folders/{FOLDER_UID}"] = denied
    grafana.answers["GET /api/folders?limit=1000"] = denied
    assert run(capsys, "--push", grafana.url)[0] == 0
    grafana.answers["POST /api/folders"] = denied
    code, output, errors = run(capsys, "--push", grafana.url)
    assert (code, output) == (2, "")
    assert errors == (
        "harborlight: the Grafana's folder: HTTP 403: You'll need additional permissions\n"
    )


# What goes wrong


def test_wrong_token(
    grafana: FakeGrafana, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    grafana.token = "another"  # noqa: S105 - of no Grafana there is
    code, output, errors = run(capsys, "--push", grafana.url)
    assert (code, output) == (2, "")
    assert errors == "harborlight: the Grafana's folder: HTTP 401: Invalid API key\n"


def test_provisioned(grafana: FakeGrafana, capsys: pytest.CaptureFixture[str]) -> None:
    """Grafana refuses it where it differs; the others are pushed."""
    run(capsys, "--push", grafana.url)
    grafana.provisioned = {UIDS[0], UIDS[1]}
    grafana.folder_of[UIDS[1]] = "provisioned"
    grafana.dashboards[UIDS[0]]["title"] = "older"
    del grafana.dashboards[UIDS[-1]]
    code, output, errors = run(capsys, "--push", grafana.url)
    assert code == 2
    assert errors == f"harborlight: {UIDS[0]}: HTTP 400: Cannot save provisioned dashboard\n"
    assert output.splitlines() == [
        *(f"unchanged {uid}" for uid in UIDS[1:-1]),
        f"pushed {UIDS[-1]}",
    ]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((412, {"message": "changed by someone else"}), "HTTP 412: changed by someone else"),
        ((500, {"message": "Failed to save dashboard"}), "HTTP 500: Failed to save dashboard"),
        ((500, b"<html>" + b"x" * 1000), "HTTP 500"),
        ((502, {"message": ["no text"]}), "HTTP 502"),
        ((403, [1]), "HTTP 403"),
        ((302, b""), "HTTP 302; expected Grafana itself, not a redirect to it"),
        ((500, b"[" * 100_000), "HTTP 500"),
        ((400, {"message": f"bad {TOKEN}"}), "HTTP 400"),
        ((400, {"message": "a\x1b[31m\nb"}), "HTTP 400: a?[31m?b~"),
        ((400, {"message": "http://u:pw@host/x"}), "HTTP 400: x~"),
        ((400, {"message": "y" * 9000}), "HTTP 400: " + "y" * 111 + "~"),
        ((200, b"<html>log in</html>"), "HTTP 200; expected the answer of a Grafana"),
    ],
)
def test_refused(
    answer: tuple[int, object],
    expected: str,
    grafana: FakeGrafana,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line for each that failed, nothing of the answer but a short message."""
    grafana.answers["POST /api/dashboards/db"] = answer
    code, output, errors = run(capsys, "--push", grafana.url, "--language", "en")
    assert (code, output) == (2, "")
    lines = errors.splitlines()
    assert len(lines) == len(ENGLISH)
    for line, uid in zip(lines, ENGLISH, strict=True):
        found = line.removeprefix(f"harborlight: {uid}: ")
        assert found.startswith(expected) if expected.endswith("~") else found == expected


def test_redirect_is_not_followed(grafana: FakeGrafana, capsys: pytest.CaptureFixture[str]) -> None:
    """The token goes to nobody else."""
    with FakeGrafana() as other:
        grafana.headers["Location"] = f"{other.url}/api/dashboards/db"
        grafana.answers["POST /api/dashboards/db"] = (307, b"")
        assert run(capsys, "--push", grafana.url)[0] == 2
        grafana.answers[f"GET /api/folders/{FOLDER_UID}"] = (301, b"")
        code, _, errors = run(capsys, "--push", grafana.url)
        assert code == 2 and errors.count("HTTP 301; expected Grafana itself") == 1
        assert other.requests == []


@pytest.mark.parametrize(
    "answer", [(200, {}), (200, []), (200, {"dashboard": 1, "meta": {}}), (200, b"null")]
)
def test_answer_that_is_no_dashboard(answer: tuple[int, object], grafana: FakeGrafana) -> None:
    grafana.answers[f"GET /api/dashboards/uid/{UIDS[0]}"] = answer
    with pytest.raises(GrafanaError, match="expected the answer of a Grafana"):
        Grafana(GrafanaTarget(grafana.url, TOKEN)).push(FILES[0].document, FOLDER_UID)


def test_dashboard_that_may_not_be_read(grafana: FakeGrafana) -> None:
    grafana.answers[f"GET /api/dashboards/uid/{UIDS[0]}"] = (403, {"message": "Access denied"})
    with pytest.raises(GrafanaError, match="HTTP 403: Access denied"):
        Grafana(GrafanaTarget(grafana.url, TOKEN)).push(FILES[0].document, FOLDER_UID)
    assert grafana.writes == []


def test_hung_server() -> None:
    with RawServer(never) as server:
        grafana = Grafana(GrafanaTarget(server.url, TOKEN, timeout=0.3))
        with pytest.raises(GrafanaError, match=r"^timed out; expected an answer within 0.3 s$"):
            grafana.folder()


def test_answer_too_large(grafana: FakeGrafana) -> None:
    grafana.answers[f"GET /api/folders/{FOLDER_UID}"] = (200, b"x" * (5 * 1024 * 1024))
    with pytest.raises(GrafanaError, match=r"^the answer is too large$"):
        Grafana(GrafanaTarget(grafana.url, TOKEN)).folder()


def test_nobody_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    with FakeGrafana() as server:
        url = server.url
    code, output, errors = run(capsys, "--push", url)
    assert (code, output) == (2, "")
    assert errors == "harborlight: the Grafana's folder: connection refused\n"


def test_no_log_can_show_it() -> None:
    target = GrafanaTarget("http://host-canary", TOKEN)
    assert TOKEN not in repr(target) and "canary" not in repr(target)


def test_documents_are_json() -> None:
    for file in FILES:
        assert json.loads(file.content) == file.document
