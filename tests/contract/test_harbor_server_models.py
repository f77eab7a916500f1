"""Our reading of a Harbor server's answers fits the models that the server makes them of."""

from __future__ import annotations

from typing import get_args

import pytest
from harbor.constants import HARBOR_API_VERSION
from harbor.server import MAX_PAGE_SIZE
from harbor.server.models import (
    TERMINAL,
    AgentIdentity,
    JobDetail,
    JobResponse,
    JobsResponse,
    JobSummary,
    ListRolloutsRequest,
    ModelIdentity,
    PageRequest,
    RolloutCounts,
    RolloutDetail,
    RolloutPhase,
    RolloutResponse,
    RolloutsResponse,
    RolloutSummary,
    RunState,
    TaskIdentity,
    Usage,
)
from msgspec.structs import fields
from pydantic import BaseModel

from harborlight.sources.harbor_server import answers, client


def test_the_version_and_the_pages() -> None:
    """A new version of the API has to be read anew before it is asked for."""
    assert client.API_VERSION == HARBOR_API_VERSION
    assert client.PAGE_SIZE == MAX_PAGE_SIZE
    longest = PageRequest.model_fields["page_token"].metadata
    assert answers.MAX_TOKEN_CHARACTERS in {getattr(rule, "max_length", None) for rule in longest}
    assert "-updated_at" in ListRolloutsRequest.model_json_schema()["properties"]["sort"]["enum"]
    assert "states" in ListRolloutsRequest.model_fields


@pytest.mark.parametrize(
    ("ours", "harbors"),
    [
        (answers._Rollout, RolloutSummary),
        (answers._Task, TaskIdentity),
        (answers._Named, AgentIdentity),
        (answers._Named, ModelIdentity),
        (answers._Usage, Usage),
        (answers._Job, JobSummary),
        (answers._Counts, RolloutCounts),
        (answers._Page, RolloutsResponse),
        (answers._Page, JobsResponse),
        (answers._OneRollout, RolloutResponse),
        (answers._OneJob, JobResponse),
        (answers._Result, RolloutDetail),
        (answers._Config, JobDetail),
    ],
)
def test_fields_exist(ours: type, harbors: type[BaseModel]) -> None:
    assert {field.name for field in fields(ours)} <= set(harbors.model_fields)


def test_states_and_phases() -> None:
    assert set(get_args(answers.State.__value__)) == set(get_args(RunState))
    assert set(answers.TERMINAL) == set(TERMINAL)
    # After the verifier nothing but cleaning up is left: the phase before goes on.
    assert set(get_args(RolloutPhase)) - set(answers._PHASES) == {"collection", "cleanup"}
