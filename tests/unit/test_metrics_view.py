"""The page of a snapshot: formats, reuse, size, and labels that came from hostile files."""

from __future__ import annotations

import gzip
import math
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace as replace_struct

from harborlight.demo import DEMO_REFERENCE
from harborlight.demo.terminal_bench import TerminalBenchDemo
from harborlight.labels import MAX_LENGTH, safe_label
from harborlight.ledger import Ledger, Store
from harborlight.ledger.book import Rules
from harborlight.ledger.pools import PoolDefinition
from harborlight.ledger.runs import RunDefinition
from harborlight.readings import Latency, Number, ReplicaInfo
from harborlight.records import TaskRef
from harborlight.snapshot import CollectorSnapshot, Snapshot
from harborlight.sources.reference_files import shipped
from harborlight.statistics.pace import Method, Pace, Quantile, Window
from harborlight.views.catalogue import CATALOGUE
from harborlight.views.metrics import OPENMETRICS, TEXT, Page as MetricsPage, negotiate
from support.metrics import knowledge_page, snapshot_of, strict_samples, take_snapshot
from support.page import Page, assert_promises
from support.records import Watched, job_record, plan, trial
from support.replicas import histogram, observed, series, sighting

SUCCESS = "harborlight_run_success_ratio"
OM = "application/openmetrics-text"

# What Prometheus sends.
PROMETHEUS_2 = (
    f"{OM};version=1.0.0,{OM};version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    f"{OM};version=1.0.0;escaping=allow-utf-8;q=0.6,{OM};version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain", TEXT),
        ("text/html,application/xhtml+xml,*/*;q=0.8", TEXT),
        (OM, OPENMETRICS),
        (f"{OM};version=1.0.0", OPENMETRICS),
        (f"{OM.upper()};VERSION=1.0.0", OPENMETRICS),
        (PROMETHEUS_2, OPENMETRICS),
        (PROMETHEUS_3, OPENMETRICS),
        (f"{PROTOBUF};q=0.7,{PROMETHEUS_3}", OPENMETRICS),
        # scrape_protocols: [PrometheusText0.0.4, OpenMetricsText1.0.0]
        (f"text/plain;version=0.0.4;q=0.6,{OM};version=1.0.0;q=0.5,*/*;q=0.2", TEXT),
        (f"{OM};version=1.0.0;q=0.3, text/plain;q=0.9", TEXT),
        # Versions that are not spoken, and what cannot be read
        (f"{OM};version=2.0.0", TEXT),
        (f"{OM};version=0.0.1", TEXT),
        (f"{OM};q=0", TEXT),
        (f"{OM};q=high", TEXT),
        (f"{OM};q=high,text/plain;q=0.1", TEXT),
        (f"{OM};q=nan", TEXT),
        (f"{OM}x", TEXT),
        (";;,,;q=,=", TEXT),
        ("\x00\xff" * 1000, TEXT),
    ],
)
def test_negotiation(accept: str, expected: str) -> None:
    """OpenMetrics only where a version of it that is spoken here is preferred."""
    assert negotiate(accept) == expected
    content_type, page, zipped = MetricsPage(nothing()).render(accept)
    assert content_type.startswith(OM if expected == OPENMETRICS else "text/plain")
    assert page.endswith(b"# EOF\n") == (expected == OPENMETRICS)
    assert gzip.decompress(zipped) == page


def nothing() -> Snapshot:
    return take_snapshot(Ledger(Store.throw_away()))


def watched(*names: str) -> Watched:
    """A job that plans two attempts of each task and has one passed trial of each."""
    world = Watched()
    tasks = [TaskRef("set", name) for name in names]
    trials = [
        replace_struct(trial(f"t{i}", f"x{i}", reward=1.0), task=task)
        for i, task in enumerate(tasks)
    ]
    world.see(job_record("job", *[plan(2, task) for task in tasks]), *trials)
    return world


