"""What comes with the package: written into folders, and out of a wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from harborlight import __version__
from harborlight.alert_files import alert_files
from harborlight.dashboard_files import dashboards
from harborlight.package_files import MissingFilesError, PackageFile, find, write

ROOT = Path(__file__).resolve().parents[2]
FILES: tuple[PackageFile, ...] = (*dashboards(), *alert_files())


def test_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it cannot be finished, what was there is still there, and nothing else."""
    place = tmp_path / FILES[0].path
    place.parent.mkdir()
    place.write_text("before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(OSError, match="No space"):
        list(write(FILES, tmp_path))
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == [place.name]
    assert place.read_text() == "before"


def test_where_they_are(tmp_path: Path) -> None:
    """In the package; else in the checkout, if it is one; else the error says where they belong."""
    package = tmp_path / "lib" / "harborlight"
    package.mkdir(parents=True)
    (tmp_path / "things").mkdir()
    with pytest.raises(MissingFilesError, match=r"has no things: expected them in .*harborlight/t"):
        find("things", "things", "things", package=package)
    (tmp_path / "pyproject.toml").touch()
    assert find("things", "things", "things", package=package) == tmp_path / "things"
    (package / "things").mkdir()
    assert find("things", "things", "things", package=package) == package / "things"


def test_wheel_holds_them(tmp_path: Path) -> None:
    """Of the wheel, and of the wheel that the source distribution makes; nothing is downloaded."""
    tree = tmp_path / "tree"
    tree.mkdir()
    # Nothing else lies about in a copy, such as the environment of the tests.
    folders, files = ("alerts", "dashboards", "exporter"), (".gitignore", "pyproject.toml")
    for name in (*folders, *files, "README.md", "LICENSE"):
        if (ROOT / name).is_dir():
            left_out = shutil.ignore_patterns("node_modules", "__pycache__")
            shutil.copytree(ROOT / name, tree / name, ignore=left_out)
        else:
            shutil.copy(ROOT / name, tree / name)
    (tree / "tests").mkdir()
    built = tmp_path / "built"
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(built)],
        cwd=tree,
        check=True,
        capture_output=True,
        timeout=60,
    )
    (sdist,) = built.glob("*.tar.gz")
    shutil.unpack_archive(sdist, tmp_path / "sources", filter="data")
    (sources,) = (tmp_path / "sources").iterdir()
    for place in (tree, sources):
        shutil.rmtree(built)
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)],
            cwd=place,
            check=True,
            capture_output=True,
            timeout=60,
        )
        (wheel,) = built.glob("*.whl")
        installed = tmp_path / f"installed-{place.name}"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(installed)
        assert {
            path.parts[0] for path in (p.relative_to(installed) for p in installed.iterdir())
        } == {
            "harborlight",
            f"harborlight-{__version__}.dist-info",
        }
        done = subprocess.run(
            [
                sys.executable,
                "-I",
                "-c",
                _WRITE,
                str(installed),
                str(tmp_path / place.name / "out"),
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        for file in FILES:
            assert (tmp_path / place.name / "out" / file.path).read_bytes() == file.content


_WRITE = """\
import sys
sys.path.insert(0, sys.argv[1])
from harborlight import alert_files, dashboard_files, package_files
assert package_files.__file__.startswith(sys.argv[1])
files = (*dashboard_files.dashboards(), *alert_files.alert_files())
for place, written in package_files.write(files, package_files.Path(sys.argv[2])):
    assert written
"""
