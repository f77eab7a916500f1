"""The ledger at work: takes in what sources saw, keeps it, and accounts for every attempt.

All that decides is in the pure modules beside this one; here it is applied to what changed.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from harborlight.labels import safe_label
from harborlight.ledger import accounts
from harborlight.ledger.faults import Cause
from harborlight.ledger.jobs import Job, somebody_holds
from harborlight.ledger.outcomes import Outcome, outcome
from harborlight.ledger.ownership import (
    AttemptState,
    Execution,
    TaskBalance,
    TaskRules,
    TrialState,
    balance_task,
    holds_slot,
    in_order,
    is_copied_fault,
    is_final,
    trial_state,
)
from harborlight.ledger.pools import PoolDefinition, PoolStanding, jobs_of, model_match, runs_of
from harborlight.ledger.replay_plan import JobWork, Place, StandingTrial
from harborlight.ledger.replicas import MeterKey, Replica
from harborlight.ledger.runs import Run, RunDefinition, Runs, Seen, task_labels
from harborlight.ledger.standing import JobStanding, RunStanding, TaskStanding
from harborlight.ledger.store import Changes, CounterKey, Forgotten, LedgerError, Store, TrialKey
from harborlight.readings import ReplicaSighting
from harborlight.records import JobRecord, TaskRef, TrialRecord
from harborlight.sources.observation import JobSighting, Observation

_DISCARDED = "discarded\t"
"""Marks an execution whose discarded verdict was counted for the account named behind it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What configuration says. ``local_jobs``: Harbor's processes run on this host."""

    runs: tuple[RunDefinition, ...] = ()
    pools: tuple[PoolDefinition, ...] = ()
    causes: Mapping[str, Cause] = MappingProxyType({})
    local_jobs: bool = False


class _Place(NamedTuple):
    """How a trial of a job stands; ``holds``: it took one of the job's planned slots."""

    state: TrialState
    holds: bool
    regrade: bool


