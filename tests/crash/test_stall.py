"""A worker that stalls past its lease and then goes on is a zombie: nothing that it does counts."""

from __future__ import annotations

import re

from tests.support import Database, Processes, eventually
from tests.support.app import PATIENCE, App
from tests.support.locks import pause_between_writes
from tests.support.processes import stop


def test_whatever_a_stalled_worker_has_to_say_is_refused(app: App, processes: Processes) -> None:
    """R030, R161, R213: A stalls, B claims and finishes, A goes on: its completion, failure or
    retry and its events change nothing, it is told so, and B's result stands."""
    ways = ("succeeds", "fails", "postpones")
    jobs = {way: app.stalls.using(queue=way).enqueue(way) for way in ways}
    stalled = {way: app.start_worker(processes, "", way) for way in ways}
    app.ledger.wait("run", count=3)
    for worker in stalled.values():
        stop(worker.pid)  # it has stopped itself; this waits until all of it has
    b = app.start_worker(processes)
    again = app.ledger.wait("run", count=6)[3:]
    assert {(entry.pid, entry.attempt) for entry in again} == {(b.pid, 2)}
    ended = {way: app.finished(job) for way, job in jobs.items()}
    for way, a in stalled.items():
        assert ended[way].result == {"pid": b.pid, "attempt": 2}
        a.resume()
        eventually(lambda a=a: "was refused" in a.output(), message=a.output)
        assert "attempt 1 lost its claim" in a.output()
        assert app.ol.job(jobs[way].id) == ended[way], "not a byte of the row has changed"
        attempts, events = app.ol.history(jobs[way].id)
        assert [(one.attempt, one.outcome) for one in attempts] == [
            (1, "stalled"), (2, "succeeded"),
        ]  # fmt: skip
        assert ended[way].crashes == 0, "its process existed"
        assert events == [], "what it had to tell came from the past"
    assert app.ol.counts() == {**dict.fromkeys(app.ol.counts(), 0), "succeeded": 3}


def test_a_stalled_worker_drops_what_it_no_longer_owns(
    app: App, processes: Processes, database: Database
) -> None:
    """R030: stopped in the middle of its handlers, it learns from its first renewal that the jobs
    are another's, stops the handlers, and keeps working."""
    jobs = [app.gated.enqueue("gate"), app.nap_in_thread.enqueue(3.0)]
    a = app.start_worker(processes)
    app.ledger.wait("start", count=2)
    pause_between_writes(a, database)
    b = app.start_worker(processes)
    again = app.ledger.wait("start", count=4)[2:]
    assert {entry.pid for entry in again} == {b.pid}
    a.resume()
    # A handler that has slept through its end meanwhile is refused instead.
    told = re.compile(r"claim lost, stopping|lost its claim; its outcome \(\w+\) was refused")
    eventually(lambda: len(told.findall(a.output())) == 2, message=a.output)
    for job in jobs:
        assert app.finished(job).result == {"pid": b.pid, "attempt": 2}
    b.terminate()
    assert b.wait(PATIENCE) == 0
    after = app.mark.enqueue(1)
    app.finished(after)
    assert app.ledger.read("run", after.id)[0].pid == a.pid, "the zombie is a good worker again"


def test_a_worker_that_stalls_within_its_lease_loses_nothing(
    app: App, processes: Processes, database: Database
) -> None:
    """R030: a pause is no death."""
    job = app.gated.enqueue("gate")
    a = app.start_worker(processes, lease=20.0, renew_every=6.0)
    app.ledger.wait("start")
    app.start_worker(processes)
    eventually(lambda: len(app.ol.workers()) == 2, PATIENCE)
    pause_between_writes(a, database)
    for n in range(5):
        app.finished(app.mark.enqueue(n))  # the other one works, and looks for lost claims
    (app.folder / "gate").touch()
    a.resume()
    ended = app.finished(job)
    assert (ended.attempt, ended.result["pid"]) == (1, a.pid)


def test_a_process_whose_loop_stands_still_ends_and_its_job_runs_elsewhere(
    app: App, processes: Processes
) -> None:
    """R187: it renews from a thread of its own, so no lease tells; it says so, and ends."""
    job = app.block_at_first.enqueue()
    wedged = app.start_worker(processes, stall_limit=1.0, lease=300.0)
    app.ledger.wait("start")
    app.start_worker(processes, stall_limit=0.0, lease=300.0)
    assert wedged.wait(PATIENCE) == 1
    assert "the event loop was blocked" in wedged.output()
    assert app.finished(job).attempt == 2
