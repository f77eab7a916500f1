"""Job directories while Harbor, people and file systems do things to them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harborlight.records import TrialRecord
from harborlight.sources import job_directory
from harborlight.sources.harbor_files import read_trial_result
from harborlight.sources.job_directory import JobDirectorySource
from harborlight.sources.observation import Observation
from support.deadline import eventually

NOW = 1_800_000_000.0
JOB = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"


def write(path: Path, document: Any, at: float = NOW - 3600) -> None:
    """Write as Harbor does, in place; the modification time is the test's to choose."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
    os.utime(path, (at, at))


def plan(count: int, digest: str = "sha256:1") -> dict[str, Any]:
    entry = {"task": {"name": "t", "source": "set", "digest": digest}, "agent": {"name": "a"}}
    return {
        "created_at": "2027-01-15T07:00:00Z",
        "harbor": {"version": "0.26.0"},
        "trials": [entry] * count,
    }


class Job:
    """A job directory, written file by file."""

    def __init__(
        self, path: Path, job_id: str = JOB, count: int = 10, at: float = NOW - 3600
    ) -> None:
        self.path = path
        self.job_id = job_id
        path.mkdir(parents=True, exist_ok=True)
        (path / "job.log").touch()
        os.utime(path / "job.log", (NOW - 3600, NOW - 3600))
        self.config(at)
        self.lock(count, at)
        self.result(at=at)

    def config(self, at: float = NOW - 3600, **fields: Any) -> None:
        write(self.path / "config.json", {"n_attempts": 5, "agents": [{"name": "a"}]} | fields, at)

    def lock(self, count: int = 10, at: float = NOW - 3600) -> None:
        write(self.path / "lock.json", plan(count), at)

    def result(self, completed: int = 0, at: float = NOW - 3600, **fields: Any) -> None:
        document = {
            "id": self.job_id,
            "started_at": "2027-01-15T07:00:00Z",
            "updated_at": f"2027-01-15T07:00:{completed:02}Z",
            "n_total_trials": 10,
            "stats": {"n_completed_trials": completed},
        }
        write(self.path / "result.json", document | fields, at)

    def folder(self, n: int) -> Path:
        return self.path / f"t__{n:07}"

    def start(self, n: int, at: float = NOW - 3000) -> Path:
        write(self.folder(n) / "config.json", self.trial_config(n), at)
        return self.folder(n)

    def trial_config(self, n: int) -> dict[str, Any]:
        return {
            "task": {"path": "tasks/t", "source": "set"},
            "trial_name": f"t__{n:07}",
            "job_id": self.job_id,
            "agent": {"name": "a"},
        }

    def document(self, n: int, reward: float = 1.0, **fields: Any) -> dict[str, Any]:
        return {
            "id": f"{self.job_id[:4]}-{n}",
            "task_name": "t",
            "trial_name": f"t__{n:07}",
            "config": self.trial_config(n),
            "agent_info": {"name": "agent", "version": "1"},
            "verifier_result": {"rewards": {"reward": reward}},
            "finished_at": "2027-01-15T07:10:00Z",
        } | fields

    def finish(self, n: int, reward: float = 1.0, at: float = NOW - 2000, **fields: Any) -> Path:
        self.start(n)
        write(self.folder(n) / "result.json", self.document(n, reward, **fields), at)
        return self.folder(n) / "result.json"


class Watch:
    """A source, looked at with a clock of the test's own, and what it has said so far."""

    def __init__(self, *places: Path | str, now: float = NOW, **options: Any) -> None:
        self.source = JobDirectorySource(places, **options)
        self.now = now
        self.trials: dict[str, TrialRecord] = {}
        self.observation = Observation()

    def look(self, after: float = 0.0) -> Observation:
        self.now += after
        self.observation = self.source.look(self.now)
        self.trials |= {record.name: record for record in self.observation.trials}
        return self.observation

    @property
    def reward(self) -> dict[str, float | None]:
        return {name: dict(r.rewards).get("reward") for name, r in self.trials.items()}


