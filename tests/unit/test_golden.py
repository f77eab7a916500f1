"""Whole pages of recorded jobs, kept in ``tests/golden``, and a plain recount of their sums.

``pytest --update-golden`` rewrites the pages. Times of day are replaced by 1 (a job's own times
have no time zone, so they depend on this machine's); other numbers have at most three decimals.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from harborlight.ledger import Ledger, Store
from harborlight.ledger.book import Rules
from harborlight.ledger.pools import PoolDefinition
from harborlight.readings import ReplicaSighting
from harborlight.reference import Reference, ReferenceTask
from harborlight.sources.failure import Failure, Trouble
from harborlight.sources.job_directory import JobDirectorySource
from harborlight.sources.observation import Observation
from harborlight.sources.sglang.answers import read_loads
from harborlight.sources.sglang.page import PageReading, read_page
from harborlight.sources.sglang.replica import ServerAnswers, sighting
from harborlight.views.metrics import Page as MetricsPage
from support.metrics import knowledge_page, snapshot_of
from support.page import Page, assert_promises

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
PA_UM = "chi-bench-leaderboard-2026-05-15-openai-agents-z-ai-glm-5-1/trials/pa_um"
CASES = {
    "mixed-6x5": ("mixed-6x5",),
    "faulty-oracle": ("faulty-oracle",),
    "crash-sigkill.before-resume": ("crash-sigkill.before-resume",),
    "diff-src+diff-new": ("diff-src", "diff-new"),
    "third-party": (),
    "pools": ("retry-2",),
}
REFERENCE = Reference(
    name="earlier",
    title="An earlier run",
    tasks={
        "mini/count-lines": ReferenceTask("mini/count-lines", 5, 5),
        "hello-file": ReferenceTask("hello-file", 2, 5, errors=1),
        "only-there": ReferenceTask("only-there", 0, 5),
    },
    agent="scripted",
    model="another-model",
)
"""What the case mixed-6x5 is compared with."""
REPLICAS = {
    "pipeline": "real-0.5.23-cpu-pp2-idle.txt",
    "ranks": "0.5.20-tp8-dp2-attn.txt",
    "prefill": "0.5.23-pd-prefill.txt",
    "lost-rank": "0.5.23-dead-scheduler.txt",
    "loads": "real-0.5.23-cpu-dp2-busy.txt",
    "gone": "",
}
"""A pool's replicas by the page that their one look brought; one tells its loads, too."""
FORMATS = {"prom": "text/plain", "om": "application/openmetrics-text"}

_LINE = re.compile(r"(?P<series>(?P<name>\w+)(?:\{.*\})?) (?P<value>\S+)")


def normalised(page: str) -> str:
    """Without what differs from machine to machine."""
    return "".join(f"{_normalised(line)}\n" for line in page.splitlines())


def _normalised(line: str) -> str:
    match = _LINE.fullmatch(line)
    if match is None:
        return line
    if match["name"].endswith("_timestamp_seconds"):
        return f"{match['series']} 1"
    if "." in match["value"]:
        return f"{match['series']} {round(float(match['value']), 3)}"
    return line


def look_at(pool: str, replica: str, page: Path) -> ReplicaSighting:
    """What a look brings that finds this page, or nothing."""
    answer: PageReading | Failure = Failure(Trouble.FAILED, "timed out", timed_out=True)
    if page.is_file():
        answer = read_page(page.read_bytes(), replica)
    loads = None
    if replica == "loads":
        loads = read_loads((page.parents[1] / "http/dp2_v1_loads.json").read_bytes())
    return sighting(pool, replica, 1000.0, [ServerAnswers(replica, answer, loads)])


@pytest.fixture(scope="module")
def pages(harbor_jobs: Path, third_party: Path, sglang: Path) -> dict[str, dict[str, str]]:
    """Every case's page in both formats, not normalised."""
    found = {}
    pool = PoolDefinition("glm", "GLM", jobs=(), runs=(), replicas=tuple(REPLICAS))
    for case, jobs in CASES.items():
        places = [harbor_jobs / job for job in jobs] or [third_party / PA_UM]
        ledger = Ledger(Store.throw_away(), Rules(pools=(pool,) if case == "pools" else ()))
        if case == "pools":
            recorded = sglang / "sglang-expositions"
            looks = tuple(look_at("glm", name, recorded / page) for name, page in REPLICAS.items())
            ledger.take(Observation(replicas=looks))
        reference = REFERENCE if case == "mixed-6x5" else None
        snapshot = snapshot_of(*places, ledger=ledger, reference=reference)
        # 75 more tasks show nothing that the six of a small job do not.
        whole = MetricsPage(snapshot, tasks=bool(jobs))
        found[case] = {name: knowledge_page(whole, accept) for name, accept in FORMATS.items()}
    return found


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("case", CASES)
def test_page(
    case: str, form: str, pages: dict[str, dict[str, str]], request: pytest.FixtureRequest
) -> None:
    """The page is, line by line, the one that was accepted."""
    page = normalised(pages[case][form])
    file = GOLDEN / f"{case}.{form}"
    if request.config.getoption("--update-golden"):
        file.write_text(page, "utf-8")
    assert page.splitlines() == file.read_text("utf-8").splitlines()


