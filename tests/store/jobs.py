"""Short ways to say what these tests do to jobs, and to look at their rows past the product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from outlast.model.claim import Claim
from outlast.model.ids import new_job_id
from outlast.model.job import Job, NewJob
from outlast.model.lifecycle import Outcome
from outlast.model.outcome import AttemptEnd, Transition, decide
from outlast.model.retry import Retry
from outlast.model.wait import Wait, WaitKind
from outlast.ops.claim import ClaimRequest, claim
from outlast.ops.enqueue import enqueue
from outlast.ops.finish import Finished, finish
from tests.support import Database

Run = Callable[..., Any]

STEADY = Retry(max_attempts=3, base=1.0, cap=60.0, jitter=0.0)


def new(**said: Any) -> NewJob:
    """A job to be inserted, like any other but for what is said."""
    facts: dict[str, Any] = {
        "id": new_job_id(),
        "tenant": "default",
        "queue": "default",
        "task": "work",
        "args": "{}",
        "priority": 0,
        "max_attempts": 3,
        "max_crashes": 3,
    }
    return NewJob(**(facts | said))


def put(run: Run, number: int = 1, **said: Any) -> list[Job]:
    """Enqueue so many jobs."""
    jobs: list[Job] = run(enqueue, [new(**said) for _ in range(number)])
    return jobs


def take(run: Run, limit: int = 1, **said: Any) -> list[Claim]:
    """Claim up to so many jobs."""
    wanted: dict[str, Any] = {"worker": "w1", "queue": "default", "lease": 60.0} | said
    claims: list[Claim] = run(claim, ClaimRequest(limit=limit, **wanted))
    return claims


def put_and_take(run: Run, **said: Any) -> Claim:
    """One job in a worker's hands."""
    (job,) = put(run, **said)
    (claimed,) = take(run, queue=job.queue)
    assert claimed.id == job.id
    return claimed


def ending(claim: Claim, outcome: Outcome | str = "succeeded", **said: Any) -> Transition:
    """What a worker would hand in for an attempt that ended so."""
    if outcome not in ("succeeded", "released"):
        said.setdefault("error", {"type": "Boom", "message": "it broke", "traceback": ""})
    if outcome == Outcome.WAITED:
        said.setdefault("wait", Wait("sleep", WaitKind.SLEEP, delay=3600.0))
    return decide(claim, AttemptEnd(Outcome(outcome), **said), STEADY, 0.5)


def end(run: Run, claim: Claim, outcome: Outcome | str = "succeeded", **said: Any) -> Finished:
    finished: Finished = run(finish, [ending(claim, outcome, **said)])
    return finished


def table(database: Database, name: str) -> str:
    """A table of ours as `database.connect()` knows it."""
    return f"{database.schema}_{name}" if database.is_sqlite else name


def column(database: Database, name: str, where: str = "", params: Sequence[Any] = ()) -> list[Any]:
    """One column of the jobs, in the order of their ids."""
    query = f"SELECT {name} FROM {table(database, 'job')} {where} ORDER BY id"
    return [value for (value,) in database.rows(query, params)]


def states(database: Database) -> list[str]:
    return column(database, "state")


def set_all(database: Database, change: str, where: str = "true") -> None:
    """Change rows behind the product's back, waiting for nobody: rows that are locked stay."""
    jobs = table(database, "job")
    lock = "" if database.is_sqlite else "FOR UPDATE SKIP LOCKED"
    with database.connect() as connection:
        connection.execute(
            f"WITH chosen AS (SELECT id FROM {jobs} WHERE {where} {lock})"
            f" UPDATE {jobs} SET {change} WHERE id IN (SELECT id FROM chosen)"
        )


def end_leases(database: Database, where: str = "state = 'running'") -> None:
    """As if time had passed: every lease ran out a second ago."""
    past = "0" if database.is_sqlite else "now() - interval '1 second'"
    set_all(database, f"lease_until = {past}", where)


def go_back(database: Database) -> None:
    """As a standby that had not heard of them: running jobs as they were before their claims."""
    lost = "attempt = attempt - 1, fence = fence - 1, worker = NULL, lease_until = NULL"
    set_all(database, f"state = 'ready', {lost}, started_at = NULL", "state = 'running'")


def make_due(database: Database) -> None:
    """As if time had passed: everything scheduled is due."""
    now = "1" if database.is_sqlite else "now() - interval '1 second'"
    set_all(database, f"run_at = {now}", "state = 'scheduled'")


def spoil(database: Database, where: str, *states: str) -> None:
    """Make rows that the database refuses to bring into any state but these."""
    set_all(database, "trace = 'bad'", where)
    jobs, allowed = table(database, "job"), ", ".join(f"'{state}'" for state in states)
    database.rows(
        f"CREATE TRIGGER spoiled BEFORE UPDATE OF state ON {jobs} WHEN old.trace = 'bad'"
        f" AND new.state NOT IN ({allowed}) BEGIN SELECT RAISE(ABORT, 'spoiled'); END"
        if database.is_sqlite
        else f"ALTER TABLE {jobs} ADD CONSTRAINT spoiled"
        f" CHECK (trace IS DISTINCT FROM 'bad' OR state IN ({allowed}))"
    )
