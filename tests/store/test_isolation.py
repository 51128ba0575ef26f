"""Whatever isolation a server gives by default, ours is read committed: whoever locks a row, and
then counts, must see what came before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from outlast.model.flow import group
from outlast.ops import job_actions
from outlast.ops.finish import finish
from outlast.ops.operation import BEGIN, Op, Rows, Statement
from outlast.store import Store, open_store
from outlast.store.handler_connection import aopen_transaction, open_transaction
from outlast.verify.workspace import remove_schemas
from tests.store.crowd import race
from tests.store.flowing import call, lay, stuck
from tests.store.jobs import ending, put, states, take
from tests.support import Database

pytestmark = [pytest.mark.kinds("postgres", "pgbouncer"), pytest.mark.fresh]


@pytest.fixture(params=["repeatable read", "serializable"])
def strict(request: pytest.FixtureRequest, database: Database) -> Iterator[Store]:
    """A store in a database in which every new session gets another isolation."""
    change = "ALTER DATABASE postgres {} default_transaction_isolation"
    pooler = request.getfixturevalue("pgbouncer") if database.kind == "pgbouncer" else None
    database.rows(change.format("SET") + f" TO '{request.param}'")
    try:
        if pooler is not None:
            pooler.renew_backends()
        assert database.rows("SHOW transaction_isolation") == [(request.param,)]
        opened = open_store(database.url, database.schema)
        opened.ready()
        yield opened
        opened.close()
    finally:
        database.rows(change.format("RESET"))
        if pooler is not None:
            pooler.renew_backends()


def looks_twice(id: str, meanwhile: Callable[[], object]) -> Op[tuple[Any, Any]]:
    """What one transaction sees of a job, before and after somebody else changed it."""
    yield BEGIN
    before: Rows = yield Statement("read_prerequisites", {"ids": f'["{id}"]'})
    meanwhile()
    after: Rows = yield Statement("read_prerequisites", {"ids": f'["{id}"]'})
    return before[0][1], after[0][1]


@pytest.mark.parametrize("way", ["run", "arun", "lend", "alend"])
def test_a_transaction_sees_what_came_before_each_statement(strict: Store, way: str) -> None:
    """R070: in our own transactions, blocking and awaited, and in those lent to handlers."""
    (job,) = put(strict.run)
    other = strict.clone()
    asked = (job.id, lambda: other.run(job_actions.cancel, job.id, "ann", ""))

    async def awaited() -> Any:
        try:
            if way == "arun":
                return await strict.arun(looks_twice, *asked)
            async with aopen_transaction(strict) as lent:
                return await lent.run(looks_twice(*asked))
        finally:
            await strict.aclose()

    if way == "run":
        seen = strict.run(looks_twice, *asked)
    elif way == "lend":
        with open_transaction(strict) as lent:
            seen = lent.run(looks_twice(*asked))
    else:
        seen = asyncio.run(awaited())
    other.close()
    assert seen == ("ready", "cancelled")


def test_so_does_a_statement_that_is_in_no_transaction(strict: Store, database: Database) -> None:
    """R070: several that travel together are one for the server; through a pooler they have one."""
    with strict._pool.acquire() as link:  # type: ignore[attr-defined]
        if database.kind == "postgres":
            assert link.execute("SHOW transaction_isolation").fetchall() == [("read committed",)]
        else:
            said = [text for text, *_ in strict.begin_statements()]  # type: ignore[attr-defined]
            assert said[1] == "SET LOCAL transaction_isolation = 'read committed'"


def test_no_follower_is_missed_on_a_strict_server(strict: Store, database: Database) -> None:
    """R070, `unfired`: two ends at once, each of which must see the other."""
    rounds = 30
    flows = [lay(strict.run, group(call(1), call(2)).then(call(9))) for _ in range(rounds)]
    held = {one.id: one for one in take(strict.run, 2 * rounds)}

    def ends(child: int) -> Callable[[int], object]:
        return lambda n: strict.run(finish, [ending(held[flows[n][child].id])])

    race(rounds, ends(0), ends(1))
    assert stuck(database) == 0
    assert states(database).count("ready") == rounds


def test_whoever_migrates_second_sees_what_the_first_did(strict: Store, database: Database) -> None:
    """R176: it waited for the lock under which the tables were made."""
    remove_schemas(database.url, database.schema)
    stores = [open_store(database.url, database.schema) for _ in range(3)]
    done = race(1, *[lambda _, one=one: one.migrate() for one in stores])
    assert sorted(map(len, (answers[0] for answers in done)))[:2] == [0, 0]
    for one in stores:
        one.close()


@pytest.mark.kinds("postgres")
def test_no_statement_is_compiled_first(store: Store) -> None:
    """R070: where statistics are missing, the end of a flow was expected to cost so much that the
    server compiled it, for seconds."""
    with open_transaction(store) as transaction:
        assert transaction.connection.execute("SHOW jit").fetchone() == ("off",)
