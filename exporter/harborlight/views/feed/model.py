"""The feed's documents: an allowlist of typed, bounded fields.

What has no field here cannot be public. Times are whole seconds since the epoch, ratios are from 0
to 1, durations seconds. A value that is not known is null.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from harborlight.ledger.faults import Boundary, Cause, Phase
from harborlight.readings import ReplicaState
from harborlight.statistics.comparability import Check
from harborlight.statistics.pace import Method
from harborlight.views.feed.public_text import (
    EXCEPTION_TYPE_PATTERN,
    LINE_LENGTH,
    NAME_LENGTH,
    NAME_PATTERN,
    PARAGRAPH_LENGTH,
    names_a_place,
)
from harborlight.views.feed.publication import TaskNames

VERSION: Final = 1
"""Of the documents' form: a field that goes or changes its meaning makes another one."""

MAX_TASKS: Final = 10_000
MAX_RUNS: Final = 1_000
MAX_FAULT_KINDS: Final = 200
MAX_TREND_POINTS: Final = 120
MAX_REPLICAS: Final = 700  # letters A to ZZ are 702
MAX_LINKS: Final = 20


def _no_place(text: str) -> str:
    if names_a_place(text):
        raise ValueError("a path or an address")
    return text


Name = Annotated[
    str, Field(pattern=NAME_PATTERN, max_length=NAME_LENGTH), AfterValidator(_no_place)
]
Line = Annotated[str, Field(min_length=1, max_length=LINE_LENGTH), AfterValidator(_no_place)]
Paragraph = Annotated[
    str, Field(min_length=1, max_length=PARAGRAPH_LENGTH), AfterValidator(_no_place)
]
RunId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,79}$")]
ExceptionType = Annotated[str, Field(pattern=EXCEPTION_TYPE_PATTERN)]
Release = Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.+-]{0,39}$")]
Link = Annotated[
    str, Field(pattern=r"^https?://[A-Za-z0-9.:-]+(/[A-Za-z0-9._~!$&'()*+,;=:@%/?#-]*)?$")
]
Count = Annotated[int, Field(ge=0, le=10**12)]
Moment = Annotated[int, Field(ge=0, le=10**11)]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Difference = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LineInBoth(_Document):
    """One line in both languages."""

    en: Line
    zh: Line


class ParagraphInBoth(_Document):
    """A paragraph in both languages."""

    en: Paragraph
    zh: Paragraph


RunState = Literal["waiting", "running", "ended", "complete"]
"""``waiting``: nothing has begun. ``ended``: no job works on it any more, and attempts are missing.
``complete``: every attempt is scored."""


class Attempts(_Document):
    """The target and where its attempts stand; the five states add up to it.

    ``target`` is null where it cannot be known. ``given_up``: attempts of the last two states that
    nobody is to replay.
    """

    target: Count | None
    scored: Count
    running: Count
    queued: Count
    faulted: Count
    unplanned: Count
    passed: Count
    given_up: Count


class Exclusion(_Document):
    """Tasks that are taken out of the target for one reason (null: it is not public).

    ``tasks``: their names, where names are shown.
    """

    reason: LineInBoth | None
    count: Count
    tasks: Annotated[tuple[Name, ...], Field(max_length=MAX_TASKS)]


class Denominator(_Document):
    """What the target is made of: ``tasks`` times ``attempts_per_task`` (null where they differ).

    ``all_tasks``: with the excluded ones. ``note``: the operator's explanation.
    """

    tasks: Count
    all_tasks: Count
    attempts_per_task: Count | None
    exclusions: Annotated[tuple[Exclusion, ...], Field(max_length=MAX_TASKS)]
    note: ParagraphInBoth | None


class Eta(_Document):
    """When every attempt will be scored, by the method that is to be trusted now.

    ``early`` and ``late``: the range of the simulation; null for the observed rate.
    """

    method: Method
    end: Moment
    early: Moment | None
    late: Moment | None


class Pace(_Document):
    """An hour's trials that ended and attempts scored.

    In the last one, and in all the time in which trials ran (``run``).
    """

    trials_last_hour: Rate | None
    trials_run: Rate | None
    scored_last_hour: Rate | None
    scored_run: Rate | None
    eta: Eta | None


class Interval(_Document):
    """A 95 % interval of a ratio or of a difference, cut off at what can be."""

    lower: Difference
    upper: Difference


class Estimate(_Document):
    """A mean over tasks.

    ``attempts_luck``: the interval of the attempts' luck at these very tasks, as leaderboards print
    it; ``tasks_choice``: of the choice of tasks, too.
    """

    value: Difference
    tasks: Count
    attempts_luck: Interval | None
    tasks_choice: Interval | None


class Sides(_Document):
    """The run and its reference on the same tasks, and the run's minus the reference's."""

    run: Estimate | None
    reference: Estimate | None
    difference: Estimate | None


class Comparable(_Document):
    """A check of comparability, and whether it holds."""

    check: Check
    holds: bool


class ReferenceLink(_Document):
    """A link that the reference's author gave."""

    text: LineInBoth
    href: Link


class Reference(_Document):
    """What the run is compared with.

    ``matched_*``: on the tasks that both have; ``attempts``, ``passed``, ``errors``, ``full``: on
    all of its own. ``errors``: attempts without a verdict, which count as not passed.
    """

    title: LineInBoth
    note: ParagraphInBoth | None
    links: Annotated[tuple[ReferenceLink, ...], Field(max_length=MAX_LINKS)]
    tasks: Count
    attempts: Count
    passed: Count
    errors: Count
    full: Estimate | None
    matched_tasks: Count
    matched_attempts: Count
    matched_passed: Count
    matched: Estimate | None


