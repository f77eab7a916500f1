"""What a comparison is not: each check by itself."""

from __future__ import annotations

from typing import Any

import pytest

from harborlight.ledger.ownership import Setup
from harborlight.ledger.standing import RunStanding
from harborlight.reference import Reference, ReferenceTask
from harborlight.statistics.comparability import Check, Finding, check
from support.runs import SETUP, run, task

HOLDS = Finding(holds=True)


def reference(**more: Any) -> Reference:
    tasks = {name: ReferenceTask(name, 1, 5) for name in ("a", "b")}
    given: dict[str, Any] = {"tasks": tasks, "agent": "Agent", "model": "org/Model"}
    return Reference("r", "R", **(given | more))


def findings(ours: RunStanding, theirs: Reference | None = None) -> dict[Check, Finding]:
    matched = {
        t.label: theirs.tasks[t.label] for t in ours.tasks if theirs and t.label in theirs.tasks
    }
    return check(ours, theirs, matched)


def setups(*found: Setup) -> frozenset[Setup]:
    return frozenset(found)


def test_all_hold() -> None:
    ours = run(task("a", scored=5), task("b", scored=1))
    assert findings(ours, reference()) == dict.fromkeys(Check, HOLDS)


def test_without_a_reference() -> None:
    """Only what is checked within the run."""
    assert set(findings(run(task("a", scored=1)))) == {
        Check.ONE_CONTENT,
        Check.ONE_MODEL,
        Check.ONE_AGENT_VERSION,
        Check.DEFAULT_TIMEOUTS,
        Check.DEFAULT_RESOURCES,
    }


def test_nothing_is_known_yet() -> None:
    """Before the first verdict nothing tells whose it is."""
    assert set(findings(run(task("a")))) == {Check.DEFAULT_TIMEOUTS, Check.DEFAULT_RESOURCES}
    assert findings(run(jobs=())) == {}


def test_several_contents() -> None:
    mixed = setups(SETUP, SETUP._replace(digest="sha256:2"))
    ours = run(task("a", scored=2, verdicts_of=mixed), task("b", scored=1))
    found = findings(ours)
    assert found[Check.ONE_CONTENT] == (False, "verdicts on several versions of a task: a")
    assert found[Check.ONE_MODEL] == HOLDS
    # Two tasks differ of course, and a version that is not known speaks against nothing.
    other = setups(SETUP._replace(digest="sha256:2"), SETUP._replace(digest=None))
    ours = run(task("a", scored=1), task("b", scored=2, verdicts_of=other))
    assert findings(ours)[Check.ONE_CONTENT] == HOLDS


def test_several_models_and_agents() -> None:
    other = setups(SETUP._replace(model="other", agent_version="2.0"))
    found = findings(run(task("a", scored=1), task("b", scored=1, verdicts_of=other)))
    assert found[Check.ONE_MODEL] == (False, "2 models: model, other")
    reason = "2 agents or versions: agent 1.0, agent 2.0"
    assert found[Check.ONE_AGENT_VERSION] == (False, reason)


def test_overrides() -> None:
    jobs = {"changed_timeouts": ("one", "two"), "changed_resources": ("two",)}
    found = findings(run(task("a"), **jobs))
    why = "overridden by the job's configuration"
    assert found[Check.DEFAULT_TIMEOUTS] == (False, f"{why}: one, two")
    assert found[Check.DEFAULT_RESOURCES] == (False, f"{why}: two")


def test_other_tasks() -> None:
    found = findings(run(task("a"), *(task(f"mine-{n}") for n in range(5))), reference())
    theirs, ours = "1 of the reference's tasks are not in the run", "5 of the run's tasks are not"
    assert found[Check.SAME_TASKS] == (False, f"{theirs}; {ours} in the reference")
    # Of another benchmark altogether that is all there is to say.
    found = findings(run(task("x")), reference())
    assert not found[Check.SAME_TASKS].holds
    assert Check.SAME_AGENT not in found and Check.ENOUGH_ATTEMPTS not in found


@pytest.mark.parametrize(
    ("agent", "model", "expected"),
    [
        ("claude-code", "prov/glm_5.3", {"agent": True, "model": True}),
        ("terminus", "GLM-5.3-FP8", {"agent": False, "model": False}),
        ("", "", {}),
    ],
)
def test_names(agent: str, model: str, expected: dict[str, bool]) -> None:
    theirs = reference(agent="Claude Code", model="GLM-5.3")
    found = findings(run(task("a"), agent=agent, model=model), theirs)
    by_kind = {"agent": Check.SAME_AGENT, "model": Check.SAME_MODEL}
    assert {k: found[c].holds for k, c in by_kind.items() if c in found} == expected
    if expected.get("model") is False:
        assert found[Check.SAME_MODEL].reason == "GLM-5.3-FP8 here, GLM-5.3 there"


def test_names_in_other_scripts() -> None:
    """Letters of any script tell names apart; case does not, which "ß" has as "SS"."""
    theirs = reference(agent="代理", model="模型-Groß")
    same = run(task("a"), agent="代 理", model="lab/模型_GROSS")
    other = run(task("a"), agent="智能体", model="lab/典范_GROSS")
    for ours, expected in ((same, True), (other, False)):
        found = findings(ours, theirs)
        assert found[Check.SAME_AGENT].holds is expected
        assert found[Check.SAME_MODEL].holds is expected


def test_errors_of_the_reference() -> None:
    tasks = {"a": ReferenceTask("a", 1, 5, errors=2), "b": ReferenceTask("b", 1, 5, errors=1)}
    found = findings(run(task("a")), reference(tasks=tasks))
    assert found[Check.SAME_ERROR_RULE] == (
        False,
        "the reference counts 2 attempts without a verdict as failed, here faults stay open",
    )


def test_fewer_attempts() -> None:
    found = findings(run(task("a", target=3), task("b", target=6)), reference())
    assert found[Check.ENOUGH_ATTEMPTS] == (False, "fewer than there: a")
    unknown = task("a", target=3, target_known=False)
    assert findings(run(unknown), reference())[Check.ENOUGH_ATTEMPTS] == HOLDS


def test_no_address_in_a_reason() -> None:
    """Names come from files: a path or an address is cut down as in a label."""
    theirs = reference(model="http://user:secret@10.0.0.5/v1/models/glm")
    reason = findings(run(task("a")), theirs)[Check.SAME_MODEL].reason
    assert "secret" not in reason and "10.0.0.5" not in reason and "glm~" in reason
