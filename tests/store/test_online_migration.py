"""Upgrades of tables that are in use: in steps that are resumed, without locks that others notice.

The next release is in the test's own folder: a version 2 with a column, an index and a backfill.
"""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from outlast.model.settings import StoreSettings
from outlast.ops.report import job
from outlast.store import Store, open_store, schema
from outlast.store.schema import SchemaMigration
from tests.store.jobs import column, end, put, put_and_take, table
from tests.support import Database, Processes, eventually

pytestmark = [pytest.mark.kinds("sqlite", "postgres"), pytest.mark.fresh]

NEXT = """-- compatible from: 1
-- change: add the colour of a job
ALTER TABLE ol.job ADD COLUMN colour text;
CREATE TABLE new.paint (name text);
-- index: find jobs by their colour
CREATE INDEX CONCURRENTLY ol.index(job_colour) ON ol.job (colour);
-- backfill: colour the jobs that exist
UPDATE ol.job SET colour = 'blue' WHERE id IN (
    SELECT id FROM ol.job WHERE colour IS NULL LIMIT 2);
-- change: every job has a colour
CREATE TABLE new.brush (name text);
"""
# A process that is the next release, and kills itself when a message of the upgrade begins so.
MIGRATE = """
    import json, logging, os, signal, sys
    from pathlib import Path
    from outlast.store import open_store, schema
    url, name, dialect, folder, at = sys.argv[1:]
    today = schema.migrations
    more = schema._migration(Path(folder) / f"0002.{dialect}.sql", dialect, name)
    schema.migrations = lambda *names: (*today(*names), more)

    class Kill(logging.Handler):
        def emit(self, record):
            if at and record.getMessage().startswith(at):
                os.kill(os.getpid(), signal.SIGKILL)

    logging.getLogger("outlast.migrate").addHandler(Kill())
    logging.getLogger("outlast.migrate").setLevel(logging.INFO)
    print(json.dumps(open_store(url, name).migrate()))
"""


@pytest.fixture
def folder(tmp_path: Path, database: Database) -> Path:
    """Where the next release has its migrations."""
    prefix = f"{database.schema}_" if database.is_sqlite else f'"{database.schema}".'
    for dialect in ("sqlite", "postgres"):
        (tmp_path / f"0002.{dialect}.sql").write_text(NEXT.replace("new.", prefix))
    return tmp_path


@pytest.fixture
def store(database: Database) -> Store:
    """Tables of today's release, with five jobs."""
    opened = open_store(database.url, database.schema)
    put(opened.run, 5)
    return opened


def next_release(folder: Path, database: Database) -> SchemaMigration:
    dialect = "sqlite" if database.is_sqlite else "postgres"
    return schema._migration(folder / f"0002.{dialect}.sql", dialect, database.schema)


@pytest.fixture
def release(
    monkeypatch: pytest.MonkeyPatch, folder: Path, database: Database
) -> Callable[[bool], None]:
    """`release(True)`: this process is the next release; `release(False)`: today's again."""
    today, more = schema.migrations, next_release(folder, database)

    def become(upgraded: bool) -> None:
        known = (lambda *names: (*today(*names), more)) if upgraded else today
        monkeypatch.setattr(schema, "migrations", known)

    return become


def steps_done(database: Database) -> list[tuple[int, int]]:
    query = f"SELECT version, step FROM {table(database, 'migration_step')} ORDER BY 1, 2"
    return database.rows(query)


def colours(database: Database) -> list[str]:
    return column(database, "colour")


def test_an_upgrade_in_steps_beside_the_release_before(
    store: Store, database: Database, release: Callable[[bool], None]
) -> None:
    """R251: both releases work meanwhile and afterwards, and the code goes back without the
    tables."""
    held = put_and_take(store.run, queue="q")
    release(True)
    new = open_store(database.url, database.schema)
    (plan,) = new.pending_migrations()
    assert [step.kind for step in plan.steps] == ["change", "index", "backfill", "change"]
    assert new.migrate() == [2]
    assert new.pending_migrations() == ()
    assert new.migrate() == []
    assert steps_done(database) == [(2, n) for n in (1, 2, 3, 4)]
    assert colours(database) == ["blue"] * 6
    end(store.run, held)
    put(new.run)
    release(False)
    back = open_store(database.url, database.schema)
    assert back.run(job, held.id).state == "succeeded"
    put(back.run)
    for opened in (store, new, back):
        opened.close()


@pytest.mark.parametrize("at", [f"version 2, step {n} of 4" for n in (1, 2, 3, 4)] + ["… 2 rows"])
def test_an_upgrade_that_was_killed_goes_on_where_it_was(
    store: Store, database: Database, folder: Path, processes: Processes, at: str
) -> None:
    """R251: SIGKILL before any step, and in the middle of a backfill. A change that was made twice
    would be refused."""
    store.close()
    dialect = "sqlite" if database.is_sqlite else "postgres"
    given = (database.url, database.schema, dialect, str(folder))
    killed = processes.python(MIGRATE, *given, at)
    assert killed.wait(60) == -signal.SIGKILL
    assert (2,) not in database.rows(f"SELECT version FROM {table(database, 'migration')}")
    done = len(steps_done(database))
    assert done == (2 if at.startswith("…") else int(at.split()[3]) - 1)
    assert json.loads(processes.python(MIGRATE, *given, "").succeed(60)) == [2]
    assert steps_done(database) == [(2, n) for n in (1, 2, 3, 4)]
    assert colours(database) == ["blue"] * 5