def subjects(observation: Observation) -> set[str]:
    return {os.path.basename(problem.subject) for problem in observation.problems}


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with every trial result that is parsed."""
    calls: list[int] = []

    def counted(data: bytes, mtime_ns: int = 0) -> TrialRecord:
        calls.append(mtime_ns)
        return read_trial_result(data, mtime_ns)

    monkeypatch.setattr(job_directory, "read_trial_result", counted)
    return calls


def failing(
    monkeypatch: pytest.MonkeyPatch, name: str, path: Path, number: int = errno.EIO
) -> Callable[[], None]:
    """Let one call of ``os`` fail for one path; returns what ends it."""
    real = getattr(os, name)
    broken = [True]

    def call(given: Any, *arguments: Any, **named: Any) -> Any:
        if broken and os.fspath(given) == str(path):
            raise OSError(number, os.strerror(number), str(path))
        return real(given, *arguments, **named)

    monkeypatch.setattr(os, name, call)
    return broken.clear


# Finding.


def test_a_jobs_folder_a_job_and_a_pattern(jobs: Path) -> None:
    Job(jobs / "a").finish(1)
    Job(jobs / "b", OTHER).finish(2)
    for places, found in (
        ([jobs], {JOB, OTHER}),
        ([f"{jobs}/"], {JOB, OTHER}),
        ([jobs / "a"], {JOB}),
        ([jobs / "*"], {JOB, OTHER}),
        ([jobs / "[b-z]"], {OTHER}),
        ([jobs.parent / "j*"], {JOB, OTHER}),
        ([jobs, jobs / "a", jobs / "*"], {JOB, OTHER}),
    ):
        seen = Watch(*places).look()
        assert set(seen.jobs) == set(seen.present_jobs or ()) == found
        assert len(seen.trials) == len(found)
        assert not seen.failures and not seen.problems


def test_a_folder_named_like_a_pattern(tmp_path: Path) -> None:
    Job(tmp_path / "jobs[1]" / "a")
    assert set(Watch(tmp_path / "jobs[1]").look().jobs) == {JOB}


def test_a_pattern_without_a_match_and_a_missing_folder(jobs: Path) -> None:
    for place in (jobs / "tb4-*", jobs):
        watch = Watch(place)
        (failure,) = watch.look().failures
        assert failure.subject == str(place)
        job = Job(jobs / "tb4-main")
        seen = watch.look(5)
        assert not seen.failures
        assert seen.present_jobs == frozenset({JOB})
        shutil.rmtree(jobs)
        assert job.path.name == "tb4-main"


def test_an_empty_jobs_folder_is_no_failure(jobs: Path) -> None:
    jobs.mkdir()
    seen = Watch(jobs).look()
    assert (seen.jobs, seen.failures) == ({}, ())


@pytest.mark.parametrize("log", [True, False])
def test_a_trials_directory_given_by_mistake(jobs: Path, log: bool) -> None:
    job = Job(jobs / "a")
    job.finish(1)
    if log:
        (job.folder(1) / "trial.log").touch()
    seen = Watch(job.folder(1)).look()
    assert seen.trials == ()
    assert JOB not in seen.jobs
    assert seen.failures or seen.problems


def test_a_file_given_by_mistake(jobs: Path) -> None:
    job = Job(jobs / "a")
    (failure,) = Watch(job.path / "lock.json").look().failures
    assert failure.subject == str(job.path / "lock.json")


def test_a_jobs_place_taken_by_a_file(jobs: Path) -> None:
    job = Job(jobs / "a")
    watch = Watch(job.path)
    watch.look()
    shutil.rmtree(job.path)
    job.path.touch()
    seen = watch.look(5)
    assert seen.failures
    assert seen.present_jobs == frozenset()


def test_trials_without_job_files(third_party: Path) -> None:
    (folder,) = third_party.glob("*/trials")
    expected = len(list(folder.glob("*/*/result.json")))
    seen = Watch(folder).look()
    assert len(seen.trials) == expected == 225
    assert not seen.problems and not seen.failures
    assert {trial.job_id for trial in seen.trials} == set(seen.jobs) == set(seen.present_jobs or ())
    (one, *_) = sorted(folder.iterdir())
    assert len(Watch(one).look().trials) == len(list(one.glob("*/result.json")))


def test_hidden_folders_are_no_jobs_or_trials(jobs: Path) -> None:
    job = Job(jobs / "a")
    Job(jobs / ".hidden", OTHER)
    Job(jobs / ".sources" / "x", OTHER)
    hidden = Job(job.path / ".sources" / str(uuid.uuid4()), OTHER)
    hidden.finish(1)
    shutil.copytree(hidden.folder(1), job.path / ".t__0000001")
    seen = Watch(jobs).look()
    assert seen.present_jobs == frozenset({JOB})
    assert seen.trials == ()
    assert seen.jobs[JOB].listing == frozenset()


def test_links(jobs: Path, tmp_path: Path) -> None:
    Job(tmp_path / "elsewhere" / "real").finish(1)
    jobs.mkdir()
    (jobs / "linked").symlink_to(tmp_path / "elsewhere" / "real")
    (jobs / "dangling").symlink_to(tmp_path / "nowhere")
    (jobs / "self").symlink_to("self")
    (jobs / "up").symlink_to(jobs)
    seen = Watch(jobs).look()
    assert seen.present_jobs == frozenset({JOB})
    assert seen.jobs[JOB].record.name == "linked"
    assert len(seen.trials) == 1
    assert not seen.failures


def test_a_loop_of_links_within_a_job(jobs: Path) -> None:
    job = Job(jobs / "a")
    job.finish(1)
    (job.path / "t__looping").symlink_to("t__looping")
    (job.path / "t__selfref").symlink_to(job.path)
    watch = Watch(jobs)
    for _ in range(3):
        seen = watch.look(5)
        assert seen.present_jobs == frozenset({JOB})
    assert [r.execution for r in watch.trials.values()] == ["1111-1"]


@pytest.mark.parametrize("log", [True, False])
def test_job_names_that_look_like_trials(jobs: Path, log: bool) -> None:
    names = ("tb4__glm53ab", "main__0000001")
    for name, job_id in zip(names, (JOB, OTHER), strict=True):
        job = Job(jobs / name, job_id)
        job.finish(1)
        if not log:
            (job.path / "job.log").unlink()
    seen = Watch(jobs).look()
    assert {s.record.name for s in seen.jobs.values()} == set(names)
    assert {s.record.job_id for s in seen.jobs.values()} == {JOB, OTHER}
    assert len(seen.trials) == 2


def test_a_file_that_is_named_like_a_trial_makes_no_job(jobs: Path) -> None:
    Job(jobs / "a")
    (jobs / "notes__abcdefg").touch()
    assert Watch(jobs).look().present_jobs == frozenset({JOB})


def test_names_that_are_not_utf8(jobs: Path) -> None:
    job = Job(jobs / os.fsdecode(b"j\xff"))
    job.finish(1)
    odd = job.path / os.fsdecode(b"t\xfe__0000002")
    write(odd / "result.json", b"")
    watch = Watch(jobs)
    seen = watch.look()
    assert seen.jobs[JOB].record.name == "j\\xff"
    assert len(seen.trials) == 1
    (problem,) = seen.problems
    assert problem.subject.endswith("j\\xff/t\\xfe__0000002")


def test_a_folder_that_may_not_be_listed(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Job(jobs / "a").finish(1)
    closed = Job(jobs / "b", OTHER)
    closed.finish(2)
    permit = failing(monkeypatch, "scandir", closed.path, errno.EACCES)
    watch = Watch(jobs)
    seen = watch.look()
    assert {trial.job_id for trial in seen.trials} == {JOB}
    assert [failure.subject for failure in seen.failures] == [str(closed.path)]
    if OTHER in seen.jobs:  # its files may be read; what it holds is not known
        assert seen.jobs[OTHER].listing is None
    permit()
    seen = watch.look(5)
    assert {trial.job_id for trial in seen.trials} == {OTHER}
    assert not seen.failures
    assert seen.jobs[OTHER].listing == frozenset({"t__0000002"})


def test_a_jobs_folder_that_may_not_be_listed(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Job(jobs / "a")
    failing(monkeypatch, "scandir", jobs, errno.EACCES)
    (failure,) = Watch(jobs).look().failures
    assert failure.subject == str(jobs)
    assert os.strerror(errno.EACCES) in failure.reason


# Passing failures.


@pytest.mark.parametrize("where", ["", "a"])
@pytest.mark.parametrize("call", ["scandir", "stat"])
@pytest.mark.parametrize("place", ["", "*", "a"])
def test_a_passing_failure_makes_nothing_vanish(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, where: str, call: str, place: str
) -> None:
    Job(jobs / "a").finish(1)
    watch = Watch(jobs / place)
    before = watch.look()
    end = failing(monkeypatch, call, jobs / where if where else jobs)
    for _ in range(20):
        seen = watch.look(5)
        assert seen.present_jobs == frozenset({JOB})
        assert all(s.listing == before.jobs[JOB].listing for s in seen.jobs.values())
    end()
    seen = watch.look(5)
    assert seen.present_jobs == frozenset({JOB})
    assert not seen.failures
    assert JOB not in seen.jobs or seen.jobs[JOB].listing == before.jobs[JOB].listing


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ESTALE])
@pytest.mark.parametrize("name", ["config.json", "lock.json", "result.json"])
def test_a_job_file_that_cannot_be_opened_is_tried_again(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    """The file itself does not change when its permission does."""
    job = Job(jobs / "a")
    job.finish(1)
    end = failing(monkeypatch, "open", job.path / name, number)
    watch = Watch(jobs)
    assert watch.look().problems == ()
    assert subjects(watch.look(6)) == {name}
    assert watch.observation.jobs[JOB].unreadable_files == 1
    watch.look(60)
    end()
    seen = watch.look(5)
    assert seen.problems == ()
    sighting = seen.jobs[JOB]
    assert sighting.unreadable_files == 0
    assert sighting.resumable
    assert (sighting.record.n_attempts, sighting.record.n_total) == (5, 10)
    assert sighting.record.plan is not None


@pytest.mark.parametrize("name", ["config.json", "result.json"])
def test_a_trial_file_that_cannot_be_opened_is_tried_again(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    job = Job(jobs / "a")
    job.start(1)
    if name == "result.json":
        job.finish(1)
    end = failing(monkeypatch, "open", job.folder(1) / name, errno.EACCES)
    watch = Watch(jobs)
    assert watch.look().problems == ()
    assert subjects(watch.look(6)) == {"t__0000001"}
    assert all(record.open or record.unreadable for record in watch.trials.values())
    assert watch.look(60).trials == ()  # said once
    end()
    seen = watch.look(60)
    assert seen.problems == ()
    (record,) = seen.trials
    assert (record.open, record.unreadable) == (name == "config.json", False)


def test_a_finished_trial_that_cannot_be_opened_for_a_while(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(jobs / "a")
    path = job.finish(1)
    watch = Watch(jobs)
    watch.look()
    write(path, job.document(1, 0.0), NOW - 10)
    end = failing(monkeypatch, "open", path)
    for _ in range(15):
        watch.look(5)
    assert subjects(watch.observation) == {"t__0000001"}
    assert watch.reward == {"t__0000001": 1.0}
    end()
    for _ in range(12):
        watch.look(5)
    assert watch.observation.problems == ()
    assert watch.reward == {"t__0000001": 0.0}


def test_a_folder_never_listed_is_not_an_empty_one(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(jobs / "a")
    job.finish(1)
    end = failing(monkeypatch, "scandir", job.path)
    watch = Watch(job.path, jobs)
    seen = watch.look()
    assert seen.failures
    assert all(sighting.listing is None for sighting in seen.jobs.values())
    end()
    assert watch.look(5).jobs[JOB].listing == frozenset({"t__0000001"})


# What is parsed.


def test_only_what_is_new_or_changed_is_parsed(jobs: Path, parsed: list[int]) -> None:
    job = Job(jobs / "a")
    for n in range(40):
        job.finish(n)
    job.start(90)
    watch = Watch(jobs)
    assert len(watch.look().trials) == 41
    assert len(parsed) == 40
    for _ in range(40):
        seen = watch.look(5)
        assert (seen.trials, dict(seen.jobs)) == ((), {})
        assert seen.present_jobs == frozenset({JOB})
    assert len(parsed) == 40
    job.finish(91)
    job.finish(90)
    assert {r.name for r in watch.look(5).trials} == {"t__0000090", "t__0000091"}
    assert len(parsed) == 42


def test_starting_anew_brings_everything(jobs: Path, parsed: list[int]) -> None:
    job = Job(jobs / "a")
    job.finish(1)
    watch = Watch(jobs)
    first = watch.look()
    watch.source.start_anew()
    again = watch.look(5)
    assert (dict(again.jobs), again.trials) == (dict(first.jobs), first.trials)
    assert len(parsed) == 2


def test_progress_is_told(jobs: Path) -> None:
    Job(jobs / "a").finish(1)
    Job(jobs / "b", OTHER).finish(2)
    told: list[int] = []
    JobDirectorySource([jobs]).look(NOW, progress=told.append)
    assert told == [1, 2]


# Open trials.


def test_when_a_trial_is_open(jobs: Path) -> None:
    job = Job(jobs / "a")
    folder = job.folder(1)
    watch = Watch(jobs)
    folder.mkdir()
    assert watch.look(5).trials == ()
    write(folder / "lock.json", {"task": {"name": "t", "digest": "sha256:9"}})
    assert watch.look(5).trials == ()
    job.start(1, at=NOW - 7)
    (record,) = watch.look(5).trials
    assert record.open
    assert (record.started_at, record.job_id, record.digest) == (NOW - 7, JOB, "sha256:1")
    assert watch.look(5).trials == ()
    job.finish(1, 0.5)
    (record,) = watch.look(5).trials
    assert not record.open
    assert (record.execution, record.reward_valid) == ("1111-1", True)
    assert watch.observation.problems == ()


def test_the_digest_comes_from_the_trials_lock_where_the_jobs_has_several(jobs: Path) -> None:
    job = Job(jobs / "a")
    document = plan(2)
    document["trials"] = [*plan(1, "sha256:1")["trials"], *plan(1, "sha256:2")["trials"]]
    write(job.path / "lock.json", document)
    job.finish(1)
    write(job.folder(1) / "lock.json", {"task": {"name": "t", "digest": "sha256:2"}})
    job.finish(2)  # an older Harbor writes no trial lock
    watch = Watch(jobs)
    watch.look()
    assert {r.name[-1]: r.digest for r in watch.trials.values()} == {"1": "sha256:2", "2": None}


@pytest.mark.parametrize("locked", [None, "9d5c1f9a-61a4-4c5e-8a8e-f6b9a7f5a001"])
@pytest.mark.parametrize("count", [0, 10])
def test_a_regrade_without_its_sources_id_stays_a_regrade(
    jobs: Path, locked: str | None, count: int
) -> None:
    job = Job(jobs / "a", count=count)
    source = {"action": "regrade", "type": "local", "path": "/jobs/x/y"}
    job.finish(1, config=job.trial_config(1) | {"source_trial": source})
    lock = {"task": {"name": "t"}, "source_trial": {"trial_id": locked}}
    write(job.folder(1) / "lock.json", lock)
    (record,) = Watch(jobs).look().trials
    assert record.source_trial == (locked or "")


def test_a_retry_is_a_new_start_and_a_new_result(jobs: Path) -> None:
    job = Job(jobs / "a")
    job.finish(1, exception_info={"exception_type": "ValueError"})
    watch = Watch(jobs)
    watch.look()
    shutil.rmtree(job.folder(1))
    watch.look(5)
    assert watch.observation.jobs[JOB].listing == frozenset()
    job.start(1, at=NOW - 100)
    (record,) = watch.look(5).trials
    assert record.open and record.started_at == NOW - 100
    job.finish(1, id="second")
    (record,) = watch.look(5).trials
    assert record.execution == "second"


def test_a_retry_that_was_over_between_two_looks(jobs: Path) -> None:
    job = Job(jobs / "a")
    for n in range(30):
        job.finish(n)
    job.finish(30, exception_info={"exception_type": "ValueError"})
    watch = Watch(jobs)
    watch.look()
    shutil.rmtree(job.folder(30))
    job.finish(30, id="second", at=NOW - 1000)
    (record,) = watch.look(5).trials  # at once, not in its turn
    assert record.execution == "second"


# Files that are being written, and broken ones.

HALF = [b"", b"{", b'{"id": "11', b"\0" * 9]


@pytest.mark.parametrize("bad", [*HALF, "tail", "utf8"])
def test_a_trial_result_that_is_being_written(jobs: Path, bad: Any) -> None:
    job = Job(jobs / "a")
    path = job.start(1) / "result.json"
    watch = Watch(jobs)
    watch.look()
    whole = json.dumps(job.document(1)).encode()
    data = {"tail": whole + b'"}}', "utf8": whole[:-1] + b', "x": "\xff"}'}.get(bad, bad)
    write(path, data, at=watch.now + 1)
    seen = watch.look(1)
    assert (seen.trials, seen.problems, seen.unsettled) == ((), (), 1)
    seen = watch.look(4.5)
    assert (seen.trials, seen.problems, seen.unsettled) == ((), (), 1)
    write(path, whole, at=watch.now)
    (record,) = watch.look(0.5).trials
    assert (record.reward_valid, record.unreadable) == (True, False)
    assert (watch.observation.problems, watch.observation.unsettled) == ((), 0)


@pytest.mark.parametrize("bad", HALF)
def test_a_trial_result_that_stays_broken(jobs: Path, bad: bytes) -> None:
    job = Job(jobs / "a")
    path = job.start(1) / "result.json"
    watch = Watch(jobs)
    watch.look()
    write(path, bad, at=watch.now)
    for _ in range(4):
        assert watch.look(1).trials == ()
    write(path, bad + b" ", at=watch.now)  # touched: it counts from here
    for _ in range(4):
        assert watch.look(1).problems == ()
    (record,) = watch.look(1.5).trials
    assert record.unreadable and not record.open
    assert (record.job_id, record.name) == (JOB, "t__0000001")
    assert subjects(watch.observation) == {"t__0000001"}
    assert watch.observation.jobs[JOB].unreadable_files == 1
    assert watch.observation.unsettled == 0
    seen = watch.look(5)
    assert (seen.trials, dict(seen.jobs)) == ((), {})
    assert subjects(seen) == {"t__0000001"}
    job.finish(1, at=watch.now)
    (record,) = watch.look(5).trials
    assert record.reward_valid
    assert watch.observation.jobs[JOB].unreadable_files == 0
    assert watch.observation.problems == ()


def test_an_old_broken_result_is_reported_at_the_first_look(jobs: Path) -> None:
    job = Job(jobs / "a")
    write(job.start(1) / "result.json", b"")
    (record,) = Watch(jobs).look().trials
    assert record.unreadable


@pytest.mark.parametrize("ahead", [60.0, 1e6])
def test_a_broken_result_from_the_future_settles_too(jobs: Path, ahead: float) -> None:
    job = Job(jobs / "a")
    job.finish(2, at=NOW + ahead)
    write(job.start(1) / "result.json", b"", at=NOW + ahead)
    write(job.path / "lock.json", b"", at=NOW + ahead)
    watch = Watch(jobs)
    assert watch.look().problems == ()
    assert watch.look(4).problems == ()
    assert subjects(watch.look(2)) == {"t__0000001", "lock.json"}
    assert watch.trials["t__0000001"].unreadable
    assert watch.trials["t__0000002"].reward_valid


def test_a_clock_that_is_set_back(jobs: Path) -> None:
    job = Job(jobs / "a")
    job.finish(2)
    write(job.start(1) / "result.json", b"", at=NOW)
    write(job.path / "lock.json", b"", at=NOW)
    watch = Watch(jobs)
    watch.look()
    watch.look(-7200)
    job.finish(3)
    assert [record.name for record in watch.look(3).trials] == ["t__0000003"]
    assert subjects(watch.look(3)) == {"t__0000001", "lock.json"}
    job.finish(4)
    write(job.finish(2), job.document(2, 0.25), at=watch.now)
    for _ in range(12):
        watch.look(5)
    assert watch.reward["t__0000002"] == 0.25
    assert "t__0000004" in watch.trials


@pytest.mark.parametrize("name", ["config.json", "lock.json", "result.json"])
@pytest.mark.parametrize("bad", HALF)
def test_a_job_file_keeps_its_last_good_value(jobs: Path, name: str, bad: bytes) -> None:
    job = Job(jobs / "a")
    job.result(3)
    watch = Watch(jobs)
    first = watch.look().jobs[JOB]
    write(job.path / name, bad, at=watch.now)
    for _ in range(4):
        seen = watch.look(1)
        assert (seen.problems, seen.unsettled) == ((), 1)
        assert seen.present_jobs == frozenset({JOB})
        for sighting in seen.jobs.values():
            assert (sighting.unreadable_files, sighting.resumable) == (0, True)
            assert sighting.record.n_completed == 3
    settled = watch.look(1.5).jobs[JOB]
    assert subjects(watch.observation) == {name}
    assert (settled.unreadable_files, settled.resumable) == (1, False)
    assert settled.record.plan == first.record.plan
    assert settled.record.n_total == 10
    mend: dict[str, Callable[[], None]] = {
        "config.json": job.config,
        "lock.json": job.lock,
        "result.json": job.result,
    }
    mend[name]()
    mended = watch.look(5).jobs[JOB]
    assert (mended.unreadable_files, mended.resumable) == (0, True)
    assert watch.observation.problems == ()


def test_a_tail_behind_a_job_result_is_not_read_over(jobs: Path) -> None:
    job = Job(jobs / "a")
    watch = Watch(jobs)
    watch.look()
    path = job.path / "result.json"
    write(path, path.read_bytes().replace(b'trials": 0', b'trials": 9') + b"}}", at=watch.now)
    seen = watch.look(1)
    assert seen.unsettled == 1
    assert JOB not in seen.jobs or seen.jobs[JOB].record.n_completed == 0


@pytest.mark.parametrize("missing", ["config.json", "lock.json", "result.json"])
def test_a_job_without_one_of_its_files_cannot_be_resumed(jobs: Path, missing: str) -> None:
    job = Job(jobs / "a")
    job.finish(1)
    assert Watch(jobs).look().jobs[JOB].resumable
    (job.path / missing).unlink()
    assert not Watch(jobs).look().jobs[JOB].resumable


def each_within_a_minute(watch: Watch, done: Callable[[], bool]) -> None:
    for _ in range(12):
        watch.look(5)
        if done():
            return
    pytest.fail("not noticed within 60 s")


@pytest.mark.parametrize("n", [0, 1, 17, 38, 39])
def test_a_finished_trial_rewritten_in_place(jobs: Path, n: int) -> None:
    job = Job(jobs / "a")
    for k in range(40):
        job.finish(k)
    watch = Watch(jobs)
    watch.look()
    job.finish(n, 0.0, at=NOW)
    each_within_a_minute(watch, lambda: watch.reward[f"t__{n:07}"] == 0.0)


@pytest.mark.parametrize("n", [0, 21, 39])
@pytest.mark.parametrize("bad", [b"", b"{", b"\xff\xfe", b'{"id": 1}'])
def test_a_finished_trial_broken_in_place(jobs: Path, n: int, bad: bytes) -> None:
    job = Job(jobs / "a")
    for k in range(40):
        job.finish(k)
    watch = Watch(jobs)
    watch.look()
    before = dict(watch.trials)
    write(job.folder(n) / "result.json", bad, at=NOW - 100)
    each_within_a_minute(watch, lambda: subjects(watch.observation) == {f"t__{n:07}"})
    assert watch.trials == before
    assert watch.observation.jobs[JOB].listing == frozenset(f"t__{k:07}" for k in range(40))
    watch.look(60)
    assert subjects(watch.observation) == {f"t__{n:07}"}
    job.finish(n, 0.5, at=NOW)
    each_within_a_minute(watch, lambda: watch.reward[f"t__{n:07}"] == 0.5)
    assert watch.observation.problems == ()


def test_a_deleted_result_is_an_open_trial_of_the_same_start(jobs: Path) -> None:
    """The ledger, which has the result, knows what to make of it."""
    job = Job(jobs / "a")
    path = job.finish(1)
    watch = Watch(jobs)
    watch.look()
    path.unlink()
    each_within_a_minute(watch, lambda: watch.trials["t__0000001"].open)
    assert watch.observation.problems == ()
    assert watch.trials["t__0000001"].started_at == NOW - 3000
    job.finish(1)
    (record,) = watch.look(5).trials
    assert record.reward_valid


def test_a_deleted_result_that_was_broken(jobs: Path) -> None:
    job = Job(jobs / "a")
    write(job.start(1) / "result.json", b"")
    watch = Watch(jobs)
    assert subjects(watch.look()) == {"t__0000001"}
    (job.folder(1) / "result.json").unlink()
    assert watch.look(5).problems == ()
    assert watch.observation.jobs[JOB].unreadable_files == 0


def test_a_trial_of_which_nothing_can_be_read_still_stands(jobs: Path) -> None:
    """After a restart, its name in the listing is all that tells that it did not vanish."""
    job = Job(jobs / "a")
    write(job.folder(1) / "config.json", b"")
    write(job.folder(1) / "result.json", b"")
    sighting = Watch(jobs).look().jobs[JOB]
    assert sighting.listing == frozenset({"t__0000001"})
    assert sighting.unreadable_files == 1


# Directories that come and go.


def test_a_directory_that_vanishes_and_comes_back(jobs: Path, tmp_path: Path) -> None:
    job = Job(jobs / "a")
    job.finish(1)
    watch = Watch(jobs)
    watch.look()
    job.path.rename(tmp_path / "away")
    seen = watch.look(5)
    assert (seen.present_jobs, dict(seen.jobs), seen.failures) == (frozenset(), {}, ())
    (tmp_path / "away").rename(job.path)
    seen = watch.look(5)
    assert set(seen.present_jobs or ()) == set(seen.jobs) == {JOB}
    assert len(seen.trials) == 1


def test_a_new_job_in_an_old_ones_place(jobs: Path, tmp_path: Path) -> None:
    old = Job(jobs / "a")
    old.finish(1)
    watch = Watch(jobs)
    watch.look()
    old.path.rename(tmp_path / "kept")  # so that the directory's number is not used again
    new = Job(jobs / "a", OTHER, count=3)
    new.finish(2)
    seen = watch.look(5)
    assert set(seen.present_jobs or ()) == set(seen.jobs) == {OTHER}
    assert [record.job_id for record in seen.trials] == [OTHER]


def clear(folder: Path) -> None:
    for child in folder.iterdir():
        if child.is_dir():
            shutil.rmtree(child)
        else:
            child.unlink()


def test_a_new_job_in_a_directory_of_the_same_number(jobs: Path) -> None:
    old = Job(jobs / "a", count=10)
    old.finish(1)
    watch = Watch(jobs)
    before = watch.look().jobs[JOB]
    clear(old.path)
    # Harbor's order of writing, with a look after each.
    (old.path / "job.log").touch()
    looks = [watch.look(1)]
    new = Job.__new__(Job)
    new.path, new.job_id = old.path, OTHER
    new.config(at=NOW, n_attempts=7)
    looks.append(watch.look(1))
    new.lock(3, at=NOW)
    looks.append(watch.look(1))
    for seen in looks:
        if JOB in seen.jobs:
            assert seen.jobs[JOB].record.plan == before.record.plan
            assert seen.jobs[JOB].record.n_attempts == before.record.n_attempts
    new.result(at=NOW)
    new.finish(2)
    seen = watch.look(1)
    assert seen.present_jobs == frozenset({OTHER})
    record = seen.jobs[OTHER].record
    assert (record.n_attempts, [entry.count for entry in record.plan or ()]) == (7, [3])
    assert seen.jobs[OTHER].listing == frozenset({"t__0000002"})


def test_a_new_job_written_over_an_old_one(jobs: Path) -> None:
    old = Job(jobs / "a")
    old.finish(1)
    watch = Watch(jobs)
    watch.look()
    shutil.rmtree(old.folder(1))
    new = Job(jobs / "a", OTHER, count=4, at=NOW)
    new.finish(1)
    seen = watch.look(5)
    assert seen.present_jobs == frozenset({OTHER})
    assert [record.job_id for record in seen.trials] == [OTHER]
    assert [entry.count for entry in seen.jobs[OTHER].record.plan or ()] == [4]


def test_trials_without_a_job_id_move_to_the_job_once_it_is_known(jobs: Path) -> None:
    """Old trials do not say whose they are; the job's result could not be read at first."""
    job = Job(jobs / "a")
    config = job.trial_config(1)
    del config["job_id"]
    job.finish(1, config=config)
    write(job.path / "result.json", b"", at=NOW)
    watch = Watch(jobs)
    (record,) = watch.look().trials
    assert record.job_id == "dir:a"
    job.result(1)
    (record,) = watch.look(1).trials
    assert record.job_id == JOB
    assert watch.observation.present_jobs == frozenset({JOB})


