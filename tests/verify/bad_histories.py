"""Each way in which a history can be bad, and what the judge has to say of it."""

from __future__ import annotations

from tests.verify.histories import (
    History,
    crashed_once,
    dead,
    never_ran,
    parent_and_children,
    redriven,
    succeeded,
)

BAD = {
    # I1: what was promised stands, whole, and has ended as promised
    "promised, and gone": ("I1 lost", History().says("promised", "x", 0, ["succeeded"])),
    "ended otherwise than promised": (
        "I1 mislabelled",
        dead("permanent").says("promised", "a", 0, ["succeeded"]),
    ),
    "acknowledged as cancelled, and run all the same": (
        "I1 mislabelled",
        succeeded().says("promised", "a", 0, ["cancelled"]),
    ),
    "rolled back, and there": ("I1 ghost", succeeded().says("refused", "a")),
    "half of what belongs together": ("I1 half-fanned", succeeded().says("together", "q", 0, 25)),
    "one key, two jobs": (
        "I1 half-fanned",
        succeeded().job("b").began("b", 1).says("together", "q", 0, 1),
    ),
    "a job without the caller's row": ("I1 untriggered", succeeded().says("beside", "q")),
    "the caller's row without a job": (
        "I1 untriggered",
        History().says("beside", "q").beside("q"),
    ),
    "still ready": (
        "I1 untriggered",
        History().job(state="ready", result=None, fence=0, attempt=0, worker=None),
    ),
    "due for long": (
        "I1 timer-lost",
        History().job(state="scheduled", result=None, fence=0, attempt=0, worker=None),
    ),
    "running under a lease that ran out": (
        "I1 owner-dead",
        History().job(state="running", result=None, lease_left=-5.0).began("a", 1),
    ),
    "running for ever": (
        "I1 owner-hung",
        History().job(state="running", result=None, lease_left=5.0).began("a", 1),
    ),
    "waiting for nobody": (
        "I1 unfired",
        History().job(state="waiting", result=None, fence=0, attempt=0, worker=None),
    ),
    # I2: who has not ended has an owner under a lease, or none at all
    "running without a lease": (
        "I2 invisible",
        History().job(state="running", result=None).began("a", 1),
    ),
    "running without an owner": (
        "I2 invisible",
        History().job(state="running", result=None, worker=None, lease_left=1.0).began("a", 1),
    ),
    "ended under a lease": ("I2 invisible", succeeded().job(lease_left=1.0)),
    "ready, and somebody's": (
        "I2 invisible",
        History().job(state="ready", result=None, fence=0, attempt=0),
    ),
    "asked to stop, and ready again": ("I2 uncancelled", never_ran(cancelling=True)),
    "asked to stop, and to be tried again later": (
        "I2 uncancelled",
        never_ran(state="scheduled", cancelling=True),
    ),
    "seen by who walked a path": (
        "I2 poison",
        succeeded().says("saw", "q", 0, ["I2", "poison", "two suspects share a process"]),
    ),
    # I3: one accepted success, of a claim that ran; owners were told the truth
    "the result of another claim": ("I3 zombie", succeeded().job(result={"fence": 7})),
    "no result at all": ("I3 zombie", succeeded().job(result=None)),
    "done before it ran": ("I3 unstarted", History().job()),
    "run again after its success": ("I3 zombie", succeeded().began("a", 2)),
    "one claim, run twice": ("I3 zombie", succeeded().began("a", 1)),
    "dead, with a result": ("I3 zombie", dead("permanent").job(
        state="dead", result={"fence": 1}, failures=1)),
    "expired, and run": (
        "I3 expired",
        History()
        .job(state="cancelled", result=None)
        .record("a", "cancelled")
        .says("never", "a", 1)
        .began("a", 1),
    ),
    "run once more, before its next attempt was due": (
        "I3 expired",
        crashed_once().says("never", "a", 2),
    ),
    "one claim, two owners": (
        "I3 zombie",
        crashed_once().says("took", "a", 2).says("took", "a", 2),
    ),
    "a success without its follow-up jobs": ("I3 unhooked", succeeded().says("ended", "a", 1, 2)),
    "follow-up jobs of an attempt that crashed": (
        "I3 zombie",
        crashed_once().job("b", args={"parent": "a", "claim": 1}).began("b", 1),
    ),
    "follow-up jobs of a job that is dead": (
        "I3 zombie",
        dead("permanent").job("b", args={"parent": "a", "claim": 1}).began("b", 1),
    ),
    "follow-up jobs, twice": (
        "I3 zombie",
        parent_and_children().job("d", args={"parent": "a", "claim": 1}).began("d", 1),
    ),
    "an event of a claim that was lost, kept under the next": (
        "I3 zombie",
        crashed_once().event("a", "log", 2, fence=1),
    ),
    "said once, on record twice": (
        "I3 repeated",
        succeeded().event("a", "log", 1, fence=1).event("a", "log", 1, fence=1),
    ),
    "cancelled once, on record twice": (
        "I3 repeated",
        History()
        .job(state="cancelled", fence=0, attempt=0, result=None, worker=None)
        .event("a", "cancel", by="me")
        .event("a", "cancel", by="me"),
    ),
    "paused once, on record twice": (
        "I3 repeated",
        History().event("", "pause", queue="q").event("", "pause", queue="q"),
    ),
    "a step that is kept, and was never done": ("I3 unstarted", succeeded().step("a", "s", 1, 1)),
    "a step of a claim that was lost, kept under the next": (
        "I3 zombie",
        crashed_once().step("a", "s", 2, 1).says("did", "a", 1, "s").says("did", "a", 2, "s"),
    ),
    "a step that is told to be kept, and is not": (
        "I3 zombie",
        succeeded().says("did", "a", 1, "s").says("stepped", "a", 1, ["s", True]),
    ),
    "a step that is told to be refused, and is kept": (
        "I3 zombie",
        succeeded().step("a", "s", 1, 1).says("did", "a", 1, "s")
        .says("stepped", "a", 1, ["s", False]),
    ),
    "a step that was kept, and done again": (
        "I3 repeated",
        crashed_once().step("a", "s", 1, 1).says("did", "a", 1, "s")
        .says("stepped", "a", 1, ["s", True]).says("did", "a", 2, "s"),
    ),
    "own writes of a claim that crashed": (
        "I3 zombie",
        crashed_once().says("wrote", "a", 1, ["a/1", True]).beside("a/1"),
    ),
    "a success without its own writes": (
        "I3 unhooked",
        succeeded().says("wrote", "a", 1, ["a/1", True]),
    ),
    "own writes, twice": (
        "I3 zombie",
        succeeded().says("wrote", "a", 1, ["a/1", True]).says("wrote", "a", 1, ["a/1/late", False])
        .beside("a/1", "a/1/late"),
    ),
    "an event of a claim that never was": ("I3 zombie", succeeded().event("a", "log", 1, fence=9)),
    "told accepted, and another end stands": (
        "I3 zombie",
        crashed_once().says("told", "a", 1, ["succeeded", True]),
    ),
    "told refused, and it stands": (
        "I3 zombie",
        succeeded().says("told", "a", 1, ["succeeded", False]),
    ),
    "renewed after another had it": (
        "I3 zombie",
        crashed_once().says("took", "a", 2).says("kept", "a", 1, True),
    ),
    "taken from an owner that lived": ("I3 zombie", crashed_once().says("robbed", "a", 2)),
    # I4: every claim ended once, legally, and is counted
    "a claim that ended unrecorded": (
        "I4 forgotten",
        History().job(fence=2, attempt=2, result={"fence": 2}).began("a", 1, 2),
    ),
    "ready again, and nobody knows why": (
        "I4 forgotten",
        History().job(state="ready", result=None, worker=None).began("a", 1),
    ),
    "a record beyond the last claim": (
        "I4 zombie",
        succeeded().record("a", "succeeded", "crashed"),
    ),
    "a claim that runs and has ended": (
        "I4 zombie",
        History()
        .job(state="running", result=None, lease_left=1.0)
        .record("a", "crashed")
        .began("a", 1),
    ),
    "claimed again after a success": (
        "I4 zombie",
        History()
        .job(fence=2, attempt=2, result={"fence": 2})
        .record("a", "succeeded", "succeeded")
        .began("a", 1, 2),
    ),
    "claimed again after it was dead, without a redrive": (
        "I4 zombie",
        History()
        .job(fence=2, attempt=2, failures=1, result={"fence": 2})
        .record("a", "permanent", "succeeded")
        .began("a", 1, 2),
    ),
    "claimed again after it was cancelled, without a redrive": (
        "I4 zombie",
        History()
        .job(fence=2, attempt=2, result={"fence": 2})
        .record("a", "cancelled", "succeeded")
        .began("a", 1, 2),
    ),
    "a crash that is not counted": ("I4 miscounted", crashed_once().job(
        fence=2, attempt=2, result={"fence": 2})),
    "a crash that is counted twice": ("I4 miscounted", crashed_once().job(
        fence=2, attempt=2, crashes=2, result={"fence": 2})),
    "a failure that is not counted": ("I4 miscounted", dead("permanent", failures=0)),
    "a failure that nobody recorded": ("I4 miscounted", succeeded().job(failures=1)),
    "attempts that were set back": (
        "I4 miscounted",
        crashed_once().record("a", "crashed", "succeeded", attempts=[1, 1]).job(
            fence=2, attempt=1, crashes=1, result={"fence": 2}),
    ),
    "a release that spent the attempt": (
        "I4 miscounted",
        History()
        .job(fence=2, attempt=2, result={"fence": 2})
        .record("a", "released")
        .began("a", 1, 2),
    ),
    "more than it ever had, though redriven": ("I4 miscounted", redriven().job(
        fence=2, crashes=1, result={"fence": 2})),
    "given up after the first crash": (
        "I4 mislabelled",
        dead("crashed", failures=0, crashes=1),
    ),
    "given up before its attempts are spent": ("I4 mislabelled", dead("failed")),
    "dead, and its last claim was a release": (
        "I4 mislabelled",
        dead("released", failures=0, attempt=0),
    ),
    "succeeded, and its last claim failed": (
        "I4 mislabelled",
        crashed_once()
        .job(fence=2, attempt=2, crashes=1, failures=1, result={"fence": 2})
        .record("a", "crashed", "failed"),
    ),
    "succeeded at the second attempt, and not on record": (
        "I4 mislabelled",
        crashed_once().record("a", "crashed"),
    ),
    "cancelled after its success": (
        "I4 mislabelled",
        History()
        .job(state="cancelled", result=None)
        .record("a", "succeeded")
        .event("a", "cancel")
        .began("a", 1),
    ),
    "ready again after it was dead, without a redrive": (
        "I4 zombie",
        never_ran(fence=1, attempt=1, failures=1).record("a", "permanent").began("a", 1),
    ),
    "dead, and never claimed": ("I4 mislabelled", never_ran(state="dead")),
    "cancelled, and nobody asked": ("I4 mislabelled", never_ran(state="cancelled")),
    "cancelled by a crash alone": (
        "I4 mislabelled",
        History()
        .job(state="cancelled", result=None, crashes=1)
        .record("a", "crashed")
        .began("a", 1),
    ),
    "run again after too many crashes": (
        "I4 poison",
        crashed_once().job(fence=2, attempt=2, crashes=1, max_crashes=1, result={"fence": 2}),
    ),
    "run again after too many failures": (
        "I4 poison",
        History()
        .job(fence=2, attempt=2, failures=1, max_attempts=1, result={"fence": 2})
        .record("a", "failed", "succeeded")
        .began("a", 1, 2),
    ),
    "a record under the number of another attempt": (
        "I4 miscounted",
        crashed_once().record("a", "crashed", "succeeded", attempts=[2, 2]),
    ),
    "run after a full queue dropped it": ("I4 zombie", succeeded().event("a", "drop")),
    "run after it was cancelled, without a redrive": (
        "I4 zombie",
        succeeded().event("a", "cancel", state="cancelled"),
    ),
    "cancelled twice, and redriven once": (
        "I4 zombie",
        succeeded()
        .event("a", "cancel", state="cancelled")
        .event("a", "redrive")
        .event("a", "cancel", state="cancelled"),
    ),
    "done before it was due": ("I4 early", succeeded().job(due_in=30.0)),
    "ready before it is due": ("I4 early", never_ran(due_in=30.0)),
    # I5: nothing is left behind
    "an attempt of a job that is gone": ("I5 left-behind", succeeded().orphan("attempt of x")),
    "an event of a job that is gone": ("I5 left-behind", succeeded().orphan("event of x")),
}  # fmt: skip
