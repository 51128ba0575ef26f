"""One claim over many queues that hold few jobs each."""

from __future__ import annotations

from outlast.model.claim import Claim
from outlast.ops import job_actions
from outlast.ops.claim import ClaimRequest, claim
from outlast.ops.enqueue import enqueue
from outlast.ops.offer import OfferRequest, offer
from tests.store.conftest import Run
from tests.store.jobs import new, put, put_and_take, table
from tests.support import Database


def across(run: Run, *queues: str, limit: int = 10, **said: object) -> list[Claim]:
    first, *others = queues
    wanted = ClaimRequest("w1", first, limit, 60.0, other_queues=tuple(others), **said)  # type: ignore[arg-type]
    claims: list[Claim] = run(claim, wanted)
    return claims


def test_each_queue_gives_its_first_jobs_in_the_order_of_the_queues(run: Run) -> None:
    """R216, R037: the most urgent of each; the queues first in line first, where room is short."""
    made = [new(queue=queue, priority=n) for queue in "abcd" for n in (0, 5, 7)]
    run(enqueue, made)
    claims = across(run, "d", "b", "a", limit=2)
    assert {c.queue for c in claims} == {"d", "b"}, "the last was not asked"
    assert all(c.priority == 7 and c.fence == 1 and c.attempt == 1 for c in claims)
    assert {(c.queue, c.priority) for c in across(run, "c", "a", limit=2)} == {("a", 7), ("c", 7)}
    many = across(run, *"abcdxyz", limit=14)
    assert sorted((c.queue, c.priority) for c in many) == [
        (queue, priority) for queue in "abcd" for priority in (0, 5)
    ]


def test_paused_queues_unknown_tasks_and_expired_jobs_are_left_alone(
    run: Run, database: Database
) -> None:
    """R216, R010, R119: as a claim of one queue leaves them."""
    for queue in "abc":
        put(run, queue=queue)
    put(run, queue="u", task="strange")
    run(job_actions.set_paused, "b", True, "ann")
    put(run, queue="e")
    past = "0" if database.is_sqlite else "now() - interval '1 h'"
    with database.connect() as connection:
        connection.execute(
            f"UPDATE {table(database, 'job')} SET expires_at = {past} WHERE queue = 'e'"
        )
    assert {c.queue for c in across(run, *"beu", "a", unknown=["strange"])} == {"a"}
    assert {c.queue for c in across(run, *"beuc", known=["work"])} == {"c"}
    assert [c.task for c in across(run, "u", "b", known=["strange"])] == ["strange"]


def test_jobs_on_their_last_life_are_taken_one_at_a_time(run: Run, database: Database) -> None:
    """R216, R050: whichever queue they are in."""
    for queue in "abc":
        put(run, queue=queue)
    with database.connect() as connection:
        connection.execute(f"UPDATE {table(database, 'job')} SET crashes = 2 WHERE queue <> 'c'")
    assert {c.queue for c in across(run, *"abc", allow_one_crash_left=False)} == {"c"}
    assert len(across(run, *"abc")) == 1
    assert len(across(run, *"abc")) == 1


def test_two_who_claim_across_the_same_queues_share_them(run: Run) -> None:
    """R216, R030: no job twice, none left."""
    put_and_take(run, queue="q0")
    for n in range(20):
        put(run, 2, queue=f"q{n}")
    queues = [f"q{n}" for n in range(20)]
    taken = [c.id for _ in range(4) for c in across(run, *queues, limit=10)]
    assert len(taken) == len(set(taken)) == 40


def test_offers_across_queues_are_of_the_tenant_and_the_tasks(run: Run) -> None:
    """R216: a remote worker's claim of many queues, too."""
    for queue in "ab":
        put(run, queue=queue)
        put(run, queue=queue, tenant="evil")
        put(run, queue=queue, task="strange")
    asked = OfferRequest(
        "desk", "a", 10, 5.0, other_queues=("b",), tasks=("work",), tenant="default"
    )
    claims = run(offer, asked)
    assert [(c.tenant, c.task) for c in claims] == [("default", "work")] * 2
