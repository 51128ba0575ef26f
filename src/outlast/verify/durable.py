"""I3, of what handlers keep by themselves: steps, and writes that commit with a completion."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..model.lifecycle import State
from .evidence import Evidence
from .ledger import Entry

Complaint = tuple[str, str, str]  # the job, the orphan class, and what is wrong


def kept(evidence: Evidence) -> Iterator[Complaint]:
    """A step is kept for the claim that did it, and told of as it is."""
    done = {(entry.about, entry.fence, entry.said) for entry in evidence.entries("did")}
    for (job, name), step in evidence.steps.items():
        doer = step.result.get("fence") if isinstance(step.result, dict) else None
        if (job, step.fence, name) not in done:
            yield job, "unstarted", f"claim {step.fence} kept the step {name}, and never did it"
        elif doer != step.fence:
            yield job, "zombie", f"the step {name} of claim {doer} is kept as of {step.fence}"
    for entry in evidence.entries("stepped"):
        name, accepted = entry.said
        found = evidence.steps.get((entry.about, name))
        ours = found is not None and found.fence == entry.fence
        if entry.about in evidence.rows and ours != accepted:
            said = "kept" if accepted else "refused"
            told = f"claim {entry.fence} was told that its step {name} is {said}, and it is not so"
            yield entry.about, "zombie", told


def done_once(evidence: Evidence) -> Iterator[Complaint]:
    """What somebody was told to be kept is not done again."""
    known: dict[tuple[str, str], float] = {}
    for entry in evidence.entries("stepped"):
        name, accepted = entry.said
        if accepted:
            known.setdefault((entry.about, name), entry.at)
    for entry in evidence.entries("did"):
        if entry.at > known.get((entry.about, entry.said), entry.at):
            yield entry.about, "repeated", f"the step {entry.said} was kept, and done once more"


def completed(evidence: Evidence) -> Iterator[Complaint]:
    """What a claim wrote of its own stands, once, if it was that claim that succeeded, and else
    not. One that comes too late may have succeeded before, without it."""
    written: dict[tuple[str, int], list[Entry]] = defaultdict(list)
    for entry in evidence.entries("wrote"):
        written[entry.about, entry.fence].append(entry)
    for (job, fence), entries in written.items():
        row = evidence.rows.get(job)
        if row is None:
            continue
        stand = sum(entry.said[0] in evidence.business for entry in entries)
        most = int(row.state == State.SUCCEEDED and row.fence == fence)
        least = most if any(entry.said[1] for entry in entries) else 0
        if not least <= stand <= most:
            orphan = "unhooked" if stand < least else "zombie"
            yield job, orphan, f"{stand} writes of claim {fence} stand, and should be {most}"
