"""A death is noticed long before a lease ends: by the lock that it frees, or by a supervisor.

Leases are long here, so that nothing in these tests is due to one.
"""

from __future__ import annotations

import json
import time

import pytest

from tests.support import Database, Process, Processes, eventually
from tests.support.app import PATIENCE, TIMINGS, App
from tests.support.locks import pause_between_writes
from tests.support.processes import kill
from tests.worker.working import sql

LONG: dict[str, object] = {"lease": 300.0, "renew_every": 1.0}
SOON = 15.0  # seconds: what takes one on a machine that has time, and far below any lease here
NEVER = 3600  # seconds


def fleet(app: App, processes: Processes, number: int, **settings: object) -> Process:
    """`outlast worker --processes` with the tasks of these tests."""
    module = "from tests.support.app import from_environment\n\nol = from_environment().ol\n"
    (processes.folder / "the_fleet.py").write_text(module)
    arguments = ("worker", "the_fleet:ol", "--processes", number)
    return processes.python("outlast", *arguments, env=app.environment(**settings))


def losses(database: Database) -> list[dict[str, object]]:
    """What is on record of workers that died."""
    rows = sql(database, "SELECT data FROM {event} WHERE kind = 'worker-lost' ORDER BY seq")
    return [json.loads(data) if isinstance(data, str) else data for (data,) in rows]


def test_a_killed_workers_jobs_start_again_although_their_leases_hold(
    app: App, processes: Processes, database: Database
) -> None:
    """R027, R061: the kernel frees its lock, and the others look for such. All of its jobs start
    again at once: one crash tells nothing about any of them."""
    jobs = app.ol.enqueue(*[app.gated.job("never")] * 10)
    victim = app.start_worker(processes, **LONG)
    app.ledger.wait("start", count=10)
    other = app.start_worker(processes, **LONG)
    eventually(lambda: len(app.ol.workers()) == 2, PATIENCE)
    victim.kill()
    killed_at = time.monotonic()
    again = app.ledger.wait("start", count=20)[10:]
    assert time.monotonic() - killed_at < SOON
    assert {(entry.job, entry.pid) for entry in again} == {(job.id, other.pid) for job in jobs}
    for job in jobs:
        app.finished(job)
    [loss] = losses(database)
    assert (loss["how"], loss["number"]) == ("lock", 10)
    attempt = app.ol.history(jobs[0].id)[0][0]
    assert "its liveness lock is free" in str(attempt.error)


def test_a_worker_that_stands_still_is_not_dead(
    app: App, processes: Processes, database: Database
) -> None:
    """R030: it holds its lock, so its jobs are its own until their leases end."""
    job = app.gated.enqueue("go")
    victim = app.start_worker(processes, **LONG)
    app.ledger.wait("start")
    app.start_worker(processes, **LONG)
    eventually(lambda: len(app.ol.workers()) == 2, PATIENCE)
    pause_between_writes(victim, database)
    for n in range(20):
        app.finished(app.mark.enqueue(n))  # the other one works, and looks for the dead
    assert app.ol.job(job.id).attempt == 1
    victim.resume()
    (app.folder / "go").touch()
    assert app.finished(job).attempt == 1


