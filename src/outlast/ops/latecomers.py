"""Jobs that came after standing ones in a caller's own transaction.

That transaction may have stayed open for long, and could not hold the rows of jobs that run
meanwhile. So the newcomer is only marked; once it has come, any worker ties it to those it comes
after and counts which of them have ended. From then on they tell it, as they tell everyone.
"""

from __future__ import annotations

import json

from .dependents import apply_counted
from .flow_links import recount
from .operation import BEGIN, Op, Rows, Statement
from .reclaim import ReclaimResult


def link_deferred(limit: int = 100, skip: int = 0) -> Op[ReclaimResult]:
    """Count a few of them, beyond those that were found to be in the way; also says in which queues
    something became ready. Those they come after are held first, and then they, as by whoever ends
    a job."""
    yield BEGIN
    found: Rows = yield Statement("find_unlinked", {"limit": limit, "skip": skip})
    if not found:
        return ReclaimResult()
    before = {"ids": json.dumps(sorted({job for _, job in found if job}))}
    yield Statement("hold_prerequisites", before)
    yield Statement("mark_has_dependents", before)
    ids = sorted({id for id, _ in found})
    held: Rows = yield Statement("hold_unlinked", {"ids": json.dumps(ids)})
    unlinked = [id for (id,) in held]
    yield Statement("mark_linked", {"ids": json.dumps(unlinked)})
    queues = yield from apply_counted([], (yield from recount(unlinked)))
    return ReclaimResult(
        found=len(ids), healed=len(unlinked), skipped=len(ids) - len(unlinked), queues=queues
    )
