"""Waiting for results: however many wait in a process, one thread asks for all of them."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from .model.errors import JobCancelled, JobDead, JobNotFound, ResultTimeout, StoreError
from .model.lifecycle import State
from .model.outcome import reason
from .ops import report
from .store import Store

Ended = tuple[State, Any, Any] | None  # None: there is no such job

SOONEST, LATEST = 0.02, 1.0  # seconds between questions: soon after somebody comes, then calmer


class Waiting:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Condition()
        self._waiters: dict[str, list[Future[Ended]]] = defaultdict(list)
        self._thread: threading.Thread | None = None
        self._pace = SOONEST

    def wait(self, id: str, timeout: float | None) -> Ended:
        future = self._join(id)
        try:
            return future.result(timeout)
        except FutureTimeout:
            return self._store.run(report.ended, [id]).get(id)
        finally:
            self._leave(id, future)

    async def await_(self, id: str, timeout: float | None) -> Ended:
        future = self._join(id)
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            return (await self._store.arun(report.ended, [id])).get(id)
        finally:
            self._leave(id, future)

    def close(self) -> None:
        with self._lock:
            self._waiters.clear()
            thread, self._thread = self._thread, None
            self._lock.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)

    def _join(self, id: str) -> Future[Ended]:
        future: Future[Ended] = Future()
        with self._lock:
            self._waiters[id].append(future)
            self._pace = SOONEST
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._ask, name="outlast-results", daemon=True
                )
                self._thread.start()
            self._lock.notify_all()
        return future

    def _leave(self, id: str, future: Future[Ended]) -> None:
        with self._lock:
            if future in self._waiters.get(id, ()):
                self._waiters[id].remove(future)
                if not self._waiters[id]:
                    del self._waiters[id]

    def _ask(self) -> None:
        while True:
            with self._lock:
                if not self._waiters:
                    self._thread = None
                    return
                ids = list(self._waiters)
            self._answer(ids)
            with self._lock:
                if self._waiters and self._thread is not None:
                    self._lock.wait(self._pace)
                    self._pace = min(LATEST, self._pace * 1.5)

    def _answer(self, ids: list[str]) -> None:
        try:
            found = self._store.run(report.ended, ids)
        except StoreError:
            return  # the database is away: the next question may reach it
        with self._lock:
            for id in ids:
                ended = found.get(id)
                if ended is None or ended[0].final:
                    for future in self._waiters.pop(id, ()):
                        if not future.done():
                            future.set_result(ended)


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
    raise ResultTimeout(job=id, timeout=timeout, state=state)
