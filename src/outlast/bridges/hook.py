"""A webhook source in a service: stores a verified message as a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model.job import NewJob
from ..model.message import Message
from ..model.safe_text import error_summary
from .http import Http
from .inbox import Inbox
from .insertion import InsertJobs, MessageInserter
from .queue_checks import QueueChecks
from .signatures import SignedHead
from .source_report import SourceReporter


class Hook:
    """Receives the webhooks of one source."""

    def __init__(self, inbox: Inbox, http: Http, insert_jobs: InsertJobs) -> None:
        self.name = inbox.name
        self.http = http
        self._inserter = MessageInserter(inbox, insert_jobs)
        self._queue = QueueChecks(inbox)
        self._reporter = SourceReporter(inbox)
        self._error: str | None = None  # of the last message

    @property
    def unreported(self) -> int:
        """Messages since the last report."""
        return self._reporter.unreported

    def verified(
        self, head: SignedHead, headers: Mapping[str, str], body: bytes
    ) -> tuple[Message, list[tuple[NewJob, bool]]]:
        """The message of a request and its job; raises `WebhookRefused` if it is not the
        sender's."""
        message = self.http.message(head, headers, body)
        return message, self._inserter.jobs_of([message])

    async def store(self, message: Message, made: Sequence[tuple[NewJob, bool]]) -> bool:
        """Commit the job of a message, once; returns False if the queue has no room."""
        try:
            await self._queue.check_retention()
            room = await self._queue.room()
            if room is not None and room <= 0:
                return False
            inserted = await self._inserter.insert([message], made)
        except Exception as error:
            self._error = error_summary(error)
            raise
        self._error = None
        self._reporter.count(1, inserted)
        self._queue.took(inserted.new)
        return True

    async def report(self) -> None:
        await self._reporter.report(self._error)
