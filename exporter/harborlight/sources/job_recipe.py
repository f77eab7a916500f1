"""How a Harbor job was made, as far as it takes to make another one like it.

Read by Harbor's own model of its ``config.json``, and only for commands that a person is to run:
what is in here has paths in it and is never exported.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harbor.models.job.config import DatasetConfig, JobConfig
from harbor.models.trial.config import TaskConfig
from harbor.publisher.packager import Packager

from harborlight.recorder import FILE_NAME
from harborlight.records import TaskRef
from harborlight.sources.job_directory import JOB_FILE_LIMIT
from harborlight.sources.safe_read import ReadError, read_stable


@dataclass(frozen=True, slots=True)
class TaskSource:
    """Where tasks come from: the options of ``harbor run`` and ``harbor job regrade`` that name it.

    ``label``: what Harbor calls it ("" for a single task, whose name is then ``task``).
    """

    options: tuple[str, ...]
    label: str = ""
    task: str = ""


@dataclass(frozen=True, slots=True)
class JobRecipe:
    """What a new job needs to know of an old one.

    ``environment``: its type or import path, None for Harbor's default. ``n_agents``: how many it
    ran. ``verifier_variables``: names of environment variables set for the verifier.
    ``redacted``: names of those whose values Harbor did not write down. ``recorded``: it had the
    recorder. ``by_hand``: what cannot be said with options.
    """

    directory: Path
    sources: tuple[TaskSource, ...]
    environment: str | None
    n_agents: int
    verifier_variables: tuple[str, ...]
    redacted: tuple[str, ...]
    recorded: bool
    by_hand: tuple[str, ...]

    def source_of(self, task: TaskRef) -> TaskSource | None:
        """Where a task of the job comes from; None where that cannot be told."""
        single = [source for source in self.sources if source.task == task.name]
        sets = [source for source in self.sources if not source.task]
        named = [source for source in sets if source.label == task.source]
        # The only set is the one, unless there are tasks that no option names.
        for found in (single, named, sets if not self.by_hand else []):
            if len(found) == 1:
                return found[0]
        return None


def read_recipe(directory: Path) -> JobRecipe:
    """The recipe of the job in a directory. Raises OSError or ValueError where it has none."""
    try:
        data, _ = read_stable(directory / "config.json", JOB_FILE_LIMIT)
    except ReadError as error:
        raise ValueError(error.reason) from None
    config = JobConfig.model_validate_json(data)
    by_hand: list[str] = []
    variables = {
        **config.environment.env,
        **config.verifier.env,
        **{name: value for agent in config.agents for name, value in agent.env.items()},
    }
    return JobRecipe(
        directory=directory,
        sources=tuple(_sources(config, by_hand)),
        environment=_environment(config),
        n_agents=len(config.agents),
        verifier_variables=tuple(sorted(config.verifier.env)),
        redacted=tuple(sorted(name for name, value in variables.items() if "****" in value)),
        recorded=os.path.exists(directory / FILE_NAME),
        by_hand=tuple(by_hand),
    )


def _sources(config: JobConfig, by_hand: list[str]) -> Iterator[TaskSource]:
    for dataset in config.datasets:
        options = _dataset_options(dataset)
        if dataset.registry_url is not None and _has_secret(dataset.registry_url):
            by_hand.append(
                "its registry's URL may have a credential in it, which is not shown here"
            )
        elif options is None:
            by_hand.append("its tasks come from a repository, which a command here cannot name")
        else:
            name = dataset.path.name if dataset.path is not None else dataset.name or ""
            yield TaskSource(options, label=name)
    for task in config.tasks:
        name, option = _task_option(task)
        if option is None:
            by_hand.append("a task of it comes from a repository, which a command here cannot name")
        else:
            yield TaskSource(option, task=name)


def _has_secret(url: str) -> bool:
    """Whether there is more to a URL than where it leads."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return True
    return "@" in parts.netloc or bool(parts.query or parts.fragment)


def _dataset_options(dataset: DatasetConfig) -> tuple[str, ...] | None:
    if dataset.repo is not None:
        return None
    if dataset.path is not None:
        return ("-p", str(dataset.path))
    version = dataset.ref or dataset.version
    options = ["-d", f"{dataset.name}@{version}" if version else f"{dataset.name}"]
    if dataset.registry_url is not None:
        options += ["--registry-url", dataset.registry_url]
    if dataset.registry_path is not None:
        options += ["--registry-path", str(dataset.registry_path)]
    return tuple(options)


def _task_option(task: TaskConfig) -> tuple[str, tuple[str, ...] | None]:
    if task.git_url is not None:
        return "", None
    if task.path is not None:
        return task.path.name, ("-p", str(task.path))
    return task.name or "", ("-t", f"{task.name}@{task.ref}" if task.ref else f"{task.name}")


def _environment(config: JobConfig) -> str | None:
    if config.environment.import_path:
        return config.environment.import_path
    kind = config.environment.type
    return str(getattr(kind, "value", kind)) if kind is not None else None


def changed_tasks(recipe: JobRecipe, locked: Iterable[tuple[TaskRef, str]]) -> list[str]:
    """The tasks in folders that are no longer the version that a job's lock has, by name.

    Harbor does not resume a job whose tasks changed. A folder that is not here tells nothing.
    """
    changed: set[str] = set()
    for task, digest in locked:
        source = recipe.source_of(task)
        if source is None or source.options[0] != "-p":
            continue
        folder = Path(source.options[1]).expanduser()
        if not source.task:
            folder /= task.name
        try:
            if (folder / "task.toml").is_file():
                found, _ = Packager.compute_content_hash(folder)
                if f"sha256:{found}" != digest:
                    changed.add(task.name)
        except (OSError, ValueError):
            continue
    return sorted(changed)


def relative_paths(recipe: JobRecipe) -> bool:
    """Whether a path in it depends on where Harbor was started."""
    paths = [source.options[1] for source in recipe.sources if source.options[0] == "-p"]
    return any(not re.match(r"/|~", path) for path in paths)
