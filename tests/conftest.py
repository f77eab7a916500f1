"""Fixtures and markers for all tests."""

from __future__ import annotations

import shutil
import signal
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

TESTS = Path(__file__).resolve().parent
if str(TESTS) not in sys.path:  # `support` is imported from here, whatever the import mode
    sys.path.insert(0, str(TESTS))

from support.harbor import must_be_available, why_unavailable  # noqa: E402

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that accepts what the pages are now."""
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the pages in tests/golden"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers, so that --strict-markers knows them; let programs be interrupted."""
    # A shell starts what runs in its background deaf to SIGINT, and programs inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line(
        "markers", "real_harbor: runs real Harbor jobs (needs harbor and bubblewrap)"
    )
    config.addinivalue_line("markers", "slow: takes more than a few seconds")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip real jobs where they cannot run, or fail where they must."""
    if item.get_closest_marker("real_harbor") is None:
        return
    reason = _harbor_problem()
    if reason and must_be_available():
        pytest.fail(f"real Harbor jobs are required, but {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)


_problem: list[str] = []


def _harbor_problem() -> str:
    if not _problem:
        _problem.append(why_unavailable())
    return _problem[0]


def _unpack(name: str, target: Path) -> Path:
    """Unpack a recorded archive, modification times kept; its single top directory."""
    with tarfile.open(TESTS / "fixtures" / f"{name}.tar.gz") as archive:
        archive.extractall(target, filter="data")
    (top,) = target.iterdir()
    return top


@pytest.fixture(scope="session")
def harbor_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of recorded Harbor 0.26.0 jobs. Read only: copy before changing."""
    return _unpack("harbor-jobs", tmp_path_factory.mktemp("recorded-jobs"))


@pytest.fixture(scope="session")
def third_party(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another team's trials, without job files. Read only."""
    return _unpack("third-party-jobs", tmp_path_factory.mktemp("recorded-third-party"))


@pytest.fixture(scope="session")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of recorded snapshot sequences. Read only."""
    return _unpack("harbor-snapshots", tmp_path_factory.mktemp("recorded-snapshots"))


@pytest.fixture(scope="session")
def sglang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What SGLang servers answered: ``sglang-expositions/*.txt`` and ``http/*``. Read only."""
    target = tmp_path_factory.mktemp("recorded-sglang")
    with tarfile.open(TESTS / "fixtures" / "sglang-expositions.tar.gz") as archive:
        archive.extractall(target, filter="data")
    return target


@pytest.fixture(scope="session")
def harbor_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a real ``harbor serve`` answered, one JSON file an answer. Read only."""
    return _unpack("harbor-server", tmp_path_factory.mktemp("recorded-harbor-server"))


@pytest.fixture
def copy_jobs(harbor_jobs: Path, tmp_path: Path) -> Callable[..., Path]:
    """Copy recorded jobs by name into one fresh jobs directory, and return that."""

    def copy(*names: str) -> Path:
        target = tmp_path / "jobs"
        for name in names:
            shutil.copytree(harbor_jobs / name, target / name)
        return target

    return copy
