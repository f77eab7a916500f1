"""The replayed job directories, checked with Harbor's own models."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from harbor.models.job.config import JobConfig
from harbor.models.job.lock import JobLock, TrialLock
from harbor.models.job.result import JobResult, JobStats
from harbor.models.trial.config import TrialConfig
from harbor.models.trial.result import TrialResult

from harborlight.demo.replay import JobReplay, RegradeReplay, ReplayError, write_finished_job
from harborlight.demo.script import Event, Execution, JobOptions, Step, TrialScript, Usage
from harborlight.demo.terminal_bench import TerminalBenchDemo, main, official_trials

EPOCH = datetime(2026, 12, 1, 1, 0, tzinfo=UTC)
PASS = Execution(reward=1.0, usage=Usage(1000, 700, 50, 0.25))
FAIL = Execution(reward=0.0, usage=Usage(2000, 900, 80, 0.5))
BUILD_FAULT = Execution(exception_type="SandboxBuildFailedError")
RATE_LIMIT = Execution(reward=0.0, exception_type="ApiRateLimitError", usage=Usage(10, 0, 1, 1.0))
VERIFIER_FAULT = Execution(exception_type="VerifierTimeoutError", usage=Usage(500, 0, 5, 0.1))


@pytest.fixture(autouse=True)
def _ended_replays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A replay that a test leaves in the middle ends with it, so that its logs are closed."""
    made: list[JobReplay] = []
    construct = JobReplay.__init__

    def noted(self: JobReplay, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(JobReplay, "__init__", noted)
    yield
    for replay in made:
        replay.kill()


def script(task: str, *executions: Execution) -> TrialScript:
    return TrialScript(task, executions or (PASS,))


def two_by_three() -> list[TrialScript]:
    return [script(task, PASS if task == "a" else FAIL) for task in ("a", "b") for _ in range(3)]


def job_result(job_dir: Path) -> JobResult:
    return JobResult.model_validate_json((job_dir / "result.json").read_text())


def trial_dirs(job_dir: Path) -> list[Path]:
    return sorted(path for path in job_dir.iterdir() if path.is_dir())


def trial_results(job_dir: Path) -> list[TrialResult]:
    return [
        TrialResult.model_validate_json((path / "result.json").read_text())
        for path in trial_dirs(job_dir)
    ]


def check_with_harbor(job_dir: Path) -> None:
    """Every file parses with Harbor's models, and the files agree with each other."""
    config = JobConfig.model_validate_json((job_dir / "config.json").read_text())
    lock = JobLock.model_validate_json((job_dir / "lock.json").read_text())
    result = job_result(job_dir)
    assert (config.jobs_dir / config.job_name) == job_dir
    assert len(lock.trials) == result.n_total_trials
    trials: list[TrialResult] = []
    for trial_dir in trial_dirs(job_dir):
        trial = TrialResult.model_validate_json((trial_dir / "result.json").read_text())
        written = TrialConfig.model_validate_json((trial_dir / "config.json").read_text())
        assert written == trial.config
        assert written.job_id == result.id
        assert trial.trial_name == trial_dir.name == written.trial_name
        assert TrialLock.model_validate_json((trial_dir / "lock.json").read_text()) in lock.trials
        assert (trial_dir / "exception.txt").exists() == (trial.exception_info is not None)
        trials.append(trial)
    stats = JobStats.from_trial_results(trials, n_total_trials=result.n_total_trials)
    found = result.stats
    for name in ("completed", "errored", "running", "pending", "cancelled"):
        field = f"n_{name}_trials"
        assert getattr(found, field) == getattr(stats, field), field
    for name in ("n_input_tokens", "n_cache_tokens", "n_output_tokens"):
        assert getattr(found, name) == getattr(stats, name), name
    for key, ours in found.evals.items():
        theirs = stats.evals[key]
        assert (ours.n_trials, ours.n_errors) == (theirs.n_trials, theirs.n_errors)


def advance_to(replay: JobReplay, action: str, name: str) -> Step:
    for step in replay.steps():
        if step.action == action and step.path.name == name:
            return step
    raise AssertionError(f"no {action} of {name}")


def test_finished_job_is_what_harbor_reads(tmp_path: Path) -> None:
    scripts = [
        *two_by_three(),
        script("c", BUILD_FAULT, PASS),
        script("c", RATE_LIMIT),
        script("c", VERIFIER_FAULT),
    ]
    replay = JobReplay(tmp_path, "job", scripts, max_retries=2, epoch=EPOCH)

    assert replay.run() == "finished"

    check_with_harbor(replay.job_dir)
    result = job_result(replay.job_dir)
    assert result.finished_at is not None
    assert result.stats.n_retries == 3
    (evals,) = result.stats.evals.values()
    assert evals.n_trials == 7
    assert evals.metrics == [{"mean": pytest.approx(4 / 7)}]
    outcomes = Counter(
        (trial.exception_info.exception_type if trial.exception_info else None, trial.reward_valid)
        for trial in trial_results(replay.job_dir)
    )
    assert outcomes == {
        (None, True): 7,
        ("ApiRateLimitError", False): 1,
        ("VerifierTimeoutError", False): 1,
    }


def test_phases_that_did_not_happen_are_null(tmp_path: Path) -> None:
    auth = Execution(reward=1.0, exception_type="AuthenticationError")
    setup = Execution(exception_type="AgentSetupTimeoutError")
    scripts = [
        script("env", BUILD_FAULT),
        script("setup", setup),
        script("auth", auth),
        script("verify", VERIFIER_FAULT),
    ]
    replay = JobReplay(tmp_path, "job", scripts)
    replay.run()
    by_task = {trial.task_name: trial for trial in trial_results(replay.job_dir)}

    def phases(task: str) -> list[bool]:
        trial = by_task[task]
        timings = (trial.environment_setup, trial.agent_setup, trial.agent_execution)
        return [timing is not None for timing in (*timings, trial.verifier)]

    assert phases("env") == [True, False, False, False]
    assert phases("setup") == [True, True, False, False]
    assert phases("auth") == [True, True, True, False]
    assert phases("verify") == [True, True, True, True]
    assert by_task["env"].agent_result is None
    assert by_task["auth"].verifier_result is None


def test_plan_is_attempt_major_and_locked(tmp_path: Path) -> None:
    scripts = [script(task) for task in ("x" * 40, "b") for _ in range(3)]
    replay = JobReplay(tmp_path, "job", scripts, concurrency=1)
    replay.run()

    lock = JobLock.model_validate_json((replay.job_dir / "lock.json").read_text())
    assert [trial.task.name for trial in lock.trials] == ["x" * 40, "b"] * 3
    started = sorted(trial_results(replay.job_dir), key=lambda trial: str(trial.started_at))
    assert [trial.task_name for trial in started] == ["x" * 40, "b"] * 3
    assert {path.name[:34] for path in trial_dirs(replay.job_dir)} >= {"x" * 32 + "__"}


def test_same_seed_writes_the_same_tree(tmp_path: Path) -> None:
    def tree(parent: str, seed: int) -> dict[str, tuple[str, int]]:
        jobs_dir = tmp_path / parent
        scripts = [*two_by_three(), script("c", BUILD_FAULT, PASS)]
        JobReplay(jobs_dir, "job", scripts, max_retries=1, seed=seed, epoch=EPOCH).run()
        return {
            str(path.relative_to(jobs_dir)): (
                path.read_text().replace(str(jobs_dir), ""),
                path.stat().st_mtime_ns,
            )
            for path in jobs_dir.rglob("*")
            if path.is_file()
        }

    assert tree("one", 5) == tree("two", 5)
    assert set(tree("three", 6)) != set(tree("four", 7))


def test_start_is_visible_file_by_file(tmp_path: Path) -> None:
    replay = JobReplay(tmp_path, "job", two_by_three(), concurrency=2)
    seen = [(step.action, step.path.name) for step in (replay.advance() for _ in range(8)) if step]
    assert seen == [
        ("mkdir", "job"),
        ("open", "job.log"),
        ("truncate", "config.json"),
        ("write", "config.json"),
        ("truncate", "lock.json"),
        ("write", "lock.json"),
        ("truncate", "result.json"),
        ("write", "result.json"),
    ]
    stats = job_result(replay.job_dir).stats
    assert (stats.n_pending_trials, stats.n_running_trials, stats.n_completed_trials) == (6, 0, 0)
    assert trial_dirs(replay.job_dir) == []

    step = advance_to(replay, "open", "trial.log")
    assert (step.path.parent / "lock.json").stat().st_size > 0
    assert not (step.path.parent / "config.json").exists()
    step = advance_to(replay, "truncate", "config.json")
    assert step.path.stat().st_size == 0
    step = advance_to(replay, "truncate", "result.json")
    assert step.path == replay.job_dir / "result.json"
    assert step.path.read_bytes() == b""
    replay.advance()
    assert job_result(replay.job_dir).stats.n_running_trials == 1
    # The other slot's trial starts now, the four others have no directory.
    advance_to(replay, "write", "manifest.json")
    assert len(trial_dirs(replay.job_dir)) == 2
    advance_to(replay, "write", "reward.txt")
    step = advance_to(replay, "truncate", "result.json")
    assert step.trial is not None
    assert step.path.read_bytes() == b""


def test_logs_are_held_open_while_their_owner_lives(tmp_path: Path) -> None:
    def held() -> set[str]:
        links: set[str] = set()
        for entry in Path("/proc/self/fd").iterdir():
            try:
                links.add(os.readlink(entry))
            except OSError:
                continue
        return {link for link in links if link.startswith(str(tmp_path))}

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    replay = JobReplay(tmp_path, "job", two_by_three(), concurrency=2)
    advance_to(replay, "write", "manifest.json")
    logs = {str(path / "trial.log") for path in trial_dirs(replay.job_dir)}
    assert held() == {str(replay.job_dir / "job.log"), *logs}
    assert len(logs) == 2
    replay.kill()
    assert held() == set()


def test_retry_deletes_the_directory_and_keeps_the_name(tmp_path: Path) -> None:
    options = JobOptions(min_wait_seconds=1.5, wait_multiplier=2.0)
    replay = JobReplay(
        tmp_path, "job", [script("a", RATE_LIMIT, BUILD_FAULT, PASS)], max_retries=2,
        options=options, epoch=EPOCH,
    )  # fmt: skip
    ids: list[str] = []
    names: set[str] = set()
    deletions = 0
    for step in replay.steps():
        if step.trial is not None:
            names.add(step.trial)
        if step.action == "write" and step.path.name == "result.json" and step.trial:
            ids.append(str(TrialResult.model_validate_json(step.path.read_text()).id))
        if step.action == "delete":
            deletions += 1
            assert not step.path.exists()
            stats = job_result(replay.job_dir).stats
            assert (stats.n_completed_trials, stats.n_errored_trials) == (1, 1)
            assert (stats.n_running_trials, stats.n_pending_trials) == (0, 0)
            assert stats.n_retries == deletions - 1

    assert deletions == 2
    assert len(names) == 1
    assert len(set(ids)) == 3
    log = (replay.job_dir / "job.log").read_text()
    (name,) = names
    assert f"Trial {name} failed with exception ApiRateLimitError. Retrying in 1.50 seconds" in log
    assert f"Trial {name} failed with exception SandboxBuildFailedError. Retrying in 3.00 s" in log
    stats = job_result(replay.job_dir).stats
    assert (stats.n_completed_trials, stats.n_errored_trials, stats.n_retries) == (1, 0, 2)
    assert stats.cost_usd == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("execution", "line"),
    [
        (VERIFIER_FAULT, "Not retrying trial because an error is excluded by the retry policy"),
        (RATE_LIMIT, "Not retrying trial because the maximum number of retries has been reached"),
    ],
)
def test_what_is_not_retried_any_more_stays(
    tmp_path: Path, execution: Execution, line: str
) -> None:
    replay = JobReplay(tmp_path, "job", [script("a", execution)], max_retries=1)
    replay.run()
    assert line in (replay.job_dir / "job.log").read_text().splitlines()
    assert len(trial_dirs(replay.job_dir)) == 1


