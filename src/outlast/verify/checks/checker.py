"""The checker: five invariants, decided from evidence alone.

    I1  every acknowledged job exists and ended as promised; jobs that belong together are complete
    I2  every unfinished job has an owner under a lease, or waits in a state that is polled, and
        never both; a job that waits for others waits for something still to come
    I3  every success was accepted once: its result comes from the claim in the row, that claim ran
        once, and nothing ran after it; its follow-up jobs exist, those of refused claims do not,
        nor do their events, steps or writes; no event or action is recorded twice; and the answers
        to owners were true
    I4  every claim ended in one recorded way, each a legal transition, and the counters agree with
        the record
    I5  deleted jobs leave nothing behind

A violation names the job, the invariant and its orphan class.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...model.lifecycle import FINAL, QUEUED, State
from ..ledger import LedgerEntry
from .evidence import Evidence, JobRow
from .flows import flow_findings
from .history import early_claims, history_findings, with_held_back, wrong_cancellations
from .steps import repeated_steps, wrong_completion_writes, wrong_step_results
from .waits import repaired_waits, wrong_waits


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    job: str
    orphan: str  # the class in ORPHANS, or another word
    message: str
    queue: str = ""  # where it happened

    def __str__(self) -> str:
        return f"{self.invariant} {self.orphan}: {self.job}: {self.message}"


Rule = Callable[[Evidence], Iterator[Violation]]


def check(evidence: Evidence, *, is_settled: bool = True) -> list[Violation]:
    """All violations, in the order of the invariants. `is_settled`: no activity is left."""
    rules: list[Rule] = [
        missing_or_unexpected_jobs,
        partial_batches,
        orphaned_jobs,
        audit_findings,
        duplicate_successes,
        followup_mismatches,
        events_outside_claims,
        duplicate_events,
        wrong_answers,
        duplicate_owners,
        step_violations,
        scenario_findings,
    ]
    first: list[Rule] = [unfinished_jobs] if is_settled else []
    return [
        found
        for rule in [*first, *rules, history_violations, flow_violations, leftover_rows]
        for found in rule(evidence)
    ]


def unfinished_jobs(evidence: Evidence) -> Iterator[Violation]:
    """I1: after settling, no job is unfinished."""
    for row in evidence.rows.values():
        if row.state not in FINAL:
            yield _violation(row, "I1", _orphan_class(row), f"is still {row.state}")


def missing_or_unexpected_jobs(evidence: Evidence) -> Iterator[Violation]:
    """I1: acknowledged jobs exist and ended as promised; rolled-back jobs do not exist."""
    for entry in evidence.entries("promised"):
        row = evidence.rows.get(entry.subject)
        if row is None:
            message = "was acknowledged, and is not in the table"
            yield Violation("I1", entry.subject, "lost", message)
        elif row.state in FINAL and entry.data and row.state not in entry.data:
            message = f"ended {row.state}, and {' or '.join(entry.data)} was promised"
            yield _violation(row, "I1", "mislabelled", message)
    for entry in evidence.entries("refused"):
        if row := evidence.rows.get(entry.subject):
            yield _violation(row, "I1", "ghost", "exists although its transaction was rolled back")


def partial_batches(evidence: Evidence) -> Iterator[Violation]:
    """I1: jobs that belong together exist all or none."""
    sizes = Counter(row.queue for row in evidence.rows.values())
    for entry in evidence.entries("together"):
        if sizes[entry.subject] not in (0, entry.data):
            message = f"{sizes[entry.subject]} of {entry.data} jobs that belong together exist"
            yield Violation("I1", entry.subject, "half-fanned", message, entry.subject)
    for entry in evidence.entries("beside"):
        jobs, rows = sizes[entry.subject], int(entry.subject in evidence.business_rows)
        if jobs != rows:
            message = f"{jobs} jobs and {rows} rows of the caller's that committed together"
            yield Violation("I1", entry.subject, "untriggered", message, entry.subject)


def orphaned_jobs(evidence: Evidence) -> Iterator[Violation]:
    """I2"""
    for row in evidence.rows.values():
        if row.state == State.RUNNING and (row.lease_left is None or row.worker is None):
            yield _violation(row, "I2", "invisible", "is running without an owner or a lease")
        elif row.state != State.RUNNING and row.lease_left is not None:
            yield _violation(row, "I2", "invisible", f"is {row.state} under a lease")
        elif row.state not in FINAL | {State.RUNNING} and row.worker is not None:
            yield _violation(row, "I2", "invisible", f"is {row.state} and has an owner")
        if row.cancelling and row.state in QUEUED:
            yield _violation(row, "I2", "uncancelled", f"is {row.state}, and was asked to stop")


def audit_findings(evidence: Evidence) -> Iterator[Violation]:
    """I2: no audit found a job that waited for something that had already happened."""
    return (Violation("I2", *found) for found in repaired_waits(evidence))


def miscounted_waits(evidence: Evidence) -> Iterator[Violation]:
    """I2: no job waits for something that has already happened. For tables that do not change,
    because they are read one by one."""
    return (Violation("I2", *found) for found in wrong_waits(evidence))


def duplicate_successes(evidence: Evidence) -> Iterator[Violation]:
    """I3: there is one success, of the claim that ran."""
    ran = evidence.ran()
    forbidden = {entry.subject: entry.fence for entry in evidence.entries("never")}
    for row in evidence.rows.values():
        fences = ran.get(row.id, [])
        if row.state == State.SUCCEEDED:
            yield from _one_success(row, fences)
        elif row.result is not None:
            yield _violation(row, "I3", "zombie", f"is {row.state} and has a result")
        for fence, times in Counter(fences).items():
            if times > 1:
                yield _violation(row, "I3", "zombie", f"claim {fence} was run {times} times")
        if fences and max(fences) > row.fence:
            message = f"claim {max(fences)} ran although the row ended with claim {row.fence}"
            yield _violation(row, "I3", "zombie", message)
        if fences and max(fences) >= forbidden.get(row.id, math.inf):
            yield _violation(
                row, "I3", "expired", f"was run under claim {max(fences)}, and must never be"
            )


def _one_success(row: JobRow, ran: list[int]) -> Iterator[Violation]:
    claimed = row.result.get("fence") if isinstance(row.result, dict) else None
    erased = row.args is None and row.result is None  # can no longer be compared
    if claimed != row.fence and not erased:
        message = f"the result is of claim {claimed}, the row of claim {row.fence}"
        yield _violation(row, "I3", "zombie", message)
    if row.fence not in ran:
        yield _violation(row, "I3", "unstarted", f"claim {row.fence} succeeded and never ran")


def followup_mismatches(evidence: Evidence) -> Iterator[Violation]:
    """I3: the jobs that a handler enqueued exist if, and only if, its attempt was accepted."""
    children: Counter[tuple[str, int]] = Counter()
    for row in evidence.rows.values():
        if isinstance(row.args, dict) and row.args.get("parent"):
            children[row.args["parent"], row.args["claim"]] += 1
    enqueued = {(e.subject, e.fence): e.data or 0 for e in evidence.entries("ended")}
    for parent, fence in sorted(enqueued.keys() | children.keys()):
        row_ = evidence.rows.get(parent)
        if row_ is None:
            continue
        counts = row_.state == State.SUCCEEDED and row_.fence == fence
        expected, there = enqueued.get((parent, fence), 0) if counts else 0, children[parent, fence]
        closed = row_.flow in evidence.flows and evidence.flows[row_.flow].cancelled
        if there != expected and not (closed and there == 0):
            orphan = "unhooked" if there < expected else "zombie"
            message = f"{there} jobs exist that claim {fence} enqueued, and should be {expected}"
            yield _violation(row_, "I3", orphan, message)


def events_outside_claims(evidence: Evidence) -> Iterator[Violation]:
    """I3: an event that names its claim was stored while that claim held."""
    for event in evidence.events:
        row = evidence.rows.get(event.job or "")
        fence = event.data.get("fence") if isinstance(event.data, dict) else None
        if row is None or fence is None:
            continue
        record = evidence.record(row.id, fence)
        attempt = record.attempt if record else row.attempt
        if event.attempt != attempt or (record is None and fence != row.fence):
            message = f"an event of claim {fence} is stored under attempt {event.attempt}"
            yield _violation(row, "I3", "zombie", message)


def duplicate_events(evidence: Evidence) -> Iterator[Violation]:
    """I3: an attempt's events and operators' actions are recorded once. Here all events of a claim
    differ; a paused queue can only be resumed, a cancelled job only be redriven."""
    seen: set[tuple[object, ...]] = set()
    last: dict[tuple[str, str], str] = {}
    for event in evidence.events:
        data = event.data if isinstance(event.data, dict) else {}
        row = evidence.rows.get(event.job or "")
        if row and "fence" in data:
            what = (event.job, event.kind, json.dumps(data, sort_keys=True))
            if what in seen:
                message = f"claim {data['fence']} sent {event.kind} once, and it is recorded twice"
                yield _violation(row, "I3", "repeated", message)
            seen.add(what)
        elif event.kind in ("cancel", "redrive", "pause", "resume"):
            about = (event.job or "", "" if event.job else str(data.get("queue")))
            if last.get(about) == event.kind and event.kind != "redrive":
                queue = row.queue if row else about[1]
                message = f"one {event.kind} is recorded twice"
                yield Violation("I3", event.job or queue, "repeated", message, queue)
            last[about] = event.kind


def wrong_answers(evidence: Evidence) -> Iterator[Violation]:
    """I3: acknowledged writes are stored, refused writes are not."""
    for entry in evidence.entries("told"):
        row = evidence.rows.get(entry.subject)
        if row is None:
            continue
        outcome, accepted = entry.data
        state = _outcome(evidence, row, entry.fence)
        if (state == outcome) != accepted:
            answer = "accepted" if accepted else "refused"
            message = f"claim {entry.fence} was told {outcome} is {answer}; it ended {state}"
            yield _violation(row, "I3", "zombie", message)


def duplicate_owners(evidence: Evidence) -> Iterator[Violation]:
    """I3: a job has one owner. A former owner was not confirmed as owner, and changed nothing."""
    taken: dict[str, list[LedgerEntry]] = defaultdict(list)
    for entry in evidence.entries("took"):
        taken[entry.subject].append(entry)
    for entry in evidence.entries("kept"):
        row = evidence.rows.get(entry.subject)
        late = [e for e in taken[entry.subject] if e.fence > entry.fence and e.at < entry.at]
        if row and entry.data and late:
            message = f"claim {entry.fence} was renewed after claim {late[0].fence} had begun"
            yield _violation(row, "I3", "zombie", message)
    for id, claims in taken.items():
        for fence, times in Counter(entry.fence for entry in claims).items():
            if times > 1 and (row := evidence.rows.get(id)):
                yield _violation(row, "I3", "zombie", f"claim {fence} was given to {times} owners")
    for entry in evidence.entries("robbed"):
        if row := evidence.rows.get(entry.subject):
            yield _violation(
                row, "I3", "zombie", f"claim {entry.fence} was reclaimed from a live owner"
            )


def step_violations(evidence: Evidence) -> Iterator[Violation]:
    """I3: violations of steps and of handlers' own writes."""
    for job, orphan, message in (
        *wrong_step_results(evidence),
        *repeated_steps(evidence),
        *wrong_completion_writes(evidence),
    ):
        if row := evidence.rows.get(job):
            yield _violation(row, "I3", orphan, message)


