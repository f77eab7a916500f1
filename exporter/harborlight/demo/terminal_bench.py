"""The demo scenario: an official Terminal-Bench 4.0 submission replayed with faults of our own.

63 tasks x 5 official rewards and durations, 16 at a time. Two official trials end in
UnknownApiError, which Harbor holds no verdict; they stay open. Added: container and model API
faults that are retried, verifier time-outs that a regrade job closes at the end with the official
reward, and one Ctrl-C about 40 % in, followed by a resume. Token counts are made up. In the end
every official verdict is scored, except those two.

With a serving pool its load is the run's, and one of its replicas freezes around the model API
faults, which then are those of its clients.

A healthy run is the same without all that goes wrong: every trial ends with its official reward
after its official duration.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import queue
import random
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harbor.models.trial.error_policy import policy_for

from harborlight.demo import DEMO_REFERENCE, END_WITH_PARENT
from harborlight.demo.replay import REPLAY_MARK, JobReplay, RegradeReplay, ReplayError
from harborlight.demo.script import Event, Execution, JobOptions, TrialScript, Usage
from harborlight.demo.serving import FREEZES, REPLICAS, ServingPool
from harborlight.demo.sglang_server import KV_CAPACITY
from harborlight.sources.reference_files import SHIPPED

GPU_TASKS = frozenset({"fp8-rmsnorm-gemm", "jax-speedrun-gpu", "math-eval-grader"})
JOB_NAME = "tb4-glm-5.3-replay"
CONCURRENCY = 16
MAX_RETRIES = 2
DEFAULT_SPEED = 225.0
DEFAULT_SEED = 9
CANCEL_AT = 0.4
FREEZE_AT, THAW_AT = 0.62, 0.72
"""Shares of ended trials between which a replica is frozen: the API faults end in between."""
PAUSE_SECONDS = 3600.0
OPTIONS = JobOptions(min_wait_seconds=120.0, wait_multiplier=2.0, max_wait_seconds=600.0)

VERIFIER_TIMEOUT_SECONDS = 900.0
ENVIRONMENT_TIMEOUT_SECONDS = 600.0
BUILD_FAULTS = 6
START_FAULTS = 5
API_FAULTS = 10
VERIFIER_FAULTS = 6


@dataclass(frozen=True, slots=True)
class OfficialTrial:
    """One row of the reference. ``seconds``: of the whole trial."""

    task: str
    reward: float
    seconds: float
    exception_type: str | None


@dataclass(frozen=True, slots=True)
class Demo:
    """The main job's scripts, and the official executions of those that a regrade has to close."""

    scripts: tuple[TrialScript, ...]
    regrades: dict[TrialScript, Execution]


def official_trials(*, gpu: bool = False) -> list[OfficialTrial]:
    """The reference in file order: 315 trials of 63 tasks, or all 330 of 66 with gpu."""
    data = SHIPPED / f"{DEMO_REFERENCE}.csv"
    with data.open(encoding="utf-8") as file:
        return [
            OfficialTrial(
                task=row["task"],
                reward=float(row["reward"]),
                seconds=float(row["duration_seconds"]),
                exception_type=row["exception_type"] or None,
            )
            for row in csv.DictReader(file)
            if gpu or row["task"] not in GPU_TASKS
        ]


