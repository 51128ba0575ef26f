"""Insertion of the jobs of messages, each once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from ..model.errors import StoreError
from ..model.job import NewJob
from ..model.message import Message
from ..model.safe_text import error_summary
from .inbox import Inbox

InsertJobs = Callable[[list[NewJob]], Awaitable[set[str]]]  # durable when it returns


class InsertedMessages(NamedTuple):
    """The numbers of messages that were new and that were undecodable."""

    new: int
    undecodable: int


class MessageInserter:
    """Inserts the jobs of one source's messages."""

    def __init__(self, inbox: Inbox, insert_jobs: InsertJobs) -> None:
        self._inbox = inbox
        self._insert_jobs = insert_jobs

    async def insert(
        self, messages: Sequence[Message], made: Sequence[tuple[NewJob, bool]] | None = None
    ) -> InsertedMessages:
        """Insert the jobs of messages; `made`: the jobs, if `jobs_of` was called before."""
        made = self.jobs_of(messages) if made is None else made
        undecodable = sum(not fits for _, fits in made)
        try:
            new = await self._insert_jobs([job for job, _ in made])
            return InsertedMessages(len(new), undecodable)
        except StoreError as error:
            if not error.refused:
                raise
        # One of them is at fault, and must not delay the others.
        return await self._insert_singly(messages)

    def jobs_of(self, messages: Sequence[Message]) -> list[tuple[NewJob, bool]]:
        """The job of each message, and whether the message could be decoded."""
        limit = self._inbox.app.max_args_bytes
        return [self._inbox.job(message, limit) for message in messages]

    async def _insert_singly(self, messages: Sequence[Message]) -> InsertedMessages:
        limit = self._inbox.app.max_args_bytes
        new = undecodable = 0
        for message in messages:
            job, fits = self._inbox.job(message, limit)
            try:
                new += len(await self._insert_jobs([job]))
            except StoreError as error:
                if not error.refused:
                    raise
                problem = f"the database refused it: {error_summary(error)}"
                refused, fits = self._inbox.refused_job(message, problem, limit), False
                new += len(await self._insert_jobs([refused]))
            undecodable += not fits
        return InsertedMessages(new, undecodable)
