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

from ..checks.checker import Violation
from ..checks.judge import judge, settle
from ..children import ChildExit
from ..faults.own_postgres import OwnDatabase
from ..faults.points import FaultPoint
from ..ledger import Tail
from ..process_group import ProcessGroup
from ..results import CampaignResults
from ..worker_settings import CampaignWorkerOptions
from ..workload import Workload
from ..workspace import Workspace
from .campaign import Campaign, CampaignOptions, prepare

POLL_INTERVAL_S = 0.005  # seconds
END_LABEL = "the end"  # label of the checker's findings
EXIT_WAIT_S = 120.0  # seconds for stopping processes on a busy machine
JUDGE_TIMEOUT_S = 120.0  # seconds for the checker to read everything


class LongCampaign(Campaign):
    """A campaign in one workspace: `drive` runs it; then the remaining jobs settle and are checked.
    It may have its own database, which is started before and removed afterwards."""

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
            self.workspaces.remove_folder()  # the schemas are removed with their database
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
        """Run all activity until the goal is reached."""

    def poll(self) -> None:
        """Process events without blocking for long."""
        if self._stops:
            raise KeyboardInterrupt
        self.children.poll()
        self.on_progress(self.results)
        time.sleep(POLL_INTERVAL_S)

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for a condition; returns whether it became true in time."""
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
        """Wait for processes that were asked to stop."""
        if not self.wait_for(
            lambda: not any(group.expected_signals for group in groups), EXIT_WAIT_S
        ):
            for group in groups:
                for pid in group.expected_signals:
                    message = f"{group.name} {pid} was asked to stop, and is still running"
                    self.results.add_violation(group.name, group.name, message)

    def _judge(self) -> None:
        ends: list[ChildExit] = []
        self.children.start(partial(settle_and_judge, self.work, self.workspace), ends.append)
        while not ends:
            self.poll()
        self.record_verdict(self.workspace, {}, ends[0])

    def _record_violation(self, labels: dict[str, FaultPoint], violation: Violation) -> None:
        self.results.add_violation(END_LABEL, END_LABEL, str(violation))


def run_worker(work: Workload, settings: CampaignWorkerOptions, number: int) -> None:
    """In a child: a worker, until it is stopped."""
    faulthandler.cancel_dump_traceback_later()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # until it has started
    work.ol.worker(**settings).run()


def settle_and_judge(work: Workload, workspace: Workspace) -> None:
    """In a child: settle the remaining jobs, and check."""
    faulthandler.cancel_dump_traceback_later()
    store = work.ol.store
    store.settings = replace(
        store.settings, statement_timeout=JUDGE_TIMEOUT_S, deadline=JUDGE_TIMEOUT_S
    )
    asyncio.run(settle(work.ol))
    judge(work).write(workspace.verdict_file)
