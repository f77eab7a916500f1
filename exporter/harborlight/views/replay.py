"""A replay plan as Harbor commands: a shell script to read and then to run, or JSON."""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from harborlight.ledger.faults import Boundary
from harborlight.ledger.jobs import JobState
from harborlight.ledger.replay_plan import ReplayPlan, Step
from harborlight.sources.job_recipe import JobRecipe, relative_paths

_PLUGIN: Final = ("--plugin", "harborlight")
_VARIABLE: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_JOB_FILES: Final = ("config.json", "lock.json", "result.json")
_NO_RECIPE: Final = "no command: expected a config.json there that the installed Harbor understands"
_TITLES: Final = {
    Boundary.REGRADE: "Regrade what job {job} left without a verdict",
    Boundary.RESUME: "Resume job {job}",
    Boundary.RERUN: "A new job like {job}",
}


@dataclass(frozen=True, slots=True)
class Replay:
    """One step as lines for a shell. ``remarks``: what to know before running them.

    ``new_job``: the name of the job that it makes, "" where it makes none.
    """

    step: Step
    title: str
    commands: tuple[str, ...]
    remarks: tuple[str, ...]
    new_job: str = ""


def replays(
    plan: ReplayPlan, recipes: Mapping[str, JobRecipe], taken: Collection[str]
) -> list[Replay]:
    """The steps of a plan in Harbor's words.

    ``recipes``: by the ids of the jobs in the plan, as far as these have one. ``taken``: names that
    jobs have already.
    """
    names = set(taken)
    made = []
    for step in plan.steps:
        recipe = recipes.get(step.job_id)
        if recipe is None:
            made.append(Replay(step, _title(step, step.job_id), (), (_NO_RECIPE,)))
            continue
        match step.boundary:
            case Boundary.REGRADE:
                made.append(_regrade(step, recipe, _new_name(recipe, "regrade", names)))
            case Boundary.RESUME:
                made.append(_resume(step, recipe))
            case Boundary.RERUN:
                made += _reruns(step, recipe, names)
    return made


def _new_name(recipe: JobRecipe, what: str, names: set[str]) -> str:
    """A name that no job has yet, with the old one's in front, so that its globs may match."""
    name = base = f"{recipe.directory.name}-{what}"
    number = 2
    while name in names or (recipe.directory.parent / name).exists():
        name, number = f"{base}-{number}", number + 1
    names.add(name)
    return name


def _regrade(step: Step, recipe: JobRecipe, name: str) -> Replay:
    # Harbor regrades a job as a whole: what has its verdict is kept out by a folder of links.
    folder = recipe.directory
    selection = '"$selection"'
    places: dict[tuple[str, ...], None] = {}  # each once
    remarks = list(_remarks(recipe))
    for task in step.refs.values():
        source = recipe.source_of(task)
        if source is None:
            remarks.append(f"where task {task.name} comes from has to be added with -p or -t")
        else:
            places[source.options[:2]] = None
    options = [option for place in places for option in place]
    if recipe.environment is not None:
        options += ["-e", recipe.environment]
    shown = [_quoted(option) for option in options]
    for variable in recipe.verifier_variables:
        if _VARIABLE.fullmatch(variable):
            shown += ["--ve", f'{variable}="${variable}"']
        else:
            remarks.append(f"the verifier's variable {variable} has to be added with --ve")
    if recipe.verifier_variables:
        remarks.append(f"set for the verifier: {', '.join(recipe.verifier_variables)}")
    commands = (
        f"selection=$(mktemp -d)/{_quoted(folder.name)}",
        f"mkdir {selection}",
        _shell("cp", *[str(folder / file) for file in _JOB_FILES]) + f" {selection}",
        _shell("ln", "-s", *[str(folder / trial) for trial in step.trials]) + f" {selection}",
        " ".join(
            [
                f"harbor job regrade {selection}",
                *shown,
                _shell("-o", str(folder.parent), "--job-name", name),
            ]
        ),
    )
    return Replay(step, _title(step, recipe.directory.name), commands, tuple(remarks), name)


