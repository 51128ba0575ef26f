"""Waiting for results: however many wait in a process, one thread asks for all of them.

Each is asked for at once, then soon, then ever more calmly, and once more when its time is up.
Whoever is nearly due is asked for with whoever is: a thousand waiters cost two questions a second.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any

from .model.errors import (
    Contention,
    DeadlineExceeded,
    JobCancelled,
    JobDead,
    JobNotFound,
    ResultTimeout,
    StoreBusy,
    StoreUnavailable,
)
from .model.lifecycle import State
from .model.outcome import reason
from .ops import report
from .store import Store, forks

Ended = tuple[State | None, Any, Any] | None  # None: there is no such job

SOONEST, LATEST = 0.02, 1.0  # seconds between questions about one job
PATIENCE = 0.5  # seconds beyond a timeout that the last question may take
AWAY = (StoreUnavailable, StoreBusy, Contention, DeadlineExceeded)


class Waiter:
    """One caller who waits for one job."""

    def __init__(self, id: str, timeout: float | None) -> None:
        self.id = id
        self.future: Future[Ended] = Future()
        self.seen: Ended = (None, None, None)  # how the job stood when we last asked
        self.came_at = self.ask_at = time.monotonic()
        self.deadline = math.inf if timeout is None else self.came_at + max(0.0, timeout)

    def pace(self, now: float) -> float:
        """Seconds between questions, by how long it has waited."""
        return min(LATEST, max(SOONEST, (now - self.came_at) / 2))

    def answer(self, ended: Ended) -> bool:
        """False: it has to wait on."""
        self.seen = ended
        over = ended is None or ended[0] is None or ended[0].final
        if not over and time.monotonic() < self.deadline:
            return False
        with suppress(InvalidStateError):  # it has just given up
            self.future.set_result(ended)
        return True

    def fail(self, error: Exception) -> None:
        with suppress(InvalidStateError):
            self.future.set_exception(error)

    def wait_on(self, now: float) -> None:
        self.ask_at = now + self.pace(now)
        if now < self.deadline < self.ask_at:
            self.ask_at = self.deadline


class Waiting:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._begin()
        forks.mind(self)

    def _begin(self) -> None:
        self._lock = threading.Condition()
        self._waiters: set[Waiter] = set()
        self._thread: threading.Thread | None = None

    def make_way(self) -> None: ...

    def before_fork(self) -> None: ...

    def after_fork_here(self) -> None: ...

    def after_fork_in_child(self) -> None:
        self._begin()  # whoever waits, waits in the parent

    def wait(self, id: str, timeout: float | None) -> Ended:
        waiter = self._join(id, timeout)
        try:
            return waiter.future.result(None if timeout is None else timeout + PATIENCE)
        except FutureTimeout:
            return waiter.seen
        finally:
            self._leave(waiter)

    async def await_(self, id: str, timeout: float | None) -> Ended:
        waiter = self._join(id, timeout)
        try:
            async with asyncio.timeout(None if timeout is None else timeout + PATIENCE):
                return await asyncio.wrap_future(waiter.future)
        except TimeoutError:
            return waiter.seen
        finally:
            self._leave(waiter)

    def close(self) -> None:
        with self._lock:
            left, self._waiters = self._waiters, set()
            thread, self._thread = self._thread, None
            self._lock.notify_all()
        for waiter in left:
            waiter.fail(StoreUnavailable(reason="it was closed here"))
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)

    def _join(self, id: str, timeout: float | None) -> Waiter:
        waiter = Waiter(id, timeout)
        with self._lock:
            self._waiters.add(waiter)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._ask, name="outlast-results", daemon=True
                )
                self._thread.start()
            self._lock.notify_all()
        return waiter

    def _leave(self, waiter: Waiter) -> None:
        with self._lock:
            self._waiters.discard(waiter)

    def _ask(self) -> None:
        while due := self._due():
            try:
                found = self._store.run(report.ended, sorted({waiter.id for waiter in due}))
            except AWAY:
                over = []  # the next question may reach it
            except Exception as error:
                over = due
                for waiter in due:
                    waiter.fail(error)
            else:
                over = [waiter for waiter in due if waiter.answer(found.get(waiter.id))]
            self._go_on(due, over)

    def _go_on(self, due: list[Waiter], over: list[Waiter]) -> None:
        now = time.monotonic()
        for waiter in due:
            waiter.wait_on(now)
        with self._lock:
            self._waiters.difference_update(over)

    def _due(self) -> list[Waiter]:
        """Whom to ask for, as soon as it is time; nobody, when nobody waits any more."""
        me = threading.current_thread()
        with self._lock:
            while self._waiters and self._thread is me:
                now = time.monotonic()
                next_at = min(waiter.ask_at for waiter in self._waiters)
                if next_at <= now:
                    return [w for w in self._waiters if w.ask_at <= now + w.pace(now) / 2]
                self._lock.wait(next_at - now)
            if self._thread is me:
                self._thread = None
        return []


def outcome_of(id: str, ended: Ended, timeout: float | None) -> Any:
    """A result, or the error that says why there is none."""
    if ended is None:
        raise JobNotFound(job=id)
    state, result, error = ended
    if state is State.SUCCEEDED:
        return result
    if state is State.DEAD:
        raise JobDead(job=id, reason=reason(error))
    if state is State.CANCELLED:
        raise JobCancelled(job=id, reason=reason(error))
    raise ResultTimeout(job=id, timeout=timeout, state=state or "not known, the database is away")
