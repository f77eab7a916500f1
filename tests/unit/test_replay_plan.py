"""Plans for what a run is missing: which way for which attempt, worked out by hand."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harbor.publisher.packager import Packager

from harborlight.ledger.book import Rules
from harborlight.ledger.replay_plan import _ELSEWHERE as ELSEWHERE, ReplayPlan, plan_replay
from harborlight.ledger.runs import RunDefinition
from harborlight.records import TaskRef
from harborlight.sources.job_recipe import JobRecipe, TaskSource, changed_tasks, read_recipe
from harborlight.views.replay import as_json, as_script, hints, replays
from support.harbor_local.tasks import write_task
from support.records import Watched, job_record, logged, plan, trial

RUN = Rules(runs=(RunDefinition("run", jobs=("*",)),))
OTHER = TaskRef("set", "other")
ENDED: dict[str, Any] = {"finished_at": 900.0}


def planned(watched: Watched, label: str = "run") -> ReplayPlan:
    runs = {run.label: run for run in watched.ledger.runs()}
    return plan_replay(runs[label], runs.values(), watched.ledger.works())


def steps(found: ReplayPlan) -> list[tuple[str, str, dict[str, int], tuple[str, ...]]]:
    return [
        (str(step.boundary), step.job_id, dict(step.attempts), step.filtered or step.trials)
        for step in found.steps
    ]


def refused(found: ReplayPlan) -> dict[str, dict[str, int]]:
    return {rest.why: dict(rest.attempts) for rest in found.not_planned}


class TestResume:
    """A resume runs again what its filter picks and what has no result: no more than is missing."""

    def test_the_types_of_the_open_faults(self) -> None:
        watched = Watched(RUN)
        watched.see(
            job_record("a", plan(4), **ENDED),
            trial("w", "1", job="a", reward=1.0),
            trial("x", "2", job="a", exceptions=("ApiError",)),
            trial("y", "3", job="a", exceptions=("RateLimitError",)),
            trial("z", "4", job="a", exceptions=("ApiError",)),
        )
        found = planned(watched)
        assert found.missing == 3
        assert steps(found) == [("resume", "a", {"task": 3}, ("ApiError", "RateLimitError"))]
        assert found.not_planned == ()

    def test_a_scored_trial_of_that_type_is_never_deleted(self) -> None:
        """Harbor's filter looks at nothing but the type: the fault is run anew instead."""
        watched = Watched(RUN)
        watched.see(
            job_record("a", plan(3), **ENDED),
            trial("w", "1", job="a", reward=1.0, exceptions=("NonZeroAgentExitCodeError",)),
            trial("x", "2", job="a", exceptions=("NonZeroAgentExitCodeError",)),
            trial("y", "3", job="a", exceptions=("ApiError",)),
        )
        found = planned(watched)
        assert steps(found) == [
            ("resume", "a", {"task": 1}, ("ApiError",)),
            ("rerun", "a", {"task": 1}, ()),
        ]
        assert found.spared == {"a": ["NonZeroAgentExitCodeError"]}
        (hint,) = hints(found, [], jobs=["a"], globs=["*"], changed={})
        assert hint.startswith("Job a is not resumed for NonZeroAgentExitCodeError: ")

    def test_what_another_job_has_scored_since_is_not_run_again(self) -> None:
        """Two faults, one replayed elsewhere: a resume would run both."""
        watched = Watched(RUN)
        watched.see(
            job_record("a", plan(2), **ENDED),
            trial("x", "1", job="a", exceptions=("ApiError",)),
            trial("y", "2", job="a", exceptions=("ApiError",)),
        )
        watched.see(
            job_record("b", plan(1), created=2.0, **ENDED), trial("x", "3", job="b", reward=0.0)
        )
        found = planned(watched)
        assert found.missing == 1
        assert steps(found) == [("rerun", "b", {"task": 1}, ())]

    def test_what_never_began_and_what_was_cut_off(self) -> None:
        """A cancelled job: one scored, one cancelled, one queued; a killed one: open trials."""
        watched = Watched(replace_local(RUN))
        watched.see(
            job_record("a", plan(3), n_cancelled=1),
            trial("w", "1", job="a", reward=1.0),
            trial("x", "2", job="a", exceptions=("CancelledError",)),
        )
        watched.see(
            job_record("b", plan(1, OTHER), created=2.0),
            trial("x", job="b", task=OTHER),
            held=False,
        )
        assert steps(planned(watched)) == [
            ("resume", "a", {"task": 2}, ("CancelledError",)),
            ("resume", "b", {"other": 1}, ()),
        ]

    def test_told_nothing_harbor_picks_cancelled_ones(self) -> None:
        """A cancelled trial that is scored elsewhere: there is no filter that spares it."""
        watched = Watched(RUN)
        watched.see(
            job_record("a", plan(1), plan(1, OTHER), n_cancelled=1),
            trial("x", "1", job="a", exceptions=("CancelledError",)),
        )
        watched.see(
            job_record("b", plan(1), created=2.0, **ENDED), trial("x", "2", job="b", reward=1.0)
        )
        assert steps(planned(watched)) == [("rerun", "a", {"other": 1}, ())]

    @pytest.mark.parametrize(
        ("record", "seen"),
        [
            ({}, {"held": True}),
            ({}, {"held": None}),
            (ENDED, {"resumable": False}),
        ],
    )
    def test_a_job_that_cannot_be_resumed(
        self, record: dict[str, Any], seen: dict[str, Any]
    ) -> None:
        """It works still, may work still, or lacks its lock."""
        watched = Watched(RUN)
        watched.see(
            job_record("a", plan(1), **record),
            trial("x", "1", job="a", exceptions=("ApiError",)),
            **seen,
        )
        found = planned(watched)
        assert steps(found) == [("rerun", "a", {"task": 1}, ())]
        assert set(found.unended) == ({"a"} if not record else set())

    def test_another_runs_scored_trials_are_not_deleted(self) -> None:
        """One job with two agents serves two runs; the type is scored in the other one."""
        rules = Rules(
            runs=(
                RunDefinition("run", jobs=("*",), agent="agent"),
                RunDefinition("second", jobs=("*",), agent="second"),
            )
        )
        watched = Watched(rules)
        watched.see(
            job_record("a", plan(1), plan(1, agent="second"), **ENDED),
            trial("x", "1", job="a", exceptions=("ApiError",)),
            trial("y", "2", job="a", agent="second", reward=1.0, exceptions=("ApiError",)),
        )
        assert steps(planned(watched)) == [("rerun", "a", {"task": 1}, ())]

    @pytest.mark.parametrize(
        "definition",
        [
            RunDefinition("run", jobs=("*",), exclude={"other": "needs a GPU"}),
            RunDefinition("run", jobs=("*",), tasks=("task",)),
        ],
    )
    def test_what_belongs_to_no_run_is_neither_deleted_nor_run(
        self, definition: RunDefinition
    ) -> None:
        """A task outside of the run: first scored with the type of the fault, then never begun."""
        fault = trial("x", "1", job="a", exceptions=("ApiError",))
        record = job_record("a", plan(1), plan(1, OTHER), **ENDED)
        scored = Watched(Rules(runs=(definition,)))
        scored.see(
            record,
            fault,
            trial("y", "2", job="a", task=OTHER, reward=1.0, exceptions=("ApiError",)),
        )
        assert steps(planned(scored)) == [("rerun", "a", {"task": 1}, ())]
        begun = Watched(Rules(runs=(definition,)))
        begun.see(record, fault)
        assert steps(planned(begun)) == [("rerun", "a", {"task": 1}, ())]
        ended = Watched(Rules(runs=(definition,)))
        ended.see(record, fault, trial("y", "2", job="a", task=OTHER, reward=1.0))
        assert steps(planned(ended)) == [("resume", "a", {"task": 1}, ("ApiError",))]

    @pytest.mark.parametrize("at_work", [True, False])
    def test_what_a_regrade_scores_is_not_deleted(self, at_work: bool) -> None:
        """Two attempts: one regraded, or being so, and one missing, of another type."""
        watched = Watched(RUN)
        watched.see(
            job_record("a", plan(2), **ENDED),
            trial("x", "1", job="a", exceptions=("RewardFileNotFoundError",)),
            trial("y", "2", job="a", exceptions=("TimeoutError",)),
        )
        entry = plan(1, source_trial="1", source_task=TaskRef("set", "task"))
        state = {} if at_work else ENDED
        record = job_record("b", entry, created=2.0, source_jobs=("a",), **state)
        if at_work:
            watched.see(record, held=True)
        else:
            watched.see(
                record, trial("r", "3", job="b", source_trial="1", exceptions=("VerifierError",))
            )
            regraded = job_record("c", created=3.0, source_jobs=("b",), **ENDED)
            watched.see(regraded, trial("s", "4", job="c", source_trial="3", reward=1.0))
        found = planned(watched)
        assert found.missing == 1
        assert steps(found) == [("resume", "a", {"task": 1}, ("TimeoutError",))]

    def test_exceptions_of_steps_cannot_be_picked(self) -> None:
        watched = Watched(RUN)
        watched.see(
            job_record("a", plan(1), **ENDED),
            trial("x", "1", job="a", exceptions=("ApiError",), own_exception=""),
        )
        assert steps(planned(watched)) == [("rerun", "a", {"task": 1}, ())]

    def test_executions_that_only_the_log_tells_of_stand_nowhere(self) -> None:
        watched = Watched(RUN)
        watched.see(
            job_record("a", plan(1), max_retries=1, **ENDED),
            logged("x", 1, job="a"),
            trial("x", "2", job="a", exceptions=("ApiError",)),
        )
        assert steps(planned(watched)) == [("resume", "a", {"task": 1}, ("ApiError",))]