def test_ctrl_c_leaves_cancelled_trials_and_no_end(tmp_path: Path) -> None:
    replay = JobReplay(tmp_path, "job", two_by_three(), concurrency=2, epoch=EPOCH)
    replay.run(until=lambda: replay.n_completed >= 2)
    replay.cancel()

    assert replay.state == "cancelled"
    check_with_harbor(replay.job_dir)
    result = job_result(replay.job_dir)
    assert result.finished_at is None
    assert result.stats.n_cancelled_trials == 2
    assert result.stats.n_pending_trials == 2
    cancelled = [t for t in trial_results(replay.job_dir) if t.exception_info is not None]
    assert len(cancelled) == 2
    for trial in cancelled:
        assert trial.exception_info is not None
        assert trial.exception_info.exception_type == "CancelledError"
        assert trial.exception_info.exception_message == ""
        assert trial.finished_at is not None
        assert trial.verifier_result is None
        assert trial.environment_setup is not None
        assert trial.environment_setup.finished_at is not None
    assert replay.advance() is None


def test_ctrl_c_during_back_off_leaves_nothing_of_the_trial(tmp_path: Path) -> None:
    replay = JobReplay(tmp_path, "job", [script("a", RATE_LIMIT, PASS)], max_retries=1)
    advance_to(replay, "delete", trial_name := next(iter(replay.scripts_by_trial)))
    replay.cancel()
    assert not (replay.job_dir / trial_name).exists()
    stats = job_result(replay.job_dir).stats
    assert (stats.n_completed_trials, stats.n_errored_trials, stats.n_cancelled_trials) == (1, 1, 0)


