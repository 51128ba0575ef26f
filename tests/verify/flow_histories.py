"""Histories of jobs that wait for each other, good ones and each way in which one can be bad."""

from __future__ import annotations

from typing import Any

from tests.verify.histories import History

CANCELLED = {"type": "Cancelled", "message": "verify"}


def fan_in(**facts: Any) -> History:
    """x after a and b, which ended before it began; it read what both came to."""
    history = History().done("a").done("b").began("x", 1).says("read", "x", 1, [["a", 1], ["b", 1]])
    return history.says("ended", "x", 1, 0).job("x", **facts).after("x", "a", "b")


def dead_child() -> History:
    """x needs a, which is dead; y needs x; z waits for a to end, however."""
    history = History().lost("a").doomed("x", "a").after("x", "a").doomed("y", "x").after("y", "x")
    return history.done("z", needs="finished").after("z", "a")


def crawler() -> History:
    """a added c, and x, which came after a, waited for both."""
    history = History().job("a").began("a", 1).says("ended", "a", 1, 1)
    history.done("c", args={"parent": "a", "claim": 1, "joined": True})
    return history.done("x").after("x", "a", "c").asked("x", after=["a"])


def broken_team(failed: int = 1, **facts: Any) -> History:
    """a failed, so b was cancelled."""
    reason = "job a is dead"
    team = {"part_of": "f", "fail_after": 1, "reason": reason, "cancelled": True, "settled": True}
    history = History().flow().flow("t", failed=failed, **team | facts)
    history.lost("a", flow="f", team="t")
    told = {"type": "Cancelled", "message": reason}
    return history.cancelled("b", flow="f", team="t", error=told)


def cancelled_flow(**facts: Any) -> History:
    """a ran, b never did; both were in it when the cancel had returned."""
    history = History().flow(**{"cancelled": True, "settled": True, "reason": "verify"} | facts)
    history.done("a", flow="f").cancelled("b", flow="f", error=CANCELLED).after("b", "a")
    return history.says("stopped", "f", 0, {"a": 1, "b": 0})


GOOD = {
    "a fan-in": fan_in().asked("x", after=["a", "b"]),
    "a dead child, all the way down": dead_child(),
    "two after one, of which one died by itself": (
        History().done("a").lost("x").after("x", "a").asked("x", "dies", after=["a"])
    ),
    "a milestone that did not wait for all": (
        History().done("a").done("m", quorum=1, needs="finished").done("b").after("m", "a", "b")
        .says("read", "m", 1, [["a", 1], None])
    ),
    "a crawler": crawler(),
    "one that came after a crawler that had ended": (
        crawler().done("y").after("y", "a").asked("y", after=["a"], shape="late")
    ),
    "children that a cancelled flow dropped": (
        cancelled_flow().says("ended", "a", 1, 2)
    ),
    "a follower that read results of jobs that ended before a redrive": (
        dead_child()
        .job("a", fence=2, result={"fence": 2}).record("a", "permanent").event("a", "redrive")
        .began("a", 2).done("x").event("x", "redrive").done("y").event("y", "redrive")
    ),
    "a hook": History().lost("a").hook("h", "a", "dead").after("h", "a").job(
        "h", needs="finished", args={"hook_of": "tag-a", "on": "dead"}
    ).asked("a", "dies", hooks=["dead", "succeeded"]),
    "a broken team": broken_team(),
    "a team with one failure of two": (
        History().flow().flow("t", part_of="f", fail_after=2, failed=1)
        .lost("a", flow="f", team="t").done("b", flow="f", team="t")
    ),
    "a cancelled flow": cancelled_flow(),
    "a job that was cancelled, and who needed it": (
        History().cancelled("a").event("a", "cancel", state="cancelled").doomed("x", "a")
        .after("x", "a")
    ),
}  # fmt: skip

