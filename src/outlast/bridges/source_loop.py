"""The loop of a source: receive, insert, commit, acknowledge.

    room in the queue? ── no ──▶ wait
     └─ receive (long poll) ─▶ insert, commit ─▶ acknowledge
           │                      └─ fails: handed back, and a longer wait
           └─ told to stop: handed back at once

A kill at any point leaves the message with the broker, or the job in the database under the
message's key, or both: then the next delivery finds the key and is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from ..model.errors import InvalidOption, OutlastError, StoreError
from ..model.job import NewJob
from ..model.message import Message
from ..model.safe_text import error_summary
from ..ops.bridges import SOURCE, BridgeReport, report_bridges, room_of
from ..ops.retention import queue_retentions
from ..worker.loop import Backoff, Loop
from .description import description
from .inbox import Inbox
from .protocols import Source
from .session import session_of

log = logging.getLogger("outlast.bridges")

FULL_PAUSE_S = 1.0  # between looks whether a full queue has room again
ROOM_KNOWN_S = 1.0  # for which a count of the queue is believed
REPORT_INTERVAL_S = 5.0
OPEN_WAIT_S = 30.0
RECEIVE_EXTRA_S = 10.0  # beyond the wait that it was given
ACKNOWLEDGE_WAIT_S = 30.0
STOP_WAIT_S = 5.0  # for a pass that is under way
LAG_WAIT_S = 5.0
HAND_BACK_WAIT_S = 5.0
EARLY_S = 0.2  # a receive without messages that returns before its wait is over is slowed down


class SourceLoop:
    """One source in one process. `stop` and `aclose` are called by its worker."""

    def __init__(self, inbox: Inbox, receive_jobs: Callable[[list[NewJob]], Awaitable[set[str]]]):
        self.inbox = inbox
        self._receive_jobs = receive_jobs
        self._session = session_of(inbox.source, f"source {inbox.name}")
        self._loop = Loop(
            f"source {inbox.name}", self._pass, every=0.0, backoff=Backoff(factor=2.0)
        )
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._checked = False
        self._error: str | None = None  # of the last pass
        self._room: int | None = None
        self._room_at = -ROOM_KNOWN_S
        self._report_at = 0.0
        self._first_report = True
        self._received = self._stored = self._undecodable = 0  # since the last report
        self.totals = {"received": 0, "stored": 0, "undecodable": 0}

    # Beside a worker

    async def start(self) -> None:
        self._session.enter()
        self._task = asyncio.create_task(self._loop.arun(), name=f"source {self.inbox.name}")

    async def stop(self) -> None:
        """Receive nothing more; what was received and not inserted is handed back."""
        self._stopping.set()
        self._loop.stop()
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=STOP_WAIT_S)
        if not self._task.done():  # a broker that does not answer must not keep the worker
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
        await self._check_retention()
        if (room := await self._queue_room()) is not None and room <= 0:
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
            new, undecodable = await self._insert(messages)
        except BaseException:
            await self._hand_back(source, messages)
            raise
        self._received += len(messages)
        self._stored += new
        self._undecodable += undecodable
        if self._room is not None:
            self._room -= new
        async with _time_limit(ACKNOWLEDGE_WAIT_S, "acknowledge"):
            await source.acknowledge(messages)

    async def _insert(self, messages: Sequence[Message]) -> tuple[int, int]:
        """Insert the jobs of messages; how many were new, and how many undecodable."""
        limit = self.inbox.app.max_args_bytes
        made = [self.inbox.job(message, limit) for message in messages]
        undecodable = sum(not fits for _, fits in made)
        try:
            return len(await self._receive_jobs([job for job, _ in made])), undecodable
        except StoreError as error:
            if not error.refused:
                raise
        # One of them is at fault, and must not hold up the others.
        return await self._insert_singly(messages)

    async def _insert_singly(self, messages: Sequence[Message]) -> tuple[int, int]:
        limit = self.inbox.app.max_args_bytes
        new = undecodable = 0
        for message in messages:
            job, fits = self.inbox.job(message, limit)
            try:
                new += len(await self._receive_jobs([job]))
            except StoreError as error:
                if not error.refused:
                    raise
                problem = f"the database refused it: {error_summary(error)}"
                refused, fits = self.inbox.refused_job(message, problem, limit), False
                new += len(await self._receive_jobs([refused]))
            undecodable += not fits
        return new, undecodable

    async def _hand_back(self, source: Source, messages: Sequence[Message]) -> None:
        """Best effort: the broker delivers them again by itself, later."""
        if not messages:
            return
        try:
            async with asyncio.timeout(HAND_BACK_WAIT_S):
                await source.hand_back(messages)
        except Exception as error:
            log.debug("source %s: %s", self.inbox.name, error_summary(error))

    # What it asks the database

    async def _queue_room(self) -> int | None:
        """Ready jobs that the queue may still hold; None: any number."""
        now = time.monotonic()
        stale = now - self._room_at >= ROOM_KNOWN_S
        if stale or (self._room is not None and self._room <= 0):
            self._room = await self.inbox.app.store.arun(room_of, self.inbox.queue)
            self._room_at = now
        return self._room

    async def _check_retention(self) -> None:
        """An operator may have shortened the retention of the queue."""
        if self._checked:
            return
        kept = dict(await self.inbox.app.store.arun(queue_retentions))
        keep = kept.get(self.inbox.queue)
        if keep is not None and keep < self.inbox.redelivery:
            reason = (
                f"{self.inbox.name!r} may redeliver for {self.inbox.redelivery:g} s, and the queue"
                f" {self.inbox.queue!r} keeps ended jobs for {keep:g} s: outlast keep"
                f" {self.inbox.queue} --undo"
            )
            raise InvalidOption(option="source", reason=reason)
        self._checked = True

    async def _report(self, error: str | None, *, soon: bool = False) -> None:
        """Tell the table, now and then: it is for people and metrics, so it may fail."""
        now = time.monotonic()
        if not soon and now < self._report_at and not self._stopping.is_set():
            return
        self._report_at = now + REPORT_INTERVAL_S
        inbox, lag = self.inbox, None if error else await self._lag()
        report = BridgeReport(
            SOURCE, inbox.name, description(inbox.source), inbox.definition.name, (inbox.queue,),
            self._received, self._stored, self._undecodable, lag, error,
        )  # fmt: skip
        with suppress(OutlastError):
            await inbox.app.store.arun(report_bridges, [report], first=self._first_report)
            self._first_report = False
            self.totals["received"] += self._received
            self.totals["stored"] += self._stored
            self.totals["undecodable"] += self._undecodable
            self._received = self._stored = self._undecodable = 0

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
    """Of a call to a source: a hung connection is an error like any other."""
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