def test_resume_reruns_under_new_names(tmp_path: Path) -> None:
    scripts = [*two_by_three(), script("c", BUILD_FAULT, PASS), script("c", FAIL)]
    replay = JobReplay(tmp_path, "job", scripts, concurrency=2, max_retries=1, epoch=EPOCH)
    replay.run(until=lambda: replay.n_retries == 1 and replay.n_completed >= 3)
    replay.cancel()
    before = job_result(replay.job_dir)
    lock = (replay.job_dir / "lock.json").read_text()
    kept = {t.trial_name for t in trial_results(replay.job_dir) if t.exception_info is None}
    gone = {path.name for path in trial_dirs(replay.job_dir)} - kept
    assert kept
    assert gone

    replay.resume(pause=100.0)
    first = replay.advance()
    assert first is not None
    assert first.action == "delete"
    # The filtered directories go before any file of the job is touched.
    assert job_result(replay.job_dir) == before
    advance_to(replay, "write", "result.json")
    again = job_result(replay.job_dir)
    assert {path.name for path in trial_dirs(replay.job_dir)} == kept
    assert (again.id, again.started_at) == (before.id, before.started_at)
    assert again.finished_at is None
    assert again.stats.n_retries == before.stats.n_retries
    assert again.stats.n_completed_trials == len(kept)
    assert (replay.job_dir / "lock.json").read_text() == lock

    assert replay.run() == "finished"
    check_with_harbor(replay.job_dir)
    names = {path.name for path in trial_dirs(replay.job_dir)}
    assert kept < names
    assert not gone & names
    rewards = Counter(
        (trial.task_name, trial.verifier_result and str(trial.verifier_result.rewards))
        for trial in trial_results(replay.job_dir)
    )
    assert rewards == {
        ("a", "{'reward': 1.0}"): 3,
        ("b", "{'reward': 0.0}"): 3,
        ("c", "{'reward': 1.0}"): 1,
        ("c", "{'reward': 0.0}"): 1,
    }


