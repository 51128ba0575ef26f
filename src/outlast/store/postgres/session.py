"""One operation on one connection to PostgreSQL, in as few round trips as possible."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
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
# Statements that look up rows only by their keys. Each is a transaction whose plan must use the
# indexes: so it can be prepared on any connection, whatever the tables hold at that time.
BY_KEYS = frozenset({"send_signal"})
PLAN_BY_KEYS: Sent = (
    "SELECT set_config('plan_cache_mode', 'force_generic_plan', true),"
    " set_config('enable_seqscan', 'off', true)",
    {},
    True,
)


def _split_success(rows: Rows) -> list[Rows]:
    return [[rows[0][-1:]], [row[:-1] for row in rows if row[0] is not None]]


def _split_taken(rows: Rows) -> list[Rows]:
    return [[], [], [], rows]


# Statements of a pipeline that are fused into one, and the function that splits its rows.
FUSED: dict[tuple[str, ...], tuple[str, Callable[[Rows], list[Rows]]]] = {
    ("succeed", "claim_on"): ("succeed_and_claim_on", _split_success),
    ("hold_claim", "record_taken", "take_signal", "end_by_signal"): (
        "take_signal_of_claim",
        _split_taken,
    ),
}


def fuse(step: Step) -> tuple[Statement, Callable[[Rows], list[Rows]]] | None:
    """The statement that replaces these, if any, and the function that splits its rows."""
    if not isinstance(step, Pipeline):
        return None
    found = FUSED.get(tuple(statement.name for statement in step))
    if found is None:
        return None
    name, split = found
    params = {key: value for statement in step for key, value in statement.params.items()}
    return Statement(name, params, step[0].rows), split


def by_keys(store: PostgresStore, step: Step) -> list[Sent]:
    """The transaction of a statement that looks up rows only by their keys; empty: it is not one of
    them, or nothing can be prepared."""
    if not isinstance(step, Statement) or step.name not in BY_KEYS:
        return []
    if store.pooled or not store.settings.prepare:
        return []
    text, given, _ = store.render(step)
    return [*store.begin_statements(), PLAN_BY_KEYS, (text, given, True), COMMIT]


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
        if not self.began and (fused := fuse(step)):
            one, split = fused
            return split(fetch_rows(self.link.execute_kept(*self.store.render(one))))
        if not self.began and (sent := by_keys(self.store, step)):
            self.began = True  # until it has committed
            with self.link.pipeline():
                cursors = [self._execute(*each) for each in sent]
            self.began = False
            return fetch_rows(cursors[-2])
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
        if not self.began and (fused := fuse(step)):
            one, split = fused
            return split(await afetch_rows(await self.link.execute_kept(*self.store.render(one))))
        if not self.began and (sent := by_keys(self.store, step)):
            self.began = True  # until it has committed
            async with self.link.pipeline():
                cursors = [await self._execute(*each) for each in sent]
            self.began = False
            return await afetch_rows(cursors[-2])
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
