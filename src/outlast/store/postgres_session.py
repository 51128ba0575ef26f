"""One operation on one connection to PostgreSQL, in as few round trips as it can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import psycopg

from ..ops.statement import Begin, Last, Rows, Step, Together
from .links import AsyncLink, Link

if TYPE_CHECKING:
    from .postgres import PostgresStore

Sent = tuple[str, Mapping[str, Any], bool]  # the text, what it is given, whether to prepare it
COMMIT: Sent = ("COMMIT", {}, False)


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
        ends = self.began and isinstance(step, Last)
        sent = opening + [self.store.render(s) for s in statements] + [COMMIT] * ends
        if len(sent) == 1:
            answers = [fetched(self._say(*sent[0]))]
        else:
            with self.link.pipeline():
                cursors = [self._say(*each) for each in sent]
            answers = [fetched(cursor) for cursor in cursors[len(opening) : len(sent) - ends]]
        self.began = self.began and not ends
        return answers if isinstance(step, Together) else answers[0]

    def _say(self, text: str, given: Mapping[str, Any], prepare: bool) -> psycopg.Cursor[Any]:
        return self.link.execute(text, given, prepare=prepare)


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
        ends = self.began and isinstance(step, Last)
        sent = opening + [self.store.render(s) for s in statements] + [COMMIT] * ends
        if len(sent) == 1:
            answers = [await afetched(await self._say(*sent[0]))]
        else:
            async with self.link.pipeline():
                cursors = [await self._say(*each) for each in sent]
            came = cursors[len(opening) : len(sent) - ends]
            answers = [await afetched(cursor) for cursor in came]
        self.began = self.began and not ends
        return answers if isinstance(step, Together) else answers[0]

    async def _say(
        self, text: str, given: Mapping[str, Any], prepare: bool
    ) -> psycopg.AsyncCursor[Any]:
        return await self.link.execute(text, given, prepare=prepare)


def fetched(cursor: psycopg.Cursor[Any]) -> Rows:
    return cursor.fetchall() if cursor.description else []


async def afetched(cursor: psycopg.AsyncCursor[Any]) -> Rows:
    return await cursor.fetchall() if cursor.description else []