def test_whole_page() -> None:
    """No series twice, nothing but finite numbers, and the strict parser takes all of it."""
    snapshot = replace(
        take_snapshot(watched("a", "b").ledger),
        collectors=(CollectorSnapshot("harbor_jobs", True, 0.25, 12.0),),
        config_reload_timestamp=7.0,
    )
    page = Page(MetricsPage(snapshot).render("")[1].decode())
    assert_promises(page)
    whole = MetricsPage(snapshot).render(OM)[1].decode()
    assert whole.count("# EOF") == 1
    samples = strict_samples(whole)
    assert all(math.isfinite(sample.value) for sample in samples)
    assert max(Counter(sample.series for sample in samples).values()) == 1
    own = {m.full_name for m in CATALOGUE.values() if m.group == "self"}
    names = {sample.name for sample in page.samples}
    assert own <= names
    assert page.value("harborlight_collector_duration_seconds", collector="harbor_jobs") == 0.25
    assert page.value("harborlight_config_last_reload_success_timestamp_seconds") == 7
    assert page.value("harborlight_ledger_trials") == 2
    assert page.find("process_cpu_seconds_total")


def test_absent_values_are_absent() -> None:
    """What is not known is no sample, rather than 0 or NaN."""
    world = Watched()
    world.see(job_record("job", plan=None, n_total=None, created_at=None, started_at=None))
    page = Page(knowledge_page(MetricsPage(take_snapshot(world.ledger))))
    for name in ("job_finished_timestamp_seconds", "job_last_change_timestamp_seconds"):
        assert page.find(f"harborlight_{name}") == []
    collector = CollectorSnapshot("harbor_jobs", False, 0.1, None)
    failed = MetricsPage(replace(nothing(), collectors=(collector,)))
    page = Page(failed.render("")[1].decode())
    assert page.value("harborlight_collector_success") == 0
    assert page.find("harborlight_collector_last_success_timestamp_seconds") == []


@pytest.mark.parametrize("accept", ["text/plain", OM])
def test_reuse(accept: str) -> None:
    """Equal versions share the part with the runs, other versions do not; the rest is new."""
    world = watched("a")
    first = MetricsPage(take_snapshot(world.ledger, at=100.0))
    before = first.render(accept)[1]

    second = MetricsPage(take_snapshot(world.ledger, at=200.0), previous=first)
    second.prepare()
    after = second.render(accept)[1]
    assert second.bodies[negotiate(accept)] is first.bodies[negotiate(accept)]
    assert b"snapshot_timestamp_seconds 100" in before
    assert b"snapshot_timestamp_seconds 200" in after

    world.see(
        job_record("job", plan(2, TaskRef("set", "a"))),
        replace_struct(trial("u", "y", reward=0.0), task=TaskRef("set", "a")),
    )
    third = MetricsPage(take_snapshot(world.ledger), previous=second)
    third.prepare()
    # Also when a reader of an older page renders it late.
    assert first.render(accept)[1] == before
    page = Page(third.render("text/plain")[1].decode())
    assert page.value("harborlight_run_attempts", state="scored") == 2
    assert Page(before.decode()).value("harborlight_run_attempts", state="scored") == 1


def test_prepared_formats() -> None:
    """A page renders ahead what the one before was asked for."""
    first = MetricsPage(nothing())
    first.prepare()
    assert first.formats == {TEXT}
    first.render(OM)
    second = MetricsPage(replace(nothing(), version=-2), previous=first)
    second.prepare()
    assert second.formats == {TEXT, OPENMETRICS}


def test_ceiling(tmp_path: Path) -> None:
    """A finished run of 63 x 5 with all its faults stays below 1,000 series."""
    assert TerminalBenchDemo(tmp_path, say=lambda line: None).run(None)
    snapshot = snapshot_of(*tmp_path.iterdir(), reference=shipped(DEMO_REFERENCE))
    whole = Page(MetricsPage(snapshot).render("")[1].decode())
    assert_promises(whole)
    assert whole.value("harborlight_run_attempts_target") == 315
    # Two official trials have no valid verdict.
    assert whole.value("harborlight_run_attempts", state="scored") == 313
    assert 63 * 8 < len(whole.samples) < 1000
    without = Page(MetricsPage(snapshot, tasks=False).render("")[1].decode())
    assert {s.name for s in whole.samples} - {s.name for s in without.samples} == {
        "harborlight_task_attempts_target",
        "harborlight_task_attempts",
        "harborlight_task_attempts_passed",
        "harborlight_task_usual_duration_seconds",
        "harborlight_task_reference_attempts",
        "harborlight_task_reference_passed",
        "harborlight_task_success_difference",
    }
    kept = {s.series for s in whole.samples if not s.name.startswith("harborlight_task_")}
    assert {s.series for s in without.samples} == kept
    # The published figures: 136/315 on the 63 tasks, 138/330 on all 66.
    for scope, ratio, half in (("attempted", 0.431746, 0.032925), ("full", 0.418182, 0.032259)):
        reference = {"side": "reference", "scope": scope}
        assert whole.value(SUCCESS, **reference) == pytest.approx(ratio, abs=1e-6)
        lower, upper = (
            whole.value(f"{SUCCESS}_ci", **reference, interval="fixed_task", bound=bound)
            for bound in ("lower", "upper")
        )
        assert (upper - lower) / 2 == pytest.approx(half, abs=1e-6)
    assert whole.value("harborlight_run_matched_tasks", scope="attempted") == 63
    # Where every verdict is the official one there is no difference.
    assert whole.value("harborlight_run_success_difference", scope="complete") == 0


