"""Check the counters of waiting jobs: right after the faults, before the audit repairs anything,
and again at the end.

A job's end decrements the counters of its dependents in the same transaction. So, wherever a
process dies, no job ever waits for something that has already happened, or for a wrong number; an
audit that finds such a job has found a hole in the protocol, even if it repairs it. The one
exception is marked in its row: a job whose prerequisites are linked after its insert.

Each finding names the job, the orphan class, the problem, and the queue.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...model.lifecycle import FINAL, State
from ...model.wait_check import DEAF, FAULTS, MISCOUNTED, UNFIRED
from .evidence import Evidence, JobRow

UNWOKEN = "unwoken"  # a handler waits for something that has already happened

WaitFinding = tuple[str, str, str, str]


def wrong_waits(evidence: Evidence) -> Iterator[WaitFinding]:
    """Jobs that wait for nothing, or with a wrong count, in tables that do not change."""
    for row in evidence.rows.values():
        if (
            row.state == State.WAITING
            and not row.unlinked
            and row.waits_for  # otherwise a wait of its handler
            and (fault := _wait_error(row, evidence))
        ):
            yield row.id, *fault, row.queue


def _wait_error(row: JobRow, evidence: Evidence) -> tuple[str, str] | None:
    """The fault of a waiting job, if any; a deleted prerequisite counts as not succeeded."""
    before = {id: evidence.rows.get(id) for id in evidence.before.get(row.id, ())}
    ended = {id: one.state if one else "gone" for id, one in before.items()
             if one is None or one.state in FINAL}  # fmt: skip
    broken = [f"{id} is {state}" for id, state in ended.items() if state != State.SUCCEEDED]
    if row.needs == "succeeded" and broken:
        return DEAF, f"waits, and {broken[0]}, whose success it needs"
    missing = min(row.quorum or len(before), len(before)) - len(ended)
    if missing <= 0:
        return UNFIRED, f"waits, and {len(ended)} of the {len(before)} before it have ended"
    if row.waits_for != missing:
        return MISCOUNTED, f"waits for {row.waits_for} more, and should for {missing}"
    return None


def repaired_waits(evidence: Evidence) -> Iterator[WaitFinding]:
    """Findings of audits, possibly repaired; an audit records no ids."""
    for fault in (*FAULTS, UNWOKEN):
        if number := evidence.audited.get(fault, 0):
            yield "some job", fault, f"an audit found {number} such jobs", ""