@pytest.mark.kinds("postgres")
def test_a_lock_that_is_lost_for_a_moment_is_not_a_death(
    app: App, processes: Processes, database: Database
) -> None:
    """R169: the connection that holds it is cut; its worker proves its life again."""
    job = app.gated.enqueue("go")
    app.start_worker(processes, **LONG)
    app.ledger.wait("start")
    sessions = (
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND database ="
        " (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    held = {pid for (pid,) in eventually(lambda: database.rows(sessions), PATIENCE)}
    for pid in held:
        database.rows(f"SELECT pg_terminate_backend({pid})")
    eventually(lambda: {p for (p,) in database.rows(sessions)} - held, PATIENCE)
    (app.folder / "go").touch()
    assert app.finished(job).attempt == 1


@pytest.mark.slow_on("postgres")
def test_a_supervisor_buries_its_child_at_once(
    app: App, processes: Processes, database: Database
) -> None:
    """R061, R189: nobody looks for lost claims here but the supervisor, and it knows how its child
    died."""
    job = app.gated.enqueue("never")
    supervisor = fleet(app, processes, 2, **LONG, reclaim_every=NEVER)
    [start] = app.ledger.wait("start")
    kill(start.pid)
    again = app.ledger.wait("start", count=2)[1]
    assert again.at - start.at < SOON + PATIENCE
    app.finished(job)
    [loss] = losses(database)
    assert (loss["how"], loss["detail"]) == ("exit", "died (signal 9, SIGKILL)")
    supervisor.terminate()
    assert supervisor.wait(PATIENCE) == 0


@pytest.mark.slow_on("sqlite")
def test_a_poison_job_ends_dead_and_its_neighbours_succeed(app: App, processes: Processes) -> None:
    """R049, R050: ten jobs in one process, of which one kills it whenever it runs. Before a lost
    worker could end them, the suspects are kept apart, so only the culprit meets its cap."""
    poison = app.poison.enqueue()
    good = app.ol.enqueue(*[app.nap.job(0.6)] * 9)
    supervisor = fleet(app, processes, 2, reclaim_every=0.2)
    for job in good:
        app.finished(job)
    eventually(lambda: app.ol.job(poison.id).final, PATIENCE, message=supervisor.output)
    dead = app.ol.job(poison.id)
    assert (dead.state, dead.attempt) == ("dead", 3)
    attempts = app.ol.history(poison.id)[0]
    assert [attempt.outcome for attempt in attempts] == ["crashed"] * 3
    assert len({attempt.worker for attempt in attempts}) == 3, "three workers, by name"
    assert all("SIGKILL" in str(a.error) or "lock is free" in str(a.error) for a in attempts)
    supervisor.terminate()
    assert supervisor.wait(PATIENCE) == 0


def test_a_suspect_does_not_die_of_another_poison_job(
    app: App, processes: Processes, database: Database
) -> None:
    """R050: it has lost two workers already, and would share its process with a job that kills
    it."""
    suspect = app.nap.enqueue(0.5)
    app.ol.migrate()
    sql(database, "UPDATE {job} SET crashes = 2")
    poison = app.poison.using(max_crashes=1).enqueue()
    victim = app.start_worker(processes, **LONG)
    eventually(lambda: victim.ended, PATIENCE)
    app.start_worker(processes, **LONG)
    eventually(lambda: app.ol.job(poison.id).final, PATIENCE)
    assert [app.ol.job(job.id).state for job in (suspect, poison)] == ["succeeded", "dead"]


def test_without_any_duty_and_any_lock_a_lost_job_still_starts_again(
    app: App, processes: Processes, database: Database
) -> None:
    """R076: every duty is taken for ever, and no worker has a proof of life; the lease remains."""
    app.ol.migrate()
    job = app.gated.enqueue("never")
    victim = app.start_worker(processes)
    app.ledger.wait("start")
    app.start_worker(processes)
    eventually(lambda: len(app.ol.workers()) == 2, PATIENCE)
    far = "9e12" if database.is_sqlite else "'infinity'"
    eventually(lambda: len(sql(database, "SELECT 1 FROM {duty}")) >= 3, PATIENCE)
    sql(database, "UPDATE {duty} SET next_at = " + far)
    pause_between_writes(victim, database)  # or it would prove its life again
    sql(database, "UPDATE {worker} SET proof = NULL")
    victim.kill()
    killed_at = time.monotonic()
    app.ledger.wait("start", count=2)
    assert TIMINGS["lease"] / 2 < time.monotonic() - killed_at < SOON
    assert app.finished(job).attempt == 2


def test_any_one_worker_that_is_left_does_all_that_is_essential(
    app: App, processes: Processes, database: Database
) -> None:
    """R158, R159: there is no leader to elect. All but one are killed or stand still: what they ran
    starts again, due jobs become ready, expired ones end, new ones run; and the one that stood
    still changes nothing of it when it goes on."""
    jobs = [app.gated.enqueue("gate") for _ in range(3)]
    workers = [app.start_worker(processes, concurrency=1) for _ in range(3)]
    assert len({entry.pid for entry in app.ledger.wait("start", count=3)}) == 3
    still, killed, _ = workers
    pause_between_writes(still, database)
    killed.kill()
    (app.folder / "gate").touch()
    later = app.mark.using(delay=0.5).enqueue(1)
    expired = app.mark.using(delay=60.0, expires=0.2).enqueue(2)
    done = [app.finished(job) for job in (*jobs, later, app.mark.enqueue(3))]
    eventually(lambda: app.ol.job(expired.id).state == "cancelled", PATIENCE)
    assert {job.worker for job in done} == {done[-1].worker}, "one has done it all"
    still.resume()
    eventually(lambda: len(app.ol.workers()) == 2, PATIENCE)
    app.finished(app.mark.enqueue(4))
    assert [app.ol.job(job.id) for job in done] == done


def test_a_job_that_runs_past_its_deadline_is_taken_from_a_living_worker(
    app: App, processes: Processes, database: Database
) -> None:
    """R032, R060 `owner-hung`: its lease holds and its lock is held, but nothing there can end it:
    the others do."""
    job = app.gated.using(timeout=3.0).enqueue("never")
    stuck = app.start_worker(processes, cancel_grace=0.1, **LONG)
    app.ledger.wait("start")
    pause_between_writes(stuck, database)
    app.start_worker(processes, cancel_grace=0.1, **LONG)
    assert app.finished(job).attempt == 2
    attempt = app.ol.history(job.id)[0][0]
    assert attempt.outcome == "timed-out"
    assert "long after its timeout of 3 s" in str(attempt.error)
