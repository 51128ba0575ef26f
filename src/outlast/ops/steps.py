"""Results of steps: looked up by later attempts, stored while the claim holds."""

from __future__ import annotations

from ..model.claim import Claim
from ..model.errors import ClaimLost
from .operation import Op, Rows, Statement


def look_up(job: str, name: str) -> Op[str | None]:
    """The stored JSON text of a step, or None."""
    rows: Rows = yield Statement("step", {"job": job, "name": name})
    return rows[0][0] if rows else None


def keep(claim: Claim, name: str, result: str) -> Op[str]:
    """Store the result of a step and return the stored text; after a lost response it is stored
    once."""
    given = {"job": claim.id, "offered_by": None, **claim.guard, "name": name, "result": result}
    rows: Rows = yield Statement("keep_step", given)
    if not rows:
        raise ClaimLost(job=claim.id)
    return str(rows[0][0])
