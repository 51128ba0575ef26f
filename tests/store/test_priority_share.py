"""Claims for the longest due job, whatever its priority: what they take, and what they leave."""

from __future__ import annotations

import time
from typing import Any

import pytest

from outlast.model.claim import Claim
from outlast.ops.claim import ClaimCursor
from outlast.ops.job_actions import set_paused
from outlast.ops.lanes import LaneTurn
from outlast.ops.offer import OfferRequest, offer
from tests.store.conftest import Run
from tests.store.jobs import put, set_all, take
from tests.store.test_lanes import limit
from tests.support import Database

HIGH, LOW, LOWEST = 5, 0, -5


def put_due(run: Run, ago: float, priority: int, number: int = 1, **said: Any) -> None:
    put(run, number, priority=priority, at=time.time() - ago, **said)


def share(run: Run, most: int = 1, **said: Any) -> list[int]:
    return [claim.priority for claim in take(run, most, longest_due=True, **said)]


def test_the_priority_whose_first_job_is_due_longest_is_next(run: Run) -> None:
    """R243: the longest due among the heads of all priorities; the highest one, if that is it."""
    put_due(run, 30, LOW, 3)
    put_due(run, 20, LOWEST, 2)
    put_due(run, 10, HIGH, 9)
    assert share(run, 2) == [LOW, LOW]
    assert share(run, 9) == [LOW]
    assert share(run, 9) == [LOWEST, LOWEST]
    assert share(run, 2) == [HIGH, HIGH]
    put_due(run, 60, HIGH)
    put_due(run, 50, LOW)
    assert share(run) == [HIGH]
    assert [claim.priority for claim in take(run, 2)] == [HIGH, HIGH]


def test_a_share_goes_on_from_the_place_of_the_last_claim(run: Run) -> None:
    """R036, R243: entries of jobs that were taken are not walked again, in either priority."""
    put_due(run, 30, HIGH, 2)
    first, _ = take(run, 2)
    put_due(run, 10, HIGH, 2)
    put_due(run, 20, LOW)
    place = ClaimCursor(HIGH, first.run_at + 1, first.id)
    assert share(run, cursor=place) == [LOW]
    assert share(run, 9, cursor=place) == [HIGH, HIGH]
    put_due(run, 60, HIGH)
    assert share(run, cursor=place) == [], "what stands before it is found from the head"
    assert share(run) == [HIGH]


def test_jobs_that_this_worker_cannot_run_take_nobodys_share(run: Run, database: Database) -> None:
    """R038, R243: neither those of unknown tasks, nor expired ones, nor another tenant's."""
    put_due(run, 40, LOWEST, task="unknown")
    put_due(run, 30, LOW, 2)
    put_due(run, 20, HIGH, 2)
    assert share(run, unknown=["unknown"]) == [LOW]
    assert share(run, known=["work"]) == [LOW]
    put_due(run, 50, LOW, tenant="acme")
    put_due(run, 35, LOWEST, tenant="other")
    assert [claim.tenant for claim in _offer(run, "acme")] == ["acme"]
    assert _offer(run, "acme") == []
    past = "1" if database.is_sqlite else "now() - interval '1 second'"
    set_all(database, f"expires_at = {past}", f"priority = {LOWEST}")
    assert share(run, 9) == [HIGH, HIGH]


def test_a_paused_or_limited_queue_gives_no_share(run: Run) -> None:
    put_due(run, 30, LOW)
    put_due(run, 20, HIGH)
    run(set_paused, "default", True, "me")
    assert share(run) == []
    run(set_paused, "default", False, "me")
    limit(run, running=3)
    assert share(run) == []


def test_at_most_one_job_with_one_crash_left_is_in_a_share(run: Run, database: Database) -> None:
    """R050: another loss of this worker would end all of them."""
    put_due(run, 30, LOW, 3)
    put_due(run, 20, HIGH)
    set_all(database, "crashes = 2")
    assert share(run, 9, allow_one_crash_left=False) == []
    assert share(run, 9) == [LOW]


@pytest.mark.parametrize("most", [1, 4])
def test_each_lane_has_its_own_longest_due(run: Run, most: int) -> None:
    """R243: within its limits and turns."""
    limit(run, lane="tenant", lane_running=2)
    for tenant in "ab":
        put_due(run, 30 if tenant == "a" else 10, LOW, 3, tenant=tenant)
        put_due(run, 20, HIGH, 3, tenant=tenant)
    assert (
        _turn(run, most, longest_due=True)
        == [("a", LOW), ("b", HIGH), ("a", LOW), ("b", HIGH)][:most]
    )
    rest = _turn(run, 9) if most == 1 else _turn(run, 9, longest_due=True)
    assert len(rest) == 4 - most, "two of each lane run"


def test_an_ordered_lane_keeps_its_order(run: Run) -> None:
    """R240: there is no share in what runs in order."""
    limit(run, ordered=True)
    put_due(run, 30, LOW, lane="a")
    put_due(run, 20, HIGH, lane="a")
    assert _turn(run, 9, longest_due=True) == [("a", HIGH)]


def _turn(run: Run, most: int, **said: Any) -> list[tuple[str | None, int]]:
    claims: list[Claim] = take(run, most, turn=LaneTurn(**said))
    return sorted(((claim.lane, claim.priority) for claim in claims), key=_by_turn(claims))


def _by_turn(claims: list[Claim]) -> Any:
    """a, b, a, b: in the order of turns, whatever the order of the answer."""
    seen: dict[str | None, int] = {}

    def place(found: tuple[str | None, int]) -> tuple[int, str]:
        seen[found[0]] = seen.get(found[0], 0) + 1
        return seen[found[0]], str(found[0])

    return place


def _offer(run: Run, tenant: str) -> list[Claim]:
    request = OfferRequest(
        "server", "default", 1, 60.0, tasks=("work",), tenant=tenant, longest_due=True
    )
    return run(offer, request)
