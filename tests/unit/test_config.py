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
    PoolConfig,
    ReplicaConfig,
    Reward,
    RunConfig,
    RunJob,
    TlsConfig,
    load_config,
    parse_duration,
    server_url,
)
from harborlight.reference import totals
from harborlight.views.feed.publication import TaskNames
from harborlight.words import Words, same

DIGEST = "sha256:" + "0a" * 32
CAUSES = "expected one of container, serving, agent, verifier"
KEYS = (
    "causes, harbor_servers, jobs, live_page, local_jobs, pools, references, refresh_interval, runs"
)
DURATION = "expected a duration such as 5s, 2m or 1h"
RUN = "runs:\n- name: r\n  jobs: [j]\n"
REPLICAS = "replicas: [{name: r1, url: http://canary-host:1}]"


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
    said = [error.removeprefix(f"{path}:") for error in found]
    # In every test, what is an address or a key has this word in it.
    assert "canary" not in "".join(said)
    return said


# Good ones.


def test_defaults() -> None:
    """No file at all is a configuration, too."""
    config = Config()
    assert (config.jobs, config.job_places, config.runs, config.causes) == ((), (), (), {})
    assert (config.pools, config.local_jobs, config.refresh_interval) == ((), False, 5)


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
    assert run.exclude == {"sep-a": same("its image is gone")}
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
    assert good(tmp_path, text).runs[0].exclude == {
        "1": same("a"),
        "null": same("b"),
        "true": same("c"),
    }


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
            "1: tags (!NAME) are not supported",
        ),
        ("jobs: !own [x]", "1: tags (!NAME) are not supported"),
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
        "2: aliases (*NAME) are not supported",
        "2: aliases (*NAME) are not supported",
        "3: aliases (*NAME) are not supported",
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
    "agent, attempts, content, dataset, exclude, given_up, invalid_exceptions, jobs, model, name, "
    "page, reference, reward, tasks, title"
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
        ("tasks: {file: http://canary}", "tasks.file: expected a path, got a URL"),
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


def test_excluded_is_not_given_up(tmp_path: Path) -> None:
    text = RUN + "  exclude: {a: x}\n  given_up:\n    b: x\n    a: y\n"
    (error,) = errors(tmp_path, text)
    assert error.endswith("runs[0].given_up.a: it is excluded already")


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


# Pools.


def pool(text: str) -> str:
    """A pool of one good replica, and this."""
    key = text.partition(":")[0]
    rest = [line for line in ("name: p", REPLICAS) if not line.startswith(f"{key}:")]
    return "pools:\n- " + "\n  ".join([*rest, text]) + "\n"


def test_every_key_of_a_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once; paths are seen from the configuration's folder."""
    monkeypatch.setenv("CANARY_KEY", "canary")
    for name in ("ca.pem", "cert.pem", "key.pem", "api.key"):
        (tmp_path / name).write_text("canary-of-a-file\n")
    config = good(
        tmp_path,
        RUN
        + """\
pools:
- name: main
  title: GLM, one 8-GPU node
  runs: [r]
  jobs: ["tb4-*"]
  api_key: {env: CANARY_KEY}
  timeout: 2s
  scrape_interval: 10s
  frozen_after: 1m
  tls: {ca_file: ca.pem, cert_file: cert.pem, key_file: key.pem}
  replicas:
  - name: r1
    url: https://canary-host:30000
    data_parallel: 2
  - name: r2
    urls: [https://canary-a, https://canary-b/prefix/]
- name: other
  jobs: [x]
  api_key: {file: api.key}
  tls: {insecure_skip_verify: true}
  replicas: [{name: r1, url: https://canary-c}]
""",
    )
    main, other = config.pools
    assert (main.name, main.title, main.runs) == ("main", "GLM, one 8-GPU node", ("r",))
    assert main.jobs == ("tb4-*",)
    assert (main.timeout, main.scrape_interval, main.frozen_after) == (2, 10, 60)
    assert main.api_key is not None and other.api_key is not None
    assert main.api_key.get_secret_value() == "canary"
    assert other.api_key.get_secret_value() == "canary-of-a-file"
    assert main.tls == TlsConfig.model_construct(
        ca_file=str(tmp_path / "ca.pem"),
        cert_file=str(tmp_path / "cert.pem"),
        key_file=str(tmp_path / "key.pem"),
        insecure_skip_verify=False,
    )
    assert other.tls.insecure_skip_verify
    first, second = main.replicas
    assert (first.name, first.servers, first.data_parallel) == (
        "r1",
        ("https://canary-host:30000",),
        2,
    )
    assert second.servers == ("https://canary-a", "https://canary-b/prefix")
    # Neither keys nor addresses can get into a log that way.
    for shown in (repr(config), str(config), repr(main), str(first), repr(second)):
        assert "canary" not in shown


