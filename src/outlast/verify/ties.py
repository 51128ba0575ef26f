"""Jobs that wait for each other, judged: what the tables and the ledger must agree on.

    ran or not      a follower ran if, and only if, those before it ended as it needs; else it is
                    dead, and names one of them that did not succeed
    in order        no claim of it began before the end of what it waits for
    as asked        it comes after those that it was asked to come after, in that order, and after
                    what they added; its handler read the result of each
    once            each hook of a job that ended so, and no other
    called off      of a cancelled flow nothing began after the cancel had returned; of a broken
                    team the breaking failures are counted, once each, and nobody is left

Each finding names the invariant, the job, the orphan class, what is wrong, and the queue.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ..model.lifecycle import FINAL, State
from .evidence import Evidence, FlowRow, JobRow

Finding = tuple[str, str, str, str, str]
Hold = tuple[str, int]

BROKEN = (State.DEAD, State.CANCELLED)
LATE = "late"  # the shape of what comes after jobs that stood already
DIES = "dies"  # the kind of a job that ends in Permanent whenever it runs


@dataclass
class Known:
    """The ledger by job, read once."""

    evidence: Evidence
    began: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    left: dict[Hold, float] = field(default_factory=dict)  # when a claim last gave a sign
    read: dict[Hold, list[object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for entry in self.evidence.ledger:
            if entry.what in ("began", "ended"):
                self.left[entry.about, entry.fence] = entry.at
            if entry.what == "began":
                self.began[entry.about].append(entry.at)
            elif entry.what == "read":
                self.read[entry.about, entry.fence] = entry.said

    @cached_property
    def redriven(self) -> Counter[str]:
        return self.evidence.redriven()

    @cached_property
    def cancels(self) -> dict[str, list[str]]:
        return self.evidence.cancels()

    def before(self, row: JobRow) -> list[JobRow]:
        rows = self.evidence.rows
        return [rows[id] for id in self.evidence.before.get(row.id, ()) if id in rows]

    def was_called_off(self, row: JobRow) -> bool:
        """Cancelled for a reason of its own, not for those before it."""
        expired = isinstance(row.error, dict) and row.error.get("type") == "Expired"
        return row.state == State.CANCELLED and (bool(self.cancels.get(row.id)) or expired)


def tied(evidence: Evidence) -> Iterator[Finding]:
    known = Known(evidence)
    for row in evidence.rows.values():
        if before := known.before(row):
            if row.state in FINAL:
                yield from _ran_or_not(row, before, known)
            yield from _in_order(row, before, known)
            yield from _told(row, before, known)
    yield from _as_asked(known)
    yield from _hooks(known)
    yield from _stopped(known)
    for flow in evidence.flows.values():
        yield from _flow(flow, evidence)
    yield from _teams(evidence)


def _ran_or_not(row: JobRow, before: list[JobRow], known: Known) -> Iterator[Finding]:
    broken = [one for one in before if one.state in BROKEN]
    if row.needs == "succeeded" and broken:
        if known.began[row.id]:
            told = f"ran although {broken[0].id}, which it needs, is {broken[0].state}"
            yield _of(row, "I3", "early", told)
        elif row.doomed and not any(one.id in str(row.error) for one in broken):
            yield _of(row, "I4", "mislabelled", "ended because of one that did not fail")
        elif not row.doomed and not known.was_called_off(row):
            told = f"is {row.state}, and {broken[0].id}, which it needs, is {broken[0].state}"
            yield _of(row, "I1", "unfired", told)
    elif row.doomed:
        told = f"is {row.state} because of one before it, and nothing that it needs failed"
        yield _of(row, "I1", "unfired", told)
    elif row.fence == 0 and not known.was_called_off(row):
        yield _of(row, "I1", "unfired", f"is {row.state}, and never ran")


def _in_order(row: JobRow, before: list[JobRow], known: Known) -> Iterator[Finding]:
    """By the clock of the ledger. Of those with a new life only the last claim is known; the owner
    of a job that was cancelled may hear of it late."""
    began = known.began.get(row.id)
    if not began or known.redriven[row.id]:
        return
    ends = [known.left.get((one.id, one.fence), 0.0) for one in before
            if one.state != State.CANCELLED and not known.redriven[one.id]]  # fmt: skip
    late = sum(at > min(began) for at in ends)
    if late > len(before) - (row.quorum or len(before)):
        yield _of(row, "I3", "early", f"began while {late} that it waits for still ran")


def _told(row: JobRow, before: list[JobRow], known: Known) -> Iterator[Finding]:
    """What the accepted claim read is what those before it came to."""
    read = known.read.get((row.id, row.fence))
    if row.state != State.SUCCEEDED or read is None or any(known.redriven[p.id] for p in before):
        return
    wanted: list[list[object] | None]
    wanted = [[one.id, one.fence] if one.state == State.SUCCEEDED else None for one in before]
    same = len(read) == len(wanted) and all(
        had == want or (row.quorum is not None and had is None) or _nameless(had, want)
        for had, want in zip(read, wanted, strict=True)
    )
    if not same:
        wrong = sum(had != want for had, want in zip(read, wanted, strict=False))
        told = f"read {len(read)} results, {wrong} of them wrong, and {len(wanted)} are before it"
        yield _of(row, "I3", "half-fanned", told)


def _nameless(had: object, want: list[object] | None) -> bool:
    """A result of a job that does not say its name."""
    return isinstance(had, list) and want is not None and had == [None, want[1]]


def _as_asked(known: Known) -> Iterator[Finding]:
    rows, added = known.evidence.rows, _added(known.evidence)
    for entry in known.evidence.entries("flow"):
        for id, _, kind, after, _ in entry.said["nodes"]:
            row = rows.get(id)
            if row is None:
                yield "I1", id, "lost", "was acknowledged in a flow, and is in no table", ""
                continue
            yield from _behaved(row, kind, known)
            there = known.evidence.before.get(id, [])
            extra = {child for one in there for child in added.get(one, ())}
            more = set(there[len(after) :])
            # Who had ended before they were added, or came later, does not wait for them.
            all_of_it = row.fence > 0 and row.quorum is None and entry.said["shape"] != LATE
            if there[: len(after)] != after or more - extra or (all_of_it and extra - more):
                told = f"comes after {len(there)} jobs, and was asked to after {len(after)}"
                yield _of(row, "I1", "half-fanned", f"{told} and the {len(extra)} that they added")


def _added(evidence: Evidence) -> dict[str, list[str]]:
    """What the accepted claim of each job enqueued with `join`."""
    found: dict[str, list[str]] = defaultdict(list)
    for row in evidence.rows.values():
        args = row.args if isinstance(row.args, dict) else {}
        if args.get("joined"):
            found[args["parent"]].append(row.id)
    return found


def _behaved(row: JobRow, kind: str, known: Known) -> Iterator[Finding]:
    """A job that could run ended as its handler does."""
    if kind and row.state in FINAL and not row.doomed and not known.was_called_off(row):
        wanted = State.DEAD if kind == DIES else State.SUCCEEDED
        if row.state != wanted:
            yield _of(row, "I1", "mislabelled", f"is {row.state}, and its handler ends {wanted}")


def _hooks(known: Known) -> Iterator[Finding]:
    made: Counter[tuple[str, str]] = Counter()
    for row in known.evidence.rows.values():
        if isinstance(row.args, dict) and row.args.get("hook_of"):
            made[row.args["hook_of"], row.args["on"]] += 1
    for entry in known.evidence.entries("flow"):
        for id, tag, _, _, hooks in entry.said["nodes"]:
            row_ = known.evidence.rows.get(id)
            if row_ is None:
                continue
            for on in (State.SUCCEEDED, State.DEAD, State.CANCELLED):
                wanted = int(on in hooks and row_.state == on)
                if made[tag, on] != wanted:
                    told = f"is {row_.state}, and has {made[tag, on]} of {wanted} hooks for {on}"
                    yield _of(row_, "I3", "unhooked" if wanted else "zombie", told)


def _stopped(known: Known) -> Iterator[Finding]:
    """When a cancel had returned, these claims there had been of its jobs; there are no others."""
    members: dict[str, list[JobRow]] = defaultdict(list)
    for row in known.evidence.rows.values():
        if row.flow:
            members[row.flow].append(row)
    for entry in known.evidence.entries("stopped"):
        for row in members.get(entry.about, ()):
            fence = entry.said.get(row.id)
            if fence is None:
                yield _of(row, "I3", "uncancelled", "was added to a flow that was cancelled")
            elif row.fence != fence and not known.redriven[row.id]:
                told = f"claim {row.fence} began after its flow was cancelled, at claim {fence}"
                yield _of(row, "I3", "uncancelled", told)


def _flow(flow: FlowRow, evidence: Evidence) -> Iterator[Finding]:
    """Who goes on with what is cancelled came to its end; a part belongs to what is there."""
    if flow.cancelled != flow.settled:
        told = "was cancelled, and nobody saw its end" if flow.cancelled else "has an end of none"
        yield "I1", flow.id, "uncancelled", f"flow {told}", ""
    if flow.part_of is not None and flow.part_of not in evidence.flows:
        yield "I5", flow.id, "left-behind", "is part of a flow that is gone", ""


def _teams(evidence: Evidence) -> Iterator[Finding]:
    """So many failures break a team; who was cancelled by that is no further one."""
    members: dict[str, list[JobRow]] = defaultdict(list)
    for row in evidence.rows.values():
        if row.flow and row.flow not in evidence.flows:
            yield _of(row, "I5", "left-behind", "belongs to a flow that is gone")
        if row.team:
            members[row.team].append(row)
    redriven = evidence.redriven()
    for id, rows in members.items():
        team = evidence.flows.get(id)
        if team is None or any(redriven[row.id] for row in rows):
            continue
        failed = [row for row in rows if row.state in BROKEN]
        own = [row for row in failed if not _by_the_break(row, team)]
        if team.cancelled != (len(failed) >= (team.fail_after or 1)):
            how = "broken" if team.cancelled else "whole"
            told = f"its team of {len(rows)} is {how} after {len(failed)} failures"
            yield _of(rows[0], "I1", "uncancelled", f"{told}, at most {team.fail_after}")
        elif team.failed > len(own) or (not team.cancelled and team.failed != len(own)):
            told = f"its team counts {team.failed} failures, and {len(own)} were before its end"
            yield _of(rows[0], "I4", "miscounted", told)


def _by_the_break(row: JobRow, team: FlowRow) -> bool:
    message = row.error.get("message") if isinstance(row.error, dict) else None
    return row.state == State.CANCELLED and message == team.reason


def _of(row: JobRow, invariant: str, orphan: str, told: str) -> Finding:
    return invariant, row.id, orphan, told, row.queue
