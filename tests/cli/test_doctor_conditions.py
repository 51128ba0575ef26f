"""`outlast doctor` on how the database is run: durability, standbys, clocks, locks, vacuum."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from outlast import Outlast
from outlast.cli import doctor
from outlast.ops import workers as worker_ops
from outlast.ops.doctor import database as conditions
from outlast.ops.doctor.database import DatabaseFacts, HostFacts, database_findings
from outlast.ops.doctor.findings import Finding
from outlast.store.sqlite import liveness
from tests.cli.conftest import Commands, patiently
from tests.cli.test_doctor import examined
from tests.store.jobs import table
from tests.store.test_audit import CARD, moment
from tests.support import Database, Postgres, Process


@contextmanager
def server(**settings: str) -> Iterator[Postgres]:
    made = Postgres(fsync="on", full_page_writes="on", **settings)
    try:
        made.start()
        yield made
    finally:
        made.destroy()


def on(postgres: Postgres, url: str = "") -> list[dict[str, Any]]:
    database = Database(url or postgres.url(), "outlast", "postgres", postgres.url())
    answer = Commands(database)("doctor", "--json")
    found: list[dict[str, Any]] = json.loads(answer.out)
    assert answer.code == any(one["problem"] for one in found)
    return found


def test_a_server_may_lose_prepare_and_stand_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """R173, R175: a durable primary is well; one that does not wait for the disk, transactions that
    hold back vacuum, a user with few rights, and a standby are told of."""
    with server(max_prepared_transactions="5") as postgres:
        with Outlast(postgres.url()) as ol:
            ol.migrate()
        assert on(postgres) == []

        postgres.execute("ALTER SYSTEM SET synchronous_commit = off")
        postgres.execute("SELECT pg_reload_conf()")
        (found,) = patiently(lambda: on(postgres))
        assert found["name"] == "not-durable" and found["problem"]
        assert "synchronous_commit = off" in found["sentence"]
        postgres.execute("ALTER SYSTEM RESET synchronous_commit")
        postgres.execute("SELECT pg_reload_conf()")
        patiently(lambda: on(postgres) == [])

        (found,) = on(postgres, f"{postgres.url()}?options=-c%20default_transaction_read_only%3Don")
        assert found["name"] == "read-only" and "read-only transactions" in found["sentence"]

        vacuum_is_held_back(postgres, monkeypatch)
        a_user_with_few_rights(postgres)

        postgres.stop()
        (postgres.folder / "standby.signal").touch()
        postgres.start()
        (found,) = on(postgres)
        assert (found["name"], found["problem"]) == ("read-only", True)
        assert "This server is a standby" in found["sentence"]


def vacuum_is_held_back(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(postgres.url(), application_name="the culprit") as session:
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.execute("SELECT 1")
        assert on(postgres) == [], "not open for long"
        monkeypatch.setattr(conditions, "LONG_TRANSACTION_S", 0.0)
        (found,) = on(postgres)
        assert found["name"] == "vacuum-held-back" and found["problem"]
        assert f"pid {session.info.backend_pid}, 'the culprit'" in found["sentence"]
        assert f"pg_terminate_backend({session.info.backend_pid})" in found["advice"]
    with psycopg.connect(postgres.url()) as session:
        session.execute("CREATE TABLE public.thing (n integer)")
        session.execute("PREPARE TRANSACTION 'left open'")
    (found,) = on(postgres)
    assert "prepared transaction ('left open')" in found["sentence"]
    postgres.execute("ROLLBACK PREPARED 'left open'")
    monkeypatch.undo()
    assert on(postgres) == []


def a_user_with_few_rights(postgres: Postgres) -> None:
    postgres.execute("CREATE ROLE plain LOGIN")
    postgres.execute("GRANT USAGE ON SCHEMA outlast TO plain")
    postgres.execute("GRANT SELECT ON ALL TABLES IN SCHEMA outlast TO plain")
    with psycopg.connect(postgres.url()):
        (found,) = on(postgres, postgres.url().replace("postgres@", "plain@"))
    assert (found["name"], found["problem"]) == ("not-visible", False)
    assert "This user may not see the activity of" in found["sentence"]


@pytest.mark.kinds("postgres")
def test_a_server_that_syncs_nothing_is_a_problem(run: Commands) -> None:
    """R173: as the one that these tests share."""
    found = json.loads(run("doctor", "--json").out)
    assert [one["name"] for one in found] == ["not-durable", "not-durable"]
    assert {one["sentence"].split()[4] for one in found} == {"fsync", "full_page_writes"}


def test_a_live_worker_without_its_lock_is_found(
    run: Commands, ol: Outlast, database: Database
) -> None:
    """R027: one that never had it (behind a pooler), and one that lost it."""
    cards = f"UPDATE {table(database, 'worker')} SET started_at = {moment(database, -60)}"
    ol.store.run(worker_ops.register, CARD | {"lease": 9999.0})
    assert examined(run) == (0, {}), "it has just started"
    database.rows(cards)
    code, found = examined(run)
    assert (code, found["no-liveness-lock"]["problem"]) == (0, False)
    assert "has never had its liveness lock" in found["no-liveness-lock"]["sentence"]
    assert ol.store.run(worker_ops.prove_liveness, "w1")
    if database.is_sqlite:
        liveness.folder(database.path).mkdir()  # as it had it when it proved its life
    code, found = examined(run)
    assert (code, found["no-liveness-lock"]["problem"]) == (1, True)
    assert "does not hold its liveness lock" in found["no-liveness-lock"]["sentence"]


def test_a_worker_that_holds_its_lock_is_well(
    run: Commands, ol: Outlast, database: Database, program: Any
) -> None:
    worker: Process = program.worker(OUTLAST_LEASE="60")
    proven = f"SELECT 1 FROM {table(database, 'worker')} WHERE proof IS NOT NULL"
    ol.migrate()
    patiently(lambda: database.rows(proven), message=worker.output)
    database.rows(f"UPDATE {table(database, 'worker')} SET started_at = {moment(database, -60)}")
    assert "no-liveness-lock" not in examined(run)[1]


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("ahead", [-100.0, -10.0, 0.0, 10.0, 100.0])
def test_clocks_that_differ_are_told_of(
    run: Commands, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    """R035: nothing goes by this machine's clock, but moments that it names do."""
    clock = SimpleNamespace(time=lambda: time.time() - ahead)
    monkeypatch.setattr(doctor, "time", clock)
    code, found = examined(run)
    assert code == (abs(ahead) == 100.0)
    assert ("clock" in found) == (ahead != 0.0)
    if ahead:
        assert ("behind" if ahead < 0 else "ahead of") in found["clock"]["sentence"]


