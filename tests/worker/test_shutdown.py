"""How a worker leaves: what is running ends or is given back, whatever the handlers do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import Database, Processes, eventually
from tests.support.app import PATIENCE, SLACK, App


@pytest.fixture
def app(database: Database, tmp_path: Path) -> Iterator[App]:
    app = App.of(database, tmp_path)
    yield app
    app.close()


def test_short_jobs_end_and_long_ones_are_claimable_with_their_attempt_unspent(
    app: App, processes: Processes
) -> None:
    """R182, R183: SIGTERM with 10 running, in coroutines and in threads, some of which never end:
    they keep neither their jobs nor the process."""
    short = app.ol.enqueue(*[task.job(1.5) for task in (app.nap, app.nap_in_thread)] * 2)
    long = app.ol.enqueue(*[task.job(60.0) for task in (app.nap, app.nap_in_thread)] * 3)
    worker = app.start_worker(processes, grace=2.0)
    app.ledger.wait("start", count=10)
    asked_at = time.monotonic()
    worker.terminate()
    assert worker.wait(PATIENCE) == 0
    gone_at = time.monotonic()
    assert gone_at - asked_at < 2.0 + 1.0 + SLACK
    jobs = {job.id: job for job in app.ol.jobs()}
    assert time.monotonic() - gone_at < 1.0
    assert [jobs[job.id].state for job in short] == ["succeeded"] * 4
    assert {(jobs[job.id].state, jobs[job.id].attempt) for job in long} == {("ready", 0)}
    assert app.ol.workers() == [], "it said goodbye"

    other = app.start_worker(processes, grace=0.0)
    again = app.ledger.wait("start", count=16)[10:]
    assert {entry.job for entry in again} == {job.id for job in long}
    assert {entry.attempt for entry in again} == {1}, "the first attempt was not charged"
    other.terminate()
    assert other.wait(PATIENCE) == 0


def test_nothing_is_claimed_while_a_worker_drains(app: App, processes: Processes) -> None:
    """R182: stop claiming, even with room for more."""
    running = app.gated.enqueue("gate")
    worker = app.start_worker(processes, grace=30.0, concurrency=10)
    app.ledger.wait("start")
    worker.terminate()
    eventually(lambda: [row.state for row in app.ol.workers()] == ["draining"], PATIENCE)
    late = app.mark.enqueue(1)
    (app.folder / "gate").touch()
    assert worker.wait(PATIENCE) == 0
    assert app.ol.job(running.id).state == "succeeded"
    assert app.ol.job(late.id).state == "ready"


def test_a_second_signal_does_not_wait(app: App, processes: Processes) -> None:
    """R184: and what was running is released all the same."""
    jobs = [app.nap.enqueue(60.0), app.nap_in_thread.enqueue(60.0)]
    worker = app.start_worker(processes, grace=60.0)
    app.ledger.wait("start", count=2)
    worker.terminate()
    eventually(lambda: [row.state for row in app.ol.workers()] == ["draining"], PATIENCE)
    asked_at = time.monotonic()
    worker.interrupt()
    assert worker.wait(PATIENCE) == 0
    assert time.monotonic() - asked_at < 1.0 + SLACK
    for job in jobs:
        assert (app.ol.job(job.id).state, app.ol.job(job.id).attempt) == ("ready", 0)


@pytest.mark.kinds("sqlite")
def test_a_second_signal_ends_even_a_worker_whose_loop_is_blocked(
    app: App, processes: Processes
) -> None:
    """R184: a handler that blocks the event loop cannot hold the process."""
    app.block.enqueue(60.0)
    worker = app.start_worker(processes, grace=60.0)
    app.ledger.wait("start")
    worker.terminate()
    # Its keeper says so, in a thread of its own.
    eventually(lambda: [row.state for row in app.ol.workers()] == ["draining"], PATIENCE)
    worker.terminate()
    asked_at = time.monotonic()
    assert worker.wait(PATIENCE) != 0
    assert time.monotonic() - asked_at < 1.0 + SLACK


def test_a_signal_while_it_starts_is_obeyed(app: App, processes: Processes) -> None:
    """R184: at whatever moment of the start it comes; a job is then untouched or given back."""
    job = app.nap.enqueue(60.0)
    workers = []
    for _ in range(6):
        workers.append(app.start_worker(processes, grace=0.0))
        time.sleep(0.12)  # so that the signal finds each at another point of its start
    for worker in workers:
        worker.terminate()
    for worker in workers:
        assert worker.wait(PATIENCE) in (0, -15)
    assert (app.ol.job(job.id).state, app.ol.job(job.id).attempt) == ("ready", 0)


@pytest.mark.kinds("sqlite")
def test_a_worker_that_waits_for_its_database_can_be_stopped(
    app: App, processes: Processes, tmp_path: Path
) -> None:
    """R184: a signal during a start that cannot succeed."""
    env = app.environment()
    env["OUTLAST_URL"] = "postgresql://nobody@127.0.0.1:1/nothing"
    worker = processes.python("tests.support.app", "", env=env)
    eventually(lambda: "next try" in worker.output(), message=worker.output)
    asked_at = time.monotonic()
    worker.terminate()
    assert worker.wait(PATIENCE) == 0
    assert time.monotonic() - asked_at < 1.0 + SLACK


def test_what_handlers_said_and_returned_last_is_stored_at_shutdown(
    app: App, processes: Processes
) -> None:
    """R185: outcomes, events and follow-up jobs of the last moment outlast the process."""
    busy = app.nap.enqueue(60.0)
    worker = app.start_worker(processes, grace=30.0, concurrency=20)
    app.ledger.wait("start")
    jobs = app.ol.enqueue(*[app.gated.job("gate") for _ in range(5)])
    app.ledger.wait("start", count=6)
    worker.terminate()
    eventually(lambda: [row.state for row in app.ol.workers()] == ["draining"], PATIENCE)
    (app.folder / "gate").touch()
    app.ledger.wait("end", count=5)
    worker.terminate()  # at once: the outcomes may not have reached the database yet
    assert worker.wait(PATIENCE) == 0
    for job in jobs:
        ended = app.ol.job(job.id)
        assert (ended.state, ended.result["attempt"]) == ("succeeded", 1)
        [event] = app.ol.history(job.id)[1]
        assert (event.kind, event.data["note"]) == ("progress", "last words")
    assert app.ol.job(busy.id).state == "ready"


@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_whose_keeper_died_leaves_at_once(
    app: App, processes: Processes, busy: bool
) -> None:
    """R190: nothing runs on under a lease that nobody renews; the exit code says that it broke."""
    jobs = [app.nap.enqueue(60.0)] if busy else []
    worker = app.start_worker(processes, grace=60.0)
    if busy:
        app.ledger.wait("start")
    app.ends_thread.enqueue("outlast-keeper")
    asked_at = app.ledger.wait("run")[0].at
    assert worker.wait(PATIENCE) == 1, "an init system restarts what failed"
    assert time.monotonic() - asked_at < 2.0 + SLACK, "within the lease"
    assert "the heartbeat thread died" in worker.output()
    for job in jobs:
        assert (app.ol.job(job.id).state, app.ol.job(job.id).attempt) == ("ready", 0)
