"""Tables and their versions: created once, upgraded once, and shared by old and new releases.

The next releases are written here: they know one version more than today's, or two.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from outlast import Outlast, SchemaMismatch, StoreError
from outlast.model.settings import StoreSettings
from outlast.ops.report import job
from outlast.store import Store, open_store, schema
from outlast.store.schema import SchemaMigration
from outlast.store.sqlite.connection import connect
from tests.store.jobs import end, put, put_and_take, states, table, take
from tests.support import Database, Processes
from tests.support.databases import KINDS

pytestmark = [pytest.mark.kinds(*KINDS), pytest.mark.fresh]

MIGRATE = """
    import json, sys
    from outlast.store import open_store
    url, name, how = sys.argv[1:]
    store = open_store(url, name)
    print(json.dumps(store.migrate() if how == "migrate" else store.ready()))
"""

Release = Callable[..., None]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch, database: Database) -> Release:
    """`release(CHANGES, …)`: from now on this process is a release that knows these statements as
    the next versions of the tables; `release()` is today's."""
    today = schema.migrations

    def become(*versions: tuple[str, ...], compatible_from: int = TODAY) -> None:
        prefix = f"{database.schema}_" if database.is_sqlite else f"{database.schema}."
        more = [
            SchemaMigration(
                number, compatible_from, tuple(one.replace("ol.", prefix) for one in changes)
            )
            for number, changes in enumerate(versions, NEXT)
        ]
        monkeypatch.setattr(schema, "migrations", lambda *names: (*today(*names), *more))

    return become


TODAY = schema.latest()
NEXT = TODAY + 1
ALL = list(range(1, NEXT))
CHANGES = ("ALTER TABLE ol.job ADD COLUMN colour text", "CREATE TABLE ol.paint (job text)")
LATER = ("CREATE TABLE ol.brush (job text)",)
FAILS = "SELECT no_such_function()"


def opened(database: Database) -> Store:
    return open_store(database.url, database.schema)


@pytest.mark.kinds("sqlite", "postgres")
@pytest.mark.parametrize("how", ["migrate", "ready"])
def test_five_processes_migrate_once(database: Database, processes: Processes, how: str) -> None:
    """R176: asked for at once, or all finding the tables missing at their first use."""
    started = [processes.python(MIGRATE, database.url, database.schema, how) for _ in range(5)]
    done = [json.loads(one.succeed(60)) for one in started]
    if how == "migrate":
        assert sorted(done) == [[], [], [], [], ALL]
    assert versions(database) == ALL


@pytest.mark.kinds("sqlite")
def test_a_new_file_that_somebody_writes_is_waited_for(tmp_path: Path) -> None:
    """R176: several may open a new database at once; SQLite itself would refuse all but one."""
    path = tmp_path / "new.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE theirs (x)")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        connect(path, StoreSettings(lock_timeout=0.05))
    leaves = threading.Timer(0.2, other.close)
    leaves.start()
    connect(path, StoreSettings()).close()
    leaves.join()


def test_missing_tables_are_created_at_the_first_use(database: Database) -> None:
    """R176: nothing to set up; and migrating what is up to date does nothing."""
    store = opened(database)
    assert len(put(store.run)) == 1
    assert store.migrate() == []
    store.close()


def test_tables_that_are_behind_are_named_and_then_upgraded(
    database: Database, release: Release
) -> None:
    """R176: the message says what to run; no release ever upgrades by itself what others use."""
    store = opened(database)
    (made,) = put(store.run)
    store.close()
    release(CHANGES)
    store = opened(database)
    with pytest.raises(SchemaMismatch, match="run `outlast migrate`"):
        store.run(job, made.id)
    assert store.migrate() == [NEXT]
    assert store.run(job, made.id) == made, "and what was there is still there"
    store.close()


def test_a_release_works_with_later_tables_that_say_so(
    database: Database, release: Release
) -> None:
    """R176, R177: old and new processes side by side during a deploy; in-flight rows are safe."""
    old = opened(database)
    in_flight = put_and_take(old.run, queue="q")
    release(CHANGES)
    new = opened(database)
    assert new.migrate() == [NEXT]
    release()
    fresh_old = opened(database)
    for store in (old, fresh_old, new):
        held = put_and_take(store.run, queue="r")
        end(store.run, held, "released")
        (again,) = take(old.run, queue="r")
        end(new.run, again)
    end(fresh_old.run, in_flight)
    assert states(database) == ["succeeded"] * 4
    for store in (old, fresh_old, new):
        store.close()


def test_a_release_refuses_later_tables_that_need_a_newer_one(
    database: Database, release: Release
) -> None:
    """R176"""
    release(CHANGES, compatible_from=NEXT)
    store = opened(database)
    store.ready()
    store.close()
    release()
    store = opened(database)
    with pytest.raises(SchemaMismatch, match="upgrade outlast"):
        put(store.run)
    store.close()


def test_an_upgraded_database_is_like_a_fresh_one(database: Database, release: Release) -> None:
    """R176: same columns, defaults, constraints and indexes, however it came to be."""
    release()
    store = opened(database)
    store.ready()
    store.close()
    release(CHANGES)
    store = opened(database)
    assert store.migrate() == [NEXT]
    store.close()
    before = catalogue(database)
    _drop_all(database)
    fresh = opened(database)
    assert fresh.migrate() == [*ALL, NEXT]
    fresh.close()
    assert catalogue(database) == before
    assert any("paint" in line for line in before)