def test_a_renamed_directory_is_the_same_job(jobs: Path) -> None:
    job = Job(jobs / "a")
    job.finish(1)
    watch = Watch(jobs)
    watch.look()
    job.path.rename(jobs / "renamed")
    seen = watch.look(5)
    assert seen.present_jobs == frozenset({JOB})
    assert seen.jobs[JOB].record.name == "renamed"
    assert seen.jobs[JOB].listing == frozenset({"t__0000001"})


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("together", [True, False])
def test_of_copies_the_latest_state_wins(
    jobs: Path, names: tuple[str, str], together: bool
) -> None:
    early = Job(jobs / names[0])
    early.result(2)
    early.finish(1)
    watch = Watch(jobs)
    if not together:
        watch.look()
    late = Job(jobs / names[1])
    late.result(5, finished_at="2027-01-15T09:00:00Z")
    late.finish(2)
    sighting = watch.look(5).jobs[JOB]
    assert (sighting.record.n_completed, sighting.record.name) == (5, names[1])
    assert sighting.record.finished_at is not None
    assert sighting.listing == frozenset({"t__0000001", "t__0000002"})


def test_a_copy_that_is_removed_takes_its_trials_and_troubles_with_it(jobs: Path) -> None:
    Job(jobs / "a").finish(1)
    copy = Job(jobs / "b")
    copy.finish(2)
    write(copy.path / "lock.json", b"")
    watch = Watch(jobs)
    sighting = watch.look().jobs[JOB]
    assert (sighting.unreadable_files, len(sighting.listing or ())) == (1, 2)
    shutil.rmtree(copy.path)
    sighting = watch.look(5).jobs[JOB]
    assert sighting.unreadable_files == 0 and sighting.listing == frozenset({"t__0000001"})


