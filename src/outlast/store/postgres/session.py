"""One operation on one connection to PostgreSQL, in as few round trips as possible."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import psycopg

from ...ops.operation import (
    Begin,
    BeginPart,
    BulkInsert,
    CommitPipeline,
    Pipeline,
    Rows,
    Statement,
    Step,
)
from .connection import AsyncDeadlineConnection, DeadlineConnection
from .copy_text import copy_lines

if TYPE_CHECKING:
    from .store import PostgresStore

Sent = tuple[str, Mapping[str, object], bool]  # SQL, parameters, whether to prepare it
COMMIT: Sent = ("COMMIT", {}, False)
# Statements of a pipeline that are fused into one.
FUSED: dict[tuple[str, ...], str] = {("succeed", "claim_on"): "succeed_and_claim_on"}


def fuse(step: Step) -> Statement | None:
    """The statement that replaces these, if there is one."""
    if not isinstance(step, Pipeline):
        return None
    name = FUSED.get(tuple(statement.name for statement in step))
    if name is None:
        return None
    first, second = step
    return Statement(name, {**first.params, **second.params}, first.rows)


def split_rows(rows: Rows) -> list[Rows]:
    """Split the fused rows into the two expected results."""
    return [[rows[0][-1:]], [row[:-1] for row in rows if row[0] is not None]]


class PostgresSession:
    """One operation on one connection. BEGIN is sent with the first statement after it."""

    def __init__(self, store: PostgresStore, link: DeadlineConnection) -> None:
        self.store = store
        self.link = link
        self.began = store.pooled
        self.opening = store.begin_statements() if store.pooled else []

    def __enter__(self) -> PostgresSession:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self.began or self.opening or self.link.closed:
            return
        self.link.execute("COMMIT" if kind is None else "ROLLBACK")

    def execute_step(self, step: Step) -> object:
        if isinstance(step, Begin):
            if not self.began:
                self.began, self.opening = True, self.store.begin_statements()
            if isinstance(step, BeginPart):
                self.link.until = time.monotonic() + self.store.settings.deadline
            return None
        if isinstance(step, BulkInsert):
            self._copy(step)
            return None
        if not self.began and (one := fuse(step)):
            return split_rows(fetch_rows(self.link.execute_kept(*self.store.render(one))))
        statements = step if isinstance(step, Pipeline) else (step,)
        opening, self.opening = self.opening, []
        ends = self.began and isinstance(step, CommitPipeline)
        sent = opening + [self.store.render(s) for s in statements] + [COMMIT] * ends
        if len(sent) == 1:
            answers = [fetch_rows(self.link.execute_kept(*sent[0]))]
        else:
            with self.link.pipeline():
                cursors = [self._execute(*each) for each in sent]
            answers = [fetch_rows(cursor) for cursor in cursors[len(opening) : len(sent) - ends]]
        self.began = self.began and not ends
        return answers if isinstance(step, Pipeline) else answers[0]

    def _copy(self, step: BulkInsert) -> None:
        assert self.began and not self.opening, "a COPY is part of a transaction"
        text, *_ = self.store.render(Statement(step.name))
        with self.link.cursor() as cursor, cursor.copy(text) as copy:
            for lines in copy_lines(step):
                copy.write(lines)

    def _execute(
        self, text: str, given: Mapping[str, object], prepare: bool
    ) -> psycopg.Cursor[object]:
        return self.link.execute(text, given, prepare=prepare, binary=True)


class AsyncPostgresSession:
    """The asyncio counterpart."""

    def __init__(self, store: PostgresStore, link: AsyncDeadlineConnection) -> None:
        self.store = store
        self.link = link
        self.began = store.pooled
        self.opening = store.begin_statements() if store.pooled else []

    async def __aenter__(self) -> AsyncPostgresSession:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if not self.began or self.opening or self.link.closed:
            return
        await self.link.execute("COMMIT" if kind is None else "ROLLBACK")

    async def execute_step(self, step: Step) -> object:
        if isinstance(step, Begin):
            if not self.began:
                self.began, self.opening = True, self.store.begin_statements()
            if isinstance(step, BeginPart):
                self.link.until = time.monotonic() + self.store.settings.deadline
            return None
        if isinstance(step, BulkInsert):
            await self._copy(step)
            return None
        if not self.began and (one := fuse(step)):
            return split_rows(
                await afetch_rows(await self.link.execute_kept(*self.store.render(one)))
            )
        statements = step if isinstance(step, Pipeline) else (step,)
        opening, self.opening = self.opening, []
        ends = self.began and isinstance(step, CommitPipeline)
        sent = opening + [self.store.render(s) for s in statements] + [COMMIT] * ends
        if len(sent) == 1:
            answers = [await afetch_rows(await self.link.execute_kept(*sent[0]))]
        else:
            async with self.link.pipeline():
                cursors = [await self._execute(*each) for each in sent]
            came = cursors[len(opening) : len(sent) - ends]
            answers = [await afetch_rows(cursor) for cursor in came]
        self.began = self.began and not ends
        return answers if isinstance(step, Pipeline) else answers[0]

    async def _copy(self, step: BulkInsert) -> None:
        assert self.began and not self.opening, "a COPY is part of a transaction"
        text, *_ = self.store.render(Statement(step.name))
        async with self.link.cursor() as cursor, cursor.copy(text) as copy:
            for lines in copy_lines(step):
                await copy.write(lines)

    async def _execute(
        self, text: str, given: Mapping[str, object], prepare: bool
    ) -> psycopg.AsyncCursor[object]:
        return await self.link.execute(text, given, prepare=prepare, binary=True)


def fetch_rows(cursor: psycopg.Cursor[Any]) -> Rows:
    return cursor.fetchall() if _has_rows(cursor) else []


async def afetch_rows(cursor: psycopg.AsyncCursor[Any]) -> Rows:
    return await cursor.fetchall() if _has_rows(cursor) else []


def _has_rows(cursor: psycopg.Cursor[object] | psycopg.AsyncCursor[object]) -> bool:
    """Avoids building the cursor's description, which is not needed."""
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0
