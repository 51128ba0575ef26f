"""Steps and completions of workers that are killed, or stall and come back."""

from __future__ import annotations

import pytest

from tests.support import Database, Processes, eventually
from tests.support.app import PATIENCE, App
from tests.support.processes import stopped

both_colours = pytest.mark.parametrize("colour", ["sync", "async"])


@pytest.mark.parametrize(
    ("point", "again"), [("committed keep_step 3", [3, 4]), ("before keep_step 3", [2, 3, 4])]
)
@both_colours
def test_a_job_killed_after_three_of_five_steps_runs_the_other_two(
    app: App, processes: Processes, point: str, again: list[int], colour: str
) -> None:
    """R105: and one that was done but not yet kept is done again: once more, not less."""
    job = app.durable.steps[colour].enqueue()
    assert app.start_worker(processes, point).wait(PATIENCE) == -9
    first = [entry.task for entry in app.ledger.read("unit")]
    assert first == ["unit-0", "unit-1", "unit-2"]
    app.start_worker(processes)
    assert app.finished(job).result == [0, 1, 4, 9, 16]
    rest = [entry.task for entry in app.ledger.read("unit")][3:]
    assert rest == [f"unit-{n}" for n in again]


@pytest.fixture
def payments(app: App, database: Database) -> list[tuple[str, int]]:
    database.rows(f"CREATE TABLE {app.durable.table} (job text, attempt integer)")
    return []


def paid(app: App, database: Database) -> list[tuple[str, int]]:
    rows = database.rows(f"SELECT job, attempt FROM {app.durable.table}")
    return [(job, attempt) for job, attempt in rows]


@pytest.mark.parametrize(
    ("point", "how", "attempt"),
    [
        ("before finish", "", 2),
        ("after finish", "", 2),  # and before COMMIT
        ("", "dies after", 1),
    ],
)
@pytest.mark.kinds("sqlite", "postgres", "pgbouncer")
@both_colours
@pytest.mark.usefixtures("payments")
def test_a_worker_killed_around_the_commit_leaves_both_or_neither(
    app: App, processes: Processes, database: Database, point: str, how: str, attempt: int,
    colour: str,
) -> None:  # fmt: skip
    """R129, R002: before COMMIT neither the writes nor the completion stand, after it both; in the
    end the effect is there once."""
    job = app.durable.pays[colour].enqueue(how)
    assert app.start_worker(processes, point).wait(PATIENCE) == -9
    if attempt == 2:
        assert paid(app, database) == [] and app.ol.job(job.id).state == "running"
    else:
        assert app.ol.job(job.id).state == "succeeded"
        assert paid(app, database) == [(job.id, 1)]
    app.start_worker(processes)
    assert app.finished(job).result == attempt
    assert paid(app, database) == [(job.id, attempt)]


@both_colours
@pytest.mark.usefixtures("payments")
def test_a_stalled_workers_own_writes_are_taken_back(
    app: App, processes: Processes, database: Database, colour: str
) -> None:
    """R030, R129: A stalls past its lease, B completes, A goes on: its writes do not stand. (On
    SQLite a process that stalls inside its transaction keeps the file from everybody.)"""
    how = "stalls before" if database.is_sqlite else "stalls inside"
    job = app.durable.pays[colour].enqueue(how)
    a = app.start_worker(processes)
    app.ledger.wait("start")
    stopped(a.pid)
    app.start_worker(processes)
    ended = app.finished(job)
    assert (ended.attempt, paid(app, database)) == (2, [(job.id, 2)])
    a.resume()
    eventually(lambda: "claim lost" in a.output() or "refused" in a.output(), message=a.output)
    assert paid(app, database) == [(job.id, 2)]
    assert app.ol.job(job.id) == ended, "not a byte of the row has changed"
    assert len(app.ledger.read("paid")) == 1, "A was told"
