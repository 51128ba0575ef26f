"""The judge: five invariants, decided from evidence alone.

    I1  every promised job stands, and all have ended as promised; what belongs together is whole
    I2  every job that has not ended has an owner under a lease, or waits in a state that is looked
        at; none has both; and who waits for others waits for what is still to come
    I3  every success was accepted once: its result comes from the very claim that the row names,
        that claim ran, once, and nothing ran after it; what it enqueued stands, what refused claims
        enqueued, said, kept or wrote does not, and nothing that was said or done is on record
        twice; and owners were told the truth
    I4  every claim ended in one recorded way, each a legal step, and the counters agree with the
        record
    I5  nothing is left behind by jobs that are gone

A violation names the job, the invariant and the orphan class it would have been.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..model.lifecycle import FINAL, QUEUED, State
from .durable import completed, done_once, kept
from .evidence import Evidence, JobRow
from .ledger import Entry
from .records import called_off, hasty, recorded, with_held_back
from .ties import tied
from .waits import mended, misled


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    job: str
    orphan: str  # the class of ORPHANS, or what it is instead
    told: str
    queue: str = ""  # where it happened

    def __str__(self) -> str:
        return f"{self.invariant} {self.orphan}: {self.job}: {self.told}"


Rule = Callable[[Evidence], Iterator[Violation]]


def check(evidence: Evidence, *, settled: bool = True) -> list[Violation]:
    """Every violation, in the order of the invariants. `settled`: nothing is under way any more."""
    rules: list[Rule] = [stands, whole, alive, audited, accepted, followed, reported, said_once,
                         believed, owned, durably, seen]  # fmt: skip
    first: list[Rule] = [ended] if settled else []
    return [
        found for rule in [*first, *rules, histories, together, tidy] for found in rule(evidence)
    ]


def ended(evidence: Evidence) -> Iterator[Violation]:
    """I1: nothing is under way any more."""
    for row in evidence.rows.values():
        if row.state not in FINAL:
            yield _of(row, "I1", _class_of(row), f"is still {row.state}")


def stands(evidence: Evidence) -> Iterator[Violation]:
    """I1: what was promised is there, in the way that was promised; what was taken back is not."""
    for entry in evidence.entries("promised"):
        row = evidence.rows.get(entry.about)
        if row is None:
            told = "was acknowledged, and is in no table"
            yield Violation("I1", entry.about, "lost", told)
        elif row.state in FINAL and entry.said and row.state not in entry.said:
            told = f"ended {row.state}, and {' or '.join(entry.said)} was promised"
            yield _of(row, "I1", "mislabelled", told)
    for entry in evidence.entries("refused"):
        if row := evidence.rows.get(entry.about):
            yield _of(row, "I1", "ghost", "exists although its transaction was rolled back")


def whole(evidence: Evidence) -> Iterator[Violation]:
    """I1: all or none of what belongs together."""
    sizes = Counter(row.queue for row in evidence.rows.values())
    for entry in evidence.entries("together"):
        if sizes[entry.about] not in (0, entry.said):
            told = f"{sizes[entry.about]} of {entry.said} jobs that belong together exist"
            yield Violation("I1", entry.about, "half-fanned", told, entry.about)
    for entry in evidence.entries("beside"):
        jobs, rows = sizes[entry.about], int(entry.about in evidence.business)
        if jobs != rows:
            told = f"{jobs} jobs and {rows} rows of the caller's that committed together"
            yield Violation("I1", entry.about, "untriggered", told, entry.about)


def alive(evidence: Evidence) -> Iterator[Violation]:
    """I2"""
    for row in evidence.rows.values():
        if row.state == State.RUNNING and (row.lease_left is None or row.worker is None):
            yield _of(row, "I2", "invisible", "is running without an owner or a lease")
        elif row.state != State.RUNNING and row.lease_left is not None:
            yield _of(row, "I2", "invisible", f"is {row.state} under a lease")
        elif row.state not in FINAL | {State.RUNNING} and row.worker is not None:
            yield _of(row, "I2", "invisible", f"is {row.state} and has an owner")
        if row.cancelling and row.state in QUEUED:
            yield _of(row, "I2", "uncancelled", f"is {row.state}, and was asked to stop")


def audited(evidence: Evidence) -> Iterator[Violation]:
    """I2: no audit ever found somebody who waited for what had happened."""
    return (Violation("I2", *found) for found in mended(evidence))


def counted(evidence: Evidence) -> Iterator[Violation]:
    """I2: nor would one now. For tables that nobody is changing: they are read one by one."""
    return (Violation("I2", *found) for found in misled(evidence))


def accepted(evidence: Evidence) -> Iterator[Violation]:
    """I3: one success, of the claim that really ran."""
    ran = evidence.ran()
    forbidden = {entry.about: entry.fence for entry in evidence.entries("never")}
    for row in evidence.rows.values():
        fences = ran.get(row.id, [])
        if row.state == State.SUCCEEDED:
            yield from _one_success(row, fences)
        elif row.result is not None:
            yield _of(row, "I3", "zombie", f"is {row.state} and has a result")
        for fence, times in Counter(fences).items():
            if times > 1:
                yield _of(row, "I3", "zombie", f"claim {fence} was run {times} times")
        if fences and max(fences) > row.fence:
            told = f"claim {max(fences)} ran although the row ended with claim {row.fence}"
            yield _of(row, "I3", "zombie", told)
        if fences and max(fences) >= forbidden.get(row.id, math.inf):
            yield _of(row, "I3", "expired", f"was run under claim {max(fences)}, and must never be")


def _one_success(row: JobRow, ran: list[int]) -> Iterator[Violation]:
    claimed = row.result.get("fence") if isinstance(row.result, dict) else None
    erased = row.args is None and row.result is None  # nobody can tell any more
    if claimed != row.fence and not erased:
        told = f"the result is of claim {claimed}, the row of claim {row.fence}"
        yield _of(row, "I3", "zombie", told)
    if row.fence not in ran:
        yield _of(row, "I3", "unstarted", f"claim {row.fence} succeeded and never ran")


def followed(evidence: Evidence) -> Iterator[Violation]:
    """I3: the jobs that a handler enqueued exist if, and only if, its attempt was accepted."""
    children: Counter[tuple[str, int]] = Counter()
    for row in evidence.rows.values():
        if isinstance(row.args, dict) and row.args.get("parent"):
            children[row.args["parent"], row.args["claim"]] += 1
    asked = {(e.about, e.fence): e.said or 0 for e in evidence.entries("ended")}
    for parent, fence in sorted(asked.keys() | children.keys()):
        row_ = evidence.rows.get(parent)
        if row_ is None:
            continue
        counts = row_.state == State.SUCCEEDED and row_.fence == fence
        wanted, there = asked.get((parent, fence), 0) if counts else 0, children[parent, fence]
        closed = row_.flow in evidence.flows and evidence.flows[row_.flow].cancelled
        if there != wanted and not (closed and there == 0):
            orphan = "unhooked" if there < wanted else "zombie"
            told = f"{there} jobs exist that claim {fence} enqueued, and should be {wanted}"
            yield _of(row_, "I3", orphan, told)


def reported(evidence: Evidence) -> Iterator[Violation]:
    """I3: an event that names its claim was kept while that claim held."""
    for event in evidence.events:
        row = evidence.rows.get(event.job or "")
        fence = event.data.get("fence") if isinstance(event.data, dict) else None
        if row is None or fence is None:
            continue
        record = evidence.record(row.id, fence)
        attempt = record.attempt if record else row.attempt
        if event.attempt != attempt or (record is None and fence != row.fence):
            told = f"an event of claim {fence} is kept under attempt {event.attempt}"
            yield _of(row, "I3", "zombie", told)


def said_once(evidence: Evidence) -> Iterator[Violation]:
    """I3: what an attempt said, and what people did, is on record once. Every event of a claim
    differs from the others here; a queue that is paused can only be resumed, a job that is
    cancelled only be redriven."""
    seen: set[tuple[object, ...]] = set()
    last: dict[tuple[str, str], str] = {}
    for event in evidence.events:
        data = event.data if isinstance(event.data, dict) else {}
        row = evidence.rows.get(event.job or "")
        if row and "fence" in data:
            what = (event.job, event.kind, json.dumps(data, sort_keys=True))
            if what in seen:
                told = f"claim {data['fence']} said {event.kind} once, and it is on record twice"
                yield _of(row, "I3", "repeated", told)
            seen.add(what)
        elif event.kind in ("cancel", "redrive", "pause", "resume"):
            about = (event.job or "", "" if event.job else str(data.get("queue")))
            if last.get(about) == event.kind and event.kind != "redrive":
                queue = row.queue if row else about[1]
                told = f"one {event.kind} is on record twice"
                yield Violation("I3", event.job or queue, "repeated", told, queue)
            last[about] = event.kind


def believed(evidence: Evidence) -> Iterator[Violation]:
    """I3: who was told that a write counts, finds it there; who was told that it does not, not."""
    for entry in evidence.entries("told"):
        row = evidence.rows.get(entry.about)
        if row is None:
            continue
        outcome, accepted = entry.said
        stands = _outcome(evidence, row, entry.fence)
        if (stands == outcome) != accepted:
            said = "accepted" if accepted else "refused"
            told = f"claim {entry.fence} was told {outcome} is {said}; it ended {stands}"
            yield _of(row, "I3", "zombie", told)


def owned(evidence: Evidence) -> Iterator[Violation]:
    """I3: a job has one owner. Who came back was not told that it still is, and did no harm."""
    taken: dict[str, list[Entry]] = defaultdict(list)
    for entry in evidence.entries("took"):
        taken[entry.about].append(entry)
    for entry in evidence.entries("kept"):
        row = evidence.rows.get(entry.about)
        late = [e for e in taken[entry.about] if e.fence > entry.fence and e.at < entry.at]
        if row and entry.said and late:
            told = f"claim {entry.fence} was renewed after claim {late[0].fence} had begun"
            yield _of(row, "I3", "zombie", told)
    for id, claims in taken.items():
        for fence, times in Counter(entry.fence for entry in claims).items():
            if times > 1 and (row := evidence.rows.get(id)):
                yield _of(row, "I3", "zombie", f"claim {fence} was given to {times} owners")
    for entry in evidence.entries("robbed"):
        if row := evidence.rows.get(entry.about):
            yield _of(row, "I3", "zombie", f"claim {entry.fence} was taken from a live owner")


def durably(evidence: Evidence) -> Iterator[Violation]:
    """I3: of steps and of own writes."""
    for job, orphan, told in (*kept(evidence), *done_once(evidence), *completed(evidence)):
        if row := evidence.rows.get(job):
            yield _of(row, "I3", orphan, told)


def seen(evidence: Evidence) -> Iterator[Violation]:
    """What only those could see who walked a path."""
    for entry in evidence.entries("saw"):
        invariant, orphan, told = entry.said
        yield Violation(invariant, entry.about, orphan, told, entry.about)


def histories(evidence: Evidence) -> Iterator[Violation]:
    """I4"""
    redriven, cancels = evidence.redriven(), evidence.cancels()
    outages = evidence.outages()
    for row in evidence.rows.values():
        records = evidence.attempts.get(row.id, [])
        if row.queue in outages:
            records = with_held_back(row, records)
        complaints = [*recorded(row, records, redriven[row.id]), *hasty(row)]
        complaints += called_off(row, records, cancels[row.id], redriven[row.id])
        for orphan, told in complaints:
            yield _of(row, "I4", orphan, told)


def together(evidence: Evidence) -> Iterator[Violation]:
    """All of them, for jobs that wait for each other."""
    return (Violation(*found) for found in tied(evidence))


def tidy(evidence: Evidence) -> Iterator[Violation]:
    """I5"""
    for orphan, number in sorted(Counter(evidence.orphans).items()):
        yield Violation("I5", orphan, "left-behind", f"{number} belong to no job")


def _outcome(evidence: Evidence, row: JobRow, fence: int) -> str | None:
    """How a claim ended, by the record; a success at once keeps none but the row itself."""
    if record := evidence.record(row.id, fence):
        return record.outcome
    at_once = row.state == State.SUCCEEDED and row.fence == fence
    return "succeeded" if at_once else None


def _of(row: JobRow, invariant: str, orphan: str, told: str) -> Violation:
    return Violation(invariant, row.id, orphan, told, row.queue)


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
