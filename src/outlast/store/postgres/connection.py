"""Connections to PostgreSQL with deadlines.

Every wait has a deadline, enforced here and not by the server: a vanished peer costs `deadline`
seconds, then its connection is closed hard. All waits of one operation share one deadline, so that
a slow network cannot use it up repeatedly.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import psycopg
from psycopg.errors import _WaitTimeout

from ...model.errors import DeadlineExceeded
from ...model.lazy_property import lazy


class _SingleWrite:
    """Sends the statements of a pipeline together with their final Sync.

    psycopg sends each statement at once, and the server starts to run it: a process that is frozen,
    or a host that is lost, between two of them would keep the server waiting for the rest, with
    rows locked and no timeout that applies.
    """

    command_queue: Any
    pgconn: Any

    def _communicate_gen(self) -> Any:
        commands = self.command_queue
        if commands and commands[-1] == self.pgconn.pipeline_sync:
            while commands:
                commands.popleft()()  # libpq buffers them until the Sync
            self.pgconn.flush()  # sent before anything else happens here
            yield from super()._communicate_gen()  # type: ignore[misc]

    def _fetch_gen(self, *, flush: bool) -> Any:
        """After a Sync the results arrive unasked. psycopg would send a flush request, and the
        server would count that as activity: its idle-in-transaction timeout would not run."""
        yield from super()._fetch_gen(flush=False)  # type: ignore[misc]


class SingleWritePipeline(_SingleWrite, psycopg.Pipeline):
    pass


class AsyncSingleWritePipeline(_SingleWrite, psycopg.AsyncPipeline):
    pass


class DeadlineConnection(psycopg.Connection[Any]):
    """A blocking connection on which no wait outlasts its deadline."""

    deadline: float = 15.0
    until: float | None = None  # of the running operation

    @lazy
    def _cursor(self) -> psycopg.Cursor[Any]:
        return self.cursor(binary=True)

    def execute_kept(
        self, text: str, given: Mapping[str, Any], prepare: bool
    ) -> psycopg.Cursor[Any]:
        """Run one statement with a reused cursor, whose result is read before the next: creating a
        cursor costs as much as sending a statement."""
        return self._cursor.execute(text, given, prepare=prepare)

    @contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        self._pipeline = SingleWritePipeline(self)
        try:
            with self._pipeline as pipeline:
                yield pipeline
        finally:
            self._pipeline = None

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        try:
            return super().wait(gen, interval, timeout or remaining_s(self))
        except _WaitTimeout:
            abort(self, gen)
            raise DeadlineExceeded(seconds=timeout or self.deadline) from None
        except KeyboardInterrupt:
            abort(self, gen)
            raise


class AsyncDeadlineConnection(psycopg.AsyncConnection[Any]):
    """The asyncio counterpart. A cancelled wait closes the connection at once instead of cancelling
    on the server: every operation is idempotent or fenced, and no caller waits for the result."""

    deadline: float | None = 15.0
    until: float | None = None

    @lazy
    def _cursor(self) -> psycopg.AsyncCursor[Any]:
        return self.cursor(binary=True)

    async def execute_kept(
        self, text: str, given: Mapping[str, Any], prepare: bool
    ) -> psycopg.AsyncCursor[Any]:
        return await self._cursor.execute(text, given, prepare=prepare)

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[psycopg.AsyncPipeline]:
        self._pipeline = AsyncSingleWritePipeline(self)
        try:
            async with self._pipeline as pipeline:
                yield pipeline
        finally:
            self._pipeline = None

    async def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        from psycopg import waiting

        try:
            return await waiting.wait_async(
                gen, self.pgconn.socket, interval=interval, timeout=timeout or remaining_s(self)
            )
        except _WaitTimeout:
            abort(self, gen)
            raise DeadlineExceeded(seconds=timeout or self.deadline) from None
        except (asyncio.CancelledError, KeyboardInterrupt):
            abort(self, gen)
            raise


def remaining_s(connection: DeadlineConnection | AsyncDeadlineConnection) -> float | None:
    """Seconds that the next wait may take; None: unlimited."""
    if connection.until is None or connection.deadline is None:
        return connection.deadline
    return max(0.001, connection.until - time.monotonic())


def abort(connection: DeadlineConnection | AsyncDeadlineConnection, gen: Any) -> None:
    """Close the connection and the generator of its call: psycopg's generator would otherwise
    continue to send when it is collected."""
    connection.pgconn.finish()
    with suppress(Exception):
        gen.close()
