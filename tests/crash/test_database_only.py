"""What is to run later is in the database, and nowhere else."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from outlast import Job
from tests.store.jobs import table
from tests.support import Database, Processes, eventually
from tests.support.app import BOUND, PATIENCE, SLACK, App

SIDE = ("worker", "duty", "statistic", "queue", "event")


@pytest.mark.fresh
@pytest.mark.kinds("sqlite", "postgres")
def test_delayed_jobs_survive_with_nothing_but_their_rows(
    database: Database, processes: Processes, tmp_path: Path
) -> None:
    """R072, R152: two delayed jobs and one that waits for its second attempt. Every process that
    knew of them is killed, and all else is wiped: connections, locks, files beside the database,
    and all rows but the jobs. A new process runs each when it is due, and not before."""
    app = App.of(database, tmp_path)
    app.ol.migrate()
    jobs = [app.mark.using(delay=delay).enqueue(1) for delay in (1.0, 2.5)]
    jobs.append(app.fails_once.using(queue="first").enqueue())
    worker = app.start_worker(processes, queue="first")
    app.ledger.wait("run", jobs[-1].id)
    eventually(lambda: app.ol.job(jobs[-1].id).state == "scheduled", PATIENCE)
    worker.kill()
    app.close()
    left = _wiped(database, tmp_path)
    again = App.of(left, tmp_path)
    again.start_worker(processes)
    for job in jobs:
        _ran_in_time(again.finished(job))
    assert [len(app.ledger.read("run", job.id)) for job in jobs[:2]] == [1, 1]
    assert again.ol.job(jobs[2].id).attempt >= 2
    again.close()


def _wiped(database: Database, folder: Path) -> Database:
    """The jobs alone, in a database whose neighbours are gone."""
    for name in SIDE:
        database.rows(f"DELETE FROM {table(database, name)}")
    if not database.is_sqlite:
        return database
    (new := folder / "elsewhere").mkdir()
    with (
        closing(sqlite3.connect(database.path)) as source,
        closing(sqlite3.connect(new / "left.db")) as target,
    ):
        source.backup(target)
    for path in Path(database.path).parent.glob(f"{Path(database.path).name}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return replace(database, url=f"sqlite:///{new / 'left.db'}")


def _ran_in_time(job: Job) -> None:
    assert job.started_at is not None
    assert 0 <= (job.started_at - job.run_at).total_seconds() < BOUND + SLACK + PATIENCE