class TestRegrade:
    """Of a trial whose agent's outputs stand and whose verifier runs apart."""

    def test_only_what_has_no_verdict(self) -> None:
        """The same type in a task that cannot be regraded: a resume would run both, so neither."""
        watched = Watched(RUN)
        bad: dict[str, Any] = {"exceptions": ("RewardFileNotFoundError",)}
        watched.see(
            job_record("a", plan(2), plan(1, OTHER), **ENDED),
            trial("w", "1", job="a", reward=1.0, separate_verifier=True),
            trial("x", "2", job="a", separate_verifier=True, **bad),
            trial("y", "3", job="a", task=OTHER, **bad),
        )
        assert steps(planned(watched)) == [
            ("regrade", "a", {"task": 1}, ("x",)),
            ("rerun", "a", {"other": 1}, ()),
        ]

    def test_what_the_plan_regrades_no_resume_deletes(self) -> None:
        watched = Watched(RUN)
        bad: dict[str, Any] = {"exceptions": ("RewardFileNotFoundError",)}
        watched.see(
            job_record("a", plan(2), **ENDED),
            trial("x", "1", job="a", separate_verifier=True, **bad),
            trial("y", "2", job="a", exceptions=("TimeoutError",)),
        )
        assert steps(planned(watched)) == [
            ("regrade", "a", {"task": 1}, ("x",)),
            ("resume", "a", {"task": 1}, ("TimeoutError",)),
        ]

    def test_a_directory_that_is_gone(self) -> None:
        watched = Watched(RUN)
        fault = trial(
            "x", "1", job="a", separate_verifier=True, exceptions=("RewardFileNotFoundError",)
        )
        watched.see(job_record("a", plan(1), **ENDED), fault, listing=frozenset())
        assert steps(planned(watched)) == [("resume", "a", {"task": 1}, ())]


