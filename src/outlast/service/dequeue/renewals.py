"""Renewals of remote workers: many in one statement, and answered soon despite somebody's lock.

A worker that hears nothing has to stop its jobs before their leases run out. So a renewal waits for
a lock as briefly as a local worker's does, and those that come meanwhile share the next statement:
however many workers there are, each is told within two such waits.
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

MAX_CLAIMS = 5000  # in one statement


@dataclass(slots=True)
class RenewalBatch:
    """What the next statement renews."""

    claims: list[Claim] = field(default_factory=list)
    answer: asyncio.Task[ops.HoldResult] | None = None


class Renewals:
    """`store` waits for locks briefly, and carries out one operation at a time."""

    def __init__(self, store: Store, lease: float) -> None:
        self._store = store
        self._lease = lease
        self._next = RenewalBatch()
        self._turn = asyncio.Lock()

    async def hold(self, claims: Sequence[Claim]) -> ops.HoldResult:
        """Renew these claims, which accepts what was only offered. The answer is about all claims
        of the statement."""
        if len(self._next.claims) + len(claims) > MAX_CLAIMS:
            self._next = RenewalBatch()
        batch = self._next
        batch.claims += claims
        if batch.answer is None:
            batch.answer = asyncio.create_task(self._send(batch))
        return await asyncio.shield(batch.answer)  # one who leaves takes nobody's answer away

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
