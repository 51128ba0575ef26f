"""The connection budget of a process: one limit for all of its threads and event loops.

A connection belongs to one pool: that of the threads, or that of an event loop. The budget counts
A connection belongs to one pool: that of the threads, or that of an event loop. The budget counts
the open connections of all pools, idle ones, too. A pool that needs one gets, in this order, an
idle connection of its own, a new one if the budget allows it, or the place of another pool's idle
connection, which is closed. Otherwise it waits, first come, first served, threads and loops alike.
Since handing a place to another pool costs a new connection, a returned connection goes to the

    claim ──▶ Grant(link)            an idle connection of this pool
          ──▶ Grant(None)            a place: connect
          ──▶ Grant(None, evicted)   a place: close another pool's connection there, then connect
          ──▶ None                   all are in use: wait in line

Places of event loops that ended without closing their connections are reclaimed.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakSet

from ...model.errors import StoreBusy

SERVE_EVERY_S = 0.25  # interval at which a waiter checks for ended event loops
HANDOVER_S = 0.1  # time in which waiters that need no new connection go first

# After a fork: the parent's connections, neither used nor closed here. Closing one would end the
# parent's session.
_INHERITED: list[Any] = []


class PoolMember:
    """A pool as the budget sees it. The budget's lock guards `idle` and `places`."""

    def __init__(self) -> None:
        self.idle: list[Any] = []  # last returned, first lent
        self.connections = 0  # idle, lent, or being opened
        self.in_use: set[Any] = set()

    def finish(self) -> None:
        """Close the sockets of an ended event loop, including those that were in use."""
        for link in (*self.idle, *self.in_use):
            link.pgconn.finish()
        self.idle, self.in_use, self.connections = [], set(), 0

    @property
    def ended(self) -> bool:
        """Whether its event loop is closed: its connections will never be returned."""
        return False

    @property
    def serving(self) -> bool:
        """Whether a place granted to it now would be used."""
        return True


@dataclass(slots=True)
class Grant:
    """A place in the budget, and the connection in it."""

    lender: PoolMember
    link: Any = None  # an idle connection, to be used
    evicted: Any = None  # another pool's idle connection, to be closed first
    spare: bool = False  # beyond the budget: closed after use

    def vacate(self) -> None:
        link, self.evicted = self.evicted, None
        if link is not None:
            link.pgconn.finish()  # idle, so its own event loop is not needed


class BudgetWaiter:
    """A waiting thread or asyncio task. `wake` may be called from any thread."""

    def __init__(self, lender: PoolMember, wake: Callable[[], object]) -> None:
        self.lender = lender
        self.wake = wake
        self.grant: Grant | None = None
        self.since = time.monotonic()

    def received(self) -> Grant:
        assert self.grant is not None
        return self.grant


