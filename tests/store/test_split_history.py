"""Two owners, one fence: after a failover that lost commits, or from a restored backup, a job is
claimed again under the fence that its old owner still holds."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from outlast import ClaimLost
from outlast.model.claim import Claim
from outlast.model.worker_names import new_server_id, remote_id
from outlast.ops import offer as offers
from outlast.ops.claim import ClaimRequest
from outlast.ops.complete import complete, completed
from outlast.ops.finish import finish, finish_with_keys, lookup_finished
from outlast.ops.finish_and_claim import finish_and_claim
from outlast.ops.force_release import force_release
from outlast.ops.job_actions import cancel
from outlast.ops.reclaim import reclaim, reclaim_from_workers
from outlast.ops.renew import renew
from outlast.ops.report import history, job
from outlast.ops.steps import keep, look_up
from outlast.store import Store
from tests.store.conftest import Run
from tests.store.jobs import end, ending, go_back, new, put_and_take, states, take
from tests.support import Database

OUTCOMES = [
    "succeeded", "failed", "timed-out", "permanent", "postponed", "cancelled", "released",
    "crashed", "undecodable",
]  # fmt: skip
DESKS = new_server_id(), new_server_id()
FAR = remote_id("fleet", "old"), remote_id("fleet", "new")


class Owners(NamedTuple):
    """Both claims, by when they were made."""

    old: Claim
    new: Claim


def split(run: Run, database: Database, **said: Any) -> Owners:
    """A job of two owners with equal fences."""
    before = put_and_take(run, **said)
    go_back(database)
    (after,) = take(run, worker="w2", queue=before.queue)
    assert (after.id, after.fence) == (before.id, before.fence)
    assert after.worker != before.worker
    return Owners(before, after)


def test_an_outcome_counts_for_the_owner_in_the_row_alone(store: Store, database: Database) -> None:
    """R215: complete, fail, retry, release, cancel: the old owner is told that it lost, before the
    new one has ended the job and after, and nothing that came with its outcome exists."""
    run = store.run
    for number, outcome in enumerate(OUTCOMES, 1):
        owners = split(run, database, queue=outcome)
        before = run(job, owners.new.id)
        for said in (owners.old, owners.old._replace(has_dependents=True)):
            follow_ups = (new(queue=outcome), new(queue=outcome, key="k"))
            finished = end(run, said, outcome, result='"stale"', jobs=follow_ups)
            assert (finished.accepted, [one.claim for one in finished.lost]) == ([], [said])
        assert run(job, owners.new.id) == before
        assert (len(states(database)), run(history, before.id)) == (number, ([], []))
        accepted = end(run, owners.new, outcome)
        assert (len(accepted.accepted), accepted.lost, accepted.duplicates) == (1, [], [])
        after, late = run(job, owners.new.id), ending(owners.old, outcome)
        assert [one.claim for one in run(finish, [late]).lost] == [owners.old]
        assert [one.claim for one in run(lookup_finished, [late]).lost] == [owners.old]
        assert len(end(run, owners.new, outcome).duplicates) == 1, (
            "its own answer may have been lost"
        )
        assert run(job, owners.new.id) == after


@pytest.mark.parametrize("claiming", [False, True])
def test_a_first_try_success_counts_for_the_owner_in_the_row_alone(
    store: Store, database: Database, claiming: bool
) -> None:
    """R215: also on the short way, where only the number of the accepted is told, and with a claim
    in the same round trip."""
    run = store.run
    owners = split(run, database)
    wanted = ClaimRequest("w1", "default", 1, 60.0) if claiming else None
    finished, _ = run(finish_and_claim, [ending(owners.old, result='"stale"')], wanted)
    assert (finished.accepted, len(finished.lost)) == ([], 1)
    finished, _ = run(finish_and_claim, [ending(owners.new, result='"fresh"')], wanted)
    assert (len(finished.accepted), finished.lost) == (1, [])
    assert run(job, owners.new.id).result == "fresh"
    finished, _ = run(finish_and_claim, [ending(owners.old, result='"stale"')], wanted)
    assert (finished.accepted, len(finished.lost)) == ([], 1)
    finished, _ = run(finish_and_claim, [ending(owners.new)], wanted)
    assert len(finished.duplicates) == 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("way", ["finish", "turn", "tied"])
def test_of_two_owners_in_one_call_one_is_accepted(
    store: Store, database: Database, way: str, order: tuple[int, int]
) -> None:
    """R215: a service hands in what many say; the follow-up jobs of the other do not exist."""
    run = store.run
    owners = split(run, database, tied=way == "tied")
    jobs = [(new(queue=name),) if way == "finish" else () for name in ("stale", "fresh")]
    said = [ending(c, result=f'"{c.worker}"', jobs=j) for c, j in zip(owners, jobs, strict=True)]
    both = [said[place] for place in order]
    finished = run(finish, both) if way == "finish" else run(finish_and_claim, both)[0]
    assert [one.claim for one, _ in finished.accepted] == [owners.new]
    assert [one.claim for one in finished.lost] == [owners.old]
    assert run(job, owners.new.id).result == "w2"
    assert take(run, 9, queue="stale") == []


def test_a_completion_counts_for_the_owner_in_the_row_alone(
    store: Store, database: Database
) -> None:
    """R215: with the handler's own writes, with keyed follow-ups, and when its answer got lost."""
    run = store.run
    owners = split(run, database)
    stale, fresh = (ending(claim, jobs=(new(key="k", queue="next"),)) for claim in owners)
    for way in (complete, finish_with_keys):
        with pytest.raises(ClaimLost):
            run(way, stale)
    assert not run(completed, stale)
    assert len(states(database)) == 1
    run(complete, fresh)
    assert (run(completed, stale), run(completed, fresh)) == (False, True)
    assert len(take(run, 9, queue="next")) == 1