def test_kill_leaves_files_as_they_were_and_resume_cleans_up(tmp_path: Path) -> None:
    replay = JobReplay(tmp_path, "job", two_by_three(), concurrency=3)
    replay.run(until=lambda: replay.n_completed >= 1)
    advance_to(replay, "write", "manifest.json")
    before = {path: path.read_bytes() for path in replay.job_dir.rglob("*") if path.is_file()}
    replay.kill()

    assert replay.state == "killed"
    assert {p: p.read_bytes() for p in replay.job_dir.rglob("*") if p.is_file()} == before
    assert job_result(replay.job_dir).stats.n_running_trials > 0
    open_dirs = [p for p in trial_dirs(replay.job_dir) if not (p / "result.json").exists()]
    assert open_dirs
    replay.resume()
    assert replay.run() == "finished"
    assert not any(path.exists() for path in open_dirs)
    assert len(trial_dirs(replay.job_dir)) == 6
    check_with_harbor(replay.job_dir)


def test_kill_between_truncate_and_write_leaves_an_empty_result(tmp_path: Path) -> None:
    replay = JobReplay(tmp_path, "job", two_by_three(), concurrency=1)
    step = advance_to(replay, "write", "reward.txt")
    assert step.trial is not None
    step = advance_to(replay, "truncate", "result.json")
    replay.kill()
    assert step.path.read_bytes() == b""
    # Harbor keeps that directory on resume and runs its trial again.
    replay.resume()
    assert replay.run() == "finished"
    assert len(trial_dirs(replay.job_dir)) == 7