class ConnectionBudget:
    """Open connections of one process: at most `size`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._pid = os.getpid()
        self._lock = threading.Lock()
        # Threads that hold the lock, or are about to: a signal handler may interrupt one there, and
        # would wait for itself.
        self._holders: set[int] = set()
        self._open = 0
        self._queue: deque[BudgetWaiter] = deque()
        self._members: WeakSet[PoolMember] = WeakSet()
        # Appended without the lock: places of collected pools, and pending returns.
        self._collected: deque[int] = deque()
        self._returns: deque[Callable[[], None]] = deque()

    @property
    def inherited(self) -> bool:
        """Whether this is a copy in a forked child: then it counts the parent's connections."""
        return self._pid != os.getpid()

    def join(self, lender: PoolMember) -> None:
        with self._locked():
            self._members.add(lender)

    def claim(self, lender: PoolMember) -> Grant | None:
        """A place at once, unless others wait for one. A signal handler that has interrupted its
        own thread at this lock gets an extra one."""
        if (me := threading.get_ident()) in self._holders:
            return self.extra_grant(lender)
        self._holders.add(me)
        try:
            with self._lock:  # as `_locked`, without its cost
                if self._queue or self._collected:
                    self._serve()
                    if any(waiter.lender.serving for waiter in self._queue):
                        return None
                return self._grant(lender)
        finally:
            self._holders.discard(me)
            if self._returns:
                self._apply_pending()

    def extra_grant(self, lender: PoolMember) -> Grant:
        """A place beyond the budget, for one call."""
        return Grant(lender, spare=True)

    def uses(self, lender: PoolMember) -> bool:
        """Whether a pool has connections in use, or waits for some."""
        with self._locked():
            return lender.connections > len(lender.idle) or any(
                waiter.lender is lender for waiter in self._queue
            )

    def enqueue(self, waiter: BudgetWaiter) -> None:
        with self._locked():
            self._queue.append(waiter)
            self._serve()

    @contextmanager
    def queued(self, waiter: BudgetWaiter) -> Iterator[None]:
        """Keep the waiter in line while the block waits for its grant."""
        self.enqueue(waiter)
        try:
            yield
            if waiter.grant is None:
                raise StoreBusy(reason=f"all {self.size} connections of this process are in use")
        except BaseException:
            self._dequeue(waiter)
            raise

    def serve(self) -> None:
        """Reclaim the places of ended event loops, and grant free ones."""
        with self._locked():
            self._serve()

    def _dequeue(self, waiter: BudgetWaiter) -> None:
        """Remove a waiter that gave up; its grant goes to the next."""
        if self.inherited:
            _INHERITED.append(waiter)
            return
        self._returns.append(partial(self._leave, waiter))
        self._apply_pending()

    def release(self, grant: Grant, link: object) -> None:
        """Return a place, with its connection if that is reusable."""
        if self.inherited:
            _INHERITED.append(link)
            return
        self._returns.append(partial(self._release, grant, link))
        self._apply_pending()

    def empty(self, lender: PoolMember) -> list[Any]:
        """Remove a pool's idle connections, which the caller closes."""
        if self.inherited:
            _INHERITED.extend(lender.idle)
            lender.idle, lender.connections = [], 0
            return []
        with self._locked():
            links, lender.idle = lender.idle, []
            lender.connections -= len(links)
            self._open -= len(links)
            self._serve()
        return links

    def collected(self, lender: PoolMember) -> None:
        """Close a pool during garbage collection, possibly while this thread holds the lock."""
        if self.inherited:
            _INHERITED.extend((*lender.idle, *lender.in_use))
        else:
            places, lender.connections = lender.connections, 0
            self._collected.append(places)
            lender.finish()

    def forget_inherited(self) -> None:
        """In a forked child: keep the parent's connections from being closed here."""
        for lender in list(self._members):
            _INHERITED.extend((*lender.idle, *lender.in_use))
            lender.idle, lender.connections = [], 0

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if (me := threading.get_ident()) in self._holders:
            yield  # in a signal handler
            return
        self._holders.add(me)
        try:
            with self._lock:
                yield
        finally:
            self._holders.discard(me)
            self._apply_pending()

    def _apply_pending(self) -> None:
        """Apply pending returns, or leave them to the holder of the lock, which applies them
        afterwards. The holder may be this very thread: the garbage collector ends coroutines of a
        closed event loop at any point, and waiting for the lock there would deadlock."""
        if (me := threading.get_ident()) in self._holders:
            return
        self._holders.add(me)
        try:
            while self._returns and self._lock.acquire(blocking=False):
                try:
                    while self._returns:
                        self._returns.popleft()()
                finally:
                    self._lock.release()
        finally:
            self._holders.discard(me)

    # With the lock held

    def _leave(self, waiter: BudgetWaiter) -> None:
        if waiter in self._queue:
            self._queue.remove(waiter)
        grant, waiter.grant = waiter.grant, None
        if grant is not None:
            grant.vacate()
            self._release(grant, grant.link)

    def _release(self, grant: Grant, link: Any) -> None:
        lender = grant.lender
        if grant.spare or not lender.connections:  # or its loop's places were reclaimed
            if link is not None:
                link.pgconn.finish()
            return
        if link is not None:
            lender.idle.append(link)
        else:
            lender.connections -= 1
            self._open -= 1
        if self._queue:
            self._serve()

    def _serve(self) -> None:
        self._reclaim_places()
        while (waiter := self._first()) is not None:
            grant = self._grant(waiter.lender)
            if grant is None:
                return
            self._queue.remove(waiter)
            waiter.grant = grant
            self._wake(waiter)

    def _first(self) -> BudgetWaiter | None:
        """The next waiter: the first in line or, while that one is new, the first whose own pool
        has an idle connection."""
        waiting = self._waiting()
        first = next(waiting, None)
        if first is None or first.lender.idle or self._open < self.size:
            return first
        idle = {lender for lender in self._members if lender.idle}
        if not idle or time.monotonic() - first.since > HANDOVER_S:
            return first
        return next((waiter for waiter in waiting if waiter.lender in idle), first)

    def _waiting(self) -> Iterator[BudgetWaiter]:
        for waiter in tuple(self._queue):
            if waiter.lender.ended:
                self._queue.remove(waiter)
            elif waiter.lender.serving:
                yield waiter

    def _wake(self, waiter: BudgetWaiter) -> None:
        try:
            waiter.wake()
        except RuntimeError:  # its loop has just closed: its places are reclaimed next time
            waiter.grant = None

    def _reclaim_places(self) -> None:
        while self._collected:
            self._open -= self._collected.popleft()
        for lender in self._ended():
            self._open -= lender.connections
            lender.finish()

    def _ended(self) -> Iterator[PoolMember]:
        return (lender for lender in list(self._members) if lender.connections and lender.ended)

    def _grant(self, lender: PoolMember) -> Grant | None:
        if lender.idle:
            return Grant(lender, lender.idle.pop())
        if self._open < self.size:
            self._open += 1
            lender.connections += 1
            return Grant(lender)
        self._reclaim_places()
        if self._open < self.size:
            return self._grant(lender)
        other = max(self._members, key=lambda other: len(other.idle))
        if not other.idle:
            return None
        other.connections -= 1
        lender.connections += 1
        return Grant(lender, evicted=other.idle.pop(0))
