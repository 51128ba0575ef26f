"""The SQL itself: both databases understand every statement, and mean the same by it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import psycopg
import pytest

import outlast.ops
from outlast.model.ids import new_job_id
from outlast.store import Store, open_store
from outlast.store.postgres_session import FUSED
from outlast.store.statements import POSTGRES, SQLITE, Query, queries
from tests.support import Database

NAMES = sorted(queries(POSTGRES, "outlast"))
SOURCE = Path(outlast.ops.__file__).parents[1]
SAMPLES = {
    "id": new_job_id(), "job": new_job_id(), "before": new_job_id(), "ids": "[]", "rows": "[]",
    "known": False, "each": 1, "queues": "[]", "tasks": "[]", "args": "{}", "state": "working",
    "priority": 0, "fence": 1, "run_at": 0.0,
    "max_attempts": 1, "max_crashes": 1, "timeout": 1.0, "delay": 1.0, "limit": 1, "skip": 0,
    "running": 0, "pid": 1, "concurrency": 1, "attempt": 1, "paused": True, "keep": 1.0,
    "every": 1.0, "lease": 1.0, "found": 1, "healed": 1, "skipped": 1, "failed": 1, "after": 0,
    "n": 0, "refund": 0, "failures": 0, "crashes": 0, "at": 0.0, "expires_at": 0.0,
    "expires_in": 1.0, "started_at": 0.0, "late": 1.0, "soon": 1.0, "slack": 1.0, "workers": "[]",
    "far": 9.0, "last_life": True, "needs": "succeeded", "waits_for": 0, "quorum": 1, "reach": 1,
    "tied": True, "place": 0, "states": "[]", "fail_after": 1, "live": True, "flow": new_job_id(),
    "hooks": "{}", "result": "1", "more": 1, "scopes": "[]", "floor": new_job_id(),
    "window": 1, "above": 0, "low": 0, "high": 1, "span": 10, "text": "%x%",
    "hashes": "[]", "life": 1.0, "older": 1.0, "since": 0.0, "until": 1.0, "draining": True,
    "trouble": "x",
}  # fmt: skip


@pytest.mark.kinds("postgres")
def test_both_databases_agree_on_every_statement(
    database: Database, store: Store, tmp_path: Path
) -> None:
    """R181: PostgreSQL prepares it, SQLite plans and runs it; same parameters, same columns."""
    ours = queries(POSTGRES, database.schema)
    theirs = queries(SQLITE, "outlast")
    assert theirs.keys() < ours.keys() == theirs.keys() | set(FUSED.values())
    beside = open_store(f"sqlite:///{tmp_path}/outlast.db")
    beside.ready()
    for name in NAMES:
        parameters, columns = _described_by_postgres(ours[name], database)
        assert parameters == len(ours[name].parameters), name
        if name not in theirs:
            continue
        assert columns == _columns_on_sqlite(theirs[name], beside), name
        assert ours[name].answers == theirs[name].answers == (columns > 0), name
        assert set(theirs[name].parameters) == set(ours[name].parameters), name
    beside.close()


@pytest.mark.parametrize("dialect", [POSTGRES, SQLITE])
def test_every_statement_says_what_it_is_for(dialect: str) -> None:
    for query in queries(dialect, "outlast").values():
        assert re.match(r"[A-Z].*\w", query.purpose), f"{query.name} says: {query.purpose!r}"


def test_every_difference_between_the_databases_has_a_reason() -> None:
    for file in (SOURCE / "store" / "sql").glob("*.sql"):
        for line in re.findall(
            r"^-- (?:postgres|sqlite)(?: only)?:.*$", file.read_text(), flags=re.M
        ):
            assert len(line.partition(":")[2].strip()) > 8, f"{file.name}: {line}"


def test_every_statement_is_said_by_an_operation_and_every_one_said_exists() -> None:
    """R207: no dead SQL, and no name that only fails when it is first used."""
    trees = [ast.parse(file.read_text()) for file in SOURCE.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    words = {node.value for node in nodes if isinstance(node, ast.Constant)}
    said = {
        node.args[0].value
        for node in nodes
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "Statement"
        and isinstance(node.args[0], ast.Constant)
    }
    assert said - set(NAMES) == set(), "said, but not there"
    assert set(NAMES) - words == set(), "there, but never said"


def test_a_statement_that_writes_is_never_taken_for_a_read() -> None:
    """On SQLite a read goes to a connection that takes no lock."""
    verbs = re.compile(r"\b(INSERT|UPDATE|DELETE|REPLACE)\b")
    for query in queries(SQLITE, "outlast").values():
        assert query.reads != bool(verbs.search(query.sql)), query.name


def _described_by_postgres(query: Query, database: Database) -> tuple[int, int]:
    """How many parameters and columns the server sees in it."""
    text = query.spelled(lambda name: f"${query.parameters.index(name) + 1}")
    with psycopg.connect(database.direct_url) as connection:
        for result in (
            connection.pgconn.prepare(b"it", text.encode()),
            connection.pgconn.describe_prepared(b"it"),
        ):
            assert result.status == psycopg.pq.ExecStatus.COMMAND_OK, result.error_message.decode()
        return result.nparams, result.nfields


def _columns_on_sqlite(query: Query, store: Store) -> int:
    """How many columns its answer has."""
    connection = store.writer  # type: ignore[attr-defined]
    given = {name: SAMPLES.get(name, name) for name in query.parameters}
    assert connection.execute(f"EXPLAIN {query.sql}", given).fetchall()
    connection.execute("BEGIN")
    cursor = connection.execute(query.sql, given)
    columns = len(cursor.description or ())
    cursor.fetchall()
    connection.execute("ROLLBACK")
    return columns