def test_only_time_passes() -> None:
    """Rates and estimated ends move with the clock, though nothing happened."""
    world = watched("a")
    pages: list[MetricsPage] = []
    for at in (200.0, 500.0):
        page = MetricsPage(take_snapshot(world.ledger, at), previous=pages[-1] if pages else None)
        pages.append(page)
    rates = [
        Page(page.render("")[1].decode()).value(
            "harborlight_run_scored_attempts_per_second", window="1h"
        )
        for page in pages
    ]
    # One attempt, whose trial began at 90.
    assert rates == pytest.approx([1 / 110, 1 / 410])


def test_pace() -> None:
    """The families of the moment, with their labels."""
    world = watched("a")
    statistics = take_snapshot(world.ledger, 200.0).statistics
    found = Pace(
        terminal={Window.RUN: 0.5},
        scored={Window.HOUR: 0.0, Window.RUN: 0.25},
        ends={(Method.OBSERVED_RATE, Quantile.POINT): 300.5},
        preferred=Method.OBSERVED_RATE,
    )
    snapshot = replace(
        take_snapshot(world.ledger, 200.0),
        statistics={label: replace(s, pace=found) for label, s in statistics.items()},
    )
    page = Page(MetricsPage(snapshot).render("")[1].decode())
    terminal = page.find("harborlight_run_terminal_trials_per_second")
    assert [(dict(s.labels)["window"], s.value) for s in terminal] == [("run", 0.5)]
    scored = page.find("harborlight_run_scored_attempts_per_second")
    assert [(dict(s.labels)["window"], s.value) for s in scored] == [("1h", 0), ("run", 0.25)]
    eta = {"method": "observed_rate", "estimate": "point"}
    assert page.value("harborlight_run_eta_timestamp_seconds", **eta) == 300.5
    assert page.value("harborlight_run_eta_preferred", method="observed_rate") == 1
    assert page.value("harborlight_run_eta_preferred", method="simulation") == 0


def pooled() -> Ledger:
    """A pool of two replicas: one that answers, one that was never asked."""
    pool = PoolDefinition("main", "The pool", jobs=(), runs=(), replicas=("r1", "r2"))
    ledger = Ledger(Store.throw_away(), Rules(pools=(pool,)))
    ledger.take(
        observed(
            sighting(
                pool="main",
                at=500.0,
                info=ReplicaInfo("0.5.23", "tiny", tp=8),
                requests=20,
                numbers={Number.RUNNING: 37.0, Number.QUEUED: 4.0, Number.KV_USED: 262300.0},
                latencies={
                    Latency.TIME_TO_FIRST_TOKEN: {
                        series(): histogram({0.1: 3, 2.0: 4, math.inf: 1}, 12.5)
                    }
                },
            )
        )
    )
    return ledger