BAD = {
    "a follower that never ran": (
        "I1 unfired",
        History().done("a").after("x", "a").job(
            "x", state="dead", fence=0, attempt=0, result=None, worker=None),
    ),
    "a follower that waits for nobody": (
        "I1 unfired",
        History().done("a").after("x", "a").waiting("x", 1),
    ),
    "dead because of one that succeeded": (
        "I1 unfired", History().done("a").doomed("x", "a").after("x", "a"),
    ),
    "dead because of one that it did not come after": (
        "I4 mislabelled", History().lost("one").doomed("x", "another").after("x", "one"),
    ),
    "run although what it needs is dead": (
        "I3 early", History().lost("a").done("x").after("x", "a"),
    ),
    "cancelled by nobody because of one that is dead": (
        "I4 mislabelled", History().lost("a").doomed("x", "a", state="cancelled").after("x", "a"),
    ),
    "begun before those before it had ended": (
        "I3 early", History().done("a").done("x").done("b").after("x", "a", "b"),
    ),
    "a milestone before so many had ended": (
        "I3 early",
        History().done("a").done("m", quorum=2, needs="finished").done("b").done("c")
        .after("m", "a", "b", "c"),
    ),
    "one result too few": (
        "I3 half-fanned", fan_in().says("read", "x", 1, [["a", 1]]),
    ),
    "results in another order": (
        "I3 half-fanned", fan_in().says("read", "x", 1, [["b", 1], ["a", 1]]),
    ),
    "the result of a claim that was lost": (
        "I3 half-fanned", fan_in().says("read", "x", 1, [["a", 1], ["b", 7]]),
    ),
    "no result of one that succeeded": (
        "I3 half-fanned", fan_in().says("read", "x", 1, [["a", 1], None]),
    ),
    "asked for, and gone": ("I1 lost", History().asked("x")),
    "asked to come after one more": (
        "I1 half-fanned", fan_in().asked("x", after=["a", "b", "c"]),
    ),
    "asked to come after them in another order": (
        "I1 half-fanned", fan_in().asked("x", after=["b", "a"]),
    ),
    "after one that nobody asked for": ("I1 half-fanned", fan_in().asked("x", after=["a"])),
    "not after what a crawler added": ("I1 half-fanned", crawler().after("x", "a")),
    "dead, and its handler ends well": ("I1 mislabelled", History().lost("a").asked("a")),
    "succeeded, and its handler never does": ("I1 mislabelled", History().done("a").asked(
        "a", "dies")),
    "a hook that was not made": ("I3 unhooked", History().done("a").asked(
        "a", hooks=["succeeded"])),
    "a hook that was made twice": (
        "I3 unhooked",
        History().done("a").asked("a", hooks=["succeeded"])
        .hook("h", "a", "succeeded").hook("i", "a", "succeeded"),
    ),
    "a hook for another end": (
        "I3 zombie", History().done("a").asked("a", hooks=["dead"]).hook("h", "a", "dead"),
    ),
    "run after its flow was cancelled": (
        "I3 uncancelled", cancelled_flow().says("stopped", "f", 0, {"a": 0, "b": 0}),
    ),
    "added to a cancelled flow": ("I3 uncancelled", cancelled_flow().cancelled(
        "c", flow="f", error=CANCELLED)),
    "a cancelled flow of which nobody saw the end": (
        "I1 uncancelled", cancelled_flow(settled=False),
    ),
    "a team that should be broken": (
        "I1 uncancelled", broken_team(cancelled=False, settled=False).done("b", flow="f", team="t"),
    ),
    "a team that is broken too early": (
        "I1 uncancelled", broken_team().done("a", flow="f", team="t").done(
            "b", flow="f", team="t"),
    ),
    "a team whose end counts as failures": ("I4 miscounted", broken_team(failed=2)),
    "a failure of a team that was not counted": (
        "I4 miscounted",
        History().flow().flow("t", part_of="f", fail_after=2).lost("a", flow="f", team="t"),
    ),
    "a job of a flow that is gone": ("I5 left-behind", History().done("a", flow="g")),
    "a team of a flow that is gone": ("I5 left-behind", History().flow("t", part_of="f")),
    "an edge of a job that is gone": ("I5 left-behind", History().orphan("edge of x")),
    "a follower that only the audit started": ("I2 unfired", fan_in().audited("unfired", 1)),
    "a count that the audit set right": ("I2 miscounted", fan_in().audited("miscounted", 2)),
    "an end of which only the audit told": (
        "I2 deaf-parent", dead_child().audited("deaf-parent", 1),
    ),
}  # fmt: skip

RUNNING = {"state": "running", "result": None, "lease_left": 5.0}

WELL_COUNTED = {
    "all have ended": fan_in(),
    "one of two has ended": History().done("a").job("b", **RUNNING).waiting("x", 1).after(
        "x", "a", "b"),
    "a milestone": History().done("a").job("b", **RUNNING).job("c", **RUNNING).waiting(
        "m", 1, quorum=2).after("m", "a", "b", "c"),
    "more than there are is wanted": History().job("a", **RUNNING).waiting("m", 1, quorum=9).after(
        "m", "a"),
    "who waits for any end, after one is dead": History().lost("a").job("b", **RUNNING).waiting(
        "x", 1, needs="finished").after("x", "a", "b"),
    "who came late": History().done("a").waiting("x", 1, unlinked=True).after("x", "a"),
}  # fmt: skip

MISCOUNTED = {
    "all have ended, and nobody said so": (
        "I2 unfired", History().done("a").done("b").waiting("x", 1).after("x", "a", "b"),
    ),
    "enough have ended": (
        "I2 unfired",
        History().done("a").job("b", **RUNNING).waiting("m", 1, quorum=1).after("m", "a", "b"),
    ),
    "nobody is before it": ("I2 unfired", History().waiting("x", 1)),
    "what it needs is dead": (
        "I2 deaf-parent",
        History().lost("a").job("b", **RUNNING).waiting("x", 2).after("x", "a", "b"),
    ),
    "what it needs is cancelled": (
        "I2 deaf-parent", History().cancelled("a").waiting("x", 1).after("x", "a"),
    ),
    "what it needs is gone": ("I2 deaf-parent", History().waiting("x", 1).after("x", "a")),
    "one was not counted off": (
        "I2 miscounted",
        History().done("a").job("b", **RUNNING).waiting("x", 2).after("x", "a", "b"),
    ),
    "one was counted off twice": (
        "I2 miscounted",
        History().done("a").job("b", **RUNNING).job("c", **RUNNING).waiting("x", 1).after(
            "x", "a", "b", "c"),
    ),
}  # fmt: skip
