"""Signs of idleness: whether everything that a poll found was asked for, in vain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model.claim import Claim
from ..ops.lanes import TurnClaims


class IdleSigns:
    def __init__(self) -> None:
        self._pending: set[str] | None = None  # by the last poll; None: something changed since
        # Asked in vain since something changed: seconds until a rate allows the next job, if any.
        self._vain: dict[str, float | None] = {}

    @property
    def exhausted(self) -> bool:
        """Whether the last poll is newer than the last job and the last notification, and every
        queue that it found was asked in vain."""
        return self._pending is not None and self._pending <= self._vain.keys()

    @property
    def refill(self) -> float | None:
        """Seconds until a rate limit allows the next job of a queue that the last poll found. (One
        that was asked in vain for its last job is not found again, and not asked again.)"""
        waits = [self._vain.get(queue) for queue in self._pending or ()]
        return min((wait for wait in waits if wait is not None), default=None)

    def changed(self) -> None:
        """A job was claimed or has ended: only the next poll tells whether there is more."""
        self._pending = None
        self._vain.clear()

    def polled(self, queues: set[str], *, due: bool) -> None:
        """A poll found jobs in these queues; `due`: scheduled ones are not ready yet."""
        self._pending = None if due else queues

    def vain(self, queues: Iterable[str], claims: Sequence[Claim]) -> None:
        """These queues gave nothing, and are not in line to be asked again."""
        refill = claims.refill if isinstance(claims, TurnClaims) else None
        self._vain.update(dict.fromkeys(queues, refill))