def test_pool_defaults(tmp_path: Path) -> None:
    """A pool needs a name and a replica; the only one serves every job."""
    (found,) = good(tmp_path, f"pools:\n- name: p\n  {REPLICAS}\n").pools
    assert (found.title, found.runs, found.jobs, found.api_key) == ("p", (), (), None)
    assert (found.timeout, found.scrape_interval, found.frozen_after) == (5, 5, 30)
    assert found.tls == TlsConfig()
    assert found.replicas[0].data_parallel is None


@pytest.mark.parametrize(
    ("url", "spelled"),
    [
        ("http://10.0.0.5:30000", "http://10.0.0.5:30000"),
        ("http://10.0.0.5:30000/", "http://10.0.0.5:30000"),
        ("HTTP://Node-1.Example:080/a/B//", "http://node-1.example/a/B"),
        ("https://node_1:443", "https://node_1"),
        ("https://node:80", "https://node:80"),
        ("http://node:", "http://node"),
        ("http://[::1]:30000/x", "http://[::1]:30000/x"),
        ("http://[::1]:30000", "http://[::1]:30000"),
        ("https://[FE80::A:1]:443/", "https://[fe80::a:1]"),
        ("http://10.0.0.5:65535", "http://10.0.0.5:65535"),
    ],
)
def test_server_url(url: str, spelled: str) -> None:
    """One spelling, so that the same server is found again."""
    assert server_url(url) == spelled


OWN_ADDRESS = ", the server's own address without what is asked of it"
URL = "expected http://HOST:PORT or https://HOST:PORT"
USER = "a user or password does not belong into a URL, use api_key"


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("canary:30000", URL),
        ("canary", URL),
        ("//canary", URL),
        ("ftp://canary", URL),
        ("http://", URL),
        ("http:///canary", URL),
        ("http://canary:http", URL),
        ("http://canary:0", URL),
        ("http://canary:65536", URL),
        ("http://canary:70000", URL),
        ("http://canary:-1", URL),
        ("http://::1:30000", URL),
        ("http://[fe80::1%25canary]", URL),
        ("http://-canary", URL),
        ("http://can ary", URL),
        ("http://canary/a b", URL),
        ("http://canary\\x", URL),
        ("http://canäry", URL),
        ("http://canary\n", URL),
        ("http://can\tary", URL),
        (" http://canary", URL),
        ("http://[canary", URL),
        ("http://[::1]canary", URL),
        ("http://canary/?key=canary", f"{URL} without anything from ? or # on"),
        ("http://canary?", f"{URL} without anything from ? or # on"),
        ("http://canary#", f"{URL} without anything from ? or # on"),
        ("http://canary/metrics", f"{URL}{OWN_ADDRESS}"),
        ("http://canary:1/proxy/metrics/", f"{URL}{OWN_ADDRESS}"),
        ("http://canary/v1", f"{URL}{OWN_ADDRESS}"),
        ("http://canary/v1/chat/completions", f"{URL}{OWN_ADDRESS}"),
        ("http://canary/get_server_info", f"{URL}{OWN_ADDRESS}"),
        ("http://canary:canary@host", USER),
        ("http://canary@host", USER),
        ("http://@canary", USER),
        (5, URL),
        (None, URL),
    ],
)
def test_server_url_that_is_none(url: object, error: str) -> None:
    """What was expected, and nothing of what came."""
    with pytest.raises(ConfigError) as caught:
        server_url(url)
    assert str(caught.value) == error


