"""Many claimers: every job has one winner, whoever else writes to the same rows."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import threading
from collections import Counter
from contextlib import suppress

import pytest

from outlast.model.claim import Claim
from outlast.ops.claim import ClaimRequest, claim, poll
from outlast.ops.enqueue import enqueue
from outlast.ops.finish import finish
from outlast.ops.renew import renew
from outlast.store import Store, open_store
from tests.store.crowd import NESTED_LOOPS, all_at_once
from tests.store.jobs import ending, new, put, states, take
from tests.support import Database, Processes, aeventually
from tests.support.databases import KINDS

pytestmark = pytest.mark.kinds(*KINDS)

CLAIMER = """
    import json, sys
    from outlast.model.outcome import release
    from outlast.ops.claim import ClaimRequest, claim, poll
    from outlast.store import open_store
    url, schema, name = sys.argv[1:]
    store, taken = open_store(url, schema), []
    while some := store.run(claim, ClaimRequest(name, "default", 7, 60.0)):
        taken += [one.id for one in some]
    print(json.dumps(taken))
"""


@pytest.mark.parametrize(
    "rounds", [2, pytest.param(10, marks=pytest.mark.campaign)], ids=["sample", "full"]
)
def test_every_job_has_one_winner_among_fifty_claimers(store: Store, rounds: int) -> None:
    """R024: 50 claimers, 1,000 jobs: claimed once per attempt, never twice at once. Ten rounds in a
    campaign."""
    put(store.run, 1000)
    stores = [store, *(store.clone() for _ in range(4))]

    def take_all(n: int) -> list[Claim]:
        taken: list[Claim] = []
        luck = random.Random(n)
        while some := take(stores[n % 5].run, luck.randint(5, 25), worker=f"w{n}"):
            taken += some
        return taken

    for round in range(1, rounds + 1):
        taken = [one for part in all_at_once(50, take_all) for one in part]
        assert len({one.id for one in taken}) == len(taken) == 1000
        assert {(one.fence, one.attempt) for one in taken} == {(round, 1)}
        store.run(finish, [ending(one, "released") for one in taken])
    for twin in stores[1:]:
        twin.close()


@pytest.mark.kinds("sqlite", "postgres")
def test_every_job_has_one_winner_among_processes(
    store: Store, database: Database, processes: Processes
) -> None:
    """R024: eight processes, with nothing in common but the database."""
    made = {one.id for one in put(store.run, 1000)}
    started = [processes.python(CLAIMER, database.url, database.schema, f"p{n}") for n in range(8)]
    taken = [id for one in started for id in json.loads(one.succeed(60))]
    assert len(taken) == 1000
    assert set(taken) == made


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("planner", ["", NESTED_LOOPS], ids=["as usual", "nested loops"])
@pytest.mark.parametrize(
    "tries", [400, pytest.param(10_000, marks=pytest.mark.campaign)], ids="{}".format
)
def test_a_claim_of_one_takes_one_while_others_write_to_the_rows(
    database: Database, tries: int, planner: str
) -> None:
    """R025: neither concurrent updates of the candidates nor any plan can widen the LIMIT."""
    store = open_store(database.url + planner, database.schema)
    store.run(enqueue, [new() for _ in range(tries + 100)])
    done = threading.Event()
    sizes: Counter[int] = Counter()

    def disturb() -> None:
        change = (
            "UPDATE job SET trace = clock_timestamp()::text WHERE id IN (SELECT id FROM job WHERE"
            " state = 'ready' ORDER BY priority DESC, run_at, id LIMIT 20)"
        )
        with database.connect() as connection:
            while not done.is_set():
                connection.execute(change)

    def take_one_by_one(n: int) -> None:
        for _ in range(tries // 4):
            sizes[len(take(store.run, 1, worker=f"w{n}"))] += 1

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        all_at_once(4, take_one_by_one)
    finally:
        done.set()
        disturber.join()
    assert set(sizes) <= {0, 1}, "0: everything near the front was locked for a moment"
    assert sizes[1] == states(database).count("running") > tries * 0.9
    store.close()


@pytest.mark.slow_on("pgbouncer")
async def test_a_claim_that_is_cancelled_owns_nothing_for_long(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """R021: cancelled at 150 moments; whatever was claimed is found by its worker's renewal."""
    await store.arun(enqueue, [new() for _ in range(500)])
    held: dict[str, int] = {}
    for breaths in range(150):
        await store.arun(poll)  # so that a connection is there, and the claim itself is what is hit
        asking = asyncio.create_task(store.arun(claim, ClaimRequest("w1", "default", 2, 60.0)))
        for _ in range(breaths // 2):
            await asyncio.sleep(0)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            held |= {one.id: one.fence for one in await asking}
    gc.collect()
    free = 0

    async def every_other_job_is_free() -> bool:
        """In a moment: a statement runs on for a while after its caller was cancelled."""
        nonlocal free
        renewed = await store.arun(renew, "w1", held, 60.0)
        assert (renewed.lost, renewed.kept) == (set(), set(held))
        await store.arun(finish, [ending(one, "released") for one in renewed.unknown_claims])
        free += len(await store.arun(claim, ClaimRequest("w2", "default", 500, 60.0)))
        return free + len(held) == 500

    await aeventually(every_other_job_is_free)
    assert caplog.messages == [], "being cancelled is nothing to complain of"
    await store.aclose()