def demo(seed: int = DEFAULT_SEED, *, n_tasks: int | None = None, healthy: bool = False) -> Demo:
    """The scenario's scripts; n_tasks: only the first so many tasks, for a shorter run.

    healthy: without any exception, those of the official trials left out, too.
    """
    chance = random.Random(f"{seed}:demo")
    by_task: dict[str, list[Execution]] = {}
    for trial in official_trials():
        by_task.setdefault(trial.task, []).append(_execution(trial, chance))
    tasks = list(by_task)[:n_tasks]
    for task in tasks:
        chance.shuffle(by_task[task])
    order = [(number, task) for number in range(5) for task in tasks]
    runs: dict[tuple[int, str], list[Execution]] = {
        (number, task): [by_task[task][number]] for number, task in order
    }
    if healthy:
        return Demo(
            scripts=tuple(
                TrialScript(task, (replace(by_task[task][number], exception_type=None),))
                for number, task in order
            ),
            regrades={},
        )
    # One fault a trial at most, and none on trials with an official exception.
    clean = [place for place in order if runs[place][0].exception_type is None]
    part = len(clean) / 310
    regraded: dict[tuple[int, str], Execution] = {}
    for place in _near(clean, 0.05, round(BUILD_FAULTS * part), chance):
        runs[place].insert(0, _before(runs[place][-1], "SandboxBuildFailedError", chance))
    for place in _near(clean, 0.3, round(START_FAULTS * part), chance):
        for _ in range(chance.choice((1, 1, 2))):
            runs[place].insert(0, _before(runs[place][-1], "EnvironmentStartTimeoutError", chance))
    for place in _near(clean, 0.65, round(API_FAULTS * part), chance):
        for _ in range(chance.choice((1, 1, 2))):
            runs[place].insert(0, _before(runs[place][-1], "ApiRateLimitError", chance))
    for place in _spread(clean, max(1, round(VERIFIER_FAULTS * part)), chance):
        official = runs[place][-1]
        regraded[place] = official
        runs[place][-1] = replace(
            official,
            reward=None,
            exception_type="VerifierTimeoutError",
            verifier=VERIFIER_TIMEOUT_SECONDS,
        )
    scripts = {
        place: TrialScript(place[1], tuple(executions)) for place, executions in runs.items()
    }
    return Demo(
        scripts=tuple(scripts[place] for place in order),
        regrades={scripts[place]: official for place, official in regraded.items()},
    )


def _execution(trial: OfficialTrial, chance: random.Random) -> Execution:
    """An official trial; how its seconds are divided over the phases is made up."""
    environment = min(chance.uniform(20.0, 120.0), trial.seconds * 0.1)
    agent_setup = min(chance.uniform(15.0, 60.0), trial.seconds * 0.1)
    verifier = min(chance.uniform(20.0, 240.0), trial.seconds * 0.2)
    agent = trial.seconds - environment - agent_setup - verifier
    input_tokens = round(agent * chance.uniform(600.0, 1400.0))
    return Execution(
        reward=trial.reward,
        exception_type=trial.exception_type,
        environment=environment,
        agent_setup=agent_setup,
        agent=agent,
        verifier=verifier,
        usage=Usage(
            input_tokens=input_tokens,
            cache_tokens=round(input_tokens * chance.uniform(0.7, 0.95)),
            output_tokens=round(agent * chance.uniform(15.0, 45.0)),
        ),
    )


def _before(official: Execution, exception_type: str, chance: random.Random) -> Execution:
    """A failed execution that precedes the official one."""
    if exception_type == "EnvironmentStartTimeoutError":
        return Execution(exception_type=exception_type, environment=ENVIRONMENT_TIMEOUT_SECONDS)
    if exception_type == "SandboxBuildFailedError":
        return Execution(exception_type=exception_type, environment=chance.uniform(60.0, 240.0))
    part = chance.uniform(0.1, 0.5)
    usage = official.usage
    return replace(
        official,
        reward=0.0,
        exception_type=exception_type,
        agent=official.agent * part,
        usage=None
        if usage is None
        else Usage(
            input_tokens=round(usage.input_tokens * part),
            cache_tokens=round(usage.cache_tokens * part),
            output_tokens=round(usage.output_tokens * part),
        ),
    )


def _near(
    places: list[tuple[int, str]], at: float, count: int, chance: random.Random
) -> list[tuple[int, str]]:
    """Takes `count` neighbours out of `places`: faults of one cause come in bursts."""
    window = places[int(len(places) * at) :][: max(2 * count, 1)]
    return _take(places, window, count, chance)


def _spread(
    places: list[tuple[int, str]], count: int, chance: random.Random
) -> list[tuple[int, str]]:
    return _take(places, places, count, chance)


def _take(
    places: list[tuple[int, str]],
    window: Sequence[tuple[int, str]],
    count: int,
    chance: random.Random,
) -> list[tuple[int, str]]:
    taken = chance.sample(window, min(count, len(window)))
    for place in taken:
        places.remove(place)
    return taken