POOL_KEYS = (
    "api_key, frozen_after, jobs, name, replicas, runs, scrape_interval, timeout, title, tls"
)
REPLICA_KEYS = "data_parallel, name, url, urls"
KEY = "expected {env: NAME} or {file: PATH}"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("name: -x", f"name: {NAME}, got '-x'"),
        ("name: http://u:canary@h", f"name: {NAME}, got a URL"),
        ("title: ''", "title: expected a line of text, got ''"),
        ("zzz: canary", f"zzz: unknown key, expected one of {POOL_KEYS}"),
        ("replica: canary", "replica: unknown key, did you mean 'replicas'?"),
        ("http://canary: x", f"[a URL]: unknown key, expected one of {POOL_KEYS}"),
        ("runs: main", "runs: expected a list, got 'main'"),
        ("runs: [5]", "runs[0]: expected the name of a run, got 5 (put it in quotes)"),
        ("runs: [main]", "runs[0]: no run is called 'main'"),
        ("jobs: ['']", "jobs[0]: expected a name or a glob, got ''"),
        ("timeout: 99ms", "timeout: expected at least 100ms, got '99ms'"),
        ("timeout: 61s", "timeout: expected at most 1m, got '61s'"),
        ("timeout: soon", f"timeout: {DURATION}, got 'soon'"),
        ("scrape_interval: 0", "scrape_interval: expected at least 100ms, got 0"),
        ("scrape_interval: 2h", "scrape_interval: expected at most 1h, got '2h'"),
        ("frozen_after: 999ms", "frozen_after: expected at least 1s, got '999ms'"),
        ("frozen_after: 1d", "frozen_after: expected at most 1h, got '1d'"),
        ("api_key: canary", f"api_key: {KEY}"),
        ("api_key: [canary]", f"api_key: {KEY}"),
        ("api_key: {}", f"api_key: {KEY}"),
        ("api_key: {value: canary}", f"api_key: {KEY}"),
        ("api_key: {env: A, file: canary}", f"api_key: {KEY}"),
        ("api_key: {env: A, canary: x}", f"api_key: {KEY}"),
        ("api_key: {env: sk-canary}", f"api_key: {KEY}"),
        ("api_key: {env: 5}", f"api_key: {KEY}"),
        ("api_key: {file: ''}", f"api_key: {KEY}"),
        ('api_key: {file: "canary\\0"}', f"api_key: {KEY}"),
        ("api_key: {file: http://canary}", f"api_key: {KEY}"),
        ("api_key: {env: HL_UNSET}", "api_key: the environment has no variable HL_UNSET"),
        ("tls: canary", "tls: expected a mapping, got text"),
        ("tls: {cafile: canary}", "tls.cafile: unknown key, did you mean 'ca_file'?"),
        ("tls: {ca_file: 5}", "tls.ca_file: expected a path, got 5 (put it in quotes)"),
        ("tls: {key_file: http://canary}", "tls.key_file: expected a path, got a URL"),
        (
            "tls: {insecure_skip_verify: 1}",
            "tls.insecure_skip_verify: expected true or false, got 1",
        ),
        (
            "tls: {insecure_skip_verify: true}",
            "tls: it has no effect on a replica whose URL is http",
        ),
        ("replicas: []", "replicas: expected at least one entry, got none"),
        ("replicas: http://canary", "replicas: expected a list, got text"),
        ("replicas: {a: http://canary}", "replicas: expected a list, got a mapping"),
        ("replicas: [canary:30000]", "replicas[0]: expected a mapping, got text"),
        ("replicas: [{url: http://canary}]", "replicas[0]: the key 'name' is missing"),
        ("replicas: [{name: a}]", "replicas[0]: the key 'url' (or 'urls') is missing"),
        (
            "replicas: [{name: a, url: http://canary, urls: [http://canary-2]}]",
            "replicas[0]: expected url or urls, got both",
        ),
        ("replicas: [{name: a, url: canary}]", f"replicas[0].url: {URL}"),
        ("replicas: [{name: a, url: [http://canary]}]", f"replicas[0].url: {URL}"),
        ("replicas: [{name: a, urls: http://canary}]", "replicas[0].urls: expected a list"),
        (
            "replicas: [{name: a, urls: []}]",
            "replicas[0].urls: expected at least one entry, got none",
        ),
        (
            "replicas: [{name: a, urls: [http://canary, http://u:canary@h]}]",
            f"replicas[0].urls[1]: {USER}",
        ),
        (
            "replicas: [{name: a, url: http://canary, data_parallel: 0}]",
            "replicas[0].data_parallel: expected a whole number from 1 to 100000, got 0",
        ),
        (
            "replicas: [{name: a, url: http://canary, data_parallel: two}]",
            "replicas[0].data_parallel: expected a whole number from 1 to 100000, got 'two'",
        ),
        (
            "replicas: [{name: http://canary@h, url: http://canary}]",
            f"replicas[0].name: {NAME}, got a URL",
        ),
        (
            "replicas: [{name: a, urls: [http://canary, 'http://CANARY:80/']}]",
            "replicas[0].urls[1]: the same URL as pools[0].replicas[0].urls[0]",
        ),
    ],
)
def test_wrong_pool(tmp_path: Path, text: str, error: str) -> None:
    """One error, on the line of the key, without addresses and keys."""
    written = pool(text)
    (found,) = errors(tmp_path, written)
    line = written.count("\n")
    expected = f"{line}: pools[0]{'' if error.startswith('[') else '.'}{error}"
    if error.endswith("expected a list"):
        expected += ", got text"
    assert found == expected


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("pools: http://canary", "1: pools: expected a list, got text"),
        ("pools:", "1: pools: expected a list, got nothing"),
        ("pools: [http://canary]", "1: pools[0]: expected a mapping, got text"),
        ("pools: [{name: p}]", "1: pools[0]: the key 'replicas' is missing"),
        (f"pools: [{{{REPLICAS}}}]", "1: pools[0]: the key 'name' is missing"),
        ("http://canary:30000", "1: expected keys such as jobs: and runs: at the top, got a URL"),
    ],
)
def test_wrong_pools(tmp_path: Path, text: str, error: str) -> None:
    """Nor where whole pools are wrong."""
    assert errors(tmp_path, text) == [error]


