"""Limits of queues and lanes: counted from running rows, on every kind of database."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from outlast.model.claim import Claim
from outlast.model.lane import QueueLimits
from outlast.model.turns import FIRST_LANE
from outlast.ops.claim import ClaimRequest, poll
from outlast.ops.enqueue import enqueue
from outlast.ops.finish_and_claim import finish_and_claim
from outlast.ops.job_actions import cancel, redrive_one, set_paused
from outlast.ops.lanes import LaneTurn, TurnClaims, prune_lanes, set_lane_paused, slow_down
from outlast.ops.limits import change_limits, declare
from tests.store.conftest import Run
from tests.store.jobs import column, end, ending, new, put, table, take
from tests.support import Database


def limit(run: Run, queue: str = "default", **limits: Any) -> None:
    run(declare, [QueueLimits(queue, **limits)], "test")


def turn(run: Run, most: int = 100, cursor: Any = FIRST_LANE, **said: Any) -> TurnClaims:
    """Claim from the lanes of a limited queue."""
    freed = said.pop("freed", ())
    adopt, deep = said.pop("adopt", False), said.pop("deep", False)
    claims: Any = take(run, most, turn=LaneTurn(cursor, freed, adopt, deep), **said)
    assert isinstance(claims, TurnClaims)
    return claims


def lanes(claims: list[Claim]) -> Counter[str | None]:
    return Counter(claim.lane for claim in claims)


def put_in(run: Run, lane: str | None, number: int = 1, **said: Any) -> list[str]:
    return [job.id for job in put(run, number, lane=lane, **said)]


def hold_lane(run: Run, lane: str, queue: str = "default") -> Claim:
    """A job of that lane that runs already, in a queue that has no limits yet."""
    put_in(run, lane, queue=queue)
    (claim,) = take(run, queue=queue)
    return claim


def test_a_lane_gives_no_more_than_its_limit_however_it_ends(run: Run) -> None:
    """R238: a slot is a running row. A release, a failure and a cancel free it at once."""
    limit(run, lane_running=2)
    put_in(run, "a", 9)
    put_in(run, "b", 1)
    first = turn(run)
    assert lanes(first) == {"a": 2, "b": 1}
    assert turn(run) == []
    of_a = [claim for claim in first if claim.lane == "a"]
    end(run, of_a[0], "released")
    assert lanes(turn(run)) == {"a": 1}
    end(run, of_a[1], "failed")
    (third,) = turn(run)
    assert turn(run) == []
    run(cancel, third.id, "me", "")
    end(run, third, "cancelled")
    assert len(turn(run)) == 1


def test_workers_that_live_for_one_turn_serve_every_lane(run: Run) -> None:
    """R239: a new worker goes on where the others were, and does not begin with the first lane."""
    limit(run, lane_running=40)
    for lane in "abcde":
        put_in(run, lane, 40)
    served: set[str | None] = set()
    for n in range(60):
        served |= {one.lane for one in take(run, 1, worker=f"w{n}", turn=LaneTurn(first=True))}
    assert served == set("abcde")


def test_a_queue_gives_no_more_than_its_limit_over_all_lanes(run: Run) -> None:
    """R009, R238."""
    limit(run, running=5, lane="tenant")
    for tenant in "abc":
        put(run, 4, tenant=tenant)
    first = turn(run)
    assert len(first) == 5
    assert turn(run) == []
    end(run, first[0])
    assert len(turn(run)) == 1


def test_a_plain_claim_takes_nothing_of_a_limited_queue(run: Run) -> None:
    limit(run, lane_running=1)
    put_in(run, "a", 3)
    assert take(run, 10) == []
    assert take(run, 10, other_queues=("more",)) == []
    assert take(run, 10, task="work") == []
    assert run(poll).limited == {"default"}


def test_a_queue_without_limits_has_no_lanes(run: Run, database: Database) -> None:
    put(run, 2)
    assert len(take(run, 10)) == 2
    assert column(database, "lane") == [None, None]
    assert run(poll).limited == frozenset()


def test_every_job_of_a_limited_queue_has_a_lane(run: Run, database: Database) -> None:
    limit(run, lane="tenant")
    (named,) = put(run, lane="mine")
    (unnamed,) = put(run, tenant="acme")
    assert (named.lane, unnamed.lane) == ("mine", "acme")
    limit(run, "other", running=3)
    (other,) = put(run, queue="other")
    assert other.lane == "default"


def test_jobs_that_waited_before_the_limit_came_get_lanes(run: Run) -> None:
    put(run, 3, tenant="acme")
    limit(run, lane="tenant", lane_running=2)
    assert turn(run) == []
    found = turn(run, adopt=True)
    assert (lanes(found), found.adopted) == ({"acme": 2}, 3)


def test_a_changed_limit_holds_for_the_next_claim(run: Run) -> None:
    """R238: changed at run time. What runs above a lower limit goes on."""
    limit(run, lane_running=2)
    put_in(run, "a", 9)
    two = turn(run)
    run(change_limits, "default", {"lane_running": 4}, "me")
    four = [*two, *turn(run)]
    assert len(four) == 4
    run(change_limits, "default", {"lane_running": 1}, "me")
    for claim in four[:3]:
        end(run, claim)
        assert turn(run) == []
    end(run, four[3])
    assert len(turn(run)) == 1
    run(change_limits, "default", {"lane_running": None}, "me")
    assert len(turn(run)) == 4, "a limit that is lifted may come back: jobs keep their lanes"


def test_lanes_take_turns_from_where_the_last_claim_ended(run: Run) -> None:
    """R146, R239: a lane of a hundred delays one of three by one turn."""
    limit(run, lane="tenant")
    put(run, 100, tenant="whale")
    for minnow in ("a", "z"):
        put(run, 3, tenant=minnow)
    cursor, took = FIRST_LANE, []
    for _ in range(5):
        claims = turn(run, 2, cursor)
        cursor = claims.cursor
        took += [claim.lane for claim in claims]
    assert Counter(took) == {"whale": 4, "a": 3, "z": 3}


@pytest.mark.parametrize("room", [1, 3, 10])
def test_weights_are_turns(run: Run, room: int) -> None:
    """R239: 4 to 1, however many jobs a claim has room for."""
    limit(run, lane="tenant", weights={"gold": 4})
    for tenant in ("gold", "iron"):
        put(run, 120, tenant=tenant)
    cursor, took = FIRST_LANE, Counter[str | None]()
    while took.total() < 60:
        claims = turn(run, room, cursor)
        cursor = claims.cursor
        took += lanes(claims)
    assert took["gold"] / took["iron"] == pytest.approx(4, rel=0.1)


def test_one_claim_looks_past_lanes_that_are_full(run: Run) -> None:
    limit(run, lane_running=1)
    for n in range(70):
        put_in(run, f"lane-{n:02}", 2)
    cursor, took = FIRST_LANE, Counter[str | None]()
    for _ in range(3):
        claims = turn(run, 100, cursor)
        cursor = claims.cursor
        took += lanes(claims)
    assert len(took) == took.total() == 70


def test_a_slot_freed_beyond_the_cursor_is_taken_by_who_freed_it(run: Run) -> None:
    limit(run, lane_running=1)
    for n in range(80):
        put_in(run, f"lane-{n:02}", 2)
    some = turn(run)
    claims = list(some)
    while some:
        some = turn(run, cursor=some.cursor)
        claims += some
    last = next(claim for claim in claims if claim.lane == "lane-79")
    finished, found = run(
        finish_and_claim,
        [ending(last)],
        ClaimRequest("w1", "default", 5, 60.0, turn=LaneTurn(freed=("lane-79",))),
    )
    assert (len(finished.accepted), lanes(found)) == (1, {"lane-79": 1})
    assert len(claims) == 80


def test_a_failed_head_holds_its_ordered_lane(run: Run, database: Database) -> None:
    """R240."""
    limit(run, ordered=True)
    ids = put_in(run, "a", 3)
    (head,) = turn(run)
    end(run, head, "failed", delay=60.0)
    assert turn(run) == [], "the head waits for its next attempt"
    _make_due(database)
    assert [claim.id for claim in turn(run)] == ids[:1]


def test_a_crashed_head_goes_first_again(run: Run) -> None:
    """R240."""
    limit(run, ordered=True)
    ids = put_in(run, "a", 3)
    for _ in range(2):
        (head,) = turn(run)
        assert head.id == ids[0]
        end(run, head, "crashed")
    (head,) = turn(run)
    end(run, head)
    assert [claim.id for claim in turn(run)] == ids[1:2]


@pytest.mark.parametrize("on_dead", ["pass", "block"])
def test_a_dead_head_lets_the_next_pass_or_blocks_its_lane(run: Run, on_dead: str) -> None:
    """R240."""
    limit(run, ordered=True, on_dead=on_dead)
    ids = put_in(run, "a", 3)
    put_in(run, "b", 1)
    head = next(claim for claim in turn(run) if claim.lane == "a")
    end(run, head, "permanent")
    found = [claim.id for claim in turn(run)]
    assert found == (ids[1:2] if on_dead == "pass" else [])
    if on_dead == "block":
        run(redrive_one, ids[0], "me")
        assert [claim.id for claim in turn(run)] == ids[:1], "back in its place"


def test_a_worker_that_cannot_run_the_head_leaves_an_ordered_lane_alone(run: Run) -> None:
    """R240: the order holds, whoever works."""
    limit(run, ordered=True)
    put_in(run, "a", 1, task="new")
    put_in(run, "a", 1)
    assert turn(run, unknown=["new"]) == []
    assert [claim.task for claim in turn(run)] == ["new"]


def test_a_rate_is_a_bucket_of_tokens(run: Run, database: Database) -> None:
    """R148."""
    limit(run, lane_rate="60/m", burst=3)
    put_in(run, "a", 20)
    put_in(run, "b", 20)
    assert lanes(turn(run)) == {"a": 3, "b": 3}
    assert turn(run) == []
    _pass_time(database, 2.0)
    assert lanes(turn(run)) == {"a": 2, "b": 2}


def test_a_rate_of_the_whole_queue_is_shared_by_its_lanes(run: Run, database: Database) -> None:
    limit(run, rate="5/s", lane="tenant")
    for tenant in "ab":
        put(run, 20, tenant=tenant)
    assert len(turn(run)) == 5
    assert turn(run) == []
    _pass_time(database, 1.0)
    assert len(turn(run)) == 5


def test_a_job_released_unspent_gives_its_token_back(run: Run) -> None:
    """R057: what was not called costs nothing."""
    limit(run, lane_rate="1/h", burst=1)
    put_in(run, "a", 2)
    (claim,) = turn(run)
    assert turn(run) == []
    end(run, claim, "released")
    (claim,) = turn(run)
    end(run, claim, "failed")
    assert turn(run) == []


def test_a_lane_that_is_told_to_slow_down_rests_and_recovers(run: Run, database: Database) -> None:
    """R057, R148: with and without a rate; other lanes go on."""
    for queue, limits in (("rated", {"lane_rate": "5/s"}), ("plain", {"lane": "tenant"})):
        claim = hold_lane(run, "a", queue)
        limit(run, queue, **limits)
        for lane in "ab":
            put_in(run, lane, 3, queue=queue)
        run(slow_down, claim, 30.0)
        assert lanes(turn(run, queue=queue)) == {"b": 3}
        _pass_time(database, 31.0)
        assert lanes(turn(run, queue=queue)) == {"a": 3}


def test_a_paused_lane_gives_nothing_until_it_is_resumed(run: Run) -> None:
    """R119: a lane of one queue, or a tenant's lanes in all."""
    limit(run, lane="tenant")
    limit(run, "other", lane="tenant")
    for queue in ("default", "other"):
        for tenant in "ab":
            put(run, 1, queue=queue, tenant=tenant)
    run(set_lane_paused, "default", "a", True, "me")
    assert lanes(turn(run)) == {"b": 1}
    run(set_lane_paused, "", "a", True, "me")
    assert lanes(turn(run, queue="other")) == {"b": 1}
    run(set_lane_paused, "default", "a", False, "me")
    assert turn(run) == []
    run(set_lane_paused, "", "a", False, "me")
    assert lanes(turn(run)) == lanes(turn(run, queue="other")) == {"a": 1}