class TestNewJob:
    """For what neither a regrade nor a resume brings."""

    def test_tasks_by_how_many_are_missing(self) -> None:
        """Configured: three attempts a task; the jobs planned less."""
        watched = Watched(Rules(runs=(RunDefinition("run", jobs=("*",), attempts=3),)))
        watched.see(
            job_record("a", plan(1), plan(1, OTHER), plan(1, TaskRef("set", "third")), **ENDED),
            trial("x", "1", job="a", reward=1.0),
            trial("y", "2", job="a", task=OTHER, reward=1.0),
        )
        found = planned(watched)
        # The job ended without its third trial, which a resume runs; two of that task are left.
        assert found.missing == 7
        assert steps(found) == [
            ("resume", "a", {"third": 1}, ()),
            ("rerun", "a", {"other": 2, "task": 2, "third": 2}, ()),
        ]

    def test_nothing_is_missing(self) -> None:
        watched = Watched(RUN)
        watched.see(job_record("a", plan(1), **ENDED), trial("x", "1", job="a", reward=0.0))
        assert planned(watched) == ReplayPlan("run", 0, ())

    def test_why_there_is_no_step(self) -> None:
        rules = Rules(
            runs=(
                RunDefinition(
                    "run",
                    jobs=("*",),
                    tasks=("task", "other", "third", "fourth"),
                    attempts=1,
                    given_up={"fourth": "broken upstream"},
                ),
            )
        )
        watched = Watched(rules)
        gone, off = TaskRef("set", "third"), TaskRef("set", "fourth")
        watched.see(
            job_record("a", plan(1), plan(1, off), **ENDED),
            trial("x", "1", job="a", verification_off=True),
            trial("y", "2", job="a", task=off, exceptions=("ApiError",)),
        )
        watched.see(job_record("b", plan(1, gone), **ENDED))
        watched._present.discard("b")
        watched.see(job_record("a", plan(1), plan(1, off), **ENDED))
        found = planned(watched)
        assert steps(found) == []
        assert found.missing == 3
        assert refused(found) == {
            "no job planned it": {"other": 1},
            ELSEWHERE: {"third": 1},
            "its job has verification off, so no attempt can be scored": {"task": 1},
            "given up, broken upstream": {"fourth": 1},
        }
        (run,) = watched.ledger.runs()
        assert {str(name): n for name, n in run.resolutions.items()} == {"given_up": 1}


