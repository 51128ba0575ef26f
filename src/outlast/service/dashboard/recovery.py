"""The page of recoveries: lost workers, their jobs, and the time until the jobs ran again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response

from ...ops import live_stats, report
from ...ops.live_stats import LossEvent, Recovery
from ..request import RequestContext
from .pages import page_route, render_page

DAY_S = 86_400.0
MAX_SHOWN = 100  # rows per table
MAX_COUNTED = 1000  # then "1,000+" is shown

DEATH_SIGNS = {
    "lock": "its liveness lock was free",
    "exit": "its supervisor detected its exit",
    "lease": "its leases expired",
}


@dataclass(frozen=True, slots=True)
class RecoverySummary:
    """Figures of the last 24 hours."""

    deaths: int
    jobs: int
    median: float | None
    longest: float | None
    refused: int


async def recovery_page(call: RequestContext) -> Response:
    store = call.ol.store
    lost = await store.arun(live_stats.losses, "worker-lost", MAX_COUNTED)
    refused = await store.arun(live_stats.losses, "write-refused", MAX_COUNTED)
    recoveries = await store.arun(live_stats.recoveries, DAY_S, MAX_COUNTED, call.reach)
    duties = await store.arun(report.duties)
    since = await call.service.principals.now() - DAY_S
    return await render_page(
        call,
        "recovery.html",
        summary=summarise(
            [loss for loss in lost if loss.at.timestamp() >= since],
            [loss for loss in refused if loss.at.timestamp() >= since],
            recoveries,
        ),
        deaths=[death_facts(loss) for loss in lost[:MAX_SHOWN]],
        refused=refused[:MAX_SHOWN],
        comebacks=recoveries[:MAX_SHOWN],
        nets=duties,
        counted=MAX_COUNTED,
        whole=call.who.queues is None,
    )


def summarise(
    lost: Sequence[LossEvent], refused: Sequence[LossEvent], recoveries: Sequence[Recovery]
) -> RecoverySummary:
    times = sorted(one.recovered_in for one in recoveries if one.recovered_in is not None)
    return RecoverySummary(
        deaths=sum(len(_list(loss.data.get("workers"))) for loss in lost),
        jobs=len(recoveries),
        median=times[len(times) // 2] if times else None,
        longest=times[-1] if times else None,
        refused=len(refused),
    )


def death_facts(loss: LossEvent) -> dict[str, object]:
    """The record of a lost worker, parsed leniently: any version may have written it."""
    data = loss.data
    workers = [one for one in _list(data.get("workers")) if isinstance(one, dict)]
    how = str(data.get("how", ""))
    return {
        "at": loss.at,
        "workers": [
            {name: str(one.get(name, "")) for name in ("id", "host", "pid")} for one in workers
        ],
        "how": DEATH_SIGNS.get(how, how),
        "detail": str(data.get("detail") or ""),
        "jobs": [str(id) for id in _list(data.get("jobs"))],
        "number": data.get("number") if isinstance(data.get("number"), int) else 0,
    }


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


ROUTES = (page_route("/recovery", recovery_page, "Lost workers and their jobs", everyone=True),)
