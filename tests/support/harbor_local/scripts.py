"""Scripts for the scripted agent that several tests play."""

from __future__ import annotations

RETRIES = {
    "flaky-api": ["err:ApiRateLimitError", "err:ApiRateLimitError", "ok"],
    "hard-api": ["err:ApiInternalServerError"],
    "auth-error": ["err:AuthenticationError"],
    "ctx-error": ["ok,err:ContextWindowExceededError"],
    "plain-value-error": ["err:ValueError", "ok"],
    "steady": ["ok"],
}
"""With two retries 3 + 3 + 1 + 1 + 2 + 1 = 11 executions. Harbor retries neither the refused key
nor the full context, grades the full context and, before it retries it, the ValueError; so there
are 6 faults, one discarded verdict and 4 that stand."""

RETRY = {"max_retries": 2, "min_wait_sec": 0.1, "wait_multiplier": 1.0}
"""What the job's configuration says of it."""
