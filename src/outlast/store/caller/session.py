"""Sessions that run an operation in a caller's transaction, for any library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
)
from typing import Any

from ...model.errors import WrongConnection
from ...ops.operation import Begin, BulkInsert, Pipeline, Rows, Statement, Step
from ..base import Store
from ..dialects import POSTGRES
from ..statements import Query


class CallerSession(ABC):
    """A session on a blocking connection."""

    def __init__(self, connection: Any, store: Store) -> None:
        self.connection = connection
        self.queries = store.queries
        self.stack = ExitStack()
        same_database(self.dialect(), store)

    def __enter__(self) -> CallerSession:
        self.nested = False
        return self

    def __exit__(self, *error: Any) -> None:
        self.stack.__exit__(*error)

    def execute_step(self, step: Step) -> Any:
        if isinstance(step, Begin):
            self._nest()
            return None
        if isinstance(step, Pipeline):
            return [self.execute_step(statement) for statement in step]
        query = self.queries[step.name]
        if isinstance(step, BulkInsert):
            return self.copy(query, step)
        return self.execute(query, step) if query.sql else []

    def _nest(self) -> None:
        if not self.nested:
            self.stack.enter_context(self.savepoint())
            self.nested = True

    def driver(self) -> Any:
        """The driver's own connection, whatever wraps it."""
        return self.connection

    def copy(self, query: Query, step: BulkInsert) -> None:
        """Send many rows; only where `can_copy_on` allows it."""
        raise NotImplementedError

    @abstractmethod
    def dialect(self) -> str:
        """The database that the connection is for."""

    @abstractmethod
    def savepoint(self) -> AbstractContextManager[object]:
        """A savepoint, which can be rolled back without the caller's own work."""

    @abstractmethod
    def execute(self, query: Query, statement: Statement) -> Rows:
        """Run one statement in the driver's syntax."""


class AsyncCallerSession(ABC):
    """A session on an asyncio connection; these drivers are all for PostgreSQL."""

    def __init__(self, connection: Any, store: Store) -> None:
        self.connection = connection
        self.queries = store.queries
        self.stack = AsyncExitStack()
        self.nested = False
        same_database(POSTGRES, store)

    async def __aenter__(self) -> AsyncCallerSession:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.stack.__aexit__(*error)

    async def execute_step(self, step: Step) -> Any:
        if isinstance(step, Begin):
            if not self.nested:
                await self.stack.enter_async_context(await self.savepoint())
                self.nested = True
            return None
        if isinstance(step, Pipeline):
            return [await self.execute_step(statement) for statement in step]
        query = self.queries[step.name]
        if isinstance(step, BulkInsert):
            return await self.copy(query, step)
        return await self.execute(query, step)

    def driver(self) -> Any:
        """As in CallerSession."""
        return self.connection

    async def copy(self, query: Query, step: BulkInsert) -> None:
        """As in CallerSession."""
        raise NotImplementedError

    @abstractmethod
    async def savepoint(self) -> AbstractAsyncContextManager[object]:
        """As in CallerSession."""

    @abstractmethod
    async def execute(self, query: Query, statement: Statement) -> Rows:
        """As in CallerSession."""


def commits_by_itself(connection: Any) -> bool:
    """Whether a sqlite3 connection is in autocommit mode outside transactions."""
    mode = getattr(connection, "autocommit", None)  # since Python 3.12; may be legacy mode
    return mode if isinstance(mode, bool) else connection.isolation_level is None


def same_database(dialect: str, store: Store) -> None:
    if dialect != store.address.dialect:
        raise WrongConnection(
            reason=f"the connection given is for {dialect}, but jobs are kept in {store.address}:"
            " they can only commit together in one database"
        )