class Ledger:
    """Jobs, executions, runs, replicas and counters; in memory for speed, in the store for good.

    One writer at a time: ``take`` what was observed, then ``commit``. After a failed commit
    everything stays pending and the next one writes it.
    """

    def __init__(self, store: Store, rules: Rules | None = None) -> None:
        self._store = store
        self._structure_changed = True
        self._rules = rules or Rules()
        stored = store.load()
        self._jobs = stored.jobs
        self._trials: dict[str, dict[str, dict[str, Execution]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        self._by_id: dict[str, TrialRecord] = {}
        self._sources: set[str] = set()
        self._seen: dict[str, set[Seen]] = defaultdict(set)
        self._agents: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self._models: dict[str, set[str]] = defaultdict(set)
        self._n_trials = 0
        for (job_id, name, execution_id), execution in stored.trials.items():
            self._trials[job_id][name][execution_id] = execution
            self._note(execution.record)
            self._n_trials += 1
        self._counted_sets: dict[frozenset[str], frozenset[str]] = {}
        self._labels = stored.runs
        self._counters = stored.counters
        self._forgotten = {item.job_id: item for item in stored.forgotten}
        self._replicas: dict[tuple[str, str], Replica] = {}
        for key, meter in stored.meters.items():
            self._replica(key.pool, key.replica).restore(key.family, key.series, meter)
        self._pool_jobs: dict[str, frozenset[str]] = {}
        self._changes = Changes.none()
        self._runs: Runs | None = None
        self._members: dict[str, dict[TaskRef, dict[TrialKey, Execution]]] = {}
        self._balances: dict[str, dict[TaskRef, TaskBalance]] = {}
        self._dirty: set[tuple[str, TaskRef]] = set()
        self._dirty_names: dict[str, set[str]] = defaultdict(set)
        self._job_trials: dict[str, dict[str, _Place]] = defaultdict(dict)
        self._run_standings: dict[str, RunStanding] = {}
        self._task_standings: dict[tuple[str, TaskRef], tuple[TaskBalance, TaskStanding]] = {}
        self.version = 0
        self._settle()

    # Taking in.

    def configure(self, rules: Rules) -> None:
        """Judge by other rules from now on. What was counted stays counted."""
        self._rules = rules
        for job_id, job in list(self._jobs.items()):
            self._set_job(job_id, replace(job, local=rules.local_jobs))
        self._structure_changed = True
        self._settle()

    def take(self, observation: Observation) -> None:
        """Take in what a source saw. Copies, repeats and stale reads change nothing."""
        new = [job_id for job_id in observation.jobs if job_id not in self._jobs]
        new.sort(key=lambda j: (observation.jobs[j].record.made, j))
        for job_id in [*new, *(j for j in observation.jobs if j not in new)]:
            if job_id not in self._forgotten:
                self._take_job(job_id, observation.jobs[job_id], observation.source)
        for record in observation.trials:
            if record.job_id not in self._forgotten:
                self._take_trial(record)
        for job_id, sighting in observation.jobs.items():
            if sighting.listing is not None and job_id in self._trials:
                self._take_listing(job_id, sighting.listing)
        self._take_presence(observation)
        for job_id in {*observation.jobs, *(record.job_id for record in observation.trials)}:
            self._mark_dead(job_id)
        for replica in observation.replicas:
            self._take_replica(replica)
        self._settle()

    def _take_presence(self, observation: Observation) -> None:
        """Which jobs the source has now, and of which it cannot tell who works on them.

        A job is there as long as any source has it.
        """
        source, present = observation.source, observation.present_jobs
        for job_id, job in list(self._jobs.items()):
            held_by = job.held_by
            if job.origin in observation.unreachable and held_by.get(source) is not None:
                held_by = {**held_by, source: None}
            if present is not None and job_id in present:
                held_by = {source: None, **held_by}
            elif present is not None:
                held_by = {name: held for name, held in held_by.items() if name != source}
            if held_by != job.held_by or (present is not None and job.present != bool(held_by)):
                self._set_job(
                    job_id,
                    replace(
                        job,
                        present=bool(held_by),
                        held=somebody_holds(held_by.values()),
                        held_by=held_by,
                    ),
                )

    def _take_replica(self, sighting: ReplicaSighting) -> None:
        replica = self._replica(sighting.pool, sighting.replica)
        for family, series in replica.take(sighting):
            key = MeterKey(sighting.pool, sighting.replica, family, series)
            self._changes.meters[key] = replica.meters[family][series]
        self.version += 1

    def _replica(self, pool: str, label: str) -> Replica:
        return self._replicas.setdefault((pool, label), Replica(pool, label))

    def _mark_dead(self, job_id: str) -> None:
        """Trials that their job's end left open: should it be resumed, these come to nothing."""
        job = self._jobs.get(job_id)
        if job is None or not job.state.ended:
            return
        for name, executions in self._trials[job_id].items():
            left_open = executions.get("")
            if left_open is not None and left_open.record.open and not left_open.dead:
                self._set_trial((job_id, name, ""), replace(left_open, dead=True))

    def _take_job(self, job_id: str, sighting: JobSighting, source: str) -> None:
        old = self._jobs.get(job_id)
        record = sighting.record
        if old is None:
            label = self._job_label(job_id, record.name)
            old = Job(record, label, local=self._rules.local_jobs, origin=sighting.origin)
        else:
            record = _merged(old, sighting)
        held_by = {**old.held_by, source: sighting.held}
        self._set_job(
            job_id,
            replace(
                old,
                record=record,
                names=old.names | sighting.names | {sighting.record.name},
                held=somebody_holds(held_by.values()),
                held_by=held_by,
                gone=sighting.gone,
                seen_held=old.seen_held or sighting.held is True,
                local=self._rules.local_jobs,
                present=True,
                resumable=sighting.resumable,
                unreadable_files=sighting.unreadable_files,
                last_change=max(
                    (t for t in (old.last_change, sighting.last_change) if t is not None),
                    default=None,
                ),
                retries_seen=max(old.retries_seen, record.n_retries),
                origin=old.origin if _is_stale_copy(old, sighting) else sighting.origin,
            ),
        )

    def _set_job(self, job_id: str, job: Job) -> None:
        old = self._jobs.get(job_id)
        if old == job:
            return
        if old is None or _structure(old) != _structure(job):
            self._structure_changed = True
        if old is not None and _standing(old) != _standing(job) and self._runs is not None:
            for run in self._serves(job_id):
                self._dirty.update((run.key, task) for task in run.tasks)
            self._dirty_names[job_id].update(self._trials[job_id])
        self._jobs[job_id] = job
        self._changes.jobs[job_id] = job
        for run in self._serves(job_id) if self._runs else ():
            self._run_standings.pop(run.key, None)

    def _job_label(self, job_id: str, name: str) -> str:
        label = safe_label(name)
        if any(job.label == label for job in self._jobs.values()):
            label = safe_label(f"{name}-{job_id.removeprefix('dir:')[:8]}")
        while any(job.label == label for job in self._jobs.values()):
            label += "+"
        return label

    def _take_trial(self, record: TrialRecord) -> None:
        counted = frozenset[str]()
        if record.execution:
            other = self._by_id.get(record.execution)
            if other is not None and (other.job_id, other.name) != (record.job_id, record.name):
                # One execution under two names: whichever was read first, the smaller one has it.
                if (other.job_id, other.name) < (record.job_id, record.name):
                    return
                counted = self._trials[other.job_id][other.name][other.execution].counted
                self._drop_trial((other.job_id, other.name, other.execution))
        executions = self._trials[record.job_id][record.name]
        old = executions.get(record.execution)
        if old is not None and _is_older(record, old.record):
            return
        self._note(record)
        present = not record.retry
        fresh = Execution(record, present, counted=counted)
        if old is not None and (record.execution or old.record.started_at == record.started_at):
            fresh = replace(old, record=record, present=present)
        if any(_overtakes(execution.record, fresh.record) for execution in executions.values()):
            return  # a stale copy of what has a result already
        started = executions.get("")
        if started is not None and _overtakes(record, started.record):
            if record.interrupted:  # so it was counted, if it was
                fresh = replace(fresh, counted=fresh.counted | started.counted)
            self._drop_trial((record.job_id, record.name, ""))
        job = self._jobs.get(record.job_id)
        told: list[Execution] = []
        if any(execution.record.retry for execution in executions.values()):
            told = [e for e in in_order(executions.values(), job) if e.record.retry]
        chain = in_order({**executions, record.execution: fresh}.values(), job)
        for execution in told:
            if execution not in chain:
                # It is this one that the log told of. What was counted is not counted again.
                fresh = replace(fresh, counted=fresh.counted | execution.counted)
        chain = [fresh if execution.record is record else execution for execution in chain]
        for execution in chain[:-1]:
            # A directory shows a trial's last execution only.
            self._set_trial(_key(execution.record), replace(execution, present=False))
        if fresh not in chain[:-1]:
            self._set_trial(_key(record), fresh)

    def _take_listing(self, job_id: str, listing: frozenset[str]) -> None:
        for name, executions in self._trials[job_id].items():
            if name not in listing:
                for execution_id, execution in list(executions.items()):
                    if execution.present:
                        key = (job_id, name, execution_id)
                        self._set_trial(key, replace(execution, present=False))
            elif not any(e.present for e in executions.values()):
                chain = in_order(executions.values(), self._jobs.get(job_id))
                if chain and not chain[-1].record.retry:
                    last = replace(chain[-1], present=True)
                    self._set_trial((job_id, name, last.record.execution), last)

    def _set_trial(self, key: TrialKey, execution: Execution) -> None:
        job_id, name, execution_id = key
        executions = self._trials[job_id][name]
        old = executions.get(execution_id)
        if old == execution:
            return
        self._n_trials += old is None
        executions[execution_id] = execution
        self._changes.trials[key] = execution
        self._dirty_names[job_id].add(name)
        if self._runs is not None and not self._structure_changed:
            moved = old is not None and old.record.task != execution.record.task
            if moved:
                self._structure_changed = True
            for run_key, task in self._runs.place(execution.record):
                self._members[run_key][task][key] = execution
                self._dirty.add((run_key, task))

    def _drop_trial(self, key: TrialKey) -> None:
        job_id, name, execution_id = key
        execution = self._trials[job_id][name].pop(execution_id)
        self._n_trials -= 1
        self._changes.trials[key] = None
        self._dirty_names[job_id].add(name)
        if self._runs is not None and not self._structure_changed:
            for run_key, task in self._runs.place(execution.record):
                self._members[run_key][task].pop(key, None)
                self._dirty.add((run_key, task))

    def _note(self, record: TrialRecord) -> None:
        """Remember what a record shows beside itself."""
        if record.source_trial:
            self._sources.add(record.source_trial)
        if record.execution:
            if record.execution in self._sources and record.execution not in self._by_id:
                self._structure_changed = True  # its regrades belong where it belongs
            self._by_id[record.execution] = record
        if record.agent_label:
            self._agents[record.agent].add((record.agent_label, record.agent_version))
            self._models[record.model].add(record.model_label)
        seen = Seen(record.agent, record.model, record.task, record.digest)
        if seen not in self._seen[record.job_id]:
            self._seen[record.job_id].add(seen)
            if not self._structure_changed:
                job = self._jobs.get(record.job_id)
                entry = (seen.agent, seen.model, seen.task)
                plan = job.record.plan if job else None
                if entry not in {(p.agent, p.model, p.task) for p in plan or ()}:
                    self._structure_changed = True

    # Accounting.

    def _settle(self) -> None:
        """Bring runs, balances and counters up to date with what was taken in."""
        if self._structure_changed:
            self._rebuild()
        if self._dirty:
            self.version += 1
        assert self._runs is not None
        dirty, self._dirty = self._dirty, set()
        jobs_of = {
            key: {j: self._jobs[j] for j in self._runs.runs[key].jobs}
            for key in {run_key for run_key, _ in dirty}
        }
        for run_key, task in dirty:
            run = self._runs.runs[run_key]
            members = self._members[run_key][task]
            jobs = jobs_of[run_key]
            self._balances[run_key][task] = balance_task(run.tasks[task], members.values(), jobs)
            self._run_standings.pop(run_key, None)
            self._count(run, run.tasks[task], members, jobs)
        self._count_retries()
        self._count_pool_retries()
        if self._changes:
            self.version += 1

    def _rebuild(self) -> None:
        self._structure_changed = False
        labels = {agent: min(names)[0] for agent, names in self._agents.items()}
        runs = Runs(
            self._jobs,
            self._rules.runs,
            self._seen,
            labels,
            self._labels,
            self._by_id.get,
            self._rules.causes,
        )
        self._runs = runs
        self._labels.update(runs.new_labels)
        self._changes.runs.update(runs.new_labels)
        self._members = {key: {task: {} for task in run.tasks} for key, run in runs.runs.items()}
        self._balances = {key: {} for key in runs.runs}
        self._run_standings.clear()
        self._task_standings.clear()
        for job_id, names in self._trials.items():
            for name, executions in names.items():
                for execution_id, execution in executions.items():
                    for run_key, task in runs.place(execution.record):
                        key = (job_id, name, execution_id)
                        self._members[run_key][task][key] = execution
        self._dirty = {(key, task) for key, run in runs.runs.items() for task in run.tasks}
        for job_id in self._jobs:
            self._dirty_names[job_id].update(self._trials[job_id])
        self.version += 1

    def _count(
        self,
        run: Run,
        rules: TaskRules,
        members: Mapping[TrialKey, Execution],
        jobs: Mapping[str, Job],
    ) -> None:
        """Enter what is settled into the run's counters, each execution once."""
        chains: dict[tuple[str, str], list[Execution]] | None = None
        amounts: accounts.Amounts = {}
        account = run.account
        only_this = self._share(frozenset({account}))
        for key, execution in list(members.items()):
            record = execution.record
            counted = execution.counted
            if account not in counted:
                job = jobs.get(record.job_id)
                if not record.execution or record.retry:
                    chains = chains or _chains(members, jobs)
                    if execution not in chains[key[:2]]:
                        continue
                if not record.execution and not is_final(execution, job):
                    continue
                source = self._by_id.get(record.source_trial or "")
                accounts.add_execution(
                    amounts, record, rules, copied_fault=is_copied_fault(record, source)
                )
                counted = counted | {account} if counted else only_this
            mark = _DISCARDED + account
            if (
                mark not in counted
                and record.execution
                and outcome(record, rules.reward.invalid_exceptions)
                in (Outcome.SCORED, Outcome.UNKNOWN)
            ):
                chains = chains or _chains(members, jobs)
                if _standing_execution(chains[key[:2]]).record is not record:
                    accounts.add_discarded(amounts, record, rules)
                    counted = counted | {mark}
            if counted is not execution.counted:
                self._mark_counted(key, replace(execution, counted=self._share(counted)))
        for (metric, labels), amount in amounts.items():
            self._add(account, metric, labels, amount)

    def _mark_counted(self, key: TrialKey, execution: Execution) -> None:
        """Being counted changes nothing that an account of attempts looks at."""
        self._trials[key[0]][key[1]][key[2]] = execution
        self._changes.trials[key] = execution
        assert self._runs is not None
        for run_key, task in self._runs.place(execution.record):
            self._members[run_key][task][key] = execution

    def _share(self, counted: frozenset[str]) -> frozenset[str]:
        return self._counted_sets.setdefault(counted, counted)

    def _count_retries(self) -> None:
        """Harbor counts a job's retries; they are the run's where the job serves one run."""
        for job_id, job in list(self._jobs.items()):
            runs = self._serves(job_id)
            if len(runs) != 1:
                continue
            account, counted_for = runs[0].account, job.retries_counted_for
            counted = counted_for.get(account, 0) if counted_for else job.retries_counted
            if job.retries_seen > counted:
                self._add(account, accounts.RETRIES, (), job.retries_seen - counted)
                counted_for = {**counted_for, account: job.retries_seen}
                self._set_job(job_id, replace(job, retries_counted_for=counted_for))

    def _count_pool_retries(self) -> None:
        """A pool's retries are those of its jobs, kept a job: no counter falls with a job."""
        assert self._runs is not None
        for pool in self._rules.pools:
            jobs = jobs_of(pool, self._jobs, self._runs.runs.values())
            self._pool_jobs[pool.label] = jobs
            for job_id in jobs:
                counted = self._counters.get((pool.account, accounts.POOL_RETRIES, job_id), 0.0)
                new = self._jobs[job_id].retries_seen - counted
                if new > 0:
                    self._add(pool.account, accounts.POOL_RETRIES, (job_id,), new)

    def _serves(self, job_id: str) -> list[Run]:
        assert self._runs is not None
        return [run for run in self._runs.runs.values() if job_id in run.jobs]

    def _add(self, account: str, metric: str, labels: Sequence[str], amount: float) -> None:
        if metric == accounts.FAULTS_BY_TYPE:
            labels = (self._bounded_type(account, labels[0]),)
        key: CounterKey = (account, metric, "\n".join(labels))
        value = self._counters.get(key, 0.0) + amount
        self._counters[key] = self._changes.counters[key] = value

    def _bounded_type(self, account: str, name: str) -> str:
        known = {
            k[2] for k in self._counters if k[0] == account and k[1] == accounts.FAULTS_BY_TYPE
        }
        full = len(known - {"other"}) >= accounts.MAX_EXCEPTION_TYPES
        return "other" if full and name not in known else name

    # Keeping.

    def commit(self) -> None:
        """Write what is pending; it stays pending when ``Store.write`` raises."""
        if self._changes:
            self._store.write(self._changes)
            self._changes = Changes.none()

    def forget(self, name: str, at: float, reason: str) -> Forgotten:
        """Take a job out on purpose, by label or id. Raises LedgerError where there is none."""
        found = [j for j, job in self._jobs.items() if name in (j, job.label)]
        if not found:
            known = ", ".join(sorted(job.label for job in self._jobs.values())) or "none"
            raise LedgerError(f"no job {name} in the ledger; it has: {known}")
        job_id = found[0]
        forgotten = self._store.forget(job_id, self._jobs[job_id].label, at, reason)
        self._forgotten[job_id] = forgotten
        del self._jobs[job_id]
        for executions in self._trials.pop(job_id, {}).values():
            self._n_trials -= len(executions)
        self._seen.pop(job_id, None)
        self._structure_changed = True
        self._settle()
        return forgotten

    # Showing.

    @property
    def n_trials(self) -> int:
        """Executions in the ledger, open ones included."""
        return self._n_trials

    def runs(self) -> tuple[RunStanding, ...]:
        """All runs, by label."""
        assert self._runs is not None
        for key, run in self._runs.runs.items():
            if key not in self._run_standings:
                self._run_standings[key] = self._run_standing(run)
        return tuple(
            sorted((self._run_standings[key] for key in self._runs.runs), key=lambda r: r.label)
        )

    def jobs(self) -> tuple[JobStanding, ...]:
        """All jobs, by label."""
        return tuple(
            sorted(
                (self._job_standing(job_id, job) for job_id, job in self._jobs.items()),
                key=lambda job: job.label,
            )
        )

    def works(self) -> dict[str, JobWork]:
        """What each job was to do and what of it stands, by job id."""
        assert self._runs is not None
        planned: dict[str, dict[Place, int]] = defaultdict(dict)
        refs: dict[str, dict[Place, TaskRef]] = defaultdict(dict)
        trials: dict[str, list[StandingTrial]] = defaultdict(list)
        for run in self._runs.runs.values():
            names = task_labels(run.tasks)
            jobs = {job_id: self._jobs[job_id] for job_id in run.jobs}
            for task, rules in run.tasks.items():
                place = Place(run.label, names[task])
                for job_id in run.jobs:
                    refs[job_id][place] = task
                    planned[job_id][place] = rules.planned.get(job_id, 0)
                members = self._members[run.key][task]
                regraded = _regraded(members.values(), rules, jobs)
                for (job_id, _), chain in _chains(members, jobs).items():
                    if chain and chain[-1].present:
                        record = chain[-1].record
                        result = outcome(record, rules.reward.invalid_exceptions)
                        kept = result is Outcome.SCORED or record.execution in regraded
                        trials[job_id].append(StandingTrial(record, place, kept))
        for job_id, job in self._jobs.items():
            for entry in job.record.plan or ():
                shown = TrialRecord(
                    job_id, "", "", entry.task, agent=entry.agent, model=entry.model
                )
                if entry.source_trial is None and not self._runs.place(shown):
                    place = Place("", entry.task.name)
                    planned[job_id][place] = planned[job_id].get(place, 0) + entry.due
            for executions in self._trials[job_id].values():
                chain = in_order(executions.values(), job)
                if chain and chain[-1].present and not self._runs.place(chain[-1].record):
                    record = chain[-1].record
                    place = Place("", record.task.name)
                    trials[job_id].append(StandingTrial(record, place, kept=True))
        return {
            job_id: JobWork(
                job_id=job_id,
                label=job.label,
                state=job.state,
                present=job.present,
                resumable=job.present and job.resumable,
                regrades=bool(job.record.source_jobs),
                made=job.started,
                planned=planned[job_id],
                locked=tuple((p.task, p.digest) for p in job.record.plan or () if p.digest),
                refs=refs[job_id],
                trials=tuple(trials[job_id]),
            )
            for job_id, job in self._jobs.items()
        }

    def counters(self) -> dict[str, dict[str, dict[tuple[str, ...], float]]]:
        """The runs' counters, by run label, metric and label values."""
        assert self._runs is not None
        labels_of = {run.account: run.label for run in self._runs.runs.values()}
        tree: dict[str, dict[str, dict[tuple[str, ...], float]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        for (account, metric, labels), value in self._counters.items():
            if account in labels_of:
                key = tuple(labels.split("\n")) if labels else ()
                tree[labels_of[account]][metric][key] = value
        return tree

    def pools(self) -> tuple[PoolStanding, ...]:
        """All configured pools, by label."""
        return tuple(
            self._pool_standing(pool)
            for pool in sorted(self._rules.pools, key=lambda pool: pool.label)
        )

    def _pool_standing(self, pool: PoolDefinition) -> PoolStanding:
        assert self._runs is not None
        jobs = self._pool_jobs[pool.label]
        trials = Counter(dict.fromkeys(TrialState, 0))
        for job_id in jobs:
            trials.update(self._serving_trials(job_id, self._jobs[job_id]))
        replicas = tuple(
            self._replica(pool.label, label).standing(pool.frozen_after) for label in pool.replicas
        )
        runs = runs_of(jobs, self._runs.runs.values())
        return PoolStanding(
            label=pool.label,
            title=pool.title,
            runs=tuple(run.label for run in runs),
            trials=trials,
            retries=sum(
                value
                for (account, metric, _), value in self._counters.items()
                if (account, metric) == (pool.account, accounts.POOL_RETRIES)
            ),
            model_match=model_match(runs, replicas),
            replicas=replicas,
        )

    def _run_standing(self, run: Run) -> RunStanding:
        balances = self._balances[run.key]
        names = task_labels(run.tasks)
        states: Counter[AttemptState] = Counter(dict.fromkeys(AttemptState, 0))
        tasks = []
        for task, rules in run.tasks.items():
            balance = balances[task]
            states.update(balance.states)
            tasks.append(self._task_standing(run.key, task, names[task], rules, balance))
        spare = dict(run.unassigned)
        implied = sum(b.target for t, b in balances.items() if run.tasks[t].target is None)
        for job_id, slots in run.pooled.items():
            spare[job_id] = max(0, slots - implied)
        for job_id, slots in spare.items():
            ended = self._jobs[job_id].state.ended
            states[AttemptState.UNPLANNED if ended else AttemptState.QUEUED] += slots
        target = sum(states.values())
        faults = [fault for balance in balances.values() for fault in balance.faults]
        causes: dict[Cause, set[str]] = defaultdict(set)
        for standing in tasks:
            for fault in standing.faults:
                causes[fault.cause].add(standing.label)
        opened = Counter(
            (fault.cause, fault.boundary) for fault in faults if fault.boundary is not None
        )
        scored_with: Counter[Cause] = Counter()
        for balance in balances.values():
            scored_with.update(balance.scored_with_exception)
        agent, model = run.agent, run.model
        versions = {version for _, version in self._agents.get(agent, ()) if version}
        return RunStanding(
            label=run.label,
            title=run.title,
            jobs=tuple(self._jobs[job_id].label for job_id in run.jobs),
            agent=safe_label(min(self._agents[agent])[0] if self._agents.get(agent) else agent),
            agent_version=safe_label(versions.pop()) if len(versions) == 1 else "",
            model=safe_label(min(self._models[model]) if self._models.get(model) else model),
            dataset=safe_label(run.dataset),
            target=target if run.target_known else None,
            states=dict(states),
            passed=sum(balance.passed for balance in balances.values()),
            tasks=tuple(sorted(tasks, key=lambda task: task.label)),
            excluded=run.definition.exclude if run.definition else {},
            surplus=sum(balance.surplus for balance in balances.values()),
            stale_content=sum(balance.stale_content for balance in balances.values()),
            without_key=sum(balance.without_key for balance in balances.values()),
            scored_with_exception=scored_with,
            superseded=sum(balance.superseded for balance in balances.values()),
            faults_open=opened,
            resolutions=Counter(fault.resolution for fault in faults),
            fault_tasks={cause: len(labels) for cause, labels in causes.items()},
            retries_known=all(len(self._serves(job_id)) == 1 for job_id in run.jobs),
            started=min((s for j in run.jobs if (s := self._jobs[j].started) > 0), default=None),
            last_verdict=max(
                (b.last_verdict for b in balances.values() if b.last_verdict), default=None
            ),
            live=any(not self._jobs[job_id].state.ended for job_id in run.jobs),
            concurrency=self._concurrency(run),
            changed_timeouts=self._labels_of(run, "changed_timeouts"),
            changed_resources=self._labels_of(run, "changed_resources"),
            unknown_tasks=run.unknown_tasks,
        )

    def _concurrency(self, run: Run) -> int | None:
        """How many of its trials run at a time; not known where a job serves other runs, too."""
        total = 0
        for job_id in run.jobs:
            if self._jobs[job_id].state.ended:
                continue
            at_a_time = self._jobs[job_id].record.n_concurrent
            if at_a_time is None or len(self._serves(job_id)) > 1:
                return None
            total += at_a_time
        return total or None

    def _labels_of(self, run: Run, flag: str) -> tuple[str, ...]:
        """The labels of the run's jobs whose record has this flag."""
        jobs = [self._jobs[job_id] for job_id in run.jobs]
        return tuple(job.label for job in jobs if getattr(job.record, flag))

    def _task_standing(
        self, run_key: str, task: TaskRef, label: str, rules: TaskRules, balance: TaskBalance
    ) -> TaskStanding:
        """How the task stands; the same object as before where nothing changed."""
        known = self._task_standings.get((run_key, task))
        if known is not None and known[0] is balance and known[1].label == label:
            return known[1]
        standing = TaskStanding(
            label=label,
            name=task.name,
            target=balance.target,
            target_known=rules.target is not None,
            states=balance.states,
            passed=balance.passed,
            usual_duration=statistics.median(balance.durations) if balance.durations else None,
            oldest_running_start=balance.oldest_running_start,
            faults=balance.faults,
            given_up=rules.given_up,
            phases=balance.phases,
            durations=balance.durations,
            rewards=balance.rewards,
            running_starts=balance.running_starts,
            scored_at=balance.scored_at,
            spans=balance.spans,
            verdicts_of=balance.verdicts_of,
            verdicts=balance.verdicts,
        )
        self._task_standings[run_key, task] = (balance, standing)
        return standing

    def _places(self, job_id: str, job: Job) -> Mapping[str, _Place]:
        """How the job's trials stand, by name."""
        known = self._job_trials[job_id]
        for name in self._dirty_names.pop(job_id, ()):
            executions = in_order(self._trials[job_id][name].values(), job)
            if executions:
                last = executions[-1]
                state = trial_state(last, job)
                regrade = last.record.source_trial is not None
                known[name] = _Place(state, holds_slot(last, state, job), regrade)
            else:
                known.pop(name, None)
        return known

    def _serving_trials(self, job_id: str, job: Job) -> Counter[TrialState]:
        """The job's trials that ask a model, by state; those planned and not begun are queued."""
        places = [place for place in self._places(job_id, job).values() if not place.regrade]
        plan = job.record.plan
        planned = job.record.n_total
        if plan is not None:
            planned = sum(entry.due for entry in plan if entry.source_trial is None)
        return _by_state(places, planned, job)

    def _job_standing(self, job_id: str, job: Job) -> JobStanding:
        places = list(self._places(job_id, job).values())
        record = job.record
        planned = sum(p.due for p in record.plan) if record.plan is not None else record.n_total
        trials = _by_state(places, planned, job)
        return JobStanding(
            job_id=job_id,
            label=job.label,
            state=job.state,
            present=job.present,
            harbor_version=safe_label(record.harbor_version),
            trials=trials,
            started=job.started or None,
            finished=record.finished_at,
            last_change=job.last_change,
            unreadable_files=job.unreadable_files,
        )


def _by_state(places: Sequence[_Place], planned: int | None, job: Job) -> Counter[TrialState]:
    trials = Counter(dict.fromkeys(TrialState, 0))
    trials.update(place.state for place in places)
    if planned is not None and not job.state.ended:
        trials[TrialState.QUEUED] = max(0, planned - sum(place.holds for place in places))
    return trials


def _key(record: TrialRecord) -> TrialKey:
    return (record.job_id, record.name, record.execution)


def _is_older(record: TrialRecord, than: TrialRecord) -> bool:
    """Whether a record says an earlier thing about the same execution, or start, than another.

    Where the files' times do not tell, the contents decide, so that the order of reading does not.
    """
    if not record.execution and record.started_at != than.started_at:
        return (record.started_at or 0.0) < (than.started_at or 0.0)
    return (record.mtime_ns, repr(record)) < (than.mtime_ns, repr(than))


def _overtakes(result: TrialRecord, start: TrialRecord) -> bool:
    """Whether a result was written after a start, which then is over (or a copy of what was)."""
    if not result.execution or start.execution:
        return False
    written = max(result.mtime_ns / 1e9, result.finished_at or result.started_at or 0.0)
    return (start.started_at or 0.0) <= written


def _chains(
    members: Mapping[TrialKey, Execution], jobs: Mapping[str, Job]
) -> dict[tuple[str, str], list[Execution]]:
    grouped: dict[tuple[str, str], list[Execution]] = defaultdict(list)
    for key, execution in members.items():
        grouped[key[:2]].append(execution)
    return {name: in_order(chain, jobs.get(name[0])) for name, chain in grouped.items()}


def _regraded(
    executions: Iterable[Execution], rules: TaskRules, jobs: Mapping[str, Job]
) -> set[str]:
    """The executions that a regrade gave a verdict, or that a live job is to regrade."""
    by_id = {e.record.execution: e.record for e in executions if e.record.execution}
    sources = [
        record.source_trial
        for record in by_id.values()
        if outcome(record, rules.reward.invalid_exceptions) is Outcome.SCORED
    ]
    for job_id, planned in rules.planned_regrades.items():
        if job_id in jobs and not jobs[job_id].state.ended:
            sources += planned
    found: set[str] = set()
    while sources:
        source = sources.pop()
        if source and source not in found:
            found.add(source)
            if source in by_id:  # a regrade may be of a regrade
                sources.append(by_id[source].source_trial)
    return found


def _standing_execution(chain: Sequence[Execution]) -> Execution:
    """The execution of a trial whose verdict is not discarded yet.

    A server keeps what it retries: should the retry come to nothing before it begins, it stands.
    """
    last = chain[-1].record
    return chain[-2] if last.open and last.again and len(chain) > 1 else chain[-1]


def _merged(old: Job, sighting: JobSighting) -> JobRecord:
    """The later of two states of a job, with what only one of them could read."""
    new = sighting.record
    if new.n_total is None and new.started_at is None:
        # Its result cannot be read at the moment: what it last said still holds.
        return replace(old.record, plan=new.plan or old.record.plan)
    if _is_stale_copy(old, sighting):
        return replace(old.record, plan=old.record.plan or new.plan)
    n_total = old.record.n_total if new.n_total is None else new.n_total
    return replace(new, plan=new.plan or old.record.plan, n_total=n_total)


def _is_stale_copy(old: Job, sighting: JobSighting) -> bool:
    return sighting.origin != old.origin and sighting.record.recency < old.record.recency


def _structure(job: Job) -> tuple[Any, ...]:
    """What decides on runs and their targets."""
    record = job.record
    without_lock = (record.n_total, record.n_attempts, record.n_agents)
    return (
        record.plan,
        record.source_jobs,
        without_lock if record.plan is None else None,
        job.names,
        job.label,
        job.started,
    )


def _standing(job: Job) -> tuple[Any, ...]:
    """What decides on the states of a job's trials."""
    record = job.record
    return (
        job.state,
        job.present,
        job.resumable,
        record.incarnation,
        record.max_retries,
        record.retry_include,
        record.retry_exclude,
    )
