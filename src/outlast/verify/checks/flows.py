"""Checks of flows: compare the tables with the ledger.

    ran or not      a follower ran if, and only if, its prerequisites ended as required; otherwise
                    it is dead, and names one of them that did not succeed
    in order        no claim of it started before the end of its prerequisites
    as requested    it has the requested prerequisites, in that order, and the jobs that they added;
                    its handler read the result of each
    once            each hook for the job's final state was enqueued, and no other
    cancelled       no job of a cancelled flow started after the cancel had returned; in a failed
                    group the failures are counted, once each, and no job is left

Each finding names the invariant, the job, the orphan class, the problem, and the queue.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ...model.lifecycle import FINAL, State
from .evidence import Evidence, FlowRow, JobRow

FlowFinding = tuple[str, str, str, str, str]
ClaimKey = tuple[str, int]

FAILED_STATES = (State.DEAD, State.CANCELLED)
LATE_SHAPE = "late"  # the shape of jobs after existing ones
DYING_KIND = "dies"  # the kind of a job that always ends in Permanent


@dataclass
class LedgerIndex:
    """The ledger by job, read once."""

    evidence: Evidence
    began: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    last_sign_at: dict[ClaimKey, float] = field(default_factory=dict)  # last entry of a claim
    read: dict[ClaimKey, list[object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for entry in self.evidence.ledger:
            if entry.kind in ("began", "ended"):
                self.last_sign_at[entry.subject, entry.fence] = entry.at
            if entry.kind == "began":
                self.began[entry.subject].append(entry.at)
            elif entry.kind == "read":
                self.read[entry.subject, entry.fence] = entry.data

    @cached_property
    def redriven(self) -> Counter[str]:
        return self.evidence.redriven()

    @cached_property
    def cancels(self) -> dict[str, list[str]]:
        return self.evidence.cancels()

    def before(self, row: JobRow) -> list[JobRow]:
        rows = self.evidence.rows
        return [rows[id] for id in self.evidence.before.get(row.id, ()) if id in rows]

    def was_cancelled(self, row: JobRow) -> bool:
        """Cancelled for a reason of its own, not because of a prerequisite."""
        expired = isinstance(row.error, dict) and row.error.get("type") == "Expired"
        return row.state == State.CANCELLED and (bool(self.cancels.get(row.id)) or expired)


def flow_findings(evidence: Evidence) -> Iterator[FlowFinding]:
    known = LedgerIndex(evidence)
    for row in evidence.rows.values():
        if before := known.before(row):
            if row.state in FINAL:
                yield from _wrong_runs(row, before, known)
            yield from _early_starts(row, before, known)
            yield from _wrong_results(row, before, known)
    yield from _wrong_graph(known)
    yield from _wrong_hooks(known)
    yield from _claims_after_cancel(known)
    for flow in evidence.flows.values():
        yield from _unsettled_flow(flow, evidence)
    yield from _wrong_fail_groups(evidence)


def _wrong_runs(row: JobRow, before: list[JobRow], known: LedgerIndex) -> Iterator[FlowFinding]:
    broken = [one for one in before if one.state in FAILED_STATES]
    if row.needs == "succeeded" and broken:
        if known.began[row.id]:
            message = f"ran although {broken[0].id}, which it needs, is {broken[0].state}"
            yield _finding(row, "I3", "early", message)
        elif row.failed_by_prerequisite and not any(one.id in str(row.error) for one in broken):
            yield _finding(row, "I4", "mislabelled", "ended because of one that did not fail")
        elif not row.failed_by_prerequisite and not known.was_cancelled(row):
            message = f"is {row.state}, and {broken[0].id}, which it needs, is {broken[0].state}"
            yield _finding(row, "I1", "unfired", message)
    elif row.failed_by_prerequisite:
        message = f"is {row.state} because of one before it, and nothing that it needs failed"
        yield _finding(row, "I1", "unfired", message)
    elif row.fence == 0 and not known.was_cancelled(row):
        yield _finding(row, "I1", "unfired", f"is {row.state}, and never ran")


def _early_starts(row: JobRow, before: list[JobRow], known: LedgerIndex) -> Iterator[FlowFinding]:
    """Claims that began before the end of a prerequisite, by the clock of the ledger. Of redriven
    jobs only the last claim is known; the owner of a cancelled job may notice late."""
    began = known.began.get(row.id)
    if not began or known.redriven[row.id]:
        return
    ends = [known.last_sign_at.get((one.id, one.fence), 0.0) for one in before
            if one.state != State.CANCELLED and not known.redriven[one.id]]  # fmt: skip
    late = sum(at > min(began) for at in ends)
    if late > len(before) - (row.quorum or len(before)):
        yield _finding(row, "I3", "early", f"began while {late} that it waits for still ran")


def _wrong_results(row: JobRow, before: list[JobRow], known: LedgerIndex) -> Iterator[FlowFinding]:
    """Jobs whose accepted claim read other results than those of its prerequisites."""
    read = known.read.get((row.id, row.fence))
    if row.state != State.SUCCEEDED or read is None or any(known.redriven[p.id] for p in before):
        return
    expected: list[list[object] | None]
    expected = [[one.id, one.fence] if one.state == State.SUCCEEDED else None for one in before]
    same = len(read) == len(expected) and all(
        had == expected_result
        or (row.quorum is not None and had is None)
        or _is_unidentified(had, expected_result)
        for had, expected_result in zip(read, expected, strict=True)
    )
    if not same:
        wrong = sum(
            had != expected_result for had, expected_result in zip(read, expected, strict=False)
        )
        message = (
            f"read {len(read)} results, {wrong} of them wrong, and {len(expected)} are before it"
        )
        yield _finding(row, "I3", "half-fanned", message)


def _is_unidentified(had: object, expected: list[object] | None) -> bool:
    """Whether a result does not name its job."""
    return isinstance(had, list) and expected is not None and had == [None, expected[1]]


def _wrong_graph(known: LedgerIndex) -> Iterator[FlowFinding]:
    rows, added = known.evidence.rows, _added(known.evidence)
    for entry in known.evidence.entries("flow"):
        for id, _, kind, after, _ in entry.data["nodes"]:
            row = rows.get(id)
            if row is None:
                yield "I1", id, "lost", "was acknowledged in a flow, and is not in the table", ""
                continue
            yield from _wrong_end(row, kind, known)
            there = known.evidence.before.get(id, [])
            extra = {child for one in there for child in added.get(one, ())}
            more = set(there[len(after) :])
            # Dependents that had ended, or were added later, do not wait for them.
            all_of_it = row.fence > 0 and row.quorum is None and entry.data["shape"] != LATE_SHAPE
            if there[: len(after)] != after or more - extra or (all_of_it and extra - more):
                message = f"comes after {len(there)} jobs, and was asked to after {len(after)}"
                yield _finding(
                    row, "I1", "half-fanned", f"{message} and the {len(extra)} that they added"
                )


def _added(evidence: Evidence) -> dict[str, list[str]]:
    """The jobs that the accepted claim of each job enqueued with `join`."""
    found: dict[str, list[str]] = defaultdict(list)
    for row in evidence.rows.values():
        args = row.args if isinstance(row.args, dict) else {}
        if args.get("joined"):
            found[args["parent"]].append(row.id)
    return found


def _wrong_end(row: JobRow, kind: str, known: LedgerIndex) -> Iterator[FlowFinding]:
    """Jobs that could run, and ended in another way than their handlers."""
    if (
        kind
        and row.state in FINAL
        and not row.failed_by_prerequisite
        and not known.was_cancelled(row)
    ):
        expected = State.DEAD if kind == DYING_KIND else State.SUCCEEDED
        if row.state != expected:
            yield _finding(
                row, "I1", "mislabelled", f"is {row.state}, and its handler ends {expected}"
            )


def _wrong_hooks(known: LedgerIndex) -> Iterator[FlowFinding]:
    made: Counter[tuple[str, str]] = Counter()
    for row in known.evidence.rows.values():
        if isinstance(row.args, dict) and row.args.get("hook_of"):
            made[row.args["hook_of"], row.args["on"]] += 1
    for entry in known.evidence.entries("flow"):
        for id, tag, _, _, hooks in entry.data["nodes"]:
            row_ = known.evidence.rows.get(id)
            if row_ is None:
                continue
            for on in (State.SUCCEEDED, State.DEAD, State.CANCELLED):
                expected = int(on in hooks and row_.state == on)
                if made[tag, on] != expected:
                    message = (
                        f"is {row_.state}, and has {made[tag, on]} of {expected} hooks for {on}"
                    )
                    yield _finding(row_, "I3", "unhooked" if expected else "zombie", message)


def _claims_after_cancel(known: LedgerIndex) -> Iterator[FlowFinding]:
    """Claims of a cancelled flow that started after the cancel had returned."""
    members: dict[str, list[JobRow]] = defaultdict(list)
    for row in known.evidence.rows.values():
        if row.flow:
            members[row.flow].append(row)
    for entry in known.evidence.entries("stopped"):
        for row in members.get(entry.subject, ()):
            fence = entry.data.get(row.id)
            if fence is None:
                yield _finding(row, "I3", "uncancelled", "was added to a flow that was cancelled")
            elif row.fence != fence and not known.redriven[row.id]:
                message = (
                    f"claim {row.fence} started after its flow was cancelled, at claim {fence}"
                )
                yield _finding(row, "I3", "uncancelled", message)


def _unsettled_flow(flow: FlowRow, evidence: Evidence) -> Iterator[FlowFinding]:
    """Unfinished cancels, and groups whose flow is gone."""
    if flow.cancelled != flow.settled:
        message = (
            "was cancelled, and its end is not recorded"
            if flow.cancelled
            else "has a recorded end without a cancel"
        )
        yield "I1", flow.id, "uncancelled", f"flow {message}", ""
    if flow.part_of is not None and flow.part_of not in evidence.flows:
        yield "I5", flow.id, "left-behind", "is part of a flow that is gone", ""


def _wrong_fail_groups(evidence: Evidence) -> Iterator[FlowFinding]:
    """Groups that were not failed by their limit of failures, or counted them wrongly; jobs that
    were cancelled with the group do not count."""
    members: dict[str, list[JobRow]] = defaultdict(list)
    for row in evidence.rows.values():
        if row.flow and row.flow not in evidence.flows:
            yield _finding(row, "I5", "left-behind", "belongs to a flow that is gone")
        if row.team:
            members[row.team].append(row)
    redriven = evidence.redriven()
    for id, rows in members.items():
        group = evidence.flows.get(id)
        if group is None or any(redriven[row.id] for row in rows):
            continue
        failed = [row for row in rows if row.state in FAILED_STATES]
        own = [row for row in failed if not _cancelled_by_group(row, group)]
        if group.cancelled != (len(failed) >= (group.fail_after or 1)):
            how = "broken" if group.cancelled else "whole"
            message = f"its team of {len(rows)} is {how} after {len(failed)} failures"
            yield _finding(rows[0], "I1", "uncancelled", f"{message}, at most {group.fail_after}")
        elif group.failed > len(own) or (not group.cancelled and group.failed != len(own)):
            message = f"its team counts {group.failed} failures, and {len(own)} were before its end"
            yield _finding(rows[0], "I4", "miscounted", message)


def _cancelled_by_group(row: JobRow, group: FlowRow) -> bool:
    message = row.error.get("message") if isinstance(row.error, dict) else None
    return row.state == State.CANCELLED and message == group.reason


def _finding(row: JobRow, invariant: str, orphan: str, message: str) -> FlowFinding:
    return invariant, row.id, orphan, message, row.queue