def test_a_resume_rewrites_the_jobs_files(jobs: Path) -> None:
    job = Job(jobs / "a")
    job.result(5, n_total_trials=10, finished_at="2027-01-15T08:00:00Z")
    watch = Watch(jobs)
    first = watch.look().jobs[JOB].record
    assert first.finished_at is not None
    job.config(at=NOW + 5)
    job.lock(at=NOW + 5)
    job.result(6, at=NOW + 5)
    record = watch.look(6).jobs[JOB].record
    assert (record.finished_at, record.n_completed, record.incarnation) == (None, 6, NOW + 5)
    assert record.plan == first.plan


# Who holds the log.


@pytest.fixture
def job(jobs: Path) -> Job:
    return Job(jobs / "a")


@pytest.mark.parametrize("mode", ["w", "a", "r+"])
def test_a_log_that_is_held_for_writing(job: Job, mode: str) -> None:
    watch = Watch(job.path)
    assert watch.look().jobs[JOB].held is False
    with (job.path / "job.log").open(mode):
        assert watch.look(5).jobs[JOB].held is True
        assert JOB not in watch.look(5).jobs or watch.observation.jobs[JOB].held
    assert watch.look(5).jobs[JOB].held is False


@pytest.fixture
def run() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def holds(process: subprocess.Popen[bytes], path: Path) -> bool:
    folder = f"/proc/{process.pid}/fd"
    return str(path) in {os.readlink(f"{folder}/{n}") for n in os.listdir(folder)}


