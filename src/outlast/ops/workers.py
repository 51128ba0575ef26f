"""A worker goes: whatever the database still says it owns is put back, and its card taken down."""

from __future__ import annotations

from ..model.job import Claim
from ..model.outcome import release
from .finish import finish
from .operation import BEGIN, Op, Rows, Statement


def deregister(worker: str) -> Op[int]:
    """Release what was claimed and never reached our hands; say goodbye."""
    yield BEGIN
    rows: Rows = yield Statement("owned", {"worker": worker})
    if rows:
        yield from finish([release(Claim(*row)) for row in rows])
    yield Statement("deregister_worker", {"id": worker})
    return len(rows)
