"""Processes that kill themselves at an exact point of a conversation with the database.

A point is written `before finish`, `after finish` or `committed finish`: when a statement of that
name is about to be sent, has been answered, or has been committed; `before finish 3` means the
third one. On a connection that was lent to a handler, only the first two of these mean anything.
Only the process that calls `arm` is changed; the product knows nothing of this.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from outlast.ops.operation import Begin, BulkInsert, Statement


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, action: Callable[[], object] = die) -> None:
    """From now on, this process dies by SIGKILL (or does something else) when it reaches the
    point; "" is nowhere."""
    if not point:
        return
    when, name, *nth = point.split()
    trap = Trap(when, name, int(nth[0]) if nth else 1, action)
    for kind in _sessions():
        trap.set(kind)


class Trap:
    def __init__(self, when: str, name: str, nth: int, action: Callable[[], object]) -> None:
        assert when in ("before", "after", "committed"), when
        self.when, self.name, self.left, self.action = when, name, nth, action

    def set(self, session: type) -> None:
        answer = session.execute_step
        if asynchronous := hasattr(session, "__aexit__"):

            async def watched(this: Any, step: Any) -> Any:
                self.reached("before", step)
                rows = await answer(this, step)
                self.answered(this, step)
                return rows

        else:

            def watched(this: Any, step: Any) -> Any:
                self.reached("before", step)
                rows = answer(this, step)
                self.answered(this, step)
                return rows

        session.execute_step = watched
        leave = "__aexit__" if asynchronous else "__exit__"
        setattr(session, leave, self.watch_end(getattr(session, leave), asynchronous))

    def watch_end(self, leave: Callable[..., Any], asynchronous: bool) -> Callable[..., Any]:
        async def awatched(this: Any, *error: Any) -> None:
            await leave(this, *error)
            self.committed(this, error)

        def watched(this: Any, *error: Any) -> None:
            leave(this, *error)
            self.committed(this, error)

        return awatched if asynchronous else watched

    def reached(self, when: str, step: Any) -> None:
        if when == self.when and self.name in _names(step):
            self.left -= 1
            if self.left == 0:
                self.action()

    def answered(self, session: Any, step: Any) -> None:
        self.reached("after", step)
        if self.name in _names(step):
            session.said_it = True

    def committed(self, session: Any, error: tuple[Any, ...]) -> None:
        if error[0] is None and getattr(session, "said_it", False):
            self.reached("committed", Statement(self.name))


def _names(step: Any) -> set[str]:
    if isinstance(step, Begin):
        return set()
    alone = isinstance(step, Statement | BulkInsert)
    return {step.name} if alone else {statement.name for statement in step}


def _sessions() -> list[type]:
    from outlast.store.caller.connection import AsyncPsycopgSession, PsycopgSession, Sqlite3Session
    from outlast.store.postgres.session import AsyncPostgresSession, PostgresSession
    from outlast.store.sqlite.session import SqliteSession

    ours: list[type] = [SqliteSession, PostgresSession, AsyncPostgresSession]
    return [*ours, Sqlite3Session, PsycopgSession, AsyncPsycopgSession]
