"""A full disk: callers are told, nothing is lost, and all goes on when there is room."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast import StoreError
from tests.support import Database, Processes, eventually
from tests.support.app import PATIENCE, App

FILL = """
import resource
from outlast import StoreUnavailable
from tests.support.app import from_environment

app = from_environment()
app.mark.enqueue(0)
plenty = resource.getrlimit(resource.RLIMIT_FSIZE)
log = app.ol.store.path.with_name(app.ol.store.path.name + "-wal").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (log + 100_000, plenty[1]))
number = 1
try:
    while number < 10_000:
        app.mark.enqueue(number)
        number += 1
except StoreUnavailable:
    print("full after", number, flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, plenty)
app.mark.enqueue(number)
print("there is room again", flush=True)
"""


@pytest.mark.kinds("sqlite")
def test_a_full_disk_refuses_and_loses_nothing(
    database: Database, processes: Processes, tmp_path: Path
) -> None:
    """R179: what was acknowledged is there, what was refused is not, and then it goes on."""
    app = App.of(database, tmp_path)
    app.ol.migrate()
    filling = processes.python(FILL, env=app.environment())
    assert filling.wait(PATIENCE) == 0, filling.output()
    assert "there is room again" in filling.output()
    [number] = [int(line.split()[-1]) for line in filling.output().splitlines() if "full" in line]
    app.start_worker(processes)
    eventually(lambda: app.ol.counts()["succeeded"] == number + 1, PATIENCE)
    assert sorted(job.args["n"] for job in app.ol.jobs(limit=10_000)) == list(range(number + 1))
    app.close()


SMALL = """
import resource
from outlast.ops import workers as worker_ops
from tests.support.app import from_environment

app = from_environment()
app.mark.enqueue(0)
card = app.ol.worker().registration_row()
log = app.ol.store.path.with_name(app.ol.store.path.name + "-wal").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (log + 200_000, resource.RLIM_INFINITY))
for _ in range(400):
    app.ol.store.run(worker_ops.register, card)
print("all was written", flush=True)
"""


@pytest.mark.kinds("sqlite")
def test_a_log_that_cannot_grow_is_copied_into_the_database(
    database: Database, processes: Processes, tmp_path: Path
) -> None:
    """R179: what needs no more room than it has goes on, on a disk that is full: the log does not
    have to reach its usual 8 MB before it is used again."""
    app = App.of(database, tmp_path)
    app.ol.migrate()
    assert "all was written" in processes.python(SMALL, env=app.environment()).succeed(PATIENCE)
    app.close()


@pytest.mark.kinds("postgres")
def test_an_insert_that_the_disk_refuses_is_told_and_running_jobs_keep_their_leases(
    database: Database, processes: Processes, tmp_path: Path
) -> None:
    """R179: the server says what it says when a disk is full (53100)."""
    app = App.of(database, tmp_path)
    app.ol.migrate()
    running = app.gated.enqueue("go")
    app.start_worker(processes)
    app.ledger.wait("start")
    with database.connect() as connection:
        connection.execute(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = '53100'; END $$"
        )
        connection.execute(
            "CREATE TRIGGER full_disk BEFORE INSERT ON job"
            " FOR EACH ROW EXECUTE FUNCTION full_disk()"
        )
        with pytest.raises(StoreError, match="no space left"):
            app.mark.enqueue(1)
        before = app.ol.job(running.id).lease_until
        eventually(lambda: app.ol.job(running.id).lease_until > before, PATIENCE)
        connection.execute("DROP TRIGGER full_disk ON job")
    app.finished(app.mark.enqueue(1))
    (app.folder / "go").touch()
    assert app.finished(running).attempt == 1
    app.close()
