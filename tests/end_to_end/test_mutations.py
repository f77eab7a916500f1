"""Damaged copies of real job directories: no crash, and no sibling lost."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from harborlight import cli
from support.page import Page, broken_promises

MUTATIONS = 2000
SEED = 20261201

JOBS = ("mixed-6x5", "retry-2", "faulty-oracle", "cancel-sigint.before-resume", "sep-regrade")


def _truncated(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _flipped(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _retyped(data: bytes, chance: random.Random) -> bytes:
    """One value somewhere in the document, of another type."""
    document = json.loads(data)
    places = list(_places(document))
    if not places:
        return b"null"
    container, key = chance.choice(places)
    container[key] = chance.choice(
        [None, True, -1, 1e308, "", "x" * 5000, [], {}, [[[]]], {"a": {"b": 1}}, "\u0000\n\u202e"]
    )
    return json.dumps(document).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield value, key
            yield from _places(inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield value, index
            yield from _places(inner)


KINDS: tuple[Callable[[bytes, random.Random], bytes], ...] = (_truncated, _flipped, _retyped)


def _metrics(job: Path) -> Page:
    """What ``harborlight metrics --jobs JOB`` prints, without another process for each."""
    raw, errors = BytesIO(), StringIO()
    with redirect_stdout(TextIOWrapper(raw, write_through=True)), redirect_stderr(errors):
        code = cli.main(["metrics", "--jobs", str(job)])
        text = raw.getvalue().decode()
    assert code == 0, errors.getvalue()
    return Page(text)


def _verdicts(page: Page) -> float:
    """Scored lineages, whichever run and place the damage made theirs."""
    return (
        page.sum("harborlight_run_attempts", state="scored")
        + page.sum("harborlight_run_attempts_surplus")
        + page.sum("harborlight_run_attempts_stale_content")
    )


@pytest.mark.slow
def test_two_thousand_damaged_jobs(
    harbor_jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One damaged file at a time: the promises hold and every other trial's verdict is shown."""
    monkeypatch.setattr(cli, "_ONE_LOOK_SETTLE_SECONDS", 0.0)
    chance = random.Random(SEED)
    jobs = [Path(shutil.copytree(harbor_jobs / name, tmp_path / name)) for name in JOBS]
    verdicts = {job: _verdicts(_metrics(job)) for job in jobs}
    assert list(verdicts.values()) == [29, 4, 3, 5, 6]
    for number in range(MUTATIONS):
        job = chance.choice(jobs)
        file = chance.choice(sorted(job.rglob("*.json")))
        mutate = chance.choice(KINDS)
        sound = file.read_bytes()
        file.write_bytes(mutate(sound, chance))
        try:
            page = _metrics(job)
            assert not broken_promises(page), f"mutation {number}: {broken_promises(page)}"
            own = file.parent.parent == job
            assert _verdicts(page) >= verdicts[job] - own, f"mutation {number} of {file.name}"
        finally:
            file.write_bytes(sound)
