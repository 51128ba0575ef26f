"""Whoever works may die at any moment: its jobs run again, soon, and end as if nothing had been.

R090: each of these jobs ends succeeded; `app.finished` insists on it.
"""

from __future__ import annotations

import sys
import time
from datetime import datetime, timedelta

import pytest

from outlast import Job
from tests.support import Database, Processes, eventually
from tests.support.app import BOUND, PATIENCE, SLACK, App
from tests.support.processes import kill


def test_jobs_of_a_killed_worker_start_elsewhere_within_the_bound(
    app: App, processes: Processes
) -> None:
    """R027, R063, R076: by any other worker, with no special process; it is the second attempt."""
    jobs = [app.gated.enqueue("never"), app.nap_in_thread.enqueue(1.0)]
    victim = app.start_worker(processes)
    first = app.ledger.wait("start", count=2)
    other = app.start_worker(processes)
    eventually(lambda: len(app.ol.workers()) == 2, PATIENCE)
    victim.kill()
    killed_at = time.monotonic()
    lost = {entry.job for entry in first} - {entry.job for entry in app.ledger.read("end")}
    assert jobs[0].id in lost
    again = app.ledger.wait("start", count=2 + len(lost))[2:]
    assert again[-1].at - killed_at < BOUND + SLACK
    assert {(entry.pid, entry.attempt) for entry in again} == {(other.pid, 2)}
    for job in (job for job in jobs if job.id in lost):
        ended = app.finished(job)
        assert (ended.attempt, ended.crashes) == (2, 1)
        assert ended.result == {"pid": other.pid, "attempt": 2}
        crash = app.ol.history(job.id)[0][0]
        assert (crash.attempt, crash.outcome, crash.error["type"]) == (1, "crashed", "WorkerLost")


POINTS = {
    "committed claim": ("running", 2),  # the claim is committed; its answer reaches nobody
    "before succeed": ("running", 2),  # the handler has returned, and nobody has heard of it
    "committed succeed": ("succeeded", 1),  # the database has, and nobody has heard of that
}


def test_a_result_counts_from_its_commit_on(app: App, processes: Processes) -> None:
    """R026, R027, R071: a worker killed before that commit leaves a job that runs again; one that
    is killed after it leaves one that does not. Never done without its result."""
    jobs = {point: app.mark.using(queue=point.replace(" ", "-")).enqueue(7) for point in POINTS}
    victims = [app.start_worker(processes, point, jobs[point].queue) for point in POINTS]
    assert [victim.wait(PATIENCE) for victim in victims] == [-9, -9, -9]
    for point, (state, _) in POINTS.items():
        left = app.ol.job(jobs[point].id)
        assert (left.state, left.result) == (state, 7 if state == "succeeded" else None)
    other = app.start_worker(processes)
    for point, (_, attempts) in POINTS.items():
        ended = app.finished(jobs[point])
        assert (ended.result, ended.attempt) == (7, attempts), point
    app.finished(app.mark.enqueue(8))  # when this one is through, nothing is left to run
    other.terminate()
    assert other.wait(PATIENCE) == 0
    runs = {point: len(app.ledger.read("run", job.id)) for point, job in jobs.items()}
    assert runs == {"committed claim": 1, "before succeed": 2, "committed succeed": 1}


def test_a_result_and_its_follow_up_jobs_are_there_together_or_not_at_all(
    app: App, processes: Processes
) -> None:
    """R026: also when the worker dies inside the transaction. What the handler said before it ended
    may be there earlier, never later."""
    points = ["before finish", "after finish", "committed finish"]
    jobs = {
        point: app.followed.using(queue=point.replace(" ", "-")).enqueue(n)
        for n, point in enumerate(points)
    }
    victims = [app.start_worker(processes, point, job.queue) for point, job in jobs.items()]
    assert [victim.wait(PATIENCE) for victim in victims] == [-9, -9, -9]
    for point, job in jobs.items():
        done = point.startswith("committed")
        # PostgreSQL may take a moment to notice that its client is gone.
        eventually(
            lambda job=job, done=done: (
                app.ol.job(job.id).state == ("succeeded" if done else "running")
            )
        )
        assert len(app.ol.history(job.id)[1]) >= (1 if done else 0)
    assert [follower.args for follower in app.ol.jobs(task="mark")] == [{"n": 2}]
    other = app.start_worker(processes)
    for job in jobs.values():
        app.finished(job)
    followers = app.ol.jobs(task="mark")
    assert sorted(app.finished(follower).result for follower in followers) == [0, 1, 2]
    other.terminate()
    assert other.wait(PATIENCE) == 0
    runs = [len(app.ledger.read("run", job.id)) for job in [*jobs.values(), *followers]]
    assert runs == [2, 2, 1, 1, 1, 1]


