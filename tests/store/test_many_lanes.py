"""More lanes than one claim looks at: each has its turn, whatever the others do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from outlast.model.breaker import Circuit, OpenBreaker
from outlast.model.claim import Claim
from outlast.model.turns import FIRST_LANE, MAX_LANES, LaneCursor
from outlast.ops.breakers import open_breaker, take_probe
from outlast.ops.claim import ClaimRequest, poll
from outlast.ops.enqueue import enqueue
from outlast.ops.finish_and_claim import finish_and_claim
from outlast.ops.lanes import LaneTurn, TurnClaims
from outlast.ops.offer import OfferRequest, offer
from outlast.worker.lane_turns import LaneTurns
from tests.store.conftest import Run
from tests.store.jobs import end, ending, new, table, take
from tests.store.test_lanes import lanes, limit, put_in, turn
from tests.support import Database

MANY = 3 * MAX_LANES + 8


def put_in_many(run: Run, of_each: int = 2, **said: object) -> None:
    run(enqueue, [new(lane=f"lane-{n:03}", **said) for n in range(MANY) for _ in range(of_each)])


def test_lanes_that_are_full_keep_no_cursor_from_the_lanes_behind_them(run: Run) -> None:
    """R238: never idle with room. The lane at the cursor still has jobs, and no slot."""
    limit(run, lane_running=1)
    put_in_many(run)
    cursor, took = FIRST_LANE, Counter[str | None]()
    for _ in range(2 * MANY // MAX_LANES):
        claims = turn(run, 1000, cursor)
        cursor = claims.cursor
        took += lanes(claims)
    assert len(took) == took.total() == MANY


def test_a_freed_slot_does_not_move_the_turns_of_the_others(run: Run) -> None:
    """R239: a busy lane beyond the cursor is looked at beside the lanes whose turn it is, and the
    next claim goes on after these."""
    limit(run, lane_running=1)
    put_in_many(run)
    first = turn(run, 1000)
    busy = f"lane-{MANY - 1:03}"
    second = turn(run, 1000, first.cursor, freed=(busy,))
    assert first.cursor == LaneCursor(f"lane-{MAX_LANES - 1:03}")
    assert first.cursor < second.cursor < LaneCursor(f"lane-{2 * MAX_LANES:03}")
    assert lanes(second)[busy] == 1


@pytest.mark.parametrize("lane_running", [1, 2])
@pytest.mark.parametrize("most", [63, 64, 100, 128, 300])
def test_a_worker_serves_every_lane_before_it_serves_one_often(
    run: Run, lane_running: int, most: int
) -> None:
    """R146, R239: a busy worker frees slots in the lanes that it has just served. These give what
    the lanes in turn have no room for, and do not keep it from the lanes behind."""
    limit(run, lane_running=lane_running)
    put_in_many(run, 5)
    turns, took, claims = LaneTurns(), Counter[str | None](), list[Claim]()
    turns.update(["default"], ["default"])
    for _ in range(-(-MANY // min(most, MAX_LANES - 1))):
        request = ClaimRequest("w1", "default", most, 60.0, turn=_by_priority(turns, claims))
        _, claims = run(finish_and_claim, [ending(claim) for claim in claims], request)
        turns.claimed("default", claims)
        took += lanes(claims)
    assert len(took) == MANY, f"{MANY - len(took)} lanes have had no turn"
    assert most >= MAX_LANES or max(took.values()) <= 2, took


def test_a_freed_slot_is_found_in_the_turn_after_one_that_came_short(run: Run) -> None:
    """R238: never idle with room. While claims are full, no lane out of turn is locked; slots
    that were freed meanwhile are not forgotten."""
    limit(run, lane_running=1)
    put_in_many(run, 3)
    turns, busy = LaneTurns(), f"lane-{MANY - 1:03}"
    turns.update(["default"], ["default"])
    held, cursor = list[Claim](), FIRST_LANE
    while some := turn(run, 1000, cursor):
        held += some
        cursor = some.cursor
    assert len(held) == MANY
    full = TurnClaims(cursor=LaneCursor("lane-000"))
    full.full = True
    turns.claimed("default", full)
    (last,) = [claim for claim in held if claim.lane == busy]
    end(run, last)
    turns.freed("default", busy)
    took = list[Counter[str | None]]()
    for _ in range(2):
        claims: Any = take(run, 5, turn=_by_priority(turns))
        turns.claimed("default", claims)
        took.append(lanes(claims))
    assert took == [{}, {busy: 1}]


def _by_priority(turns: LaneTurns, ended: Sequence[Claim] = ()) -> LaneTurn:
    found = turns.next("default", ended)
    assert found is not None
    return replace(found, longest_due=False, adopt=False)


def test_a_claim_in_vain_says_that_there_are_lanes_it_has_not_seen(run: Run) -> None:
    limit(run, lane_running=0)
    put_in_many(run, 1)
    assert turn(run, 5).more
    assert turn(run, 5, freed=("lane-003", "lane-150")).more


def test_a_probe_finds_its_job_in_any_lane(run: Run) -> None:
    """R238: jobs of other tasks fill the lanes before it."""
    limit(run, lane_running=1)
    put_in_many(run, 1)
    put_in(run, "lane-zz", 1, task="call")
    opening = OpenBreaker(Circuit("default", "call"), "o1", "OSError", 0.0, 0, True)
    run(open_breaker, opening, "away", "w1", 0.0)
    (standing,) = run(poll).breakers
    assert [claim.lane for claim in run(take_probe, standing, "w1", 60.0, 0.0)] == ["lane-zz"]


def test_jobs_without_a_lane_are_found_behind_many_that_have_one(run: Run) -> None:
    """A lane that is paused or full must not hide jobs from before the first limit."""
    put_in(run, None, 2, priority=-5)
    limit(run, lane_running=1)
    run(enqueue, [new(lane="whale") for _ in range(1200)])
    assert turn(run, adopt=True).adopted == 0
    assert turn(run, adopt=True, deep=True).adopted == 2


@pytest.mark.kinds("postgres")
def test_turns_keep_their_order_beside_many_buckets(run: Run, database: Database) -> None:
    """R239: whatever plan the database makes of many rows, the first lane in turn gives first."""
    limit(run, lane_rate="1000/s", burst=1000)
    put_in_many(run, 1)
    name = table(database, "lane")
    database.rows(
        f"INSERT INTO {name} (queue, lane, tokens, filled_at) SELECT 'default', 'lane-'"
        " || to_char(n, 'FM9000'), 5, now() FROM generate_series(9000, 0, -1) AS n"
    )
    database.rows(f"ANALYZE {name}")
    took, cursor = list[str | None](), FIRST_LANE
    for _ in range(12):
        claims = turn(run, 2, cursor)
        took += [claim.lane for claim in claims]
        cursor = claims.cursor
    assert sorted(took, key=str) == [f"lane-{n:03}" for n in range(24)]


def test_a_worker_of_one_tenant_finds_its_lane_among_many(run: Run) -> None:
    """R238: one claim is enough, wherever the cursor is."""
    limit(run, lane="tenant", lane_running=1)
    run(enqueue, [new(tenant=f"tenant-{n:03}") for n in range(MANY)])
    said: dict[str, Any] = {"tasks": ("work",), "tenant": "tenant-150", "turn": LaneTurn()}
    assert lanes(run(offer, OfferRequest("s1", "default", 5, 60.0, **said))) == {"tenant-150": 1}


def test_a_job_that_one_more_lost_worker_ends_is_not_added_to_a_batch(run: Run) -> None:
    """As in a queue without limits: its end would be charged to all of the batch."""
    limit(run, lane_running=5)
    put_in(run, "a", 1, max_crashes=2)
    end(run, turn(run)[0], "crashed")
    put_in(run, "a", 1)
    assert [claim.crashes for claim in turn(run, task="work")] == [0]
    assert [claim.crashes for claim in turn(run)] == [1]


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("most", [1, 7, 100, 150])
def test_one_round_trip_claims_what_two_steps_would(run: Run, most: int) -> None:
    """R239, R241: the same lanes in the same order, and the same cursor, turn by turn."""
    seen = list[list[Any]]()
    for even in (False, True):
        queue = f"even-{even}"
        limit(run, queue, lane_running=2)
        run(enqueue, [new(lane=f"lane-{n % MANY:03}", queue=queue) for n in range(3 * MANY)])
        cursor, ended, turns = FIRST_LANE, list[Any](), list[Any]()
        for _ in range(8):
            freed = tuple(dict.fromkeys(claim.lane for claim in ended))[-MAX_LANES:]
            request = LaneTurn(cursor, freed, even=even)
            claims: Any = take(run, most, queue=queue, turn=request)
            assert claims.even
            cursor, ended = claims.cursor, claims[::2]
            for claim in ended:
                end(run, claim)
            turns.append((sorted(lanes(claims).items()), cursor, claims.more, claims.busy))
        seen.append(turns)
    assert seen[0] == seen[1]
    assert sum(number for took, *_ in seen[1] for _, number in took) >= min(most * 8, MANY)


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize(
    "limits",
    [{"weights": {"a": 2}}, {"weights": {}}, {"lane_rate": "1/h"}, {"rate": "1/h"}, {"running": 1}],
    ids=str,
)
def test_a_queue_with_new_limits_is_claimed_in_two_steps(run: Run, limits: dict[str, Any]) -> None:
    """R238: the claim that finds out takes nothing, and the next one obeys them."""
    limit(run, lane_running=2)
    put_in(run, "a", 3)
    assert turn(run, 1).even
    limit(run, lane_running=2, **limits)
    found: Any = take(run, 5, turn=LaneTurn(even=True))
    assert (list(found), found.even, found.more) == ([], False, True)
    again = turn(run, 5)
    assert (len(again), again.even) == (0 if "running" in limits else 1, False)


@pytest.mark.kinds("postgres")
def test_a_queue_without_limits_gives_nothing_to_a_claim_by_lanes(run: Run) -> None:
    put_in(run, None, 1)
    assert take(run, 5, turn=LaneTurn(even=True)) == []
    assert len(take(run, 5)) == 1