def replace_local(rules: Rules) -> Rules:
    return Rules(runs=rules.runs, local_jobs=True)


def recipe(tmp_path: Path, **fields: Any) -> JobRecipe:
    given: dict[str, Any] = {
        "directory": tmp_path / "jobs" / "a job",
        "sources": (TaskSource(("-d", "set@1"), label="set"),),
        "environment": None,
        "n_agents": 1,
        "verifier_variables": (),
        "redacted": (),
        "recorded": False,
        "by_hand": (),
    }
    return JobRecipe(**(given | fields))


class TestCommands:
    """A plan in Harbor's words."""

    def lines(self, tmp_path: Path, watched: Watched, **fields: Any) -> list[list[str]]:
        made = replays(planned(watched), {"a": recipe(tmp_path, **fields)}, {"a"})
        return [shlex.split(line) for replay in made for line in replay.commands]

    def one_missing(self, name: str = "task") -> Watched:
        watched = Watched(RUN)
        watched.see(
            job_record("a", plan(1, TaskRef("set", name)), **ENDED),
            trial("x", "1", job="a", task=TaskRef("set", name), exceptions=("Odd",)),
            resumable=False,
        )
        return watched

    def test_names_are_quoted_for_the_shell_and_for_harbors_patterns(self, tmp_path: Path) -> None:
        (line,) = self.lines(tmp_path, self.one_missing("a[b]; rm -rf *"))
        folder = tmp_path / "jobs" / "a job"
        assert line == [
            *("harbor", "run", "-c", f"{folder}/config.json", "-d", "set@1"),
            *("-i", "a[[]b]; rm -rf [*]", "-k", "1"),
            *("-o", str(tmp_path / "jobs"), "--job-name", "a job-replay", "-y"),
        ]

    def test_the_recorder_goes_on(self, tmp_path: Path) -> None:
        (line,) = self.lines(tmp_path, self.one_missing(), recorded=True)
        assert line[-2:] == ["--plugin", "harborlight"]

    def test_other_agents_of_a_job_are_not_run(self, tmp_path: Path) -> None:
        """No option takes one agent of a configuration; the command fails until it is told."""
        given = {"a": recipe(tmp_path, n_agents=2)}
        (made,) = replays(planned(self.one_missing()), given, ())
        (command,) = made.commands
        assert command.startswith('harbor run -c "${CONFIG:?}" -d set@1 -i task ')
        (remark,) = made.remarks
        assert f"set CONFIG to a copy of '{tmp_path}/jobs/a job/config.json' with" in remark

    def test_a_name_that_is_taken(self, tmp_path: Path) -> None:
        (tmp_path / "jobs" / "a job-replay").mkdir(parents=True)
        (line,) = self.lines(tmp_path, self.one_missing())
        assert "a job-replay-2" in line

    def test_a_single_task_and_one_of_which_nobody_knows_where_it_is(self, tmp_path: Path) -> None:
        single = TaskSource(("-t", "org/task@3"), task="task")
        (line,) = self.lines(tmp_path, self.one_missing(), sources=(single,))
        assert line[4:8] == ["-t", "org/task@3", "-k", "1"]
        assert self.lines(tmp_path, self.one_missing(), sources=()) == []

    def test_a_script_has_nothing_but_comments_and_commands(self, tmp_path: Path) -> None:
        """Not even where a job's name has a line break in it, or bytes that are no text."""
        odd = tmp_path / "jobs" / os.fsdecode(b"a\nrm -rf x\x1b\xff\\'")
        found = planned(self.one_missing())
        made = replays(found, {"a": recipe(tmp_path, directory=odd, redacted=("API_KEY",))}, ())
        told = hints(found, made, jobs=["a"], globs=None, changed={})
        script = as_script(found, made, told)
        assert json.loads(as_json(found, made, told).encode())["steps"]
        lines = script.encode().splitlines()
        assert {line[:1] for line in lines} == {b"", b"#", b"h"}
        (line,) = (line for line in lines if line.startswith(b"h"))
        said = subprocess.run(
            ["bash", "-c", b'harbor() { printf "%s\\0" "$@"; }\n' + line],
            capture_output=True,
            check=True,
        )
        words = said.stdout.split(b"\0")
        assert words[:3] == [b"run", b"-c", os.fsencode(odd / "config.json")]
        assert os.fsencode(f"{odd.name}-replay") in words
        assert "Harbor kept no value of API_KEY" in script

    def test_variables_that_a_shell_does_not_have(self, tmp_path: Path) -> None:
        watched = Watched(RUN)
        watched.see(
            job_record("a", plan(1), **ENDED),
            trial("x", "1", job="a", separate_verifier=True, exceptions=("RewardFileEmptyError",)),
        )
        given = recipe(tmp_path, verifier_variables=("A;reboot;", "KEY", "x.y"))
        (made,) = replays(planned(watched), {"a": given}, ())
        assert made.commands[-1].count("--ve") == 1
        assert '--ve KEY="$KEY" -o' in made.commands[-1]
        assert made.remarks == (
            "the verifier's variable A;reboot; has to be added with --ve",
            "the verifier's variable x.y has to be added with --ve",
            "set for the verifier: A;reboot;, KEY, x.y",
        )

    def test_one_job_without_a_recipe_spoils_no_other_step(self, tmp_path: Path) -> None:
        watched = self.one_missing()
        other = trial("y", "2", job="b", task=OTHER, exceptions=("ApiError",))
        watched.see(job_record("b", plan(1, OTHER), created=2.0, **ENDED), other)
        found = planned(watched)
        bad, good = replays(found, {"a": recipe(tmp_path)}, ())
        assert (bad.step.job_id, bad.commands, bad.title) == ("b", (), "Resume job b")
        assert bad.remarks[0].startswith("no command: expected a config.json")
        assert len(good.commands) == 1
        first = as_script(found, (bad, good), ()).partition("\n")[0]
        assert first.startswith("# Run run: 2 attempts missing, 1 planned here (1 with the agent).")

    def test_a_new_job_has_to_belong_to_the_run(self, tmp_path: Path) -> None:
        found = planned(self.one_missing())
        made = replays(found, {"a": recipe(tmp_path)}, ())
        assert hints(found, made, jobs=["a"], globs=["a job*"], changed={}) == []
        (added,) = hints(found, made, jobs=["a"], globs=["a"], changed={})
        assert added == "Add to the run's jobs in the configuration: a job-replay"
        (automatic,) = hints(found, made, jobs=["a"], globs=None, changed={})
        assert json.dumps(["a", "a job-replay"]) in automatic


