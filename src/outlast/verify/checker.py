"""The judge: five invariants, decided from evidence alone.

    I1  every promised job is in a final state (when the campaign has settled)
    I2  every job that is not final has a living owner or a time at which it becomes due
    I3  every success was accepted once: its result comes from the very claim that the row names,
        that claim really ran, and nothing ran after it
    I4  every claim ended in one recorded way, and the counters agree with the record
    I5  nothing is left behind by jobs that are gone

A violation names the job, the invariant and the orphan class it would have been.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..model.lifecycle import Outcome, State
from .evidence import Evidence, JobRow


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    job: str
    orphan: str  # the class of ORPHANS, or what it is instead
    told: str

    def __str__(self) -> str:
        return f"{self.invariant} {self.orphan}: {self.job}: {self.told}"


FINAL = {State.SUCCEEDED, State.DEAD, State.CANCELLED}


def check(evidence: Evidence, *, settled: bool = True) -> list[Violation]:
    """Every violation, in the order of the invariants."""
    rules: list[Callable[[Evidence], Iterator[Violation]]] = [alive, accepted, recorded, tidy]
    if settled:
        rules.insert(0, ended)
    return [violation for rule in rules for violation in rule(evidence)]


def ended(evidence: Evidence) -> Iterator[Violation]:
    """I1"""
    for id in sorted(evidence.promised):
        row = evidence.rows.get(id)
        if row is None:
            yield Violation("I1", id, "lost", "was acknowledged, and is in no table")
        elif row.state not in FINAL:
            yield Violation("I1", id, _class_of(row), f"is still {row.state}")
    for id in sorted(evidence.refused & evidence.rows.keys()):
        yield Violation("I1", id, "ghost", "exists although its transaction was rolled back")


def alive(evidence: Evidence) -> Iterator[Violation]:
    """I2"""
    for row in evidence.rows.values():
        if row.state == State.RUNNING and (row.lease_left is None or row.worker is None):
            yield Violation("I2", row.id, "invisible", "is running without an owner or a lease")
        elif row.state != State.RUNNING and row.lease_left is not None:
            yield Violation("I2", row.id, "invisible", f"is {row.state} under a lease")


def accepted(evidence: Evidence) -> Iterator[Violation]:
    """I3"""
    for row in evidence.rows.values():
        entries = evidence.ledger.get(row.id, [])
        if row.state == State.SUCCEEDED:
            yield from _one_success(row, {entry.fence for entry in entries})
        elif row.result is not None:
            yield Violation("I3", row.id, "zombie", f"is {row.state} and has a result")


def _one_success(row: JobRow, ran: set[int]) -> Iterator[Violation]:
    claimed = row.result.get("fence") if isinstance(row.result, dict) else None
    if claimed != row.fence:
        told = f"the result is of claim {claimed}, the row of claim {row.fence}"
        yield Violation("I3", row.id, "zombie", told)
    if row.fence not in ran:
        told = f"claim {row.fence} succeeded and never ran"
        yield Violation("I3", row.id, "unstarted", told)
    if ran and max(ran) > row.fence:
        told = f"claim {max(ran)} ran although the row ended with claim {row.fence}"
        yield Violation("I3", row.id, "zombie", told)


def recorded(evidence: Evidence) -> Iterator[Violation]:
    """I4"""
    for row in evidence.rows.values():
        records = evidence.attempts.get(row.id, [])
        fences = Counter(record.fence for record in records)
        open_claims = {row.fence} if row.state == State.RUNNING else set()
        if row.state == State.SUCCEEDED and row.fence not in fences:
            open_claims = {row.fence}  # a success at once keeps no record
        expected = set(range(1, row.fence + 1)) - open_claims
        if set(fences) - set(range(1, row.fence + 1)):
            yield Violation("I4", row.id, "zombie", f"has a record beyond claim {row.fence}")
        if missing := sorted(expected - set(fences)):
            yield Violation("I4", row.id, "forgotten", f"claims {missing[:5]} ended unrecorded")
        yield from _counted(row, Counter(record.outcome for record in records))


def _counted(row: JobRow, outcomes: Counter[str]) -> Iterator[Violation]:
    """Counters say what the record says, unless a redrive has set them back."""
    crashes = outcomes[Outcome.CRASHED]
    if row.crashes > crashes:
        yield Violation("I4", row.id, "miscounted", f"{row.crashes} crashes, {crashes} recorded")
    failures = sum(
        outcomes[kind]
        for kind in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.PERMANENT, Outcome.UNDECODABLE)
    )
    if row.failures > failures:
        yield Violation("I4", row.id, "miscounted", f"{row.failures} failures, {failures} recorded")


def tidy(evidence: Evidence) -> Iterator[Violation]:
    """I5"""
    for orphan in evidence.orphans:
        yield Violation("I5", orphan, "left-behind", "belongs to no job")


def _class_of(row: JobRow) -> str:
    """Which orphan a job that did not end would be."""
    match row.state:
        case State.RUNNING:
            return "owner-dead" if (row.lease_left or 0) <= 0 else "owner-hung"
        case State.SCHEDULED:
            return "timer-lost" if row.due_in <= 0 else "late"
        case State.READY:
            return "untriggered"
        case _:
            return "unfired"
