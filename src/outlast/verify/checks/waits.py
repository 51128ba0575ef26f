"""Waiting jobs whose counter is wrong: checked right after the faults, before the audit has
repaired anything, and again at the end.

Whoever ends a job counts it off in the same transaction. So at no moment, wherever somebody dies,
does a job wait for what has happened, or for another number than there is to wait for; and an audit
that finds one has found a hole in the protocol, however well it heals it. The one exception is
marked: who came late is counted when it has come.

Each finding names the job, the orphan class, what is wrong, and the queue.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...model.lifecycle import FINAL, State
from ...model.wait_check import DEAF, FAULTS, MISCOUNTED, UNFIRED
from .evidence import Evidence, JobRow

WaitFinding = tuple[str, str, str, str]


def wrong_waits(evidence: Evidence) -> Iterator[WaitFinding]:
    """Who waits in vain, or by a wrong count, in tables that nobody is changing."""
    for row in evidence.rows.values():
        if (
            row.state == State.WAITING
            and not row.unlinked
            and (fault := _wait_error(row, evidence))
        ):
            yield row.id, *fault, row.queue


def _wait_error(row: JobRow, evidence: Evidence) -> tuple[str, str] | None:
    """What is not there any more did not succeed."""
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
    """What an audit found, and healed perhaps. It kept no names."""
    for fault in FAULTS:
        if number := evidence.audited.get(fault, 0):
            yield "some job", fault, f"an audit found {number} that waited so", ""
