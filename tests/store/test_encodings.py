"""Databases whose encoding cannot hold our text are refused; we always speak UTF-8."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from outlast import Outlast, WrongConnection
from outlast.model.errors import Unsupported
from tests.cli.conftest import Commands
from tests.support import Database
from tests.support.databases import sqlite_database

SNOW = "snow ☃ 𝄞 é"


@pytest.fixture(params=["SQL_ASCII", "LATIN1"])
def other(request: pytest.FixtureRequest, database: Database) -> Iterator[Database]:
    """A database with another encoding, on the same server."""
    import psycopg

    name = f"as_{request.param.lower()}_{database.schema}"
    base = database.direct_url.rpartition("/")[0]
    with psycopg.connect(database.direct_url, autocommit=True) as admin:
        admin.execute(
            f"CREATE DATABASE {name} ENCODING '{request.param}' LC_COLLATE 'C' LC_CTYPE 'C'"
            " TEMPLATE template0"
        )
        yield Database(f"{base}/{name}", database.schema, "postgres", f"{base}/{name}")
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.kinds("postgres")
def test_a_database_of_another_encoding_is_refused(other: Database) -> None:
    """R219: at migrate, by every verb, and by doctor; and nothing is made in it."""
    with Outlast(other.url, schema=other.schema) as ol:

        @ol.task
        def work(text: str) -> None: ...

        for refuse in (ol.migrate, lambda: work.enqueue(SNOW), ol.counts, ol.worker().run):
            with pytest.raises(Unsupported, match="--encoding=UTF8 --template=template0"):
                refuse()
    run = Commands(other)
    for command in (("migrate",), ("doctor",), ("enqueue", "work")):
        answer = run(*command)
        assert answer.code != 0
        assert "template0" in answer.err + answer.out, answer
    assert json.loads(run("doctor", "--json").out)[0]["name"] == "unsupported"  # not: unreachable
    query = "SELECT count(*) FROM information_schema.schemata WHERE schema_name = %s"
    assert other.rows(query, (other.schema,)) == [(0,)]


@pytest.mark.kinds("postgres")
def test_tables_that_stand_in_such_a_database_are_refused(other: Database) -> None:
    """R219: made by an earlier release, say."""
    other.rows(f'CREATE SCHEMA "{other.schema}"')
    table = f'"{other.schema}".migration'
    other.rows(f"CREATE TABLE {table} (version int, compatible_from int, applied_at timestamptz)")
    other.rows(f"INSERT INTO {table} VALUES (6, 2, now())")
    with Outlast(other.url, schema=other.schema) as ol, pytest.raises(Unsupported):
        ol.counts()


@pytest.mark.kinds("postgres", "pgbouncer")
def test_we_speak_utf8_whatever_the_url_and_the_environment_say(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R219: client_encoding is ours, through a pooler too."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    mark = "&" if "?" in database.url else "?"
    with Outlast(f"{database.url}{mark}client_encoding=latin1", schema=database.schema) as ol:

        @ol.task
        def work(text: str) -> None: ...

        job = work.using(key=SNOW, queue=SNOW).enqueue(SNOW)
        read = ol.job(job.id)
        assert (read.args, read.key, read.queue) == ({"text": SNOW}, SNOW, SNOW)


@pytest.mark.kinds("postgres")
def test_a_callers_connection_of_another_encoding_is_told(app: Outlast, database: Database) -> None:
    """R219: what it can say is stored; what it cannot is refused with what to set."""
    import psycopg

    @app.task
    def work(text: str) -> None: ...

    app.migrate()
    with psycopg.connect(database.direct_url, client_encoding="latin1") as connection:
        job = work.using(conn=connection).enqueue("é")
        with pytest.raises(WrongConnection, match="client_encoding to UTF8"):
            work.using(conn=connection).enqueue(SNOW)
    assert [one.args for one in app.jobs()] == [{"text": "é"}] == [app.job(job.id).args]


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_a_sqlite_file_in_utf16_works(tmp_path: Path, encoding: str) -> None:
    """R219: SQLite converts; any text comes back as it was."""
    database: Any = sqlite_database(tmp_path)
    with closing(sqlite3.connect(database.path)) as connection:
        connection.execute(f"PRAGMA encoding = '{encoding}'")
        connection.execute("CREATE TABLE theirs (n)")
        connection.commit()
    with Outlast(database.url) as ol:

        @ol.task
        def work(text: str) -> None: ...

        job = work.using(key=SNOW, queue=SNOW).enqueue(SNOW)
        read = ol.job(job.id)
        assert (read.args, read.key, read.queue) == ({"text": SNOW}, SNOW, SNOW)
        with closing(sqlite3.connect(database.path)) as connection:
            work.using(conn=connection).enqueue(SNOW)
            connection.commit()
        assert len(ol.jobs()) == 2