def _resume(step: Step, recipe: JobRecipe) -> Replay:
    arguments = ["harbor", "job", "resume", "-p", str(recipe.directory)]
    for name in step.filtered:
        arguments += ["-f", name]
    if recipe.recorded:
        arguments += _PLUGIN
    remarks = [*_remarks(recipe)]
    if step.filtered:
        remarks.append("it deletes the trials with these exceptions, none of which is scored")
    return Replay(step, _title(step, recipe.directory.name), (_shell(*arguments),), tuple(remarks))


def _reruns(step: Step, recipe: JobRecipe, names: set[str]) -> Iterator[Replay]:
    """One job for each place that the tasks come from, a job a task where they are single ones."""
    by_source: dict[tuple[str, ...], list[str]] = {}
    unknown = []
    single = {source.options for source in recipe.sources if source.task}
    for label, task in step.refs.items():
        source = recipe.source_of(task)
        if source is None:
            unknown.append(label)
        else:
            by_source.setdefault(source.options, []).append(label)
    for options, labels in by_source.items():
        name = _new_name(recipe, "replay", names)
        count = step.attempts[labels[0]]
        config = _quoted(str(recipe.directory / "config.json"))
        arguments = [*options]
        if options not in single:
            for label in labels:
                arguments += ["-i", glob.escape(step.refs[label].name)]
        arguments += [
            "-k",
            str(count),
            "-o",
            str(recipe.directory.parent),
            "--job-name",
            name,
            "-y",
        ]
        if recipe.recorded:
            arguments += _PLUGIN
        remarks = list(_remarks(recipe))
        if recipe.n_agents > 1:
            remarks.append(
                f"the job had several agents: set CONFIG to a copy of {config} with the run's only"
            )
            config = '"${CONFIG:?}"'  # as it is, it would run the others, too
        command = f"harbor run -c {config} {_shell(*arguments)}"
        part = step.part(labels)
        yield Replay(part, _title(step, recipe.directory.name), (command,), tuple(remarks), name)
    if unknown:
        why = "no command: where these tasks come from cannot be told"
        title = _title(step, recipe.directory.name)
        yield Replay(step.part(unknown), title, (), (*recipe.by_hand, why))


def _remarks(recipe: JobRecipe) -> Iterator[str]:
    if recipe.redacted:
        names = ", ".join(recipe.redacted)
        yield f"Harbor kept no value of {names}: set it in Harbor's environment and configuration"
    if relative_paths(recipe):
        yield "paths of tasks are as the job had them: start it where Harbor was started"


def hints(
    plan: ReplayPlan,
    steps: Sequence[Replay],
    *,
    jobs: Sequence[str],
    globs: Sequence[str] | None,
    changed: Mapping[str, Sequence[str]],
) -> list[str]:
    """What to know beside the steps, each a few lines.

    ``jobs``: the run's, by label. ``globs``: of the jobs of a configured run, None for an
    automatic one. ``changed``: tasks that are another version now, by the label of their job.
    """
    told = [
        f"Tasks of job {job} are another version now: {', '.join(tasks)}.\n"
        "Harbor does not resume such a job, so new ones are planned. Once the new version is in\n"
        "the run, verdicts on the one before are stale content and do not count, unless the\n"
        "configuration pins it (content:)."
        for job, tasks in changed.items()
    ]
    told += [
        f"Job {job} is not resumed for {', '.join(types)}: Harbor picks by the type alone, so a\n"
        "resume would delete or run again what is not missing. New jobs are planned instead."
        for job, types in plan.spared.items()
    ]
    working = [job for job, state in plan.unended.items() if state is not JobState.UNKNOWN]
    unknown = [job for job, state in plan.unended.items() if state is JobState.UNKNOWN]
    if working:
        told.append(
            f"Still at work: {', '.join(working)}. What they run and will run is not missing.\n"
            "Once they have ended, a resume may do for what a new job is planned for here."
        )
    if unknown:
        told.append(
            f"Whether anybody works on these jobs cannot be told: {', '.join(unknown)}.\n"
            "What they hold counts as running or queued, not as missing. If Harbor runs on this\n"
            "host, --local-jobs tells; the recorder would have."
        )
    new = [r.new_job for r in steps if r.step.boundary is Boundary.RERUN and r.new_job]
    strange = [name for name in new if not any(fnmatchcase(name, one) for one in globs or ())]
    if strange and globs is None:
        told.append(
            "A new job is a run of its own unless a configuration puts the jobs into one:\n"
            f"runs: [{{name: NAME, jobs: {json.dumps([*jobs, *strange])}}}]"
        )
    elif strange:
        told.append(f"Add to the run's jobs in the configuration: {', '.join(strange)}")
    return told


