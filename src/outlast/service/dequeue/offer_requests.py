"""Offer requests: the dispatcher's claims for one remote worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ops.offer import OfferRequest
from ...worker.breaker import HeldTasks
from ...worker.poller import Poller
from .credit import Credit
from .worker_info import RemoteWorkerInfo

if TYPE_CHECKING:
    from .dispatcher import Dispatcher

MAX_CLAIM = 200  # jobs per claim


class OfferRequests:
    def __init__(self, dispatcher: Dispatcher, info: RemoteWorkerInfo, credit: Credit) -> None:
        self.max_share = 2  # a claim has at most this fraction (1/n) of the credit
        self._dispatcher = dispatcher
        self._info = info
        self._credit = credit

    def new(self, poller: Poller, queues: tuple[str, ...], room: int) -> OfferRequest | None:
        """The next claim, on a stream for at most half of the credit: while one half is in transit,
        the other runs. None: breakers hold back all of the worker's tasks there."""
        info = self._info
        held = poller.held.get(queues[0])  # the same for all queues
        tasks = tuple(task for task in info.tasks if task not in held) if held else info.tasks
        if held and not tasks:
            poller.back_off_held(queues)
            return None
        share = -(-self._credit.limit // self.max_share)
        limit = min(room, share, MAX_CLAIM)
        self._credit.requested += limit
        return OfferRequest(
            worker=self._dispatcher.id,
            queue=queues[0],
            other_queues=queues[1:],
            limit=limit,
            lease=self._dispatcher.service_settings.offer_lease,
            promote=self._dispatcher.should_promote(),
            allow_one_crash_left=not self._credit.has_a_last_life,
            cursor=poller.cursor(queues[0]) if len(queues) == 1 else None,
            tasks=tasks,
            tenant=info.tenant,
            turn=poller.lanes.next(queues[0]),
            longest_due=len(queues) == 1 and poller.takes_longest_due(queues[0]),
        )

    def held_tasks(self) -> HeldTasks:
        """Tasks that breakers hold back. A worker of one tenant may not probe: breakers that no
        other worker probes do not hold its jobs back for ever."""
        breakers = self._dispatcher.breakers
        return breakers.held if self._info.tenant is None else breakers.held_while_probed
