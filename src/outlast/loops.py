"""Loops: a schedule plus one pass that a test can call, with back-off and a clean stop.

    loop = Loop("mailbox", read_mails, every=30)      # the pass is a function, sync or async
    loop.run()                                        # or: await loop.arun()
    loop.stop()                                       # from any thread, task or signal handler

A failed pass is counted, logged and retried later: 1 s after the first failure, then with growing
pauses up to 30 s, with jitter, so that a returning server is not met by a stampede. A success
resets the pause. A loop ends only when it is stopped. The worker's own loops use this class.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import cast

from .model.errors import InvalidOption, OutlastError
from .model.options import seconds
from .model.task_function import is_async

__all__ = ["Backoff", "Loop"]

log = logging.getLogger("outlast.loops")

RECONNECT_EVERY_S = 1.85  # maximum seconds between attempts of a watch in an outage
MAX_EXPONENT = 20  # a server may be unavailable for a year


def _span(option: str, value: float | timedelta) -> float:
    if (span := seconds(option, value)) is None:
        raise InvalidOption(option=option, reason="must be a number of seconds")
    return span


def _until_next(returned: object) -> float | None:
    """The return value of a pass: the seconds until the next one, if it says so."""
    if isinstance(returned, timedelta):
        returned = returned.total_seconds()
    if returned is None or (isinstance(returned, int | float) and math.isfinite(returned)):
        return returned
    reason = f"must return None or the seconds until the next pass, not {returned!r:.80}"
    raise InvalidOption(option="once", reason=reason)


class Backoff:
    """The wait after the n-th failure in a row: `first` seconds, then `factor` times as long each
    time, up to `cap`; up to a third less, by jitter."""

    _least = 0.7  # of a wait, by jitter

    def __init__(
        self,
        first: float | timedelta = 1.0,
        cap: float | timedelta = 30.0,
        factor: float = 2.5,
    ) -> None:
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not factor >= 1.0:
            raise InvalidOption(
                option="factor", reason=f"must be a number from 1 on, not {factor!r:.80}"
            )
        self.first, self.cap, self.factor = _span("first", first), _span("cap", cap), factor
        self.failures = 0

    def failed(self) -> float:
        """Count a failure; returns the seconds to wait."""
        plain = min(self.cap, self.first * self.factor ** min(self.failures, MAX_EXPONENT))
        self.failures += 1
        return plain * random.uniform(self._least, 1.0)

    def succeeded(self) -> None:
        """Reset: the next failure is the first one again."""
        self.failures = 0


class ReconnectBackoff(Backoff):
    """Of the one connection that finds out when the database is back and ends all other waits: two
    quick tries, then steady ones. At most 12 in 20 s, and none that is later than 2 s."""

    _least = 0.97

    def __init__(self) -> None:
        super().__init__(first=0.02, cap=RECONNECT_EVERY_S, factor=20.0)


class Loop:
    """Runs `once` every `every` seconds (a little sooner, by jitter), or when triggered, until
    stopped.

    `once` may return a number: the seconds until its next run. A pass that is meant to last (a
    watch, a long poll) and did so for `stable_after` seconds has succeeded, although it failed in
    the end; `every` is 0 then.
    """

    def __init__(
        self,
        name: str,
        once: Callable[[], float | None] | Callable[[], Awaitable[float | None]],
        every: float | timedelta,
        backoff: Backoff | None = None,
        stable_after: float | timedelta | None = None,
    ) -> None:
        if not callable(once):
            raise InvalidOption(option="once", reason=f"must be a function, not {once!r:.80}")
        self.name = name
        self.every = _span("every", every)
        self.passes = 0
        self.failures = 0
        self.succeeded_at = time.monotonic()
        # Called after a failed pass, with the seconds until the next one; true: it was reported,
        # and is not logged as a warning.
        self.on_failure: Callable[[Exception, float], object] = lambda error, wait: False
        self.on_success: Callable[[], object] = lambda: None
        self._once = once
        self._is_async = is_async(once)
        self._backoff = backoff or Backoff()
        stable = seconds("stable_after", stable_after)
        self._stable_after = self._backoff.cap if stable is None else stable
        self._stopped = False
        self._event_loop: asyncio.AbstractEventLoop | None = None  # while it runs in one
        self._woken = asyncio.Event()
        # Unlike an Event, it can be used by a signal handler that has interrupted its own wait.
        self._wakeups: SimpleQueue[None] = SimpleQueue()

    def run(self) -> None:
        """Run in this thread until stopped."""
        while not self._stopped:
            self._pause(self.step())

    async def arun(self) -> None:
        """Run in this event loop until stopped. A sync pass runs in a thread."""
        self._event_loop = asyncio.get_running_loop()
        try:
            while not self._stopped:
                await self._apause(await self.astep())
        finally:
            self._event_loop = None

    def step(self) -> float:
        """Run one pass, whatever happens in it; returns the seconds to wait before the next."""
        if self._is_async:
            raise InvalidOption(
                option="once", reason=f"of {self.name} is async: await arun() or astep()"
            )
        with self._pass() as made:
            made.next_in = cast("Callable[[], float | None]", self._once)()
        return made.wait

    async def astep(self) -> float:
        with self._pass() as made:
            done = self._once() if self._is_async else await asyncio.to_thread(self._once)
            made.next_in = (await done) if isinstance(done, Awaitable) else done
        return made.wait

    def trigger(self) -> None:
        """Run the next pass now. From any thread, task or signal handler."""
        if (running := self._event_loop) is None:
            self._wakeups.put(None)
            return
        with suppress(RuntimeError):  # that event loop is closed
            running.call_soon_threadsafe(self._woken.set)

    def retry_now(self) -> None:
        """Run the next pass now if the last one failed. As safe as `trigger`."""
        if self._backoff.failures:
            self.trigger()

    def stop(self) -> None:
        """End after the current pass, and without a further pause. As safe as `trigger`."""
        self._stopped = True
        self.trigger()

    @property
    def stopped(self) -> bool:
        return self._stopped

    @contextmanager
    def _pass(self) -> Iterator[_Pass]:
        self.passes += 1
        made, began = _Pass(), time.monotonic()
        try:
            yield made
            next_in = _until_next(made.next_in)
        except Exception as error:
            made.wait = self._failed(error, time.monotonic() - began)
            return
        self._backoff.succeeded()
        self.succeeded_at = time.monotonic()
        self.on_success()
        jittered = self.every * random.uniform(0.8, 1.0)
        made.wait = jittered if next_in is None else next_in

    def _failed(self, error: Exception, lasted: float) -> float:
        if lasted > self._stable_after:
            self._backoff.succeeded()
        self.failures += 1
        wait = self._backoff.failed()
        bug = not isinstance(error, OutlastError)  # its traceback helps more than its message
        level = logging.DEBUG if self.on_failure(error, wait) else logging.WARNING
        log.log(level, "%s failed (%s); next try in %.1f s", self.name, error, wait, exc_info=bug)
        return wait

    def _pause(self, wait: float) -> None:
        with suppress(Empty):
            if not self._stopped:
                self._wakeups.get(timeout=max(0.0, wait))
        with suppress(Empty):
            while True:
                self._wakeups.get_nowait()

    async def _apause(self, wait: float) -> None:
        if wait > 0 and not self._stopped:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._woken.wait()
        self._woken.clear()


class _Pass:
    """The wait that one pass requested, and the seconds to wait after it."""

    next_in: float | None = None
    wait: float = 0.0
