"""The recorder's own care: what it keeps out, and that nothing that goes wrong reaches the job."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harbor.models.job.plugin import JobPlugin
from harbor.models.trial.result import TrialResult
from harbor.trial.hooks import TrialEvent

from harborlight.process_identity import Identity, lives, own_identity
from harborlight.recorder import FILE_NAME, FORMAT, MAX_LINE_BYTES, Recorder
from harborlight.sources.harbor_files import read_trial_result
from harborlight.sources.recorder_file import RecorderFile

Hook = Callable[[Any], Awaitable[None]]


class FakeJob:
    """As much of Harbor's job as a plugin may touch."""

    id = "11111111-1111-1111-1111-111111111111"
    is_resuming = False

    def __init__(self, folder: Path) -> None:
        self.job_dir = folder
        self.hooks: list[Hook] = []
        for name in (
            *("trial_started", "environment_started", "agent_started", "agent_ended"),
            *("verification_started", "trial_ended", "trial_cancelled"),
        ):
            setattr(self, f"on_{name}", self.hooks.append)

    def event(self, kind: TrialEvent, result: Any = None, **fields: Any) -> None:
        """One event, told to the hook as Harbor tells it."""
        given: dict[str, Any] = {
            "event": kind,
            "trial_name": "a__1234567",
            "trial_id": "x",
            "timestamp": datetime.fromtimestamp(100, UTC),
            "result": result,
            "config": result.config if result is not None else None,
            "lock": SimpleNamespace(
                task=SimpleNamespace(name="a", source="set", digest="sha256:1")
            ),
        }
        asyncio.run(cast("Any", self.hooks[0](SimpleNamespace(**(given | fields)))))


def started(folder: Path) -> tuple[Recorder, FakeJob]:
    recorder, job = Recorder(), FakeJob(folder)
    asyncio.run(recorder.on_job_start(cast("Any", job)))
    return recorder, job


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / FILE_NAME).read_text().splitlines()]


def test_it_is_a_plugin() -> None:
    assert isinstance(Recorder(), JobPlugin)


def test_nothing_unsafe_is_written(harbor_jobs: Path, tmp_path: Path) -> None:
    """Of recorded results nothing but what is kept: as each says itself, without its texts."""
    _, job = started(tmp_path)
    results = sorted(harbor_jobs.glob("mixed-6x5/*/result.json"))
    results += sorted(harbor_jobs.glob("faulty-oracle/*/result.json"))
    results += sorted(harbor_jobs.glob("steps-*/*/result.json"))
    expected = []
    for path in results:
        result = TrialResult.model_validate_json(path.read_bytes())
        name = result.config.task.get_task_id().get_name()
        task = SimpleNamespace(name=name, source=result.source, digest="sha256:1")
        job.event(
            TrialEvent.END,
            result,
            trial_name=result.trial_name,
            lock=SimpleNamespace(task=task),
        )
        expected.append(read_trial_result(path.read_bytes()).execution)
    found = RecorderFile(str(tmp_path)).read_on()
    assert [record.execution for record in found] == expected
    written = (tmp_path / FILE_NAME).read_text()
    for secret in ("/srv/", "file://", "traceback", "message", "kwargs", "trial_uri", "Traceback"):
        assert secret not in written


