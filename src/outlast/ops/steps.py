"""Results of steps: looked up by later attempts, stored while the claim holds."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.claim import Claim, ClaimEvent
from ..model.errors import ClaimLost
from .operation import Op, Pipeline, Rows, Statement
from .streams import stream_statements


def look_up(job: str, name: str) -> Op[str | None]:
    """The stored JSON text of a step, or None."""
    rows: Rows = yield Statement("step", {"job": job, "name": name})
    return rows[0][0] if rows else None


def keep(
    claim: Claim,
    name: str,
    result: str,
    output: Sequence[ClaimEvent] = (),
    stream_limit: int = 0,
) -> Op[str]:
    """Store the result of a step and return the stored text; after a lost response it is stored
    once. `output` is what the claim has streamed and may not be stored yet: it goes in the same
    transaction, because a stored step is not called again and would not stream it again."""
    given = {"job": claim.id, "offered_by": None, **claim.guard, "name": name, "result": result}
    keeping = Statement("keep_step", given)
    rows: Rows
    if output:
        *_, rows = yield Pipeline([*stream_statements(output, stream_limit), keeping])
    else:
        rows = yield keeping
    if not rows:
        raise ClaimLost(job=claim.id)
    return str(rows[0][0])
