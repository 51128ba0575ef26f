"""Long poll: one response with the next jobs, for workers that cannot hold a stream open.

    request ──▶ jobs found, or `wait` is over ──▶ response ──▶ accepted, by renewals
                 │                                 └──▶ not accepted in time: released, unspent
                 └──▶ the client disconnects before: released at once, unspent

Offers, tokens, leases, credit and limits are those of a stream. Between two polls, renewals of its
jobs show that a worker is alive.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Literal

from pydantic import BaseModel, Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...model.claim import Claim
from ...model.errors import OutlastError
from ...protocol import offer_frames
from .. import problems
from ..problems import RequestRefused, Unauthorised
from ..request import RequestContext
from ..streaming import JsonLines, body_message, disconnected
from .stream import WorkerStream

log = logging.getLogger("outlast.service")


class DequeuedJobs(BaseModel):
    """The response to a poll."""

    worker: str = Field(description="your name in the server's tables")
    lease: float = Field(description="seconds a job is yours after each renewal")
    offer_lease: float = Field(description="seconds in which the jobs must be accepted")
    type: Literal["jobs"]
    renew: bool = Field(description="renew now: a cancel was requested for a job")
    jobs: list[dict[str, object]] = Field(description="as in the frame `offers` of the stream")


class LongPollResponse(Response):
    """A response that waits for jobs. Jobs that it cannot deliver are released at once."""

    def __init__(self, call: RequestContext, stream: WorkerStream, wait: float) -> None:
        self.background = None
        self.status_code = 200
        self._call, self._stream, self._wait = call, stream, wait

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as held:
            try:
                held.enter_context(self._call.service.worker_streams.slot(self._call.who))
                undelivered = held.enter_context(ExitStack())
                undelivered.callback(self._stream.close)
                if await self._answer(receive, send):
                    undelivered.pop_all()
                    self._delivered()
            except (RequestRefused, OutlastError) as error:
                await problems.problem_response(error)(scope, receive, send)

    async def _answer(self, receive: Receive, send: Send) -> bool:
        """Wait for jobs and send them; returns whether the response was sent."""
        async with self._call.while_allowed() as revoked:
            polling = asyncio.create_task(self._stream.next_claims_for_poll(self._wait))
            gone = asyncio.create_task(disconnected(receive))
            shown_out = asyncio.create_task(revoked.wait())
            every = {polling, gone, shown_out}
            try:
                await asyncio.wait(every, return_when=asyncio.FIRST_COMPLETED)
                if shown_out.done():
                    raise Unauthorised("this token is no longer valid")
                return not gone.done() and await self._send(polling.result(), send)
            finally:
                for task in every:
                    task.cancel()
                await asyncio.gather(*every, return_exceptions=True)

    async def _send(self, claims: Sequence[Claim], send: Send) -> bool:
        """Send jobs, unless the client does not read for the time of an offer."""
        body = self._body(claims)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
        ]
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        try:
            async with asyncio.timeout(self._stream.dispatcher.service_settings.offer_lease):
                await send(start)
                await send(body_message(body, more=False))
        except TimeoutError:
            log.warning("%s does not read the response to its poll", self._stream.worker)
            return False
        return True

    def _body(self, claims: Sequence[Claim]) -> bytes:
        stream = self._stream
        terms = stream.dispatcher.service_settings
        frames = offer_frames(claims, stream.sign)
        answer = {
            "type": "jobs",
            "worker": stream.worker,
            "lease": terms.remote_lease,
            "offer_lease": terms.offer_lease,
            "renew": stream.renewal_due,
            "jobs": [job for frame in frames for job in frame["jobs"]],
        }
        return JsonLines().write(answer)

    def _delivered(self) -> None:
        """Keep the jobs offered for their lease."""
        stream = self._stream
        dispatcher, waiting = stream.dispatcher, bool(stream.unaccepted())
        dispatcher.streams.discard(stream)
        dispatcher.polling.polled(stream, unaccepted=waiting)
        if waiting:
            dispatcher.spawn(close_when_accepted(stream))
        else:
            stream.close()


async def close_when_accepted(stream: WorkerStream) -> None:
    """Close an answered poll when its jobs are accepted or the offers have lapsed."""
    try:
        while (left := stream.unaccepted()) and not stream.ending:
            seconds = min(offer.expires_at or 0.0 for offer in left) - time.monotonic()
            if seconds <= 0:
                stream.dispatcher.counts["lapsed"] += len(left)
                break
            await stream.change(seconds)
    finally:
        stream.close()
