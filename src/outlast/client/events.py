"""Live events: iterators over events of jobs."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from ..live_event_reader import LiveBatch, LiveReader
from ..loops import Backoff
from ..model.errors import (
    Contention,
    DeadlineExceeded,
    InvalidOption,
    StoreBusy,
    StoreUnavailable,
)
from ..model.options import check_name, seconds
from ..ops.event_filter import EventFilter
from ..ops.live_events import LiveCursor, LiveEvent
from .faces import Face, finish
from .flows import flow_id
from .verb_arguments import Names, check_names

if TYPE_CHECKING:
    from .client import Outlast

TEMPORARY = (StoreUnavailable, StoreBusy, Contention, DeadlineExceeded)
DEFAULT_POLL_S = 0.5  # seconds between two polls


def check_poll(poll: float) -> None:
    if seconds("poll", poll, above=0.0) is None:
        raise InvalidOption(option="poll", reason="must be a number of seconds, not None")


def event_filter(
    kinds: Names, queue: Names, task: Names, tenant: str | None, flow: str | None
) -> EventFilter:
    return EventFilter(
        flow=None if flow is None else flow_id(flow),
        kinds=frozenset(check_names("kinds", kinds)),
        in_queues=frozenset(check_names("queue", queue)),
        tasks=frozenset(check_names("task", task)),
        tenant=None if tenant is None else check_name("tenant", tenant),
    )


class _LiveEvents:
    """The shared part of a blocking and an asyncio iterator. Waits out outages of the database."""

    def __init__(self, face: Face, wanted: EventFilter, after: str | None, poll: float) -> None:
        check_poll(poll)
        self._face, self._poll = face, poll
        cursor = None if after is None else LiveCursor.parse(after)
        self._reader = LiveReader(face.run, wanted, cursor)
        self._stopped = threading.Event()
        self._events = self._read()

    def stop(self) -> None:
        """End the iteration, from any thread: at once, or within `poll` seconds."""
        self._stopped.set()

    async def _read(self) -> AsyncIterator[LiveEvent]:
        backoff, batch = Backoff(first=self._poll, cap=5.0), None
        while not self._stopped.is_set():
            try:
                if batch is None:
                    batch = LiveBatch(await self._reader.open(), more=True)
                else:
                    batch = await self._reader.read()
            except TEMPORARY:
                await self._face.sleep(backoff.failed())
                continue
            backoff.succeeded()
            for event in batch.events:
                if self._stopped.is_set():
                    return
                yield event
            if batch.ended:
                return
            if not batch.more and not self._stopped.is_set():
                await self._face.sleep(self._poll)


class LiveEvents(_LiveEvents, Iterator[LiveEvent]):
    """Events as they arrive: `for event in ol.events(…)`. It blocks while there are none."""

    def __next__(self) -> LiveEvent:
        try:
            return finish(self._events.__anext__())  # type: ignore[arg-type]
        except StopAsyncIteration:
            raise StopIteration from None


class AsyncLiveEvents(_LiveEvents, AsyncIterator[LiveEvent]):
    """The asyncio counterpart: `async for event in ol.aevents(…)`."""

    async def __anext__(self) -> LiveEvent:
        return await self._events.__anext__()


def events(  # noqa: PLR0913 - a filter and a position
    self: Outlast,
    *,
    kinds: Names = None,
    queue: Names = None,
    task: Names = None,
    tenant: str | None = None,
    flow: str | None = None,
    after: str | None = None,
    poll: float = DEFAULT_POLL_S,
) -> LiveEvents:
    """Follow events of jobs: an iterator, which blocks while there are none. With `kinds`, only
    these; `started` and `succeeded` are included only if named. From now on, or `after` an event's
    id. With `flow`, the events of one flow, until it has ended. `stop()` ends the iteration."""
    wanted = event_filter(kinds, queue, task, tenant, flow)
    return LiveEvents(self._blocking, wanted, _first_position(after, flow), poll)


def aevents(  # noqa: PLR0913 - as above
    self: Outlast,
    *,
    kinds: Names = None,
    queue: Names = None,
    task: Names = None,
    tenant: str | None = None,
    flow: str | None = None,
    after: str | None = None,
    poll: float = DEFAULT_POLL_S,
) -> AsyncLiveEvents:
    wanted = event_filter(kinds, queue, task, tenant, flow)
    return AsyncLiveEvents(self._async, wanted, _first_position(after, flow), poll)


def _first_position(after: str | None, flow: str | None) -> str | None:
    """The position to start from: for a flow its beginning, for all jobs now."""
    return "0" if after is None and flow is not None else after