class Correctness(_Document):
    """How many attempts pass.

    ``attempts_ratio``: passed over scored. ``bounds``: what passed over target will be between,
    whatever comes. ``attempted``: on tasks with a scored attempt; ``complete``: on tasks whose
    every attempt is scored; ``full``: on all tasks, once each has a scored attempt.
    """

    attempts_ratio: Ratio | None
    bounds: Interval | None
    attempted: Sides
    complete: Sides
    full: Estimate | None
    projected: Ratio | None
    faults_as_failures: Ratio | None


class TrendPoint(_Document):
    """As of ``at``: attempts scored, those that passed, and the means of both sides.

    Both are over the tasks attempted by then.
    """

    at: Moment
    scored: Count
    passed: Count
    run: Ratio | None
    reference: Ratio | None


TaskState = Literal["complete", "running", "queued", "faulted", "unplanned"]
"""``complete``, else the first that holds: an attempt of it runs, is faulted, queued, unplanned."""


class ReferenceCount(_Document):
    """A task's attempts in the reference, and those that passed."""

    passed: Count
    attempts: Count


class Task(_Document):
    """A task and its attempts by state; the five states add up to ``target``.

    ``difference``: its ratio minus the reference's, once complete. Without names there is neither
    that nor ``reference``: the reference's numbers are public and would tell which task it is.
    """

    name: Name
    state: TaskState
    target: Count
    target_known: bool
    scored: Count
    passed: Count
    running: Count
    queued: Count
    faulted: Count
    unplanned: Count
    reference: ReferenceCount | None
    difference: Difference | None


class Replica(_Document):
    """One replica of a pool, by its letter. ``state`` is null before its first look."""

    name: Annotated[str, Field(pattern=r"^[A-Z]{1,2}$")]
    state: ReplicaState | None
    tensor_parallel: Count | None
    data_parallel: Count | None
    running_requests: Count | None
    queued_requests: Count | None
    max_running_requests: Count | None
    kv_tokens_used: Count | None
    kv_tokens_capacity: Count | None


class Pool(_Document):
    """A serving pool. ``terminal``, ``running``, ``pending``: trials of the jobs that use it."""

    title: LineInBoth
    terminal: Count
    running: Count
    pending: Count
    retries: Count
    replicas: Annotated[tuple[Replica, ...], Field(max_length=MAX_REPLICAS)]


class Resolutions(_Document):
    """Faults by what became of them."""

    open: Count
    pending: Count
    retried: Count
    regraded: Count
    replayed: Count
    given_up: Count


class FaultKind(_Document):
    """Faults of one cause, phase and exception type.

    ``tasks``: how many tasks they hit. ``last``: when the newest of them ended.
    """

    cause: Cause
    phase: Phase
    exception_type: ExceptionType
    total: Count
    resolutions: Resolutions
    tasks: Count
    last: Moment | None


class OpenFaults(_Document):
    """Open faults that are to be replayed from one boundary."""

    boundary: Boundary
    count: Count


class Issues(_Document):
    """What went wrong or stands beside the count. ``kinds``: the most frequent ones first.

    ``discarded``: valid verdicts that Harbor deleted by retrying. ``surplus``: verdicts beyond
    their task's attempts. ``stale_content``: on another version of the task.
    """

    total: Count
    open: Count
    kinds: Annotated[tuple[FaultKind, ...], Field(max_length=MAX_FAULT_KINDS)]
    open_by_boundary: Annotated[tuple[OpenFaults, ...], Field(max_length=len(Boundary))]
    resolutions: Resolutions
    retries: Count | None
    discarded: Count
    surplus: Count
    stale_content: Count
    superseded: Count
    scored_with_exception: Count
    scored_without_key: Count


class Counts(_Document):
    """How far a run is: for a list of runs."""

    target: Count | None
    scored: Count
    passed: Count
    tasks: Count
    tasks_complete: Count


class Exporter(_Document):
    """Who says so. ``stale_after``: from this age on, in seconds, a document is old news."""

    version: Release
    stale_after: Count


class RunFeed(_Document):
    """One run, whole."""

    feed: Literal["run"] = "run"
    version: Literal[1] = VERSION
    as_of: Moment
    exporter: Exporter
    id: RunId
    title: LineInBoth
    side: LineInBoth | None
    state: RunState
    agent: Name | None
    agent_version: Name | None
    model: Name | None
    dataset: Name | None
    started: Moment | None
    last_verdict: Moment | None
    attempts: Attempts
    tasks_complete: Count
    denominator: Denominator
    pace: Pace
    correctness: Correctness
    reference: Reference | None
    comparison_note: ParagraphInBoth | None
    comparability: Annotated[tuple[Comparable, ...], Field(max_length=len(Check))]
    task_names: TaskNames
    tasks: Annotated[tuple[Task, ...], Field(max_length=MAX_TASKS)]
    trend: Annotated[tuple[TrendPoint, ...], Field(max_length=MAX_TREND_POINTS)]
    pools: Annotated[tuple[Pool, ...], Field(max_length=100)]
    issues: Issues


class RunSummary(_Document):
    """One run of the list, and the document with all of it."""

    id: RunId
    href: Annotated[str, Field(pattern=r"^run-[a-z0-9-]{1,80}\.json$")]
    title: LineInBoth
    state: RunState
    counts: Counts
    started: Moment | None
    last_verdict: Moment | None
    attempted: Estimate | None
    difference: Estimate | None
    eta: Eta | None
    open_faults: Count


class IndexFeed(_Document):
    """All runs that are shown."""

    feed: Literal["index"] = "index"
    version: Literal[1] = VERSION
    as_of: Moment
    exporter: Exporter
    title: LineInBoth
    runs: Annotated[tuple[RunSummary, ...], Field(max_length=MAX_RUNS)]
