"""Many claimers of limited queues at once: no lane ever has more running than its limit."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from outlast.model.claim import Claim
from outlast.ops.claim import ClaimRequest, claim
from outlast.ops.finish_and_claim import finish_and_claim
from outlast.ops.lanes import LaneTurn, TurnClaims, claim_locked
from outlast.ops.limits import change_limits
from outlast.ops.operation import BEGIN, Op, Pipeline
from outlast.store import Store
from tests.store.crowd import all_at_once
from tests.store.jobs import ending, put
from tests.store.test_lanes import limit

CLAIMERS = 8


class SlotLedger:
    """What runs in each lane, as those who hold it know: a job is here from the moment its claim
    has returned until just before its end is sent. So it never counts one too many."""

    def __init__(self, lane_limit: int, queue_limit: int) -> None:
        self._lock = threading.Lock()
        self.lane_limit, self.queue_limit = lane_limit, queue_limit
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.done = 0
        self.violations: list[str] = []

    def claimed(self, claims: list[Claim], before: tuple[int, int]) -> None:
        """`before`: the limits when the claim was sent; a change may have come meanwhile."""
        with self._lock:
            lane_limit = max(before[0], self.lane_limit)
            queue_limit = max(before[1], self.queue_limit)
            for claim in claims:
                lane = str(claim.lane)
                self.running[lane] += 1
                self.most[lane] = max(self.most[lane], self.running[lane])
                if self.running[lane] > lane_limit or self.running.total() > queue_limit:
                    self.violations.append(f"{dict(self.running)} of {lane_limit}, {queue_limit}")

    def ending(self, claims: list[Claim]) -> None:
        with self._lock:
            self.done += len(claims)
            for claim in claims:
                self.running[str(claim.lane)] -= 1

    @property
    def limits(self) -> tuple[int, int]:
        return self.lane_limit, self.queue_limit


@pytest.mark.parametrize(
    "number", [160, pytest.param(8000, marks=pytest.mark.campaign)], ids=["sample", "full"]
)
@pytest.mark.parametrize("changing", [False, True], ids=["steady", "changing"])
@pytest.mark.parametrize("running", [5, None], ids=["queue", "lanes"])
def test_no_lane_ever_runs_more_than_its_limit(
    store: Store, number: int, changing: bool, running: int | None
) -> None:
    """R009, R147, R238: 8 claimers, limits of lanes and queue, changed meanwhile. Without a limit
    of the queue, PostgreSQL locks and claims in one round trip."""
    limit(store.run, lane_running=2, running=running)
    lanes = ["a", "b", "c", "d"]
    for lane in lanes:
        put(store.run, number // len(lanes), lane=lane)
    ledger, even = SlotLedger(2, running or number), False
    stores = [store, *(store.clone() for _ in range(CLAIMERS - 1))]
    over = threading.Event()

    def work(n: int) -> None:
        nonlocal even
        if n == CLAIMERS:
            _change_limits(store, ledger, over if changing else None, running is not None)
            return
        luck, last, held = random.Random(n), TurnClaims(), list[Claim]()
        while ledger.done < number:
            before, some = ledger.limits, held[: luck.randint(0, len(held))]
            ledger.ending(some)
            held = held[len(some) :]
            freed = tuple({str(claim.lane) for claim in some})
            turn = LaneTurn(last.cursor, freed, even=last.even)
            request = ClaimRequest(f"w{n}", "default", luck.randint(1, 4), 60.0, turn=turn)
            finished, claims = stores[n].run(
                finish_and_claim, [ending(claim) for claim in some], request
            )
            assert len(finished.accepted) == len(some)
            ledger.claimed(claims, before)
            held += claims
            assert isinstance(claims, TurnClaims)
            last, even = claims, even or (turn.even and bool(claims))
            if not claims and not some:
                time.sleep(0.001)
        over.set()

    all_at_once(CLAIMERS + 1, work)
    for twin in stores[1:]:
        twin.close()
    assert ledger.violations == []
    assert ledger.done == number
    most = set(ledger.most.values())  # claimers spread over the lanes
    assert changing or 2 in most, "they ran as many as they may"
    assert even == (running is None and store.can_notify)


def _change_limits(
    store: Store, ledger: SlotLedger, over: threading.Event | None, of_queue: bool
) -> None:
    luck = random.Random(7)
    while over is not None and not over.wait(0.05):
        changes: dict[str, Any] = {"lane_running": luck.randint(1, 3)}
        queue_limit = luck.randint(3, 8) if of_queue else ledger.queue_limit
        if of_queue:
            changes["running"] = queue_limit
        raised = max(changes["lane_running"], ledger.lane_limit)
        ledger.lane_limit, ledger.queue_limit = raised, max(queue_limit, ledger.queue_limit)
        store.run(change_limits, "default", changes, "me")
        ledger.lane_limit, ledger.queue_limit = changes["lane_running"], queue_limit


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("even", [False, True], ids=["two steps", "one round trip"])
def test_a_claim_that_is_under_way_keeps_others_out_of_its_lanes(store: Store, even: bool) -> None:
    """The second claimer does not wait, and is told that it may look again at once."""
    limit(store.run, lane_running=5)
    put(store.run, 20, lane="a")
    began, go_on = threading.Event(), threading.Event()
    request = ClaimRequest("w1", "default", 3, 60.0, turn=LaneTurn())
    asked = request.by_lanes()

    def slow_claim() -> Op[list[Claim]]:
        yield BEGIN
        answers = yield Pipeline(asked.opening())
        began.set()
        go_on.wait(10)
        return (yield from claim_locked(asked, answers))

    twin = store.clone()
    first = threading.Thread(target=twin.run, args=(slow_claim,))
    first.start()
    began.wait(10)
    request = replace(request, turn=LaneTurn(even=even))
    second: Any = store.run(claim, request)
    go_on.set()
    first.join()
    assert (list(second), second.busy) == ([], True)
    assert len(store.run(claim, request)) == 2
    twin.close()
