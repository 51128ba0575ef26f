"""Steps in the tables: kept while a claim holds, kept once, and gone with their job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast import ClaimLost
from outlast.ops import audit, job_actions, retention
from outlast.ops.complete import complete, completed
from outlast.ops.report import steps
from outlast.ops.steps import keep, look_up
from outlast.ops.streams import stream_tail
from outlast.store import Store, open_store
from outlast.store.caller.connection import run_on
from outlast.store.handler_connection import aopen_transaction, open_transaction
from tests.store.conftest import Run
from tests.store.jobs import end, end_leases, ending, put_and_take, states, table, take
from tests.support import Database, Proxy
from tests.support.databases import KINDS

pytestmark = pytest.mark.kinds(*KINDS)


def kept(database: Database) -> list[tuple[Any, ...]]:
    query = f"SELECT name, CAST(result AS text), fence, attempt FROM {table(database, 'step')}"
    return database.rows(f"{query} ORDER BY name")


def test_a_step_is_kept_once_however_often_it_is_sent(run: Run, database: Database) -> None:
    """R105, R170: under one claim it is the same step, and the first answer stands."""
    claim = put_and_take(run)
    assert run(look_up, claim.id, "a") is None
    assert run(keep, claim, "a", '{"n": 1}') == '{"n": 1}'
    assert run(keep, claim, "a", '{"n": 2}') == '{"n": 1}'
    assert run(keep, claim, "b", "null") == "null"
    assert run(look_up, claim.id, "a") == '{"n": 1}'
    assert kept(database) == [("a", '{"n": 1}', 1, 1), ("b", "null", 1, 1)]
    assert [(step.name, step.attempt) for step in run(steps, claim.id)] == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("how", ["finished", "released", "claimed again"])
def test_a_claim_that_does_not_hold_keeps_nothing(run: Run, database: Database, how: str) -> None:
    """R030, R033: neither something new, nor in place of what another claim kept."""
    claim = put_and_take(run)
    end(run, claim, "succeeded" if how == "finished" else "released")
    if how == "claimed again":
        (other,) = take(run)
        run(keep, other, "a", "2")
    before = kept(database)
    for name in ("a", "new"):
        with pytest.raises(ClaimLost):
            run(keep, claim, name, "1")
    assert kept(database) == before


def test_output_goes_with_a_step_or_not_at_all(run: Run, database: Database) -> None:
    """R248, R030: in one transaction, under one claim."""
    claim = put_and_take(run)

    def output(n: int) -> list[dict[str, Any]]:
        return [{"job": claim.id, **claim.guard, "n": n, "data": f'["{n}"]', "first": n == 0}]

    run(keep, claim, "a", "1", output(0), 1000)
    run(keep, claim, "a", "1", output(0), 1000)  # the response was lost
    end(run, claim, "released")
    (again,) = take(run)
    with pytest.raises(ClaimLost):
        run(keep, claim, "b", "1", output(1), 1000)
    assert [name for name, *_ in kept(database)] == ["a"]
    assert [row.data for row in run(stream_tail, claim.id)] == ['["0"]']
    claim = again
    run(keep, claim, "b", "1", output(0), 1000)
    assert [row.fence for row in run(stream_tail, claim.id)] == [1, 2]


def test_steps_stay_through_retries_and_redrives(run: Run, database: Database) -> None:
    """R105: what they did was done, whatever becomes of the attempt."""
    claim = put_and_take(run)
    run(keep, claim, "a", "1")
    end(run, claim, "permanent")
    run(job_actions.redrive, [claim.id], "me")
    (again,) = take(run)
    assert run(look_up, again.id, "a") == "1"
    run(keep, again, "b", "2")
    assert kept(database) == [("a", "1", 1, 1), ("b", "2", 2, 1)]


def test_steps_are_pruned_with_their_job(run: Run, database: Database) -> None:
    """R063: by the duty, and by the audit if that did not."""
    gone, repaired, stays = (put_and_take(run) for _ in range(3))
    for claim in (gone, repaired, stays):
        run(keep, claim, "a", "1")
    end(run, gone, "cancelled")
    assert run(retention.prune, "cancelled", -1.0, 10) == 1
    end(run, repaired, "cancelled")
    [leaked] = [
        check for check in audit.checks({"cancelled": -1.0}, 1e9, 60.0, 0.5)
        if check.name == "leaked-slot"
    ]  # fmt: skip
    assert run(leaked.repair, [repaired.id, stays.id]) == 1
    assert len(kept(database)) == 1
    assert run(look_up, stays.id, "a") == "1"


def test_steps_whose_job_is_gone_are_cleared_away(run: Run, database: Database) -> None:
    """I5 `left-behind`: somebody removed a job by hand; a living job's steps stay."""
    gone, stays = put_and_take(run), put_and_take(run)
    for claim in (gone, stays):
        run(keep, claim, "a", "1")
    mark = "?" if database.is_sqlite else "%s"
    database.rows(f"DELETE FROM {table(database, 'job')} WHERE id = {mark}", (gone.id,))
    assert run(audit.dangling_rows, "steps", audit.LOWEST_ID)[0] == [gone.id]
    assert run(audit.delete_dangling("steps"), [gone.id, stays.id]) == 1
    assert len(kept(database)) == 1


