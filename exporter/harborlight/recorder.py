"""A Harbor job plugin that writes down what Harbor forgets: ``harbor run --plugin harborlight``.

Harbor deletes a failed trial's directory as soon as it retries it, and says nowhere which phase a
trial is in. The recorder appends one JSON line for each event to a file in the job's directory.
It imports nothing that Harbor has not loaded already, waits for nothing, and lets no exception
out: whatever goes wrong ends the recording with one warning, never the job.

Of results it writes the fields that Harborlight keeps, by Harbor's names: no message, prompt,
path, address or credential.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import stat
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, override

from harbor.models.job.plugin import BaseJobPlugin

from harborlight.process_identity import own_identity

if TYPE_CHECKING:
    from harbor.job import Job
    from harbor.models.job.result import JobResult
    from harbor.trial.hooks import TrialHookEvent

log = logging.getLogger(__name__)

FILE_NAME: Final = "harborlight-events.jsonl"
FORMAT: Final = 1
"""Of the lines; a reader leaves out those of a format that it does not know."""

MAX_LINE_BYTES: Final = 64 * 1024

_USAGE: Final = ("n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd")
_TIMINGS: Final = ("environment_setup", "agent_setup", "agent_execution", "verifier")
_STEP_TIMINGS: Final = ("agent_execution", "verifier")
_OVERRIDES: Final = ("should_retry", "should_grade", "has_valid_reward")


class Recorder(BaseJobPlugin):
    """Records one job's events. A resumed job's are appended, if it has the plugin again."""

    def __init__(self) -> None:
        super().__init__()
        self._file: int | None = None

    @override
    async def on_job_start(self, job: Job) -> None:
        """Open the file and ask for every event of every trial."""
        try:
            self._file, torn = _open(Path(job.job_dir) / FILE_NAME)
            started = {"job": str(job.id), "resuming": bool(job.is_resuming), **own_identity()}
            self._write("job-start", time.time(), started, begin=b"\n" if torn else b"")
            for ask in (
                job.on_trial_started,
                job.on_environment_started,
                job.on_agent_started,
                job.on_agent_ended,
                job.on_verification_started,
                job.on_trial_cancelled,
                job.on_trial_ended,
            ):
                ask(self._on_event)
        except Exception as error:  # noqa: BLE001 - no job may fail because it is watched
            self._give_up(error)

    @override
    async def on_job_end(self, job_result: JobResult) -> None:
        """Say that the job came to its end."""
        self._write("job-end", time.time(), {})
        self._close()

    async def _on_event(self, event: TrialHookEvent) -> None:
        if self._file is None:
            return
        try:
            kind = event.event.value
            about: dict[str, Any] = {"trial": event.trial_name, "id": str(event.trial_id)}
            if kind == "start":
                about["digest"] = event.lock.task.digest
                about["config"] = _kept_config(event)
            if kind == "end":
                about["digest"] = event.lock.task.digest
                about["result"] = _kept_result(event)
            at = event.timestamp.timestamp()
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(error)
        else:
            self._write(kind, at, about)

    def _write(self, kind: str, at: float, about: Mapping[str, Any], begin: bytes = b"") -> None:
        """One line, in one piece."""
        if self._file is None:
            return
        try:
            data = begin + _line({"v": FORMAT, "at": at, "event": kind, **about})
            while data:  # a disk that is about to be full takes a part, and then says why no more
                data = data[os.write(self._file, data) :]
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        # By its kind: its text may show a path.
        reason = type(error).__name__
        if isinstance(error, OSError) and error.errno is not None:
            reason = os.strerror(error.errno)
        log.warning("harborlight: the job's events are no longer recorded: %s", reason)
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            # A file server tells here what became of earlier writes; the job shall not hear of it.
            with contextlib.suppress(OSError):
                os.close(file)


def _line(content: Mapping[str, Any]) -> bytes:
    data = json.dumps(content, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    if len(data) > MAX_LINE_BYTES:
        raise OSError(errno.EMSGSIZE, "")
    return data


def _open(path: Path) -> tuple[int, bool]:
    """The file, for appending, and whether its last line has no end."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(path, flags, 0o644)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "")
    return file, status.st_size > 0 and os.pread(file, 1, status.st_size - 1) != b"\n"


def _kept_result(event: TrialHookEvent) -> dict[str, Any]:
    """What is kept of a trial's result, in the shape of Harbor's own ``result.json``."""
    result, task = event.result, event.lock.task
    info = result.agent_info
    return {
        "id": str(result.id),
        "task_name": task.name,
        "trial_name": event.trial_name,
        "source": task.source,
        "config": _kept_config(event),
        "agent_info": {
            "name": info.name,
            "version": info.version,
            "model_info": {"name": info.model_info.name} if info.model_info else None,
        },
        "agent_result": _kept_usage(result.agent_result),
        "verifier_result": _kept_rewards(result.verifier_result),
        "verifier_environment_mode": _value(result.verifier_environment_mode),
        "exception_info": _kept_exception(result.exception_info),
        "started_at": _moment(result.started_at),
        "finished_at": _moment(result.finished_at),
        **{name: _kept_timing(getattr(result, name)) for name in _TIMINGS},
        "step_results": [_kept_step(step) for step in result.step_results or ()] or None,
    }


def _kept_config(event: TrialHookEvent) -> dict[str, Any]:
    """What is kept of a trial's configuration, in the shape of Harbor's own ``config.json``."""
    config, task = event.config, event.lock.task
    source = config.source_trial
    return {
        "task": {"name": task.name, "source": task.source},
        "job_id": _text(config.job_id),
        "trial_name": event.trial_name,
        "agent": {
            "name": config.agent.name,
            "import_path": config.agent.import_path,
            "model_name": config.agent.model_name,
        },
        "verifier": {"disable": config.verifier.disable},
        "install_only": config.install_only,
        "source_trial": {"trial_id": _text(source.trial_id)} if source else None,
    }


def _kept_step(step: Any) -> dict[str, Any]:
    return {
        "agent_result": _kept_usage(step.agent_result),
        "exception_info": _kept_exception(step.exception_info),
        **{name: _kept_timing(getattr(step, name)) for name in _STEP_TIMINGS},
    }


def _kept_usage(usage: Any) -> dict[str, Any] | None:
    return {name: getattr(usage, name) for name in _USAGE} if usage is not None else None


def _kept_rewards(verdict: Any) -> dict[str, Any] | None:
    if verdict is None:
        return None
    rewards = verdict.rewards
    return {"rewards": {str(k): float(v) for k, v in rewards.items()} if rewards else None}


def _kept_exception(exception: Any) -> dict[str, Any] | None:
    if exception is None:
        return None
    given = exception.policy_override
    return {
        "exception_type": exception.exception_type,
        "occurred_at": _moment(exception.occurred_at),
        "policy_override": {n: getattr(given, n) for n in _OVERRIDES} if given else None,
    }


def _kept_timing(timing: Any) -> dict[str, Any] | None:
    if timing is None:
        return None
    return {"started_at": _moment(timing.started_at), "finished_at": _moment(timing.finished_at)}


def _moment(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None


def _value(member: Any) -> Any:
    return getattr(member, "value", member)


def _text(identity: Any) -> str | None:
    return str(identity) if identity is not None else None
