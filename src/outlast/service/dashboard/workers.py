"""The page of workers: who works, and on what. They serve all tenants."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from ...model.errors import WorkerNotFound
from ...model.offer import is_offer, is_remote
from ...model.tokens import Scope
from ...ops import board, report
from ..api.asked import WorkerBody
from ..api.workers import drain_worker, need_all_queues, undrain_worker
from ..calls import Call
from .acting import Question, ask, done, form, refused
from .pages import acts, page, seen

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
        may_drain=call.who.may(Scope.ADMIN) and queues is None,
        is_remote=is_remote,
    )


async def ask_drain_worker(call: Call) -> Response:
    consequence = (
        "It claims no more jobs; what it runs goes on to its end. It stays until it is stopped, and"
        " then nothing is interrupted. Until then it can be told to claim again."
    )
    return await _ask(call, "Drain the worker {}?", consequence, "drain")


async def ask_undrain_worker(call: Call) -> Response:
    return await _ask(
        call, "Let the worker {} claim again?", "It claims jobs as before.", "undrain"
    )


async def do_drain_worker(call: Call) -> Response:
    return await _told(call, True)


async def do_undrain_worker(call: Call) -> Response:
    return await _told(call, False)


async def _ask(call: Call, title: str, consequence: str, verb: str) -> Response:
    need_all_queues(call)
    asked: WorkerBody = call.query
    question = Question(
        title=title.format(asked.worker),
        consequence=consequence,
        button="Drain it" if verb == "drain" else "Let it claim",
        path=f"/workers/{verb}",
        back="/workers",
        fields={"worker": asked.worker},
    )
    return await ask(call, question)


async def _told(call: Call, draining: bool) -> Response:
    asked = await form(call, WorkerBody)
    tell = drain_worker if draining else undrain_worker
    try:
        await tell(replace(call, body=asked))
    except WorkerNotFound as error:
        return await refused(call, f"Nothing was done: {error}", "/workers")
    said = "no more; what it runs goes on" if draining else "again"
    return await done(call, f"The worker {asked.worker} was told to claim {said}.", "/workers")


ROUTES = (
    seen("/workers", workers_page, "Workers, and what they run", everyone=True),
    seen("/workers/drain", ask_drain_worker, "Drain a worker?", query=WorkerBody, everyone=True,
         scope=Scope.ADMIN),
    seen("/workers/undrain", ask_undrain_worker, "Let a worker claim again?", query=WorkerBody,
         everyone=True, scope=Scope.ADMIN),
    acts("/workers/drain", do_drain_worker, "Drain a worker", everyone=True),
    acts("/workers/undrain", do_undrain_worker, "Let a worker claim again", everyone=True),
)  # fmt: skip
