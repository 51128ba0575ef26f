"""The answer to a request that follows events: it is sent until somebody ends it.

Whoever ends it and however (the job, the client, a stalled line, a revoked token, the server's own
shutdown, the first frame that could not be sent), its seat is given back: it is held by a `with`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...model.errors import StoreError
from ...ops.events import Standing
from ..calls import Call
from ..hanging_up import HANG_UP
from . import frames
from .feeder import Feeder
from .frames import SSE
from .story import Story
from .subscriber import Subscriber
from .wanted import Wanted

HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
LAST_WORD = 1.0  # seconds that the last word may take


class Stalled(Exception):
    """The client takes nothing any more."""


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
        with self._feeder.seat(self._wanted, self._media, self._call.who.token) as subscriber:
            async with self._call.while_allowed() as over:
                reason = await self._until_it_ends(subscriber, over, receive, send)
        if reason != "gone":
            said = frames.cut(reason, self._sent).spelled(self._media) if reason else b""
            await _say_last(said, scope, receive, send)

    async def _until_it_ends(
        self, subscriber: Subscriber, over: asyncio.Event, receive: Receive, send: Send
    ) -> str:
        """Why it ended; nothing to say, if all was said."""
        sending = asyncio.create_task(self._send(subscriber, send))
        enders = {
            sending: "",
            asyncio.create_task(_gone(receive)): "gone",
            asyncio.create_task(over.wait()): "token",
            asyncio.create_task(self._feeder.closing.wait()): "closing",
            asyncio.create_task(asyncio.sleep(self._life)): "life",
        }
        try:
            await asyncio.wait(enders, return_when=asyncio.FIRST_COMPLETED)
            reason = next(enders[task] for task in enders if task.done())
        finally:
            for task in enders:
                task.cancel()
            await asyncio.gather(*enders, return_exceptions=True)
        return reason or self._why(sending.exception())

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
        await _patiently(patience, send(start))
        story = Story(self._feeder, subscriber, self._after, self._standing)
        async with aclosing(story.told()) as told:
            async for part in told:
                if part:
                    await _patiently(patience, send(_body(part, more=True)))
                self._sent = subscriber.position


def _body(part: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": part, "more_body": more}


async def _patiently(seconds: float, sent: Awaitable[None]) -> None:
    try:
        await _within(seconds, sent)
    except TimeoutError:
        raise Stalled from None


async def _within(seconds: float, sent: Awaitable[None]) -> None:
    async with asyncio.timeout(seconds):
        await sent


async def _say_last(said: bytes, scope: Scope, receive: Receive, send: Send) -> None:
    """The last word, if it can be said; else the line is cut."""
    try:
        await _within(LAST_WORD, send(_body(said, more=False)))
    except TimeoutError:  # before its parent OSError
        if hang_up := scope.get("extensions", {}).get(HANG_UP):
            hang_up()
            await _gone(receive)  # the server has learned of it
    except OSError:
        pass  # it has gone


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
