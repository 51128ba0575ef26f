"""The page of recoveries: what died, when, what it was running, and how soon that ran again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from ...ops import board, report
from ...ops.board import Comeback, Loss
from ..calls import Call
from .pages import page, seen

A_DAY = 86_400.0
SHOWN = 100  # of each kind, on the page
COUNTED = 1000  # at the most; beyond, it is "1,000+"

HOW = {
    "lock": "its liveness lock was free",
    "exit": "its supervisor saw it exit",
    "lease": "its leases ran out",
}


@dataclass(frozen=True, slots=True)
class Summary:
    """Of a day."""

    deaths: int
    jobs: int
    median: float | None
    longest: float | None
    refused: int


async def recovery_page(call: Call) -> Response:
    store = call.ol.store
    lost = await store.arun(board.losses, "worker-lost", COUNTED)
    refused = await store.arun(board.losses, "write-refused", COUNTED)
    comebacks = await store.arun(board.comebacks, A_DAY, COUNTED, call.reach)
    nets = await store.arun(report.duties)
    since = await call.service.principals.now() - A_DAY
    return await page(
        call,
        "recovery.html",
        summary=summary(
            [loss for loss in lost if loss.at.timestamp() >= since],
            [loss for loss in refused if loss.at.timestamp() >= since],
            comebacks,
        ),
        deaths=[death(loss) for loss in lost[:SHOWN]],
        refused=refused[:SHOWN],
        comebacks=comebacks[:SHOWN],
        nets=nets,
        counted=COUNTED,
        whole=call.who.queues is None,
    )


def summary(
    lost: Sequence[Loss], refused: Sequence[Loss], comebacks: Sequence[Comeback]
) -> Summary:
    times = sorted(one.back_in for one in comebacks if one.back_in is not None)
    return Summary(
        deaths=sum(len(_list(loss.data.get("workers"))) for loss in lost),
        jobs=len(comebacks),
        median=times[len(times) // 2] if times else None,
        longest=times[-1] if times else None,
        refused=len(refused),
    )


def death(loss: Loss) -> dict[str, Any]:
    """What is on record of a death, whoever wrote it: nothing is taken for granted."""
    said = loss.data
    workers = [one for one in _list(said.get("workers")) if isinstance(one, dict)]
    how = str(said.get("how", ""))
    return {
        "at": loss.at,
        "workers": [
            {name: str(one.get(name, "")) for name in ("id", "host", "pid")} for one in workers
        ],
        "how": HOW.get(how, how),
        "detail": str(said.get("detail") or ""),
        "jobs": [str(id) for id in _list(said.get("jobs"))],
        "number": said.get("number") if isinstance(said.get("number"), int) else 0,
    }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


ROUTES = (seen("/recovery", recovery_page, "What died, and what came back", everyone=True),)
