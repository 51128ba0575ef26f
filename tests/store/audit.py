"""A witness inside the database: every change of a job's state or fence, as it happened."""

from __future__ import annotations

from outlast.model.lifecycle import LEGAL, State
from tests.store.jobs import table
from tests.support import Database

POSTGRES = """
CREATE TABLE {schema}.audit (
    seq bigserial, job uuid, before text, after text, fence bigint, new_fence bigint);
CREATE FUNCTION {schema}.witness() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO {schema}.audit (job, before, after, fence, new_fence)
    VALUES (new.id, old.state, new.state, old.fence, new.fence);
    RETURN NULL;
END $$;
CREATE TRIGGER witness AFTER UPDATE ON {schema}.job FOR EACH ROW
    WHEN (old.state <> new.state OR old.fence <> new.fence)
    EXECUTE FUNCTION {schema}.witness();
"""
SQLITE = """
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY, job TEXT, before TEXT, after TEXT, fence INTEGER, new_fence INTEGER);
CREATE TRIGGER witness AFTER UPDATE ON {job} FOR EACH ROW
    WHEN old.state <> new.state OR old.fence <> new.fence
BEGIN
    INSERT INTO audit (job, before, after, fence, new_fence)
    VALUES (new.id, old.state, new.state, old.fence, new.fence);
END;
"""


def watch(database: Database) -> None:
    """From now on, every change is seen."""
    with database.connect() as connection:
        if database.is_sqlite:
            connection.executescript(SQLITE.format(job=table(database, "job")))
        else:
            connection.execute(POSTGRES.format(schema=database.schema))


def seen(database: Database) -> list[tuple[str, str]]:
    """All changes of state, in the order they were made."""
    query = "SELECT before, after FROM audit WHERE before <> after ORDER BY seq"
    return [(before, after) for before, after in database.rows(query)]


def violations(database: Database) -> list[str]:
    """Changes that no job may undergo (invariant I4)."""
    rows = database.rows(
        "SELECT CAST(job AS text), before, after, fence, new_fence FROM audit ORDER BY seq"
    )
    found = []
    last: dict[str, tuple[str, int]] = {}
    for job, before, after, fence, new_fence in rows:
        claimed = before == "ready" and after == "running"
        if before != after and State(after) not in LEGAL[State(before)]:
            found.append(f"{job}: {before} → {after}")
        if new_fence != fence + claimed:
            found.append(f"{job}: {before} → {after} moved the fence from {fence} to {new_fence}")
        if last.setdefault(job, (before, fence)) != (before, fence):
            found.append(f"{job}: was {last[job]} and then suddenly {(before, fence)}")
        last[job] = (after, new_fence)
    return found
