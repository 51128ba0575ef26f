"""The demo itself: enqueue, work, kill, check. Without output."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from ..client.client import Outlast
from ..model.job import Job
from ..verify.ledger import Ledger
from ..verify.workspace import Workspace, WorkspaceFactory, cleaned_up, temporary_url
from .check import DemoVerdict, judge
from .fleet import Fleet
from .tasks import DemoTasks

KILL_INTERVAL_S = 1.0  # seconds
POLL_INTERVAL_S = 0.2
BATCH = 500


@dataclass(frozen=True)
class DemoProgress:
    """The current state."""

    seconds: float
    enqueued: int
    succeeded: int
    running: int
    unfinished: int
    kills: int
    workers: list[int]
    killed: int | None = None  # the process killed just now


Watch = Callable[[DemoProgress], None]
Beside = Callable[[Workspace], AbstractContextManager[object]]


@dataclass(frozen=True)
class DemoPlan:
    jobs: int = 3000
    workers: int = 4
    limit: float = 300.0  # seconds after which an unfinished job counts as stuck


@contextmanager
def run_demo(
    plan: DemoPlan, url: str | None, watch: Watch, beside: Beside = nullcontext
) -> Iterator[tuple[DemoVerdict, str]]:
    """Run the demo; yields the verdict and the end of the workers' log, while `beside` still runs
    on its database."""
    workspaces = WorkspaceFactory(url or temporary_url(), "outlast", "demo")
    with cleaned_up(workspaces.remove):
        workspace = workspaces.next()
        with Outlast(workspace.url, schema=workspace.schema) as ol:
            ol.migrate()
            with beside(workspace):
                yield _run(plan, ol, Fleet(workspace), Ledger(workspace.ledger_file), watch)


def _run(
    plan: DemoPlan, ol: Outlast, fleet: Fleet, ledger: Ledger, watch: Watch
) -> tuple[DemoVerdict, str]:
    began_at = time.monotonic()
    try:
        ids = _enqueue(ol, DemoTasks(ol, ledger), plan.jobs)
        for _ in range(plan.workers):
            fleet.start()
        _wait(ol, fleet, plan, watch, began_at)
        seconds = time.monotonic() - began_at
    finally:
        fleet.stop()
    return judge(ids, _all_jobs(ol), ledger.read(), fleet.kills, seconds), fleet.log_tail()


def _enqueue(ol: Outlast, tasks: DemoTasks, count: int) -> list[str]:
    """Acknowledged jobs: from now on, none of these may be lost."""
    ids: list[str] = []
    for first in range(0, count, BATCH):
        calls = [tasks.call(n) for n in range(first, min(count, first + BATCH))]
        ids += [job.id for job in ol.enqueue(*calls)]
    return ids


def _wait(ol: Outlast, fleet: Fleet, plan: DemoPlan, watch: Watch, began_at: float) -> None:
    """Until no work is left, kill a busy worker every second."""
    kill_at = time.monotonic() + KILL_INTERVAL_S
    while True:
        counts, now = ol.counts(), time.monotonic()
        unfinished = sum(counts[state] for state in ("waiting", "scheduled", "ready", "running"))
        killed = None
        if unfinished and now >= kill_at:
            killed = fleet.kill(busy_pids(ol))
            kill_at = now + KILL_INTERVAL_S if killed else kill_at
        watch(
            DemoProgress(
                now - began_at, plan.jobs, counts["succeeded"], counts["running"], unfinished,
                len(fleet.kills), fleet.pids, killed,
            )
        )  # fmt: skip
        if not unfinished or now - began_at > plan.limit:
            return
        fleet.replace_the_dead()
        time.sleep(POLL_INTERVAL_S)


def busy_pids(ol: Outlast) -> set[int]:
    """The processes with running jobs. A worker's registration is updated only when it renews,
    which is too rare for processes that live for seconds."""
    owners = {job.worker for job in ol.jobs(state="running", limit=1000)}
    return {worker.pid for worker in ol.workers() if worker.id in owners}


def _all_jobs(ol: Outlast) -> Iterator[Job]:
    last = None
    while page := ol.jobs(before=last, limit=1000):
        yield from page
        last = page[-1].id
