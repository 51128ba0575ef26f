"""Submits that meet: same keys, overlapping batches, an answer that gets lost."""

from __future__ import annotations

import random

import pytest

from outlast import KeyConflict
from outlast.ops.enqueue import enqueue
from outlast.store import Store
from tests.store.crowd import all_at_once, run_together
from tests.store.jobs import column, new, states
from tests.support import Database
from tests.support.databases import KINDS

pytestmark = pytest.mark.kinds(*KINDS)

both = pytest.mark.parametrize("colour", ["blocking", "asyncio"])


@both
def test_fifty_submits_of_one_key_are_one_job(
    store: Store, database: Database, colour: str
) -> None:
    """R003: 50 at once → 1 row, 50 equal ids, no error."""
    answers = run_together(store, colour, [(enqueue, ([new(key="k")],)) for _ in range(50)])
    assert len({job.id for (job,) in answers}) == 1
    assert column(database, "CAST(id AS text)") == [answers[0][0].id]


@both
def test_overlapping_batches_never_deadlock(store: Store, database: Database, colour: str) -> None:
    """R008, R174: 8 batches of the same 500 keys in different orders → no error, one row a key."""
    keys = [f"k{n}" for n in range(500)]
    batches = []
    for seed in range(8):
        mixed = random.Random(seed).sample(keys, 400)
        batches.append((enqueue, ([new(key=key) for key in mixed],)))
    answers = run_together(store, colour, batches)
    holders = {job.key: job.id for batch in answers for job in batch}
    assert all(job.id == holders[job.key] for batch in answers for job in batch)
    assert len(states(database)) == len(holders)


def test_of_two_unequal_calls_with_one_key_one_wins(store: Store, database: Database) -> None:
    """R003: the other is told, every time."""

    def submit(n: int) -> str:
        try:
            return store.run(enqueue, [new(key="k", args=f"[{n % 2}]")])[0].id
        except KeyConflict as error:
            return str(error.facts["job"])

    assert len(set(all_at_once(20, submit))) == 1
    assert len(states(database)) == 1
