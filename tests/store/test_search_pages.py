"""Looking through jobs a page at a time: nothing out of reach, nothing missed, nothing twice."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from outlast import chain
from outlast.ops.access import ALL_JOBS, Access
from outlast.ops.search import (
    DueCursor,
    JobQuery,
    count_window,
    dead_by_error,
    due,
    search,
    search_flows,
)
from tests.store.conftest import Run
from tests.store.flowing import call, lay
from tests.store.jobs import end, put, put_and_take, take

pytestmark = pytest.mark.kinds("sqlite", "postgres")

REACHES = [ALL_JOBS, Access("a"), Access(queues=frozenset("x")), Access("nobody")]
WINDOWS = [1, 2, 100]
SOUGHT = [
    JobQuery(),
    JobQuery("dead"),
    JobQuery("ready", "x"),
    JobQuery(error="Boom"),
    JobQuery("dead", error="Bang"),
    JobQuery(text="no such"),
    JobQuery("running"),
]


def dead(run: Run, kind: str, **said: Any) -> str:
    claim = put_and_take(run, **said)
    error = {"type": kind, "message": "it broke", "traceback": ""}
    end(run, claim, "permanent", error=error)
    return claim.id


def all_pages(run: Run, operation: Any, *args: Any, window: int) -> list[Any]:
    pages, cursor = [], None
    while cursor is not None or not pages:
        page, cursor = run(operation, *args, cursor, window)
        pages.append(page)
        assert len(pages) < 50
    return pages


def test_jobs_are_found_by_what_is_in_their_key_or_their_id(run: Run) -> None:
    """R166: any case, no wildcards; what has no key is found by its id alone."""
    keyed, odd, plain = (put(run, key=key)[0].id for key in ("Order-7_a%", "order-7xab", None))

    def found(text: str, state: str | None = None) -> set[str]:
        return {job.id for job in run(search, JobQuery(state, text=text), ALL_JOBS, None, 10)[0]}

    assert found("ORDER-7") == {keyed, odd}
    assert found("7_a") == found("a%") == {keyed}
    assert found("!") == found("nothing") == set()
    assert found(plain[-9:]) == found(plain.upper()) == {plain}
    for state in ("waiting", "scheduled", "dead", "running"):
        assert found("order", state) == set()
    take(run)
    assert found("order", "running") | found("order", "ready") == {keyed, odd}


def test_jobs_are_found_by_their_arguments(run: Run) -> None:
    """R166"""
    lamp, _ = (put(run, args=f'{{"item": "{item}"}}')[0].id for item in ("Red Lamp", "chair"))
    for text, expected in (("red lamp", {lamp}), ("LAMP", {lamp}), ("l_mp", set())):
        jobs, _ = run(search, JobQuery(text=text), ALL_JOBS, None, 10)
        assert {job.id for job in jobs} == expected


def test_what_matches_is_counted_a_look_at_a_time(run: Run) -> None:
    """R166: the count of a bulk action, by state, text and error, in reach."""
    for tenant, queue in product("ab", "xy"):
        dead(run, "Boom", tenant=tenant, queue=queue)
    for tenant, queue in product("ab", "xy"):
        put(run, 2, tenant=tenant, queue=queue)
    for reach, window in product(REACHES, WINDOWS):
        for sought in SOUGHT:
            number = sum(all_pages(run, count_window, sought, reach, window=window))
            wanted, _ = run(search, sought, reach, None, 100)
            assert number == len(wanted), (sought, reach, window)


def test_the_dead_are_gathered_by_what_they_died_of(run: Run) -> None:
    """R166: by task and type of error, how many, and the newest of them."""
    kinds = product("ab", ("Boom", "Bang"), ("mail", "shrink"))
    ids = [dead(run, kind, task=task, tenant=tenant) for tenant, kind, task in kinds]
    ids.append(dead(run, "Boom", task="mail", tenant="a"))
    for window in WINDOWS:
        groups: dict[tuple[str, str], Any] = {}
        for page in all_pages(run, dead_by_error, ALL_JOBS, window=window):
            for one in page:
                key = one.task, one.error
                groups[key] = groups[key].merge(one) if key in groups else one
        assert {key: one.number for key, one in groups.items()} == {
            ("mail", "Boom"): 3, ("mail", "Bang"): 2, ("shrink", "Boom"): 2, ("shrink", "Bang"): 2,
        }  # fmt: skip
        assert groups["mail", "Boom"].last == ids[-1]
        assert groups["mail", "Boom"].first_at <= groups["mail", "Boom"].last_at
    (of_b,) = all_pages(run, dead_by_error, Access("b"), window=100)
    assert sorted(one.number for one in of_b) == [1, 1, 1, 1]


def test_the_schedule_is_in_the_order_of_what_is_due(run: Run) -> None:
    """R166: also where many are due in the same moment."""
    for tenant, queue in product("ab", "xy"):
        put(run, 3, tenant=tenant, queue=queue, at=4e9 + 0.123456)
        put(run, 1, tenant=tenant, queue=queue, delay=500.0)
    for reach, window, queue in product(REACHES, WINDOWS, [None, "x"]):
        found: list[Any] = []
        after: DueCursor | None = DueCursor()
        while after is not None:
            page, after = run(due, reach, after, 2, queue, window)
            found += page
        assert len({job.id for job in found}) == len(found) <= 16
        wanted = run(search, JobQuery("scheduled", queue), reach, None, 100)[0]
        order = sorted(wanted, key=lambda job: (job.run_at, job.id))
        assert [job.id for job in found] == [job.id for job in order]


def test_flows_are_listed_to_those_who_may_see_all_of_them(run: Run) -> None:
    """R145: newest first, with their jobs counted."""

    def flow(*tenants: str) -> str:
        made = lay(run, chain(*(call(tenant=tenant) for tenant in tenants)))
        assert made[0].flow is not None
        return made[0].flow

    mine, mixed, theirs = flow("a", "a"), flow("a", "b"), flow("b", "b")
    for window in WINDOWS:
        every = [one.id for page in all_flows(run, ALL_JOBS, window) for one in page]
        assert every == [theirs, mixed, mine]
        assert [one.id for page in all_flows(run, Access("a"), window) for one in page] == [mine]


def all_flows(run: Run, reach: Access, window: int) -> list[Any]:
    pages, cursor = [], None
    while cursor is not None or not pages:
        page, cursor = run(search_flows, reach, cursor, 2, window)
        pages.append(page)
    return pages
