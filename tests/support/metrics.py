"""Metrics pages made in this process, without a server or a data directory."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prometheus_client.openmetrics import parser

from harborlight.ledger import Ledger, Store
from harborlight.reference import Reference
from harborlight.snapshot import Snapshot, of_ledger, with_statistics
from harborlight.sources.job_directory import JobDirectorySource
from harborlight.statistics.runs import Statistics
from harborlight.views.metrics import Page, negotiate
from support.page import Sample, labelset

_LATER = 120.0
"""Seconds after which nothing waits for a writer or for late evidence any more."""


def snapshot_of(
    *places: Path,
    source: JobDirectorySource | None = None,
    ledger: Ledger | None = None,
    reference: Reference | None = None,
) -> Snapshot:
    """What is known of the jobs in these places once everything about them has settled."""
    source = source or JobDirectorySource(places)
    ledger = ledger or Ledger(Store.throw_away())
    now = time.time()
    for moment in (now, now + _LATER):
        ledger.take(source.look(moment))
    return take_snapshot(ledger, now + _LATER, reference)


def take_snapshot(
    ledger: Ledger, at: float = 1_800_000_000.0, reference: Reference | None = None
) -> Snapshot:
    """The ledger's snapshot with statistics, without collectors."""
    return with_statistics(of_ledger(ledger, at), Statistics(default=reference))


def knowledge_page(page: Page, accept: str = "text/plain") -> str:
    """The part of the page with runs, tasks and jobs, as a page of its own."""
    whole = page.render(accept)[1].decode()
    body = page.bodies[negotiate(accept)].decode()
    assert whole.startswith(body)
    return body + ("# EOF\n" if whole.endswith("# EOF\n") else "")


def strict_samples(text: str) -> list[Sample]:
    """An OpenMetrics page as the strict parser reads it; a ValueError where it is not one."""
    families: Iterable[Any] = parser.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return [
        Sample(sample.name, labelset(sample.labels), sample.value, family.type)
        for family in families
        for sample in family.samples
    ]
