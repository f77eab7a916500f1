"""What a replayed job is to do, and what it tells of itself while it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Literal

FailingPhase = Literal["environment", "agent_setup", "agent", "verifier"]
Action = Literal["mkdir", "open", "truncate", "write", "append", "copy", "delete"]
EventKind = Literal[
    "started",
    "trial_started",
    "trial_ended",
    "retry",
    "cancelled",
    "killed",
    "resumed",
    "finished",
]

_FAILS_IN: Mapping[str, FailingPhase] = {
    "SandboxBuildFailedError": "environment",
    "EnvironmentStartTimeoutError": "environment",
    "HealthcheckError": "environment",
    "AgentSetupTimeoutError": "agent_setup",
    "VerifierTimeoutError": "verifier",
    "RewardFileNotFoundError": "verifier",
    "RewardFileEmptyError": "verifier",
    "VerifierOutputParseError": "verifier",
    "AddTestsDirError": "verifier",
    "DownloadVerifierDirError": "verifier",
}
_MADE_UP_MESSAGE = "replayed; this text is not from a real run"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one agent run; as in Harbor, input includes the cached ones."""

    input_tokens: int
    cache_tokens: int
    output_tokens: int
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a trial: how it ends and how many seconds each phase takes.

    reward None: no verdict. exception_type is recorded in the phase `fails_in` (default: by type;
    an unknown type fails in the agent). A reward with an agent exception is the verifier's after
    it, and is dropped where Harbor's policy does not grade that type.
    """

    reward: float | None = None
    exception_type: str | None = None
    environment: float = 30.0
    agent_setup: float = 20.0
    agent: float = 600.0
    verifier: float = 60.0
    usage: Usage | None = None
    fails_in: FailingPhase | None = None
    message: str = _MADE_UP_MESSAGE

    @property
    def failing_phase(self) -> FailingPhase | None:
        """Where the exception is raised; None if there is none."""
        if self.exception_type is None:
            return None
        return self.fails_in or _FAILS_IN.get(self.exception_type, "agent")

    @property
    def seconds(self) -> float:
        """Script seconds the execution takes, up to where it fails."""
        phases = (
            ("environment", self.environment),
            ("agent_setup", self.agent_setup),
            ("agent", self.agent),
            ("verifier", self.verifier),
        )
        total = 0.0
        for name, seconds in phases:
            total += seconds
            if name == self.failing_phase and name in ("environment", "agent_setup"):
                break
        return total


@dataclass(frozen=True, slots=True)
class TrialScript:
    """One attempt at `task`: its executions in order; a retry beyond the last repeats the last.

    Another `version` gives the task another digest.
    """

    task: str
    executions: tuple[Execution, ...]
    version: str = "1"

    def __post_init__(self) -> None:
        if not self.executions:
            raise ValueError(f"trial script of {self.task!r} has no executions")

    def execution(self, number: int) -> Execution:
        return self.executions[min(number, len(self.executions) - 1)]


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What the job's configuration says, and how it is written.

    zone None: naive times are in this process' zone. outputs False leaves out trial.log and what
    Harbor keeps in agent/, verifier/ and artifacts/, these included: half the time to write.
    """

    dataset: str = "terminal-bench-4.0"
    agent: str = "claude-code"
    agent_version: str = "2.1.0"
    model: str | None = "glm-5.3-fp8"
    verifier_mode: Literal["separate", "shared"] = "separate"
    verify: bool = True
    min_wait_seconds: float = 1.0
    wait_multiplier: float = 1.0
    max_wait_seconds: float = 60.0
    zone: tzinfo | None = None
    outputs: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """One change in the file system, already made. trial None: a file of the job."""

    at: datetime
    action: Action
    path: Path
    trial: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth a line of text. detail: exception types or a short note, no messages."""

    kind: EventKind
    job: str
    trial: str | None = None
    detail: str = ""
