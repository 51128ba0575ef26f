"""Background parts of the service: wait for the database, run each part, restart one that fails.

All parts share one wait for the database, with backoff, and one log of its outages: a line when it
becomes unavailable, and one when it responds again. A permanent error (wrong encoding, other
tables, damage) is reported to the server, which exits; a mounted app keeps trying.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from ..loops import Backoff
from ..model.errors import PERMANENT_ERRORS, OutlastError, StoreError
from ..store import Store
from ..worker.outage_log import OutageLog

log = logging.getLogger("outlast.service")

MAX_BACKOFF_S = 10.0  # of parts; requests are served as soon as the database is available
SETTLED_S = 30.0  # a part that has run this long has recovered from its last failure


class BackgroundPart(Protocol):
    """A background part: `run` until it is cancelled."""

    async def run(self) -> None: ...


class PartRunner:
    """Runs the parts of one service. `on_unusable` is called when the database cannot be used;
    `unusable` has the reason."""

    def __init__(self, store: Store, parts: Sequence[BackgroundPart], outage: OutageLog) -> None:
        self.parts = parts
        self.unusable: StoreError | None = None
        self.on_unusable: Callable[[], None] = lambda: None
        self._store, self._outage = store, outage

    def start(self) -> list[asyncio.Task[None]]:
        """The tasks on this event loop: the wait for the database, and one per part."""
        ready = asyncio.create_task(self._wait_for_database())
        return [ready, *(asyncio.create_task(self._run(part, ready)) for part in self.parts)]

    async def _wait_for_database(self) -> None:
        """Wait for the database, and create the tables, as a worker does: the service accepts
        jobs."""
        backoff = Backoff(cap=MAX_BACKOFF_S)
        while True:
            try:
                await self._store.aready()
                break
            except OutlastError as error:
                wait = backoff.failed()
                log.log(self._level(error, wait), "%s; next try in %.1f s", error, wait)
                if isinstance(error, PERMANENT_ERRORS):
                    self.unusable = error
                    self.on_unusable()
            except Exception:
                wait = backoff.failed()
                log.exception("cannot prepare the database; next try in %.1f s", wait)
            await asyncio.sleep(wait)
        self.unusable = None
        self._outage.answered()

    def _level(self, error: Exception, wait: float) -> int:
        return logging.DEBUG if self._outage.logs(error, wait) else logging.WARNING

    async def _run(self, part: BackgroundPart, ready: asyncio.Task[None]) -> None:
        """Run a part for ever; restart it with backoff after a failure."""
        name, backoff = type(part).__name__.lower(), Backoff()
        await asyncio.shield(ready)
        while True:
            settled = asyncio.get_running_loop().call_later(SETTLED_S, _note_settled, name, backoff)
            try:
                await part.run()
                wait = backoff.first
            except Exception as error:
                wait = backoff.failed()
                bug = not isinstance(error, OutlastError)  # log the traceback
                message = "the part %r of the service failed (%s); restart in %.1f s"
                log.log(self._level(error, wait), message, name, error, wait, exc_info=bug)
            finally:
                settled.cancel()
            await asyncio.sleep(wait)


def _note_settled(name: str, backoff: Backoff) -> None:
    if backoff.failures:
        log.info("the part %r of the service has recovered", name)
    backoff.succeeded()
