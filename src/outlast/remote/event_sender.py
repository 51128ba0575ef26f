"""Event sender: sends events and streamed output to the server, through a spool on disk."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from ..model.claim import Claim, ClaimKey
from ..model.errors import InvalidOption
from ..model.stream import STREAM
from ..protocol import MAX_CALL_BYTES, MAX_EVENT_LENGTH, MAX_REPORTS, AnswerFields, encode_event
from ..worker.shared import WorkerShared
from ..worker.stream_buffers import StreamBuffers
from .session import RemoteSession

log = logging.getLogger("outlast.worker")


class QueuedEvent(NamedTuple):
    """An encoded event, and its end in the spool."""

    text: str
    end: int
    output_of: ClaimKey | None  # the claim that streamed it, if it is output


class EventSender:
    """Sends events. `send` sends items to the server, and returns its responses. `renew_now` is
    called when a response says that a claim is lost."""

    def __init__(
        self,
        session: RemoteSession,
        shared: WorkerShared,
        send: Callable[[Sequence[str]], Awaitable[list[AnswerFields]]],
        renew_now: Callable[[], None],
        stream_limit: int,
    ) -> None:
        self._session = session
        self._counts = shared.metrics.counts
        self._send = send
        self._renew_now = renew_now
        self._queued: deque[QueuedEvent] = deque()
        self._queue_lock = threading.Lock()
        self._sending = asyncio.Lock()
        self._next_number: dict[ClaimKey, int] = {}  # of the next event of each claim
        self._streams = StreamBuffers(stream_limit, shared.in_flight.has, self._add_row)

    def __len__(self) -> int:
        """The number of items to send now."""
        return len(self._queued) + (self._streams.due_in() <= 0.0)

    def due_in(self) -> float:
        """Seconds until streamed output is to be sent; infinite if none waits."""
        return self._streams.due_in()

    def add(self, claim: Claim, kind: str, data: str, n: int | None = None) -> bool:
        """From any thread: write an event to disk, then queue it. Chunks of output gather until
        they are due."""
        if kind == STREAM and n is None:
            return self._streams.add(claim, data)
        if len(data) > MAX_EVENT_LENGTH:
            reason = f"is {len(data):,} characters long; at most {MAX_EVENT_LENGTH:,} can be sent"
            raise InvalidOption(option="event", reason=reason)
        self._queue(claim, kind, data, n)
        return True

    def _queue(self, claim: Claim, kind: str, data: str, n: int | None) -> None:
        # Unique numbers, in the order of the file: otherwise the acknowledgement of one event could
        # include another that was not sent.
        with self._queue_lock:
            if n is None:
                n = self._next_number.get(claim.claim_key, 0)
            self._next_number[claim.claim_key] = n + 1
            text = encode_event(self._session.token(claim), n, kind, data)
            end = self._session.spool.append(text.encode())
            if end is None:
                self._counts["events_dropped"] += 1
            else:
                output_of = claim.claim_key if kind == STREAM else None
                self._queued.append(QueuedEvent(text, end, output_of))

    def _add_row(self, claim: Claim, data: str, first: bool) -> None:
        self._queue(claim, STREAM, data, None)

    def end(self, claim: Claim) -> None:
        """The claim has ended: its streamed output is sent with the next flush."""
        self._streams.seal_all(claim, last=True)

    def forget(self, hold: ClaimKey) -> None:
        self._next_number.pop(hold, None)

    async def flush(self) -> None:
        if not self._queued:  # otherwise the server is slow: let chunks gather
            self._streams.seal_due()
        await self._send_all()

    async def send_output(self, claim: Claim) -> None:
        """Send all output of a claim; returns when the server has it."""
        self._streams.seal_all(claim)
        if any(event.output_of == claim.claim_key for event in tuple(self._queued)):
            await self._send_all()

    async def _send_all(self) -> None:
        """Send all queued events; unacknowledged ones stay queued."""
        if self._queued:
            async with self._sending:  # one at a time: by the worker's loop, or by steps
                await self._send_queued()

    async def _send_queued(self) -> None:
        while self._queued:
            batch = [self._queued[0]]
            size = len(batch[0].text)
            for event in list(self._queued)[1:MAX_REPORTS]:
                size += len(event.text)
                if size > MAX_CALL_BYTES:
                    break
                batch.append(event)
            for answer in await self._send([event.text for event in batch]):
                self._apply_answer(answer)
                self._queued.popleft()
            self._session.spool.acknowledge(batch[-1].end)

    def _apply_answer(self, answer: AnswerFields) -> None:
        """Apply the response for an event. A refused event is not sent again."""
        if answer["status"] == "ok":
            return
        self._counts["events_dropped"] += 1
        if answer["status"] == "lost":
            log.info("an event is dropped: its claim is lost")
            self._renew_now()  # a renewal finds all lost claims, and stops their jobs
        else:
            log.warning("an event cannot be stored: %s", answer["reason"])