def test_recipes_of_recorded_jobs(harbor_jobs: Path) -> None:
    """Also a regrade's, whose tasks are single ones."""
    mixed = read_recipe(harbor_jobs / "mixed-6x5")
    assert mixed.source_of(TaskRef("mini6", "sort-words")) == TaskSource(
        ("-p", "tasks/mini6"), label="mini6"
    )
    assert mixed.environment == "bwrap_env:BwrapEnvironment"
    regrade = read_recipe(harbor_jobs / "sep-regrade")
    found = regrade.source_of(TaskRef("sep", "sep-a"))
    assert found is not None
    assert found.options[0] == "-p"
    assert found.options[1].endswith("sep-a")
    with pytest.raises(FileNotFoundError):
        read_recipe(harbor_jobs)


@pytest.mark.parametrize("content", [None, b"", b"\xff", b"[" * 5000, b'{"schema_version": 2}'])
def test_a_configuration_that_is_none(tmp_path: Path, content: bytes | None) -> None:
    """Nor is a pipe in its place waited for."""
    if content is None:
        os.mkfifo(tmp_path / "config.json")
    else:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"regular|empty|validation|utf"):
        read_recipe(tmp_path)


def test_tasks_that_changed_since(tmp_path: Path) -> None:
    """By Harbor's own hash; a folder that is not here tells nothing."""
    for name in ("same", "mended"):
        write_task(tmp_path / "set", name)
    locked = [
        (
            TaskRef("set", name),
            f"sha256:{Packager.compute_content_hash(tmp_path / 'set' / name)[0]}",
        )
        for name in ("same", "mended")
    ]
    (tmp_path / "set" / "mended" / "tests" / "test.sh").write_text("true")
    locked.append((TaskRef("set", "gone"), locked[0][1]))
    folder = TaskSource(("-p", str(tmp_path / "set")), label="set")
    assert changed_tasks(recipe(tmp_path, sources=(folder,)), locked) == ["mended"]
    single = TaskSource(("-p", str(tmp_path / "set" / "mended")), task="mended")
    assert changed_tasks(recipe(tmp_path, sources=(single,)), locked) == ["mended"]
    registry = TaskSource(("-d", "set@1"), label="set")
    assert changed_tasks(recipe(tmp_path, sources=(registry,)), locked) == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://registry.example/r.json", True),
        ("https://me:hunter2@registry.example/r.json", False),
        ("https://registry.example/r.json?token=hunter2", False),
        ("https://[hunter2", False),
    ],
)
def test_a_credential_of_a_registry_is_not_shown(tmp_path: Path, url: str, shown: bool) -> None:
    dataset = {"name": "set", "version": "1", "registry_url": url}
    (tmp_path / "config.json").write_text(json.dumps({"datasets": [dataset]}))
    found = read_recipe(tmp_path)
    options = ("-d", "set@1", "--registry-url", url)
    assert found.sources == ((TaskSource(options, label="set"),) if shown else ())
    assert "hunter2" not in repr(found)


def test_a_set_is_not_that_of_tasks_which_no_option_names(tmp_path: Path) -> None:
    """A dataset and a task of a repository: the latter is not to be sought in the former."""
    task = {"path": "tasks/lone", "git_url": "https://git.example/x", "git_commit_id": "1"}
    config = {"datasets": [{"name": "set", "version": "1"}], "tasks": [task]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = read_recipe(tmp_path)
    assert found.source_of(TaskRef("", "lone")) is None
    assert found.source_of(TaskRef("set", "task")) == TaskSource(("-d", "set@1"), label="set")
