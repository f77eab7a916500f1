"""Reading a file that somebody else is rewriting: what is refused, and what never hangs."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harborlight.sources.safe_read import MIB, ReadError, Signature, look, read_stable


@contextmanager
def alarm(seconds: int) -> Iterator[None]:
    """Fail where the body takes longer: a hang must not hang the tests."""

    def ring(number: int, frame: object) -> None:
        raise TimeoutError(f"still not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refused(path: Path, limit: int = MIB) -> ReadError:
    with alarm(10), pytest.raises(ReadError) as caught:
        read_stable(path, limit)
    return caught.value


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "result.json"
    path.write_bytes(b'{"a": 1}')
    os.utime(path, ns=(1, 1_700_000_000_123_456_789))
    return path


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Whatever happens, no file stays open."""
    before = sorted(os.listdir("/proc/self/fd"))
    yield
    assert sorted(os.listdir("/proc/self/fd")) == before


def in_read(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object], *, after: bool) -> None:
    """Do something right before or after the reader's one read."""
    read = os.read

    def disturbed(handle: int, size: int) -> bytes:
        if not after:
            do()
        data = read(handle, size)
        if after:
            do()
        return data

    monkeypatch.setattr(os, "read", disturbed)


def test_bytes_and_signature(file: Path, descriptors: None) -> None:
    data, signature = read_stable(file, MIB)
    assert data == b'{"a": 1}'
    assert signature == Signature(8, 1_700_000_000_123_456_789, file.stat().st_ino)
    assert look(file) == signature


def test_a_path_may_be_text_or_a_link(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    assert read_stable(str(link), MIB) == read_stable(file, MIB)
    assert look(str(link)) == look(file)


def test_missing(tmp_path: Path) -> None:
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")
    for path in (tmp_path / "missing", tmp_path / "no" / "folder", dangling):
        with pytest.raises(FileNotFoundError):
            read_stable(path, MIB)
        assert look(path) is None


def test_a_file_where_its_folder_should_be_is_missing_too(file: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_stable(file / "result.json", MIB)
    assert look(file / "result.json") is None


def test_empty(file: Path, descriptors: None) -> None:
    file.write_bytes(b"")
    error = refused(file)
    assert error.reason == "empty"
    assert error.signature == look(file)


def test_limit(file: Path, descriptors: None) -> None:
    assert read_stable(file, 8)[0] == b'{"a": 1}'
    assert refused(file, 7).reason == "larger than 0 MiB"


def test_too_large_is_not_even_read(
    file: Path, monkeypatch: pytest.MonkeyPatch, descriptors: None
) -> None:
    os.truncate(file, 3 * MIB)  # a sparse file
    monkeypatch.setattr(os, "read", lambda handle, size: pytest.fail("was read"))
    assert refused(file, 2 * MIB).reason == "larger than 2 MiB"


def test_directory_in_its_place(tmp_path: Path, descriptors: None) -> None:
    assert refused(tmp_path).reason == "not a regular file"


def test_pipe_in_its_place(tmp_path: Path, descriptors: None) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert refused(path).reason == "not a regular file"


def test_socket_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's address is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert refused(tmp_path / "socket").reason == os.strerror(errno.ENXIO)


def test_device_in_its_place(descriptors: None) -> None:
    assert refused(Path("/dev/zero")).reason == "not a regular file"


def test_loop_of_links(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert refused(tmp_path / "a").reason == os.strerror(errno.ELOOP)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE, errno.EMFILE])
def test_not_to_be_opened(
    file: Path, monkeypatch: pytest.MonkeyPatch, number: int, descriptors: None
) -> None:
    def denied(*arguments: object) -> int:
        raise OSError(number, os.strerror(number), str(file))

    monkeypatch.setattr(os, "open", denied)
    error = refused(file)
    assert error.reason == os.strerror(number)
    assert str(file) not in str(error)


@pytest.mark.parametrize("step", ["read", "fstat"])
def test_not_to_be_read(
    file: Path, monkeypatch: pytest.MonkeyPatch, step: str, descriptors: None
) -> None:
    def broken(*arguments: object) -> bytes:
        raise OSError(errno.EIO, "disk", str(file))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, broken)
        error = refused(file)
    assert error.passing
    assert error.reason == os.strerror(errno.EIO)
    assert str(file) not in str(error)


def test_truncated_before_the_read(
    file: Path, monkeypatch: pytest.MonkeyPatch, descriptors: None
) -> None:
    in_read(monkeypatch, lambda: os.truncate(file, 3), after=False)
    assert refused(file).reason == "changed while it was read"


def test_emptied_before_the_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_read(monkeypatch, lambda: os.truncate(file, 0), after=False)
    error = refused(file)
    assert error.reason == "changed while it was read"
    assert error.signature is not None and error.signature.size == 0


def test_grown_before_the_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_read(monkeypatch, lambda: file.write_bytes(b'{"a": 1, "b": 2}'), after=False)
    assert refused(file).reason == "changed while it was read"


def test_truncated_after_the_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_read(monkeypatch, lambda: os.truncate(file, 3), after=True)
    assert refused(file).reason == "changed while it was read"


def test_rewritten_with_the_same_length(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_read(monkeypatch, lambda: file.write_bytes(b'{"a": 2}'), after=True)
    assert refused(file).reason == "changed while it was read"


def test_a_short_read_is_no_whole_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.read
    monkeypatch.setattr(os, "read", lambda handle, size: read(handle, 4))
    assert refused(file).reason == "changed while it was read"


def test_replaced_by_another_file_is_the_old_one_still(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = look(file)
    other = tmp_path / "other"
    other.write_bytes(b'{"a": 22}')
    in_read(monkeypatch, lambda: other.replace(file), after=False)
    data, signature = read_stable(file, MIB)
    assert data == b'{"a": 1}'
    assert signature == old
    assert look(file) != old  # so the next look reads the new one


def test_look_at_what_cannot_be_looked_at(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **more: object) -> os.stat_result:
        raise OSError(errno.EIO, "disk")

    monkeypatch.setattr(os, "stat", broken)
    assert look(file) is None
