"""Token buckets and closed lanes when the clock steps, and when their lanes are gone."""

from __future__ import annotations

import pytest

from outlast.model.errors import ClaimLost
from outlast.ops.lanes import prune_lanes, set_lane_paused, slow_down
from outlast.ops.operation import Op, Statement
from tests.store.conftest import Run
from tests.store.jobs import end, put, table
from tests.store.test_lanes import _pass_time, hold_lane, lanes, limit, put_in, turn
from tests.support import Database

HOUR_S = 3600.0


@pytest.mark.parametrize("limits", [{"rate": "2/s"}, {"lane_rate": "2/s"}], ids=str)
def test_a_clock_that_steps_back_does_not_close_a_bucket(
    run: Run, database: Database, limits: dict[str, str]
) -> None:
    """R148: the bucket was filled in the future. It starts anew, and no burst is given away."""
    limit(run, **limits)
    put_in(run, "a", 20)
    assert len(turn(run)) == 2
    _pass_time(database, -HOUR_S)
    assert len(turn(run)) == 1
    assert turn(run) == []
    _pass_time(database, 1.0)
    assert len(turn(run)) == 2


def test_a_clock_that_steps_back_opens_a_closed_lane(run: Run, database: Database) -> None:
    """R057: a lane is closed for as long as was said, and not for an hour more."""
    claim = hold_lane(run, "a")
    limit(run, lane="tenant")
    put_in(run, "a", 3)
    run(slow_down, claim, 30.0)
    assert turn(run) == []
    _pass_time(database, -HOUR_S)
    assert len(turn(run)) == 3


def test_a_lifted_rate_does_not_hold_the_queue_after_the_clock_stepped_back(
    run: Run, database: Database
) -> None:
    limit(run, rate="1/s", running=10)
    put_in(run, "a", 5)
    turn(run)
    _pass_time(database, -HOUR_S)
    limit(run, running=10)
    assert len(turn(run)) == 4


def test_a_token_that_comes_back_does_not_open_a_closed_lane(run: Run, database: Database) -> None:
    """R057."""
    limit(run, lane_rate="6/m")
    put_in(run, "a", 9)
    claims = turn(run)
    run(slow_down, claims[0], 30.0)
    end(run, claims[0], "released")
    assert turn(run) == []
    _pass_time(database, 30.0)
    assert len(turn(run)) <= 1, "its bucket is empty, but for the token that came back"


def test_buckets_of_lanes_that_are_full_again_are_removed(run: Run, database: Database) -> None:
    """A lane for each of a million customers leaves no million rows behind. Paused and closed ones
    stay, and so do those that still fill."""
    limit(run, lane_rate="1/m", burst=2, lane="tenant")
    for tenant in "abcd":
        put(run, 2, tenant=tenant)
    claims = turn(run)
    assert lanes(claims) == {"a": 2, "b": 2, "c": 2, "d": 2}
    run(set_lane_paused, "default", "b", True, "me")
    run(set_lane_paused, "default", "gone", True, "me")
    run(set_lane_paused, "default", "gone", False, "me")
    run(slow_down, next(claim for claim in claims if claim.lane == "c"), 600.0)
    assert run(prune_lanes, 100) == 1
    _pass_time(database, 130.0)
    put(run, 1, tenant="d")
    assert lanes(turn(run)) == {"d": 1}
    assert run(prune_lanes, 100) == 1
    assert _rows(database) == ["b", "c", "d"]
    limit(run, lane="tenant")
    _pass_time(database, 2.0)
    assert run(prune_lanes, 100) == 1, "without a rate, a bucket is nothing"
    assert _rows(database) == ["b", "c"]


def test_a_lane_that_is_closed_during_a_claim_stays_closed(run: Run, database: Database) -> None:
    """R057: the claim pays with its tokens only after its jobs were taken."""
    limit(run, lane_rate="5/s")
    put_in(run, "a", 9)
    (claim,) = turn(run, 1)
    run(slow_down, claim, 30.0)
    run(_spend_late, "a")
    _pass_time(database, 5.0)
    assert turn(run) == []


@pytest.mark.parametrize("how", ["ended", "reclaimed", "another's"])
def test_a_lost_claim_closes_no_lane(run: Run, database: Database, how: str) -> None:
    """R012, R057: a zombie changes nothing, not even the pace of its lane."""
    limit(run, lane="tenant")
    put_in(run, "a", 3)
    (claim,) = turn(run, 1)
    if how == "ended":
        end(run, claim)
    elif how == "reclaimed":
        end(run, claim, "released")
        turn(run, 1)
    else:
        claim = claim._replace(worker="somebody else")
    with pytest.raises(ClaimLost):
        run(slow_down, claim, 30.0)
    assert _rows(database) == []
    assert turn(run) != []


def _spend_late(lane: str) -> Op[None]:
    yield Statement("spend_tokens", {"queue": "default"}, [{"lane": lane, "spent": 1}])


def _rows(database: Database) -> list[str]:
    return sorted(lane for (lane,) in database.rows(f"SELECT lane FROM {table(database, 'lane')}"))