def test_resume_refuses_an_empty_lock(tmp_path: Path) -> None:
    replay = JobReplay(tmp_path, "job", two_by_three())
    replay.run()
    (replay.job_dir / "lock.json").write_text("")
    replay.resume()
    with pytest.raises(ReplayError, match="refusing to overwrite"):
        replay.run()


def test_regrade_keeps_the_agent_and_replaces_the_verdict(tmp_path: Path) -> None:
    source = JobReplay(tmp_path, "job", [script("a", VERIFIER_FAULT), script("a"), script("b")])
    source.run()
    (faulty,) = [t for t in trial_results(source.job_dir) if t.exception_info is not None]
    replay = RegradeReplay(
        tmp_path, "regrade", source.job_dir, {faulty.trial_name: Execution(reward=1.0)}
    )
    assert replay.run() == "finished"

    check_with_harbor(replay.job_dir)
    config = JobConfig.model_validate_json((replay.job_dir / "config.json").read_text())
    assert config.is_regrade
    assert config.source_jobs[0].job_id == source.job_id
    (trial,) = trial_results(replay.job_dir)
    assert trial.config.source_trial is not None
    assert trial.config.source_trial.trial_id == faulty.id
    assert trial.reward_valid
    assert trial.exception_info is None
    assert trial.agent_result == faulty.agent_result
    assert (trial.environment_setup, trial.agent_setup, trial.agent_execution) == (None,) * 3
    assert trial.verifier is not None
    (lock,) = JobLock.model_validate_json((replay.job_dir / "lock.json").read_text()).trials
    assert lock.source_trial is not None
    assert lock.source_trial.task == lock.task
    with pytest.raises(ReplayError, match="no readable result"):
        RegradeReplay(tmp_path, "again", source.job_dir, {"nobody": Execution(reward=1.0)})


