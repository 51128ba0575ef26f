"""The server did it, and the answer got lost: asking again must not do it twice.

Each operation is cut once between the server's commit and the client's reply, and once before the
request arrived. Only PostgreSQL has a line that can be cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from outlast.ops import duties, job_actions, retention
from outlast.ops.claim import ClaimRequest, claim
from outlast.ops.enqueue import enqueue
from outlast.ops.finish import finish
from outlast.ops.finish_and_claim import finish_and_claim
from outlast.ops.reclaim import reclaim
from outlast.ops.renew import renew
from outlast.ops.report import history, job
from outlast.store import Store, open_store, schema
from outlast.verify.workspace import remove_schemas
from tests.store.conftest import Run
from tests.store.jobs import end, end_leases, ending, new, put, put_and_take, states, take
from tests.support import Database, Proxy, eventually

pytestmark = pytest.mark.kinds("postgres")

Cut = Callable[[Any], Any]
lost = pytest.mark.parametrize("fault", ["swallow_reply_after", "drop_request_when"])


def at_commit(sent: bytes) -> bool:
    """This COMMIT, and not one that the same connection sent earlier."""
    return b"COMMIT" in sent[-100:]


@pytest.fixture(params=["blocking", "asyncio"])
def distant(request: pytest.FixtureRequest, database: Database, proxy: Proxy) -> Iterator[Run]:
    """`run`, through the proxy; connected before anything is cut."""
    store: Store = open_store(proxy.url(database.url), database.schema)
    store.ready()
    if request.param == "blocking":
        yield store.run
        store.close()
        return
    with asyncio.Runner() as loop:
        yield lambda op, *args, **more: loop.run(store.arun(op, *args, **more))
        loop.run(store.aclose())


@pytest.fixture
def cut(proxy: Proxy, request: pytest.FixtureRequest) -> Cut:
    """Lose the answer to (or the request with) what is given, once."""
    fault = request.node.callspec.params["fault"]
    cutter: Cut = getattr(proxy, fault)
    return cutter


@lost
@pytest.mark.parametrize("key", [None, "k"])
def test_a_submit_makes_one_job(
    distant: Run, database: Database, cut: Cut, fault: str, key: str | None
) -> None:
    """R004, R170: exactly one job, and the caller has its id."""
    trap = cut(at_commit if key else b"INSERT INTO")
    (made,) = distant(enqueue, [new(key=key)])
    trap.wait()
    assert database.rows("SELECT CAST(id AS text), state FROM job") == [(made.id, "ready")]


@lost
def test_a_bulk_submit_makes_each_job_once(
    distant: Run, database: Database, cut: Cut, fault: str
) -> None:
    """R004, R008, R170"""
    asked = [new(key=f"k{n}" if n % 2 else None) for n in range(500)]
    trap = cut(at_commit)
    made = distant(enqueue, asked)
    trap.wait()
    assert [one.id for one in made] == [one.id for one in asked]
    assert len(states(database)) == 500


@lost
def test_a_claim_whose_answer_got_lost_is_found_again(
    distant: Run, database: Database, cut: Cut, fault: str
) -> None:
    """R021, R170, `unstarted`: nothing is claimed twice; the next renewal names what is in nobody's
    hands."""
    put(distant, 4)
    trap = cut(b"SKIP LOCKED")
    held = distant(claim, ClaimRequest("w1", "default", 2, 60.0))
    trap.wait()
    assert len({one.id for one in held}) == 2
    renewed = distant(renew, "w1", {one.id: one.fence for one in held}, 60.0)
    assert len(renewed.kept) == 2
    assert len(renewed.unknown_claims) == (2 if fault == "swallow_reply_after" else 0)
    distant(finish, [ending(one, "released") for one in renewed.unknown_claims])
    assert sorted(states(database)) == ["ready"] * 2 + ["running"] * 2
    assert max(database.rows("SELECT max(attempt) FROM job")) == (1,)


@lost
@pytest.mark.parametrize("outcome", ["succeeded", "failed", "permanent", "postponed", "released"])
def test_a_finish_is_accepted_once_and_not_called_lost(
    distant: Run, database: Database, cut: Cut, fault: str, outcome: str
) -> None:
    """R026, R095, R170: the second asking learns that the first was accepted."""
    claimed = put_and_take(distant)
    follow_ups = (new(),) if outcome == "succeeded" else ()
    trap = cut(at_commit)
    finished = end(distant, claimed, outcome, jobs=follow_ups)
    trap.wait()
    after = distant(job, claimed.id)
    assert [state for _, state in finished.accepted] == [after.state]
    assert finished.lost == []
    assert after.failures == (outcome in ("failed", "permanent"))
    attempts, _ = distant(history, claimed.id)
    assert len(attempts) == (outcome != "succeeded")
    assert len(states(database)) == 1 + len(follow_ups)


@lost
def test_what_a_running_attempt_said_is_kept_once(distant: Run, cut: Cut, fault: str) -> None:
    """R170: known by its number under its claim; and the same words, said again, are kept too."""
    claimed = put_and_take(distant)
    said = {"job": claimed.id, **claimed.guard, "kind": "log", "data": '"halfway"'}
    trap = cut(at_commit)
    distant(finish, [], [{**said, "n": 0}])
    trap.wait()
    distant(finish, [], [{**said, "n": 1}])
    _, events = distant(history, claimed.id)
    assert [(event.kind, event.attempt) for event in events] == [("log", 1), ("log", 1)]


@lost
def test_a_plain_success_handed_in_with_a_claim_is_accepted_once(
    distant: Run, database: Database, cut: Cut, fault: str
) -> None:
    """R026, R170: the round trip that workers make all day."""
    first = put_and_take(distant)
    put(distant, 2)
    trap = cut(b"UPDATE")
    finished, claims = distant(
        finish_and_claim, [ending(first)], ClaimRequest("w1", "default", 1, 60.0)
    )
    trap.wait()
    assert [(one.claim, state) for one, state in finished.accepted] == [(first, "succeeded")]
    assert finished.lost == []
    assert len(claims) == 1
    assert states(database)[0] == "succeeded"


@lost
def test_a_renewal_holds(distant: Run, cut: Cut, fault: str) -> None:
    """R170: what is renewed twice is renewed."""
    claimed = put_and_take(distant)
    trap = cut(b"lease_until")
    renewed = distant(renew, "w1", {claimed.id: claimed.fence}, 60.0)
    trap.wait()
    assert renewed.kept == {claimed.id}
    assert renewed.unknown_claims == []


@lost
@pytest.mark.parametrize("running", [False, True])
def test_a_cancel_is_one_cancel(distant: Run, cut: Cut, fault: str, running: bool) -> None:
    """R117, R170: asked again, it is not too late for its own success, and recorded once."""
    (made,) = put(distant)
    if running:
        take(distant)
    trap = cut(at_commit)
    answer = distant(job_actions.cancel, made.id, "ann", "changed my mind")
    trap.wait()
    assert (answer.state, answer.cancelling) == (
        ("running", True) if running else ("cancelled", False)
    )
    _, events = distant(history, made.id)
    assert [event.kind for event in events] == ["cancel"]


@lost
def test_a_redrive_gives_one_new_life(distant: Run, cut: Cut, fault: str) -> None:
    """R052, R170"""
    claimed = put_and_take(distant)
    end(distant, claimed, "permanent")
    trap = cut(at_commit)
    assert distant(job_actions.redrive_one, claimed.id, "ann").state == "ready"
    trap.wait()
    _, events = distant(history, claimed.id)
    assert [event.kind for event in events] == ["redrive"]


@lost
def test_a_reclaim_costs_one_crash(distant: Run, database: Database, cut: Cut, fault: str) -> None:
    """R085, R170"""
    claimed = put_and_take(distant)
    end_leases(database)
    trap = cut(at_commit)
    distant(reclaim)
    trap.wait()
    # The server may hold on to the row until it notices that nobody is there: the next sweep then.
    eventually(lambda: distant(reclaim) and distant(job, claimed.id).state == "ready")
    assert distant(job, claimed.id).crashes == 1
    assert len(distant(history, claimed.id)[0]) == 1


@lost
def test_pause_expire_and_prune_can_be_asked_again(
    distant: Run, database: Database, cut: Cut, fault: str
) -> None:
    """R169, R170"""
    (made,) = put(distant, expires_in=0.000001)
    trap = cut(b"expires_at")
    distant(duties.expire)
    trap.wait()
    eventually(lambda: distant(duties.expire) or distant(job, made.id).state == "cancelled")
    trap = cut(at_commit)
    distant(retention.prune, "cancelled", 0.0, 10)
    trap.wait()
    eventually(lambda: distant(retention.prune, "cancelled", 0.0, 10) or states(database) == [])
    trap = cut(at_commit)
    distant(job_actions.set_paused, "default", True, "ann")
    trap.wait()
    put(distant)
    assert take(distant) == []
    assert database.rows("SELECT kind FROM event") == [("pause",)]


@lost
def test_a_duty_whose_take_was_not_answered_is_done(distant: Run, cut: Cut, fault: str) -> None:
    """R169, R170: whoever asks again is told that it is theirs; and after an answer it is not,
    until it is due."""
    known = distant(duties.take_duty, "audit", 60.0, "w1")
    assert known is not None
    trap = cut(b"INSERT INTO")
    assert distant(duties.take_duty, "audit", 60.0, "w1", known) is None, "not due, taken or lost"
    trap.wait()
    trap = cut(b"INSERT INTO")
    taken = distant(duties.take_duty, "prune", 60.0, "w1")
    trap.wait()
    assert taken is not None
    assert distant(duties.take_duty, "prune", 60.0, "w1", taken) is None
    assert distant(duties.take_duty, "prune", 60.0, "w2") is None


@lost
def test_a_migration_is_made_once(proxy: Proxy, database: Database, cut: Cut, fault: str) -> None:
    """R169, R170: and whoever made it is told so."""
    with closing(open_store(proxy.url(database.url), "elsewhere")) as store:
        trap = cut(at_commit)
        assert store.migrate() == list(range(1, schema.latest() + 1))
        trap.wait()
        assert store.migrate() == []
    remove_schemas(database.url, "elsewhere")


@lost
def test_a_redrive_of_many_knows_its_own(
    distant: Run, database: Database, cut: Cut, fault: str
) -> None:
    """R170: those that an answer was lost about are among the number."""
    ids = [made.id for made in put(distant, 20)]
    for id in ids:
        distant(job_actions.cancel, id, "ann", "")
    assert distant(job_actions.redrive, ids[:5], "ann", "another action") == ids[:5]
    trap = cut(at_commit)
    assert sorted(distant(job_actions.redrive, ids, "ann", "this action")) == sorted(ids[5:])
    trap.wait()
    assert set(states(database)) == {"ready"}
    assert [len(distant(history, id)[1]) for id in ids] == [2] * 20