def test_no_other_pages() -> None:
    """A page whose case is gone is no longer compared with anything."""
    assert {file.name for file in GOLDEN.iterdir()} == {f"{c}.{f}" for c in CASES for f in FORMATS}


@pytest.mark.parametrize("case", CASES)
def test_promises(case: str, pages: dict[str, dict[str, str]]) -> None:
    assert_promises(Page(pages[case]["prom"]))


# By hand, from the table of Harbor's own judgement: target, states in order, passed, open faults.
BY_HAND = {
    "mixed-6x5": (30, (29, 0, 0, 1, 0), 15, 1),
    "faulty-oracle": (9, (3, 0, 0, 6, 0), 2, 6),
    "crash-sigkill.before-resume": (18, (5, 3, 10, 0, 0), 5, 0),
    "diff-src+diff-new": (6, (6, 0, 0, 0, 0), 3, 0),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_by_hand(case: str) -> None:
    """The accepted pages say what was worked out without this code."""
    page = Page((GOLDEN / f"{case}.prom").read_text("utf-8"))
    run = page.only_run()
    assert (
        page.value("harborlight_run_attempts_target"),
        page.states(run),
        page.value("harborlight_run_attempts_passed"),
        page.sum("harborlight_run_faults_open"),
    ) == BY_HAND[case]


def test_by_hand_faults() -> None:
    """One fault of each of six types, two before the agent's work and four after it."""
    page = Page((GOLDEN / "faulty-oracle.prom").read_text("utf-8"))
    types = page.find("harborlight_run_faults_by_type_total")
    assert {dict(s.labels)["exception_type"]: s.value for s in types} == {
        "EnvironmentStartTimeoutError": 1,
        "RewardFileEmptyError": 1,
        "RewardFileNotFoundError": 1,
        "SandboxBuildFailedError": 1,
        "VerifierOutputParseError": 1,
        "VerifierTimeoutError": 1,
    }
    faults = "harborlight_run_faults_total"
    assert page.value(faults, phase="environment", cause="container") == 2
    assert page.value(faults, phase="verifier", cause="verifier") == 4
    assert page.sum(faults) == 6
    # `only-other-keys` has two rewards, neither of which is called `reward`.
    assert page.value("harborlight_run_attempts_scored_without_key") == 1


def test_by_hand_diff() -> None:
    """Two trials of the changed task ran again, two of another were verified again."""
    page = Page((GOLDEN / "diff-src+diff-new.prom").read_text("utf-8"))
    assert page.only_run() == "diff-src"
    assert page.value("harborlight_run_attempts_stale_content") == 2
    assert page.value("harborlight_run_verdicts_superseded") == 2
    assert page.sum("harborlight_run_verdicts_total") == 10


def test_published_results(pages: dict[str, dict[str, str]]) -> None:
    """The third party's own table says that a third of its 75 trials passed."""
    page = Page(pages["third-party"]["prom"])
    assert page.sum("harborlight_run_attempts_passed") == 25
    # No lock and no total: the target cannot be known, and no share of it is claimed.
    assert page.sum("harborlight_run_target_known") == 0
    assert page.find("harborlight_run_attempts_target") == []
    assert page.sum("harborlight_run_attempts", state="scored") == 74


def test_by_hand_pools() -> None:
    """Each request once: TP 8 with two data-parallel ranks has 37 + 12, whoever repeats them."""
    page = Page((GOLDEN / "pools.prom").read_text("utf-8"))
    replica = "harborlight_replica"

    def shown(name: str) -> dict[str, float]:
        return {dict(s.labels)["replica"]: s.value for s in page.find(f"{replica}_{name}")}

    up = {"pipeline": 1, "ranks": 1, "prefill": 1, "loads": 1}
    assert shown("up") == {**up, "lost-rank": 0, "gone": 0}
    assert page.value(f"{replica}_state", replica="lost-rank", state="incomplete") == 1
    assert page.value(f"{replica}_state", replica="gone", state="unreachable") == 1
    running = {"pipeline": 0, "ranks": 49, "prefill": 37, "loads": 20}
    assert shown("running_requests") == running
    assert shown("queued_requests") == {"pipeline": 0, "ranks": 5, "prefill": 4, "loads": 20}
    # The loads are younger than the page, which says 722 + 672.
    used = {"pipeline": 0, "ranks": 348_300, "prefill": 262_300, "loads": 592 + 592}
    assert shown("kv_tokens_used") == used
    capacity = {"pipeline": 4096, "ranks": 860_000, "prefill": 430_000, "loads": 2 * 4096}
    assert shown("kv_tokens_capacity") == capacity
    assert shown("max_running_requests") == {"loads": 2 * 2048}
    assert page.value(f"{replica}_requests_total", replica="ranks", role="unified") == 20
    assert page.value(f"{replica}_requests_total", replica="prefill", role="prefill") == 20
    assert page.sum(f"{replica}_time_to_first_token_seconds_count", replica="ranks") == 20
    # What `retry-2` says of itself: six trials, four scored, two lost.
    assert page.value("harborlight_pool_trials", state="scored") == 4
    assert page.value("harborlight_pool_trials", state="faulted") == 2
    assert page.value("harborlight_pool_trials", state="running") == 0
    assert page.value("harborlight_pool_retries_total") == page.sum("harborlight_run_retries_total")


# The recount: nothing but the JSON files and sums.


def results(*jobs: Path) -> Iterator[dict[str, Any]]:
    """Every readable trial result below these directories."""
    for job in jobs:
        for file in sorted(job.glob("*/result.json")):
            yield json.loads(file.read_text("utf-8"))


def seconds(part: dict[str, Any] | None) -> float | None:
    if not part or not part["started_at"] or not part["finished_at"]:
        return None
    ended, started = (datetime.fromisoformat(part[k]) for k in ("finished_at", "started_at"))
    return (ended - started).total_seconds()


@pytest.mark.parametrize("case", CASES)
def test_recount(
    case: str, pages: dict[str, dict[str, str]], harbor_jobs: Path, third_party: Path
) -> None:
    """Tokens, cost and durations are the sums over the files, regrades' copies left out."""
    jobs = [harbor_jobs / job for job in CASES[case]] or [third_party / PA_UM]
    page = Page(pages[case]["prom"])
    expected: Counter[str] = Counter()
    phases: dict[str, list[float]] = {
        "environment_setup": [],
        "agent_setup": [],
        "agent_execution": [],
        "verifier": [],
    }
    walls: dict[str, list[float]] = {}
    for result in results(*jobs):
        usage = result["agent_result"] or {}
        if not result["config"].get("source_trial"):
            cached = usage.get("n_cache_tokens") or 0
            expected["cached_input"] += cached
            expected["input"] += (usage.get("n_input_tokens") or 0) - cached
            expected["output"] += usage.get("n_output_tokens") or 0
            expected["cost"] += usage.get("cost_usd") or 0
        for phase, durations in phases.items():
            taken = seconds(result[phase])
            if taken is not None:
                durations.append(taken)
        if result.get("reward_valid"):
            wall = seconds(result)
            assert wall is not None
            walls.setdefault(result["task_name"].rpartition("/")[2], []).append(wall)
    for kind in ("input", "cached_input", "output"):
        assert page.sum("harborlight_run_tokens_total", kind=kind) == expected[kind]
    assert page.sum("harborlight_run_cost_usd_total") == pytest.approx(expected["cost"])
    for phase, durations in phases.items():
        name = {"environment_setup": "environment", "agent_execution": "agent"}.get(phase, phase)
        duration = "harborlight_run_trial_phase_duration_seconds"
        assert page.sum(f"{duration}_count", phase=name) == len(durations)
        assert page.sum(f"{duration}_sum", phase=name) == pytest.approx(sum(durations))
        for bound in (1.0, 10.0, 300.0, 3600.0):
            below = sum(1 for taken in durations if taken <= bound)
            assert page.sum(f"{duration}_bucket", phase=name, le=str(bound)) == below
    if len(CASES[case]) == 1:
        for task, of_task in walls.items():
            usual = page.value("harborlight_task_usual_duration_seconds", task=task)
            assert usual == pytest.approx(median(of_task))


def test_second_look_changes_nothing(harbor_jobs: Path) -> None:
    """The same files read again leave the page as it is."""
    source = JobDirectorySource([harbor_jobs / "mixed-6x5"])
    ledger = Ledger(Store.throw_away())
    first = knowledge_page(MetricsPage(snapshot_of(source=source, ledger=ledger)))
    source.start_anew()
    assert knowledge_page(MetricsPage(snapshot_of(source=source, ledger=ledger))) == first
