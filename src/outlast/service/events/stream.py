"""The response to a request that follows events.

Its subscription is always released: at the end of the job, and when the client disconnects or
stalls, the token is revoked, or the server shuts down.
"""

from __future__ import annotations

from contextlib import ExitStack, aclosing

from starlette.types import Send

from ...model.errors import StoreError
from ...ops.event_filter import EventFilter
from ...ops.events import JobStatus
from ...protocol import SSE
from ..problems import Unavailable
from ..streaming import GONE, ClientStalled, StreamCaller, StreamResponse
from . import frames
from .broadcaster import Broadcaster
from .replay import Replay
from .subscriber import Subscriber


def admit(call: StreamCaller) -> Broadcaster:
    """The broadcaster, if it has room for one more subscriber; else refuse the caller."""
    broadcaster = call.broadcaster
    if broadcaster.closing.is_set():
        raise Unavailable("the server is shutting down", wait=5.0)
    broadcaster.refuse_beyond_limits(call.who)
    return broadcaster


class EventStream(StreamResponse):
    def __init__(
        self,
        call: StreamCaller,
        event_filter: EventFilter,
        media: str,
        after: int | None,
        status: JobStatus | None = None,
    ) -> None:
        self._broadcaster = call.broadcaster
        lifetime_s = min(self._broadcaster.settings.events_life, call.longest_s)
        super().__init__(call, media + ("; charset=utf-8" if media == SSE else ""), lifetime_s)
        self._filter = event_filter
        self._media = media
        self._after = after
        self._status = status
        self._sent: int | str = after or 0  # all events up to here are sent
        self._subscriber: Subscriber

    def acquire(self, held: ExitStack) -> None:
        admit(self._call)  # again: others may have subscribed since
        self._subscriber = held.enter_context(
            self._broadcaster.subscription(self._filter, self._media, self._call.who.token)
        )

    async def send_chunks(self, send: Send) -> None:
        replay = Replay(self._broadcaster, self._subscriber, self._after, self._status)
        async with aclosing(replay.chunks()) as chunks:
            async for chunk in chunks:
                if chunk:
                    await self.send_chunk(send, chunk)
                self._sent = self._subscriber.position

    def end_reason(self, error: BaseException | None) -> str:
        match error:
            case None:
                return ""
            case ClientStalled():
                self._broadcaster.counts["cut"] += 1
                return "slow"
            case StoreError() | TimeoutError():
                return "unavailable"
            case OSError():
                return GONE
            case _:
                raise error

    def last_frame(self, reason: str) -> bytes:
        return frames.cut_frame(reason, self._sent).encoded(self._media) if reason else b""
