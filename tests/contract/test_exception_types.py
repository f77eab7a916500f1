"""The table of causes has every exception type that Harbor and litellm name."""

from __future__ import annotations

import importlib

import pytest
from harbor.models.trial.error_policy import ERROR_POLICIES

from harborlight.ledger.faults import CAUSES, Cause

PROXY_ONLY = {
    "MockException",
    "ModifyResponseException",
    "SensitiveDataRouteException",
    "VectorStoreSearchError",
}
"""Of litellm's proxy and tests: no request for a completion raises these."""


def test_harbors_types() -> None:
    assert set(ERROR_POLICIES) <= set(CAUSES)


def test_litellms_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come from the model's API, apart from what the agent sent too much of, or badly."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    exceptions = importlib.import_module("litellm.exceptions")
    named = {
        name
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert len(named) > 20
    assert named - PROXY_ONLY <= set(CAUSES)
    assert {name for name in named - PROXY_ONLY if CAUSES[name] is not Cause.SERVING} == {
        "ContentPolicyViolationError",
        "ContextWindowExceededError",
    }