def test_the_other_owner_of_a_fence_can_neither_renew_nor_speak_nor_keep_a_step(
    run: Run, database: Database
) -> None:
    """R215: each is refused, and says so; what the owner in the row says is kept."""
    owners = split(run, database)
    old, owner = owners
    lease = run(job, owner.id).lease_until
    renewed = run(renew, old.worker, {old.id: old.fence}, 3600.0)
    assert (renewed.kept, renewed.lost, renewed.unknown_claims) == (set(), {old.id}, [])
    assert run(job, owner.id).lease_until == lease
    said = {"n": 0, "job": owner.id, "kind": "log", "data": '"stale"'}
    run(finish, [], [said | old.guard])
    assert run(history, owner.id)[1] == []
    with pytest.raises(ClaimLost):
        run(keep, old, "charge", '"stale"')
    assert run(look_up, owner.id, "charge") is None
    assert run(renew, owner.worker, {owner.id: owner.fence}, 60.0).kept == {owner.id}
    run(finish, [], [said | owner.guard | {"data": '"fresh"'}])
    assert [event.data for event in run(history, owner.id)[1]] == ["fresh"]
    assert run(keep, owner, "charge", '"fresh"') == '"fresh"'
    with pytest.raises(ClaimLost):
        run(keep, old, "charge", '"stale"')
    assert run(look_up, owner.id, "charge") == '"fresh"'


def test_a_cancel_is_acknowledged_by_the_owner_in_the_row_alone(
    store: Store, database: Database
) -> None:
    """R215: the old owner never ran what people see, and cannot say that it stopped."""
    run = store.run
    owners = split(run, database)
    run(cancel, owners.new.id, "me", "enough")
    assert len(end(run, owners.old, "cancelled").lost) == 1
    assert len(end(run, owners.old, "released").lost) == 1
    assert run(job, owners.new.id).state == "running"
    assert len(end(run, owners.new, "cancelled").accepted) == 1


