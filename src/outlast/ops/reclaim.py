"""Jobs whose owner is gone are taken back: by anyone, guarded, through the same door as a finish.

claim            renew     renew      (owner dies)          lease ends
├─────────────────┼─────────┼───────────────✝───────────────────┤ reclaim ─▶ ready
running                                                          crashes + 1
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model.job import Claim
from ..model.lifecycle import State
from ..model.outcome import crashed
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
    lost = [
        crashed(claim, cancelling=bool(cancelling), error=_evidence(claim))
        for claim, cancelling in ((Claim(*row[:-2]), row[-2]) for row in rows)
    ]
    swept = Swept(found=len(lost))
    if lost:
        finished = yield from finish(lost)
        swept.healed = len(finished.accepted)
        swept.dead = sum(state is State.DEAD for _, state in finished.accepted)
        swept.queues = {t.claim.queue for t, state in finished.accepted if state is State.READY}
    return swept


def _evidence(claim: Claim) -> dict[str, str]:
    return {
        "type": "WorkerLost",
        "message": f"worker {claim.worker} stopped renewing attempt {claim.attempt}"
        f" (lost worker {claim.crashes + 1} of at most {claim.max_crashes})",
        "traceback": "",
    }
