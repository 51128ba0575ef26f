"""Rows as only another hand can write them: moments out of bounds, text that is no JSON."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from outlast import Outlast, chain
from tests.support import Database

FAR_SQLITE, FAR_POSTGRES = "9e999", "'infinity'"
LATE_SQLITE, LATE_POSTGRES = "1e13", "'250000-01-01'"
EARLY_SQLITE, EARLY_POSTGRES = "-9e999", "'-infinity'"


def sample(ol: Outlast, database: Database) -> dict[str, str]:
    """One good job, and one bad one of each kind; their ids by what is wrong with them."""

    @ol.task(queue="bad")
    def work(n: int = 0) -> None: ...

    @ol.task(queue="good")
    def fine() -> None: ...

    far, late, early = (
        (FAR_SQLITE, LATE_SQLITE, EARLY_SQLITE)
        if database.is_sqlite
        else (FAR_POSTGRES, LATE_POSTGRES, EARLY_POSTGRES)
    )
    now = "(julianday('now') - 2440587.5) * 86400.0" if database.is_sqlite else "now()"
    dead = f"state = 'dead', finished_at = {now}, error = "
    bad_json = "'{oops'" if database.is_sqlite else r"""'{"type": "\u0000\ud800", "message": 7}'"""
    changes = {
        "far": f"state = 'scheduled', run_at = {far}",
        "late": f"state = 'scheduled', run_at = {late}",
        "early": f"created_at = {early}",
        "expiry": f"expires_at = {far}",
        "ended": f"state = 'succeeded', started_at = {early}, finished_at = {far}",
        "cancelled": f"state = 'cancelled', started_at = {far}, finished_at = {late}",
        "dead": dead + f"{bad_json}, started_at = {early}",
        "error": dead + "'[1, 2]'",
        "args": "args = " + ("'{oops'" if database.is_sqlite else r"""'["\u0000"]'"""),
        "running": f"state = 'running', worker = 'ghost', lease_until = {far}, started_at = {far},"
        " attempt = 1, fence = 1",
        "state": "state = 'zombie'",
    }
    if database.is_sqlite:
        changes["numbers"] = "attempt = 'many', priority = 1, timeout = 'long'"
        changes["result"] = f"state = 'succeeded', finished_at = {now}, result = '{{oops'"
        changes["bytes"] = "args = X'FF00', task = X'776F726BFF'"
    jobs = ol.enqueue(*(work.job(n) for n in range(len(changes))))
    ids = {kind: job.id for kind, job in zip(changes, jobs, strict=True)}
    ids["good"] = fine.enqueue().id
    flow = ol.enqueue(chain(work.job(n=98), work.job(n=99)))
    ids["flow"] = flow[0].id
    with database.connect() as connection:
        _unguard(database, connection)
        name = (lambda table: f"{database.schema}_{table}") if database.is_sqlite else str
        mark = "?" if database.is_sqlite else "%s"
        for kind, change in changes.items():
            connection.execute(f"UPDATE {name('job')} SET {change} WHERE id = {mark}", (ids[kind],))
        connection.execute(f"UPDATE {name('flow')} SET created_at = {far}")
        dead_id, bad = f"'{ids['dead']}'", bad_json
        connection.execute(
            f"INSERT INTO {name('event')} (job, attempt, kind, data, at)"
            f" VALUES ({dead_id}, 1, 'log', {bad}, {far}),"
            f" ({dead_id}, 1, 'redrive', {bad}, {late}),"
            f" (NULL, NULL, 'workers-lost', {bad}, {early})"
        )
        connection.execute(
            f"INSERT INTO {name('attempt')} (job, fence, attempt, outcome, error, started_at,"
            f" finished_at) VALUES ({dead_id}, 1, 1, 'failed', {bad}, {early}, {far}),"
            f" ('{ids['error']}', 1, 1, 'crashed', '7', {far}, {late})"
        )
        connection.execute(
            f"INSERT INTO {name('step')} (job, name, result, fence, attempt, at)"
            f" VALUES ({dead_id}, 'one', {bad}, 1, 1, {far})"
        )
        connection.execute(
            f"INSERT INTO {name('worker')} (id, host, pid, queues, tasks, concurrency, state,"
            f" version, lease, started_at, seen_at) VALUES ('odd', 'h', 1, {bad}, {bad}, 1,"
            f" 'working', '0', 15, {early}, {far})"
        )
        connection.execute(
            f"INSERT INTO {name('token')} (id, name, hash, scopes, created_at, expires_at)"
            f" VALUES ('{ids['good']}', 'odd', 'x', {bad}, {early}, {far})"
        )
        connection.execute(
            f"INSERT INTO {name('duty')} (name, next_at, succeeded_at)"
            f" VALUES ('odd', {far}, {early})"
        )
    return ids


def _unguard(database: Database, connection: Any) -> None:
    """Let the database store what its constraints forbid."""
    if database.is_sqlite:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        return
    query = "SELECT conname FROM pg_constraint WHERE contype = 'c' AND conrelid = 'job'::regclass"
    for (constraint,) in connection.execute(query).fetchall():
        with suppress(Exception):
            connection.execute(f'ALTER TABLE job DROP CONSTRAINT "{constraint}"')
