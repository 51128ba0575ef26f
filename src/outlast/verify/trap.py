"""A trap for processes: they stop before or after their n-th word with the database.

No product code knows of it. In the process that is to die, the two drivers' ways of talking to the
database are wrapped: each exchange is counted, and at the chosen one the process sends itself
SIGKILL (or SIGSTOP). Run once without a victim, the same count tells how many points a path has.
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


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def freeze() -> None:
    """Sent to this very thread: a signal to the process may reach another one first, and until it
    does this one would go on."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


@dataclass
class Trap:
    """Counts exchanges while armed; strikes at number `at` (from 1), before or after it."""

    at: int = 0  # 0: never, only count
    after: bool = False
    strike: Callable[[], None] = die
    armed: bool = False
    words: list[str] = field(default_factory=list)  # what was said, for the report
    _counting: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def seen(self) -> int:
        return len(self.words)

    def before(self, word: str) -> bool:
        """Count one exchange; True if the trap is to strike when it is over."""
        if not self.armed:
            return False
        with self._counting:
            self.words.append(" ".join(word.split())[:60])
            due = self.seen == self.at
        if due and not self.after:
            self.strike()
        return due and self.after

    def install(self) -> None:
        """Into this process, for good: it is not meant to live on."""
        self._into_sqlite()
        if "psycopg" not in sys.modules:
            return  # nobody here can use it, and importing it would take longer than all the rest
        from psycopg import AsyncConnection, Connection

        from ..store.links import AsyncLink

        self._into_waits(Connection)  # Link's own wait ends here
        self._into_awaits(AsyncConnection)
        self._into_awaits(AsyncLink)  # which has a wait of its own

    def _around(self, word: str, exchange: Callable[[], Any]) -> Any:
        strikes = self.before(word)
        answer = exchange()
        if strikes:
            self.strike()
        return answer

    def _into_sqlite(self) -> None:
        """Every statement is an exchange, BEGIN and COMMIT too."""
        trap = self

        class TrappedCursor(sqlite3.Cursor):
            def execute(self, *args: Any) -> Any:
                return trap._around(str(args[0]), partial(super().execute, *args))

        @cache
        def trapped(kind: type[sqlite3.Connection]) -> type[sqlite3.Connection]:
            class Trapped(kind):  # type: ignore[misc, valid-type]
                def execute(self, *args: Any) -> Any:
                    return trap._around(str(args[0]), partial(super().execute, *args))

                def cursor(self, factory: Any = TrappedCursor) -> Any:
                    return super().cursor(factory)

                def commit(self) -> None:
                    trap._around("COMMIT", super().commit)

                def rollback(self) -> None:
                    trap._around("ROLLBACK", super().rollback)

            return Trapped

        connect = sqlite3.connect

        def trapping(*args: Any, factory: Any = sqlite3.Connection, **options: Any) -> Any:
            return connect(*args, factory=trapped(factory), **options)

        sqlite3.connect = trapping

    def _into_waits(self, kind: Any) -> None:
        """Every wait for the socket is an exchange: a statement, a whole pipeline, a COMMIT."""
        trap, wait = self, kind.wait

        def waiting(self: Any, gen: Any, *args: Any, **kwargs: Any) -> Any:
            return trap._around(_word(gen), partial(wait, self, gen, *args, **kwargs))

        kind.wait = waiting

    def _into_awaits(self, kind: Any) -> None:
        trap, wait = self, kind.wait

        async def awaiting(self: Any, gen: Any, *args: Any, **kwargs: Any) -> Any:
            strikes = trap.before(_word(gen))
            answer = await wait(self, gen, *args, **kwargs)
            if strikes:
                trap.strike()
            return answer

        kind.wait = awaiting


def _word(gen: Any) -> str:
    """What psycopg is about to say: its generator holds the statement."""
    frame = getattr(gen, "gi_frame", None)
    said = frame.f_locals.get("query", frame.f_locals.get("command")) if frame else None
    if isinstance(said, bytes):
        return said.decode(errors="replace")
    return str(said or getattr(gen, "__name__", gen))
