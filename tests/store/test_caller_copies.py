"""Many jobs on a caller's own connection: copied where the driver can, in its transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from outlast import Outlast, StoreError, Task
from outlast.client.enqueue import enqueue_jobs
from outlast.client.faces import finish
from outlast.model.flow_builder import build_jobs
from outlast.ops.enqueue_many import MIN_JOBS
from tests.store.async_callers import sampled_kinds
from tests.store.callers import Caller
from tests.store.jobs import new
from tests.support import Database

TEXTS = ["a\\b", "\\N", "\\.", "tab\t", "line\nline\r", "é \u2028 🙂", "'\"", "%s", "\x7f"] * 3
COPYING = {"Psycopg", "PsycopgDicts", "PsycopgBlock", "PsycopgAsync"}


@pytest.fixture
def work(app: Outlast, database: Database) -> Task[[str], None]:
    @app.task
    def work(text: str) -> None: ...

    app.migrate()
    with database.connect() as connection:
        where = "" if database.is_sqlite else "public."
        connection.execute(f"CREATE TABLE IF NOT EXISTS {where}business (note text)")
        connection.execute("DELETE FROM business")
    return work


@pytest.fixture
def caller(request: pytest.FixtureRequest, database: Database, work: Any) -> Iterator[Caller]:
    made = request.param(database)
    yield made
    made.close()


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements by which psycopg copies from here on."""
    seen: list[str] = []
    for kind in (psycopg.Cursor, psycopg.AsyncCursor):
        copy: Any = kind.copy

        def counted(self: Any, statement: str, *args: Any, copy: Any = copy, **kw: Any) -> Any:
            seen.append(statement)
            return copy(self, statement, *args, **kw)

        monkeypatch.setattr(kind, "copy", counted)
    return seen


@sampled_kinds
def test_many_jobs_exist_if_the_caller_commits(
    caller: Caller, app: Outlast, work: Any, database: Database, copies: list[str]
) -> None:
    """R002, R008: whatever their text; as copies on connections of psycopg."""
    assert len(TEXTS) >= MIN_JOBS
    caller.write()
    made = caller.enqueue(app, *(work.job(text) for text in TEXTS))
    assert len(copies) == (type(caller).__name__ in COPYING)
    assert [job.args["text"] for job in made] == TEXTS
    assert app.counts()["ready"] == 0
    caller.commit()
    assert database.rows("SELECT note FROM business") == [("x",)]
    assert [app.job(job.id) for job in made] == made


@sampled_kinds
def test_many_jobs_do_not_exist_if_the_caller_rolls_back(
    caller: Caller, app: Outlast, work: Any
) -> None:
    """R002"""
    caller.enqueue(app, *(work.job(text) for text in TEXTS))
    caller.rollback()
    assert app.counts()["ready"] == 0


@pytest.mark.kinds("postgres")
def test_a_copy_that_is_refused_leaves_the_caller_s_work(
    app: Outlast, work: Any, database: Database, copies: list[str]
) -> None:
    """R002, R003: jobs that are there are found; a row that no way takes leaves none. The caller's
    transaction goes on."""
    jobs = build_jobs([work.job(text) for text in TEXTS])
    there = finish(enqueue_jobs(app._blocking, jobs[:-1]))
    with psycopg.connect(database.direct_url) as connection:
        connection.execute("INSERT INTO business (note) VALUES ('x')")
        again = finish(enqueue_jobs(app._blocking, jobs, connection))
        assert again[:-1] == there and len(copies) == 2
        bad = [new() for _ in TEXTS] + [new(max_attempts=-1)]
        with pytest.raises(StoreError, match="refused"):
            finish(enqueue_jobs(app._blocking, bad, connection))
    assert database.rows("SELECT note FROM business") == [("x",)]
    assert app.counts()["ready"] == len(jobs)


@pytest.mark.kinds("postgres")
def test_a_role_under_row_level_security_inserts(
    app: Outlast, work: Any, database: Database, copies: list[str]
) -> None:
    """R002: PostgreSQL copies into no table whose rows it checks."""
    role, schema = f"clerk_{database.schema}", database.schema
    with psycopg.connect(database.direct_url, autocommit=True) as connection:
        try:
            for text in (
                f'CREATE ROLE "{role}"',
                f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}"',
                f'GRANT ALL ON ALL TABLES IN SCHEMA "{schema}" TO "{role}"',
                f'ALTER TABLE "{schema}".job ENABLE ROW LEVEL SECURITY',
                f'CREATE POLICY all_of_it ON "{schema}".job USING (true)',
                f'SET ROLE "{role}"',
            ):
                connection.execute(text)
            made = app.enqueue(*(work.job(text) for text in TEXTS), conn=connection)
            streamed = app.enqueue((work.job(text) for text in TEXTS), conn=connection)
        finally:
            connection.execute("RESET ROLE")
            connection.execute(f'DROP POLICY IF EXISTS all_of_it ON "{schema}".job')
            connection.execute(f'ALTER TABLE "{schema}".job DISABLE ROW LEVEL SECURITY')
            connection.execute(f'DROP OWNED BY "{role}"')
            connection.execute(f'DROP ROLE "{role}"')
    assert len(made) == streamed == len(TEXTS) and len(copies) == 2
    assert app.counts()["ready"] == 2 * len(TEXTS)


@pytest.mark.kinds("postgres")
def test_a_caller_s_pipeline_carries_many_jobs(app: Outlast, work: Any, database: Database) -> None:
    """R002: where psycopg cannot copy."""
    with psycopg.connect(database.direct_url) as connection, connection.pipeline():
        app.enqueue(*(work.job(text) for text in TEXTS), conn=connection)

    async def in_a_loop() -> None:
        async with (
            await psycopg.AsyncConnection.connect(database.direct_url) as connection,
            connection.pipeline(),
        ):
            await app.aenqueue(*(work.job(text) for text in TEXTS), conn=connection)
        await app.aclose()

    asyncio.run(in_a_loop())
    assert app.counts()["ready"] == 2 * len(TEXTS)
