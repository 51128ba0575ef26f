"""Renewals of remote workers: many in one statement, with bounded waits for locks.

A worker without a response must stop its jobs before their leases expire. So a renewal waits for a
lock as briefly as a local worker's, and renewals that arrive meanwhile share the next statement:
regardless of the number of workers, each gets its response within two such waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...model.claim import Claim
from ...model.errors import DeadlineExceeded, OutlastError, StoreBusy
from ...ops import offer as ops
from ...store import Store
from ...worker.leases import max_renewal_s

MAX_CLAIMS = 5000  # per statement


@dataclass(slots=True)
class RenewalBatch:
    """The claims of the next statement."""

    claims: list[Claim] = field(default_factory=list)
    answer: asyncio.Task[ops.HoldResult] | None = None


class Renewals:
    """`store` waits briefly for locks, and runs one operation at a time."""

    def __init__(self, store: Store, lease: float) -> None:
        self._store = store
        self._lease = lease
        self._next = RenewalBatch()
        self._turn = asyncio.Lock()

    async def hold(self, claims: Sequence[Claim]) -> ops.HoldResult:
        """Renew these claims, and accept those that were only offered. The result covers all claims
        of the statement."""
        if len(self._next.claims) + len(claims) > MAX_CLAIMS:
            self._next = RenewalBatch()
        batch = self._next
        batch.claims += claims
        if batch.answer is None:
            batch.answer = asyncio.create_task(self._send(batch))
        return await asyncio.shield(batch.answer)  # shared: one caller must not cancel it

    async def _send(self, batch: RenewalBatch) -> ops.HoldResult:
        async with self._turn:
            if self._next is batch:
                self._next = RenewalBatch()
            try:
                async with asyncio.timeout(max_renewal_s(self._lease)):
                    return await self._store.arun(ops.hold, batch.claims, self._lease)
            except StoreBusy as error:
                if not error.locked:
                    raise
                return ops.locked(batch.claims)
            except TimeoutError as error:
                if isinstance(error, OutlastError):
                    raise
                raise DeadlineExceeded(seconds=max_renewal_s(self._lease)) from error
