"""A batch in the hands of a process that dies or is told to leave."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.batching import Batching
from tests.support import Database, Processes, eventually
from tests.support.app import PATIENCE, SLACK


@pytest.fixture
def batching(database: Database, tmp_path: Path) -> Iterator[Batching]:
    app = Batching(database.url, database.schema, tmp_path)
    app.ol.migrate()
    yield app
    app.close()


def test_every_item_of_a_killed_batch_runs_again(batching: Batching, processes: Processes) -> None:
    """R027, R055, R090: in a worker with two slots; each is charged with one crash."""
    jobs = batching.ol.enqueue(*(batching.publish.job(n) for n in range(100)))
    victim = batching.work(processes, concurrency=2)
    first = batching.ledger.wait("start", count=100)
    assert {entry.job for entry in first} == {job.id for job in jobs}, "in one call"
    victim.kill()
    other = batching.work(processes, concurrency=2)
    for job in jobs:
        done = batching.finished(job)
        assert (done.attempt, done.crashes, done.failures) == (2, 1, 0)
        assert done.result == job.args["item"]
    ended = Counter(entry.job for entry in batching.ledger.read("end"))
    assert ended == Counter(job.id for job in jobs), "once each"
    other.terminate()
    assert other.wait(PATIENCE) == 0


@pytest.mark.slow_on("postgres")
def test_an_item_that_kills_its_process_ends_dead_and_its_neighbours_succeed(
    batching: Batching, processes: Processes
) -> None:
    """R049, R050: ten items in one call, of which one ends the process. Before a lost worker could
    end them, each is called alone, so only the culprit meets its cap."""
    items = ["poison" if n == 4 else f"good {n}" for n in range(10)]
    jobs = batching.ol.enqueue(*(batching.explode.job(item) for item in items))
    supervisor = batching.fleet(processes, 2, reclaim_every=0.2)
    poison = jobs.pop(4)
    for job in jobs:
        batching.finished(job)
    eventually(lambda: batching.ol.job(poison.id).final, PATIENCE, message=supervisor.output)
    dead = batching.ol.job(poison.id)
    assert (dead.state, dead.attempt, dead.crashes) == ("dead", 3, 3)
    outcomes = [attempt.outcome for attempt in batching.ol.history(poison.id)[0]]
    assert outcomes == ["crashed"] * 3
    supervisor.terminate()
    assert supervisor.wait(PATIENCE) == 0


def test_a_worker_that_is_told_to_leave_gives_back_what_it_gathered(
    batching: Batching, processes: Processes
) -> None:
    """R182, R183: at once, unspent, while the batch that runs has its grace time."""
    running = batching.ol.enqueue(*(batching.publish.job(n) for n in range(100)))
    gathered = batching.ol.enqueue(*(batching.gathers.job(n) for n in range(50)))
    worker = batching.work(processes, grace=60.0)
    batching.ledger.wait("start", count=100)
    eventually(lambda: batching.ol.counts()["running"] == 150, PATIENCE)
    worker.terminate()
    asked_at = time.monotonic()
    eventually(lambda: batching.ol.counts()["ready"] == 50, PATIENCE)
    assert time.monotonic() - asked_at < 1.0 + SLACK
    assert not worker.ended
    (batching.folder / "gate").touch()
    assert worker.wait(PATIENCE) == 0
    assert {batching.ol.job(job.id).state for job in running} == {"succeeded"}
    left = [batching.ol.job(job.id) for job in gathered]
    assert {(job.state, job.attempt) for job in left} == {("ready", 0)}


def test_a_batch_that_outlasts_the_grace_time_can_be_claimed_again_unspent(
    batching: Batching, processes: Processes
) -> None:
    """R183"""
    jobs = batching.ol.enqueue(*(batching.publish.job(n) for n in range(20)))
    worker = batching.work(processes, grace=0.2)
    batching.ledger.wait("start", count=20)
    worker.terminate()
    assert worker.wait(PATIENCE) == 0
    left = [batching.ol.job(job.id) for job in jobs]
    assert {(job.state, job.attempt) for job in left} == {("ready", 0)}
