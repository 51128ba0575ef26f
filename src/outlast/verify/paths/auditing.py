"""The net under the nets: what the audit writes, killed at every step."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ...model.lifecycle import Outcome
from ...ops import duties
from ...ops.audit import KINDS, checks, clear_away
from ...ops.duties import Tally
from ...ops.reclaim import by_row
from ..stage import Stage
from .healing import A_MOMENT
from .path import path

A_YEAR = 365 * 86400.0


@path("audit")
def audit(stage: Stage) -> Iterator[None]:
    """Every repair is given every job: its own guard decides whom it may touch."""
    jobs = stage.enqueued() + (unwanted := stage.enqueued(1, "cancelled"))
    stage.began(stage.claim(lease=0.001))
    stage.ol.cancel(unwanted[0].id)
    jobs += stage.enqueued(1, delay=0.001) + (old := stage.enqueued(1, "cancelled", expires=0.001))
    stage.never(old[0].id)
    ids = [job.id for job in jobs]
    time.sleep(A_MOMENT)
    yield
    for check in checks({"succeeded": A_YEAR, "cancelled": A_YEAR}, A_YEAR, 60.0, by_row):
        stage.run(check.repair, ids)
    stage.run(duties.record, {stage.queue: Tally(found=4, healed=4)}, 60.0, stage.owner)


@path("clear-away", apart=True, most=8)
def clear(stage: Stage) -> Iterator[None]:
    """What ended long ago goes with its records, and records without a job go too."""
    task = stage.work.mark.using(queue=stage.queue)
    stage.ol.enqueue(*[task.job() for _ in range(3)])
    claims = stage.began(stage.claim())
    stage.finish([(claim, stage.ended(Outcome.CANCELLED, claim)) for claim in claims])
    ids = [claim.id for claim in claims]
    time.sleep(A_MOMENT)
    yield
    for check in checks({"cancelled": 0.0}, A_YEAR, 60.0, by_row):
        if check.name == "leaked-slot":
            stage.run(check.repair, ids)
    for kind in KINDS:
        stage.run(clear_away(kind), ids)
