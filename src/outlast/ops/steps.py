"""What a job's steps gave: looked up by a later attempt, kept while a claim holds."""

from __future__ import annotations

from ..model.errors import ClaimLost
from ..model.job import Hold
from .statement import Op, Rows, Statement


def look_up(job: str, name: str) -> Op[str | None]:
    """The kept JSON text of a step, or None."""
    rows: Rows = yield Statement("step", {"job": job, "name": name})
    return rows[0][0] if rows else None


def keep(hold: Hold, name: str, result: str) -> Op[str]:
    """Keep what a step gave, and say what is kept; one whose first answer got lost is kept once."""
    job, fence = hold
    given = {"job": job, "fence": fence, "name": name, "result": result}
    rows: Rows = yield Statement("keep_step", given)
    if not rows:
        raise ClaimLost(job=job)
    return str(rows[0][0])
