"""Lanes that are tenants: with `ol.queue(…, lane="tenant")`, tenant tokens may only use their own.

Otherwise a tenant could use the slots of another one, or get many turns under many names.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ops.limits import tenant_lane_queues
from ..store import Store
from .problems import Forbidden


async def refuse_foreign_lanes(
    store: Store, tenant: str | None, named: Iterable[tuple[str, str]]
) -> None:
    """Refuse lanes (pairs of queue and lane) that a token of this tenant may not use."""
    others = {(queue, lane) for queue, lane in named if lane != tenant}
    if tenant is None or not others:
        return
    by_tenant = await store.arun(tenant_lane_queues)
    for queue, lane in sorted(others):
        if queue in by_tenant:
            raise Forbidden(
                f"the lanes of the queue {queue!r} are tenants, and this token is of the tenant"
                f" {tenant!r}: omit the lane {lane!r}"
            )
