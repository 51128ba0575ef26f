"""Who works, and what they do besides: workers and duties. They serve all tenants."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...model.tokens import Scope
from ...ops import report
from ..calls import Call
from ..route import Route
from . import PREFIX
from .jobs import plain
from .views import Duties, Workers


async def list_workers(call: Call) -> dict[str, Any]:
    found = await call.ol.store.arun(report.workers)
    seen = [
        one
        for one in found
        if call.who.queues is None or any(one.serves(queue) for queue in call.who.queues)
    ]
    return {"workers": [{**plain(asdict(one)), "alive": one.alive} for one in seen]}


async def list_duties(call: Call) -> dict[str, Any]:
    found = await call.ol.store.arun(report.duties)
    return {"duties": [plain(asdict(one)) for one in found]}


ROUTES = (
    Route(
        "GET", f"{PREFIX}/workers", Scope.READ, list_workers,
        "The worker processes, and when they were last heard of",
        response=Workers, everyone=True,
    ),
    Route(
        "GET", f"{PREFIX}/duties", Scope.READ, list_duties,
        "Recurring maintenance, and how it went", response=Duties, everyone=True,
    ),
)  # fmt: skip