def test_pools() -> None:
    """What is known of a replica, and no more."""
    text = knowledge_page(MetricsPage(take_snapshot(pooled())))
    shown = [line for line in text.splitlines() if line.startswith("harborlight_replica")]
    expected = """\
info{dp="",pool="main",pp="",replica="r1",served_model="tiny",tp="8",version="0.5.23"} 1
up{pool="main",replica="r1"} 1
state{pool="main",replica="r1",state="up"} 1
state{pool="main",replica="r1",state="frozen"} 0
state{pool="main",replica="r1",state="incomplete"} 0
state{pool="main",replica="r1",state="unreachable"} 0
state{pool="main",replica="r1",state="no_metrics"} 0
state{pool="main",replica="r1",state="unauthorized"} 0
last_complete_timestamp_seconds{pool="main",replica="r1"} 500
requests_known{pool="main",replica="r1"} 1
kv_tokens_known{pool="main",replica="r1"} 0
running_requests{pool="main",replica="r1",role="unified"} 37
queued_requests{pool="main",replica="r1",role="unified"} 4
kv_tokens_used{pool="main",replica="r1",role="unified"} 262300
requests_total{pool="main",replica="r1",role="unified"} 20
time_to_first_token_seconds_bucket{le="0.1",pool="main",replica="r1",role="unified"} 3
time_to_first_token_seconds_bucket{le="2.0",pool="main",replica="r1",role="unified"} 7
time_to_first_token_seconds_bucket{le="+Inf",pool="main",replica="r1",role="unified"} 8
time_to_first_token_seconds_count{pool="main",replica="r1",role="unified"} 8
time_to_first_token_seconds_sum{pool="main",replica="r1",role="unified"} 12.5
"""
    assert shown == [f"harborlight_replica_{line}" for line in expected.splitlines()]
    strict_samples(MetricsPage(take_snapshot(pooled())).render(OM)[1].decode())


def test_what_belongs_to_a_run() -> None:
    """Its jobs, one of which it shares, and the pools that they use: for joins."""
    definitions = (
        RunDefinition("alpha", jobs=("main", "again", "both")),
        RunDefinition("beta", jobs=("both",)),
    )
    pools = (
        PoolDefinition("p-again", "Of one job", jobs=("again",), runs=(), replicas=("r",)),
        PoolDefinition("p-both", "Of the shared job", jobs=("both",), runs=(), replicas=("r",)),
        PoolDefinition("p-beta", "Of a run", jobs=(), runs=("beta",), replicas=("r",)),
        PoolDefinition("p-none", "Of no job yet", jobs=("later",), runs=(), replicas=("r",)),
    )
    world = Watched(Rules(runs=definitions, pools=pools))
    for job in ("main", "again", "both", "alone"):
        world.see(job_record(job, plan(1)), trial("t", f"e-{job}", job=job, reward=1.0))
    page = Page(knowledge_page(MetricsPage(take_snapshot(world.ledger))))

    def pairs(name: str, label: str) -> set[tuple[str, str]]:
        found = page.find(f"harborlight_run_{name}_info")
        assert {sample.value for sample in found} == {1}
        listed = [(dict(s.labels)["run"], dict(s.labels)[label]) for s in found]
        assert len(listed) == len(set(listed))
        return set(listed)

    assert pairs("job", "harbor_job") == {
        ("alpha", "main"),
        ("alpha", "again"),
        ("alpha", "both"),
        ("beta", "both"),
        ("alone", "alone"),
    }
    assert pairs("pool", "pool") == {
        ("alpha", "p-again"),
        ("alpha", "p-both"),
        ("beta", "p-both"),
        ("alpha", "p-beta"),
        ("beta", "p-beta"),
    }


HOSTILE = (
    "",
    "a\nb",
    "a?b",
    'quote"quote',
    "back\\slash",
    "back\\nslash",
    "\u202egpj.exe",
    "?gpj.exe",
    "\x1b[2Jcleared",
    "# EOF",
    '"} 1\nharborlight_run_attempts{run="x"} 1',
    "{[red]}",
    "é",
    "e\u0301",
    "x" * 10_000,
    "x" * 9_999 + "y",
)


@pytest.mark.parametrize("accept", ["text/plain", OM])
def test_hostile_names(accept: str) -> None:
    """Task names of every kind parse back, stay different, and forge no series."""
    world = watched(*HOSTILE)
    text = knowledge_page(MetricsPage(take_snapshot(world.ledger)), accept)
    if accept == OM:
        found = [
            dict(sample.labels)["task"]
            for sample in strict_samples(text)
            if sample.name == "harborlight_task_attempts_target"
        ]
        assert len(found) == len(set(found))
    else:
        page = Page(text)
        assert_promises(page)
        found = page.label_values("harborlight_task_attempts_target", "task")
        assert page.value("harborlight_run_attempts_target") == 2 * len(HOSTILE)
    assert len(found) == len(HOSTILE)
    for label in found:
        assert len(label) <= MAX_LENGTH
        assert label.isprintable()
    # What is harmless is shown as it is.
    assert {'quote"quote', "back\\slash", "back\\nslash", "# EOF", "{[red]}", "é"} <= set(found)