class TerminalBenchDemo:
    """Runs the scenario under jobs_dir: job `name`, then its regrade `name`-regrade.

    say gets one line per notable event. n_tasks shortens the run. serving: the pool that serves
    its model. healthy: nothing goes wrong, and nobody presses Ctrl-C. Raises ReplayError if one of
    the two directories exists.
    """

    def __init__(
        self,
        jobs_dir: Path,
        *,
        name: str = JOB_NAME,
        seed: int = DEFAULT_SEED,
        n_tasks: int | None = None,
        say: Callable[[str], None] = print,
        serving: ServingPool | None = None,
        healthy: bool = False,
        concurrency: int = CONCURRENCY,
    ) -> None:
        self._serving = serving
        self._healthy = healthy
        self._froze = self._thawed = healthy
        self._jobs_dir = jobs_dir
        self._seed = seed
        self._say = say
        self._stopped = False
        self._demo = demo(seed, n_tasks=n_tasks, healthy=healthy)
        self._ended: set[str] = set()
        self._tenths = 0
        self.regrade_name = f"{name}-regrade"
        if (jobs_dir / self.regrade_name).exists():
            raise ReplayError(f"{jobs_dir / self.regrade_name} exists already")
        self.job = JobReplay(
            jobs_dir,
            name,
            self._demo.scripts,
            concurrency=concurrency,
            max_retries=MAX_RETRIES,
            seed=seed,
            options=OPTIONS,
            listener=self._hear,
        )
        self.regrade: RegradeReplay | None = None

    def stop(self) -> None:
        """Ends the scenario as Ctrl-C ends Harbor; may be called from a signal handler."""
        self._stopped = True
        self.job.stop()
        if self.regrade is not None:
            self.regrade.stop()

    def run(self, speed: float | None = DEFAULT_SPEED) -> bool:
        """Runs all of it; None: instantly. True when it came to its end, False when stopped."""
        if self._healthy:
            ended = self.job.run(speed) == "finished" and not self._stopped
            return ended or self._give_up()
        goal = round(self.job.n_total * CANCEL_AT)
        self.job.run(speed, until=lambda: self.job.n_completed >= goal)
        if self._stopped or self.job.state != "running":
            return self._give_up()
        self._say(f"{self.job.name}: Ctrl-C with {self.job.n_running} trials running")
        self.job.cancel()
        if self._stopped:
            return False
        self.job.resume(pause=PAUSE_SECONDS)
        # A stop between the two would be forgotten by resume().
        if self._stopped:
            self.job.stop()
        if self.job.run(speed) != "finished" or self._stopped:
            return self._give_up()
        return self._regrade(speed)

    def _give_up(self) -> bool:
        if self.job.state == "running":
            self.job.cancel()
        return False

    def _regrade(self, speed: float | None) -> bool:
        verdicts = {
            name: self._demo.regrades[script]
            for name, script in self.job.scripts_by_trial.items()
            if script in self._demo.regrades and (self.job.job_dir / name / "result.json").exists()
        }
        self.regrade = RegradeReplay(
            self._jobs_dir,
            self.regrade_name,
            self.job.job_dir,
            {name: replace(official, exception_type=None) for name, official in verdicts.items()},
            concurrency=2,
            seed=self._seed,
            options=OPTIONS,
            listener=self._hear,
        )
        if self._stopped:
            return False
        self._say(f"{self.regrade_name}: regrading {len(verdicts)} verifier faults")
        self.regrade.start_after(PAUSE_SECONDS)
        return self.regrade.run(speed) == "finished"

    def _hear(self, event: Event) -> None:
        if self._serving is not None and event.job == self.job.name:
            self._load(self._serving, event)
        if event.kind == "trial_ended":
            self._progress(event)
        elif event.kind not in ("trial_started", "retry"):
            detail = f" ({event.detail})" if event.detail else ""
            self._say(f"{event.job}: {event.kind}{detail}")

    def _load(self, serving: ServingPool, event: Event) -> None:
        """Tell the serving pool how many trials it serves, and make it freeze when it is time."""
        if event.kind == "trial_ended":
            serving.trial_ended()
        serving.serve(self.job.n_running)
        share = self.job.n_completed / self.job.n_total
        if not self._froze and share >= FREEZE_AT:
            self._froze = True
            serving.freeze()
            self._say(f"replica {FREEZES}: its scheduler hangs, though it answers")
        if not self._thawed and share >= THAW_AT:
            self._thawed = True
            serving.thaw()
            self._say(f"replica {FREEZES}: its scheduler works again")

    def _progress(self, event: Event) -> None:
        if event.detail:
            types = event.detail.split(", ")
            invalid = not all(policy_for(name).has_valid_reward for name in types)
            what = "fault" if invalid else "exception with a valid verdict"
            self._say(f"{event.job}: {what} {event.detail} in {event.trial}")
        if event.job != self.job.name:
            return
        tenths = self.job.n_completed * 10 // self.job.n_total
        if tenths > self._tenths:
            self._tenths = tenths
            self._say(f"{event.job}: {self.job.n_completed} of {self.job.n_total} trials ended")


