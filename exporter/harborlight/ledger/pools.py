"""Serving pools: which jobs and runs a pool's replicas serve, and whether it is their model (pure).

A trial that only verifies another one's work again (a regrade) asks no model: it is on no pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from harborlight.labels import safe_label
from harborlight.ledger.jobs import Job
from harborlight.ledger.ownership import TrialState
from harborlight.ledger.replicas import ReplicaStanding
from harborlight.ledger.runs import Run


@dataclass(frozen=True, slots=True)
class PoolDefinition:
    """A pool as configuration says it. Neither ``jobs`` (globs) nor ``runs``: every job uses it.

    ``replicas``: their names in order. ``frozen_after``: seconds without a sign of life.
    """

    label: str
    title: str
    jobs: tuple[str, ...]
    runs: tuple[str, ...]
    replicas: tuple[str, ...]
    frozen_after: float = 30.0

    @property
    def account(self) -> str:
        """Under what name its counters are kept; no run has a tab in its name."""
        return f"pool\t{self.label}"


@dataclass(frozen=True, slots=True)
class PoolStanding:
    """A pool, the trials that use it by state, and its replicas.

    ``runs``: the labels of those that its jobs serve, sorted. ``retries``: what Harbor retried in
    its jobs. ``model_match``: by run, whether every replica that tells what it serves serves the
    run's model; runs whose model is not one are left out.
    """

    label: str
    title: str
    runs: tuple[str, ...]
    trials: Mapping[TrialState, int]
    retries: float
    model_match: Mapping[str, bool]
    replicas: tuple[ReplicaStanding, ...]


def jobs_of(pool: PoolDefinition, jobs: Mapping[str, Job], runs: Iterable[Run]) -> frozenset[str]:
    """The ids of the jobs that use a pool: by glob over their names, or through a run."""
    if not pool.jobs and not pool.runs:
        return frozenset(jobs)
    by_run = {job_id for run in runs if run.label in pool.runs for job_id in run.jobs}
    by_name = {
        job_id
        for job_id, job in jobs.items()
        if any(
            fnmatchcase(name, glob)
            for glob in pool.jobs
            for name in (job_id, job.label, *job.names)
        )
    }
    return frozenset(by_run | by_name)


def runs_of(jobs: frozenset[str], runs: Iterable[Run]) -> list[Run]:
    """The runs that these jobs serve, by label."""
    return sorted((run for run in runs if not jobs.isdisjoint(run.jobs)), key=lambda r: r.label)


def serves_model(model: str, served: str) -> bool:
    """Whether a served name (as a label) is the model that Harbor was told to use.

    Harbor's name may have providers in front (``openai/zai-org/GLM``); which parts are the
    server's name is not recorded, so that any end of it will do.
    """
    parts = model.split("/")
    return any(safe_label("/".join(parts[start:])) == served for start in range(len(parts)))


def model_match(runs: Iterable[Run], replicas: Iterable[ReplicaStanding]) -> dict[str, bool]:
    """By run label, whether its model is what the replicas serve; nothing where none tells."""
    served = {replica.info.served_model for replica in replicas} - {""}
    if not served:
        return {}
    return {
        run.label: all(serves_model(run.model, name) for name in served)
        for run in runs
        if run.model
    }
