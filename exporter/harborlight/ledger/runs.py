"""Which run a trial belongs to, and by which rules the run judges it (pure).

A run is configured, or automatic: one per job, agent, model and dataset. A regrade or diff
job joins the run of the job that it derives from, as soon as that job is known.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import NamedTuple

from harborlight.labels import safe_label
from harborlight.ledger.faults import Cause
from harborlight.ledger.jobs import Job
from harborlight.ledger.outcomes import RewardRule
from harborlight.ledger.ownership import TaskRules
from harborlight.records import TaskRef, TrialRecord


@dataclass(frozen=True, slots=True)
class RunDefinition:
    """A configured run.

    ``jobs`` and ``supersedes`` are globs over job names, labels and ids; ``agent``, ``model`` and
    ``dataset`` are globs too (None: any). ``tasks``: the fixed list (None: what the jobs plan);
    ``tasks_of``: a job that has the list. ``content``: digest by task, for tasks whose version is
    not that of the newest job. ``exclude``, ``given_up``: tasks and why.
    """

    label: str
    title: str = ""
    jobs: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()
    tasks: tuple[str, ...] | None = None
    tasks_of: str | None = None
    exclude: Mapping[str, str] = MappingProxyType({})
    attempts: int | None = None
    reward: RewardRule = RewardRule()
    agent: str | None = None
    model: str | None = None
    dataset: str | None = None
    content: Mapping[str, str] = MappingProxyType({})
    given_up: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Seen:
    """An evaluation of a task that some trial of a job shows."""

    agent: str
    model: str
    task: TaskRef
    digest: str | None


@dataclass(slots=True)
class Run:
    """One run: its jobs, its tasks with their rules, and slots that belong to no known task.

    ``agent``, ``model``, ``dataset``: as configured, "" where there are several.
    ``unassigned``: slots a job id that a job without a lock will give to tasks not seen yet.
    ``pooled``: the same where even the attempts a task are not known: all slots of the job, of
    which the tasks seen take theirs. ``unknown_tasks``: what the definition says something of and
    no job has.
    """

    key: str
    label: str
    title: str
    definition: RunDefinition | None
    agent: str = ""
    model: str = ""
    dataset: str = ""
    jobs: list[str] = field(default_factory=list)
    tasks: dict[TaskRef, TaskRules] = field(default_factory=dict)
    unassigned: dict[str, int] = field(default_factory=dict)
    pooled: dict[str, int] = field(default_factory=dict)
    target_known: bool = True
    unknown_tasks: tuple[str, ...] = ()

    @property
    def account(self) -> str:
        """Under what name its counters are kept: its own, whoever had the label before."""
        return self.label if self.definition is None else f"configured {self.label}"


@dataclass(frozen=True, slots=True)
class _Entry:
    agent: str
    model: str
    task: TaskRef
    digest: str | None
    count: int
    due: int
    source_trial: str | None
    planned: bool


class _Evaluation(NamedTuple):
    """What one automatic run is of."""

    root: str
    agent: str
    model: str
    dataset: str


def _configured(definition: RunDefinition) -> str:
    return json.dumps([definition.label])


class Runs:
    """All runs that follow from jobs and definitions.

    ``seen``: what trials showed, a job id. ``agent_labels``: the agents' own names by configured
    name. ``labels``: the labels that automatic runs have already, by key; new ones are added to
    ``new_labels``. ``find``: the record of an execution id, if known.
    """

    def __init__(
        self,
        jobs: Mapping[str, Job],
        definitions: Sequence[RunDefinition],
        seen: Mapping[str, Collection[Seen]],
        agent_labels: Mapping[str, str],
        labels: Mapping[str, str],
        find: Callable[[str], TrialRecord | None],
        causes: Mapping[str, Cause] = MappingProxyType({}),
    ) -> None:
        self._jobs = jobs
        self._definitions = tuple(definitions)
        self._seen = seen
        self._agent_labels = agent_labels
        self._labels = dict(labels)
        self._find = find
        self._causes = causes
        self._roots = {job_id: self._chain(job_id)[-1] for job_id in jobs}
        self._matches = {job_id: self._definitions_of(job_id) for job_id in jobs}
        self._evaluations: dict[str, _Evaluation] = {}
        self._keys: dict[_Evaluation, str] = {}
        self._refs: dict[str, dict[str, list[TaskRef]]] = {}
        self._places: dict[tuple[str, str, str, TaskRef], list[tuple[str, TaskRef]]] = {}
        self.new_labels: dict[str, str] = {}
        self.runs: dict[str, Run] = {}
        self._build()

    def place(self, record: TrialRecord) -> list[tuple[str, TaskRef]]:
        """The runs (keys) and the tasks in them that a trial belongs to."""
        if record.job_id not in self._jobs:
            return []
        kind = (record.job_id, record.agent, record.model, record.task)
        if record.source_trial is None and kind in self._places:
            return self._places[kind]
        source = self._find(record.source_trial) if record.source_trial else None
        entry = _Entry(
            record.agent, record.model, record.task, record.digest, 1, 1, record.source_trial, False
        )
        places = []
        for key in self._keys_of(record.job_id, entry, source.task if source else None):
            run = self.runs.get(key[0])
            if run is not None and key[1] in run.tasks:
                places.append(key)
        if record.source_trial is None:
            self._places[kind] = places
        return places

    # Jobs.

    def _chain(self, job_id: str) -> list[str]:
        """A job and those it derives from, the root last."""
        chain = [job_id]
        while True:
            sources = self._jobs[chain[-1]].record.source_jobs
            known = next((s for s in sources if s in self._jobs), None)
            if known is None:
                return chain
            if known in chain:  # a circle, in hostile input only
                return [*chain, min(chain)]
            chain.append(known)

    def _definitions_of(self, job_id: str) -> tuple[RunDefinition, ...]:
        chain = self._chain(job_id)
        return tuple(
            definition
            for definition in self._definitions
            if any(self._job_matches(member, definition.jobs) for member in chain)
        )

    def _job_matches(self, job_id: str, patterns: Iterable[str]) -> bool:
        job = self._jobs[job_id]
        names = {job_id, job.label, *job.names}
        return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)

    def _entries(self, job_id: str) -> Iterator[tuple[_Entry, TaskRef | None]]:
        """What a job plans, with a regrade's source task; without a lock, what was seen of it."""
        record = self._jobs[job_id].record
        planned = set()
        for entry in record.plan or ():
            planned.add((entry.agent, entry.model, entry.task))
            yield (
                _Entry(
                    entry.agent,
                    entry.model,
                    entry.task,
                    entry.digest,
                    entry.count,
                    entry.due,
                    entry.source_trial,
                    True,
                ),
                entry.source_task,
            )
        for seen in self._seen.get(job_id, ()):
            if (seen.agent, seen.model, seen.task) not in planned:
                yield (
                    _Entry(seen.agent, seen.model, seen.task, seen.digest, 0, 0, None, False),
                    None,
                )

    # Tasks.

    def _canonical(self, job_id: str, task: TaskRef, source_task: TaskRef | None) -> TaskRef:
        """The task as the job at the root of it all names it."""
        root = self._roots[job_id]
        if root == job_id:
            return task
        if root not in self._refs:
            by_name: dict[str, list[TaskRef]] = defaultdict(list)
            for ref in dict.fromkeys(entry.task for entry, _ in self._entries(root)):
                by_name[ref.name].append(ref)
            self._refs[root] = by_name
        by_name = self._refs[root]
        for candidate in (source_task, task):
            if candidate is not None and candidate in by_name.get(candidate.name, ()):
                return candidate
        same_name = by_name.get((source_task or task).name, [])
        return same_name[0] if len(same_name) == 1 else task

    def _keys_of(
        self, job_id: str, entry: _Entry, source_task: TaskRef | None
    ) -> list[tuple[str, TaskRef]]:
        task = self._canonical(job_id, entry.task, source_task)
        keys = []
        for definition in self._matches[job_id]:
            if self._passes(definition, entry, task):
                named = _listed(definition, task)
                if named is not None:
                    keys.append((_configured(definition), named))
                else:
                    keys.append(("", task))  # claimed, but outside of the run's tasks
        if keys:
            return keys
        root = self._roots[job_id]
        evaluation = _Evaluation(root, entry.agent, entry.model, task.source)
        key = self._keys.get(evaluation)
        if key is None:
            key = self._keys[evaluation] = json.dumps(evaluation)
            self._evaluations[key] = evaluation
        return [(key, task)]

    def _passes(self, definition: RunDefinition, entry: _Entry, task: TaskRef) -> bool:
        agents = {entry.agent, self._agent_labels.get(entry.agent, entry.agent)}
        return (
            (definition.agent is None or any(fnmatchcase(a, definition.agent) for a in agents))
            and (definition.model is None or fnmatchcase(entry.model, definition.model))
            and (definition.dataset is None or fnmatchcase(task.source, definition.dataset))
        )

    # Runs.

    def _build(self) -> None:
        entries: dict[str, dict[str, list[tuple[_Entry, TaskRef]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for job_id in sorted(self._jobs, key=lambda j: (self._jobs[j].started, j)):
            for entry, source_task in self._entries(job_id):
                for key, task in self._keys_of(job_id, entry, source_task):
                    if key:
                        entries[key][job_id].append((entry, task))
        for definition in self._definitions:
            key = _configured(definition)
            jobs = [j for j, definitions in self._matches.items() if definition in definitions]
            run = Run(key, definition.label, definition.title or definition.label, definition)
            run.jobs = sorted(jobs, key=lambda j: (self._jobs[j].started, j))
            by_job = entries.pop(key, {})
            of_run = [entry for pairs in by_job.values() for entry in pairs]
            run.agent = _only(entry.agent for entry, _ in of_run)
            run.model = _only(entry.model for entry, _ in of_run)
            run.dataset = _only(entry.task.source for entry, _ in of_run)
            self._fill(run, by_job)
            self.runs[key] = run
        siblings: dict[str, list[_Evaluation]] = defaultdict(list)
        for key in entries:
            siblings[self._evaluations[key].root].append(self._evaluations[key])
        for key, by_job in entries.items():
            mine = self._evaluations[key]
            label = self._label(key, mine, siblings[mine.root])
            run = Run(key, label, label, None, mine.agent, mine.model, mine.dataset)
            run.jobs = sorted(by_job, key=lambda j: (self._jobs[j].started, j))
            self._fill(run, by_job)
            self.runs[key] = run

    def _label(self, key: str, mine: _Evaluation, siblings: list[_Evaluation]) -> str:
        """The run's label: the job's, with what tells it from the job's other evaluations."""
        configured = {definition.label for definition in self._definitions}
        known = self._labels.get(key)
        if known is not None and known not in configured:
            return known
        taken = configured | set(self._labels.values())
        label = self._jobs[mine.root].label
        if len(siblings) > 1:
            parts = [
                part.rpartition(":")[2] or "none"
                for part, column in zip(mine, zip(*siblings, strict=True), strict=True)
                if len(set(column)) > 1
            ]
            label = "/".join([label, *parts])
        label = safe_label(label)
        if label in taken:
            label = f"{label}-{_digest(key)}"
        self._labels[key] = label
        self.new_labels[key] = label
        return label

    def _fill(self, run: Run, by_job: Mapping[str, list[tuple[_Entry, TaskRef]]]) -> None:
        definition = run.definition
        counts: dict[TaskRef, Counter[str]] = defaultdict(Counter)
        plain: dict[TaskRef, Counter[str]] = defaultdict(Counter)
        regrades: dict[TaskRef, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        digests: dict[TaskRef, str] = {}
        seen_only: dict[str, set[TaskRef]] = defaultdict(set)
        # Oldest job first, so the newest that holds a task decides on its version.
        for job_id in run.jobs:
            versions: dict[TaskRef, Counter[str]] = defaultdict(Counter)
            for entry, task in by_job.get(job_id, ()):
                counts[task][job_id] += entry.count
                if entry.digest:
                    versions[task][entry.digest] += max(1, entry.count)
                if not entry.planned:
                    seen_only[job_id].add(task)
                elif entry.source_trial is None:
                    plain[task][job_id] += entry.due
                else:
                    regrades[task][job_id].add(entry.source_trial)
            for task, digest_counts in versions.items():
                digests[task] = min(digest_counts.items(), key=lambda i: (-i[1], i[0]))[0]
        self._without_lock(run, seen_only, counts, plain)
        supersedes = frozenset(
            j for j in run.jobs if definition and self._job_matches(j, definition.supersedes)
        )
        for task in self._tasks_of(run, counts):
            # A task that no lock plans gets no attempts; where there is none, it is not known.
            unlocked = any(
                task in seen_only[j] and self._jobs[j].record.plan is None for j in run.jobs
            )
            planned = counts.get(task, Counter())
            target = max(planned.values(), default=0) or (None if unlocked or not planned else 0)
            if definition and definition.attempts is not None:
                target = definition.attempts
            if target is None and not run.pooled:
                run.target_known = False
            digest = digests.get(task)
            if definition:
                digest = definition.content.get(_label_of(task), digest)
                digest = definition.content.get(task.name, digest)
            run.tasks[task] = TaskRules(
                target=target,
                digest=digest,
                reward=definition.reward if definition else RewardRule(),
                supersedes=supersedes,
                planned=dict(plain.get(task, {})),
                planned_regrades={j: frozenset(ids) for j, ids in regrades.get(task, {}).items()},
                causes=self._causes,
                given_up=_given_up(definition, task) if definition else "",
            )
        if not (run.tasks or run.unassigned or run.pooled):
            run.target_known = False
        if definition:
            run.unknown_tasks = tuple(self._unknown_tasks(run, definition))

    def _unknown_tasks(self, run: Run, definition: RunDefinition) -> Iterator[str]:
        """Names in the definition that are no task of its list or its jobs: slips of the pen."""
        tasks = {entry.task for job_id in run.jobs for entry, _ in self._entries(job_id)}
        if not tasks:
            return  # nobody knows yet
        known = {name for task in tasks for name in (task.name, _label_of(task))}
        known.update(task.name for task in run.tasks)
        known.update(definition.tasks or ())
        named = (*definition.exclude, *definition.given_up, *definition.content)
        yield from (name for name in dict.fromkeys(named) if name not in known)

    def _without_lock(
        self,
        run: Run,
        seen_only: Mapping[str, set[TaskRef]],
        counts: Mapping[TaskRef, Counter[str]],
        plain: Mapping[TaskRef, Counter[str]],
    ) -> None:
        """Slots of jobs whose lock could not be read: by their configuration and total.

        The total counts every agent; where a job runs several, each gets the same share.
        """
        for job_id in run.jobs:
            record = self._jobs[job_id].record
            if record.plan is not None:
                continue
            tasks = seen_only.get(job_id, set())
            if record.n_attempts is not None:
                for task in tasks:
                    counts[task][job_id] = plain[task][job_id] = record.n_attempts
            if run.definition and run.definition.attempts is not None and run.definition.tasks:
                continue
            share, rest = divmod(record.n_total or 0, record.n_agents)
            if record.n_total is None or rest:
                run.target_known = False
            elif record.n_attempts is None:
                run.pooled[job_id] = share
            else:
                run.unassigned[job_id] = max(0, share - record.n_attempts * len(tasks))

    def _tasks_of(self, run: Run, counts: Mapping[TaskRef, object]) -> list[TaskRef]:
        definition = run.definition
        if definition is None:
            return sorted(counts)
        if definition.tasks is not None:
            listed = [TaskRef("", name) for name in definition.tasks]
        elif definition.tasks_of is not None:
            listed = sorted(
                {
                    self._canonical(job_id, entry.task, source)
                    for job_id in self._jobs
                    if self._job_matches(job_id, (definition.tasks_of,))
                    for entry, source in self._entries(job_id)
                }
            )
        else:
            listed = sorted(counts)
        excluded = definition.exclude
        return [t for t in listed if t.name not in excluded and _label_of(t) not in excluded]


def _listed(definition: RunDefinition, task: TaskRef) -> TaskRef | None:
    """The task as the definition lists it, None where it does not."""
    if task.name in definition.exclude or _label_of(task) in definition.exclude:
        return None
    if definition.tasks is None:
        return task
    for name in (_label_of(task), task.name):
        if name in definition.tasks:
            return TaskRef("", name)
    return None


def _given_up(definition: RunDefinition, task: TaskRef) -> str:
    """Why the task's faults are not to be replayed, "" where they are."""
    reasons = definition.given_up
    return reasons.get(_label_of(task)) or reasons.get(task.name, "")


def _only(values: Iterable[str]) -> str:
    """The value if there is but one, else ""."""
    different = set(values)
    return different.pop() if len(different) == 1 else ""


def _label_of(task: TaskRef) -> str:
    return f"{task.source}/{task.name}" if task.source else task.name


def task_labels(tasks: Iterable[TaskRef]) -> dict[TaskRef, str]:
    """A label for each task of a run: its name, with its source where names repeat."""
    listed = list(tasks)
    names = Counter(task.name for task in listed)
    labels = {
        task: safe_label(task.name if names[task.name] == 1 else _label_of(task)) for task in listed
    }
    counts = Counter(labels.values())
    return {
        # A source "a" with a task "b" beside a task "a/b": told apart by a hash.
        task: label if counts[label] == 1 else safe_label(f"{label}~{_digest(repr(task))}")
        for task, label in labels.items()
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