def _title(step: Step, job: str) -> str:
    return _TITLES[step.boundary].format(job=_one_line(job))


def _shell(*arguments: str) -> str:
    return " ".join(map(_quoted, arguments))


def _quoted(argument: str) -> str:
    """One word for a shell; where something in it cannot be printed, that is written by its bytes.

    So a command is one line, whatever a file's name has in it.
    """
    if argument.isprintable():
        return shlex.quote(argument)
    return "$'" + "".join(map(_escaped, argument)) + "'"


def _escaped(character: str) -> str:
    if character in "'\\":
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))


def _one_line(text: str) -> str:
    """Text of a file's name in a comment: nothing in it may begin a line of its own."""
    return "".join(c if c.isprintable() else "?" for c in text)


def as_script(plan: ReplayPlan, steps: Sequence[Replay], hints: Sequence[str]) -> str:
    """Comments and commands, in the order in which to run them."""
    given = [replay.step for replay in steps if replay.commands]
    planned = sum(step.total for step in given)
    agents = sum(step.total for step in given if step.boundary is not Boundary.REGRADE)
    lines = [f"# Run {plan.run}: {_attempts(plan.missing)} missing"]
    if plan.missing:
        lines[0] += f", {planned} planned here ({agents} with the agent)."
        lines.append("# Read it, then run it with bash -e.")
    else:
        lines[0] += "."
    for number, replay in enumerate(steps, 1):
        kind = ", verifiers only" if replay.step.boundary is Boundary.REGRADE else ""
        lines += ["", f"# {number}. {replay.title}: {_attempts(replay.step.total)}{kind}"]
        lines += [f"#    {_counts(replay.step.attempts)}"]
        lines += [f"#    ({_one_line(remark)})" for remark in replay.remarks]
        lines += replay.commands
    if plan.not_planned:
        lines += ["", "# Not planned:"]
    for rest in plan.not_planned:
        lines.append(f"#    {rest.why}: {_counts(rest.attempts)}")
    lines += [
        line
        for hint in hints
        for line in ("", *(f"# {_one_line(part)}" for part in hint.splitlines()))
    ]
    return "\n".join(lines) + "\n"


def as_json(plan: ReplayPlan, steps: Sequence[Replay], hints: Sequence[str]) -> str:
    """One object; ``attempts`` by task."""
    document = {
        "run": plan.run,
        "missing": plan.missing,
        "steps": [
            {
                "boundary": replay.step.boundary,
                "attempts": dict(sorted(replay.step.attempts.items())),
                "new_job": replay.new_job or None,
                "commands": replay.commands,
                "remarks": replay.remarks,
            }
            for replay in steps
        ],
        "not_planned": [
            {"why": rest.why, "attempts": dict(sorted(rest.attempts.items()))}
            for rest in plan.not_planned
        ],
        "hints": list(hints),
    }
    # In ASCII: a new job's name may have bytes of the old one's that are no text.
    return json.dumps(document, indent=2) + "\n"


def _attempts(count: int) -> str:
    return f"{count} attempt{'' if count == 1 else 's'}"


def _counts(attempts: Mapping[str, int]) -> str:
    return ", ".join(f"{task} {count}" for task, count in sorted(attempts.items()) if count)