def test_tables_that_are_two_versions_behind_are_upgraded_step_by_step(
    database: Database, release: Release
) -> None:
    """R176, R177: with what was in flight; one that fails leaves those before it, and what they end
    as is what a fresh install has."""
    old = opened(database)
    (made,) = put(old.run)
    old.close()
    release(CHANGES, (*LATER, FAILS))
    store = opened(database)
    with pytest.raises(StoreError, match="no_such_function"):
        store.migrate()
    assert versions(database) == [*ALL, NEXT]
    release(CHANGES, LATER)
    with pytest.raises(SchemaMismatch, match="run `outlast migrate`"):
        put(store.run)
    assert store.migrate() == [NEXT + 1]
    (held,) = take(store.run)
    assert held.id == made.id
    end(store.run, held)
    assert states(database) == ["succeeded"]
    store.close()
    before = catalogue(database)
    _drop_all(database)
    fresh = opened(database)
    assert fresh.migrate() == [*ALL, NEXT, NEXT + 1]
    fresh.close()
    assert catalogue(database) == before
    assert any("paint" in line for line in before) and any("brush" in line for line in before)


def test_tables_of_a_development_version_are_refused(database: Database) -> None:
    """R176: what was version 1 before the first release is another one; nobody upgrades it, and
    whoever asks is told what to do."""
    store = opened(database)
    store.ready()
    store.close()
    migration = table(database, "migration")
    database.rows(f"UPDATE {migration} SET compatible_from = 1 WHERE version = 1")
    for later in range(NEXT, NEXT + 9):
        database.rows(f"INSERT INTO {migration} SELECT {later}, 2, applied_at FROM {migration}"
                      " WHERE version = 1")  # fmt: skip
    before = catalogue(database)
    store = opened(database)
    for act in (store.ready, store.migrate):
        with pytest.raises(SchemaMismatch, match=r"before the first release.*drop the tables"):
            act()
    assert catalogue(database) == before
    store.close()


def test_a_migration_that_dies_midway_leaves_nothing_behind(
    database: Database, release: Release
) -> None:
    """R176: one transaction; the next try starts over."""
    store = opened(database)
    store.ready()
    before = catalogue(database)
    release((*CHANGES, FAILS))
    with pytest.raises(StoreError):
        store.migrate()
    assert catalogue(database) == before
    release(CHANGES)
    assert store.migrate() == [NEXT]
    store.close()


def test_a_fresh_install_that_dies_in_its_last_version_leaves_nothing_behind(
    database: Database, release: Release
) -> None:
    """R176: all versions in one transaction: whoever comes by meanwhile, or after a death, finds
    no tables of an older version, with which it would refuse to work."""
    release((*CHANGES, FAILS))
    store = opened(database)
    with pytest.raises(StoreError):
        store.ready()
    assert catalogue(database) == []
    release(CHANGES)
    assert store.migrate() == [*ALL, NEXT]
    assert len(put(store.run)) == 1
    store.close()


def test_tables_that_vanished_are_named(database: Database) -> None:
    """R176: drift has a message that says what to do, on both databases."""
    store = opened(database)
    store.ready()
    _drop_all(database)
    with pytest.raises(SchemaMismatch, match="outlast migrate"):
        put(store.run)
    store.migrate()
    assert len(put(store.run)) == 1
    store.close()


def test_two_schemas_in_one_database_do_not_meet(database: Database) -> None:
    """R172: every name is qualified."""
    one = Outlast(database.url, schema=database.schema)
    other = Outlast(database.url, schema=f"{database.schema}_b")
    try:
        put(one.store.run, 2, key=None)
        put(other.store.run, 3)
        assert (one.counts()["ready"], other.counts()["ready"]) == (2, 3)
        assert len(take(one.store.run, 9)) == 2
    finally:
        if not database.is_sqlite:
            database.rows(f"DROP SCHEMA {database.schema}_b CASCADE")
        one.close()
        other.close()


def versions(database: Database) -> list[int]:
    """Those that were applied."""
    rows = database.rows(f"SELECT version FROM {table(database, 'migration')}")
    return sorted(version for (version,) in rows)


def catalogue(database: Database) -> list[str]:
    """The tables as the database describes them, but for the record of when they were made."""
    if database.is_sqlite:
        query = "SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_master"
        lines = [line for (line,) in database.rows(query) if "sqlite_sequence" not in line]
        return sorted(lines)
    schema = (database.schema,)
    if not database.rows("SELECT 1 FROM pg_namespace WHERE nspname = %s", schema):
        return []
    columns = database.rows(
        "SELECT table_name, column_name, data_type, is_nullable, column_default, is_identity,"
        " ordinal_position FROM information_schema.columns WHERE table_schema = %s",
        schema,
    )
    indexes = database.rows("SELECT indexdef FROM pg_indexes WHERE schemaname = %s", schema)
    checks = database.rows(
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = %s::regnamespace",
        schema,
    )
    options = database.rows(
        "SELECT relname, reloptions::text FROM pg_class WHERE relnamespace = %s::regnamespace"
        " AND relkind IN ('r', 'i')",
        schema,
    )
    return sorted(str(row) for rows in (columns, indexes, checks, options) for row in rows)


def _drop_all(database: Database) -> None:
    if not database.is_sqlite:
        database.rows(f"DROP SCHEMA {database.schema} CASCADE")
        return
    tables = database.rows("SELECT name FROM sqlite_master WHERE name LIKE 'outlast_%'"
                           " AND type = 'table'")  # fmt: skip
    for (name,) in tables:
        database.rows(f"DROP TABLE {name}")
