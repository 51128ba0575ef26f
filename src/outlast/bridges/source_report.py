"""Report of a process about a source, in the database, for display and metrics."""

from __future__ import annotations

from contextlib import suppress

from ..model.errors import OutlastError
from ..ops.bridges import SOURCE, BridgeReport, report_bridges
from .description import description
from .inbox import Inbox
from .insertion import InsertedMessages

REPORT_INTERVAL_S = 5.0


class SourceReporter:
    """Counts the messages of one source, and stores the counts."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._first = True
        self._received = self._stored = self._undecodable = 0  # since the last report
        self.totals = {"received": 0, "stored": 0, "undecodable": 0}

    @property
    def unreported(self) -> int:
        """Messages since the last report."""
        return self._received

    def count(self, received: int, inserted: InsertedMessages) -> None:
        self._received += received
        self._stored += inserted.new
        self._undecodable += inserted.undecodable

    async def report(self, error: str | None, lag: int | None = None) -> None:
        """Add the counts to the table; after a failure, the next report includes them."""
        inbox = self._inbox
        received, stored, undecodable = self._received, self._stored, self._undecodable
        report = BridgeReport(
            SOURCE, inbox.name, description(inbox.source), inbox.definition.name, (inbox.queue,),
            received, stored, undecodable, lag, error,
        )  # fmt: skip
        with suppress(OutlastError):
            await inbox.app.store.arun(report_bridges, [report], first=self._first)
            self._first = False
            self.totals["received"] += received
            self.totals["stored"] += stored
            self.totals["undecodable"] += undecodable
            self._received -= received
            self._stored -= stored
            self._undecodable -= undecodable
