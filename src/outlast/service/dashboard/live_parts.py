"""A part of a page as a stream of server-sent events, sent again whenever it changes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, ExitStack, aclosing

from starlette.types import Send

from ...model.errors import OutlastError
from ...protocol import SSE
from ..request import RequestContext
from ..streaming import (
    GONE,
    ClientStalled,
    ServerSentEvents,
    StreamResponse,
    sse_event,
    sse_retry,
)

RECONNECT_AFTER_S = 2.0

Parts = Callable[[], AsyncGenerator[str, None]]


class PartStream(StreamResponse):
    """A stream of HTML versions from `parts`; an empty version only keeps the stream alive. The
    context `viewing` is open as long as the stream."""

    def __init__(
        self,
        call: RequestContext,
        parts: Parts,
        viewing: AbstractContextManager[None] | None = None,
    ) -> None:
        super().__init__(call, SSE, call.service.settings.events_life)
        self._service = call.service
        self._parts = parts
        self._viewing = viewing

    def acquire(self, held: ExitStack) -> None:
        held.enter_context(self._service.viewers.slot(self._call.who))
        if self._viewing is not None:
            held.enter_context(self._viewing)

    async def send_chunks(self, send: Send) -> None:
        await self.send_chunk(send, sse_retry(RECONNECT_AFTER_S))
        async with aclosing(self._parts()) as parts:
            async for part in parts:
                chunk = sse_event(part, event="part") if part else ServerSentEvents.keep_alive
                await self.send_chunk(send, chunk)

    def end_reason(self, error: BaseException | None) -> str:
        if isinstance(error, OSError):
            return GONE
        if error is not None and not isinstance(error, OutlastError | ClientStalled):
            raise error
        return ""  # browsers reconnect

    def last_frame(self, reason: str) -> bytes:
        return sse_event("token", event="over") if reason == "token" else b""