@pytest.mark.parametrize(
    ("written", "error"),
    [
        ("*canary", "aliases (*NAME) are not supported"),
        ("!canary", "tags (!NAME) are not supported"),
        ("!!canary", "tags (!NAME) are not supported"),
        ("!<canary>", "tags (!NAME) are not supported"),
        ("!canary!x", "not valid YAML: while parsing a node, found undefined tag handle"),
        ("{env: &canary A, file: &canary B}", "not valid YAML: found duplicate anchor"),
        ("@canary", None),
        ("`canary", None),
        ("%canary", None),
        ("|canary", None),
        ("'%canary", None),
        ('"can\\qary"', None),
    ],
)
def test_a_key_that_yaml_takes_for_something_else(
    tmp_path: Path, written: str, error: str | None
) -> None:
    """Written in the open by mistake, it is not repeated by what is said of it as YAML."""
    (found,) = errors(tmp_path, pool(f"api_key: {written}"))
    assert found == f"4: {error}" or (error is None and ": not valid YAML: " in found)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("", "is empty"),
        (" \n\t", "is empty"),
        ("canary\ncanary", "is not one line of printable ASCII"),
        ("canary\x1b[0m", "is not one line of printable ASCII"),
        ("canary\u00e4", "is not one line of printable ASCII"),
        ("canary" * 683, "is larger than 4 KiB"),
    ],
)
def test_an_api_key_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, error: str
) -> None:
    """From a file or the environment: the same rules, and the key is never shown."""
    monkeypatch.setenv("HL_KEY", value)
    (tmp_path / "k").write_text(value)
    assert errors(tmp_path, pool("api_key: {env: HL_KEY}")) == [
        f"4: pools[0].api_key: the environment's variable HL_KEY {error}"
    ]
    assert errors(tmp_path, pool("api_key: {file: k}")) == [
        f"4: pools[0].api_key: '{tmp_path}/k' {error}"
    ]


@pytest.mark.parametrize(
    ("name", "reason"), [("none", "No such file or directory"), ("", "Is a directory")]
)
def test_a_file_of_a_pool_that_cannot_be_read(tmp_path: Path, name: str, reason: str) -> None:
    """Keys and certificates are looked for when the configuration is loaded."""
    path = tmp_path / name
    https = "replicas: [{name: r, url: https://canary}]"
    for key, text in (
        ("api_key", f"api_key: {{file: {path}}}"),
        ("tls.ca_file", f"tls: {{ca_file: {path}}}"),
        ("tls.cert_file", f"tls: {{cert_file: {path}}}"),
    ):
        assert errors(tmp_path, f"pools:\n- name: p\n  {https}\n  {text}\n") == [
            f"4: pools[0].{key}: '{path}' cannot be read: {reason}"
        ]