def test_a_process_that_writes_and_ends(
    job: Job, run: Callable[..., subprocess.Popen[bytes]]
) -> None:
    log = job.path / "job.log"
    process = run("sh", "-c", 'exec 9>>"$1"; read line', "sh", str(log))
    eventually(lambda: holds(process, log))
    watch = Watch(job.path)
    assert watch.look().jobs[JOB].held is True
    process.kill()
    process.wait()
    assert watch.look(5).jobs[JOB].held is False


def test_a_reader_does_not_hold_it(job: Job, run: Callable[..., subprocess.Popen[bytes]]) -> None:
    log = job.path / "job.log"
    process = run("tail", "-f", str(log))
    eventually(lambda: holds(process, log))
    assert Watch(job.path).look().jobs[JOB].held is False


def test_a_log_of_the_same_name_elsewhere_is_not_this_one(job: Job, jobs: Path) -> None:
    other = Job(jobs / "b", OTHER)
    with (other.path / "job.log").open("a"):
        seen = Watch(jobs).look()
    assert (seen.jobs[JOB].held, seen.jobs[OTHER].held) == (False, True)


def test_a_log_replaced_while_its_writer_has_the_old_one(job: Job) -> None:
    log = job.path / "job.log"
    with log.open("a"):
        watch = Watch(job.path)
        assert watch.look().jobs[JOB].held is True
        log.rename(log.with_suffix(".old"))
        log.touch()
        assert watch.look(5).jobs[JOB].held is False