@pytest.mark.kinds("postgres")
def test_a_step_waits_for_whoever_is_taking_its_job_away(store: Store, database: Database) -> None:
    """R033: between the look at the claim and the keeping, the claim cannot end."""
    claim = put_and_take(store.run)
    quick = open_store(database.url, database.schema)
    quick.ready()
    with open_transaction(quick) as lent:
        run_on(lent.connection, quick, complete(ending(claim)))  # not committed yet
        asked = asyncio.run(_asked(store, claim, lent))
    assert asked == "lost"
    assert kept(database) == []
    quick.close()


@pytest.mark.kinds("postgres")
def test_a_completion_that_is_still_under_way_is_waited_for(
    store: Store, database: Database
) -> None:
    """R170: its client gave up on it, and asks; the server may still commit it."""
    claim = put_and_take(store.run)
    slow = open_store(database.url, database.schema)
    with open_transaction(slow) as lent:
        lent.run(complete(ending(claim)))
        assert asyncio.run(_waits(lent, store.run, completed, ending(claim))) is True
    slow.close()


async def _asked(store: Store, claim: Any, lent: Any) -> str:
    try:
        return str(await _waits(lent, store.run, keep, claim, "a", "1"))
    except ClaimLost:
        return "lost"


async def _waits(lent: Any, ask: Any, *args: Any) -> Any:
    """The answer, which does not come before a transaction has committed."""
    asking = asyncio.create_task(asyncio.to_thread(ask, *args))
    await asyncio.sleep(0.3)
    assert not asking.done()
    await asyncio.to_thread(lent.commit)
    return await asking


# The transaction of a handler's own writes


def test_a_completion_is_applied_in_this_very_transaction(store: Store, database: Database) -> None:
    """R033: a finish that was accepted before does not make a second set of writes right."""
    claim = put_and_take(store.run)
    end(store.run, claim)
    with open_transaction(store) as lent, pytest.raises(ClaimLost):
        lent.run(complete(ending(claim)))
    assert store.run(completed, ending(claim))
    assert states(database) == ["succeeded"]


def test_whoever_leaves_without_a_commit_has_written_nothing(
    store: Store, database: Database
) -> None:
    """R002"""
    claim = put_and_take(store.run)
    with open_transaction(store) as lent:
        lent.run(complete(ending(claim)))
    assert states(database) == ["running"]
    assert not store.run(completed, ending(claim))

    async def awaited() -> None:
        async with aopen_transaction(store) as lent:
            await lent.run(complete(ending(claim)))
        assert not await store.arun(completed, ending(claim))
        async with aopen_transaction(store) as lent:
            await lent.run(complete(ending(claim)))
            await lent.commit()
        assert await store.arun(completed, ending(claim))
        await store.aclose()

    asyncio.run(awaited())
    assert states(database) == ["succeeded"]


def test_a_completion_of_a_lost_claim_is_refused(store: Store, database: Database) -> None:
    """R030, R033: whoever has it now goes on; who lost it is told, also about a lost answer."""
    claim = put_and_take(store.run)
    end_leases(database)
    end(store.run, claim, "released")
    (other,) = take(store.run)
    with open_transaction(store) as lent, pytest.raises(ClaimLost):
        lent.run(complete(ending(claim)))
    assert not store.run(completed, ending(claim))
    assert end(store.run, other).accepted


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("fault", ["swallow_reply_after", "drop_request_when"])
def test_a_step_whose_answer_is_lost_is_kept_once(
    database: Database, proxy: Proxy, fault: str
) -> None:
    """R170: sent again under the same claim, it is the same step."""
    store = open_store(proxy.url(database.url), database.schema)
    claim = put_and_take(store.run)
    trap = getattr(proxy, fault)(b"INSERT INTO")
    assert store.run(keep, claim, "a", "1") == "1"
    trap.wait()
    assert kept(database) == [("a", "1", 1, 1)]
    store.close()
