"""Queues that keep what has ended for a shorter time than others."""

from __future__ import annotations

import pytest

from outlast import InvalidOption, Outlast, Permanent, chain
from outlast.client.verb_arguments import actor
from outlast.ops.retention import VISIBILITY_LAG_S, prune_queue
from outlast.worker.pruner import QueuePruner
from tests.support import Database, aeventually

from .test_operators import recorded
from .working import ended, sql, work


async def test_a_queue_keeps_what_has_ended_for_a_time_of_its_own(
    ol: Outlast, database: Database
) -> None:
    """R165: succeeded and cancelled ones go, in this queue alone; the dead stay; by whom it was
    said is on record once."""
    ol.retention = type(ol.retention)(prune_every=0.05)

    @ol.task
    async def good() -> None: ...

    @ol.task
    async def bad() -> None:
        raise Permanent("no way")

    ol.keep("short", 0.2)
    await ol.akeep("short", 0.2)
    jobs = {
        name: await task.using(queue=queue).aenqueue()
        for name, task, queue in (
            ("goes", good, "short"),
            ("dead", bad, "short"),
            ("other", good, "default"),
        )
    }
    cancelled = await good.using(queue="short", delay=3600).aenqueue()
    await ol.acancel(cancelled.id)

    def left() -> set[str]:
        return {id for (id,) in sql(database, "SELECT CAST(id AS text) FROM {job}")}

    async with work(ol):
        await ended(ol, jobs["dead"])
        await ended(ol, jobs["other"])
        await aeventually(lambda: left() == {jobs["dead"].id, jobs["other"].id})
    assert [queue.keep for queue in ol.queues() if queue.name == "short"] == [0.2]
    ol.keep("short", None)
    assert recorded(database, "keep") == [
        {"by": actor(), "queue": "short", "keep": keep} for keep in (0.2, None)
    ]
    assert {queue.keep for queue in ol.queues()} == {None}
    with pytest.raises(InvalidOption, match="keep"):
        ol.keep("short", -1)


async def test_pruning_a_queue_goes_on_where_it_stopped(ol: Outlast, database: Database) -> None:
    """R165: in small batches; and what a flow still needs is left until it does no longer."""

    @ol.task
    def step(n: int) -> None: ...

    ol.keep("short", 0.0)
    first, last = ol.enqueue(chain(step.using(queue="short").job(0), step.job(1)))
    jobs = ol.enqueue(*[step.using(queue="short").job(n) for n in range(7)])
    for job in jobs:
        ol.cancel(job.id)
    ol.cancel(ol.enqueue(step.job(9))[0].id)
    removed, since = 0, 0.0
    for _ in range(8):
        gone, since, more = await ol.store.arun(prune_queue, "short", 0.0, since, 2)
        removed += gone
        if not more:
            break
    assert removed == 7 and not more
    pruner = QueuePruner(ol.store)
    ol.cancel(first.id)
    assert await pruner.once(2) == 0, "a dead job may be given a new life, with what came before it"
    ol.purge()
    late = since + 2 * VISIBILITY_LAG_S  # as if that had ended long before the last look
    assert (await ol.store.arun(prune_queue, "short", 0.0, late, 2))[:2] == (0, late)
    assert await QueuePruner(ol.store).once(2) == 1, "now and then a look begins anew"
    (left,) = ol.jobs()
    assert left.args == {"n": 9} and last.flow is not None and ol.flows() == []
    told = sql(database, "SELECT DISTINCT CAST(job AS text) FROM {event} WHERE job IS NOT NULL")
    assert told == [(left.id,)], "all that belonged to them went with them"


async def test_pruning_removes_lanes_of_which_nothing_is_to_be_said(
    ol: Outlast, database: Database
) -> None:
    """R148: a lane that is no longer paused needs no row; one that is, keeps it."""
    ol.limit("mail", lane_running=1)
    ol.retention = type(ol.retention)(prune_every=0.05)
    for lane in ("a", "b"):
        ol.pause("mail", lane=lane)
    ol.resume("mail", lane="a")
    assert len(sql(database, "SELECT lane FROM {lane}")) == 2
    async with work(ol):
        await aeventually(lambda: sql(database, "SELECT lane FROM {lane}") == [("b",)])
