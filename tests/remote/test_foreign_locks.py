"""Somebody else holds a write lock for longer than a remote worker's lease: no job dies of it."""

from __future__ import annotations

import time

import pytest

from outlast import State
from tests.remote.fleet import Fleet
from tests.support import Database, eventually
from tests.support.locks import foreign_lock

LEASE = 4.0
LONGER = 2.0  # than the lease, each lock
MODES = ("SHARE", "EXCLUSIVE", "ACCESS EXCLUSIVE")  # the first one is that of a CREATE INDEX


@pytest.mark.slow_on("postgres")
@pytest.mark.quiet
def test_locks_longer_than_the_lease_cost_no_remote_worker_its_jobs(
    fleet: Fleet, database: Database
) -> None:
    """R214: three locks while three jobs run, the last two of which end during the third lock."""
    fleet.serve(lease=LEASE)
    worker = fleet.work(credit=5)
    gates = [fleet.folder / f"gate-{n}" for n in range(3)]
    jobs = [fleet.enqueue("wait_for", path=str(gate))[0] for gate in gates]
    for job in jobs:
        fleet.begun(job)
    for mode in MODES:
        with foreign_lock(database, mode):
            time.sleep(LEASE)
            if mode == MODES[-1]:
                gates[1].touch()
                gates[2].touch()
            time.sleep(LONGER)
        renewed(fleet, database, str(jobs[0].id))
    gates[0].touch()
    for job in jobs:
        ended = fleet.ended(job)
        assert ended.state is State.SUCCEEDED, fleet.ol.explain(job.id)
        assert (ended.result, ended.attempt, ended.crashes, ended.fence) == (1, 1, 0, 1)
    assert "claim lost" not in worker.output()


def renewed(fleet: Fleet, database: Database, job: str) -> None:
    """Once its owner, whoever that is by now, holds it for most of a lease again."""
    left = "lease_until - (julianday('now') - 2440587.5) * 86400"
    if not database.is_sqlite:
        left = "extract(epoch FROM lease_until - clock_timestamp())"
    table = "outlast_job" if database.is_sqlite else f"{database.schema}.job"
    query = f"SELECT {left} FROM {table} WHERE id = {'?' if database.is_sqlite else '%s'}"

    def held() -> bool:
        [(seconds,)] = database.rows(query, (job,))
        return seconds is not None and seconds > LEASE / 2

    eventually(held, 30, message=lambda: fleet.ol.explain(job))


def test_a_worker_that_let_go_puts_its_job_back_when_the_server_is_back(fleet: Fleet) -> None:
    """R142: it could not renew while the server was away for longer than its lease. Its process
    lives, so no crash is charged."""
    server = fleet.serve(lease=LEASE)
    worker = fleet.work()
    gate = fleet.folder / "gate"
    [job] = fleet.enqueue("wait_for", path=str(gate))
    eventually(gate.with_name("gate.began").exists, 30, message=worker.output)
    server.kill()
    eventually(lambda: "claim lost" in worker.output(), 30, message=worker.output)
    fleet.serve(lease=LEASE)
    eventually(lambda: fleet.ol.job(job.id).fence == 2, 30, message=worker.output)
    gate.touch()
    ended = fleet.ended(job)
    assert (ended.state, ended.attempt, ended.crashes) == (State.SUCCEEDED, 1, 0)