def test_an_api_key_is_read_with_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a reload takes a new one over. Space around it is none of it."""
    for value in ("one", "two words"):
        (tmp_path / "k").write_text(f"  {value}\r\n")
        monkeypatch.setenv("HL_KEY", f"{value}\n")
        for text in ("api_key: {file: k}", "api_key: {env: HL_KEY}"):
            (found,) = good(tmp_path, pool(text)).pools
            assert found.api_key is not None
            assert found.api_key.get_secret_value() == value


def test_the_longest_api_key(tmp_path: Path) -> None:
    """The bound itself is a good one."""
    (tmp_path / "k").write_text("k" * 4096)
    (found,) = good(tmp_path, pool("api_key: {file: k}")).pools
    assert found.api_key is not None and len(found.api_key.get_secret_value()) == 4096


def test_the_bounds_of_a_pools_durations(tmp_path: Path) -> None:
    """So are theirs."""
    for written, expected in (
        ("timeout: 100ms\n  scrape_interval: 0.1\n  frozen_after: 1", (0.1, 0.1, 1)),
        ("timeout: 60\n  scrape_interval: 1h\n  frozen_after: 60m", (60, 3600, 3600)),
    ):
        (found,) = good(tmp_path, pool(written)).pools
        assert (found.timeout, found.scrape_interval, found.frozen_after) == expected


def test_the_same_server_written_in_two_ways(tmp_path: Path) -> None:
    """Over pools, with IPv6 hosts and the default port; another port or path is another server."""
    text = "pools:\n"
    for name, url in (
        ("a", "http://[::A]:80"),
        ("b", "HTTP://[::a]/"),
        ("c", "http://[::a]:81"),
        ("d", "http://[::a]/x"),
    ):
        text += f"- {{name: {name}, jobs: [j], replicas: [{{name: r, url: '{url}'}}]}}\n"
    assert errors(tmp_path, text) == [
        "3: pools[1].replicas[0].url: the same URL as pools[0].replicas[0].url"
    ]


def test_tls_that_does_not_fit_together(tmp_path: Path) -> None:
    """All of it at once."""
    (tmp_path / "f").touch()
    text = pool("tls:\n    key_file: f\n    ca_file: f\n    insecure_skip_verify: true")
    assert errors(tmp_path, text) == [
        "5: pools[0].tls.key_file: it needs cert_file, too",
        "6: pools[0].tls.ca_file: it has no effect with insecure_skip_verify: true",
    ]


def test_all_errors_of_pools_at_once(tmp_path: Path) -> None:
    """Whatever is wrong elsewhere, in an entry itself or between entries."""
    text = """\
        runs:
        - {name: tb4, jobs: [j], attempts: five}
        pools:
        - name: a
          runs: [tb5, tb4]
          replicas:
          - {name: r, url: "http://canary:1"}
          - {name: r, url: "http://canary:2", colour: red}
        - name: a
          timeout: 0
          replicas:
          - {name: r, url: "http://canary:1/"}
          - {name: s, urls: ["http://canary:2", "canary:3", "http://canary:2"]}
        - {name: b, jobs: [], replicas: [{name: r, url: "http://canary:4"}]}
        """
    assert sorted(errors(tmp_path, text)) == sorted(
        [
            "2: runs[0].attempts: expected a whole number >= 1, got 'five'",
            "5: pools[0].runs[0]: no run is called 'tb5', did you mean 'tb4'?",
            f"8: pools[0].replicas[1].colour: unknown key, expected one of {REPLICA_KEYS}",
            "8: pools[0].replicas[1].name: 'r' is the name of replicas[0] already",
            "9: pools[1]: one of several pools needs the runs or jobs that use it",
            "9: pools[1].name: 'a' is the name of pools[0] already",
            "10: pools[1].timeout: expected at least 100ms, got 0",
            "12: pools[1].replicas[0].url: the same URL as pools[0].replicas[0].url",
            "13: pools[1].replicas[1].urls[0]: the same URL as pools[0].replicas[1].url",
            f"13: pools[1].replicas[1].urls[1]: {URL}",
            "13: pools[1].replicas[1].urls[2]: the same URL as pools[0].replicas[1].url",
            "14: pools[2]: one of several pools needs the runs or jobs that use it",
        ]
    )


def test_a_run_of_a_pool_is_listed_once(tmp_path: Path) -> None:
    assert errors(tmp_path, RUN + pool("runs: [r, r]")) == [
        "7: pools[0].runs[1]: 'r' is listed twice"
    ]


def test_pools_made_by_a_program() -> None:
    """The same rules, and the same silence about addresses."""
    replica = ReplicaConfig(name="r", url="http://canary:1/")
    one, two = (PoolConfig(name=name, jobs=("j",), replicas=(replica,)) for name in "ab")
    assert Config(pools=(one,)).pools == (one,)
    with pytest.raises(ValidationError) as caught:
        Config(pools=(one, two))
    assert "the same URL as pools[0].replicas[0].url" in str(caught.value)
    with pytest.raises(ValidationError) as unread:
        ReplicaConfig(name="r", url="canary")
    assert URL in str(unread.value)
    assert "canary" not in f"{caught.value!r} {unread.value!r}"


# References.

TABLE = "task,passed,attempts\na,5,5\nb,3,5\nc,0,5\nd,1,5\n"
"""A mean of 0.45 with 0.15495 beside it."""


SHIPPED = "terminal-bench-4.0-glm-5.3"


def of_reference(text: str) -> str:
    rest = [line for line in ("name: r", "table: t.csv") if line[:5] != text[:5]]
    return "references:\n- " + "\n  ".join([*rest, text]) + "\n"


def test_every_key_of_a_reference(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE, "utf-8")
    (tmp_path / "h.yml").write_text(
        """\
