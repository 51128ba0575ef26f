"""Session of a broker: an open sink or source, from its first use until its last user leaves."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from ..model.errors import InvalidOption
from ..model.safe_text import error_summary

log = logging.getLogger("outlast.bridges")

CLOSE_WAIT_S = 5.0


class Openable(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


B = TypeVar("B", bound=Openable)


def session_of(bridge: B, name: str) -> BrokerSession[B]:
    """The session of a bridge: all outboxes, sources and workers that use the object share it."""
    known = _SESSIONS.get(id(bridge))
    if known is None:
        known = _SESSIONS[id(bridge)] = BrokerSession(bridge, name)
    return known


class BrokerSession(Generic[B]):
    """An open sink or source, shared by all its users in one event loop: several workers, outboxes,
    or an outbox and a source. After a failure it is closed; the next use opens it again."""

    def __init__(self, bridge: B, name: str) -> None:
        self.bridge = bridge
        self._name = name
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None  # in which it is open
        self._lock: asyncio.Lock | None = None
        self._lock_loop: asyncio.AbstractEventLoop | None = None

    def enter(self) -> None:
        """Add a worker as a user."""
        self._users += 1

    async def leave(self) -> None:
        """Remove a worker as a user; the last one closes the session."""
        self._users -= 1
        if self._users <= 0:
            await self.close()

    async def opened(self) -> B:
        """The connected bridge."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return self.bridge
        async with self._turn(loop):
            if self._loop is not loop:
                await self._open(loop)
        return self.bridge

    def _turn(self, loop: asyncio.AbstractEventLoop) -> asyncio.Lock:
        """The lock that serializes opening and closing."""
        if self._lock is None or self._lock_loop is not loop:
            if self._lock_loop is not None and self._lock_loop.is_running():
                reason = f"of {self._name} is in use in another event loop: give each its own"
                raise InvalidOption(option="bridge", reason=reason)
            self._lock, self._lock_loop = asyncio.Lock(), loop
            self._loop = None  # it was open in a closed loop
        return self._lock

    async def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            await self.bridge.open()
        except BaseException:
            await self._close()
            raise
        self._loop = loop

    async def close(self) -> None:
        """Disconnect, if it is open here; the next use connects again."""
        loop = asyncio.get_running_loop()
        if self._lock_loop is not loop:
            return
        async with self._turn(loop):
            if self._loop is loop:
                self._loop = None
                await self._close()
        if self._users <= 0:
            self._lock = self._lock_loop = None

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_WAIT_S):
                await self.bridge.close()
        except Exception as error:
            log.debug("%s: closing failed: %s", self._name, error_summary(error))


# By the identity of the bridge, which its session keeps alive.
_SESSIONS: WeakValueDictionary[int, BrokerSession[Any]] = WeakValueDictionary()
