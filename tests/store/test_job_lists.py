"""Lists of jobs in an order: all of it, once each, whatever comes and goes between two pages."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from outlast.ops import job_actions, report
from outlast.ops.access import ALL_JOBS, Access
from outlast.ops.job_lists import (
    MAX_ARGUMENTS,
    JobOrder,
    ListCursor,
    LongArguments,
    _merged,
    add_arguments,
    ordered_jobs,
    selected,
    sortable_columns,
)
from outlast.ops.report import HIGHEST_ID
from outlast.ops.search import JobQuery, search
from tests.store.conftest import Run
from tests.store.jobs import end, put, take

pytestmark = pytest.mark.kinds("sqlite", "postgres")

STATES = (None, "ready", "scheduled", "running", "succeeded", "cancelled", "dead", "waiting")
REACHES = (ALL_JOBS, Access("a"), Access("a", frozenset("y")))
TIMES = {"due": "run_at", "ended": "finished_at", "started": "started_at"}


@pytest.fixture
def jobs(run: Run) -> list[Any]:
    """Jobs of two tenants in two queues, in most states; they end in another order than they
    came."""
    made: list[Any] = []
    for number, tenant, queue in product(range(3), "ab", "xy"):
        made += put(run, tenant=tenant, queue=queue, key=f"order {number} {tenant} {queue}")
        made += put(run, tenant=tenant, queue=queue, delay=1000.0 - 100 * number)
        made += put(run, tenant=tenant, queue="ended")
        made += put(run, tenant=tenant, queue="dead")
        made += put(run, tenant=tenant, queue="none")
    for queue, outcome in (("ended", "succeeded"), ("dead", "permanent")):
        for claim in reversed(take(run, 20, queue=queue)):
            end(run, claim, outcome)
    take(run, 4, queue="x")
    for job in reversed([job for job in made if job.queue == "none"]):
        run(job_actions.cancel, job.id, "test", "")
    return [run(report.job, job.id) for job in made]


def pages(run: Run, query: JobQuery, reach: Access, order: JobOrder, window: int) -> list[str]:
    found: list[str] = []
    cursor, looks = None, 0
    while cursor is not None or not looks:
        page, cursor = run(ordered_jobs, query, reach, order, cursor, 2, window)
        cursor = cursor and ListCursor.parse(str(cursor))  # as a link has it
        found += [job.id for job in page]
        looks += 1
        assert looks < 200 and len(page) <= 2
    return found


def test_every_order_has_all_jobs_once(run: Run, jobs: list[Any]) -> None:
    """R166: by every column that a state can be sorted by, in both directions, however small the
    look, within the caller's reach."""
    for state, reach, window in product(STATES, REACHES, (2, 3, 100)):
        fits = [
            j for j in jobs if reach.allows(j.tenant, j.queue) and state in (None, str(j.state))
        ]
        for column, descending in product(sortable_columns(state), (True, False)):
            found = pages(run, JobQuery(state), reach, JobOrder(column, descending), window)
            name = TIMES.get(column)
            key = [(getattr(job, name) if name else None, job.id) for job in fits]
            wanted = [id for _, id in sorted(key, reverse=descending)]
            assert found == wanted, (state, reach, window, column, descending)


def test_windows_of_table_and_archive_are_one_in_order() -> None:
    """R166, R249: each job once, and none behind the end of a window that may go on."""
    table, archive = [("b", 2.0, 1), ("c", 3.0, 1), ("f", 6.0, 1)], [("a", 1.0, 1), ("c", 3.0, 0)]
    whole = _merged([table, archive], window=4)
    assert [id for id, _, _ in whole.rows] == ["a", "b", "c", "f"] and whole.last is None
    cut = _merged([table, archive], window=2)
    assert [id for id, _, _ in cut.rows] == ["a", "b", "c"]
    assert cut.last == ListCursor(3.0, "c")


def test_orders_differ(jobs: list[Any]) -> None:
    """The jobs above would show a wrong order."""
    for state, name in (
        ("scheduled", "run_at"),
        ("dead", "finished_at"),
        ("cancelled", "finished_at"),
    ):
        some = [job for job in jobs if job.state == state]
        by_time = sorted(some, key=lambda job: (getattr(job, name), job.id))
        assert [job.id for job in some] != [job.id for job in by_time], state


def test_filters_hold_in_every_order(run: Run, jobs: list[Any]) -> None:
    """R166"""
    for order in (JobOrder(), JobOrder(descending=False)):
        found = pages(run, JobQuery(text="order 1 a"), ALL_JOBS, order, 3)
        assert sorted(found) == sorted(
            job.id for job in jobs if (job.key or "").startswith("order 1 a")
        )
    dead = JobOrder("ended", descending=True)
    assert pages(run, JobQuery("dead", error="Boom"), ALL_JOBS, dead, 3) != []
    assert pages(run, JobQuery("dead", error="None"), ALL_JOBS, dead, 3) == []


def test_what_ends_between_two_pages_hides_nothing(run: Run, jobs: list[Any]) -> None:
    """R166: a cursor is a position: newer rows push nothing off the next page."""
    order, dead = JobOrder("ended", descending=True), JobQuery("dead")
    first, cursor = run(ordered_jobs, dead, ALL_JOBS, order, None, 4)
    put(run, queue="dead")
    (claim,) = take(run, queue="dead")
    end(run, claim, "permanent")
    rest, _ = run(ordered_jobs, dead, ALL_JOBS, order, cursor, 100)
    before = [job.id for job in jobs if job.state == "dead"]
    assert sorted(job.id for job in [*first, *rest]) == sorted(before)


@pytest.mark.parametrize(
    "text",
    ["", "x", "1_2", "1_", "nan_" + "0" * 36, "1.0_" + "-" * 36, f"999999999999.0_{HIGHEST_ID}"],
)
def test_another_cursor_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        ListCursor.parse(text)


def test_selected_jobs_are_those_in_reach(run: Run, jobs: list[Any]) -> None:
    """R145, R200"""
    ids = [job.id for job in jobs]
    assert [job.id for job in run(selected, ids[::-1], ALL_JOBS)] == ids[::-1]
    mine = [job.id for job in jobs if job.tenant == "a" and job.queue == "y"]
    assert [job.id for job in run(selected, ids, Access("a", frozenset("y")))] == mine
    assert run(selected, [], ALL_JOBS) == []


def test_arguments_of_a_list_are_masked_and_bounded(run: Run) -> None:
    """R166, R200"""
    put(run, args=json.dumps({"user": 7, "secret:card": "4111"}))
    put(run, args=json.dumps({"text": "x" * MAX_ARGUMENTS}))
    listed, _ = run(search, JobQuery(), ALL_JOBS, None, 10)
    assert [job.args for job in listed] == [None, None]
    run(add_arguments, listed)
    assert listed[1].args == {"user": 7, "card": "***"}
    assert listed[0].args == LongArguments(MAX_ARGUMENTS + 12)


def test_a_secret_is_not_found_by_its_text(run: Run) -> None:
    """R200: else it could be guessed a letter at a time."""
    (secret,) = put(run, args='{"user": 7, "secret:card": "4111"}', key="order-1")
    (plain,) = put(run, args='{"card": "4111"}')

    def found(text: str) -> list[str]:
        return [job.id for job in run(search, JobQuery(text=text), ALL_JOBS, None, 10)[0]]

    assert found("411") == [plain.id]
    assert found("order-") == [secret.id]
