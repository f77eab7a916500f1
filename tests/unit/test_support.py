"""The test support can fail: broken pages, late conditions and dead processes are noticed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from support.deadline import eventually
from support.exporter import ExporterProcess, Watcher
from support.harbor import HarborJob
from support.harbor_local.tasks import write_tasks
from support.page import Page, assert_promises, broken_promises
from support.snapshots import Playback, Sequence, Snapshot

PAGE = """\
# TYPE harborlight_run_attempts_target gauge
harborlight_run_attempts_target{run="a"} 6
# TYPE harborlight_run_attempts gauge
harborlight_run_attempts{run="a",state="scored"} 2
harborlight_run_attempts{run="a",state="running"} 1
harborlight_run_attempts{run="a",state="queued"} 1
harborlight_run_attempts{run="a",state="faulted"} 2
harborlight_run_attempts{run="a",state="unplanned"} 0
# TYPE harborlight_run_attempts_passed gauge
harborlight_run_attempts_passed{run="a"} 1
# TYPE harborlight_task_attempts_target gauge
harborlight_task_attempts_target{run="a",task="t1"} 3
harborlight_task_attempts_target{run="a",task="t2"} 3
# TYPE harborlight_task_attempts gauge
harborlight_task_attempts{run="a",task="t1",state="scored"} 2
harborlight_task_attempts{run="a",task="t1",state="running"} 1
harborlight_task_attempts{run="a",task="t1",state="queued"} 0
harborlight_task_attempts{run="a",task="t1",state="faulted"} 0
harborlight_task_attempts{run="a",task="t1",state="unplanned"} 0
harborlight_task_attempts{run="a",task="t2",state="scored"} 0
harborlight_task_attempts{run="a",task="t2",state="running"} 0
harborlight_task_attempts{run="a",task="t2",state="queued"} 1
harborlight_task_attempts{run="a",task="t2",state="faulted"} 2
harborlight_task_attempts{run="a",task="t2",state="unplanned"} 0
# TYPE harborlight_task_attempts_passed gauge
harborlight_task_attempts_passed{run="a",task="t1"} 1
harborlight_task_attempts_passed{run="a",task="t2"} 0
# TYPE harborlight_run_faults_total counter
harborlight_run_faults_total{run="a",phase="agent",cause="serving"} 2
harborlight_run_faults_total{run="a",phase="verifier",cause="verifier"} 1
# TYPE harborlight_run_trial_phase_duration_seconds histogram
harborlight_run_trial_phase_duration_seconds_bucket{run="a",phase="agent",le="60"} 1
harborlight_run_trial_phase_duration_seconds_bucket{run="a",phase="agent",le="+Inf"} 2
harborlight_run_trial_phase_duration_seconds_sum{run="a",phase="agent"} 90.5
harborlight_run_trial_phase_duration_seconds_count{run="a",phase="agent"} 2
# TYPE harborlight_snapshot_timestamp_seconds gauge
harborlight_snapshot_timestamp_seconds 1000
"""


def edited(*edits: tuple[str, str]) -> Page:
    """The good page with lines replaced; each must be there exactly once."""
    text = PAGE
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return Page(text)


def test_values_are_found_by_some_of_their_labels() -> None:
    page = Page(PAGE)
    assert page.value("harborlight_run_attempts", state="scored") == 2
    assert page.value("harborlight_run_attempts_passed") == 1
    assert page.sum("harborlight_task_attempts", state="faulted") == 2
    assert page.values("harborlight_run_attempts_target") == {(("run", "a"),): 6}
    assert page.states("a") == (2, 1, 1, 2, 0)
    assert page.only_run() == "a"
    with pytest.raises(LookupError, match="no sample"):
        page.value("harborlight_run_attempts", state="dreaming")
    with pytest.raises(LookupError, match="5 samples"):
        page.value("harborlight_run_attempts", run="a")


def test_counters_are_what_must_not_fall() -> None:
    assert {name for name, _ in Page(PAGE).counters()} == {
        "harborlight_run_faults_total",
        "harborlight_run_trial_phase_duration_seconds_bucket",
        "harborlight_run_trial_phase_duration_seconds_sum",
        "harborlight_run_trial_phase_duration_seconds_count",
    }


def test_a_good_page_breaks_no_promise() -> None:
    assert_promises(Page(PAGE), Page(PAGE))


def test_states_may_move_and_counters_may_grow() -> None:
    later = edited(
        ('attempts{run="a",state="running"} 1', 'attempts{run="a",state="running"} 0'),
        ('attempts{run="a",state="scored"} 2', 'attempts{run="a",state="scored"} 3'),
        ('task="t1",state="running"} 1', 'task="t1",state="running"} 0'),
        ('task="t1",state="scored"} 2', 'task="t1",state="scored"} 3'),
        ('cause="serving"} 2', 'cause="serving"} 5'),
    )
    assert broken_promises(later, Page(PAGE)) == []


def test_the_tasks_need_not_cover_a_run_whose_plan_is_unknown() -> None:
    text = "".join(
        line for line in PAGE.splitlines(keepends=True) if not line.startswith("harborlight_task_")
    )
    assert broken_promises(Page(text)) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'harborlight_run_attempts_passed{run="a"} 1\n',
            'harborlight_run_attempts_passed{run="a"} 1\n' * 2,
            "on the page 2 times",
        ),
        (
            'harborlight_run_attempts_passed{run="a"} 1\n',
            'harborlight_run_attempts_passed{run="a"} NaN\n',
            "is nan",
        ),
        ("timestamp_seconds 1000", "timestamp_seconds +Inf", "is inf"),
        ('attempts{run="a",state="queued"} 1', 'attempts{run="a",state="queued"} 2', "= 7, but"),
        ('attempts{run="a",state="queued"} 1', 'attempts{run="a",state="queued"} 0', "= 5, but"),
        (
            'harborlight_run_attempts{run="a",state="unplanned"} 0\n',
            "",
            "has the states",
        ),
        (
            'harborlight_run_attempts{run="a",state="unplanned"} 0\n',
            'harborlight_run_attempts{run="a",state="asleep"} 0\n',
            "has the states",
        ),
        (
            'harborlight_run_attempts_passed{run="a"} 1\n',
            'harborlight_run_attempts_passed{run="a"} 3\n',
            "3 passed exceed 2 scored",
        ),
        (
            'harborlight_run_attempts_target{run="a"} 6\n',
            'harborlight_run_attempts_target{run="a"} 5\n',
            "its tasks' targets add up to 6, above its target 5",
        ),
        ('target{run="a",task="t2"} 3', 'target{run="a",task="t2"} 2', "but the target is 2"),
        ('target{run="a",task="t1"} 3', 'target{run="a",task="t1"} 1', "2 scored exceed"),
        (
            'attempts_passed{run="a",task="t2"} 0',
            'attempts_passed{run="a",task="t2"} 1',
            "1 passed exceed 0 scored",
        ),
    ],
)
def test_a_broken_page_is_caught(old: str, new: str, message: str) -> None:
    assert message in "\n".join(broken_promises(edited((old, new))))


def test_negative_attempts_are_caught_although_they_add_up() -> None:
    page = edited(
        ('attempts{run="a",state="queued"} 1', 'attempts{run="a",state="queued"} -1'),
        ('attempts{run="a",state="running"} 1', 'attempts{run="a",state="running"} 3'),
    )
    assert "has -1 queued attempts" in "\n".join(broken_promises(page))


def test_tasks_that_tell_another_story_than_the_run_are_caught() -> None:
    page = edited(
        ('task="t2",state="queued"} 1', 'task="t2",state="queued"} 0'),
        ('task="t2",state="running"} 0', 'task="t2",state="running"} 1'),
    )
    assert broken_promises(page) == [
        "run 'a': 2 running over its tasks, 1 running in the run",
        "run 'a': 0 queued over its tasks, 1 queued in the run",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('cause="serving"} 2', 'cause="serving"} 1', "fell from 2 to 1"),
        (
            'harborlight_run_faults_total{run="a",phase="verifier",cause="verifier"} 1\n',
            "",
            "was 1 and is gone",
        ),
        ('cause="serving"} 2', 'cause="serving"} 1', "3 faults were counted, now 2"),
        (
            '_seconds_sum{run="a",phase="agent"} 90.5',
            '_seconds_sum{run="a",phase="agent"} 90',
            "fell",
        ),
        ('le="60"} 1', 'le="60"} 0', "fell from 1 to 0"),
        ('target{run="a",task="t2"} 3', 'target{run="a",task="t2"} 2', "shrank from 3 to 2"),
        ('harborlight_run_attempts_target{run="a"} 6\n', "", "was 6 and is gone"),
    ],
)
def test_what_was_said_before_is_held(old: str, new: str, message: str) -> None:
    later = edited((old, new))
    assert message in "\n".join(broken_promises(later, Page(PAGE)))
    with pytest.raises(AssertionError, match="breaks its promises"):
        assert_promises(later, Page(PAGE))


def test_eventually_returns_the_first_true_result() -> None:
    answers = iter([0, 0, 7])
    assert eventually(lambda: next(answers), 5.0, interval=0.001) == 7


def test_eventually_gives_up_and_says_why() -> None:
    def never() -> bool:
        raise LookupError("nothing there")

    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"the thing did not hold .* nothing there"):
        eventually(never, 0.05, what="the thing")
    assert time.monotonic() - began < 5


def test_eventually_lets_other_errors_through() -> None:
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 / 0, 5.0)


STUB = """
import http.server, sys, pathlib
page = pathlib.Path(sys.argv[-1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = page.read_bytes() if self.path == "/metrics" else b"ok"
        self.send_response(200); self.end_headers(); self.wfile.write(body)
    def log_message(self, *args): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print('level=info msg="starting"', file=sys.stderr, flush=True)
address = f"127.0.0.1:{server.server_port}"
print(f'level=info msg="listening" address={address}', file=sys.stderr, flush=True)
server.serve_forever()
"""


@pytest.fixture
def stub_page(tmp_path: Path) -> Path:
    """The file that the stub exporter serves."""
    file = tmp_path / "page.txt"
    file.write_text(PAGE)
    return file


@pytest.fixture
def stub(tmp_path: Path, stub_page: Path) -> Iterator[ExporterProcess]:
    """A stand-in exporter that serves a file."""
    program = [sys.executable, "-c", STUB]
    with ExporterProcess([tmp_path], tmp_path, str(stub_page), program=program) as exporter:
        yield exporter


def test_an_exporter_process_is_found_by_its_log(stub: ExporterProcess) -> None:
    assert stub.ready()
    assert stub.value("harborlight_run_attempts", state="scored") == 2
    first = stub.address
    stub.restart(gracefully=False)
    assert stub.address != ""
    assert stub.value("harborlight_run_attempts_passed") == 1
    assert stub.terminate() == -15
    with pytest.raises(OSError, match="refused"):
        stub.page()
    assert first.startswith("127.0.0.1:")


def test_an_exporter_that_exits_at_once_is_a_failure(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "import sys; sys.exit('no such option')"]
    exporter = ExporterProcess([tmp_path], tmp_path, program=program)
    with pytest.raises(AssertionError, match=r"exited 1 at start\nits log:\nno such option"):
        exporter.start()


def test_a_paused_exporter_stands_still(stub: ExporterProcess) -> None:
    with stub.paused(), pytest.raises(OSError, match="timed out"):
        stub.fetch("/metrics", timeout=0.2)
    assert stub.ready()


def test_the_watcher_raises_what_it_saw(stub: ExporterProcess, stub_page: Path) -> None:
    # The watch fails at the end of its block, so the whole of it is in question.
    with (  # noqa: PT012
        pytest.raises(AssertionError, match="fell from 2 to 1"),
        Watcher(stub, 0.01) as watcher,
    ):
        eventually(lambda: watcher.pages)
        watcher.check()
        _replace(stub_page, PAGE.replace('cause="serving"} 2', 'cause="serving"} 1'))
        eventually(lambda: watcher.pages[-1].sum("harborlight_run_faults_total") == 2)


def test_the_watcher_compares_across_a_restart(stub: ExporterProcess, stub_page: Path) -> None:
    with (  # noqa: PT012 - as above
        pytest.raises(AssertionError, match="is gone"),
        Watcher(stub, 0.01) as watcher,
    ):
        eventually(lambda: watcher.pages)
        stub.kill()
        _replace(stub_page, "# nothing is known any more\n")
        stub.start()
        eventually(lambda: not watcher.pages[-1].samples)


def test_the_watcher_is_silent_on_good_pages(stub: ExporterProcess) -> None:
    with Watcher(stub, 0.01) as watcher:
        eventually(lambda: len(watcher.pages) > 3)
        watcher.check()
    assert watcher.highest("harborlight_run_attempts_target") == 6


def _replace(path: Path, text: str) -> None:
    """Swap a file's content in one step, so that no reader sees half of it."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


SEQUENCES = ["cancel-sigint", "cancel-sigint.resume", "mixed-6x5", "retry-2", "sep-regrade"]


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_playback_shows_exactly_what_was_recorded(
    name: str, snapshots: Path, tmp_path: Path
) -> None:
    job = tmp_path / name
    shown = 0
    for snapshot in Playback(job).play(Sequence(snapshots / name)):
        assert _on_disk(job) == _recorded(snapshot)
        shown += 1
    assert shown > 0


def test_a_playback_touches_only_what_differs(snapshots: Path, tmp_path: Path) -> None:
    job = tmp_path / "job"
    playback = Playback(job)
    rewritten = 0
    for before, after in pairwise(Sequence(snapshots / "mixed-6x5").distinct()):
        playback.show(before)
        times = {p: p.stat().st_ctime_ns for p in job.rglob("*") if p.is_file()}
        playback.show(after)
        for path, changed in times.items():
            relative = str(path.relative_to(job))
            if before.files[relative] == after.files.get(relative):
                assert path.stat().st_ctime_ns == changed
            else:
                rewritten += 1
    assert rewritten > 0


def test_recordings_of_one_job_join(snapshots: Path, tmp_path: Path) -> None:
    job = tmp_path / "cancel-sigint"
    first, second = (Sequence(snapshots / n) for n in ("cancel-sigint", "cancel-sigint.resume"))
    played = list(Playback(job).play(first, second))
    assert len(played) == len(first.distinct()) + len(second.distinct())
    assert _on_disk(job) == _recorded(played[-1])
    assert len(list(job.glob("*/result.json"))) == 18


def test_a_playback_can_lose_its_job(snapshots: Path, tmp_path: Path) -> None:
    playback = Playback(tmp_path / "job")
    last = Sequence(snapshots / "sep-regrade").distinct()[-1]
    playback.show(last)
    playback.show(Snapshot(0.0, {}, frozenset()))
    assert not playback.job.exists()
    playback.show(last)
    assert _on_disk(playback.job) == _recorded(last)


type Contents = dict[str, tuple[bytes, int] | None]


def _on_disk(job: Path) -> Contents:
    return {
        str(p.relative_to(job)): None if p.is_dir() else (p.read_bytes(), p.stat().st_mtime_ns)
        for p in job.rglob("*")
    }


def _recorded(snapshot: Snapshot) -> Contents:
    files: Contents = {
        path: (file.content.read_bytes(), file.mtime_ns) for path, file in snapshot.files.items()
    }
    return files | dict.fromkeys(snapshot.directories)


def test_the_recordings_unpack_with_their_times(harbor_jobs: Path, third_party: Path) -> None:
    assert len(list(harbor_jobs.iterdir())) == 20
    assert len(list(third_party.glob("*/trials/*/*/result.json"))) == 225
    assert (third_party / "LICENSE").exists()
    assert (third_party / "SOURCE").exists()
    written = (harbor_jobs / "mixed-6x5" / "result.json").stat().st_mtime
    assert datetime.fromtimestamp(written, UTC).isoformat() == "2026-12-01T01:31:58+00:00"


@pytest.mark.real_harbor
def test_a_real_job_runs_stops_and_resumes(tmp_path: Path) -> None:
    dataset = write_tasks(tmp_path / "words", ["one", "two"])
    script = {"default": ["ok", "hang", "wait:later,wrong"]}
    with HarborJob(tmp_path / "jobs", "words", tmp_path) as job:
        job.run(dataset, script=script, attempts=2, concurrent=2)
        eventually(lambda: job.agent_calls() == 4, 30.0, what="the two hanging agents")
        assert job.interrupt() == 130
        exceptions = [r["exception_info"] for r in job.trial_results()]
        assert [e["exception_type"] for e in exceptions if e] == ["CancelledError"] * 2

        job.resume()
        eventually(lambda: job.agent_calls() == 6, 30.0, what="the resumed agents")
        assert job.result()["finished_at"] is None
        job.open_gate("later")
        job.wait()
        rewards = [r["verifier_result"]["rewards"]["reward"] for r in job.trial_results()]
        assert sorted(rewards) == [0.0, 0.0, 1.0, 1.0]
        assert not job.running


@pytest.mark.real_harbor
def test_a_killed_job_leaves_its_trials_open(tmp_path: Path) -> None:
    dataset = write_tasks(tmp_path / "words", ["one"])
    with HarborJob(tmp_path / "jobs", "words", tmp_path) as job:
        job.run(dataset, script={"default": ["hang"]})
        eventually(lambda: job.agent_calls() == 1, 30.0, what="the hanging agent")
        job.kill()
        assert len(job.trials()) == 1
        assert job.trial_results() == []
