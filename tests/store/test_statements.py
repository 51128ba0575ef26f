"""The SQL itself: both databases understand every statement, and mean the same by it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import psycopg
import pytest

import outlast.ops
from outlast.model.claim import CLAIM_COLUMNS
from outlast.model.ids import new_job_id
from outlast.model.job import JOB_COLUMNS, NEW_JOB_COLUMNS
from outlast.ops.operation import BEGIN, Op, Pipeline, Rows, Statement
from outlast.store import Store, open_store
from outlast.store.caller.connection import run_on
from outlast.store.columns import fragments
from outlast.store.dialects import POSTGRES, SQLITE
from outlast.store.postgres.session import FUSED
from outlast.store.statements import Queries, Query
from tests.support import Database

SOURCE = Path(outlast.ops.__file__).parents[1]
SAMPLES = {
    "id": new_job_id(), "job": new_job_id(), "before": new_job_id(), "ids": "[]", "rows": "[]",
    "known": False, "each": 1, "queues": "[]", "tasks": "[]", "args": "{}", "state": "working",
    "priority": 0, "fence": 1, "run_at": 0.0,
    "max_attempts": 1, "max_crashes": 1, "timeout": 1.0, "delay": 1.0, "limit": 1, "skip": 0,
    "running": 0, "pid": 1, "concurrency": 1, "attempt": 1, "paused": True, "keep": 1.0,
    "every": 1.0, "lease": 1.0, "found": 1, "healed": 1, "skipped": 1, "failed": 1, "after": 0,
    "n": 0, "run": 1, "refund": 0, "failures": 0, "crashes": 0, "at": 0.0, "expires_at": 0.0,
    "expires_in": 1.0, "started_at": 0.0, "late": 1.0, "soon": 1.0, "slack": 1.0, "workers": "[]",
    "far": 9.0, "last_life": True, "needs": "succeeded", "waits_for": 0, "quorum": 1, "reach": 1,
    "tied": True, "place": 0, "states": "[]", "fail_after": 1, "live": True, "flow": new_job_id(),
    "hooks": "{}", "result": "1", "more": 1, "scopes": "[]", "floor": new_job_id(),
    "window": 1, "above": 0, "low": 0, "high": 1, "span": 10, "text": "%x%",
    "hashes": "[]", "life": 1.0, "older": 1.0, "since": 0.0, "until": 1.0, "draining": True,
    "trouble": "x", "first": 0.0, "max_wait": 1.0, "queue": "q", "room": 1, "waiting": 1,
    "asked": 1, "names": "[]", "next": 1.0, "active": "[]", "recent": "[]",
    "lanes": 1, "asking": True, "data": "[]", "settle": 1.0, "alone": True, "seconds": 1.0,
    "tenant": "t", "kind": "sleep", "outcome": "signal", "subjects": "[]", "seq": 1, "unseen": True,
    "value": "1",
}  # fmt: skip
VERIFY = "outlast.verify"  # which has statements of its own


def every(dialect: str, schema: str = "outlast") -> dict[str, Query]:
    """The package's statements and the verifier's."""
    found = Queries(dialect, schema)
    return found.all() | found.all(VERIFY)


@pytest.mark.kinds("postgres")
def test_both_databases_agree_on_every_statement(
    database: Database, store: Store, tmp_path: Path
) -> None:
    """R181: PostgreSQL prepares it, SQLite plans and runs it; same parameters, same columns."""
    ours, theirs = every(POSTGRES, database.schema), every(SQLITE)
    assert ours.keys() == theirs.keys()
    beside = open_store(f"sqlite:///{tmp_path}/outlast.db")
    beside.ready()
    for name in ours:
        if ours[name].sql.startswith("COPY"):
            continue  # has no parameters, and is not prepared; see test_enqueue_many
        if ours[name].sql:
            parameters, columns = _described_by_postgres(ours[name], database)
            assert parameters == len(ours[name].parameters), name
        if theirs[name].sql:
            told = _columns_on_sqlite(theirs[name], beside)
        if ours[name].sql and theirs[name].sql:
            assert columns == told, name
            assert ours[name].returns_rows == theirs[name].returns_rows == (columns > 0), name
            assert set(theirs[name].parameters) == set(ours[name].parameters), name
    beside.close()


@pytest.mark.parametrize("dialect", [POSTGRES, SQLITE])
def test_every_statement_says_what_it_is_for(dialect: str) -> None:
    for query in every(dialect).values():
        assert re.match(r"[A-Z].*\w", query.purpose), f"{query.name} says: {query.purpose!r}"


def test_every_difference_between_the_databases_has_a_reason() -> None:
    for file in [*SOURCE.glob("store/sql/*.sql"), *SOURCE.glob("verify/sql/*.sql")]:
        for line in re.findall(
            r"^-- (?:postgres|sqlite)(?: only)?:.*$", file.read_text(), flags=re.M
        ):
            assert len(line.partition(":")[2].strip()) > 8, f"{file.name}: {line}"


def test_every_statement_is_said_by_an_operation_and_every_one_said_exists() -> None:
    """R207: no dead SQL, and no name that only fails when it is first used."""
    names = set(every(POSTGRES))
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
    words |= {f"{VERIFY}:dump_{word}" for word in words}
    assert said - names == set(), "said, but not there"
    assert names - words == set(), "there, but never said"


def test_a_statement_that_writes_is_never_taken_for_a_read() -> None:
    """On SQLite a read goes to a connection that takes no lock."""
    verbs = re.compile(r"\b(INSERT|UPDATE|DELETE|REPLACE)\b")
    for query in every(SQLITE).values():
        assert query.reads != bool(verbs.search(query.sql)), query.name


def test_a_statement_for_one_database_is_nothing_to_the_other(
    database: Database, store: Store
) -> None:
    """No row comes back, on our connection and on a caller's, and nothing that was begun ends."""
    ours, theirs = every(POSTGRES), every(SQLITE)
    assert [name for name in ours if not (ours[name].sql or theirs[name].sql)] == []
    assert all(ours[name].sql and not theirs[name].sql for name, _ in FUSED.values())

    def op() -> Op[list[Rows]]:
        yield BEGIN
        briefly: Rows = yield Statement("wait_briefly")
        files, clock = yield Pipeline([Statement("database_files"), Statement("clock")])
        return [briefly, files, clock]

    store.ready()
    with database.connect() as connection:
        for told in (store.run(op), run_on(connection, store, op())):
            briefly, files, clock = told
            assert (bool(briefly), bool(files)) == (not database.is_sqlite, database.is_sqlite)
            assert len(clock) == 1


def test_what_is_read_by_position_is_selected_in_the_order_of_its_fields() -> None:
    """One list for both: a fragment has an expression for each field, and names its column."""
    lists, other = fragments(), {"has_dependents": "tied", "has_hooks": "hooks"}
    for name, fields in [("job_columns", JOB_COLUMNS), ("claim_columns", CLAIM_COLUMNS),
                         ("new_job_row", NEW_JOB_COLUMNS)]:  # fmt: skip
        parts = lists[name].text.split(", ")
        parts = [*parts[: len(fields) - 1], ", ".join(parts[len(fields) - 1 :])]  # COALESCE has one
        for field, part in zip(fields, parts, strict=True):
            assert re.search(rf"\b{other.get(field, field)}\b", part), (name, field, part)


def test_a_name_that_is_nowhere_is_named() -> None:
    for name in ("nothing", "outlast.verify:nothing"):
        with pytest.raises(KeyError, match=f"no statement '{name}'"):
            Queries(SQLITE, "outlast")[name]


def _described_by_postgres(query: Query, database: Database) -> tuple[int, int]:
    """How many parameters and columns the server sees in it."""
    text = query.for_driver(lambda name: f"${query.parameters.index(name) + 1}")
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
