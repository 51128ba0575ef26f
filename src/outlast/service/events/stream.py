"""The answer to a request that follows events: it is sent until somebody ends it.

Whoever ends it and however (the job, the client, a stalled line, a revoked token, the server's own
shutdown, the first frame that could not be sent), its seat is given back: it is held by a `with`.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...model.errors import StoreError
from ...ops.events import JobStatus
from .. import problems
from ..problems import RequestRefused, Unavailable
from ..request import RequestContext
from ..streaming import (
    STREAM_HEADERS,
    ClientStalled,
    body_message,
    disconnected,
    race,
    send_final,
    send_with_timeout,
)
from . import frames
from .broadcaster import Broadcaster
from .filter import EventFilter
from .frames import SSE
from .replay import Replay
from .subscriber import Subscriber


def admit(call: RequestContext) -> Broadcaster:
    """Who may seat one more; else the caller is told to come again."""
    broadcaster = call.service.broadcaster
    if broadcaster.closing.is_set():
        raise Unavailable("the server is going away", wait=5.0)
    broadcaster.refuse_beyond_limits(call.who)
    return broadcaster


class EventStream(Response):
    def __init__(
        self,
        call: RequestContext,
        broadcaster: Broadcaster,
        event_filter: EventFilter,
        media: str,
        after: int | None,
        status: JobStatus | None = None,
    ) -> None:
        charset = "; charset=utf-8" if media == SSE else ""
        super().__init__(headers=STREAM_HEADERS, media_type=None)
        del self.headers["content-length"]
        self.headers["content-type"] = media + charset
        self._call = call
        self._broadcaster = broadcaster
        self._filter = event_filter
        self._media = media
        self._after = after
        self._status = status
        self._sent = after or 0  # all up to here has been sent
        self._lifetime = min(
            broadcaster.settings.events_life,
            math.inf if call.query.stay is None else call.query.stay,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        try:
            admit(self._call)  # others may have come while this one was looked up
        except RequestRefused as full:
            await problems.problem_response(full)(scope, receive, send)
            return
        with self._broadcaster.subscription(
            self._filter, self._media, self._call.who.token
        ) as subscriber:
            async with self._call.while_allowed() as revoked:
                reason = await self._run_until_end(subscriber, revoked, receive, send)
        if reason != "gone":
            last_frame = (
                frames.cut_frame(reason, self._sent).encoded(self._media) if reason else b""
            )
            await send_final(last_frame, scope, receive, send)

    async def _run_until_end(
        self, subscriber: Subscriber, revoked: asyncio.Event, receive: Receive, send: Send
    ) -> str:
        """Why it ended; nothing to say, if all was said."""
        reason, failed = await race(
            self._send(subscriber, send),
            {
                "gone": disconnected(receive),
                "token": revoked.wait(),
                "closing": self._broadcaster.closing.wait(),
                "life": asyncio.sleep(self._lifetime),
            },
        )
        return reason or self._end_reason(failed)

    def _end_reason(self, failed: BaseException | None) -> str:
        match failed:
            case None:
                return ""
            case ClientStalled():
                self._broadcaster.counts["cut"] += 1
                return "slow"
            case StoreError() | TimeoutError():
                return "unavailable"
            case OSError():
                return "gone"
            case _:
                raise failed

    async def _send(self, subscriber: Subscriber, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        timeout = self._broadcaster.settings.events_stall
        await send_with_timeout(timeout, send(start))
        replay = Replay(self._broadcaster, subscriber, self._after, self._status)
        async with aclosing(replay.chunks()) as chunks:
            async for part in chunks:
                if part:
                    await send_with_timeout(timeout, send(body_message(part, more=True)))
                self._sent = subscriber.position
