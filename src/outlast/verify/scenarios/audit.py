"""Repairs by the audit, interrupted at every statement."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ...model.lifecycle import Outcome
from ...ops import duties
from ...ops.audit import KINDS, checks, delete_dangling
from ...ops.duties import DutyTally
from ...ops.reclaim import decide_by_row
from ..scenario_context import ScenarioContext
from .maintenance import EXPIRED_AFTER_S
from .scenario import scenario

YEAR_S = 365 * 86400.0


@scenario("audit")
def audit(ctx: ScenarioContext) -> Iterator[None]:
    """Every repair is applied to every job: its own guard decides which to change."""
    jobs = ctx.enqueue() + (unwanted := ctx.enqueue(1, "cancelled"))
    ctx.record_begun(ctx.claim(lease=0.001))
    ctx.ol.cancel(unwanted[0].id)
    jobs += ctx.enqueue(1, delay=0.001) + (old := ctx.enqueue(1, "cancelled", expires=0.001))
    ctx.forbid_claim(old[0].id)
    ids = [job.id for job in jobs]
    time.sleep(EXPIRED_AFTER_S)
    yield
    for check in checks({"succeeded": YEAR_S, "cancelled": YEAR_S}, YEAR_S, 60.0, decide_by_row):
        ctx.run(check.repair, ids)
    ctx.run(duties.record_duties, {ctx.queue: DutyTally(found=4, healed=4)}, 60.0, ctx.owner)


@scenario("clear-away", removes_jobs=True, max_points=8)
def clear(ctx: ScenarioContext) -> Iterator[None]:
    """Old ended jobs are removed with their records, and so are records without a job."""
    task = ctx.work.mark.using(queue=ctx.queue)
    ctx.ol.enqueue(*[task.job() for _ in range(3)])
    claims = ctx.record_begun(ctx.claim())
    ctx.finish([(claim, ctx.attempt_end(Outcome.CANCELLED, claim)) for claim in claims])
    ids = [claim.id for claim in claims]
    time.sleep(EXPIRED_AFTER_S)
    yield
    for check in checks({"cancelled": 0.0}, YEAR_S, 60.0, decide_by_row):
        if check.name == "leaked-slot":
            ctx.run(check.repair, ids)
    for kind in KINDS:
        ctx.run(delete_dangling(kind), ids)