references:
- name: r
  table: t.csv
  title: Row r
  agent: Claude Code
  model: GLM
  headline: {ratio: 0.45, half_width: 0.155, passed: 9, attempts: 20}
  links: {Leaderboard row: "https://example.org/row?x=1#r"}
  note: As published.
- {name: s, job: jobs/s}
runs:
- {name: one, jobs: [j], reference: r}
- {name: two, jobs: [j], reference: terminal-bench-4.0-glm-5.3}
""",
        "utf-8",
    )
    config = load_config(tmp_path / "h.yml")
    first, second = config.references
    assert first.table is not None
    made = first.reference(first.table)
    assert (made.name, made.title, made.agent, made.model) == ("r", "Row r", "Claude Code", "GLM")
    assert (totals(made.tasks.values()), made.note) == ((20, 9, 0), same("As published."))
    assert (made.headline.ratio, made.headline.attempts) == (0.45, 20)
    assert made.links == {same("Leaderboard row"): "https://example.org/row?x=1#r"}
    assert (second.title, second.table) == (same("s"), None)
    assert config.reference_job(second) == str(tmp_path / "jobs" / "s")
    assert [run.reference for run in config.runs] == ["r", "terminal-bench-4.0-glm-5.3"]


NO_LINK = "expected https://HOST/PATH"
NOT_OF_TABLE = "the headline is not that of the table"
NO_RATIO = "expected a ratio from 0 to 1"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("job: x", "expected table or job, got both"),
        ("note: ''", "note: expected a line of text, got ''"),
        ("links: {a: 'javascript:alert(1)'}", f"links.a: {NO_LINK}"),
        ("links: {a: 'https://user:secret@host/'}", f"links.a: {NO_LINK}"),
        ('links: {a: "https://h/\\"onclick"}', f"links.a: {NO_LINK}"),
        ("headline: {ratio: 41.82}", f"headline.ratio: {NO_RATIO}, got 41.82"),
        ("headline: {ratio: true}", f"headline.ratio: {NO_RATIO}, got true"),
        ("headline: {half_width: .nan}", f"headline.half_width: {NO_RATIO}, got nan"),
        ("headline: {passed: -1}", "headline.passed: expected a whole number >= 0, got -1"),
        (
            "headline: {ratio: 0.5}",
            f"headline: {NOT_OF_TABLE}: ratio 0.5 published, 0.450000 from the table",
        ),
        ("table: http://host/t.csv", "table: expected a path, got a URL"),
        ("table: 7", "table: expected a path, got 7"),
    ],
)
def test_wrong_reference(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "t.csv").write_text(TABLE, "utf-8")
    (said,) = errors(tmp_path, of_reference(text))
    line, _, what = said.partition(": ")
    assert line in {"2", "3", "4"}
    place = "references[0]"
    assert what == (f"{place}.{error}" if error[0] != "e" else f"{place}: {error}")


def test_a_table_of_a_reference(tmp_path: Path) -> None:
    """What is wrong with the table is said with its own line."""
    path = tmp_path / "t.csv"
    (said,) = errors(tmp_path, of_reference("note: x"))
    missing = f"'{path}': there is no such file"
    assert said == f"3: references[0].table: {missing}"
    path.write_text("task,passed,attempts\na,6,5\n", "utf-8")
    (said,) = errors(tmp_path, of_reference("note: x"))
    wrong = "line 2: passed: expected a whole number from 0 to 5, got '6'"
    assert said == f"3: references[0].table: '{path}': {wrong}"


def test_names_of_references(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE, "utf-8")
    text = """\
