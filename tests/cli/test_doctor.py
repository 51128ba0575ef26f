"""`outlast doctor`: every ailment has a name, a sentence and an advice."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from outlast import Outlast, Permanent
from outlast.ops import duties
from outlast.ops import workers as worker_ops
from outlast.ops.doctor.checks import CHECKS
from outlast.ops.duties import DutyTally
from outlast.store.schema import latest
from tests.cli.conftest import Commands, Program, patiently, work_off
from tests.support import Database

# What these surroundings have, whatever else there is: a test server that syncs nothing, a file in
# memory, an old SQLite.
THERE_ANYWAY = {"wal-reset", "pooled", "file-system", "not-durable"}


def examined(run: Commands) -> tuple[int, dict[str, dict[str, Any]]]:
    answer = run("doctor", "--json")
    found = json.loads(answer.out)
    named = {one["name"]: one for one in found if one["name"] not in THERE_ANYWAY}
    assert answer.code == any(one["problem"] for one in found)
    assert all(one["sentence"] and one["advice"] for one in found)
    return int(any(one["problem"] for one in named.values())), named


def finding(run: Commands, *names: str) -> dict[str, dict[str, Any]]:
    """All that is found as soon as these are."""

    def look() -> dict[str, dict[str, Any]] | None:
        code, found = examined(run)
        return found if code == 1 and found.keys() >= set(names) else None

    found = patiently(look)
    assert found is not None
    return found


def test_an_empty_database_is_well(run: Commands) -> None:
    assert examined(run) == (0, {})
    shown = run("doctor")
    assert shown.out.endswith(": 2 problems.\n" if shown.code else ": healthy.\n")


def test_a_live_worker_with_nothing_amiss_is_well(
    run: Commands, ol: Outlast, program: Program
) -> None:
    worker = program.worker()
    patiently(ol.workers, message=worker.output)
    id = run("enqueue", "add", "--args", '{"a": 1}').out.strip()
    patiently(lambda: ol.job(id).state == "succeeded", message=worker.output)
    assert examined(run) == (0, {})


def test_a_queue_that_nobody_serves_is_found(run: Commands) -> None:
    """R199, `unhandled`: no worker at all."""
    run("enqueue", "add", "--queue", "mail")
    code, found = examined(run)
    assert code == 1
    assert found["unhandled"]["sentence"] == (
        "The queue 'mail' has 1 ready job and no live worker."
    )
    assert found["unhandled"]["advice"].endswith("outlast worker APP --queues mail")
    shown = run("doctor")
    assert shown.code == 1
    assert "✗ unhandled: The queue 'mail'" in shown.out
    assert shown.out.endswith((": 1 problem.\n", ": 3 problems.\n"))


def test_a_task_that_nobody_knows_is_found(run: Commands, ol: Outlast, program: Program) -> None:
    """R199, `unhandled`: a worker serves the queue and cannot run the job."""
    worker = program.worker()
    run("enqueue", "unheard_of")
    patiently(ol.workers, message=worker.output)
    found = finding(run, "unhandled")
    assert found["unhandled"]["sentence"] == (
        "No live worker that serves 'default' knows the task 'unheard_of'; 1 job of it waits."
    )


def test_a_killed_worker_that_nobody_follows_is_found(
    run: Commands, ol: Outlast, program: Program
) -> None:
    """R199, `owner-dead`: the jobs, and the worker that had them."""
    run("enqueue", "wait_for", "--queue", "slow", "--args", '{"file": "/never"}')
    worker = program.worker(OUTLAST_LEASE="5")  # a busy worker keeps it
    patiently(lambda: ol.counts()["running"] == 1, message=worker.output)
    worker.kill()
    found = finding(run, "owner-dead", "silent-worker")  # a lock that is free tells before a clock
    assert "1 running job lost the owner" in found["owner-dead"]["sentence"]
    assert "Start a worker" in found["owner-dead"]["advice"]
    assert f"pid {worker.pid}" in found["silent-worker"]["sentence"]
    assert found["silent-worker"]["sentence"].endswith("with 1 job in flight.")
    assert found["silent-worker"]["problem"] is True

    heir = program.worker()
    patiently(lambda: "owner-dead" not in examined(run)[1], message=heir.output)
    silent = examined(run)[1].get("silent-worker")  # gone, once the heir has buried it
    assert silent is None or silent["problem"] is False, "nothing is left in its hands"


def an_hour_ago(database: Database) -> str:
    return "strftime('%s','now') - 3600" if database.is_sqlite else "now() - interval '1 hour'"


def test_late_timers_are_found(run: Commands, database: Database) -> None:
    """R199, `timer-lost` and `expired`: rows that should have moved on long ago."""
    prefix, then = "outlast_" if database.is_sqlite else "", an_hour_ago(database)
    run("enqueue", "later", "--delay", "1h", "--expires", "2h")
    assert examined(run) == (0, {})
    database.rows(f"UPDATE {prefix}job SET run_at = {then}, expires_at = {then}")
    code, found = examined(run)
    assert code == 1
    assert found["timer-lost"]["sentence"].startswith("1 scheduled job should have become ready")
    assert "up to 60.0 min ago" in found["timer-lost"]["sentence"]
    assert found["expired"]["sentence"].startswith("1 queued job should have been cancelled")


def test_late_and_failing_nets_are_found(run: Commands, ol: Outlast, database: Database) -> None:
    """R199, `stalled-net`: a worker is alive, and yet nobody does these duties."""
    prefix, then = "outlast_" if database.is_sqlite else "", an_hour_ago(database)
    ol.store.run(worker_ops.register, ol.worker().registration_row())
    for name in ("late", "failing", "fine"):
        ol.store.run(duties.take_duty, name, 60.0, "w")
        ol.store.run(duties.report_duty, name, DutyTally())
    ol.store.run(duties.report_duty, "failing", DutyTally(failed=1, error="disk on fire"))
    database.rows(f"UPDATE {prefix}worker SET started_at = {then}")
    database.rows(f"UPDATE {prefix}duty SET succeeded_at = {then} WHERE name = 'late'")
    answer = run("doctor", "--json")
    assert answer.code == 1
    sentences = [one["sentence"] for one in json.loads(answer.out) if one["name"] == "stalled-net"]
    assert sentences == [
        "The last run of the duty 'failing' failed: disk on fire",
        "The duty 'late' last ran 60.0 min ago and should run every 60.0 s: no live worker"
        " runs it.",
    ]


def test_what_is_worth_knowing_is_no_problem(run: Commands, ol: Outlast) -> None:
    run("enqueue", "add", "--queue", "mail")
    run("pause", "mail")
    _, found = examined(run)
    assert found["paused"]["problem"] is False
    assert found["paused"]["advice"] == "outlast resume mail"

    @ol.task
    def hopeless() -> None:
        raise Permanent("no way")

    hopeless.enqueue()
    asyncio.run(work_off(ol, ready=1))
    _, found = examined(run)
    assert found["dead"]["sentence"] == "1 dead job waits for an operator."
    assert found["dead"]["problem"] is False


def test_the_surroundings_are_told(run: Commands, database: Database) -> None:
    import sqlite3

    names = {one["name"] for one in json.loads(run("doctor", "--json").out)}
    old = sqlite3.sqlite_version_info < (3, 51, 3)
    assert ("wal-reset" in names) == (database.is_sqlite and old)
    assert "pooled" not in names


@pytest.mark.kinds("pgbouncer")
def test_a_pooler_is_noticed(run: Commands) -> None:
    found = json.loads(run("doctor", "--json").out)
    assert [one["name"] for one in found if not one["problem"]] == ["pooled"]


def test_tables_of_another_release_are_found(run: Commands, database: Database) -> None:
    """R176, R199, `unmigrated`: newer and compatible, newer and not."""
    prefix = "outlast_" if database.is_sqlite else ""
    run("migrate")
    database.rows(f"UPDATE {prefix}migration SET version = 999 WHERE version = {latest()}")
    code, found = examined(run)
    assert (code, found["newer-schema"]["problem"]) == (0, False)
    database.rows(f"UPDATE {prefix}migration SET compatible_from = 998 WHERE version = 999")
    code, found = examined(run)
    assert code == 1
    assert "upgrade outlast here" in found["unmigrated"]["sentence"]
    for command in (["jobs"], ["queues"], ["enqueue", "t"]):
        answer = run(*command)
        assert (answer.code, answer.out) == (1, "")
        assert "upgrade outlast here" in answer.err


@pytest.mark.kinds("sqlite")
def test_a_database_that_cannot_be_asked_is_a_finding(run: Commands) -> None:
    answer = run("doctor", "--json", "--url", "postgresql://u:hunter2@127.0.0.1:1/d")
    assert answer.code == 1
    (found,) = json.loads(answer.out)
    assert found["name"] == "unreachable"
    assert "refused" in found["sentence"]
    assert "hunter2" not in answer.out + answer.err


def test_checks_are_plain_functions_of_facts() -> None:
    assert len({check.__name__ for check in CHECKS}) == len(CHECKS)


def test_a_queue_that_is_full_is_found(run: Commands, ol: Outlast) -> None:
    """R244: by default it is only told."""
    ol.queue("default", most_waiting=1)
    ol._declare_queues()
    for _ in range(2):
        assert run("enqueue", "t").code == 0
    _, found = examined(run)
    assert "has 2 ready jobs, and its limit is 1" in found["queue-full"]["sentence"]
