"""Alerts on the exporter: without it nobody sees anything."""

from __future__ import annotations

from alerts.parameters import Parameters
from alerts.rule import EXPORTER, Alert, Group, Severity, seconds
from dashboards.promql import EVERYTHING as EVERY
from harborlight.views import catalogue as c


def group(p: Parameters) -> Group:
    up = f'up{{job="{p.scrape_job}"}}'
    snapshot = EVERY.series(c.SNAPSHOT_TIMESTAMP)
    return Group(
        "harborlight-exporter",
        (
            Alert(
                "HarborlightExporterAbsent",
                Severity.CRITICAL,
                (),
                f"absent({up})",
                "Prometheus has no Harborlight exporter among its targets.",
                f"No target has the job {p.scrape_job}, so no run, no replica and no fault is "
                "watched. Look at Prometheus' targets and its configuration.",
                EXPORTER,
            ),
            Alert(
                "HarborlightExporterDown",
                Severity.CRITICAL,
                ("instance",),
                f"max by (instance) ({up}) == 0",
                "A Harborlight exporter does not answer.",
                "Prometheus gets no page from the exporter {{ $labels.instance }}. The runs go on, "
                "but nobody watches them, and other alerts of it end without having been solved. "
                "Its ledger is kept; see whether its process lives and what its log says.",
                EXPORTER,
            ),
            Alert(
                "HarborlightSnapshotStale",
                Severity.CRITICAL,
                ("instance",),
                f"time() - max by (instance) ({snapshot}) > {seconds(p.snapshot_age)}",
                "A Harborlight exporter serves a page that is no longer refreshed.",
                "The page of {{ $labels.instance }} is {{ $value | humanizeDuration }} old: what "
                "the dashboards show is the past. A full disk, a locked ledger or a hanging file "
                "system keeps it from looking again; its log says which.",
                EXPORTER,
            ),
            Alert(
                "HarborlightCollectorFailing",
                Severity.WARNING,
                ("instance", "collector"),
                f"min by (instance, collector) ({EVERY.series(c.COLLECTOR_SUCCESS)}) == 0",
                "A collector of a Harborlight exporter keeps failing.",
                "The collector {{ $labels.collector }} of {{ $labels.instance }} fails; what it "
                "watches stays as it was last seen. The exporter's log says why.",
                EXPORTER,
            ),
            Alert(
                "HarborlightConfigReloadFailed",
                Severity.WARNING,
                ("instance",),
                f"min by (instance) ({EVERY.series(c.CONFIG_RELOAD_SUCCESS)}) == 0",
                "A Harborlight exporter could not take over its new configuration.",
                "{{ $labels.instance }} goes on with the configuration from before, and would not "
                "start with the new one. Its log names the key and what was expected.",
                EXPORTER,
            ),
        ),
    )
