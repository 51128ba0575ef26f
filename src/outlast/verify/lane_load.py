"""Load of limited queues: handlers that record their slots, an enqueuer, and an operator who
changes limits."""

from __future__ import annotations

import asyncio
import faulthandler
import random
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from ..model.errors import OutlastError
from ..model.retry import Retry
from ..model.task import Call
from ..worker.context import Context
from .load import EXPECTED_ERRORS, Gate

if TYPE_CHECKING:
    from .workload import Workload

SLOTS, WIDE, FEW, ORDERED = "slots", "wide", "few", "ordered"  # SLOTS has a limit of its own, too
ORDERED_LANES = 12
FEW_LANES = 3  # few enough that each claim of a worker finds known lanes
SLOT_LANES, WIDE_LANES = 200, 1000  # more than one claim visits; some have most of the jobs
SLOW_LANES = ("lane-0", "lane-1")  # of WIDE: their handlers are slow enough to fill them
SLOW_DEPTH = 15  # minimum number of jobs that wait in each of these
SLOW_RANGE_S, QUICK_RANGE_S = (0.2, 0.4), (0.0, 0.02)  # durations of handlers
FEW_RANGE_S = (0.0, 0.06)
FAIL_SHARE = 0.1  # of attempts in ordered lanes
MAX_WAITING = 1500  # jobs in the table above which no more are enqueued; fewer on a slow machine:
BACKLOG_S = 3.0  # what the workers end in that many seconds
PACE_SPAN_S = 5.0  # seconds over which their pace is measured
JOBS_PER_CALL = 100
FIRST_CHANGE_S, CHANGE_INTERVAL_S = 0.5, 5.0  # seconds until limits change
RETRY = Retry(max_attempts=1000, base=0.01, cap=0.05)
FIRST_RUNNING, FIRST_LANE_RUNNING = 8, 2  # limits before the first change


class LaneTasks:
    """Tasks whose handlers record when they enter and leave a slot of their lane."""

    def __init__(self, work: Workload) -> None:
        ol = work.ol
        ol.queue(SLOTS, running=FIRST_RUNNING, lane_running=FIRST_LANE_RUNNING)
        ol.queue(WIDE, lane_running=FIRST_LANE_RUNNING)
        ol.queue(FEW, lane_running=FIRST_LANE_RUNNING)
        ol.queue(ORDERED, ordered=True)

        @ol.task(queue=SLOTS, lane=lambda lane, **_: lane, max_crashes=1000, retry=RETRY)
        async def slotted(ctx: Context, lane: str, n: int) -> dict[str, int]:
            queue = ctx.job.queue
            slow = queue == WIDE and lane in SLOW_LANES
            work.ledger.write("began", ctx.job.id, ctx.fence)
            work.ledger.write("entered", ctx.job.id, ctx.fence, [queue, lane, n])
            quick = FEW_RANGE_S if queue == FEW else QUICK_RANGE_S
            await asyncio.sleep(random.uniform(*(SLOW_RANGE_S if slow else quick)))
            work.ledger.write("left", ctx.job.id, ctx.fence, [queue, lane, n])
            return {"fence": ctx.fence}

        @ol.task(queue=ORDERED, lane=lambda lane, **_: lane, max_crashes=1000, retry=RETRY)
        async def in_order(ctx: Context, lane: str, n: int) -> dict[str, int]:
            work.ledger.write("began", ctx.job.id, ctx.fence)
            work.ledger.write("entered", ctx.job.id, ctx.fence, [ORDERED, lane, n])
            await asyncio.sleep(random.uniform(0.0, 0.005))
            if random.random() < FAIL_SHARE:
                work.ledger.write("failed", ctx.job.id, ctx.fence, [ORDERED, lane, n])
                raise RuntimeError("not this time")
            work.ledger.write("left", ctx.job.id, ctx.fence, [ORDERED, lane, n])
            return {"fence": ctx.fence}

        self.slotted, self.in_order = slotted, in_order


