"""The list of metrics: its names, its labels, and that pages keep to it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harborlight.views.catalogue import CATALOGUE, GROUPS, Kind, Metric, markdown_table
from support.metrics import strict_samples
from support.page import Page

GOLDEN = sorted((Path(__file__).resolve().parents[1] / "golden").iterdir())
TEXT_PAGES = [file for file in GOLDEN if file.suffix == ".prom"]
OPENMETRICS_PAGES = [file for file in GOLDEN if file.suffix == ".om"]
SUFFIXES = ("_bucket", "_count", "_sum")


def series_labels(name: str) -> tuple[Metric, set[str]]:
    """The metric that a sample of this name belongs to, and the labels it must have."""
    by_name = {metric.full_name: metric for metric in CATALOGUE.values()}
    for suffix in ("", *SUFFIXES):
        metric = by_name.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if metric is not None and (metric.kind is Kind.HISTOGRAM) == bool(suffix):
            return metric, {*metric.labels} | ({"le"} if suffix == "_bucket" else set())
    raise AssertionError(f"{name} is not in the catalogue")


@pytest.mark.parametrize("metric", CATALOGUE.values(), ids=lambda metric: metric.name)
def test_names(metric: Metric) -> None:
    """Prometheus' own rules for names, and ours for labels."""
    assert re.fullmatch(r"harborlight_[a-z]+(_[a-z]+)*", metric.full_name)
    assert metric.full_name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.full_name.endswith("_info") == (metric.kind is Kind.INFO)
    assert not metric.full_name.endswith((*SUFFIXES, "_created"))
    assert metric.group in GROUPS
    assert metric.help.endswith(".") and "\n" not in metric.help
    assert len(set(metric.labels)) == len(metric.labels)
    # Prometheus sets the first two itself; `le` is the histogram's.
    assert not {"job", "instance", "le", "quantile", "trial", "path"} & set(metric.labels)
    if metric.group in ("run", "task"):
        assert metric.labels[0] == "run"
    if metric.group == "task":
        assert metric.labels[1] == "task"
    if metric.group == "job":
        assert metric.labels[0] == "harbor_job"


def test_no_family_clashes() -> None:
    """In OpenMetrics a counter or info is named without its suffix; no two become one."""
    families = Counter(
        re.sub(r"_total$|_info$", "", metric.full_name) for metric in CATALOGUE.values()
    )
    assert [name for name, count in families.items() if count > 1] == []


def test_table() -> None:
    """Every metric once, and nothing that would break a row."""
    rows = [line for line in markdown_table().splitlines() if line.startswith("| `")]
    assert len(rows) == len(CATALOGUE)
    assert all(row.count("|") == 5 for row in rows)


@pytest.mark.parametrize("file", TEXT_PAGES, ids=lambda file: file.name)
def test_pages_keep_to_it(file: Path) -> None:
    """Every sample belongs to a metric and has exactly its labels, help and type."""
    for family in text_string_to_metric_families(file.read_text("utf-8")):
        assert family.samples
        for sample in family.samples:
            metric, labels = series_labels(sample.name)
            assert set(sample.labels) == labels
            assert family.documentation == metric.help
            expected = Kind.GAUGE if metric.kind is Kind.INFO else metric.kind
            assert family.type == expected.value


@pytest.mark.parametrize("file", OPENMETRICS_PAGES, ids=lambda file: file.name)
def test_strict_parser(file: Path) -> None:
    """The strict parser takes the page and finds on it what the text page has."""
    found = {s.series: s.value for s in strict_samples(file.read_text("utf-8"))}
    text = Page(file.with_suffix(".prom").read_text("utf-8"))
    assert found == {s.series: s.value for s in text.samples}


def test_golden_pages_show_most_of_it() -> None:
    """What no recorded job brings about is known by name."""
    shown = {
        series_labels(sample.name)[0].name
        for file in TEXT_PAGES
        for family in text_string_to_metric_families(file.read_text("utf-8"))
        for sample in family.samples
    }
    of_the_moment = ("pace", "self")
    missing = {m.name for m in CATALOGUE.values() if m.group not in of_the_moment} - shown
    assert missing == set()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
@pytest.mark.parametrize("file", TEXT_PAGES, ids=lambda file: file.name)
def test_promtool(file: Path) -> None:
    """Prometheus' linter has nothing to say."""
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=file.read_bytes(),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
