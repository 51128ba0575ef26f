"""Wake-up: interrupts the waits of a worker, from any thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress


class Wakeup:
    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()
        self._is_set = False  # a copy of the event's state, cheaper to check per job
        self._resumed = asyncio.Event()

    def open(self) -> None:
        """Bind to the running event loop."""
        self.loop = asyncio.get_running_loop()

    def call_soon(self, action: Callable[..., object], *args: object) -> None:
        """From any thread: call a function in the worker's loop."""
        if self.loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nothing is left to call
                self.loop.call_soon_threadsafe(action, *args)

    def set(self) -> None:
        """Interrupt a pause: there may be work."""
        if not self._is_set:
            self._is_set = True
            self._event.set()

    def end_wait(self) -> None:
        """Interrupt the wait after a failure: a retry is worthwhile."""
        self._resumed.set()

    async def wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._is_set = False
        self._event.clear()

    async def wait_out_failure(self, seconds: float, stopping: bool) -> None:
        """Wait after a failure: only a stop, or the return of the database, interrupts it."""
        if stopping:
            await asyncio.sleep(min(seconds, 0.1))  # retry often: shutdown has a deadline
            return
        self._resumed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._resumed.wait()
