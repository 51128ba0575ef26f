"""Claim requests of a local worker to the database, alone or beside a pending claim."""

from __future__ import annotations

import time
from dataclasses import replace

from ..ops.claim import ClaimRequest
from ..ops.lanes import LaneTurn
from .breaker import Breakers
from .capacity import Capacity
from .finisher import Finisher
from .poller import Poller
from .runner import JobRunner
from .shared import WorkerShared

PROMOTE_INTERVAL_S = 0.1  # seconds; a busy worker makes due jobs ready this often


class ClaimRequests:
    def __init__(
        self,
        shared: WorkerShared,
        poller: Poller,
        capacity: Capacity,
        breakers: Breakers,
        runner: JobRunner,
        finisher: Finisher,
    ) -> None:
        self._state = shared.state
        self._in_flight = shared.in_flight
        self._poller = poller
        self._capacity = capacity
        self._breakers = breakers
        self._runner = runner
        self._finisher = finisher
        self._promote_at = 0.0

    def new(self, queue: str, *others: str, limit: int) -> ClaimRequest:
        """The next claim from these queues."""
        now = time.monotonic()
        due = now >= self._promote_at
        if due:
            self._promote_at = now + PROMOTE_INTERVAL_S
        unknown, known = self._runner.unknown_tasks(), self._runner.known_tasks()
        if held := self._breakers.held.get(queue):  # the same in all of them
            unknown = {*unknown, *held}
            known = None if known is None else [task for task in known if task not in held]
        return ClaimRequest(
            worker=self._state.id,
            queue=queue,
            other_queues=others,
            limit=limit,
            lease=self._state.settings.lease,
            unknown=unknown,
            known=known,
            promote=due,
            allow_one_crash_left=self._allows_suspect(),
            cursor=None if others else self._poller.cursor(queue),
            turn=self._turn(queue) if queue in self._poller.lanes else None,
            longest_due=not others and self._poller.takes_longest_due(queue),
        )

    def _allows_suspect(self) -> bool:
        """No two suspects share a process. The outcome of one that has ended is stored first."""
        suspects = self._in_flight.suspects
        return not suspects or self._finisher.waiting().issuperset(suspects)

    def _turn(self, queue: str) -> LaneTurn | None:
        return self._poller.lanes.next(queue, [job.claim for job in self._finisher.waiting()])

    def allows_another(self, request: ClaimRequest) -> bool:
        """Whether another claim may begin before this one has returned: this one is from a single
        queue without lanes whose last claim was full, and no breaker holds jobs back."""
        if request.task is not None or request.other_queues or request.turn is not None:
            return False
        return self._poller.was_full(request.queue) and self._room_beside() > 0

    def beside(self, first: ClaimRequest) -> ClaimRequest | None:
        """A claim that may begin while this one is pending: of the same kind, and only if all
        waiting outcomes are plain successes."""
        if not self._state.claims or not self._finisher.only_successes:
            return None
        if (limit := self._room_beside()) <= 0:
            return None
        queues = self._poller.next_queues()
        if not self._poller.is_plain(queues) or not self._poller.was_full(queues[0]):
            self._poller.return_to_front(queues)
            return None
        request = self.new(*queues, limit=limit)
        others = first.allow_one_crash_left or bool(self._in_flight.suspects)
        return replace(  # the result of the first claim is not known yet
            request,
            allow_one_crash_left=not others,
            longest_due=request.longest_due and not first.longest_due,
        )

    def _room_beside(self) -> int:
        """The number of jobs that may be claimed while another claim is pending."""
        held_back = self._breakers.open or self._breakers.pending
        return 0 if held_back or self._runner.batches.slots else self._capacity.beside()
