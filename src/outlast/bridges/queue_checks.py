"""Checks of the queue of a source's task: room for jobs, and sufficient retention of keys."""

from __future__ import annotations

import time

from ..model.errors import InvalidOption
from ..ops.bridges import room_of
from ..ops.retention import queue_retentions
from .inbox import Inbox

ROOM_KNOWN_S = 1.0  # for which a count of the queue is trusted


class QueueChecks:
    """Checks the queue of one source's task at intervals."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._room: int | None = None
        self._room_at = -ROOM_KNOWN_S
        self._kept = False

    async def room(self) -> int | None:
        """The number of ready jobs that the queue may still accept; None: any number."""
        now = time.monotonic()
        stale = now - self._room_at >= ROOM_KNOWN_S
        if stale or (self._room is not None and self._room <= 0):
            self._room = await self._inbox.app.store.arun(room_of, self._inbox.queue)
            self._room_at = now
        return self._room

    def took(self, jobs: int) -> None:
        """Note the number of inserted jobs."""
        if self._room is not None:
            self._room -= jobs

    async def check_retention(self) -> None:
        """Check the retention of the queue, which an operator may have shortened."""
        if self._kept:
            return
        inbox = self._inbox
        kept = dict(await inbox.app.store.arun(queue_retentions))
        keep = kept.get(inbox.queue)
        if keep is not None and keep < inbox.redelivery:
            reason = (
                f"{inbox.name!r} may redeliver for {inbox.redelivery:g} s, and the queue"
                f" {inbox.queue!r} keeps ended jobs for {keep:g} s: outlast keep"
                f" {inbox.queue} --undo"
            )
            raise InvalidOption(option="source", reason=reason)
        self._kept = True