@pytest.mark.parametrize(
    ("around", "name"),
    [
        (HostFacts(1, sqlite=(3, 45, 1), file_system="ext4"), "wal-reset"),
        (HostFacts(1, sqlite=(3, 51, 3), file_system="tmpfs"), "file-system"),
        (HostFacts(1, sqlite=(3, 51, 3), file_system=None), "file-system"),
        (HostFacts(1, sqlite=(3, 51, 3), file_system="ext4"), None),
        (HostFacts(1, pooled=True), "pooled"),
        (HostFacts(1), None),
    ],
)
def test_the_place_is_told_of(around: HostFacts, name: str | None) -> None:
    """R172, R178: what it means, and what to do."""
    found = list(database_findings(DatabaseFacts(around)))
    assert [finding.name for finding in found] == ([name] if name else [])
    assert all(isinstance(finding, Finding) and not finding.problem for finding in found)


def test_an_idle_slot_is_named() -> None:
    """One that a standby left behind; only a real standby's feedback makes one, so as a value."""
    holding = [("replication slot", "old_standby", "", None)]
    (found,) = database_findings(DatabaseFacts(HostFacts(1), holding=holding))
    assert "A replication slot ('old_standby') keeps dead rows" in found.sentence
    assert "pg_drop_replication_slot('old_standby')" in found.advice
