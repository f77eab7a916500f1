"""The configuration file: what it says, and every way in which it can be wrong."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from pydantic import ValidationError

from harborlight.config import (
    MAX_DEPTH,
    MAX_FILE_BYTES,
    Config,
    ConfigError,
    Reward,
    RunConfig,
    RunJob,
    load_config,
    parse_duration,
)

DIGEST = "sha256:" + "0a" * 32
CAUSES = "expected one of container, serving, agent, verifier"
KEYS = "causes, jobs, local_jobs, refresh_interval, runs"
DURATION = "expected a duration such as 5s, 2m or 1h"
RUN = "runs:\n- name: r\n  jobs: [j]\n"


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "conf.yml"
    path.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())
    return path


def good(folder: Path, text: str | bytes) -> Config:
    return load_config(write(folder, text))


def errors(folder: Path, text: str | bytes) -> list[str]:
    """The errors of a file, without the path before them."""
    path = write(folder, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    found = caught.value.errors
    assert str(caught.value) == "\n".join(found)
    assert all(error.startswith(str(path)) and error.isprintable() for error in found)
    return [error.removeprefix(f"{path}:") for error in found]


# Good ones.


def test_defaults() -> None:
    """No file at all is a configuration, too."""
    config = Config()
    assert (config.jobs, config.job_places, config.runs, config.causes) == ((), (), (), {})
    assert (config.local_jobs, config.refresh_interval) == (False, 5)


def test_everything(tmp_path: Path) -> None:
    """Every key, once."""
    config = good(
        tmp_path,
        f"""
        jobs: [jobs, /data/jobs/*, ../other]
        local_jobs: true
        refresh_interval: 2m
        runs:
          - name: tb-4.0 glm
            title: Terminal-Bench 4.0 with GLM
            jobs:
              - main-*
              - job: regrade-*
                supersedes: true
              - job: other
            tasks: [sep-a, research/sep-b]
            exclude: {{sep-a: its image is gone}}
            attempts: 5
            reward: {{key: accuracy, success_at: 0.5}}
            agent: terminus-*
            model: glm-*
            dataset: terminal-bench@*
            invalid_exceptions: [FlakyError, my.module.Other]
            content: {{sep-a: "{DIGEST}"}}
        causes:
          FlakyError: serving
          my.module.Other: container
        """,
    )
    assert config.job_places == (
        str(tmp_path / "jobs"),
        "/data/jobs/*",
        str(tmp_path / ".." / "other"),
    )
    assert config.local_jobs
    assert config.refresh_interval == 120.0
    assert config.causes == {"FlakyError": "serving", "my.module.Other": "container"}
    (run,) = config.runs
    assert (run.name, run.title) == ("tb-4.0 glm", "Terminal-Bench 4.0 with GLM")
    assert run.jobs == (
        RunJob(job="main-*"),
        RunJob(job="regrade-*", supersedes=True),
        RunJob(job="other"),
    )
    assert run.task_names == ("sep-a", "research/sep-b")
    assert run.tasks_of_job is None
    assert run.exclude == {"sep-a": "its image is gone"}
    assert run.attempts == 5
    assert run.reward == Reward(key="accuracy", success_at=0.5)
    assert (run.agent, run.model, run.dataset) == ("terminus-*", "glm-*", "terminal-bench@*")
    assert run.invalid_exceptions == ("FlakyError", "my.module.Other")
    assert run.content == {"sep-a": DIGEST}


def test_run_defaults(tmp_path: Path) -> None:
    """A run needs a name and jobs, and nothing else."""
    (run,) = good(tmp_path, RUN).runs
    assert (run.title, run.tasks, run.task_names, run.tasks_of_job) == ("r", None, None, None)
    assert (run.attempts, run.reward, run.exclude) == (None, Reward(), {})
    assert (run.reward.key, run.reward.success_at) == (None, 1.0)
    assert (run.agent, run.model, run.dataset) == (None, None, None)
    assert (run.invalid_exceptions, run.content) == ((), "newest")


def test_nothing_where_it_may_be(tmp_path: Path) -> None:
    """A key without a value is the default where that is "none"."""
    text = RUN + "  tasks:\n  attempts: null\n  agent: ~\n  reward: {key: }\n"
    config = good(tmp_path, text)
    assert (config.runs[0].tasks, config.runs[0].attempts, config.runs[0].agent) == (None,) * 3


def test_tasks_from_a_file(tmp_path: Path) -> None:
    """One a line, seen from the configuration's folder; comments and space are no tasks."""
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "tasks.txt").write_text(
        "\ufeff# all of them\nsep-a\n\n  research/sep-b  \r\nc#1 # with a number sign\n\t# end"
    )
    text = RUN + "  tasks: {file: lists/tasks.txt}\n  exclude: {sep-a: broken}\n"
    (run,) = good(tmp_path, text).runs
    assert run.task_names == ("sep-a", "research/sep-b", "c#1")
    assert run.tasks_of_job is None


def test_tasks_of_a_job(tmp_path: Path) -> None:
    """Then nobody knows yet what may be excluded."""
    (run,) = good(tmp_path, RUN + "  tasks: {job: main}\n  exclude: {x: broken}\n").runs
    assert (run.task_names, run.tasks_of_job) == (None, "main")


def test_yaml_of_today(tmp_path: Path) -> None:
    """What YAML 1.1 took for truth values, dates, octal and base-60 numbers is text."""
    text = (
        RUN + "  tasks: [no, on, 2026-01-02, 007, 0x1f, 12:30, 1_000, '5', 1e]\n  content: newest"
    )
    expected = ("no", "on", "2026-01-02", "007", "0x1f", "12:30", "1_000", "5", "1e")
    assert good(tmp_path, text).runs[0].task_names == expected


def test_keys_are_text(tmp_path: Path) -> None:
    """A task may be called as a number or a word is."""
    text = RUN + "  tasks: ['1', 'null', 'true']\n  exclude: {1: a, null: b, true: c}\n"
    assert good(tmp_path, text).runs[0].exclude == {"1": "a", "null": "b", "true": "c"}


def test_byte_order_mark_and_anchors_that_nobody_uses(tmp_path: Path) -> None:
    """Neither does any harm."""
    assert good(tmp_path, b"\xef\xbb\xbfjobs: &all [x]\n").jobs == ("x",)


def test_job_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is written is a glob; a home directory is found."""
    monkeypatch.setenv("HOME", "/home/somebody")
    folder = tmp_path / "a [b]"
    folder.mkdir()
    config = good(folder, "jobs: [x, x*, ~/jobs, /a/]")
    assert config.job_places == (
        f"{tmp_path}/a [b]/x",
        f"{tmp_path}/a [[]b]/x*",
        "/home/somebody/jobs",
        "/a",
    )


def test_seen_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file given by its name alone has relative places."""
    write(tmp_path, "jobs: [x]")
    monkeypatch.chdir(tmp_path)
    assert load_config(Path("conf.yml")).job_places == ("x",)


def test_frozen(tmp_path: Path) -> None:
    """A configuration is replaced, not changed."""
    config = good(tmp_path, RUN)
    with pytest.raises(ValidationError):
        config.local_jobs = True
    with pytest.raises(ValidationError):
        config.runs[0].attempts = 1


def test_made_by_a_program() -> None:
    """The same rules hold where no file is read."""
    run = RunConfig(name="r", jobs=(RunJob(job="j"),), tasks=("a", "b"))
    assert run.title == "r"
    with pytest.raises(ValidationError, match=r"'r' is the name of runs\[0\] already"):
        Config(runs=(run, run))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5s", 5.0),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("1d", 86400.0),
        ("200ms", 0.2),
        ("1.5s", 1.5),
        ("1h30m", 5400.0),
        ("5", 5.0),
        (5, 5.0),
        (0.25, 0.25),
        ("0", 0.0),
    ],
)
def test_duration(value: str | float, seconds: float) -> None:
    """A number of seconds, or numbers with units."""
    assert parse_duration(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("", "''"),
        ("soon", "'soon'"),
        ("5 s", "'5 s'"),
        ("5S", "'5S'"),
        ("-5s", "'-5s'"),
        ("1h30", "'1h30'"),
        ("5s\n", "'5s\\n'"),
        ("٣s", "'٣s'"),
        ("9" * 400, f"'{'9' * 60}...'"),
        (-1, "-1"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (True, "true"),
    ],
)
def test_duration_that_is_none(value: str | float, shown: str) -> None:
    """Everything else says what was expected and what came."""
    with pytest.raises(ConfigError) as caught:
        parse_duration(value)
    assert caught.value.errors == (f"{DURATION}, got {shown}",)


# The file as a whole.

UNFINISHED = "while parsing a flow sequence, expected ',' or ']', but got '<stream end>'"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "1: the file is empty; expected keys such as jobs: and runs:"),
        ("# nothing yet\n", "1: the file is empty; expected keys such as jobs: and runs:"),
        ("null", "1: the file is empty; expected keys such as jobs: and runs:"),
        ("\n- a\n", "2: expected keys such as jobs: and runs: at the top, got a list"),
        ("hello", "1: expected keys such as jobs: and runs: at the top, got 'hello'"),
        ("jobs:\n\t- a\n", "2: a tab where YAML wants spaces"),
        ("jobs:\n- a\n-\tb:\n\t  c\n", "3: a tab where YAML wants spaces"),
        (b"jobs: [x]\n# gr\xfcn\n", "2: is not UTF-8 text (byte 15 is 0xfc)"),
        ("jobs: [x]".encode("utf-16"), "1: is not UTF-8 text (byte 1 is 0xff)"),
        ("\n\njobs: ['\x07']", "3: the character U+0007 is not allowed"),
        ("jobs: [x]\n\0", "2: the character U+0000 is not allowed"),
        ("jobs: [x]\n---\njobs: [y]\n", "2: expected one document, found another (---)"),
        (
            "jobs: [a\n",
            f"2: not valid YAML: {UNFINISHED}",
        ),
        ("a: b: c", "1: not valid YAML: mapping values are not allowed here"),
        (
            "jobs: !!python/name:os.system ''",
            "1: tags (tag:yaml.org,2002:python/name:os.system) are not supported",
        ),
        ("jobs: !own [x]", "1: tags (!own) are not supported"),
        ("jobs: " + "[" * 5000, f"1: nested more than {MAX_DEPTH} levels deep"),
        ("? [a, b]\n: c\n", "1: expected text as a key, got a list or a mapping"),
        ("x" * (MAX_FILE_BYTES + 1), " is larger than 1024 KiB"),
    ],
)
def test_not_a_configuration(tmp_path: Path, text: str | bytes, error: str) -> None:
    """A file that is no YAML mapping is one clear error, and never a traceback."""
    assert errors(tmp_path, text) == [error]


def test_aliases(tmp_path: Path) -> None:
    """A few lines of them can stand for gigabytes: each is refused before it is followed."""
    text = "jobs: &a [x, x]\nruns: &b [*a, *a]\ncauses: [*b]\n"
    assert errors(tmp_path, text) == [
        "2: aliases (*a) are not supported",
        "2: aliases (*a) are not supported",
        "3: aliases (*b) are not supported",
    ]


def test_duplicate_keys(tmp_path: Path) -> None:
    """On whatever level; the first line is named."""
    text = "jobs: [x]\nruns:\n- name: r\n  jobs: [j]\n  attempts: 1\n  attempts: 2\njobs:\n- y\n"
    assert errors(tmp_path, text) == [
        "6: runs[0].attempts: the key is there twice (first on line 5)",
        "7: jobs: the key is there twice (first on line 1)",
    ]


def test_no_file(tmp_path: Path) -> None:
    """What the system says, and nothing of ours before it."""
    for name, reason in (("none.yml", "No such file or directory"), ("", "Is a directory")):
        path = tmp_path / name
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        assert str(caught.value) == f"{path}: cannot be read: {reason}"


def test_file_name_is_escaped(tmp_path: Path) -> None:
    """It cannot make a line of its own."""
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "a\nb")
    expected = f"{tmp_path}/a\\nb: cannot be read: No such file or directory"
    assert caught.value.errors == (expected,)


# Keys and values.


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("job: [x]", "1: job: unknown key, did you mean 'jobs'?"),
        (
            "refresh-interval: 5",
            "1: refresh-interval: unknown key, did you mean 'refresh_interval'?",
        ),
        ("a b: 1", f"1: ['a b']: unknown key, expected one of {KEYS}"),
        ('"a\\nb": 1', f"1: ['a\\nb']: unknown key, expected one of {KEYS}"),
        ("<<: {jobs: [x]}", f"1: ['<<']: unknown key, expected one of {KEYS}"),
        ("jobs: x", "1: jobs: expected a list, got 'x'"),
        ("jobs:", "1: jobs: expected a list, got nothing"),
        ("jobs:\n- a\n- {b: c}", "3: jobs[1]: expected a path, got a mapping"),
        ("jobs: [5]", "1: jobs[0]: expected a path, got 5 (put it in quotes)"),
        ("jobs: ['']", "1: jobs[0]: expected a path, got ''"),
        ('jobs: ["a\\0"]', "1: jobs[0]: expected a path, got 'a\\x00'"),
        ("local_jobs: yes", "1: local_jobs: expected true or false, got 'yes'"),
        ("local_jobs: 1", "1: local_jobs: expected true or false, got 1"),
        ("refresh_interval:\n  soon", f"2: refresh_interval: {DURATION}, got 'soon'"),
        ("refresh_interval:", f"1: refresh_interval: {DURATION}, got nothing"),
        ("refresh_interval: true", f"1: refresh_interval: {DURATION}, got true"),
        ("refresh_interval: 0", "1: refresh_interval: expected at least 50ms, got 0"),
        ("refresh_interval: 1d", "1: refresh_interval: expected at most 1h, got '1d'"),
        ("refresh_interval: -1h", f"1: refresh_interval: {DURATION}, got '-1h'"),
        ("runs: {name: r}", "1: runs: expected a list, got a mapping"),
        ("runs: [r]", "1: runs[0]: expected a mapping, got 'r'"),
        ("runs:\n- jobs: [j]", "2: runs[0]: the key 'name' is missing"),
        ("runs:\n- name: r", "2: runs[0]: the key 'jobs' is missing"),
        ("causes: [a]", "1: causes: expected a mapping, got a list"),
        (
            "causes:\n  FlakyError: containers",
            f"2: causes.FlakyError: {CAUSES}, got 'containers'",
        ),
        (
            "causes:\n  FlakyError: cancelled",
            f"2: causes.FlakyError: {CAUSES}, got 'cancelled'",
        ),
        (
            "causes: {a b: agent}",
            "1: causes['a b']: expected the name of an exception type, got 'a b'",
        ),
    ],
)
def test_wrong_value(tmp_path: Path, text: str, error: str) -> None:
    """One line, with the line and key of what is wrong."""
    assert errors(tmp_path, text) == [error]


NAME = "expected a letter or digit, then at most 99 letters, digits, spaces or characters of ._:/+-"
TASKS = "expected a list of tasks, {file: PATH} or {job: NAME}"
RUN_KEYS = (
    "agent, attempts, content, dataset, exclude, invalid_exceptions, jobs, model, name, reward, "
    "tasks, title"
)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("name: ''", f"name: {NAME}, got ''"),
        ("name: -x", f"name: {NAME}, got '-x'"),
        ("name: 12", f"name: {NAME}, got 12 (put it in quotes)"),
        ("name: null", f"name: {NAME}, got nothing"),
        ("name: größe", f"name: {NAME}, got 'größe'"),
        ('name: "a\\n"', f"name: {NAME}, got 'a\\n'"),
        (f"name: {'x' * 101}", f"name: {NAME}, got '{'x' * 60}...'"),
        ("title: [a]", "title: expected a line of text, got a list"),
        ('title: "a\\nb"', "title: expected a line of text, got 'a\\nb'"),
        ("title: ' a'", "title: expected a line of text, got ' a'"),
        ("zzz: 1", f"zzz: unknown key, expected one of {RUN_KEYS}"),
        ("attempt: 1", "attempt: unknown key, did you mean 'attempts'?"),
        ("attempts: five", "attempts: expected a whole number >= 1, got 'five'"),
        ("attempts: 0", "attempts: expected a whole number >= 1, got 0"),
        ("attempts: 2.5", "attempts: expected a whole number >= 1, got 2.5"),
        ("attempts: 5.0", "attempts: expected a whole number >= 1, got 5.0"),
        ("attempts: true", "attempts: expected a whole number >= 1, got true"),
        ("attempts: '5'", "attempts: expected a whole number >= 1, got '5'"),
        ("attempts: 1000001", "attempts: expected at most 1000000, got 1000001"),
        (f"attempts: {'9' * 5000}", "attempts: expected a whole number >= 1, got inf"),
        ("jobs: j", "jobs: expected a list, got 'j'"),
        ("jobs: []", "jobs: expected at least one entry, got none"),
        ("jobs: [5]", "jobs[0]: expected a job's name or {job: NAME, supersedes: true}, got 5"),
        ("jobs: ['']", "jobs[0]: expected a name or a glob, got ''"),
        ("jobs: [{supersedes: true}]", "jobs[0]: the key 'job' is missing"),
        (
            "jobs: [{job: a, superseeds: true}]",
            "jobs[0].superseeds: unknown key, did you mean 'supersedes'?",
        ),
        (
            "jobs: [{job: a, supersedes: 1}]",
            "jobs[0].supersedes: expected true or false, got 1",
        ),
        ("tasks: a", f"tasks: {TASKS}, got 'a'"),
        ("tasks: {fiel: a}", f"tasks: {TASKS}, got a mapping"),
        ("tasks: []", "tasks: expected at least one entry, got none"),
        ("tasks: [a, 5]", "tasks[1]: expected a task's name, got 5 (put it in quotes)"),
        ("tasks: [a, b, a]", "tasks[2]: 'a' is listed twice"),
        ("tasks: {job: 5}", "tasks.job: expected a name or a glob, got 5 (put it in quotes)"),
        ("tasks: {job: a, file: b}", f"tasks: {TASKS}, got a mapping"),
        ("tasks: {job: a, c: d}", "tasks.c: unknown key, expected one of job"),
        ("tasks: {file: 5}", "tasks.file: expected a path, got 5"),
        ("exclude: [a]", "exclude: expected a mapping, got a list"),
        ("exclude: {a: }", "exclude.a: expected a line of text, got nothing"),
        ("exclude: {a b: ''}", "exclude['a b']: expected a line of text, got ''"),
        ("exclude: {'': why}", "exclude['']: expected a task's name, got ''"),
        ("reward: 1", "reward: expected a mapping, got 1"),
        ("reward: {kee: a}", "reward.kee: unknown key, did you mean 'key'?"),
        ("reward: {success_at: '1'}", "reward.success_at: expected a finite number, got '1'"),
        ("reward: {success_at: .nan}", "reward.success_at: expected a finite number, got nan"),
        ("reward: {success_at: -.inf}", "reward.success_at: expected a finite number, got -inf"),
        ("reward: {success_at: true}", "reward.success_at: expected a finite number, got true"),
        ("model: [a]", "model: expected a name or a glob, got a list"),
        ("dataset: ''", "dataset: expected a name or a glob, got ''"),
        (
            "invalid_exceptions: [9a]",
            "invalid_exceptions[0]: expected the name of an exception type, got '9a'",
        ),
        ("content: oldest", "content: expected newest or digests by task, got 'oldest'"),
        (
            "content: {a: 'sha256:12'}",
            "content.a: expected sha256: and 64 hexadecimal digits, got 'sha256:12'",
        ),
    ],
)
def test_wrong_run(tmp_path: Path, text: str, error: str) -> None:
    """One error, on the line of the key, in a run that is else as it should be."""
    key = text.partition(":")[0]
    rest = [line for line in ("name: r", "jobs: [j]") if not line.startswith(f"{key}:")]
    written = "runs:\n- " + "\n  ".join([*rest, text]) + "\n"
    assert errors(tmp_path, written) == [f"{2 + len(rest)}: runs[0].{error}"]


def test_excluded_must_be_listed(tmp_path: Path) -> None:
    """A slip of the pen would silently leave the task in the target."""
    (tmp_path / "tasks.txt").write_text("sep-a\nsep-b\n")
    expected = [
        "6: runs[0].exclude.sep-c: not one of the run's tasks, did you mean 'sep-b'?",
        "8: runs[0].exclude.other: not one of the run's tasks",
    ]
    for tasks in ("[sep-a, sep-b]", "{file: tasks.txt}"):
        text = f"{RUN}  tasks: {tasks}\n  exclude:\n    sep-c: x\n    sep-a: x\n    other: x\n"
        (first, second) = errors(tmp_path, text)
        assert first.partition(", did")[0] == expected[0].partition(", did")[0]
        assert ", did you mean 'sep-" in first
        assert second == expected[1]


def test_task_file_is_not_there(tmp_path: Path) -> None:
    """The key and line that name it, and the path that was tried."""
    expected = f"'{tmp_path}/none.txt' cannot be read: No such file or directory"
    assert errors(tmp_path, RUN + "  tasks:\n    file: none.txt\n") == [
        f"5: runs[0].tasks.file: {expected}"
    ]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"# none\n\n", "lists no task"),
        (b"a\n\nb\xff\n", "is not UTF-8 text (byte 5 is 0xff)"),
        (b"x" * (MAX_FILE_BYTES + 1), "is larger than 1024 KiB"),
    ],
)
def test_task_file_is_wrong(tmp_path: Path, content: bytes, error: str) -> None:
    """It is read with the configuration, and is as wrong as that."""
    (tmp_path / "t").write_bytes(content)
    assert errors(tmp_path, RUN + "  tasks: {file: t}\n") == [
        f"4: runs[0].tasks.file: '{tmp_path}/t' {error}"
    ]


def test_task_file_lines(tmp_path: Path) -> None:
    """Wrong lines are named, all of them."""
    where = f"4: runs[0].tasks.file: '{tmp_path}/t'"
    (tmp_path / "t").write_text(f"a\nb\na\n{'x' * 301}\ny\x1b[0m\n")
    assert errors(tmp_path, RUN + "  tasks: {file: t}\n") == [
        f"{where}, line 3: 'a' is listed twice (line 1)",
        f"{where}, line 4: expected a task's name, got '{'x' * 60}...'",
        f"{where}, line 5: expected a task's name, got 'y\\x1b[0m'",
    ]


def test_duplicate_run_names(tmp_path: Path) -> None:
    """Found although another run is wrong in itself."""
    text = """\
        runs:
        - {name: a, jobs: [j]}
        - {name: b, jobs: [j]}
        - {name: a, jobs: [j]}
        - {name: b, jobs: j}
        """
    assert errors(tmp_path, text) == [
        "4: runs[2].name: 'a' is the name of runs[0] already",
        "5: runs[3].jobs: expected a list, got 'j'",
        "5: runs[3].name: 'b' is the name of runs[1] already",
    ]


def test_all_errors_at_once(tmp_path: Path) -> None:
    """In the order of their lines, of whatever sort they are."""
    text = """\
        refresh_interval: soon
        refresh_interval: 5s
        runs:
        - name: a
          attempts: five
          tasks: [x, x, '']
          jobs:
          - {job: j, supersede: true}
        - jobs: [j]
          tasks: {file: none}
          reward:
            success_at: .inf
        causes: {A: b}
        colour: red
        """
    assert errors(tmp_path, text) == [
        f"1: refresh_interval: {DURATION}, got 'soon'",
        "2: refresh_interval: the key is there twice (first on line 1)",
        "5: runs[0].attempts: expected a whole number >= 1, got 'five'",
        "6: runs[0].tasks[2]: expected a task's name, got ''",
        "6: runs[0].tasks[1]: 'x' is listed twice",
        "8: runs[0].jobs[0].supersede: unknown key, did you mean 'supersedes'?",
        "9: runs[1]: the key 'name' is missing",
        f"10: runs[1].tasks.file: '{tmp_path}/none' cannot be read: No such file or directory",
        "12: runs[1].reward.success_at: expected a finite number, got inf",
        "13: causes.A: expected one of container, serving, agent, verifier, got 'b'",
        f"14: colour: unknown key, expected one of {KEYS}",
    ]