def test_a_look_during_a_valid_lease_does_not_use_up_the_trigger(
    app: App, processes: Processes
) -> None:
    """R028: others look at the job again and again while its lease holds, and get nothing; when
    its owner dies, they still get it."""
    job = app.gated.enqueue("never")
    victim = app.start_worker(processes)
    app.ledger.wait("start")
    app.start_worker(processes)
    eventually(lambda: len(app.ol.workers()) == 2, PATIENCE)
    for n in range(5):  # each of these makes the other look
        app.finished(app.mark.enqueue(n))
    assert len(app.ledger.read("start", job.id)) == 1
    victim.kill()
    killed_at = time.monotonic()
    _, second = app.ledger.wait("start", job.id, count=2)
    assert second.at - killed_at < BOUND + SLACK
    assert app.finished(job).attempt == 2


def test_a_retry_and_a_delay_survive_the_death_of_every_worker(
    app: App, processes: Processes
) -> None:
    """R044, R062: the time is in the row: not earlier, not lost. One worker is killed in the middle
    of the wait, one right after it wrote the time down."""
    waits = app.mark.using(delay=2.0).enqueue(1)
    jobs = {queue: app.fails_once.using(queue=queue).enqueue() for queue in ("in-wait", "at-once")}
    in_wait = app.start_worker(processes, "", "in-wait")
    at_once = app.start_worker(processes, "committed finish", "at-once")
    due = {}
    for queue, job in jobs.items():
        eventually(lambda job=job: app.ol.job(job.id).state == "scheduled")
        due[queue] = app.ol.job(job.id).run_at
    assert at_once.wait(PATIENCE) == -9
    in_wait.kill()
    other = app.start_worker(processes)
    ended = {queue: app.finished(job) for queue, job in jobs.items()}
    [there_at] = [row.started_at for row in app.ol.workers() if row.pid == other.pid]

    def late(job: Job, due: datetime) -> float:
        """Seconds; a slow machine may take its time to start the worker."""
        assert job.started_at is not None
        assert job.started_at >= due, "not earlier"
        return (job.started_at - max(due, there_at)).total_seconds()

    for queue, job in ended.items():
        assert (job.attempt, job.crashes, job.failures) == (2, 0, 1)
        assert late(job, due[queue]) < 0.2 + SLACK
        assert len(app.ledger.read("run", job.id)) == 2
    delayed = app.finished(waits)
    assert late(delayed, waits.created_at + timedelta(seconds=2)) < 0.2 + SLACK
    assert delayed.attempt == 1


@pytest.mark.kinds("sqlite")
def test_a_chain_of_deaths_still_ends_well(app: App, processes: Processes) -> None:
    """R027, R090: one dies with the jobs in hand, one while it takes them back, one after that."""
    jobs = app.ol.enqueue(*[app.mark.using(max_crashes=10).job(n) for n in range(5)])
    for point in ("committed claim", "before finish", "committed claim"):
        assert app.start_worker(processes, point, heals=True).wait(PATIENCE) == -9
    app.start_worker(processes)
    assert [app.finished(job).result for job in jobs] == list(range(5))
    crashes = {app.ol.job(job.id).crashes for job in jobs}
    assert crashes == {2}, "who died taking them back had not taken them yet"


@pytest.mark.kinds("postgres")
def test_siblings_take_over_from_a_killed_child(
    app: App, processes: Processes, database: Database
) -> None:
    """R027, R189: a job of a supervisor's killed child runs in another, which is there already."""
    command = [sys.executable, "-m", "tests.support.app"]
    script = f"""
    import sys
    from outlast.worker.supervisor import supervise
    sys.exit(supervise({command!r}, 2, 5.0))
    """
    supervisor = processes.python(script, env=app.environment(concurrency=4))
    eventually(lambda: len(app.ol.workers()) == 2, PATIENCE, message=supervisor.output)
    jobs = app.ol.enqueue(*[app.gated.job("gate") for _ in range(4)])
    first = app.ledger.wait("start", count=4)
    killed = {entry.job for entry in first if entry.pid == first[0].pid}
    kill(first[0].pid)
    killed_at = time.monotonic()
    again = app.ledger.wait("start", count=4 + len(killed))[4:]
    assert again[-1].at - killed_at < BOUND + SLACK
    assert {entry.job for entry in again} == killed
    (app.folder / "gate").touch()
    for job in jobs:
        app.finished(job)
    supervisor.terminate()
    assert supervisor.wait(PATIENCE) == 0
