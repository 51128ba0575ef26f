"""What every verb has: the store, who acts, and a word to those who work there."""

from __future__ import annotations

import getpass
import os
import socket
from contextlib import suppress
from uuid import UUID

from .model.errors import JobNotFound, StoreError
from .ops.enqueue import CANCEL_SIGNAL, wake
from .store import Store

ANYWHERE = ""  # no queue in particular: look


class Connected:
    store: Store

    def _wake(self, words: list[str]) -> None:
        """It only makes things faster, so it may fail."""
        if words and self.store.wakes:
            with suppress(StoreError):
                self.store.run(wake, self.store.channel, words)

    async def _awake(self, words: list[str]) -> None:
        if words and self.store.wakes:
            with suppress(StoreError):
                await self.store.arun(wake, self.store.channel, words)

    def _tell_owners(self) -> None:
        """Something that runs should stop, and something may have become ready."""
        self._wake([CANCEL_SIGNAL, ANYWHERE])

    async def _atell_owners(self) -> None:
        await self._awake([CANCEL_SIGNAL, ANYWHERE])


def actor() -> str:
    """Who acts, for the record."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"


def job_id(id: str) -> str:
    """A job id in its one spelling; anything else names no job."""
    try:
        return str(UUID(str(id)))
    except ValueError:
        raise JobNotFound(f"{id!r:.80} is not a job id", job=id) from None
