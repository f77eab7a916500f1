"""Alertmanager's configuration: who is told, how often, and what keeps what quiet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from alerts.parameters import Notifying
from alerts.rule import Severity

PAGER, CHAT, LOG, NOBODY = "on-call", "team", "log", "nobody"

_REPLICA: Final = "HarborlightReplica(Down|Frozen)"
_LOAD: Final = "Harborlight(KvCacheSaturated|QueueLong|Requests(Aborted|Retracted))"
_BY_THE_CLOCK: Final = (
    "Harborlight(JobNeverStarted|JobUnknownUnchanged|TrialOverdue|RunStalled|EtaSlipping)"
)
_STANDSTILL: Final = "Harborlight(RunStalled|TrialOverdue|EtaSlipping)"

_TITLE: Final = (
    "{{ .Status | toUpper }} {{ .CommonAnnotations.summary }}"
    "{{ with .CommonLabels.run }} ({{ . }}){{ end }}"
)
_TEXT: Final = (
    "{{ range .Alerts }}{{ .Annotations.description }}\n"
    "<{{ .Annotations.dashboard_url }}|Dashboard> · <{{ .Annotations.runbook_url }}|Runbook>\n"
    "{{ end }}"
)


def configuration(waits: Notifying) -> dict[str, Any]:
    """The whole file. Addresses, channels and the secrets' files are examples."""
    return {
        "route": {
            "receiver": NOBODY,
            "group_by": ["alertname", "run", "pool"],
            "group_wait": str(waits.group_wait),
            "group_interval": str(waits.group_interval),
            "repeat_interval": str(waits.repeat_critical),
            "routes": [
                {"matchers": ['alertname=~"Harborlight.+"'], "routes": _routes(waits)},
            ],
        },
        "inhibit_rules": _inhibitions(),
        "receivers": _receivers(),
    }


def _routes(waits: Notifying) -> list[dict[str, Any]]:
    def to(receiver: str, repeat: object, *matchers: str) -> dict[str, Any]:
        return {"receiver": receiver, "matchers": list(matchers), "repeat_interval": str(repeat)}

    return [
        to(NOBODY, waits.repeat_info, _matches("severity", Severity.NONE)),
        # By run, before the severity alone decides: nobody gets up for a run called test-….
        to(
            CHAT,
            waits.repeat_warning,
            _matches("severity", Severity.CRITICAL),
            'run=~"test-.+"',
        ),
        to(PAGER, waits.repeat_critical, _matches("severity", Severity.CRITICAL)),
        to(CHAT, waits.repeat_warning, _matches("severity", Severity.WARNING)),
        to(LOG, waits.repeat_info, _matches("severity", Severity.INFO)),
    ]


def _matches(label: str, value: str) -> str:
    return f'{label}="{value}"'


def _inhibitions() -> list[dict[str, Any]]:
    return [
        # The replica is the reason; what else is odd about its pool follows from it.
        _inhibit(
            _REPLICA,
            "Harborlight(ReplicaNoTokens|ReplicaIncomplete|ReplicaUnauthorized)",
            "pool",
            "replica",
        ),
        _inhibit(
            "HarborlightReplica(Down|Frozen|NoTokens)",
            "HarborlightTrialsWithoutRequests",
            "pool",
        ),
        _inhibit(_REPLICA, _LOAD, "pool"),
        # And for a while after it: counts of the last half hour still hold what happened then.
        _inhibit("HarborlightServingImpaired", _LOAD, "pool"),
        _inhibit(
            "HarborlightServingImpaired",
            "Harborlight(ServingFaultBurst|AgentFaultBurst|OpenFaults|RunStalled|TrialOverdue)",
            "run",
        ),
        _inhibit(
            "Harborlight(Container|Serving|Verifier|Agent)FaultBurst",
            "HarborlightOpenFaults",
            "run",
        ),
        # A job that is not there leaves a run that does nothing.
        _inhibit(
            "HarborlightJobInterrupted",
            "Harborlight(RunStalled|OpenFaults|TrialOverdue|EtaSlipping)",
            "run",
        ),
        _inhibit("HarborlightJobUnknownUnchanged", _STANDSTILL, "run"),
        _inhibit("HarborlightJobNeverStarted", _STANDSTILL, "run"),
        _inhibit("HarborlightRunStalled", "Harborlight(TrialOverdue|EtaSlipping)", "run"),
        # Of a page that is the past nobody can tell how long something has been so.
        _inhibit("HarborlightSnapshotStale", _BY_THE_CLOCK),
    ]


def _inhibit(source: str, target: str, *equal: str) -> dict[str, Any]:
    """While an alert of ``source`` fires, those of ``target`` with equal labels are silent."""
    return {
        "source_matchers": [f'alertname=~"{source}"'],
        "target_matchers": [f'alertname=~"{target}"'],
        **({"equal": list(equal)} if equal else {}),
    }


def _receivers() -> Sequence[dict[str, Any]]:
    """Secrets are read from files beside the configuration, which holds none."""
    return [
        {"name": NOBODY},
        {
            "name": PAGER,
            "pagerduty_configs": [
                {
                    "routing_key_file": "secrets/pagerduty-routing-key",
                    "severity": "critical",
                    "description": _TITLE,
                    "links": [
                        {"href": f"{{{{ .CommonAnnotations.{name}_url }}}}", "text": name}
                        for name in ("runbook", "dashboard")
                    ],
                }
            ],
            "email_configs": [
                {
                    "to": "on-call@example.com",
                    "from": "alertmanager@example.com",
                    "smarthost": "smtp.example.com:587",
                    "auth_username": "alertmanager@example.com",
                    "auth_password_file": "secrets/smtp-password",
                    "send_resolved": True,
                }
            ],
        },
        {
            "name": CHAT,
            "slack_configs": [
                {
                    "api_url_file": "secrets/slack-webhook-url",
                    "channel": "#evaluations",
                    "title": _TITLE,
                    "text": _TEXT,
                    "send_resolved": True,
                }
            ],
        },
        {
            "name": LOG,
            "webhook_configs": [
                {
                    "url": "https://automation.example.com/alerts",
                    "send_resolved": True,
                    "http_config": {"authorization": {"credentials_file": "secrets/webhook-token"}},
                }
            ],
        },
    ]