def test_what_takes_a_job_back_takes_it_from_the_owner_in_the_row(
    store: Store, database: Database
) -> None:
    """R215: sweep, burial and force release act on the owner that they saw; burying the old one
    takes nothing from the new."""
    run = store.run
    owners = split(run, database)
    assert run(reclaim_from_workers, [owners.old.worker], "exit").found == 0
    assert run(job, owners.new.id).worker == owners.new.worker
    assert run(force_release, owners.new.id, "me").state == "ready"
    (third,) = take(run, worker="w3", lease=-1.0)
    assert run(reclaim).healed == 1
    records, _ = run(history, owners.new.id)
    assert [one.worker for one in records] == [owners.new.worker, third.worker]
    for claim in (*owners, third):
        assert len(end(run, claim, "failed").lost) == 1


# Remote workers


def offered(run: Run, database: Database) -> Owners:
    """A job that two servers offered under one fence, each to a worker of its own."""
    claims = []
    for desk, far in zip(DESKS, FAR, strict=True):
        go_back(database)
        asked = offers.OfferRequest(desk, "default", 1, 60.0, tasks=("work",))
        (claim,) = run(offers.offer, asked)
        claims.append(claim._replace(worker=far, offered_by=desk))
    assert claims[0].fence == claims[1].fence
    return Owners(*claims)


@pytest.mark.parametrize("accepted", [False, True])
def test_an_offer_is_accepted_and_ended_by_the_worker_that_it_was_made_to(
    store: Store, database: Database, accepted: bool
) -> None:
    """R215: until it is accepted, the server in the row says whose it is; then the worker does."""
    run = store.run
    end(run, put_and_take(run), "released")
    old, owner = offered(run, database)
    if accepted:
        assert set(run(offers.hold, [owner], 60.0).cancelling) == {owner.claim_key}
    held = run(offers.hold, [old], 60.0)
    assert (held.cancelling, held.busy) == ({}, frozenset())
    assert run(offers.withdraw, DESKS[0], [old]) == set()
    for ends in ("released", "failed", "succeeded"):
        assert len(end(run, old, ends).lost) == 1
    finished, kept, _ = run(offers.finish_hold_and_claim, [ending(old)], [old], 60.0, None)
    assert (len(finished.lost), kept.cancelling) == (1, {})
    finished, _, _ = run(offers.finish_hold_and_claim, [ending(owner)], [], 60.0, None)
    assert len(finished.accepted) == 1
    assert run(job, owner.id).worker == owner.worker
    assert len(end(run, old).lost) == 1


def test_a_renewal_for_two_workers_holds_the_job_for_one(store: Store, database: Database) -> None:
    """R215: both in one call, and the one that the row names keeps it."""
    run = store.run
    end(run, put_and_take(run), "released")
    owners = offered(run, database)
    for _ in range(2):
        held = run(offers.hold, [*owners], 60.0)
        assert (set(held.cancelling), held.busy) == ({owners.new.claim_key}, frozenset())
    assert run(job, owners.new.id).worker == owners.new.worker
    found = run(offers.owners_of, [*owners])
    assert found == {owners.old.claim_key: None, owners.new.claim_key: owners.new.worker}


@pytest.mark.parametrize("ends", ["running", "failed", "succeeded"])
def test_events_that_come_late_are_those_of_the_owner_in_the_row(
    store: Store, database: Database, ends: str
) -> None:
    """R215: while it runs, by its record, or by the job that succeeded at once; and what another
    owner said under the same number is not taken for one's own."""
    run = store.run
    end(run, put_and_take(run), "released")
    owners = offered(run, database)
    run(offers.hold, [owners.new], 60.0)
    if ends != "running":
        end(run, owners.new, ends)
    said = [
        {"job": c.id, **c.guard, "attempt": 1, "n": 0, "kind": "log", "data": f'"{c.worker}"'}
        for c in owners
    ]
    assert run(offers.record_late, said) == 1
    events = [event.data for event in run(history, owners.new.id)[1] if event.kind == "log"]
    assert events == [owners.new.worker]
    asked = [(claim, 0) for claim in owners]
    assert run(offers.stored_events, asked) == {(owners.new.claim_key, 0)}
