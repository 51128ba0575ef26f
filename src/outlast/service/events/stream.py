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
from ...ops.events import Standing
from .. import problems
from ..calls import Call
from ..lasting import HEADERS, Stalled, body, first_to_end, gone, patiently, say_last
from ..problems import Refused, Unavailable
from . import frames
from .feeder import Feeder
from .frames import SSE
from .story import Story
from .subscriber import Subscriber
from .wanted import Wanted


def room(call: Call) -> Feeder:
    """Who may seat one more; else the caller is told to come again."""
    feeder = call.service.events
    if feeder.closing.is_set():
        raise Unavailable("the server is going away", wait=5.0)
    feeder.refuse_beyond_limits(call.who)
    return feeder


class EventStream(Response):
    def __init__(
        self,
        call: Call,
        feeder: Feeder,
        wanted: Wanted,
        media: str,
        after: int | None,
        standing: Standing | None = None,
    ) -> None:
        charset = "; charset=utf-8" if media == SSE else ""
        super().__init__(headers=HEADERS, media_type=None)
        del self.headers["content-length"]
        self.headers["content-type"] = media + charset
        self._call = call
        self._feeder = feeder
        self._wanted = wanted
        self._media = media
        self._after = after
        self._standing = standing
        self._sent = after or 0  # all up to here has been sent
        self._life = min(
            feeder.settings.events_life, math.inf if call.query.stay is None else call.query.stay
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        try:
            room(self._call)  # others may have come while this one was looked up
        except Refused as full:
            await problems.answer(full)(scope, receive, send)
            return
        with self._feeder.seat(self._wanted, self._media, self._call.who.token) as subscriber:
            async with self._call.while_allowed() as over:
                reason = await self._until_it_ends(subscriber, over, receive, send)
        if reason != "gone":
            said = frames.cut(reason, self._sent).spelled(self._media) if reason else b""
            await say_last(said, scope, receive, send)

    async def _until_it_ends(
        self, subscriber: Subscriber, over: asyncio.Event, receive: Receive, send: Send
    ) -> str:
        """Why it ended; nothing to say, if all was said."""
        reason, failed = await first_to_end(
            self._send(subscriber, send),
            {
                "gone": gone(receive),
                "token": over.wait(),
                "closing": self._feeder.closing.wait(),
                "life": asyncio.sleep(self._life),
            },
        )
        return reason or self._why(failed)

    def _why(self, failed: BaseException | None) -> str:
        match failed:
            case None:
                return ""
            case Stalled():
                self._feeder.counts["cut"] += 1
                return "slow"
            case StoreError() | TimeoutError():
                return "unavailable"
            case OSError():
                return "gone"
            case _:
                raise failed

    async def _send(self, subscriber: Subscriber, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        patience = self._feeder.settings.events_stall
        await patiently(patience, send(start))
        story = Story(self._feeder, subscriber, self._after, self._standing)
        async with aclosing(story.told()) as told:
            async for part in told:
                if part:
                    await patiently(patience, send(body(part, more=True)))
                self._sent = subscriber.position
