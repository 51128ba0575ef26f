"""The loop of a source: receive, insert, commit, acknowledge.

    room in the queue? ── no ──▶ wait
     └─ receive (long poll) ─▶ insert, commit ─▶ acknowledge
           │                      └─ fails: handed back, and a longer wait
           └─ asked to stop: handed back at once

A kill at any point leaves the message with the broker, or the job in the database under the
message's key, or both: then the next delivery finds the key and is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from ..loops import Backoff, Loop
from ..model.errors import InvalidOption
from ..model.message import Message
from ..model.safe_text import error_summary
from .http import Http
from .inbox import Inbox
from .insertion import InsertJobs, MessageInserter
from .protocols import Source
from .queue_checks import QueueChecks
from .session import session_of
from .source_report import REPORT_INTERVAL_S, SourceReporter

log = logging.getLogger("outlast.bridges")

FULL_PAUSE_S = 1.0  # between checks whether a full queue has room again
OPEN_WAIT_S = 30.0
RECEIVE_EXTRA_S = 10.0  # beyond the requested wait
ACKNOWLEDGE_WAIT_S = 30.0
STOP_WAIT_S = 5.0  # for a pass in progress
LAG_WAIT_S = 5.0
HAND_BACK_WAIT_S = 5.0
EARLY_S = 0.2  # pause after a receive that returns early without messages


class SourceLoop:
    """One source in one process. `stop` and `aclose` are called by its worker."""

    def __init__(self, inbox: Inbox, insert_jobs: InsertJobs) -> None:
        self.inbox = inbox
        self._inserter = MessageInserter(inbox, insert_jobs)
        self._queue = QueueChecks(inbox)
        self._reporter = SourceReporter(inbox)
        self._session = session_of(_pulled(inbox), f"source {inbox.name}")
        self._loop = Loop(
            f"source {inbox.name}", self._pass, every=0.0, backoff=Backoff(factor=2.0)
        )
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._error: str | None = None  # of the last pass
        self._report_at = 0.0

    @property
    def totals(self) -> dict[str, int]:
        """The numbers of messages received, stored for the first time, and undecodable."""
        return self._reporter.totals

    # Beside a worker

    async def start(self) -> None:
        self._session.enter()
        self._task = asyncio.create_task(self._loop.arun(), name=f"source {self.inbox.name}")

    async def stop(self) -> None:
        """Stop receiving, and hand back messages that were not inserted."""
        self._stopping.set()
        self._loop.stop()
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=STOP_WAIT_S)
        if not self._task.done():  # a broker that does not respond must not delay the worker
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=STOP_WAIT_S)

    async def aclose(self) -> None:
        if self._task is None:
            return
        if not self._task.done():
            await self.stop()
        await self._report(self._error)
        await self._session.leave()

    # One pass

    async def _pass(self) -> float:
        try:
            wait = await self._receive_and_store()
        except Exception as error:
            self._error = error_summary(error)
            await self._session.close()  # the next pass connects anew
            await self._report(self._error, soon=True)
            raise
        self._error = None
        await self._report(None)
        return wait

    async def _receive_and_store(self) -> float:
        await self._queue.check_retention()
        if (room := await self._queue.room()) is not None and room <= 0:
            return FULL_PAUSE_S
        async with _time_limit(OPEN_WAIT_S, "open"):
            source = await self._session.opened()
        limit = self.inbox.batch if room is None else min(self.inbox.batch, room)
        began = time.monotonic()
        messages = await self._receive(source, limit)
        if messages:
            await self._store(source, messages)
            return 0.0
        early = time.monotonic() - began < min(EARLY_S, self.inbox.wait / 2)
        return EARLY_S if early else 0.0

    async def _receive(self, source: Source, limit: int) -> Sequence[Message]:
        """Messages, unless the worker stops meanwhile."""
        receiving = asyncio.ensure_future(source.receive(limit, self.inbox.wait))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait(
                {receiving, stopping},
                timeout=self.inbox.wait + RECEIVE_EXTRA_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not receiving.done():
                receiving.cancel()
                await asyncio.wait({receiving}, timeout=STOP_WAIT_S)
            if not self._stopping.is_set() and (not receiving.done() or receiving.cancelled()):
                raise _no_answer("receive", self.inbox.wait + RECEIVE_EXTRA_S)
            if not receiving.done():
                return ()
            with suppress(asyncio.CancelledError):
                messages = await receiving
                if not self._stopping.is_set():
                    return messages
                await self._hand_back(source, messages)
            return ()
        finally:
            stopping.cancel()
            receiving.cancel()  # of no effect once it is done

    async def _store(self, source: Source, messages: Sequence[Message]) -> None:
        try:
            inserted = await self._inserter.insert(messages)
        except BaseException:
            await self._hand_back(source, messages)
            raise
        self._reporter.count(len(messages), inserted)
        self._queue.took(inserted.new)
        async with _time_limit(ACKNOWLEDGE_WAIT_S, "acknowledge"):
            await source.acknowledge(messages)

    async def _hand_back(self, source: Source, messages: Sequence[Message]) -> None:
        """Hand back messages, if possible: otherwise the broker delivers them again later."""
        if not messages:
            return
        try:
            async with asyncio.timeout(HAND_BACK_WAIT_S):
                await source.hand_back(messages)
        except Exception as error:
            log.debug("source %s: %s", self.inbox.name, error_summary(error))

    async def _report(self, error: str | None, *, soon: bool = False) -> None:
        """Report counts to the table at intervals; failures are ignored, as it is for display."""
        now = time.monotonic()
        if not soon and now < self._report_at and not self._stopping.is_set():
            return
        self._report_at = now + REPORT_INTERVAL_S
        await self._reporter.report(error, None if error else await self._lag())

    async def _lag(self) -> int | None:
        if self._stopping.is_set():
            return None
        try:
            async with asyncio.timeout(LAG_WAIT_S):
                return await (await self._session.opened()).lag()
        except Exception:
            return None


@asynccontextmanager
async def _time_limit(seconds: float, what: str) -> AsyncIterator[None]:
    """A time limit for a call to a source, so that a hung connection raises an error."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise _no_answer(what, seconds) from error
        raise


def _no_answer(what: str, seconds: float) -> TimeoutError:
    return TimeoutError(f"{what} of the source did not end within {seconds:g} s")


def _pulled(inbox: Inbox) -> Source:
    """The source of a loop; refuses webhooks, which are not polled."""
    if isinstance(inbox.source, Http):
        reason = f"{inbox.name!r} gets its messages by HTTP: run `outlast serve APP`"
        raise InvalidOption(option="source", reason=reason)
    return inbox.source