def test_job_times_are_naive_local_and_the_rest_aware(tmp_path: Path) -> None:
    zone = ZoneInfo("America/Los_Angeles")
    options = JobOptions(zone=zone)
    replay = JobReplay(tmp_path, "job", two_by_three(), options=options, epoch=EPOCH)
    advance_to(replay, "write", "result.json")
    first = job_result(replay.job_dir)
    assert first.started_at.replace(tzinfo=zone) - EPOCH == timedelta(milliseconds=1)
    assert first.updated_at == first.started_at
    advance_to(replay, "write", "result.json")
    running = job_result(replay.job_dir)
    assert running.started_at.tzinfo is None
    assert running.updated_at is not None
    assert running.updated_at.tzinfo is not None
    replay.run()
    result = job_result(replay.job_dir)
    assert result.finished_at == result.updated_at
    assert result.finished_at is not None
    assert result.finished_at.tzinfo is None
    assert (result.started_at + timedelta(hours=8)).replace(tzinfo=UTC) - EPOCH < timedelta(0, 1)


def test_default_epoch_puts_the_end_into_the_past(tmp_path: Path) -> None:
    scripts = [script("a", BUILD_FAULT, RATE_LIMIT, PASS) for _ in range(20)]
    replay = JobReplay(tmp_path, "job", scripts, max_retries=2, concurrency=3)
    replay.run()
    ends = [trial.finished_at for trial in trial_results(replay.job_dir)]
    assert all(end is not None and end < datetime.now(UTC) for end in ends)