def test_hostile_job_and_run() -> None:
    """Names of jobs, agents and models, too."""
    world = Watched()
    for number, name in enumerate(HOSTILE):
        world.see(
            job_record(f"id{number}", plan(1), name=name, harbor_version=name),
            trial("t", "x", job=f"id{number}", reward=1.0, agent_label=name, agent_version=name),
        )
    page = Page(knowledge_page(MetricsPage(take_snapshot(world.ledger))))
    assert_promises(page)
    assert len(page.label_values("harborlight_job_info", "harbor_job")) == len(HOSTILE)
    assert len(page.runs()) == len(HOSTILE)
    for sample in page.samples:
        assert all(value.isprintable() and len(value) <= MAX_LENGTH for _, value in sample.labels)


def test_names_that_are_no_text(copy_jobs: Callable[..., Path]) -> None:
    """A directory's name is bytes: one that is not UTF-8 is a job like another."""
    jobs = copy_jobs("steps-oracle")
    job = Path(shutil.move(jobs / "steps-oracle", jobs / "job\udcff"))
    text = knowledge_page(MetricsPage(snapshot_of(job)), OM)
    page = Page(knowledge_page(MetricsPage(snapshot_of(job))))
    (label,) = page.label_values("harborlight_job_info", "harbor_job")
    assert label.startswith("job") and label.isprintable()
    assert strict_samples(text)


any_text = st.text(st.characters(codec=None), max_size=300) | st.text("ab?~\n", max_size=300)


@given(any_text)
def test_safe_label(text: str) -> None:
    """Printable, bounded, encodable; unchanged where it was all that and is no place."""
    label = safe_label(text)
    assert label.isprintable() and len(label) <= MAX_LENGTH
    label.encode()
    harmless = text.isprintable() and len(text) <= MAX_LENGTH
    if not harmless:
        assert label != text
    elif not set(text) & set("/\\"):
        assert label == text
    assert safe_label(label) == label


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/joe/private/ds", "ds"),
        ("~/models/m1/", "m1"),
        ("../m1", "m1"),
        ("C:\\Users\\joe\\t", "t"),
        ("hosted_vllm//srv/models/m1", "m1"),
        ("https://user:key@10.1.2.3:8000/v1/m1", "m1"),
        ("https://user:key@10.1.2.3", "unnamed"),
        ("///", "unnamed"),
    ],
)
def test_of_a_place_the_last_part_is_shown(text: str, shown: str) -> None:
    """Agents, models and datasets can be named by a path or an address."""
    label, _, digest = safe_label(text).rpartition("~")
    assert (label, len(digest)) == (shown, 8)


@pytest.mark.parametrize("text", ["org/task", "z-ai/glm-5.1", "set/a.b", "back\\slash"])
def test_a_name_with_a_prefix_is_no_place(text: str) -> None:
    assert safe_label(text) == text


@given(any_text, any_text)
def test_safe_labels_differ(one: str, other: str) -> None:
    """Two texts that were changed stay two."""
    if one != other and safe_label(one) != one and safe_label(other) != other:
        assert safe_label(one) != safe_label(other)


@given(st.lists(st.text(max_size=150), min_size=1, max_size=8, unique=True))
def test_any_names(names: list[str]) -> None:
    """Whatever tasks are called, there is a series for each."""
    page = Page(knowledge_page(MetricsPage(take_snapshot(watched(*names).ledger))))
    assert len(page.find("harborlight_task_attempts_target")) == len(names)
    assert_promises(page)


def test_forged_hash() -> None:
    """A task that is called as another one is shown does not become that one."""
    names = ["a\nb", safe_label("a\nb")]
    page = Page(knowledge_page(MetricsPage(take_snapshot(watched(*names).ledger))))
    assert len(page.label_values("harborlight_task_attempts_target", "task")) == 2


def test_threads_render_once() -> None:
    """Readers at once get the very same page."""
    page = MetricsPage(take_snapshot(watched("a").ledger))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(page.render, ["text/plain"] * 16))
    assert len({id(body) for _, body, _ in answers}) == 1
