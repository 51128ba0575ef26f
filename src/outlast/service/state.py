"""What all requests share: the job system, the settings, the parts that work in the background."""

from __future__ import annotations

import asyncio
import hashlib
import hmac

from ..client import Outlast
from ..metrics import Answers, Gauges, OneService
from ..model.ids import entropy
from ..model.settings import ServiceSettings
from ..ops import tokens
from .audit import Audit
from .census import Census
from .dashboard.live import Live
from .dequeue.desk import Desk, Office
from .events.feeder import Feeder
from .parts import Part, PartRunner
from .principals import Principals
from .queue_names import QueueNames
from .revocations import Revocations
from .room import LIVE_PAGES, RESULT_WAITERS, WORKER_STREAMS, Room
from .sessions import Sessions

SIGNING = "service signing"  # the name of the secret in the database


class Service:
    """One per app. Parts are started with the app's lifespan, or with the first request where
    whoever mounted the app passes no lifespan on."""

    def __init__(self, ol: Outlast, settings: ServiceSettings) -> None:
        self.ol = ol
        self.settings = settings
        self.principals = Principals(self)
        self.sessions = Sessions(self)
        self.revocations = Revocations(self)
        self.audit = Audit(self)
        self.census = Census(self)
        self.queue_names = QueueNames(self.census, settings.max_queues)
        self.waiters = Room(RESULT_WAITERS, settings)
        self.worker_streams = Room(WORKER_STREAMS, settings)
        self.slow_store = ol.store.twin(1)  # for what takes long: nothing else waits for it
        self.gauges = Gauges()  # figures of parts of the service: see metrics.catalogue
        self.answers = Answers(OneService(self.gauges), ol.store, self.slow_store)
        self.events = Feeder(ol.store, settings)
        self.desk = Desk(ol, settings)
        self.live = Live(self)
        self.viewers = Room(LIVE_PAGES, settings)
        parts: list[Part] = [
            self.revocations,
            self.audit,
            self.events,
            Office(self.desk),
            self.live,
        ]
        self.runner = PartRunner(ol.store, parts, self.desk.outage)
        self._tell()
        self._tasks: list[asyncio.Task[None]] = []
        self._secret: bytes | None = None

    def _tell(self) -> None:
        """What the parts count, as metrics."""
        events, desk, read = self.events, self.desk, self.gauges.read
        read("outlast_event_subscribers", lambda: events.subscribers)
        read("outlast_event_lag_seconds", lambda: events.lag)
        read("outlast_event_subscribers_cut_total", lambda: events.counts["cut"])
        read("outlast_dequeue_streams", lambda: len(desk.streams))
        read("outlast_offers_total", lambda: desk.counts["offered"])
        read("outlast_offers_released_total", lambda: desk.counts["withdrawn"])
        read("outlast_offers_lapsed_total", lambda: desk.counts["lapsed"])
        read("outlast_duplicate_deliveries_total", lambda: desk.counts["duplicate_delivery"])

    async def key(self, purpose: str) -> bytes:
        """A key to sign with, the same on every instance, one for each purpose. Never log it."""
        if self._secret is None:
            kept = await self.ol.store.arun(tokens.secret, SIGNING, entropy(32).hex())
            self._secret = bytes.fromhex(kept)
        return hmac.new(self._secret, purpose.encode(), hashlib.sha256).digest()

    @property
    def running(self) -> bool:
        return bool(self._tasks)

    def start(self) -> None:
        """Idempotent. Tasks of a loop that has ended are gone with it."""
        loop = asyncio.get_running_loop()
        if not self._tasks or self._tasks[0].get_loop() is not loop:
            self._tasks = self.runner.start()

    def leave(self) -> None:
        """The server is going away: streams end in good order, before it waits for their end."""
        self.events.close()
        self.desk.end_streams()

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.answers.aclose()
        await self.slow_store.aclose()
