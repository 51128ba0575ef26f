"""I3 for durable steps, and for handlers' own writes that commit with a completion."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ...model.lifecycle import State
from ..ledger import LedgerEntry
from .evidence import Evidence

StepFinding = tuple[str, str, str]  # the job, the orphan class, and the message


def wrong_step_results(evidence: Evidence) -> Iterator[StepFinding]:
    """Steps that are stored for another claim than the one that ran it, or reported wrongly."""
    done = {(entry.subject, entry.fence, entry.data) for entry in evidence.entries("did")}
    for (job, name), step in evidence.steps.items():
        owner = step.result.get("fence") if isinstance(step.result, dict) else None
        if (job, step.fence, name) not in done:
            yield job, "unstarted", f"claim {step.fence} stored the step {name}, and never ran it"
        elif owner != step.fence:
            yield job, "zombie", f"the step {name} of claim {owner} is stored as of {step.fence}"
    for entry in evidence.entries("stepped"):
        name, accepted = entry.data
        found = evidence.steps.get((entry.subject, name))
        ours = found is not None and found.fence == entry.fence
        if entry.subject in evidence.rows and ours != accepted:
            answer = "kept" if accepted else "refused"
            message = (
                f"claim {entry.fence} was told that its step {name} is {answer}, which is wrong"
            )
            yield entry.subject, "zombie", message


def repeated_steps(evidence: Evidence) -> Iterator[StepFinding]:
    """Steps that ran again although they were reported as stored."""
    known: dict[tuple[str, str], float] = {}
    for entry in evidence.entries("stepped"):
        name, accepted = entry.data
        if accepted:
            known.setdefault((entry.subject, name), entry.at)
    for entry in evidence.entries("did"):
        if entry.at > known.get((entry.subject, entry.data), entry.at):
            yield entry.subject, "repeated", f"the step {entry.data} was stored, and ran again"


def wrong_completion_writes(evidence: Evidence) -> Iterator[StepFinding]:
    """Handlers' own writes that do not exist once for each succeeded claim. A late claim may have
    succeeded before, without them."""
    written: dict[tuple[str, int], list[LedgerEntry]] = defaultdict(list)
    for entry in evidence.entries("wrote"):
        written[entry.subject, entry.fence].append(entry)
    for (job, fence), entries in written.items():
        row = evidence.rows.get(job)
        if row is None:
            continue
        stand = sum(entry.data[0] in evidence.business_rows for entry in entries)
        most = int(row.state == State.SUCCEEDED and row.fence == fence)
        least = most if any(entry.data[1] for entry in entries) else 0
        if not least <= stand <= most:
            orphan = "unhooked" if stand < least else "zombie"
            yield job, orphan, f"{stand} writes of claim {fence} stand, and should be {most}"