@pytest.mark.kinds("postgres")
def test_an_index_that_was_left_invalid_is_built_again(
    store: Store, database: Database, release: Callable[[bool], None]
) -> None:
    """R251: as a kill in the middle of CREATE INDEX CONCURRENTLY leaves it."""
    _first_step_is_done(database)
    database.rows("CREATE INDEX job_colour ON job (colour)")
    database.rows(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'job_colour'::regclass"
    )
    release(True)
    assert store.migrate() == [2]
    query = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'job_colour'::regclass"
    assert database.rows(query) == [(True,)]
    store.close()


@pytest.mark.kinds("postgres")
def test_a_change_that_has_to_wait_blocks_nobody_for_long(
    store: Store, database: Database, release: Callable[[bool], None]
) -> None:
    """R251: a report reads the jobs all the time; the upgrade waits for it half a second at a time,
    and jobs are enqueued and finished between its tries."""
    release(True)
    new = open_store(database.url, database.schema)
    upgrade = threading.Thread(target=new.migrate)
    waits = (
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE"
        f" 'ALTER TABLE \"{database.schema}\"%%'"
    )
    with database.connect() as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM job")
        upgrade.start()
        eventually(lambda: database.rows(waits))
        end(store.run, put_and_take(store.run, queue="q"))  # waits for one try at the most
        assert upgrade.is_alive()
        assert steps_done(database) == []
        reader.execute("COMMIT")
    upgrade.join(60)
    assert steps_done(database) == [(2, n) for n in (1, 2, 3, 4)]
    new.close()
    store.close()


@pytest.mark.kinds("postgres")
def test_an_upgrade_waits_for_another_one_and_does_not_delay_it(
    store: Store, database: Database, release: Callable[[bool], None]
) -> None:
    """R251: the build of an index waits for all that read before it. Whoever waits for the lock of
    the upgrade must not be among them: both would wait for each other."""
    _first_step_is_done(database)
    release(True)
    name = f"upgrade {database.schema}"
    url = f"{database.url}{'&' if '?' in database.url else '?'}application_name={quote(name)}"
    stores = [open_store(url, database.schema, PATIENT) for _ in range(3)]
    sessions = f"SELECT pid FROM pg_stat_activity WHERE application_name = '{name}' AND "
    building = sessions + "wait_event_type = 'Lock' AND query LIKE 'CREATE INDEX%%'"
    trying = sessions + "(query LIKE '%%advisory%%' OR query = 'ROLLBACK')"
    with database.connect() as writer, ThreadPoolExecutor(3) as pool:
        writer.execute("BEGIN")
        writer.execute("UPDATE job SET priority = 1 WHERE false")
        for opened in stores:
            opened.MAX_TRIES = 1  # type: ignore[misc] - a deadlock is not tried again
        upgrades = [pool.submit(stores[0].migrate)]
        eventually(lambda: database.rows(building))
        upgrades += [pool.submit(other.migrate) for other in stores[1:]]
        eventually(lambda: len(database.rows(trying)) == 2)
        writer.execute("COMMIT")
        assert all(upgrade.result(60) in ([2], []) for upgrade in upgrades)
    assert steps_done(database) == [(2, n) for n in (1, 2, 3, 4)]
    for opened in (store, *stores):
        opened.close()


def _first_step_is_done(database: Database) -> None:
    database.rows("ALTER TABLE job ADD COLUMN colour text")
    database.rows("CREATE TABLE paint (name text)")
    database.rows("INSERT INTO migration_step VALUES (2, 1, now())")


PATIENT = StoreSettings.of(lock_timeout=30.0, deadline=60.0)


@pytest.mark.kinds("postgres")
def test_an_upgrade_waits_longer_than_a_statement_may(
    store: Store, database: Database, release: Callable[[bool], None]
) -> None:
    """R251: somebody else builds a large index."""
    release(True)
    impatient = open_store(database.url, database.schema, StoreSettings.of(lock_timeout=0.05))
    tried = threading.Event()
    with database.connect() as other, ThreadPoolExecutor(1) as pool, _logged(tried):
        other.execute(
            "SELECT pg_advisory_lock(hashtextextended(%s, 0))",
            (f"outlast migrate {database.schema}",),
        )
        upgrade = pool.submit(impatient.migrate)
        eventually(lambda: tried.is_set() or upgrade.done())
        other.execute("SELECT pg_advisory_unlock_all()")
        assert upgrade.result(60) == [2]
    for opened in (store, impatient):
        opened.close()


@contextmanager
def _logged(tried: threading.Event) -> Iterator[None]:
    """Set when an upgrade says that it tries again."""

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "trying again" in record.getMessage():
                tried.set()

    log, handler = logging.getLogger("outlast.migrate"), Listening()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def test_a_step_of_one_statement_has_one(tmp_path: Path) -> None:
    path = tmp_path / "0002.sqlite.sql"
    path.write_text("-- compatible from: 1\n-- backfill: two\nDELETE FROM a; DELETE FROM b;\n")
    with pytest.raises(ValueError, match="a step of the kind backfill has one statement"):
        schema._migration(path, "sqlite", "outlast")