def test_a_log_of_another_user_tells_nothing(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = (job.path / "job.log").stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert Watch(job.path).look().jobs[JOB].held is None


def test_without_a_log_nothing_is_told(job: Job) -> None:
    (job.path / "job.log").unlink()
    assert Watch(job.path).look().jobs[JOB].held is None


def test_half_a_copy_opens_nothing_that_is_done(copy_jobs: Callable[..., Path]) -> None:
    """A copy that has a trial's configuration but not yet its result says nothing new."""
    jobs = copy_jobs("retry-2")
    source = JobDirectorySource([jobs])
    source.look(NOW)
    copied = jobs / "copy"
    shutil.copytree(jobs / "retry-2", copied, ignore=shutil.ignore_patterns("result.json"))
    seen = source.look(NOW + 10)
    assert [record for record in seen.trials if record.open] == []


def test_what_was_recorded_waits_for_its_job_to_be_known(tmp_path: Path) -> None:
    """The only trial waits for its retry, and the job's result is just being written."""
    job, result = tmp_path / "job", tmp_path / "job" / "result.json"
    job.mkdir()
    (job / "config.json").write_text("{}")
    (job / "job.log").touch()
    result.touch()
    config = {"task": {"name": "task"}, "job_id": "job-1", "trial_name": "task__1234567"}
    ended = {
        "id": "execution-1",
        "task_name": "task",
        "trial_name": "task__1234567",
        "config": config,
        "agent_info": {"name": "oracle"},
        "exception_info": {"exception_type": "ApiError"},
    }
    event = {"v": 1, "at": 100, "event": "end", "trial": "task__1234567", "result": ended}
    (job / "harborlight-events.jsonl").write_text(json.dumps(event) + "\n")
    source = JobDirectorySource([job])
    assert source.look(NOW).trials == ()
    result.write_text(
        json.dumps({"id": "job-1", "n_total_trials": 1, "started_at": "2026-12-01T00:00:00"})
    )
    assert [record.execution for record in source.look(NOW + 1).trials] == ["execution-1"]
    assert source.look(NOW + 2).trials == ()


def test_a_copy_without_its_trials_is_not_the_one_to_resume(
    copy_jobs: Callable[..., Path],
) -> None:
    """A resume runs again what it does not find: in a copy without trials all of them."""
    jobs = copy_jobs("faulty-oracle")
    whole, thin = jobs / "faulty-oracle", jobs / "later-by-name"
    shutil.copytree(whole, thin)
    trials = sorted(path.name for path in thin.glob("*__*"))
    for name in trials[1:]:
        shutil.rmtree(thin / name)
    source = JobDirectorySource([jobs])
    ((job_id, sighting),) = source.look(2e9).jobs.items()
    assert (source.directory_of(job_id), sighting.resumable) == (whole, True)
    # Now no copy has all of them.
    shutil.rmtree(whole / trials[0])
    source = JobDirectorySource([jobs])
    (sighting,) = source.look(2e9).jobs.values()
    assert (source.directory_of(job_id), sighting.resumable) == (whole, False)


def test_a_copy_of_before_a_resume_keeps_nobody_from_another(
    copy_jobs: Callable[..., Path],
) -> None:
    """Its trials went with the resume; there is nothing to miss."""
    jobs = copy_jobs("cancel-sigint", "cancel-sigint.before-resume")
    source = JobDirectorySource([jobs])
    ((job_id, sighting),) = source.look(2e9).jobs.items()
    assert (source.directory_of(job_id), sighting.resumable) == (jobs / "cancel-sigint", True)
