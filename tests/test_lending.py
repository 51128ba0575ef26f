"""No test sees another's rows, and nobody whom a test left writes into the next one's tables,
although schemas are lent to one test after the other (tests/support/schemas.py)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from outlast import Outlast
from tests.support import Postgres
from tests.support.schemas import MANY, Schemas, drop_schema


@pytest.fixture
def schemas(postgres_server: Postgres) -> Iterator[Schemas]:
    """Of these tests alone."""
    with closing(Schemas(postgres_server)) as lending:
        yield lending


def changed(lending: Schemas, by: Callable[[str], object]) -> bool:
    """Whether the next test has another schema than the one to which this was done."""
    with lending.lend() as first:
        by(first)
    with lending.lend() as second:
        return first != second


def test_a_schema_is_lent_again_and_looks_as_if_nobody_had_been_there(schemas: Schemas) -> None:
    url = schemas.server.url()
    for _ in range(2):
        with schemas.lend() as schema, Outlast(url, schema=schema) as ol:
            assert ol.counts() == dict.fromkeys(ol.counts(), 0)
            assert ol.queues() == []
            ol.pause("mail")
            events = f"SELECT seq FROM {schema}.event"
            places = f"SELECT name, value FROM {schema}.counter"
            assert schemas.server.execute(events) == [(1,)]
            assert schemas.server.execute(places) == [("place", 0)]
            schemas.server.execute(f"UPDATE {schema}.counter SET value = 7")
    assert not changed(schemas, lambda schema: None)


def test_who_takes_two_has_two(schemas: Schemas) -> None:
    with schemas.lend() as one, schemas.lend() as other:
        assert one != other


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {}.job DROP CONSTRAINT job_owned",
        "ALTER TABLE {}.job ALTER COLUMN attempt SET DEFAULT 1",
        "DROP INDEX {}.job_lease",
        "CREATE TABLE {}.business (note text)",
        "CREATE FUNCTION {}.one() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "CREATE TRIGGER late BEFORE UPDATE ON {}.job FOR EACH ROW"
        " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "TRUNCATE {}.job",
        "UPDATE {}.migration SET compatible_from = 1",
        f"INSERT INTO {{}}.queue SELECT n::text, false, now() FROM generate_series(1, {MANY}) n",
    ],
)
def test_tables_that_were_changed_are_nobody_elses(schemas: Schemas, change: str) -> None:
    assert changed(schemas, lambda schema: schemas.server.execute(change.format(schema)))


def test_nor_is_a_schema_that_is_gone(schemas: Schemas) -> None:
    assert changed(schemas, lambda schema: drop_schema(schemas.server, schema))


def test_whoever_started_a_process_has_no_successor(schemas: Schemas) -> None:
    assert changed(schemas, lambda _: subprocess.run([sys.executable, "-c", ""], check=True))


def test_whoever_left_a_thread_has_no_successor(schemas: Schemas) -> None:
    told = threading.Event()
    left = threading.Thread(target=told.wait)
    try:
        assert changed(schemas, lambda _: left.start())
    finally:
        told.set()
        left.join()


def test_a_session_that_was_left_is_ended(schemas: Schemas) -> None:
    """Also one that has locked a row, or has written and not committed."""
    sessions: list[psycopg.Connection] = []

    def write(schema: str) -> None:
        sessions.append(psycopg.connect(schemas.server.url()))
        sessions[0].execute(f"INSERT INTO {schema}.queue VALUES ('mail', false, now())")

    assert not changed(schemas, write)
    with closing(sessions[0]) as left, pytest.raises(psycopg.OperationalError):
        left.execute("COMMIT")


def test_to_drop_a_schema_ends_nobody_elses_transaction(schemas: Schemas) -> None:
    url = schemas.server.url()
    with (
        psycopg.connect(url) as reader,
        psycopg.connect(url) as maker,
        psycopg.connect(url) as other,
        schemas.lend() as schema,
    ):
        reader.execute(f"SELECT count(*) FROM {schema}.job")
        maker.execute(f"CREATE TABLE {schema}.more (id integer)")
        other.execute("CREATE TEMPORARY TABLE kept (id integer)")
        drop_schema(schemas.server, schema)
        assert other.execute("SELECT count(*) FROM kept").fetchone() == (0,)
        for ended in (reader, maker):
            with pytest.raises(psycopg.OperationalError):
                ended.execute("SELECT 1")
        found = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
        assert other.execute(found, (schema,)).fetchone() == (0,)
