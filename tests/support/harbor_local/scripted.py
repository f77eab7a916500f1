"""A Harbor agent that does what a script says, execution by execution.

The script maps a task's name (or ``default``) to a list; each execution of the
task, retries and resumes included, takes the next entry and the last one repeats.
An entry is a comma-separated list of steps:

``ok``          write the right answer
``wrong``       write a wrong one
``err:NAME``    raise an exception of that type
``hang``        never end
``wait:GATE``   go on once the gate is open (see ``open_gate``)
``ask:TOKENS``  have the SGLang server at ``$MODEL_SERVER`` generate that many, report its usage
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from pathlib import Path
from typing import Any, override

import requests
from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from support.harbor_local.gates import gate_path

INPUT_TOKENS, CACHE_TOKENS, OUTPUT_TOKENS, COST_USD = 1000, 400, 100, 0.25
"""What every execution reports to have used."""


class ScriptedAgent(BaseAgent):
    """``script`` and ``state`` are paths: the JSON script and a directory for its place in it."""

    def __init__(self, *args: Any, script: str, state: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._script: dict[str, list[str]] = json.loads(Path(script).read_text())
        self._state = Path(state)

    @staticmethod
    @override
    def name() -> str:
        return "scripted"

    @override
    def version(self) -> str:
        return "1.0"

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        """There is nothing to install."""

    def _next_entry(self, task: str) -> str:
        """This execution's entry; a locked counter file a task keeps the place."""
        entries = self._script.get(task) or self._script["default"]
        with (self._state / f"{task}.calls").open("a+") as calls:
            fcntl.flock(calls, fcntl.LOCK_EX)
            calls.seek(0)
            place = len(calls.read())
            calls.write("x")
        return entries[min(place, len(entries) - 1)]

    @override
    async def run(
        self, instruction: str, environment: BaseEnvironment, context: AgentContext
    ) -> None:
        context.n_input_tokens = INPUT_TOKENS
        context.n_cache_tokens = CACHE_TOKENS
        context.n_output_tokens = OUTPUT_TOKENS
        context.cost_usd = COST_USD
        for step in self._next_entry(environment.environment_name).split(","):
            action, _, argument = step.partition(":")
            match action:
                case "ok":
                    await environment.exec("echo done > /app/answer.txt")
                case "wrong":
                    await environment.exec("echo nope > /app/answer.txt")
                case "err":
                    raise type(argument, (Exception,), {})("as the script says")
                case "hang":
                    await asyncio.Event().wait()
                case "wait":
                    # A file is the only sign that the test gives.
                    while not gate_path(self._state, argument).exists():  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
                case "ask":
                    usage = await asyncio.to_thread(_generate, int(argument))
                    context.n_input_tokens = usage["prompt_tokens"]
                    context.n_cache_tokens = usage["cached_tokens"]
                    context.n_output_tokens = usage["completion_tokens"]
                case _:
                    raise ValueError(f"unknown step {step!r} in the script")


def _generate(tokens: int) -> dict[str, int]:
    """Ask the model server for exactly that many tokens; what it says it used."""
    sampling = {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0}
    answer = requests.post(
        f"{os.environ['MODEL_SERVER']}/generate",
        json={"text": "a task", "sampling_params": sampling},
        timeout=600,
    )
    answer.raise_for_status()
    usage: dict[str, int] = answer.json()["meta_info"]
    return usage
