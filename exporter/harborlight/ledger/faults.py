"""Faults: the phase they happened in, their cause, and from where to replay (pure).

Everything is decided by exception *type*: the wording of a message never is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from harborlight.records import TrialRecord


class Cause(StrEnum):
    """What broke. ``SERVING`` is the model's API; ``INTERRUPTED``: the Harbor process died."""

    CONTAINER = "container"
    SERVING = "serving"
    AGENT = "agent"
    VERIFIER = "verifier"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    UNREADABLE = "unreadable"


class Phase(StrEnum):
    """Where in a trial's life it broke."""

    ENVIRONMENT = "environment"
    AGENT = "agent"
    VERIFIER = "verifier"
    UNKNOWN = "unknown"


class Boundary(StrEnum):
    """The narrowest durable point to restart from."""

    REGRADE = "regrade"
    RESUME = "resume"
    RERUN = "rerun"


def phase_named(name: str) -> Phase:
    """The phase of this name, UNKNOWN where there is none."""
    return Phase(name) if name in set(Phase) else Phase.UNKNOWN


_TYPES: Final[Mapping[Cause, tuple[str, ...]]] = {
    Cause.CONTAINER: (
        "AgentSetupTimeoutError",
        "EnvironmentStartTimeoutError",
        "GKEExecStreamClosedError",
        "GKEPodNotFoundError",
        "HealthcheckError",
        "MemoryLimitExceededError",
        "RuntimeRequestError",
        "SSHAccessError",
        "SandboxBuildFailedError",
        "SandboxLikelyOutOfMemoryError",
        "ServiceOperationsUnsupportedError",
        "VercelScopeError",
    ),
    Cause.SERVING: (
        "APIConnectionError",
        "APIError",
        "APIResponseValidationError",
        "AgentAuthenticationError",
        "ApiConnectionClosedError",
        "ApiConnectionError",
        "ApiError",
        "ApiInternalServerError",
        "ApiOverloadedError",
        "ApiProviderResourceNotFoundError",
        "ApiRateLimitError",
        "ApiResponseStalledError",
        "ApiUsageLimitError",
        "AuthenticationError",
        "BadGatewayError",
        "BadRequestError",
        "BlockedPiiEntityError",
        "BudgetExceededError",
        "CallerCredentialAuthenticationError",
        "CallerCredentialRateLimitError",
        "EndpointNotSupportedByModelError",
        "GuardrailRaisedException",
        "ImageFetchError",
        "InternalServerError",
        "InvalidRequestError",
        "JSONSchemaValidationError",
        "LiteLLMUnknownProvider",
        "MalformedRequestFieldError",
        "MidStreamFallbackError",
        "ModelNotFoundError",
        "ModelNotMappedError",
        "NetworkConnectionError",
        "NotFoundError",
        "OpenAIError",
        "PaymentRequiredError",
        "PermissionDeniedError",
        "RateLimitError",
        "RejectedRequestError",
        "ServiceUnavailableError",
        "Timeout",
        "UnknownApiError",
        "UnprocessableEntityError",
        "UnsupportedEndpointError",
        "UnsupportedModelParametersError",
        "UnsupportedParamsError",
    ),
    Cause.AGENT: (
        "AgentSafetyRefusalError",
        "AgentTimeoutError",
        "ContentPolicyViolationError",
        "ContextLengthExceededError",
        "ContextWindowExceededError",
        "DspyImportError",
        "MissingExtraError",
        "NonZeroAgentExitCodeError",
        "OutputLengthExceededError",
        "OutputTokenExceededError",
    ),
    Cause.VERIFIER: (
        "AddTestsDirError",
        "DownloadVerifierDirError",
        "RegradeError",
        "RewardFileEmptyError",
        "RewardFileNotFoundError",
        "VerifierOutputParseError",
        "VerifierTimeoutError",
    ),
    Cause.CANCELLED: ("CancelledError",),
}

CAUSES: Final[Mapping[str, Cause]] = MappingProxyType(
    {name: cause for cause, names in _TYPES.items() for name in names}
)
"""Cause by exception type, for the types that Harbor and litellm name."""

_PHASE_CAUSE: Final = {
    Phase.ENVIRONMENT: Cause.CONTAINER,
    Phase.AGENT: Cause.AGENT,
    Phase.VERIFIER: Cause.VERIFIER,
    Phase.UNKNOWN: Cause.AGENT,
}


def cause_of(record: TrialRecord, extension: Mapping[str, Cause] = MappingProxyType({})) -> Cause:
    """The cause of a fault that Harbor recorded.

    The first recorded exception whose type is in the table decides; a type that nobody
    knows is put down to the phase that it happened in. ``extension`` adds one's own types.
    """
    if record.unreadable:
        return Cause.UNREADABLE
    if record.open or record.interrupted:
        return Cause.INTERRUPTED
    for name in record.exceptions:
        found = extension.get(name) or CAUSES.get(name)
        if found is not None:
            return found
    return _PHASE_CAUSE[_phase_raised(record)]


def phase_of(record: TrialRecord, cause: Cause) -> Phase:
    """The phase that a fault of this cause happened in.

    Harbor goes on to verify after many agent errors, so the last phase that ran is the place of
    the fault only where the cause does not name its own.
    """
    match cause:
        case Cause.UNREADABLE | Cause.INTERRUPTED:
            return phase_named(record.phase)
        case Cause.VERIFIER:
            return Phase.VERIFIER
        case Cause.SERVING | Cause.AGENT if record.agent_seconds is not None:
            return Phase.AGENT
        case _:
            return _phase_raised(record)


def _phase_raised(record: TrialRecord) -> Phase:
    """Where the exception occurred; where its time does not tell, the last phase that ran."""
    if record.raised_in:
        return phase_named(record.raised_in)
    if record.verifier_seconds is not None:
        return Phase.VERIFIER
    if record.agent_seconds is not None or record.agent_setup_seconds is not None:
        return Phase.AGENT
    if record.environment_seconds is not None:
        return Phase.ENVIRONMENT
    return Phase.UNKNOWN


def boundary_of(record: TrialRecord, phase: Phase, *, present: bool, resumable: bool) -> Boundary:
    """Where to restart from.

    A regrade needs the agent's outputs (the trial's directory, ``present``) and a verifier that
    runs apart from the agent's environment; a resume needs a job whose directory and lock can
    still be read, and a trial without a result or with an exception of its own to pick it by.
    """
    if phase is Phase.VERIFIER and record.separate_verifier and present:
        return Boundary.REGRADE
    picked = not present or record.open or record.unreadable or record.own_exception != ""
    return Boundary.RESUME if resumable and picked else Boundary.RERUN
