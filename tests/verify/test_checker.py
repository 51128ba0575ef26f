"""The judge is judged: crafted histories, good ones and each way in which one can be bad."""

from __future__ import annotations

import pytest

from outlast.verify.checks.checker import check
from tests.verify.bad_histories import BAD
from tests.verify.histories import (
    History,
    crashed_once,
    dead,
    never_ran,
    parent_and_children,
    redriven,
    succeeded,
)

GOOD = {
    "nothing happened": History(),
    "a success at once": succeeded(),
    "a success after a crash": crashed_once(),
    "a success after a release, which gave the attempt back": (
        History().job(fence=2, result={"fence": 2}).record("a", "released").began("a", 1, 2)
    ),
    "a retry": (
        History()
        .job(fence=2, attempt=2, failures=1, result={"fence": 2})
        .record("a", "failed", "succeeded")
        .began("a", 1, 2)
    ),
    "dead when its budget is spent": dead("failed", "timed-out", max_attempts=2),
    "dead at once, for good": dead("permanent"),
    "dead after too many crashes": dead("crashed", "crashed", failures=0, crashes=2, max_crashes=2),
    "cancelled before it ever ran": (
        never_ran(state="cancelled", due_in=60.0).event("a", "cancel", state="cancelled")
    ),
    "dropped by a full queue": never_ran(state="cancelled").event("a", "drop", queue="q"),
    "cancelled, redriven, and done": (
        succeeded().event("a", "cancel", state="cancelled").event("a", "redrive")
    ),
    "cancelled by its own handler": (
        History().job(state="cancelled", result=None).record("a", "cancelled").began("a", 1)
    ),
    "cancelled while it ran, and its owner died": (
        History()
        .job(state="cancelled", result=None, crashes=1, cancelling=True)
        .record("a", "crashed")
        .event("a", "cancel")
        .began("a", 1)
    ),
    "asked to stop, and done before it heard": (
        succeeded().job(cancelling=True).event("a", "cancel")
    ),
    "expired": never_ran(state="cancelled", error={"type": "Expired"}).says("never", "a", 1),
    "run once, and never again": (
        History()
        .job(state="cancelled", result=None, failures=1)
        .record("a", "failed")
        .event("a", "cancel")
        .says("never", "a", 2)
        .began("a", 1)
    ),
    "a success at the last of its attempts": (
        History()
        .job(fence=2, attempt=2, failures=1, max_attempts=2, result={"fence": 2})
        .record("a", "failed", "succeeded")
        .began("a", 1, 2)
    ),
    "every budget full again after a redrive": (
        History()
        .job(fence=3, attempt=2, crashes=1, max_crashes=1, result={"fence": 3})
        .record("a", "crashed", "crashed", "succeeded", attempts=[1, 1, 2])
        .event("a", "redrive")
        .began("a", 1, 2, 3)
    ),
    "each claim given to one owner": (crashed_once().says("took", "a", 1).says("took", "a", 2)),
    "redriven": redriven(),
    "follow-up jobs of the accepted attempt": parent_and_children(),
    "follow-up jobs that were asked for by an attempt that crashed": (
        crashed_once().says("ended", "a", 1, 2).says("ended", "a", 2, 0)
    ),
    "a job and the caller's row": succeeded().says("beside", "q").beside("q"),
    "neither the job nor the caller's row": History().says("beside", "q"),
    "all that belong together": succeeded().job("b").began("b", 1).says("together", "q", 0, 2),
    "none of what belongs together": History().says("together", "q", 0, 25),
    "rolled back, and not there": History().says("refused", "x"),
    "an event of the claim that held": succeeded().event("a", "log", 1, fence=1),
    "an event of a claim that crashed later": crashed_once().event("a", "log", 1, fence=1),
    "one who says several things": (
        succeeded().event("a", "log", 1, fence=1).event("a", "log", 1, fence=1, done=2)
    ),
    "paused, resumed and paused again": (
        History()
        .event("", "pause", queue="q")
        .event("", "resume", queue="q")
        .event("", "pause", queue="q")
        .event("", "pause", queue="other")
    ),
    "who was told that it is accepted, and it is": (
        crashed_once().says("told", "a", 2, ["succeeded", True])
    ),
    "who was told that it is too late, and it was": (
        crashed_once().says("took", "a", 2).says("told", "a", 1, ["succeeded", False])
    ),
    "who was told that it owns nothing any more": (
        crashed_once().says("took", "a", 2).says("kept", "a", 1, False)
    ),
    "who renewed before anybody took it": (
        crashed_once().says("kept", "a", 1, True).says("took", "a", 2)
    ),
    "a step that was done, lost with its claim, done again and kept": (
        crashed_once()
        .step("a", "s", 2, 2)
        .says("did", "a", 1, "s")
        .says("stepped", "a", 1, ["s", False])
        .says("did", "a", 2, "s")
        .says("stepped", "a", 2, ["s", True])
    ),
    "own writes of the accepted attempt alone": (
        crashed_once()
        .says("wrote", "a", 1, ["a/1", True])
        .says("wrote", "a", 2, ["a/2", True])
        .beside("a/2")
    ),
    "own writes that came too late": succeeded().says("wrote", "a", 1, ["a/1/late", False]),
    "a job that is gone, whose end nobody can know": History().says(
        "told", "x", 1, ["failed", True]
    ),
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_a_good_history_is_left_alone(history: History) -> None:
    assert check(history.evidence) == []


@pytest.mark.parametrize(("kind", "history"), BAD.values(), ids=BAD)
def test_a_bad_history_is_caught(kind: str, history: History) -> None:
    """R205, R206: each invariant, violated in each way."""
    found = check(history.evidence)
    assert kind in {f"{violation.invariant} {violation.orphan}" for violation in found}, found


@pytest.mark.parametrize(("kind", "history"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_told_where_it_is_wrong(kind: str, history: History) -> None:
    """A bad history is told of once or twice, not in a flood that hides the cause."""
    found = check(history.evidence)
    assert len(found) <= 4, found
    assert all(violation.message and violation.job for violation in found)


def test_every_invariant_has_a_bad_history() -> None:
    assert {kind.split()[0] for kind, _ in BAD.values()} == {"I1", "I2", "I3", "I4", "I5"}


def test_what_is_still_under_way_is_no_violation_before_the_end() -> None:
    history = History().job(state="running", result=None, lease_left=5.0).began("a", 1)
    assert check(history.evidence, is_settled=False) == []
    assert [v.invariant for v in check(history.evidence)] == ["I1"]


def test_a_violation_says_where_it_happened() -> None:
    [violation] = check(succeeded().job(queue="p7", lease_left=1.0).evidence)
    assert violation.queue == "p7"
    assert str(violation) == "I2 invisible: a: is succeeded under a lease"