class LaneBacklog:
    """The number of jobs that may wait: as many as the workers end in a few seconds. With more, a
    lane would wait for a worker instead of a slot."""

    def __init__(self) -> None:
        self.asked = 0
        self._ended: deque[tuple[float, int]] = deque()  # and when

    def has_room(self, waiting: int, now: float) -> bool:
        ended = self.asked - waiting
        self._ended.append((now, ended))
        while self._ended[0][0] < now - PACE_SPAN_S:
            self._ended.popleft()
        pace = (ended - self._ended[0][1]) / PACE_SPAN_S
        return waiting <= min(MAX_WAITING, max(JOBS_PER_CALL, pace * BACKLOG_S))


def run_lane_load(work: Workload, tasks: LaneTasks, gate: Gate, seed: int, number: int) -> None:
    """In a child: enqueue jobs in lanes while there is room. There is a single enqueuer, so that
    the order in each lane is known."""
    faulthandler.cancel_dump_traceback_later()
    rng, numbers, backlog = random.Random(seed), count(), LaneBacklog()
    while gate.state != Gate.SHUT:
        try:
            waiting = work.ol.counts()
            if not backlog.has_room(waiting["ready"] + waiting["scheduled"], time.monotonic()):
                time.sleep(0.05)
                continue
            calls = []
            for _ in range(JOBS_PER_CALL):
                queue = rng.choice((SLOTS, WIDE, FEW, ORDERED))
                task = tasks.in_order if queue == ORDERED else tasks.slotted.using(queue=queue)
                calls.append(task.job(lane=_pick_lane(queue, rng), n=next(numbers)))
            calls += _more_slow(work, tasks, numbers)
            backlog.asked += len(calls)
            for job in work.ol.enqueue(*calls):
                work.ledger.write("promised", job.id, 0, ["succeeded"])
                work.ledger.write("queued", job.id, 0, [job.queue, job.lane])
        except EXPECTED_ERRORS:
            time.sleep(0.05)


def _more_slow(work: Workload, tasks: LaneTasks, numbers: Iterator[int]) -> list[Call]:
    """Calls that fill the lanes with slow handlers."""
    ready = {one.lane: one.ready for one in work.ol.lanes(WIDE)}
    task = tasks.slotted.using(queue=WIDE)
    return [
        task.job(lane=lane, n=next(numbers))
        for lane in SLOW_LANES
        if ready.get(lane, 0) < SLOW_DEPTH
        for _ in range(SLOW_DEPTH)
    ]


def _pick_lane(queue: str, rng: random.Random) -> str:
    if queue == ORDERED:
        return f"lane-{rng.randrange(ORDERED_LANES)}"
    if queue == FEW:
        return f"lane-{rng.randrange(FEW_LANES)}"
    lanes, power = (WIDE_LANES, 1) if queue == WIDE else (SLOT_LANES, 3)
    return f"lane-{int(lanes * rng.random() ** power)}"


def run_limiter(work: Workload, gate: Gate, seed: int, number: int) -> None:
    """In a child: change limits every few seconds, and record each request and response."""
    faulthandler.cancel_dump_traceback_later()
    rng, change_at = random.Random(seed + number), time.monotonic() + FIRST_CHANGE_S
    while gate.state != Gate.SHUT:
        time.sleep(0.05)
        if time.monotonic() >= change_at:
            change_at += CHANGE_INTERVAL_S
            _change_limits(work, SLOTS, {"running": rng.randint(3, 12)}, rng.randint(1, 3))
            _change_limits(work, WIDE, {}, rng.randint(1, 3))
            _change_limits(work, FEW, {}, rng.randint(1, 3))


def _change_limits(work: Workload, queue: str, of_queue: dict[str, Any], of_lane: int) -> None:
    limits = [of_queue.get("running"), of_lane]
    work.ledger.write("limits", queue, 0, [*limits, "asked"])
    with suppress(OutlastError):
        work.ol.limit(queue, lane_running=of_lane, **of_queue)
        work.ledger.write("limits", queue, 0, [*limits, "changed"])
