"""Base of campaigns with one workspace, in which load and faults run concurrently."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ..checks.checker import Violation
from ..checks.judge import judge, settle
from ..children import ChildExit
from ..faults.own_postgres import OwnDatabase
from ..faults.points import FaultPoint
from ..ledger import Tail
from ..process_group import ProcessGroup
from ..results import CampaignResults
from ..workload import Workload
from ..workspace import Workspace
from .campaign import Campaign, CampaignOptions, prepare

POLL_INTERVAL_S = 0.005  # seconds
END_LABEL = "the end"  # where what the judge finds is put down
EXIT_WAIT_S = 120.0  # seconds for all who were asked to go, on a machine that has much else to do
JUDGE_TIMEOUT_S = 120.0  # seconds that the judge may take to read everything at once


class LongCampaign(Campaign):
    """`act` does it; afterwards all that is left is settled and judged. It may have a database of
    its own, which is started before and gone afterwards."""

    def __init__(
        self,
        options: CampaignOptions,
        on_progress: Callable[[CampaignResults], None] = lambda _: None,
        *,
        database: OwnDatabase | None = None,
    ) -> None:
        self.database = database
        super().__init__(replace(options, url=database.url) if database else options, on_progress)
        if database:
            self.results.url = database.label

    def campaign(self) -> None:
        if self.database is None:
            self._whole()
        else:
            self._whole_on(self.database)

    def _whole_on(self, database: OwnDatabase) -> None:
        try:
            database.make()
            database.start(self.children, self.poll)
            self._whole()
        finally:
            database.end(self.children.poll)

    def clean_up(self) -> None:
        if self.database is None:
            super().clean_up()
            return
        self.results.close()
        if not self.options.keep:
            self.workspaces.remove_folder()  # the schemas go with their database
            self.database.remove()

    def _whole(self) -> None:
        self.workspace = self.workspaces.next()
        self.children.run_all(partial(prepare, self.work, self.workspace))
        self.work.use_prepared(self.workspace)
        self.tail = Tail(self.work.ledger)
        self.drive()
        self._judge()

    @abstractmethod
    def drive(self) -> None:
        """All that goes on, until there is enough of it."""

    def poll(self) -> None:
        """Notice what has happened meanwhile; never for long, never in vain."""
        if self._stops:
            raise KeyboardInterrupt
        self.children.poll()
        self.on_progress(self.results)
        time.sleep(POLL_INTERVAL_S)

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether it became true in time."""
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                return False
            self.poll()
        return True

    def process_group(self, name: str, body: Callable[[int], object]) -> ProcessGroup:
        return ProcessGroup(
            self.children, name, body, partial(self.results.add_violation, name, name)
        )

    def wait_for_exit(self, *groups: ProcessGroup) -> None:
        """Wait for those that were told to go."""
        if not self.wait_for(
            lambda: not any(group.expected_signals for group in groups), EXIT_WAIT_S
        ):
            for group in groups:
                for pid in group.expected_signals:
                    message = f"{group.name} {pid} was told to go, and is still there"
                    self.results.add_violation(group.name, group.name, message)

    def _judge(self) -> None:
        ends: list[ChildExit] = []
        self.children.start(partial(settle_and_judge, self.work, self.workspace), ends.append)
        while not ends:
            self.poll()
        self.record_verdict(self.workspace, {}, ends[0])

    def _record_violation(self, labels: dict[str, FaultPoint], violation: Violation) -> None:
        self.results.add_violation(END_LABEL, END_LABEL, str(violation))


def run_worker(work: Workload, settings: dict[str, Any], number: int) -> None:
    """In a child: a worker, for as long as it may live."""
    faulthandler.cancel_dump_traceback_later()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # until it has begun
    work.ol.worker(**settings).run()


def settle_and_judge(work: Workload, workspace: Workspace) -> None:
    """In a child: settle what is left, and judge."""
    faulthandler.cancel_dump_traceback_later()
    store = work.ol.store
    store.settings = replace(
        store.settings, statement_timeout=JUDGE_TIMEOUT_S, deadline=JUDGE_TIMEOUT_S
    )
    asyncio.run(settle(work.ol))
    judge(work).write(workspace.verdict_file)
