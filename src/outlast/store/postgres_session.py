"""One operation on one connection to PostgreSQL, in as few round trips as it can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from ..ops.statement import Begin, Rows, Step, Together
from .links import AsyncLink, Link

if TYPE_CHECKING:
    from .postgres import PostgresStore


class PostgresSession:
    """One operation on one connection. BEGIN travels with the first statement after it."""

    def __init__(self, store: PostgresStore, link: Link) -> None:
        self.store = store
        self.link = link
        self.began = store.pooled
        self.opening = store.opening() if store.pooled else []

    def __enter__(self) -> PostgresSession:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if not self.began or self.opening or self.link.closed:
            return
        self.link.execute("COMMIT" if kind is None else "ROLLBACK")

    def answer(self, step: Step) -> Any:
        if isinstance(step, Begin):
            if not self.began:
                self.began, self.opening = True, self.store.opening()
            return None
        statements = step if isinstance(step, Together) else (step,)
        opening, self.opening = self.opening, []
        sent = opening + [self.store.render(s) for s in statements]
        if len(sent) == 1:
            answers = [fetched(self.link.execute(*sent[0]))]
        else:
            with self.link.pipeline():
                cursors = [self.link.execute(*each) for each in sent]
            answers = [fetched(cursor) for cursor in cursors[len(opening) :]]
        return answers if isinstance(step, Together) else answers[0]


class AsyncPostgresSession:
    """The same, awaited."""

    def __init__(self, store: PostgresStore, link: AsyncLink) -> None:
        self.store = store
        self.link = link
        self.began = store.pooled
        self.opening = store.opening() if store.pooled else []

    async def __aenter__(self) -> AsyncPostgresSession:
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        if not self.began or self.opening or self.link.closed:
            return
        await self.link.execute("COMMIT" if kind is None else "ROLLBACK")

    async def answer(self, step: Step) -> Any:
        if isinstance(step, Begin):
            if not self.began:
                self.began, self.opening = True, self.store.opening()
            return None
        statements = step if isinstance(step, Together) else (step,)
        opening, self.opening = self.opening, []
        sent = opening + [self.store.render(s) for s in statements]
        if len(sent) == 1:
            answers = [await afetched(await self.link.execute(*sent[0]))]
        else:
            async with self.link.pipeline():
                cursors = [await self.link.execute(*each) for each in sent]
            answers = [await afetched(cursor) for cursor in cursors[len(opening) :]]
        return answers if isinstance(step, Together) else answers[0]


def fetched(cursor: psycopg.Cursor[Any]) -> Rows:
    return cursor.fetchall() if cursor.description else []


async def afetched(cursor: psycopg.AsyncCursor[Any]) -> Rows:
    return await cursor.fetchall() if cursor.description else []