def _remove_old(paths: Iterable[Path]) -> None:
    """Deletes earlier replays; refuses what does not say of itself that it is one."""
    for path in paths:
        if not path.exists():
            continue
        try:
            is_replay = REPLAY_MARK in (path / "config.json").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            is_replay = False
        if not is_replay:
            raise ReplayError(f"{path} is not a replay and is left alone")
        shutil.rmtree(path)


def _stop_without(parent: int, stop: Callable[[], None]) -> None:
    """Stop when the parent is gone, however that ended."""
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    stop()


def _listeners(text: str) -> list[socket.socket]:
    """Sockets that listen already, by their file descriptors."""
    found = [socket.socket(fileno=int(number)) for number in text.split(",")]
    if len(found) != len(REPLICAS):
        raise ValueError(text)
    return found


def _kv_capacity(concurrency: int) -> int:
    """Of a replica that serves so many trials as well as the scenario's own number of them."""
    return round(KV_CAPACITY * max(1.0, concurrency / CONCURRENCY))


_PARENT_SECONDS = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: 0 at the end or after SIGTERM or SIGINT, 2 if it cannot write."""
    parser = argparse.ArgumentParser(
        prog="python -m harborlight.demo.replay",
        description="Replays an official Terminal-Bench 4.0 submission as Harbor job directories. "
        "Nothing is run: rewards and durations are the recorded ones, faults are added unless "
        "it is to be healthy.",
    )
    parser.add_argument("--jobs", type=Path, required=True, help="directory to write jobs into")
    parser.add_argument(
        "--speed",
        type=float,
        default=DEFAULT_SPEED,
        help="recorded seconds per real second; 0: at once (default %(default)g: ten minutes)",
    )
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--name", default=JOB_NAME, help="job name (default %(default)s)")
    parser.add_argument("--tasks", type=int, default=None, help="only the first so many tasks")
    parser.add_argument(
        "--concurrency",
        type=int,
        default=CONCURRENCY,
        help="trials at a time (default %(default)s)",
    )
    parser.add_argument(
        "--healthy",
        action="store_true",
        help="nothing goes wrong: no faults, no retries, no Ctrl-C, no regrade, and no freeze",
    )
    parser.add_argument(
        "--replace", action="store_true", help="delete an earlier replay of the same name first"
    )
    parser.add_argument(
        "--serve-on",
        type=_listeners,
        metavar="FD,FD",
        help="also simulate the serving pool, on these sockets, until the signal to stop",
    )
    options = parser.parse_args(argv)
    if options.speed < 0:
        parser.error("--speed must not be negative")
    if options.concurrency < 1:
        parser.error("--concurrency must be at least 1")

    def say(line: str) -> None:
        print(line, flush=True)

    stopped: queue.SimpleQueue[None] = queue.SimpleQueue()  # may be put to in a signal handler
    with contextlib.ExitStack() as stack:
        serving = None
        if options.serve_on:
            serving = stack.enter_context(
                ServingPool(
                    options.serve_on,
                    model=OPTIONS.model or "",
                    seed=options.seed,
                    kv_capacity=_kv_capacity(options.concurrency),
                )
            )
        try:
            if options.replace:
                names = (options.name, f"{options.name}-regrade")
                _remove_old(options.jobs / name for name in names)
            scenario = TerminalBenchDemo(
                options.jobs,
                name=options.name,
                seed=options.seed,
                n_tasks=options.tasks,
                say=say,
                serving=serving,
                healthy=options.healthy,
                concurrency=options.concurrency,
            )
        except ReplayError as error:
            print(f"harborlight demo: {error}", file=sys.stderr)
            return 2

        def stop() -> None:
            scenario.stop()
            stopped.put(None)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop())
        if END_WITH_PARENT in os.environ:
            parent = int(os.environ[END_WITH_PARENT])
            threading.Thread(target=_stop_without, args=(parent, stop), daemon=True).start()
        faults = "" if options.healthy else " with added faults"
        say(f"This is a replay of recorded results{faults}: no agent and no model runs.")
        try:
            ended = scenario.run(options.speed or None)
        except OSError as error:
            print(f"harborlight demo: {error}", file=sys.stderr)
            return 2
        say("The replay is over." if ended else "The replay was stopped.")
        if serving is not None:
            stopped.get()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
