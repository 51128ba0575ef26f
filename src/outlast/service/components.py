"""The service's components, shared by all requests: the job system, settings, background parts."""

from __future__ import annotations

import asyncio

from ..client.client import Outlast
from ..metrics import Gauges, MetricsRoutes, ServiceTarget
from ..model.service_key import service_key
from ..model.settings import ServiceSettings
from ..ops.signal_links import signing_secret
from ..worker.leases import lock_wait
from .auth.failed_logins import FailedLogins
from .auth.principals import Principals
from .auth.revocation import Revocations
from .auth.sessions import Sessions
from .auth.throttle import Throttle
from .background import BackgroundPart, PartRunner
from .dashboard.live_lists import LiveLists
from .dashboard.live_view import LiveView
from .dequeue.dispatcher import Dispatcher
from .events.broadcaster import Broadcaster
from .hooks import Hooks
from .job_counts import JobCounts
from .queue_bounds import QueueBounds
from .queue_names import QueueNames
from .slots import LIVE_PAGES, RESULT_WAITERS, WORKER_STREAMS, Slots


class Service:
    """The components of one app. Parts start with its lifespan, or with the first request if the
    mounting app passes no lifespan on."""

    def __init__(self, ol: Outlast, settings: ServiceSettings) -> None:
        self.ol = ol
        self.settings = settings
        self.principals = Principals(self)
        self.sessions = Sessions(self)
        self.revocations = Revocations(self)
        self.failed_logins = FailedLogins(self)
        self.wrong_links = Throttle(settings.guesses)
        self.job_counts = JobCounts(self)
        self.queue_names = QueueNames(self.job_counts, settings.max_queues)
        self.queue_bounds = QueueBounds(self.ol._arefresh_bounds)
        self.waiters = Slots(RESULT_WAITERS, settings)
        self.worker_streams = Slots(WORKER_STREAMS, settings)
        self.slow_store = ol.store.clone(1)  # for slow statements, which delay nothing else here
        self.gauges = Gauges()  # metrics of the service's parts: see metrics.catalogue
        self.metrics_routes = MetricsRoutes(ServiceTarget(self.gauges), ol.store, self.slow_store)
        self.broadcaster = Broadcaster(ol.store, settings)
        # For remote workers' renewals, which must not wait behind another connection's lock.
        self.prompt_store = ol.store.clone(1, lock_wait(settings.remote_lease))
        self.dispatcher = Dispatcher(ol, settings, self.prompt_store)
        self.hooks = Hooks(ol, settings)
        self.live_view = LiveView(self)
        self.live_lists = LiveLists()
        self.viewers = Slots(LIVE_PAGES, settings)
        parts: list[BackgroundPart] = [
            self.revocations,
            self.failed_logins,
            self.broadcaster,
            self.dispatcher,
            self.hooks,
            self.live_view,
        ]
        self.runner = PartRunner(ol.store, parts, self.dispatcher.outage)
        self._register_metrics()
        self._tasks: list[asyncio.Task[None]] = []
        self._secret: str | None = None

    def _register_metrics(self) -> None:
        """Metrics of the parts."""
        broadcaster, desk, read = self.broadcaster, self.dispatcher, self.gauges.register
        read("outlast_event_subscribers", lambda: broadcaster.subscribers)
        read("outlast_event_lag_seconds", lambda: broadcaster.lag)
        read("outlast_event_subscribers_cut_total", lambda: broadcaster.counts["cut"])
        read("outlast_dequeue_streams", lambda: len(desk.streams))
        read("outlast_offers_total", lambda: desk.counts["offered"])
        read("outlast_offers_released_total", lambda: desk.counts["withdrawn"])
        read("outlast_offers_lapsed_total", lambda: desk.counts["lapsed"])
        read("outlast_duplicate_deliveries_total", lambda: desk.counts["duplicate_delivery"])

    async def key(self, purpose: str) -> bytes:
        """A signing key, the same on every instance, one per purpose. Never log it."""
        if self._secret is None:
            self._secret = await self.ol.store.arun(signing_secret)
        return service_key(self._secret, purpose)

    @property
    def running(self) -> bool:
        return bool(self._tasks)

    def start(self) -> None:
        """Start the parts; idempotent. Tasks of an ended event loop are started again."""
        loop = asyncio.get_running_loop()
        if not self._tasks or self._tasks[0].get_loop() is not loop:
            self._tasks = self.runner.start()

    def close_streams(self) -> None:
        """At shutdown, end streams cleanly before the server waits for connections to close."""
        self.broadcaster.close()
        self.dispatcher.end_streams()

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.metrics_routes.aclose()
        await self.slow_store.aclose()
        await self.prompt_store.aclose()
