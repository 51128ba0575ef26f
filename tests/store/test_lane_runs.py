"""Runs: many jobs of an ordered lane in the hands of one worker, which keeps their order."""

from __future__ import annotations

import pytest

from outlast import InvalidOption
from outlast.model.claim import Claim
from outlast.model.lane import QueueLimits
from outlast.ops.lanes import LaneTurn, claim_lanes
from outlast.ops.offer import OfferRequest
from tests.store.conftest import Run
from tests.store.jobs import end, table
from tests.store.test_lanes import lanes, limit, put_in, turn
from tests.support import Database


def ids_of(claims: list[Claim]) -> list[str]:
    return [claim.id for claim in claims]


def test_a_run_is_the_next_jobs_of_a_lane_in_order(run: Run) -> None:
    """R123, R240: while one of them runs, no other worker has any of the lane."""
    limit(run, ordered=True, lane_batch=5)
    ids = put_in(run, "a", 9)
    put_in(run, "b", 1)
    first = turn(run)
    assert lanes(first) == {"a": 5, "b": 1}
    of_a = [claim for claim in first if claim.lane == "a"]
    assert ids_of(of_a) == ids[:5]
    for claim in of_a:
        assert turn(run, worker="w2") == [], "one worker at a time owns a lane"
        end(run, claim)
    assert ids_of(turn(run, worker="w2")) == ids[5:]


def test_a_run_ends_with_its_lane_and_its_queue(run: Run) -> None:
    """R240: jobs of the next lane, or of a lane of the same name in the next queue, are not."""
    limit(run, ordered=True, lane_batch=10)
    limit(run, "elsewhere", ordered=True, lane_batch=10)
    ids = put_in(run, "a", 2)
    put_in(run, "a", 3, queue="elsewhere")
    assert ids_of(turn(run)) == ids
    assert len(turn(run, queue="elsewhere")) == 3


def test_lanes_share_a_claim(run: Run) -> None:
    limit(run, ordered=True, lane_batch=100)
    for lane in "abc":
        put_in(run, lane, 10)
    assert lanes(turn(run, 6)) == {"a": 2, "b": 2, "c": 2}


def test_a_queue_with_little_room_cuts_a_run_at_its_end(run: Run) -> None:
    """R123, R240: what is left behind are the last ones in line, whatever their ids are."""
    limit(run, ordered=True, lane_batch=10, running=2)
    later = put_in(run, "a", 2)
    first = put_in(run, "a", 2, priority=9)
    claims = turn(run)
    assert ids_of(claims) == first
    for claim in claims:
        end(run, claim)
    assert ids_of(turn(run)) == later


def test_a_run_takes_no_more_than_its_lane_has_tokens(run: Run) -> None:
    """R148, R240: the rate of a lane holds for runs, too."""
    limit(run, ordered=True, lane_batch=10, lane_rate="3/h", burst=3)
    ids = put_in(run, "a", 9)
    claims = turn(run)
    assert ids_of(claims) == ids[:3]
    for claim in claims:
        end(run, claim)
    assert turn(run) == []


def test_a_job_that_was_tried_holds_its_lane_and_is_taken_alone(
    run: Run, database: Database
) -> None:
    """R123: after a failure, those behind it are released, and follow one by one."""
    limit(run, ordered=True, lane_batch=4)
    ids = put_in(run, "a", 8)
    first, second, third, fourth = turn(run)
    end(run, first)
    end(run, second, "failed", delay=60.0)
    end(run, third, "released")
    end(run, fourth, "released")
    assert turn(run) == [], "the second waits for its next attempt"
    past = "0" if database.is_sqlite else "to_timestamp(0)"
    name = table(database, "job")
    database.rows(f"UPDATE {name} SET state = 'ready', run_at = {past} WHERE state = 'scheduled'")
    for expected in ids[1:4]:
        (alone,) = turn(run)
        assert alone.id == expected
        end(run, alone)
    assert ids_of(turn(run)) == ids[4:]


def test_a_crashed_run_begins_again_with_its_first_job(run: Run) -> None:
    """R123: whichever of them had been sent."""
    limit(run, ordered=True, lane_batch=4)
    ids = put_in(run, "a", 4)
    for claim in reversed(turn(run)):
        end(run, claim, "crashed")
    for expected in ids:
        (alone,) = turn(run)
        assert alone.id == expected
        end(run, alone)


def test_a_job_that_cannot_be_taken_ends_the_run(run: Run) -> None:
    """R240: a task that this worker does not know, or arguments that must be fetched first."""
    limit(run, ordered=True, lane_batch=10)
    ids = put_in(run, "a", 2) + put_in(run, "a", 1, task="new") + put_in(run, "a", 1)
    assert ids_of(turn(run, unknown=["new"])) == ids[:2]
    ids = put_in(run, "b", 2) + put_in(run, "b", 1, args='["blob", 1]') + put_in(run, "b", 2)
    assert ids_of(turn(run)) == ids[:2]
    ids = put_in(run, "c", 1, args='["blob", 1]') + put_in(run, "c", 2)
    assert ids_of(turn(run)) == ids[:1]


@pytest.mark.kinds("postgres")
def test_a_locked_job_ends_the_run(run: Run, database: Database) -> None:
    """R240: those behind it do not overtake it."""
    limit(run, ordered=True, lane_batch=10)
    ids = put_in(run, "a", 4)
    with database.connect() as other:
        other.execute("BEGIN")
        other.execute(f"SELECT 1 FROM {table(database, 'job')} WHERE id = %s FOR UPDATE", (ids[2],))
        assert ids_of(turn(run)) == ids[:2]
        other.execute("ROLLBACK")


def test_remote_workers_are_offered_one_job_of_a_lane(run: Run) -> None:
    """R240: the offers of one claim go to different workers."""
    limit(run, ordered=True, lane_batch=10)
    ids = put_in(run, "a", 3)
    asked = OfferRequest("w1", "default", 100, 60.0, turn=LaneTurn(), tasks=("work",))
    assert ids_of(run(claim_lanes, asked.by_lanes())) == ids[:1]


def test_runs_are_for_ordered_queues() -> None:
    with pytest.raises(InvalidOption, match="ordered=True"):
        QueueLimits("q", lane_batch=5)
    with pytest.raises(InvalidOption, match="lane_batch"):
        QueueLimits("q", ordered=True, lane_batch=0)