@pytest.mark.parametrize("blocked", ["folder", "link", "pipe", "missing"])
def test_a_file_that_cannot_be(
    blocked: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning without a path, and the job goes on unrecorded."""
    place = tmp_path / FILE_NAME
    folder = tmp_path
    match blocked:
        case "folder":
            place.mkdir()
        case "link":
            place.symlink_to(tmp_path / "elsewhere")
        case "pipe":
            os.mkfifo(place)
        case _:
            folder = tmp_path / "missing"
    with caplog.at_level(logging.WARNING):
        recorder, job = started(folder)
        asyncio.run(recorder.on_job_end(cast("Any", None)))
    (said,) = caplog.messages
    assert said.startswith("harborlight: the job's events are no longer recorded: ")
    assert str(tmp_path) not in said
    assert job.hooks == []
    assert not (tmp_path / "elsewhere").exists()


def test_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What the last write left is a torn line; the recording is over, the job is not."""
    recorder, job = started(tmp_path)
    full = os.open("/dev/full", os.O_WRONLY)
    assert recorder._file is not None
    os.dup2(full, recorder._file)
    os.close(full)
    job.event(TrialEvent.ENVIRONMENT_START)
    job.event(TrialEvent.AGENT_START)
    assert caplog.messages == [
        "harborlight: the job's events are no longer recorded: No space left on device"
    ]
    assert [line["event"] for line in lines(tmp_path)] == ["job-start"]


FILLED = """
import asyncio, sys
from harbor.trial.hooks import TrialEvent
from pathlib import Path
from test_recorder import started
folder = Path(sys.argv[1])
recorder, job = started(folder)
for number in range(2000):
    job.event(TrialEvent.ENVIRONMENT_START, trial_name=f"a__{number:07}")
asyncio.run(recorder.on_job_end(None))
sys.stdout.buffer.write((folder / "harborlight-events.jsonl").read_bytes())
"""


@pytest.mark.real_harbor
def test_a_small_disk_that_fills_up(tmp_path: Path) -> None:
    """64 KiB of it: whole lines up to the end, one warning, and no exception."""
    folder = tmp_path / "job"
    folder.mkdir()
    sandbox = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--size", "65536"]
    done = subprocess.run(
        [*sandbox, "--tmpfs", folder, sys.executable, "-c", FILLED, folder],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stderr.decode().splitlines() == [
        "harborlight: the job's events are no longer recorded: No space left on device"
    ]
    assert 60_000 < len(done.stdout) <= 65536
    *whole, _ = done.stdout.split(b"\n")
    kinds = [json.loads(line)["event"] for line in whole]
    assert kinds == ["job-start", *["environment-start"] * (len(kinds) - 1)]
    (tmp_path / FILE_NAME).write_bytes(done.stdout)
    file = RecorderFile(str(tmp_path))
    file.read_on()
    assert len(file.phases) == len(kinds) - 1


def test_a_hook_cannot_be_cut_off(tmp_path: Path) -> None:
    """It never waits, so a job that is cancelled finds it done or not begun."""
    _, job = started(tmp_path)
    (hook,) = set(job.hooks)
    event = SimpleNamespace(
        event=TrialEvent.ENVIRONMENT_START,
        trial_name="a__1234567",
        trial_id="x",
        timestamp=datetime.fromtimestamp(100, UTC),
    )
    running = cast("Any", hook(event))
    with pytest.raises(StopIteration):
        running.send(None)
    assert [line["event"] for line in lines(tmp_path)] == ["job-start", "environment-start"]


def test_a_file_that_cannot_even_be_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a file server, whose failures the last call may tell."""
    recorder, job = started(tmp_path)
    assert recorder._file is not None
    os.close(recorder._file)
    job.event(TrialEvent.ENVIRONMENT_START)
    job.event(TrialEvent.AGENT_START)
    asyncio.run(recorder.on_job_end(cast("Any", None)))
    assert caplog.messages == [
        "harborlight: the job's events are no longer recorded: Bad file descriptor"
    ]


def test_an_event_of_another_shape(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A result that is none, as another Harbor might hand out."""
    _, job = started(tmp_path)
    job.event(TrialEvent.END)
    job.event(TrialEvent.ENVIRONMENT_START)
    assert len(caplog.messages) == 1
    assert [line["event"] for line in lines(tmp_path)] == ["job-start"]


def test_an_endless_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, job = started(tmp_path)
    job.event(TrialEvent.ENVIRONMENT_START, trial_name="x" * MAX_LINE_BYTES)
    assert caplog.messages[0].endswith("Message too long")


def test_a_torn_line_is_left_behind(tmp_path: Path) -> None:
    """A new recording begins on a line of its own, and what stood before stays."""
    (tmp_path / FILE_NAME).write_bytes(b'{"v":1,"at":5,"ev')
    _, job = started(tmp_path)
    job.event(TrialEvent.ENVIRONMENT_START)
    raw = (tmp_path / FILE_NAME).read_bytes()
    assert raw.startswith(b'{"v":1,"at":5,"ev\n{"v":1')
    file = RecorderFile(str(tmp_path))
    assert file.read_on() == []
    assert file.phases == {"a__1234567": ("environment", 100.0)}


class TestReading:
    """A file that grows, is replaced, or is no recording at all."""

    def phases(self, file: RecorderFile) -> dict[str, str]:
        file.read_on()
        return {trial: phase for trial, (phase, _) in file.phases.items()}

    def test_half_a_line_waits_for_its_end(self, tmp_path: Path) -> None:
        place = tmp_path / FILE_NAME
        file = RecorderFile(str(tmp_path))
        assert self.phases(file) == {}
        whole = json.dumps({"v": FORMAT, "at": 1, "event": "agent-start", "trial": "t"}) + "\n"
        place.write_text(whole[:20])
        assert self.phases(file) == {}
        with place.open("a") as growing:
            growing.write(whole[20:])
        assert self.phases(file) == {"t": "agent"}

    @pytest.mark.parametrize(
        "line",
        [
            "",
            "null",
            "[" * 5000,
            '{"v":2,"at":1,"event":"start","trial":"t"}',  # another format
            '{"v":1,"at":"x","event":"start","trial":"t"}',
            '{"v":1,"at":1e300,"event":"start","trial":"t"}',
            '{"v":1,"at":253402300800,"event":"start","trial":"t"}',
            '{"v":1,"at":-1,"event":"start","trial":"t"}',
            '{"v":1,"at":1,"event":"end","trial":"t","result":{"id":7}}',
            '{"v":1,"at":1,"event":"end","trial":"t"}',
            '{"v":1,"at":1,"event":"unheard-of","trial":"t"}',
            "x" * (MAX_LINE_BYTES + 1),
            "\x00\xff",
        ],
    )
    def test_a_line_that_is_none(self, line: str, tmp_path: Path) -> None:
        """It is left out, and the next one counts."""
        good = '{"v":1,"at":1,"event":"start","trial":"u"}\n'
        (tmp_path / FILE_NAME).write_bytes(line.encode("latin-1") + b"\n" + good.encode())
        file = RecorderFile(str(tmp_path))
        assert self.phases(file) == {"u": "environment"}

    def test_another_file_in_its_place(self, tmp_path: Path) -> None:
        place = tmp_path / FILE_NAME
        place.write_text('{"v":1,"at":1,"event":"start","trial":"a"}\n' * 3)
        file = RecorderFile(str(tmp_path))
        assert self.phases(file) == {"a": "environment"}
        other = tmp_path / "other"
        other.write_text('{"v":1,"at":1,"event":"verification-start","trial":"b"}\n')
        other.replace(place)
        assert self.phases(file)["b"] == "verifier"

    def test_a_mirrored_file_counts_once(self, tmp_path: Path) -> None:
        """Each copying puts a new file in its place, with all that the one before had."""
        place, other = tmp_path / FILE_NAME, tmp_path / "other"
        first = '{"v":1,"at":1,"event":"end","trial":"a"}\n'
        place.write_text(first + '{"v":1,"at":2,"event":"agent-start","trial":"b"}\n')
        file = RecorderFile(str(tmp_path))
        assert self.phases(file) == {"b": "agent"}
        other.write_text(first + '{"v":1,"at":3,"event":"agent-start","trial":"c"}\n')
        other.replace(place)
        assert self.phases(file) == {"c": "agent"}
        assert file.ended == {"a": 1}

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / FILE_NAME)
        assert RecorderFile(str(tmp_path)).read_on() == []


class TestProcess:
    """Whether a process lives, where that can be told."""

    def test_a_later_process_without_the_recorder(self, tmp_path: Path) -> None:
        """Also one that resumed the job right after: its configuration is newer than any event."""
        start = {"v": 1, "at": 100, "event": "job-start", **own_identity(), "started": 1}
        (tmp_path / FILE_NAME).write_text(json.dumps(start) + "\n")
        file = RecorderFile(str(tmp_path))
        file.read_on()
        assert [file.dead_since(at) for at in (None, 130.0, 161.0)] == [True, True, False]
        with (tmp_path / FILE_NAME).open("a") as growing:
            growing.write('{"v":1,"at":131,"event":"start","trial":"a"}\n')
        file.read_on()
        assert [file.dead_since(at) for at in (None, 130.0, 132.0)] == [True, True, False]

    @pytest.mark.parametrize(
        ("started", "incarnation", "standing", "expected"),
        [
            (1, 132.0, [], ["execution-1"]),
            (1, 130.0, [], []),  # nobody resumed it yet
            (1, 132.0, ["a"], []),  # a copy, for Harbor removes it
            (None, 132.0, [], []),  # the process is at work
        ],
    )
    def test_what_died_before_a_resume_without_the_recorder(
        self,
        tmp_path: Path,
        started: int | None,
        incarnation: float,
        standing: list[str],
        expected: list[str],
    ) -> None:
        config = {"task": {"name": "task"}, "trial_name": "a"}
        begun = {"v": 1, "at": 131, "event": "start", "trial": "a", "id": "execution-1"}
        identity = own_identity()
        lines = (
            {"v": 1, "at": 100, "event": "job-start", **identity}
            | ({} if started is None else {"started": started}),
            begun | {"config": config},
        )
        (tmp_path / FILE_NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
        file = RecorderFile(str(tmp_path))
        assert file.read_on() == []
        found = file.left_behind(incarnation, standing)
        assert [(r.execution, r.phase, r.interrupted) for r in found] == [
            (execution, "environment", True) for execution in expected
        ]
        assert not expected or file.left_behind(incarnation, standing) == []

    def test_this_one(self) -> None:
        assert lives(own_identity()) is True

    @pytest.mark.parametrize(
        ("changed", "expected"),
        [
            ({"started": 1}, False),  # the number was given to another
            ({"pid": 2**22 + 1}, False),
            ({"boot": "another"}, None),
            ({"namespace": "pid:[1]"}, None),
            ({"boot": ""}, None),
        ],
    )
    def test_others(self, changed: dict[str, Any], expected: bool | None) -> None:
        assert lives(cast("Identity", {**own_identity(), **changed})) is expected

    def test_nothing_can_be_told_without_proc(self, tmp_path: Path) -> None:
        nobody = own_identity(tmp_path)
        assert (nobody["boot"], nobody["pid"]) == ("", os.getpid())
        assert lives(own_identity(), tmp_path) is None

    @pytest.mark.parametrize(
        ("error", "expected"), [(PermissionError, None), (ProcessLookupError, False)]
    )
    def test_a_process_that_proc_does_not_show(
        self, error: type[OSError], expected: bool | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may be another user's, where ``/proc`` hides those (``hidepid``)."""
        asked = []

        def kill(pid: int, number: int) -> None:
            asked.append((pid, number))
            raise error

        monkeypatch.setattr(os, "kill", kill)
        hidden = cast("Identity", {**own_identity(), "pid": 2**22 + 1})
        assert lives(hidden) is expected
        assert asked == [(2**22 + 1, 0)]

    def test_a_zombie_is_gone(self) -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        try:
            assert lives(cast("Identity", {**own_identity(), "pid": child})) is False
        finally:
            os.waitpid(child, 0)
