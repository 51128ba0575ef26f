"""The thread that renews, on a line of its own, while the worker's event loop may be busy."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING

from ..model.lifecycle import Outcome
from ..model.outcome import Ended
from ..ops.renew import Renewed
from ..worker.execute import timed_out
from ..worker.held import SAFETY, facts
from ..worker.keeper import Keeper, Urgent
from ..worker.loops import Loop
from .spelling import PATH, call, parts, renewal

if TYPE_CHECKING:
    from .worker import RemoteWorker

log = logging.getLogger("outlast.worker")


class RemoteKeeper(Keeper):
    """As any keeper, but that the server heals and proves no life of ours: leases alone speak."""

    worker: RemoteWorker

    def __init__(self, worker: RemoteWorker) -> None:
        super().__init__(worker)
        self._line = worker.line.twin()

    def _all_loops(self) -> list[Loop]:
        every = self.settings.reclaim_every
        return [
            Loop("renew", self.renew, self.settings.renew_every, Urgent(self.worker)),
            self._watch,
            Loop("fence", self.fence, every),
            Loop("overdue", self.overdue, every),
            Loop("pulse", self.pulse, 1.0),
        ]

    async def watch(self) -> float:
        self._watching = asyncio.ensure_future(asyncio.Event().wait())  # type: ignore[arg-type]
        try:
            await asyncio.wait([self._watching])
        finally:
            self._watching.cancel()
            await self._line.close()
        return 0.0

    def wake(self, queues: set[str]) -> None:
        """The server does."""

    async def renew(self) -> float | None:
        asked_at = time.monotonic()
        worker, fences = self.worker, self.worker.hands.fences()
        said = [(id, worker.token_of(id, fence)) for id, fence in fences.items()]
        answers = await self._renew([token for _, token in said])
        told = {id: answer for (id, _), answer in zip(said, answers, strict=True)}
        renewed = Renewed(
            kept=frozenset(id for id, how in told.items() if how["status"] == "ok"),
            cancelling=frozenset(id for id, how in told.items() if how["cancel"]),
            lost=frozenset(id for id, how in told.items() if how["status"] in ("lost", "refused")),
            busy=frozenset(id for id, how in told.items() if how["status"] == "busy"),
            strangers=[],
        )
        lease = worker.settings.lease
        worker.hands.renewed(renewed.kept, fences, asked_at + lease * SAFETY)
        if renewed.lost or renewed.cancelling:
            worker.post(worker.carrier.renewed, renewed, fences)
        return worker.settings.renew_every / (4 if renewed.busy else 1)

    async def _renew(self, tokens: list[str]) -> list[dict[str, object]]:
        """In time to try once more on another connection."""
        answers: list[dict[str, object]] = []
        items = [renewal(token) for token in tokens]
        async with asyncio.timeout(max(2.0, self.worker.settings.lease / 3)):
            for part in parts(items):
                answers += (await self._line.post(PATH, call(part)))["reports"]
        return answers

    async def overdue(self) -> None:
        """A handler that blocks the event loop past its timeout loses its job all the same."""
        for held in self.worker.hands.overdue():
            ended = Ended(Outcome.TIMED_OUT, error=timed_out(held.claim))
            transition = self.worker.carrier.decide(held.claim, ended)
            await self._line.post(PATH, call([self.worker.returns.outcome(transition)]))
            held.overdue_at = math.inf
            self.worker.tell("overdue", 1)
            log.error("job %s: its handler blocks the event loop past its timeout; given up",
                      held.claim.id, extra=facts(held.claim))  # fmt: skip
