"""A trap for processes: they stop before or after their n-th word with the database.

No product code knows of it. In the process that is to die, the two drivers' ways of talking to the
database are wrapped: each exchange is counted, and at the chosen one the process sends itself
SIGKILL (or SIGSTOP). Run once without a victim, the same count tells how many points a path has.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Trap:
    """Counts exchanges while armed; strikes at number `at` (from 1), before or after it."""

    at: int = 0  # 0: never, only count
    after: bool = False
    strike: Callable[[], None] = die
    seen: int = 0
    armed: bool = False
    names: list[str] = field(default_factory=list)  # what was being said, for the report

    def before(self) -> bool:
        """Count one exchange; True if the trap is to strike when it is over."""
        if not self.armed:
            return False
        self.seen += 1
        if self.seen != self.at:
            return False
        if not self.after:
            self.strike()
        return self.after

    def install(self) -> None:
        """Into this process, for good: it is not meant to live on."""
        self._into_sqlite()
        try:
            from ..store.links import AsyncLink, Link
        except ImportError:
            return
        self._into_psycopg(Link, AsyncLink)

    def _into_sqlite(self) -> None:
        """Every statement is an exchange, BEGIN and COMMIT too."""
        trap = self

        class Trapped(sqlite3.Connection):
            def execute(self, *args: Any) -> sqlite3.Cursor:
                strikes = trap.before()
                trap.names.append(str(args[0])[:40])
                cursor = super().execute(*args)
                if strikes:
                    trap.strike()
                return cursor

        sqlite3.connect = partial(sqlite3.connect, factory=Trapped)  # type: ignore[assignment]

    def _into_psycopg(self, blocking: Any, asyncio: Any) -> None:
        """Every wait for the socket is an exchange: a statement, a whole pipeline, a COMMIT."""
        trap, wait, await_ = self, blocking.wait, asyncio.wait

        def waiting(self: Any, *args: Any, **kwargs: Any) -> Any:
            strikes = trap.before()
            answer = wait(self, *args, **kwargs)
            if strikes:
                trap.strike()
            return answer

        async def awaiting(self: Any, *args: Any, **kwargs: Any) -> Any:
            strikes = trap.before()
            answer = await await_(self, *args, **kwargs)
            if strikes:
                trap.strike()
            return answer

        blocking.wait, asyncio.wait = waiting, awaiting
