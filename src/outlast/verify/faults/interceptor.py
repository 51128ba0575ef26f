"""Interceptor: a process stops before or after its n-th exchange with the database.

Outlast itself is unchanged. In the process to be killed, the communication of the two drivers is
wrapped: each exchange is counted, and at the chosen one the process sends itself SIGKILL (or
SIGSTOP). In a run without a fault, the count is the number of points of a scenario.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def freeze_self() -> None:
    """Stop this process, by a signal to this thread: a signal to the process may reach another
    thread first, while this one continues."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


@dataclass
class Interceptor:
    """Counts exchanges while armed; triggers at number `at` (from 1), before or after it."""

    at: int = 0  # 0: never, only count
    after: bool = False
    strike: Callable[[], None] = kill_self
    armed: bool = False
    exchanges: list[str] = field(default_factory=list)  # the statements, for the report
    _counting: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def count(self) -> int:
        return len(self.exchanges)

    def before(self, exchange: str) -> bool:
        """Count one exchange, and trigger if due; returns whether to trigger after it."""
        if not self.armed:
            return False
        with self._counting:
            self.exchanges.append(" ".join(exchange.split())[:60])
            due = self.count == self.at
        if due and not self.after:
            self.strike()
        return due and self.after

    def install(self) -> None:
        """Install in this process, permanently: the process is a short-lived child."""
        self._wrap_sqlite()
        if "psycopg" not in sys.modules:
            return  # not loaded in this process; importing it would be slow
        from psycopg import AsyncConnection, Connection

        from ...store.postgres.connection import AsyncDeadlineConnection

        self._wrap_waits(Connection)  # the connection's own wait ends here
        self._wrap_async_waits(AsyncConnection)
        self._wrap_async_waits(AsyncDeadlineConnection)  # has its own wait

    def _around(self, name: str, exchange: Callable[[], object]) -> object:
        strikes = self.before(name)
        answer = exchange()
        if strikes:
            self.strike()
        return answer

    def _wrap_sqlite(self) -> None:
        """Count every statement as an exchange, including BEGIN and COMMIT."""
        interceptor = self

        class TrappedCursor(sqlite3.Cursor):
            def execute(self, *args: Any) -> Any:
                return interceptor._around(str(args[0]), partial(super().execute, *args))

        @cache
        def trapped(kind: type[sqlite3.Connection]) -> type[sqlite3.Connection]:
            class Trapped(kind):  # type: ignore[misc, valid-type]
                def execute(self, *args: Any) -> Any:
                    return interceptor._around(str(args[0]), partial(super().execute, *args))

                def executemany(self, *args: object) -> object:
                    return interceptor._around(str(args[0]), partial(super().executemany, *args))

                def cursor(self, factory: object = TrappedCursor) -> object:
                    return super().cursor(factory)

                def commit(self) -> None:
                    interceptor._around("COMMIT", super().commit)

                def rollback(self) -> None:
                    interceptor._around("ROLLBACK", super().rollback)

            return Trapped

        connect = sqlite3.connect

        def trapping(*args: Any, factory: Any = sqlite3.Connection, **options: Any) -> Any:
            return connect(*args, factory=trapped(factory), **options)

        sqlite3.connect = trapping

    def _wrap_waits(self, kind: Any) -> None:
        """Count every wait for the socket as an exchange: a statement, a whole pipeline, a
        COMMIT."""
        interceptor, wait = self, kind.wait

        def waiting(self: Any, gen: Any, *args: Any, **kwargs: Any) -> Any:
            return interceptor._around(
                _statement_text(gen), partial(wait, self, gen, *args, **kwargs)
            )

        kind.wait = waiting

    def _wrap_async_waits(self, kind: Any) -> None:
        interceptor, wait = self, kind.wait

        async def awaiting(self: Any, gen: Any, *args: Any, **kwargs: Any) -> Any:
            strikes = interceptor.before(_statement_text(gen))
            answer = await wait(self, gen, *args, **kwargs)
            if strikes:
                interceptor.strike()
            return answer

        kind.wait = awaiting


def _statement_text(gen: object) -> str:
    """The statement that psycopg is about to send, from its generator."""
    frame = getattr(gen, "gi_frame", None)
    statement = frame.f_locals.get("query", frame.f_locals.get("command")) if frame else None
    if isinstance(statement, bytes):
        return statement.decode(errors="replace")
    return str(statement or getattr(gen, "__name__", gen))
