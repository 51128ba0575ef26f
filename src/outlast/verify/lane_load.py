"""Load of limited queues: handlers that record their slots, jobs for them, and an operator who
changes the limits."""

from __future__ import annotations

import asyncio
import faulthandler
import random
import time
from itertools import count
from typing import TYPE_CHECKING

from ..model.errors import OutlastError
from ..model.retry import Retry
from ..worker.context import Context
from .load import EXPECTED_ERRORS, Gate

if TYPE_CHECKING:
    from .workload import Workload

SLOTS, ORDERED = "slots", "ordered"  # queues
ORDERED_LANES = 12
SLOT_LANES = 200  # more than one claim considers; a few of them have most of the jobs
FAIL_SHARE = 0.1  # share of failing attempts in ordered lanes
MAX_WAITING = 400  # unfinished jobs while more are enqueued
JOBS_PER_CALL = 60
CHANGE_RANGE_S = (0.3, 1.5)  # seconds between changes of limits
RETRY = Retry(max_attempts=1000, base=0.01, cap=0.05)
FIRST_RUNNING, FIRST_LANE_RUNNING = 8, 2  # limits before the first change


class LaneTasks:
    """Tasks whose handlers record when they enter and leave a slot of their lane."""

    def __init__(self, work: Workload) -> None:
        ol = work.ol
        ol.queue(SLOTS, running=FIRST_RUNNING, lane_running=FIRST_LANE_RUNNING)
        ol.queue(ORDERED, ordered=True)

        @ol.task(queue=SLOTS, lane=lambda lane, **_: lane, max_crashes=1000, retry=RETRY)
        async def slotted(ctx: Context, lane: str, n: int) -> dict[str, int]:
            work.ledger.write("began", ctx.job.id, ctx.fence)
            work.ledger.write("entered", ctx.job.id, ctx.fence, [SLOTS, lane, n])
            await asyncio.sleep(random.uniform(0.0, 0.02))
            work.ledger.write("left", ctx.job.id, ctx.fence, [SLOTS, lane, n])
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


def run_lane_load(work: Workload, tasks: LaneTasks, gate: Gate, seed: int, number: int) -> None:
    """In a child: enqueue jobs in lanes as long as there is room; a single enqueuer, so that the
    order in each lane is known."""
    faulthandler.cancel_dump_traceback_later()
    rng, numbers = random.Random(seed), count()
    while gate.state != Gate.SHUT:
        try:
            waiting = work.ol.counts()
            if waiting["ready"] + waiting["scheduled"] > MAX_WAITING:
                time.sleep(0.05)
                continue
            calls = []
            for _ in range(JOBS_PER_CALL):
                n, slotted = next(numbers), rng.random() < 0.5
                lane = SLOT_LANES * rng.random() ** 3 if slotted else rng.randrange(ORDERED_LANES)
                task = tasks.slotted if slotted else tasks.in_order
                calls.append(task.job(lane=f"lane-{int(lane)}", n=n))
            for job in work.ol.enqueue(*calls):
                work.ledger.write("promised", job.id, 0, ["succeeded"])
        except EXPECTED_ERRORS:
            time.sleep(0.05)


def run_limiter(work: Workload, gate: Gate, seed: int, number: int) -> None:
    """In a child: change limits periodically. The ledger has the possible limits at each time."""
    faulthandler.cancel_dump_traceback_later()
    rng = random.Random(seed + number)
    while gate.state != Gate.SHUT:
        time.sleep(rng.uniform(*CHANGE_RANGE_S))
        running, lane_running = rng.randint(3, 12), rng.randint(1, 3)
        work.ledger.write("limits", SLOTS, 0, [running, lane_running, "asked"])
        try:
            work.ol.limit(SLOTS, running=running, lane_running=lane_running)
        except OutlastError:
            continue
        work.ledger.write("limits", SLOTS, 0, [running, lane_running, "changed"])
