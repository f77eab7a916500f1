"""A job's log: the lines on retries in it, and what is made of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harborlight.records import TaskRef, TrialRecord
from harborlight.sources.job_directory import JobDirectorySource
from harborlight.sources.job_log import JobLog
from harborlight.sources.recorder_file import RecorderFile


def line(trial: str, exceptions: str = "ApiError", seconds: str = "1.50") -> str:
    """As Harbor writes it (``harbor.trial.queue``)."""
    return f"Trial {trial} failed with exception {exceptions}. Retrying in {seconds} seconds...\n"


def append(folder: Path, *lines: str) -> None:
    with (folder / "job.log").open("a") as log:
        log.writelines(lines)


def numbers(log: JobLog) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(retry.trial, retry.number, retry.exceptions) for retry in log.pending]


class TestLines:
    """What is read from the log."""

    def test_recorded(self, harbor_jobs: Path) -> None:
        log = JobLog(str(harbor_jobs / "retry-2"))
        log.read_on(7.0)
        assert [(trial.partition("__")[0], n, kinds) for trial, n, kinds in numbers(log)] == [
            ("flaky-api", 1, ("ApiRateLimitError",)),
            ("hard-api", 1, ("ApiInternalServerError",)),
            ("plain-value-error", 1, ("ValueError",)),
            ("flaky-api", 2, ("ApiRateLimitError",)),
            ("hard-api", 2, ("ApiInternalServerError",)),
        ]
        assert {retry.seen for retry in log.pending} == {7.0}

    def test_each_once_as_the_log_grows(self, tmp_path: Path) -> None:
        log = JobLog(str(tmp_path))
        log.read_on(1.0)
        append(tmp_path, "something else\n", line("a__1234567"), line("a__1234567")[:-9])
        log.read_on(2.0)
        assert numbers(log) == [("a__1234567", 1, ("ApiError",))]
        append(tmp_path, line("a__1234567")[-9:])
        log.read_on(3.0)
        log.read_on(4.0)
        assert numbers(log)[1:] == [("a__1234567", 2, ("ApiError",))]

    def test_a_new_log_is_read_from_its_beginning(self, tmp_path: Path) -> None:
        log = JobLog(str(tmp_path))
        append(tmp_path, line("a__1234567"), line("a__1234567"))
        log.read_on(1.0)
        (tmp_path / "new").write_text(line("b__1234567"))
        os.replace(tmp_path / "new", tmp_path / "job.log")
        log.read_on(2.0)
        assert numbers(log) == [("b__1234567", 1, ("ApiError",))]

    @pytest.mark.parametrize(
        "bad",
        [
            line("a__1234567").replace("Trial", "trial"),
            line("two words"),
            line("a__1234567", seconds="soon"),
            line("a__1234567")[:-1] + " and more\n",
            line("a" * 300),
            line("a__1234567", "E" * 20_000),
            line("a__1234567", "Error: no such host"),
        ],
    )
    def test_what_is_no_such_line(self, tmp_path: Path, bad: str) -> None:
        append(tmp_path, bad, line("b__1234567"))
        log = JobLog(str(tmp_path))
        log.read_on(1.0)
        assert numbers(log) == [("b__1234567", 1, ("ApiError",))]

    def test_only_the_types_are_kept(self, tmp_path: Path) -> None:
        append(tmp_path, line("a__1234567", "ApiError, sk-12 34, ApiError"))
        log = JobLog(str(tmp_path))
        log.read_on(1.0)
        assert numbers(log) == [("a__1234567", 1, ("ApiError", "other"))]

    def test_a_pipe_in_its_place_does_not_hang(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "job.log")
        log = JobLog(str(tmp_path))
        log.read_on(1.0)
        assert log.pending == []


class TestRecords:
    """What the source hands on, of the recorded job: 5 retries that nothing else tells of."""

    @pytest.fixture
    def job(self, copy_jobs: Callable[..., Path]) -> Path:
        return copy_jobs("retry-2") / "retry-2"

    @staticmethod
    def retried(source: JobDirectorySource, now: float) -> list[TrialRecord]:
        return [record for record in source.look(now).trials if record.retry]

    def test_a_single_look(self, job: Path) -> None:
        found = self.retried(JobDirectorySource([job]), 2e9)
        assert sorted((r.task.name, r.retry, r.reward_valid) for r in found) == [
            ("flaky-api", 1, False),
            ("flaky-api", 2, False),
            ("hard-api", 1, False),
            ("hard-api", 2, False),
            ("plain-value-error", 1, True),
        ]
        assert {(r.started_at, r.finished_at, r.rewards) for r in found} == {(None, None, ())}
        assert all(r.digest and r.agent for r in found)

    def test_later_lines_wait_for_what_else_may_tell_of_them(self, job: Path) -> None:
        """The file of the recorder can be seen later than the log, over a network."""
        whole = (job / "job.log").read_text()
        (job / "job.log").write_text("")
        source = JobDirectorySource([job], settle_seconds=5.0)
        assert self.retried(source, 1000.0) == []
        append(job, whole)
        assert self.retried(source, 1001.0) == []
        assert self.retried(source, 1005.0) == []
        assert len(self.retried(source, 1006.0)) == 5
        assert self.retried(source, 1100.0) == []

    def test_no_more_than_harbor_counted(self, job: Path) -> None:
        """What looks like Harbor's lines can be a trial's own output."""
        append(job, *[line(path.name) for path in sorted(job.glob("*__*"))])
        assert len(self.retried(JobDirectorySource([job]), 2e9)) == 5

    def test_a_trial_whose_directory_is_gone_is_known_by_its_plan(self, job: Path) -> None:
        for folder in job.glob("flaky-api__*"):
            folder.rename(job.parent / "elsewhere")
        found = self.retried(JobDirectorySource([job]), 2e9)
        tasks = {r.task for r in found}
        assert TaskRef("retry", "flaky-api") in tasks
        assert len(found) == 5

    def test_names_that_lead_elsewhere(self, job: Path) -> None:
        (job.parent / "x__1234567").mkdir()
        (job.parent / "x__1234567" / "config.json").write_text("{}")
        log = (job / "job.log").read_text()
        (job / "job.log").write_text(line("../x__1234567") + line("/etc__1234567") + log)
        assert len(self.retried(JobDirectorySource([job]), 2e9)) == 5

    def test_what_the_recorder_has_is_not_told_again(
        self, job: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It saw the first execution of each trial end, then gave up: the second ones are left."""

        def first_ones(self: RecorderFile) -> list[TrialRecord]:
            self.ended.update({path.name: 1 for path in job.glob("*__*")})
            return []

        monkeypatch.setattr(RecorderFile, "read_on", first_ones)
        found = self.retried(JobDirectorySource([job]), 2e9)
        assert sorted((r.task.name, r.retry) for r in found) == [("flaky-api", 2), ("hard-api", 2)]
