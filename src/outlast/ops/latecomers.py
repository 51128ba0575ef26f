"""Jobs that came after standing ones in a caller's own transaction.

That transaction may have stayed open for long, and could not hold the rows of jobs that run
meanwhile. So the newcomer is only marked; once it has come, any worker ties it to those it comes
after and counts which of them have ended. From then on they tell it, as they tell everyone.
"""

from __future__ import annotations

import json

from .consequences import heard
from .flows import recount
from .reclaim import Swept
from .statement import BEGIN, Op, Rows, Statement


def count_late(limit: int = 100, skip: int = 0) -> Op[Swept]:
    """Count a few of them, beyond those that were found to be in the way; also says in which queues
    something became ready. Those they come after are held first, and then they, as by whoever ends
    a job."""
    yield BEGIN
    found: Rows = yield Statement("find_late", {"limit": limit, "skip": skip})
    if not found:
        return Swept()
    before = {"ids": json.dumps(sorted({job for _, job in found if job}))}
    yield Statement("hold_prerequisites", before)
    yield Statement("tie", before)
    ids = sorted({id for id, _ in found})
    held: Rows = yield Statement("hold_late", {"ids": json.dumps(ids)})
    late = [id for (id,) in held]
    yield Statement("no_longer_late", {"ids": json.dumps(late)})
    queues = yield from heard([], (yield from recount(late)))
    return Swept(found=len(ids), healed=len(late), skipped=len(ids) - len(late), queues=queues)