def test_what_is_not_paused_is_not_resumed(run: Run, database: Database) -> None:
    """R170: sent again after its row was pruned, a resume is recorded once, and leaves no row."""

    def stored(name: str, of: str) -> list[str]:
        return sorted(one for (one,) in database.rows(f"SELECT {name} FROM {table(database, of)}"))

    limit(run, lane_running=1)
    queues = stored("name", "queue")
    run(set_lane_paused, "default", "a", True, "me")
    for _ in range(2):
        run(set_lane_paused, "default", "a", False, "me")
        run(prune_lanes, 10)
    run(set_paused, "mistyped", False, "me")
    assert stored("kind", "event")[-2:] == ["pause", "resume"]
    assert stored("lane", "lane") == []
    assert stored("name", "queue") == queues


def test_a_paused_queue_gives_nothing_of_its_lanes(run: Run, app: Any) -> None:
    limit(run, lane="tenant")
    put(run, 1)
    app.pause("default")
    assert turn(run) == []
    app.resume("default")
    assert len(turn(run)) == 1


def test_jobs_of_one_call_have_their_own_lanes(run: Run) -> None:
    limit(run, lane_running=1)
    made = run(enqueue, [new(lane=name) for name in ("a", "b", "a")])
    assert [job.lane for job in made] == ["a", "b", "a"]
    assert lanes(turn(run)) == {"a": 1, "b": 1}


def _make_due(database: Database) -> None:
    name = table(database, "job")
    past = "0" if database.is_sqlite else "to_timestamp(0)"
    database.rows(f"UPDATE {name} SET state = 'ready', run_at = {past} WHERE state = 'scheduled'")


def _pass_time(database: Database, seconds: float) -> None:
    """Let buckets fill as if so much time had passed."""
    later = seconds if database.is_sqlite else f"interval '{seconds} seconds'"
    database.rows(f"UPDATE {table(database, 'lane')} SET filled_at = filled_at - {later}")
