"""Histories to be judged, made by hand: a job is written in one line, a good one by default."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from outlast.verify.checks.evidence import AttemptRow, EventRow, Evidence, FlowRow, JobRow, StepRow
from outlast.verify.ledger import LedgerEntry

GOOD = JobRow(
    id="a",
    state="succeeded",
    attempt=1,
    failures=0,
    crashes=0,
    fence=1,
    worker="w",
    lease_left=None,
    due_in=-1.0,
    result={"fence": 1},
    max_attempts=5,
    max_crashes=3,
    queue="q",
    args={},
)


class History:
    """Evidence under construction: `History().job("a").began("a", 1)`."""

    def __init__(self) -> None:
        self.evidence = Evidence()
        self._clock = 0.0

    def job(self, id: str = "a", **facts: Any) -> History:
        self.evidence.rows[id] = replace(GOOD, id=id, **facts)
        return self

    def record(self, id: str, *outcomes: str, attempts: list[int] | None = None) -> History:
        """How its claims ended, from the first on."""
        numbers, number = [], 1
        for outcome in outcomes:
            numbers.append(number)
            number += outcome != "released"
        self.evidence.attempts[id] = [
            AttemptRow(id, fence, attempt, outcome)
            for fence, (attempt, outcome) in enumerate(
                zip(attempts or numbers, outcomes, strict=True), 1
            )
        ]
        return self

    def event(self, id: str, kind: str, attempt: int | None = None, **data: Any) -> History:
        self.evidence.events.append(EventRow(id, attempt, kind, data))
        return self

    def step(self, id: str, name: str, fence: int, by: int) -> History:
        """A step that is kept as of one claim, by the result of another."""
        self.evidence.steps[id, name] = StepRow(fence, {"fence": by})
        return self

    def says(self, what: str, about: str, fence: int = 0, said: Any = None) -> History:
        self._clock += 1.0
        self.evidence.ledger.append(LedgerEntry(what, about, fence, said, 1, self._clock))
        return self

    def began(self, id: str, *fences: int) -> History:
        for fence in fences:
            self.says("began", id, fence)
        return self

    def after(self, follower: str, *jobs: str) -> History:
        """Whom it came after, in that order."""
        self.evidence.before[follower] = list(jobs)
        return self

    def flow(self, id: str = "f", **facts: Any) -> History:
        self.evidence.flows[id] = FlowRow(id, **facts)
        return self

    def done(self, id: str, **facts: Any) -> History:
        """A job that ran at once, and ended well."""
        return self.job(id, **facts).began(id, 1).says("ended", id, 1, 0)

    def doomed(self, id: str, because_of: str, **facts: Any) -> History:
        """A job that is dead because of another."""
        error = {"type": "PrerequisiteFailed", "message": f"its prerequisite {because_of} is dead"}
        never = {"fence": 0, "attempt": 0, "worker": None, "result": None, "error": error}
        return self.job(id, **{"state": "dead"} | never | facts)

    def lost(self, id: str, **facts: Any) -> History:
        """A job whose handler ended it for good."""
        self.job(id, **{"state": "dead", "result": None, "failures": 1} | facts)
        return self.record(id, "permanent").began(id, 1)

    def cancelled(self, id: str, **facts: Any) -> History:
        """A job that never ran."""
        never = {"fence": 0, "attempt": 0, "worker": None, "result": None}
        return self.job(id, state="cancelled", **never | facts)

    def asked(self, id: str, kind: str = "ok", after: Any = (), hooks: Any = (),
              shape: str = "group") -> History:  # fmt: skip
        """A job as somebody asked for it."""
        node = [id, f"tag-{id}", kind, list(after), list(hooks)]
        return self.says("flow", "f", 0, {"shape": shape, "fan_ins": [], "nodes": [node]})

    def hook(self, id: str, of: str, on: str) -> History:
        return self.done(id, args={"hook_of": f"tag-{of}", "on": on})

    def waiting(self, id: str, waits_for: int, **facts: Any) -> History:
        """A job that says it waits for so many more."""
        never = {"fence": 0, "attempt": 0, "worker": None, "result": None}
        return self.job(id, state="waiting", waits_for=waits_for, **never | facts)

    def audited(self, fault: str, number: int) -> History:
        self.evidence.audited[fault] = number
        return self

    def beside(self, *names: str) -> History:
        self.evidence.business_rows |= set(names)
        return self

    def orphan(self, what: str) -> History:
        self.evidence.orphans.append(what)
        return self


def succeeded() -> History:
    """At once: no record but the row."""
    return History().job().says("promised", "a", 0, ["succeeded"]).began("a", 1)


def never_ran(**facts: Any) -> History:
    queued = {"state": "ready", "result": None, "fence": 0, "attempt": 0, "worker": None}
    return History().job(**queued | facts)


def crashed_once() -> History:
    return (
        History()
        .job(fence=2, attempt=2, crashes=1, result={"fence": 2})
        .record("a", "crashed", "succeeded")
        .says("promised", "a", 0, ["succeeded"])
        .began("a", 1, 2)
    )


def parent_and_children() -> History:
    history = succeeded().says("ended", "a", 1, 2)
    for child in ("b", "c"):
        history.job(child, args={"parent": "a", "claim": 1}).began(child, 1)
    return history


def dead(*outcomes: str, **facts: Any) -> History:
    number = len(outcomes)
    history = History().job(
        state="dead", result=None, fence=number, **{"attempt": number, "failures": number} | facts
    )
    return history.record("a", *outcomes).began("a", *range(1, number + 1))


def redriven() -> History:
    return (
        History()
        .job(fence=2, result={"fence": 2})
        .record("a", "permanent")
        .event("a", "redrive")
        .began("a", 1, 2)
    )