def scenario_findings(evidence: Evidence) -> Iterator[Violation]:
    """Violations that only the scenario itself can detect."""
    for entry in evidence.entries("saw"):
        invariant, orphan, message = entry.data
        yield Violation(invariant, entry.subject, orphan, message, entry.subject)


def history_violations(evidence: Evidence) -> Iterator[Violation]:
    """I4"""
    redriven, cancels = evidence.redriven(), evidence.cancels()
    outages = evidence.outages()
    for row in evidence.rows.values():
        records = evidence.attempts.get(row.id, [])
        if row.queue in outages:
            records = with_held_back(row, records)
        complaints = [*history_findings(row, records, redriven[row.id]), *early_claims(row)]
        complaints += wrong_cancellations(row, records, cancels[row.id], redriven[row.id])
        for orphan, message in complaints:
            yield _violation(row, "I4", orphan, message)


def flow_violations(evidence: Evidence) -> Iterator[Violation]:
    """All violations of flows."""
    return (Violation(*found) for found in flow_findings(evidence))


def leftover_rows(evidence: Evidence) -> Iterator[Violation]:
    """I5"""
    for orphan, number in sorted(Counter(evidence.orphans).items()):
        yield Violation("I5", orphan, "left-behind", f"{number} belong to no job")


def _outcome(evidence: Evidence, row: JobRow, fence: int) -> str | None:
    """The recorded outcome of a claim; a first-try success is recorded only in the row."""
    if record := evidence.record(row.id, fence):
        return record.outcome
    at_once = row.state == State.SUCCEEDED and row.fence == fence
    return "succeeded" if at_once else None


def _violation(row: JobRow, invariant: str, orphan: str, message: str) -> Violation:
    return Violation(invariant, row.id, orphan, message, row.queue)


def _orphan_class(row: JobRow) -> str:
    """The orphan class of an unfinished job."""
    match row.state:
        case State.RUNNING:
            return "owner-dead" if (row.lease_left or 0) <= 0 else "owner-hung"
        case State.SCHEDULED:
            return "timer-lost" if row.due_in <= 0 else "late"
        case State.READY:
            return "untriggered"
        case _:
            return "unfired"
