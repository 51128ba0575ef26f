"""The tables themselves refuse rows that no job may ever be, whoever writes them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from outlast.model.ids import new_job_id
from outlast.model.lifecycle import FINAL, LEGAL, State
from outlast.store import Store
from outlast.store.schema import migrations
from tests.store.jobs import table
from tests.support import Database

pytestmark = pytest.mark.kinds("sqlite", "postgres")

READY = {
    "tenant": "acme", "queue": "default", "task": "work", "args": "{}", "state": "ready",
    "priority": 0, "max_attempts": 3, "max_crashes": 3,
}  # fmt: skip
RUNNING = READY | {"state": "running", "worker": "w1", "lease_until": "now"}
DEAD = READY | {"state": "dead", "finished_at": "now"}

LEGAL_ROWS: dict[str, dict[str, Any]] = {
    "ready": READY,
    "waiting": READY | {"state": "waiting", "waits_for": 1},
    "scheduled": READY | {"state": "scheduled"},
    "running": RUNNING,
    "dead": DEAD,
    "cancelled by its worker": DEAD | {"state": "cancelled", "worker": "w1"},
    "succeeded with a result": DEAD | {"state": "succeeded", "worker": "w1", "result": "1"},
    "lowest priority": READY | {"priority": -100},
    "highest priority": READY | {"priority": 100},
}
ILLEGAL_ROWS: dict[str, dict[str, Any]] = {
    "unknown state": READY | {"state": "done"},
    "no state": READY | {"state": None},
    "running without a lease": RUNNING | {"lease_until": None},
    "running without a worker": RUNNING | {"worker": None},
    "running and finished": RUNNING | {"finished_at": "now"},
    "ready with a worker": READY | {"worker": "w1"},
    "ready with a lease": READY | {"lease_until": "now"},
    "waiting with a worker": READY | {"state": "waiting", "worker": "w1", "waits_for": 1},
    "waiting for nothing": READY | {"state": "waiting"},
    "waiting for less than nothing": READY | {"waits_for": -1},
    "needing nobody knows what": READY | {"needs": "luck"},
    "scheduled with a worker": READY | {"state": "scheduled", "worker": "w1"},
    "ready but finished": READY | {"finished_at": "now"},
    "dead without an end": DEAD | {"finished_at": None},
    "succeeded without an end": DEAD | {"state": "succeeded", "finished_at": None},
    "cancelled without an end": DEAD | {"state": "cancelled", "finished_at": None},
    "dead with a lease": DEAD | {"lease_until": "now"},
    "a result without success": DEAD | {"result": "1"},
    "a result while ready": READY | {"result": "1"},
    "priority too high": READY | {"priority": 101},
    "priority too low": READY | {"priority": -101},
    "no tenant": READY | {"tenant": None},
    "empty tenant": READY | {"tenant": ""},
    "no queue": READY | {"queue": None},
    "empty queue": READY | {"queue": ""},
    "no task": READY | {"task": None},
    "no arguments": READY | {"args": None},
    "no attempts": READY | {"max_attempts": 0},
    "no crashes": READY | {"max_crashes": 0},
    "fewer than no attempts": READY | {"attempt": -1},
    "fewer than no failures": READY | {"failures": -1},
    "fewer than no crashes": READY | {"crashes": -1},
    "a fence that went back": READY | {"fence": -1},
    "no time to run": READY | {"timeout": 0},
}


def test_legal_rows_are_accepted(database: Database, store: Store) -> None:
    assert [name for name, row in LEGAL_ROWS.items() if not _accepts(database, row)] == []


def test_illegal_rows_are_refused(database: Database, store: Store) -> None:
    """R037, R081, R110: lifecycle, priority range and tenant hold by constraint."""
    assert [name for name, row in ILLEGAL_ROWS.items() if _accepts(database, row)] == []


def test_a_key_stands_once_for_a_tenant_and_queue(database: Database, store: Store) -> None:
    """R003: by a unique index; other tenants and queues have keys of their own."""
    keyed = READY | {"key": "k"}
    for row in (keyed, keyed | {"tenant": "other"}, keyed | {"queue": "other"}, READY, READY):
        _insert(database, row)
    with pytest.raises(Exception, match=r"(?i)unique"):
        _insert(database, keyed)


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_both_schemas_know_the_states_of_the_model_and_no_others(dialect: str) -> None:
    """R110: the table of legal transitions stands once; the schemas repeat its states."""
    text = " ".join(migrations(dialect, "outlast")[0].statements)
    listed = re.search(r"CHECK \(state IN\s*\(([^)]*)\)", text)
    assert listed and set(re.findall(r"\w+", listed[1])) == {str(state) for state in State}
    assert set(LEGAL) == set(State)
    assert all(LEGAL[state] <= {State.WAITING, State.READY} for state in FINAL), (
        "a final state is final"
    )


def _accepts(database: Database, row: dict[str, Any]) -> bool:
    try:
        _insert(database, row)
    except Exception as error:
        assert "constraint" in str(error).lower(), error
        return False
    return True


def _insert(database: Database, row: dict[str, Any]) -> None:
    now = "julianday('now')" if database.is_sqlite else "now()"
    mark = "?" if database.is_sqlite else "%s"
    facts = {"id": new_job_id(), "run_at": "now", "created_at": "now"} | row
    marks = ", ".join(now if value == "now" else mark for value in facts.values())
    given = [value for value in facts.values() if value != "now"]
    with database.connect() as connection:
        connection.execute(
            f"INSERT INTO {table(database, 'job')} ({', '.join(facts)}) VALUES ({marks})", given
        )