def test_live_replay_writes_real_times(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    replay = JobReplay(tmp_path, "job", two_by_three())
    assert replay.run(1e7) == "finished"
    after = datetime.now(UTC)
    for trial in trial_results(replay.job_dir):
        assert trial.started_at is not None
        assert trial.finished_at is not None
        assert before <= trial.started_at <= trial.finished_at <= after
    check_with_harbor(replay.job_dir)


def test_stop_ends_a_live_replay_like_ctrl_c(tmp_path: Path) -> None:
    events: list[Event] = []

    def hear(event: Event) -> None:
        events.append(event)
        if event.kind == "started":
            replay.stop()

    # At this speed the job would take minutes: only the stop can end it.
    replay = JobReplay(tmp_path, "job", two_by_three(), listener=hear)
    assert replay.run(1.0) == "cancelled"
    assert [event.kind for event in events] == ["started", "cancelled"]
    assert trial_dirs(replay.job_dir) == []
    assert job_result(replay.job_dir).finished_at is None


def test_benchmark_tree(tmp_path: Path) -> None:
    replay = write_finished_job(tmp_path, "big", n_tasks=20, attempts=3, seed=1)
    check_with_harbor(replay.job_dir)
    assert len(trial_dirs(replay.job_dir)) == 60
    assert job_result(replay.job_dir).finished_at is not None


@pytest.mark.parametrize("name", ["job", "other"])
def test_refusals(tmp_path: Path, name: str) -> None:
    replay = JobReplay(tmp_path, "job", two_by_three())
    with pytest.raises(ReplayError, match="only an ended one"):
        replay.resume()
    replay.run()
    if name == "job":
        with pytest.raises(ReplayError, match="exists already"):
            JobReplay(tmp_path, name, two_by_three())
    else:
        with pytest.raises(ReplayError, match="no trials"):
            JobReplay(tmp_path, name, [])


def test_reference_data() -> None:
    assert len(official_trials(gpu=True)) == 330
    trials = official_trials()
    assert len(trials) == 315
    assert len({trial.task for trial in trials}) == 63
    assert sum(trial.reward for trial in trials) == 136


@pytest.fixture(scope="module")
def demo_jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    jobs_dir = tmp_path_factory.mktemp("jobs")
    lines: list[str] = []
    scenario = TerminalBenchDemo(jobs_dir, say=lines.append)
    assert scenario.run(None)
    return jobs_dir, lines


def test_a_healthy_demo_is_the_official_run(tmp_path: Path) -> None:
    """Every official reward and duration, no exception, no second job."""
    scenario = TerminalBenchDemo(tmp_path, say=lambda line: None, healthy=True, concurrency=32)
    assert scenario.run(None)
    (job_dir,) = tmp_path.iterdir()
    config = JobConfig.model_validate_json((job_dir / "config.json").read_text())
    assert config.n_concurrent_trials == 32
    scored: list[tuple[str, float, float]] = []
    for trial in trial_results(job_dir):
        assert trial.exception_info is None
        assert trial.verifier_result is not None and trial.verifier_result.rewards is not None
        assert trial.started_at is not None and trial.finished_at is not None
        seconds = (trial.finished_at - trial.started_at).total_seconds()
        scored.append((trial.task_name, trial.verifier_result.rewards["reward"], seconds))
    official = sorted((trial.task, trial.reward, trial.seconds) for trial in official_trials())
    assert [row[:2] for row in sorted(scored)] == [row[:2] for row in official]
    assert [row[2] for row in sorted(scored)] == pytest.approx(
        [row[2] for row in official], abs=1.0
    )


def test_demo_ends_with_every_official_verdict(demo_jobs: tuple[Path, list[str]]) -> None:
    jobs_dir, _ = demo_jobs
    main_job, regrade = sorted(path for path in jobs_dir.iterdir())
    check_with_harbor(main_job)
    check_with_harbor(regrade)
    regrades = {
        trial.config.source_trial.trial_id: trial
        for trial in trial_results(regrade)
        if trial.config.source_trial is not None
    }
    assert len(regrades) == 6
    verdicts = [regrades.get(trial.id, trial) for trial in trial_results(main_job)]
    scored: Counter[tuple[str, float]] = Counter()
    for trial in verdicts:
        if trial.reward_valid:
            assert trial.verifier_result is not None
            assert trial.verifier_result.rewards is not None
            scored[trial.task_name, trial.verifier_result.rewards["reward"]] += 1
    official = Counter(
        (trial.task, trial.reward)
        for trial in official_trials()
        if trial.exception_type != "UnknownApiError"
    )
    assert scored == official
    assert scored.total() == 313
    faults = [trial for trial in verdicts if not trial.reward_valid]
    assert {t.exception_info.exception_type for t in faults if t.exception_info} == {
        "UnknownApiError"
    }
    assert all(t.verifier_result and t.verifier_result.rewards == {"reward": 0.0} for t in faults)


def test_demo_shows_each_kind_of_fault(demo_jobs: tuple[Path, list[str]]) -> None:
    jobs_dir, lines = demo_jobs
    log = (jobs_dir / "tb4-glm-5.3-replay" / "job.log").read_text()
    for kind in ("SandboxBuildFailedError", "EnvironmentStartTimeoutError", "ApiRateLimitError"):
        assert f"failed with exception {kind}. Retrying" in log
    text = "\n".join(lines)
    assert "Ctrl-C with" in text
    assert "resumed" in text
    assert "regrading 6 verifier faults" in text


def test_command_line_refuses_and_replaces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], default_signals: None
) -> None:
    arguments = ["--jobs", str(tmp_path), "--speed", "0", "--tasks", "4"]
    assert main(arguments) == 0
    assert "replay of recorded results" in capsys.readouterr().out
    assert main(arguments) == 2
    assert "exists already" in capsys.readouterr().err
    assert main([*arguments, "--replace"]) == 0
    (tmp_path / "tb4-glm-5.3-replay" / "config.json").write_text("{}")
    assert main([*arguments, "--replace"]) == 2
    assert "left alone" in capsys.readouterr().err


@pytest.fixture
def default_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_process_ends_cleanly_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "harborlight.demo.replay", "--jobs", str(tmp_path)]
    with subprocess.Popen(
        [*command, "--tasks", "3", "--speed", "10"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = ""
        while "started" not in line:
            line = process.stdout.readline()
            assert line, "the replay ended by itself"
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait(timeout=60) == 0
    assert "stopped" in rest
    (job_dir,) = tmp_path.iterdir()
    assert job_result(job_dir).finished_at is None
    assert job_result(job_dir).stats.n_running_trials == 0
