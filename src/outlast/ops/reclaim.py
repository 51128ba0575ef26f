"""Jobs whose owner is gone are taken back: by anyone, guarded, through the same door as a finish.

claim            renew     renew      (owner dies)          lease ends
├─────────────────┼─────────┼───────────────✝───────────────────┤ reclaim ─▶ ready
running                                                          crashes + 1
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model.job import Claim
from ..model.lifecycle import Outcome, State
from ..model.outcome import Transition, crashed
from ..model.text import brief
from .finish import finish
from .statement import BEGIN, Op, Rows, Statement


@dataclass(slots=True)
class Swept:
    """What a pass over lost claims did."""

    found: int = 0
    healed: int = 0
    failed: int = 0
    dead: int = 0
    queues: set[str] = field(default_factory=set)


def any_lost() -> Op[bool]:
    """Is there anything to take back? Reads one index entry and locks nothing."""
    rows: Rows = yield Statement("any_lost")
    return bool(rows)


def reclaim(limit: int = 500, skip: int = 0) -> Op[Swept]:
    """Take back jobs whose lease ran out."""
    yield BEGIN
    rows: Rows = yield Statement("lost", {"limit": limit, "skip": skip})
    lost = [_taken_back(Claim(*claim), bool(cancelling)) for *claim, cancelling, _ in rows]
    swept = Swept(found=len(lost))
    if lost:
        finished = yield from finish(lost)
        swept.healed = len(finished.accepted)
        swept.dead = sum(state is State.DEAD for _, state in finished.accepted)
        swept.queues = {t.claim.queue for t, state in finished.accepted if state is State.READY}
    return swept


def _taken_back(claim: Claim, cancelling: bool) -> Transition:
    """A row too broken to tell what should become of it goes dead, and holds up no other."""
    try:
        return crashed(claim, cancelling=cancelling, error=_evidence(claim))
    except TypeError as error:
        told = {"type": "Undecodable", "message": f"its row cannot be read: {brief(error)}"}
        return Transition(claim, Outcome.UNDECODABLE, State.DEAD, error=told, crashes=1)


def _evidence(claim: Claim) -> dict[str, str]:
    return {
        "type": "WorkerLost",
        "message": f"worker {claim.worker} stopped renewing attempt {claim.attempt}"
        f" (lost worker {claim.crashes + 1} of at most {claim.max_crashes})",
        "traceback": "",
    }
