"""Jobs that came after standing ones in a caller's own transaction.

That transaction may have stayed open for long, and could not hold the rows of jobs that run
meanwhile. So the newcomer is only marked; once it has come, any worker ties it to those it comes
after and counts which of them have ended. From then on they tell it, as they tell everyone.
"""

from __future__ import annotations

import json

from .consequences import heard
from .flows import recount
from .statement import BEGIN, Op, Rows, Statement


def count_late(limit: int = 100) -> Op[tuple[int, set[str]]]:
    """Count a few of them: how many there were, and the queues in which something became ready.
    Those they come after are held first, and then they, as by whoever ends a job."""
    yield BEGIN
    found: Rows = yield Statement("find_late", {"limit": limit})
    if not found:
        return 0, set()
    before = {"ids": json.dumps(sorted({job for _, job in found if job}))}
    yield Statement("hold_prerequisites", before)
    yield Statement("tie", before)
    ids = sorted({id for id, _ in found})
    held: Rows = yield Statement("hold_late", {"ids": json.dumps(ids)})
    ids = [id for (id,) in held]
    yield Statement("no_longer_late", {"ids": json.dumps(ids)})
    return len(ids), (yield from heard([], (yield from recount(ids))))
