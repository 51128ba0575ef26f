"""Finding jobs for a caller: nothing out of reach, nothing missed, a look at a time."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from outlast.model.errors import JobNotFound
from outlast.ops import job_actions, report
from outlast.ops.access import ALL_JOBS, Access
from outlast.ops.search import ALL, JobQuery, all_in_reach, count_by_kind, search
from tests.store.conftest import Run
from tests.store.jobs import put, take

TENANTS, QUEUES = ("a", "b"), ("x", "y")


@pytest.fixture
def jobs(run: Run) -> list[Any]:
    """Twelve jobs of two tenants in two queues; some run, some are cancelled."""
    made = [
        put(run, tenant=tenant, queue=queue)[0]
        for _ in range(3)
        for tenant in TENANTS
        for queue in QUEUES
    ]
    for job in made[4:8]:
        run(job_actions.cancel, job.id, "test", "")
    return [run(report.job, job.id) for job in made]


REACHES = [ALL_JOBS, Access("a"), Access(queues=frozenset("x")), Access("b", frozenset("y"))]
STATES = [None, "ready", "cancelled", "dead", "waiting", "running"]


@pytest.mark.kinds("sqlite", "postgres")
def test_pages_hold_what_is_in_reach_and_fits(run: Run, jobs: list[Any]) -> None:
    """R145, R166: however small the look, all of it in the end, newest first, once each."""
    take(run, 2, queue="x")
    now = [run(report.job, job.id) for job in jobs]
    for reach, state, window in product(REACHES, STATES, [1, 3, 100]):
        fits = [j for j in now if reach.allows(j.tenant, j.queue) and state in (None, str(j.state))]
        wanted = [job.id for job in reversed(fits)]
        assert pages(run, JobQuery(state), reach, window) == wanted, (reach, state, window)


def pages(run: Run, sought: JobQuery, reach: Access, window: int) -> list[str]:
    found: list[str] = []
    cursor, looks = None, 0
    while cursor is not None or not looks:
        page, cursor = run(search, sought, reach, cursor, 2, window)
        found += [job.id for job in page]
        looks += 1
        assert looks < 50 and len(page) <= 2
    return found


def test_filters_are_kept(run: Run, jobs: list[Any]) -> None:
    page, rest = run(search, JobQuery(queue="x", task="nothing"), ALL_JOBS, None, 100)
    assert page == [] and rest is None
    page, _ = run(search, JobQuery("ready", "x"), Access("a"), None, 100)
    assert {(job.state, job.queue, job.tenant) for job in page} == {("ready", "x", "a")}
    assert all(job.args is None for job in page), "lists do without what may be large"


def test_what_is_out_of_reach_cannot_be_changed(run: Run, jobs: list[Any]) -> None:
    """R145: by its id, it is not there."""
    theirs, mine = jobs[0], Access("b")
    cancelled = jobs[4]
    for act in (
        lambda: run(report.job, theirs.id, mine),
        lambda: run(job_actions.cancel, theirs.id, "test", "", mine),
        lambda: run(job_actions.redrive_one, cancelled.id, "test", mine),
        lambda: run(all_in_reach, [theirs.id], mine),
    ):
        with pytest.raises(JobNotFound):
            act()
    assert run(job_actions.redrive, [cancelled.id], "test", reach=mine) == []
    assert run(report.job, theirs.id) == theirs
    assert run(report.job, cancelled.id) == cancelled
    run(all_in_reach, [job.id for job in jobs], ALL_JOBS)


def test_a_census_counts_every_kind(run: Run, jobs: list[Any]) -> None:
    kinds = run(count_by_kind)
    assert sum(kind.number for kind in kinds) == len(jobs)
    counted = {(k.tenant, k.queue, k.state): k.number for k in kinds}
    assert counted["a", "x", "ready"] == 2 and counted["a", "x", "cancelled"] == 1
    assert all(kind.oldest >= 0 for kind in kinds)
    assert run(search, ALL, ALL_JOBS, None, 3)[1] is not None
