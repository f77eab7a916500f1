"""Which values a label can have: those of closed sets, by metric, from where they are made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from harborlight.ledger.faults import Boundary, Cause, Phase
from harborlight.ledger.jobs import JobState
from harborlight.ledger.ownership import AttemptState, Resolution, TrialState
from harborlight.readings import ReplicaState
from harborlight.sources.harbor_server.source import HarborServerSource
from harborlight.sources.job_directory import JobDirectorySource
from harborlight.sources.sglang.source import SglangSource
from harborlight.statistics.comparability import Check
from harborlight.statistics.comparison import Scope, Side
from harborlight.statistics.correctness import Interval, IntervalKind, Undefined
from harborlight.statistics.pace import Method, Quantile, Window
from harborlight.views import catalogue as c
from harborlight.views.catalogue import CATALOGUE, Metric
from harborlight.views.metrics import _PHASES, _RESULTS, _TOKEN_KINDS, _TOTALS

OPEN: Final = frozenset(
    {
        *("run", "task", "harbor_job", "pool", "replica", "role", "reference", "title"),
        *("agent", "agent_version", "model", "dataset", "exception_type", "k"),
        *("version", "served_model", "tp", "pp", "dp", "harbor_version", "python_version"),
    }
)
"""Labels whose values are data."""

_EVERYWHERE: Final[dict[str, Iterable[str]]] = {
    "cause": Cause,
    "boundary": Boundary,
    "resolution": Resolution,
    "side": Side,
    "scope": Scope,
    "interval": IntervalKind,
    "bound": Interval._fields,
    "reason": Undefined,
    "check": Check,
    "method": Method,
    "estimate": Quantile,
    "window": Window,
    "match": ("both", "run", "reference"),
    "collector": (
        JobDirectorySource.name,
        HarborServerSource.name,
        SglangSource.name,
        "statistics",
    ),
}

_OF_ONE: Final[dict[Metric, dict[str, Iterable[str]]]] = {
    c.RUN_ATTEMPTS: {"state": AttemptState},
    c.TASK_ATTEMPTS: {"state": AttemptState},
    c.JOB_STATE: {"state": JobState},
    c.JOB_TRIALS: {"state": TrialState},
    c.POOL_TRIALS: {"state": TrialState},
    c.REPLICA_STATE: {"state": ReplicaState},
    c.RUN_ATTEMPTS_RUNNING: {"phase": Phase},
    c.RUN_FAULTS_TOTAL: {"phase": Phase},
    c.RUN_PHASE_DURATION: {"phase": _PHASES},
    c.RUN_VERDICTS: {"result": (*_RESULTS, "unknown")},
    c.RUN_DISCARDED: {"result": (*_RESULTS, "unknown")},
    c.RUN_REFERENCE_ATTEMPTS: {"result": (*_RESULTS, "error")},
    c.RUN_TOKENS: {"kind": _TOKEN_KINDS},
    c.REPLICA_LIVE_TOKENS: {"kind": [kind for _, _, kinds in _TOTALS for kind in kinds]},
    c.RUN_INTERVAL_UNDEFINED: {"side": (*Side, "difference")},
}


def closed_values(metric: Metric, label: str) -> frozenset[str] | None:
    """The values that the label can have on this metric; None where they are data."""
    if label in OPEN:
        return None
    return frozenset(map(str, _OF_ONE.get(metric, {}).get(label) or _EVERYWHERE[label]))


CLOSED: Final = {
    metric.full_name: {
        label: values
        for label in metric.labels
        if (values := closed_values(metric, label)) is not None
    }
    for metric in CATALOGUE.values()
}
