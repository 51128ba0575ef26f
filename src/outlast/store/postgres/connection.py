"""Connections to PostgreSQL that cannot hang us.

Every wait has a deadline, kept here and not by the server: a peer that is gone without a word costs
`deadline` seconds, then its connection is closed hard. All waits of one operation share one, so
that a slow line cannot use it up again and again.
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
    """Statements that travel together leave together, the Sync that ends them with them.

    psycopg sends each one as soon as it is said, and the server begins at once: a process that is
    frozen, or a host that is lost, between two of them would keep the server waiting for the rest,
    with rows locked and no timeout of its own that applies.
    """

    command_queue: Any
    pgconn: Any

    def _communicate_gen(self) -> Any:
        commands = self.command_queue
        if commands and commands[-1] == self.pgconn.pipeline_sync:
            while commands:
                commands.popleft()()  # libpq only gathers them, until the Sync
            self.pgconn.flush()  # on its way before anything else is done here
            yield from super()._communicate_gen()  # type: ignore[misc]

    def _fetch_gen(self, *, flush: bool) -> Any:
        """After a Sync the answers come by themselves. psycopg would ask for them, and the server
        would take that for the end of our idleness: its idle-in-transaction timeout would not run.
        """
        yield from super()._fetch_gen(flush=False)  # type: ignore[misc]


class SingleWritePipeline(_SingleWrite, psycopg.Pipeline):
    pass


class AsyncSingleWritePipeline(_SingleWrite, psycopg.AsyncPipeline):
    pass


class DeadlineConnection(psycopg.Connection[Any]):
    """A blocking connection on which no wait outlasts its deadline."""

    deadline: float = 15.0
    until: float | None = None  # of the operation that is under way

    @lazy
    def _cursor(self) -> psycopg.Cursor[Any]:
        return self.cursor(binary=True)

    def execute_kept(
        self, text: str, given: Mapping[str, Any], prepare: bool
    ) -> psycopg.Cursor[Any]:
        """One statement, whose answer is read before the next: by a cursor that is kept, because
        to make one is as dear as to send it."""
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
    """The same for asyncio. A cancelled wait closes at once instead of asking the server to stop:
    whatever it was, it is idempotent or fenced, and nobody waits for its answer."""

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
    """Seconds that the next wait may take; None: for ever."""
    if connection.until is None or connection.deadline is None:
        return connection.deadline
    return max(0.001, connection.until - time.monotonic())


def abort(connection: DeadlineConnection | AsyncDeadlineConnection, gen: Any) -> None:
    """Close the connection, and the conversation on it: left alone, psycopg's generator would go
    on talking when it is collected."""
    connection.pgconn.finish()
    with suppress(Exception):
        gen.close()