runs:
- {name: one, jobs: [j], reference: rr}
- {name: two, jobs: [j], reference: zzz}
references:
- {name: r, table: t.csv}
- {name: r, table: t.csv}
- {name: terminal-bench-4.0-glm-5.3, table: t.csv}
- {name: none}
"""
    assert errors(tmp_path, text) == [
        "2: runs[0].reference: no reference is called 'rr', did you mean 'r'?",
        f"3: runs[1].reference: no reference is called 'zzz', expected one of r, {SHIPPED}, none",
        "6: references[1].name: 'r' is the name of references[0] already",
        f"7: references[2].name: a reference called '{SHIPPED}' ships with Harborlight",
        "8: references[3]: the key 'table' (or 'job') is missing",
    ]


HARBOR_KEYS = "api_key, name, timeout, tls, url"


def test_harbor_server_defaults(tmp_path: Path) -> None:
    text = "harbor_servers:\n- {name: s, url: http://canary:8390/}\n"
    (found,) = good(tmp_path, text).harbor_servers
    assert (found.url, found.api_key, found.timeout) == ("http://canary:8390", None, 5)
    assert found.tls == TlsConfig()
    assert "canary" not in repr(found)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("5", ": expected a list, got 5"),
        ("http://canary", ": expected a list, got text"),
        ("[http://canary]", "[0]: expected a mapping, got text"),
        ("[{url: http://h}]", "[0]: the key 'name' is missing"),
        ("[{name: s}]", "[0]: the key 'url' is missing"),
        ("[{name: s, url: http://u:canary@h}]", f"[0].url: {USER}"),
        ("[{name: s, url: canary}]", f"[0].url: {URL}"),
        (
            "[{name: s, url: http://h, key: canary}]",
            "[0].key: unknown key, did you mean 'api_key'?",
        ),
        (
            "[{name: s, url: http://h, zzz: canary}]",
            f"[0].zzz: unknown key, expected one of {HARBOR_KEYS}",
        ),
        ("[{name: s, url: http://h, api_key: canary}]", f"[0].api_key: {KEY}"),
        (
            "[{name: s, url: http://h, timeout: 1h}]",
            "[0].timeout: expected at most 1m, got '1h'",
        ),
        (
            "[{name: s, url: http://h, tls: {insecure_skip_verify: true}}]",
            "[0].tls: it has no effect on a server whose URL is http",
        ),
        (
            "[{name: s, url: http://h}, {name: s, url: http://canary}]",
            "[1].name: 's' is the name of harbor_servers[0] already",
        ),
        (
            "[{name: a, url: http://h/}, {name: b, url: http://H}]",
            "[1].url: the same URL as harbor_servers[0].url",
        ),
    ],
)
def test_what_is_wrong_with_a_harbor_server(tmp_path: Path, text: str, error: str) -> None:
    (said,) = errors(tmp_path, f"harbor_servers: {text}\n")
    assert said == f"1: harbor_servers{error}"


# The live page.


def test_every_key_of_the_live_page(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("canary-of-names\n", "utf-8")
    config = good(
        tmp_path,
        """
        live_page:
          title: {en: Evaluations, zh: 评测}
          runs: [tb-*, other]
          task_names: hashed
          hash_key: {file: key}
        runs:
          - name: tb-4
            jobs: [j]
            tasks: [a, b, c]
            exclude: {a: {en: needs a GPU, zh: 需要 GPU}, b: its image is gone}
            given_up: {c: {en: broken, zh: 已损坏}}
            page:
              title: Terminal-Bench 4.0 Live
              side: {en: FP8 current, zh: 当前 FP8}
              denominator: "Three of the 66 tasks ask for a GPU: 24/7 in use."
              comparison: {en: Not the same runtime., zh: 并非同一运行环境。}
        """,
    )
    page = config.live_page
    assert page.title == Words("Evaluations", "评测")
    assert (page.runs, page.task_names) == (("tb-*", "other"), TaskNames.HASHED)
    assert page.hash_key is not None and page.hash_key.get_secret_value() == "canary-of-names"
    (run,) = config.runs
    assert run.exclude == {"a": Words("needs a GPU", "需要 GPU"), "b": same("its image is gone")}
    assert run.given_up == {"c": Words("broken", "已损坏")}
    assert run.page.title == same("Terminal-Bench 4.0 Live")
    assert run.page.side == Words("FP8 current", "当前 FP8")
    assert run.page.denominator == same("Three of the 66 tasks ask for a GPU: 24/7 in use.")
    assert run.page.comparison == Words("Not the same runtime.", "并非同一运行环境。")


LINE_IN_BOTH = "expected a line of text, or {en: TEXT, zh: TEXT}"
NO_PLACE = "without a path or an address"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("live_page: yes", "1: live_page: expected a mapping, got text"),
        (
            "live_page: {names: hashed}",
            "1: live_page.names: unknown key, did you mean 'task_names'?",
        ),
        ("live_page: {title: 5}", f"1: live_page.title: {LINE_IN_BOTH}, got 5"),
        ("live_page: {title: {en: a}}", f"1: live_page.title: {LINE_IN_BOTH}, got a mapping"),
        (
            "live_page: {title: {en: a, zh: b, de: c}}",
            f"1: live_page.title: {LINE_IN_BOTH}, got a mapping",
        ),
        (
            "live_page: {title: see http://canary-host/x}",
            f"1: live_page.title: {LINE_IN_BOTH}, {NO_PLACE}",
        ),
        (
            "live_page: {title: {en: a, zh: 在 10.0.0.5}}",
            f"1: live_page.title: {LINE_IN_BOTH}, {NO_PLACE}",
        ),
        (
            "live_page: {task_names: secret}",
            "1: live_page.task_names: expected one of shown, hashed, hidden, got 'secret'",
        ),
        ("live_page: {task_names: hashed}", "1: live_page.task_names: hashed needs a hash_key"),
        (
            "live_page: {hash_key: {env: PATH}}",
            "1: live_page.hash_key: it has no effect without task_names: hashed",
        ),
        (
            "live_page: {task_names: hashed, hash_key: canary-key}",
            "1: live_page.hash_key: expected {env: NAME} or {file: PATH}",
        ),
        (
            RUN + "  page: {denominator: 'in /srv/models/x'}",
            "4: runs[0].page.denominator: expected text, or {en: TEXT, zh: TEXT}, " + NO_PLACE,
        ),
        (RUN + "  page: [x]", "4: runs[0].page: expected a mapping, got a list"),
        (
            RUN + "  exclude: {a: {en: x}}",
            f"4: runs[0].exclude.a: {LINE_IN_BOTH}, got a mapping",
        ),
        (
            "references:\n- name: r\n  job: j\n  links: {a: {zh: b}}",
            "4: references[0].links.a: expected {zh: TEXT, url: https://HOST/PATH}",
        ),
    ],
)
def test_wrong_live_page(tmp_path: Path, text: str, error: str) -> None:
    assert errors(tmp_path, text) == [error]


def test_links_in_both_languages(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE, "utf-8")
    config = good(
        tmp_path,
        """
        references:
          - name: r
            table: t.csv
            links: {Row: {zh: 记录, url: "https://example.org/row"}}
            note: {en: As published., zh: 与发布的一致。}
            title: {en: Row r, zh: 记录 r}
        """,
    )
    (entry,) = config.references
    assert entry.table is not None
    made = entry.reference(entry.table)
    assert made.links == {Words("Row", "记录"): "https://example.org/row"}
    assert (made.title, made.title_zh) == ("Row r", "记录 r")
    assert made.note == Words("As published.", "与发布的一致。")
