"""Signs of idleness: whether claims from all queues that the last poll found were empty."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model.claim import Claim
from ..ops.lanes import TurnClaims


class IdleSigns:
    def __init__(self) -> None:
        self._pending: set[str] | None = None  # found by the last poll; None: changed since
        # Queues with an empty claim since a change: seconds until a rate limit allows a job.
        self._empty: dict[str, float | None] = {}

    @property
    def exhausted(self) -> bool:
        """Whether the last poll is newer than the last job and the last notification, and a claim
        from every queue that it found was empty."""
        return self._pending is not None and self._pending <= self._empty.keys()

    @property
    def refill(self) -> float | None:
        """Seconds until a rate limit allows the next job of a queue that the last poll found. (A
        queue whose last job was refused that way is not polled or claimed from again.)"""
        waits = [self._empty.get(queue) for queue in self._pending or ()]
        return min((wait for wait in waits if wait is not None), default=None)

    def changed(self) -> None:
        """A job was claimed or has ended: only the next poll shows whether there are more."""
        self._pending = None
        self._empty.clear()

    def polled(self, queues: set[str], *, due: bool) -> None:
        """A poll found jobs in these queues; `due`: scheduled jobs are due, but not ready yet."""
        self._pending = None if due else queues

    def claimed_nothing(self, queues: Iterable[str], claims: Sequence[Claim]) -> None:
        """A claim from these queues was empty, and they are not in the rotation."""
        refill = claims.refill if isinstance(claims, TurnClaims) else None
        self._empty.update(dict.fromkeys(queues, refill))
