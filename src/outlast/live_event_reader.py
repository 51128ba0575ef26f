"""Live reader: events of all jobs, or of a flow, for one watcher; see `ops.live_events`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from .ops import events
from .ops.event_filter import STARTED, SUCCEEDED, EventFilter
from .ops.events import StoredEvent
from .ops.flow_report import FlowState
from .ops.flow_report import flow as one_flow
from .ops.live_events import (
    PAGE_SIZE,
    SETTLE_S,
    LiveCursor,
    LiveEvent,
    LiveJob,
    clock,
    started_since,
    succeeded_after,
)
from .ops.operation import Op

P = ParamSpec("P")
T = TypeVar("T")

READ_AGAIN_S = 30.0  # seconds of successes of other jobs that are read again on resumption
LATE_START_S = 5.0  # seconds for which starts that were committed late are still read


class RunAsync(Protocol):
    """Runs an operation on some store."""

    def __call__(
        self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]: ...


class LiveBatch(NamedTuple):
    """The events that one pass found, in order."""

    events: list[LiveEvent]
    more: bool = False  # there may be more events already
    ended: bool = False  # the watched flow has ended, and these are its last events


class LiveReader:
    """Reads pass by pass, each from where the last one ended. A pass that fails changes nothing,
    and may be repeated."""

    def __init__(self, run: RunAsync, wanted: EventFilter, after: LiveCursor | None) -> None:
        self.wanted = wanted
        self.cursor = LiveCursor(0)  # as reported: it names no job outside the watcher's access
        self._read = LiveCursor(0)  # successes are read up to here, including filtered ones
        self._run = run
        self._after = after
        self._opened_at = self._read_at = 0.0  # by the database's clock
        self._started: dict[tuple[str, int], float] = {}  # reported ones, by job and fence
        self._ended_at: float | None = None  # when its flow was first seen ended

    async def open(self) -> list[LiveEvent]:
        """Find the start position. A position beyond the last one is from another sequence: a
        backup was restored since. Then the stream continues from the last one, and reports that."""
        while (await self._run(events.assign_positions))[0] >= events.MAX_POSITIONS_PER_BATCH:
            pass
        last = await self._run(events.last_position)
        self._opened_at = self._read_at = now = await self._run(clock)
        after = LiveCursor(last, now) if self._after is None else self._after
        if SUCCEEDED not in self.wanted.kinds:
            after = LiveCursor(after.position)
        elif after.ended_at is None:
            after = LiveCursor(after.position, 0.0 if after.position == 0 else now)
        self.cursor = self._read = after._replace(position=min(after.position, last))
        if after.position <= last:
            return []
        return [self._of_stream("reset", str(self.cursor), {"asked": str(after.position)})]

    async def read(self) -> LiveBatch:
        before = self.cursor, self._read, dict(self._started), self._read_at
        try:
            return await self._read_batch()
        except BaseException:
            self.cursor, self._read, self._started, self._read_at = before
            raise

    async def _read_batch(self) -> LiveBatch:
        wanted = self.wanted
        state = None if wanted.flow is None else await self._run(one_flow, wanted.flow)
        now = await self._run(clock)
        found = await self._starts() if STARTED in wanted.kinds else []
        more = False
        if wanted.wants_stored:
            stored, more = await self._stored()
            found += stored
        if SUCCEEDED in wanted.kinds:
            successes, many = await self._successes(now)
            found, more = found + successes, more or many
        self._read_at = now
        if more or state is None or not self._is_over(state, now):
            return LiveBatch(found, more)
        data = {"state": state.state, "counts": dict(state.counts)}
        return LiveBatch([*found, self._of_stream("end", f"{self.cursor}-end", data)], ended=True)

    def _is_over(self, state: FlowState, now: float) -> bool:
        """Whether its flow had ended long enough before this pass that all of it was reported."""
        if not state.final:
            self._ended_at = None
        elif self._ended_at is None:
            self._ended_at = now
        return self._ended_at is not None and (
            SUCCEEDED not in self.wanted.kinds or now - self._ended_at > SETTLE_S
        )

    async def _starts(self) -> list[LiveEvent]:
        since = self._read_at - LATE_START_S
        jobs = await self._run(started_since, since, self.wanted.tenant, self.wanted.flow)
        recent = since - LATE_START_S
        self._started = {key: at for key, at in self._started.items() if at >= recent}
        return [event for job in jobs if (event := self._start(job)) is not None]

    def _start(self, job: LiveJob) -> LiveEvent | None:
        """The start of a job that was not reported before; None if it began before the stream."""
        key, at = (job.id, job.fence), job.started_at or 0.0
        seen, self._started[key] = key in self._started or at < self._opened_at, at
        event = job.event(STARTED)
        if seen or not self.wanted.matches(event):
            return None
        return LiveEvent.of(event, None, {"worker": job.worker})

    async def _stored(self) -> tuple[list[LiveEvent], bool]:
        assigned, _ = await self._run(events.assign_positions)
        page = await self._run(events.page, self.cursor.position, self.wanted.tenant, PAGE_SIZE)
        found: list[LiveEvent] = []
        for event in page.events:
            if self.wanted.matches(event):
                self.cursor = self.cursor._replace(position=event.position)
                found.append(LiveEvent.of(event, str(self.cursor)))
        self.cursor = self.cursor._replace(position=page.position)
        return found, page.more or assigned >= events.MAX_POSITIONS_PER_BATCH

    async def _successes(self, now: float) -> tuple[list[LiveEvent], bool]:
        wanted, found = self.wanted, list[LiveEvent]()
        jobs = await self._run(succeeded_after, self._read, wanted.flow)
        for job in jobs:
            self._read = self._read._replace(ended_at=job.finished_at, job=job.id)
            event = job.event(SUCCEEDED)
            if wanted.matches(event):
                self.cursor = self.cursor._replace(ended_at=job.finished_at, job=job.id)
                if STARTED in wanted.kinds and (start := self._start(job)) is not None:
                    found.append(start)
                found.append(LiveEvent.of(event, str(self.cursor), {"worker": job.worker}))
        more = len(jobs) >= PAGE_SIZE
        if not more and now - READ_AGAIN_S > (self.cursor.ended_at or 0.0):
            self.cursor = LiveCursor(self.cursor.position, now - READ_AGAIN_S)
        return found, more

    def _of_stream(self, kind: str, id: str, data: object) -> LiveEvent:
        at, flow = self._read_at, self.wanted.flow
        nobodys = StoredEvent(0, None, None, None, kind, None, at, None, None, None, flow)
        return LiveEvent.of(nobodys, id, data)
