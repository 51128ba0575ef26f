"""Wait for results: one thread polls for all callers of a process.

A job is polled at once, then at growing intervals, and a last time at its timeout. Jobs that are
nearly due are polled together: a thousand waiters cost two queries a second.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress

from ..model.errors import (
    Contention,
    DeadlineExceeded,
    JobCancelled,
    JobDead,
    JobNotFound,
    ResultTimeout,
    StoreBusy,
    StoreUnavailable,
)
from ..model.lifecycle import State
from ..model.outcome import reason
from ..ops import report
from ..store import Store, forks

JobEnd = tuple[State | None, object, object] | None  # None: no such job

MIN_POLL_S, MAX_POLL_S = 0.02, 1.0  # seconds between polls for one job
ANSWER_GRACE_S = 0.5  # seconds that the last poll may take beyond a timeout
TRANSIENT = (StoreUnavailable, StoreBusy, Contention, DeadlineExceeded)


class ResultWaiter:
    """One caller that waits for one job."""

    def __init__(self, id: str, timeout: float | None) -> None:
        self.id = id
        self.future: Future[JobEnd] = Future()
        self.seen: JobEnd = (None, None, None)  # state of the job at the last poll
        self.started_at = self.next_poll_at = time.monotonic()
        self.deadline = math.inf if timeout is None else self.started_at + max(0.0, timeout)

    def pace(self, now: float) -> float:
        """Seconds until the next poll, by how long the caller has waited."""
        return min(MAX_POLL_S, max(MIN_POLL_S, (now - self.started_at) / 2))

    def answer(self, ended: JobEnd) -> bool:
        """Deliver the end of the job; False: it has not ended."""
        self.seen = ended
        over = ended is None or ended[0] is None or ended[0].final
        if not over and time.monotonic() < self.deadline:
            return False
        with suppress(InvalidStateError):  # the caller has just given up
            self.future.set_result(ended)
        return True

    def fail(self, error: Exception) -> None:
        with suppress(InvalidStateError):
            self.future.set_exception(error)

    def schedule_next(self, now: float) -> None:
        self.next_poll_at = now + self.pace(now)
        if now < self.deadline < self.next_poll_at:
            self.next_poll_at = self.deadline


class ResultPoller:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._reset()
        forks.register(self)

    def _reset(self) -> None:
        self._lock = threading.Condition()
        self._waiters: set[ResultWaiter] = set()
        self._thread: threading.Thread | None = None

    def close_borrowed(self) -> None: ...

    def before_fork(self) -> None: ...

    def after_fork_here(self) -> None: ...

    def after_fork_in_child(self) -> None:
        self._reset()  # the waiters are in the parent process

    def wait(self, id: str, timeout: float | None) -> JobEnd:
        if self._store.thread_bound:
            return self._wait_here(ResultWaiter(id, timeout))
        waiter = self._add(id, timeout)
        try:
            return waiter.future.result(None if timeout is None else timeout + ANSWER_GRACE_S)
        except FutureTimeout:
            return waiter.seen
        finally:
            self._remove(waiter)

    async def await_(self, id: str, timeout: float | None) -> JobEnd:
        if self._store.thread_bound:
            return await self._await_here(ResultWaiter(id, timeout))
        waiter = self._add(id, timeout)
        try:
            async with asyncio.timeout(None if timeout is None else timeout + ANSWER_GRACE_S):
                return await asyncio.wrap_future(waiter.future)
        except TimeoutError:
            return waiter.seen
        finally:
            self._remove(waiter)

    def _wait_here(self, waiter: ResultWaiter) -> JobEnd:
        """Poll in the caller's thread, whose connection the store uses."""
        while not waiter.answer(self._store.run(report.ended, [waiter.id]).get(waiter.id)):
            now = time.monotonic()
            time.sleep(max(0.0, min(waiter.pace(now), waiter.deadline - now)))
        return waiter.seen

    async def _await_here(self, waiter: ResultWaiter) -> JobEnd:
        while not waiter.answer((await self._store.arun(report.ended, [waiter.id])).get(waiter.id)):
            now = time.monotonic()
            await asyncio.sleep(max(0.0, min(waiter.pace(now), waiter.deadline - now)))
        return waiter.seen

    def close(self) -> None:
        with self._lock:
            left, self._waiters = self._waiters, set()
            thread, self._thread = self._thread, None
            self._lock.notify_all()
        for waiter in left:
            waiter.fail(StoreUnavailable(reason="the client was closed"))
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)

    def _add(self, id: str, timeout: float | None) -> ResultWaiter:
        waiter = ResultWaiter(id, timeout)
        with self._lock:
            self._waiters.add(waiter)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._poll, name="outlast-results", daemon=True
                )
                self._thread.start()
            self._lock.notify_all()
        return waiter

    def _remove(self, waiter: ResultWaiter) -> None:
        with self._lock:
            self._waiters.discard(waiter)

    def _poll(self) -> None:
        while due := self._due():
            try:
                found = self._store.run(report.ended, sorted({waiter.id for waiter in due}))
            except TRANSIENT:
                over = []  # the next poll may succeed
            except Exception as error:
                over = due
                for waiter in due:
                    waiter.fail(error)
            else:
                over = [waiter for waiter in due if waiter.answer(found.get(waiter.id))]
            self._reschedule(due, over)

    def _reschedule(self, due: list[ResultWaiter], over: list[ResultWaiter]) -> None:
        now = time.monotonic()
        for waiter in due:
            waiter.schedule_next(now)
        with self._lock:
            self._waiters.difference_update(over)

    def _due(self) -> list[ResultWaiter]:
        """The waiters to poll for, when it is time; None when none is left."""
        me = threading.current_thread()
        with self._lock:
            while self._waiters and self._thread is me:
                now = time.monotonic()
                next_at = min(waiter.next_poll_at for waiter in self._waiters)
                if next_at <= now:
                    return [w for w in self._waiters if w.next_poll_at <= now + w.pace(now) / 2]
                self._lock.wait(next_at - now)
            if self._thread is me:
                self._thread = None
        return []


def outcome_of(id: str, ended: JobEnd, timeout: float | None) -> object:
    """The result, or the error that explains its absence."""
    if ended is None:
        raise JobNotFound(job=id)
    state, result, error = ended
    if state is State.SUCCEEDED:
        return result
    if state is State.DEAD:
        raise JobDead(job=id, reason=reason(error))
    if state is State.CANCELLED:
        raise JobCancelled(job=id, reason=reason(error))
    raise ResultTimeout(
        job=id, timeout=timeout, state=state or "unknown: the database is unavailable"
    )
