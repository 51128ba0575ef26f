"""The page of workers: who works, and on what. They serve all tenants."""

from __future__ import annotations

from starlette.responses import Response

from ...model.offer import is_offer
from ...ops import board, report
from ..calls import Call
from .pages import page, seen

SHOWN = 20  # jobs of one worker


async def workers_page(call: Call) -> Response:
    found = await call.ol.store.arun(report.workers)
    queues = call.who.queues
    workers = [one for one in found if queues is None or any(one.serves(queue) for queue in queues)]
    held = await call.ol.store.arun(board.held, call.reach)
    known = {worker.id for worker in workers}
    others = {id: jobs for id, jobs in held.items() if id not in known} if queues is None else {}
    return await page(
        call,
        "workers.html",
        workers=sorted(workers, key=lambda one: (not one.alive, one.host, one.pid)),
        held=held,
        strays={id: jobs for id, jobs in others.items() if not is_offer(id)},
        offered=[job for id, jobs in others.items() if is_offer(id) for job in jobs],
        shown=SHOWN,
    )


ROUTES = (seen("/workers", workers_page, "Workers, and what they run", everyone=True),)
