"""Offers to remote workers, as the database sees them."""

from __future__ import annotations

from typing import Any

import pytest

from outlast import Outlast, State
from outlast.model.claim import Claim
from outlast.model.worker_names import is_offer, new_server_id, remote_id
from outlast.ops import offer as ops
from outlast.ops.reclaim import reclaim, reclaim_from_workers
from tests.support import Database, eventually
from tests.support.databases import KINDS

pytestmark = pytest.mark.kinds(*KINDS)

DESK = new_server_id()
FAR = remote_id("fleet", "w")


@pytest.fixture
def ol(database: Database) -> Any:
    with Outlast(database.url, schema=database.schema) as opened:

        @opened.task(max_crashes=2)
        def work() -> None: ...

        @opened.task
        def other() -> None: ...

        yield opened


def offered(ol: Outlast, number: int, lease: float = 60.0, **asked: Any) -> list[Claim]:
    said = {"tasks": ("work",), **asked}
    claims = ol.store.run(ops.offer, ops.OfferRequest(DESK, "default", number, lease, **said))
    return [claim._replace(worker=FAR, offered_by=DESK) for claim in claims]


def enqueue(ol: Outlast, task: str = "work", **options: Any) -> str:
    definition = ol.registry.get(task)
    assert definition is not None
    from outlast import Task

    return Task(ol, definition).using(**options).enqueue().id


def test_the_first_renewal_puts_the_worker_s_name_into_the_row(ol: Outlast) -> None:
    """R039, R042"""
    enqueue(ol)
    [claim] = offered(ol, 5)
    before = ol.job(claim.id)
    assert before.worker == DESK
    assert is_offer(DESK)
    for _ in range(2):
        kept = ol.store.run(ops.hold, [claim], 600.0)
        assert kept.cancelling == {claim.claim_key: False}
        now = ol.job(claim.id)
        assert now.worker == FAR
        assert not is_offer(FAR)
        assert now.lease_until is not None
        assert before.lease_until is not None
        assert now.lease_until > before.lease_until
    ol.cancel(claim.id)
    assert ol.store.run(ops.hold, [claim], 600.0).cancelling == {claim.claim_key: True}


def test_what_was_accepted_cannot_be_withdrawn(ol: Outlast) -> None:
    """R039: the row is locked between the question and the answer."""
    for _ in range(2):
        enqueue(ol)
    accepted, offer = offered(ol, 5)
    ol.store.run(ops.hold, [accepted], 60.0)
    assert ol.store.run(ops.withdraw, DESK, [accepted, offer]) == {"default"}
    assert ol.job(accepted.id).state is State.RUNNING
    back = ol.job(offer.id)
    assert (back.state, back.attempt) == (State.READY, 0)
    late = ol.store.run(ops.hold, [offer, accepted], 60.0)
    assert set(late.cancelling) == {accepted.claim_key}
    assert late.busy == frozenset()
    assert ol.store.run(ops.withdraw, DESK, [accepted, offer]) == set()


@pytest.mark.parametrize("how", ["lease", "death"])
def test_what_was_merely_offered_is_taken_back_with_nothing_charged(ol: Outlast, how: str) -> None:
    """R039, R040: however often; what was accepted is charged as ever."""
    id = enqueue(ol)
    for _ in range(5):  # more often than it may cost workers
        offered(ol, 1, lease=0.01)
        eventually(lambda: swept(ol, how) == 1)
        now = ol.job(id)
        assert (now.state, now.attempt, now.crashes) == (State.READY, 0, 0)
    [claim] = offered(ol, 1)
    ol.store.run(ops.hold, [claim], 0.01)
    eventually(lambda: ol.store.run(reclaim).healed == 1)
    assert ol.job(id).crashes == 1


def swept(ol: Outlast, how: str) -> int:
    return ol.store.run(
        reclaim if how == "lease" else lambda: reclaim_from_workers([DESK], "exit")
    ).healed


def test_a_cancelled_offer_ends_when_it_is_taken_back(ol: Outlast) -> None:
    id = enqueue(ol)
    offered(ol, 1, lease=0.01)
    ol.cancel(id)
    eventually(lambda: ol.store.run(reclaim).healed == 1)
    assert ol.job(id).state is State.CANCELLED


def test_only_what_the_worker_knows_and_may_have_is_offered(ol: Outlast) -> None:
    """R145"""
    mine = enqueue(ol, tenant="a")
    enqueue(ol, tenant="b")
    enqueue(ol, task="other", tenant="a")
    assert [claim.id for claim in offered(ol, 5, tenant="a")] == [mine]
    assert len(offered(ol, 5, tasks=("work", "other"))) == 2


def test_those_that_one_more_death_would_end_are_offered_one_by_one(ol: Outlast) -> None:
    """R050: of the tasks and the tenant that are asked for."""
    for tenant in ("b", "a", "a"):
        enqueue(ol, tenant=tenant)
    for claim in offered(ol, 3):
        ol.store.run(ops.hold, [claim], 0.01)
    eventually(lambda: ol.store.run(reclaim).healed + ol.counts()["ready"] >= 3)
    assert offered(ol, 3, tenant="a", allow_one_crash_left=False) == []
    assert len(offered(ol, 3, tenant="a")) == 1
