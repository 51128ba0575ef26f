"""Services beside a worker: the loops of sources, and the connections of outboxes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ..model.errors import OutlastError
from ..ops.bridges import OUTBOX, BridgeReport, report_bridges
from ..worker.protocols import WorkerService
from .description import description
from .http import Http
from .outbox import Outbox
from .source_loop import SourceLoop

if TYPE_CHECKING:
    from ..client.client import Outlast
    from .inbox import Inbox


def worker_services(app: Outlast, *, sources: bool, announce: bool) -> list[WorkerService]:
    """The services of one worker. `announce`: it has the database, and registers its outboxes."""
    inboxes = app.declared_sources.values() if sources else ()
    outboxes = app.declared_outboxes.values()
    return [
        *(SourceLoop(one, app._areceive_jobs) for one in inboxes if _is_pulled(one)),
        *(OutboxService(app, one, announce=announce) for one in outboxes),
    ]


def _is_pulled(inbox: Inbox) -> bool:
    """Whether a source is polled: webhooks are received by the service instead."""
    return not isinstance(inbox.source, Http)


class OutboxService:
    """Announces an outbox, and closes its sink with the last worker."""

    def __init__(self, app: Outlast, outbox: Outbox, *, announce: bool) -> None:
        self._app = app
        self._outbox = outbox
        self._announce = announce
        self._started = False

    async def start(self) -> None:
        self._outbox.session.enter()
        self._started = True
        if not self._announce:
            return
        box = self._outbox
        report = BridgeReport(OUTBOX, box.name, description(box.sink), box.name, box.queues)
        with suppress(OutlastError):  # only for display
            await self._app.store.arun(report_bridges, [report], first=True)

    async def stop(self) -> None:
        """Nothing to do: running batches still need the sink."""

    async def aclose(self) -> None:
        if self._started:
            self._started = False
            await self._outbox.session.leave()
