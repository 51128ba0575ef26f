"""`outlast verify failover --async`: commits are lost, and two primaries run side by side.

    cut       the standby is disconnected; jobs that both servers have are claimed at the primary
    split     the standby is promoted, and half of the workers connect to it: they claim the same
              jobs under the same fences, while the other half continue at the old primary
    die       the old primary is stopped: its workers report their outcomes to the new one
    rebuild   the old primary comes back as the standby of the new one

The surviving history is that of the current primaries, up to the cut and from the promotion on. In
it, no claim may be accepted for two owners, and every remaining job must have ended. Lost
acknowledged jobs are counted: asynchronous replication loses them.
"""

from __future__ import annotations

import asyncio
import faulthandler
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from ..checks.checker import (
    history_violations,
    leftover_rows,
    orphaned_jobs,
    partial_batches,
    unfinished_jobs,
)
from ..checks.evidence import Evidence, collect
from ..checks.judge import Verdict, settle
from ..faults.standby import ReplicaNode, ReplicaPair
from ..results import CampaignResults
from ..worker_settings import CampaignWorkerOptions
from ..workload import Workload
from ..workspace import Workspace
from .accepted_outcomes import LostCommits, duplicate_owners, run_watched_worker
from .campaign import CampaignOptions
from .failover import Failover
from .long_campaign import JUDGE_TIMEOUT_S

CONTESTED_QUEUE = "contested"  # the queue whose jobs both sides claim
JOBS_PER_FAILOVER = 60
JOB_RANGE_S = (0.3, 2.5)  # duration of such a job
SPLIT_RANGE_S = (0.4, 1.2)  # seconds with two primaries
SIDES = ("left", "right")  # names of connections; each prefers one server


class SplitBrain(Failover):
    columns = ("failovers", "enqueued", "lost", "contested", "refused")
    worker_settings: ClassVar[CampaignWorkerOptions] = {"lease": 6.0, "renew_every": 2.0}
    jobs_per_second = 80.0
    drain_within_s = 5.0  # lost acknowledged jobs never start

    def __init__(
        self,
        options: CampaignOptions,
        on_progress: Callable[[CampaignResults], None] = lambda _: None,
    ) -> None:
        self.pair = ReplicaPair()
        super().__init__(options, on_progress, cluster=self.pair)

    def start_load(self) -> None:
        self.lost: list[LostCommits] = []
        self.urls = {side: self._url(side, node) for side, node in self._preferred().items()}
        self.other_workers = self.process_group("right", self._body("right"))
        super().start_load()
        self.other_workers.start_missing(self.options.at_once or self.default_workers)

    def worker_body(self) -> Callable[[int], object]:
        return self._body("left")

    def _body(self, side: str) -> Callable[[int], object]:
        return partial(run_watched_worker, self.work, self.urls[side], self.worker_settings)

    def _preferred(self) -> dict[str, ReplicaNode]:
        return dict(zip(SIDES, self.pair.nodes, strict=True))

    def _url(self, side: str, node: ReplicaNode) -> str:
        return self.pair.url_of(node, application_name=side)

    # One failover

    def attach_standby(self) -> None:
        """Nothing to do: the standby follows the primary by itself."""

    def crash_and_resume(self) -> None:
        pair, old = self.pair, self.pair.primary
        self.keep_working(0.3, 1.0)
        self._run_at(old, prepare_contest)
        cut_at = time.monotonic()  # the standby has everything up to here
        pair.wait_caught_up(self.read_ledger)
        pair.cut()
        self._run_at(old, begin_contest)
        self.keep_working(*SPLIT_RANGE_S)
        pair.promote()
        self._disconnect_from(old)
        self._run_at(pair.primary, begin_contest)
        self.keep_working(*SPLIT_RANGE_S)
        old.crash(self.read_ledger)
        self.lost.append(LostCommits(old.port, cut_at, time.monotonic()))
        self.read_ledger()
        self.backlog.waiting.clear()  # some of these are lost
        pair.rebuild(self.children, self.read_ledger)

    def _run_at(self, node: ReplicaNode, action: Callable[[Workload], object]) -> None:
        """In a child: run an action on one of the servers."""
        workspace = replace(self.workspace, url=node.url)
        self.children.run_all(partial(run_at, self.work, workspace, action))

    def _disconnect_from(self, old: ReplicaNode) -> None:
        """Close the connections to the old primary of workers that prefer the new one."""
        (side,) = (side for side, node in self._preferred().items() if node is not old)
        query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        old.query(f"{query} WHERE application_name = '{side}'")

    # The end

    def drain(self, *others: Any) -> None:
        super().drain(self.other_workers, *others)

    def judge_body(self) -> Callable[[], object]:
        return partial(judge_survivors, self.work, self.workspace, tuple(self.lost))

    def examine(self, verdict: Verdict) -> None:
        if not verdict.facts["contested"]:
            message = "no job was claimed twice under one fence: this run proves nothing"
            self.results.add_violation("load", "load", message)


def run_at(work: Workload, workspace: Workspace, action: Callable[[Workload], object]) -> None:
    work.use_prepared(workspace)
    action(work)
    work.ol.close()


def prepare_contest(work: Workload) -> None:
    """Enqueue jobs that are not claimed yet."""
    work.ol.pause(CONTESTED_QUEUE)
    least, most = JOB_RANGE_S
    spans = [least + (most - least) * n / JOBS_PER_FAILOVER for n in range(JOBS_PER_FAILOVER)]
    task = work.naps.using(queue=CONTESTED_QUEUE)
    for job in work.ol.enqueue(*(task.job(seconds=seconds) for seconds in spans)):
        work.ledger.write("promised", job.id, 0, ["succeeded"])


def begin_contest(work: Workload) -> None:
    work.ol.resume(CONTESTED_QUEUE)


# The checker


def judge_survivors(work: Workload, workspace: Workspace, lost: Sequence[LostCommits]) -> None:
    """In a child: settle the remaining jobs, and check the surviving history."""
    faulthandler.cancel_dump_traceback_later()
    store = work.ol.store
    store.settings = replace(
        store.settings, statement_timeout=JUDGE_TIMEOUT_S, deadline=JUDGE_TIMEOUT_S
    )
    work.ol.resume(CONTESTED_QUEUE)
    asyncio.run(settle(work.ol))
    evidence = collect(store, work.ledger.read(), workspace.business_rows())
    work.ol.close()
    rules = (unfinished_jobs, partial_batches, orphaned_jobs, history_violations, leftover_rows)
    wrong = [found for rule in rules for found in rule(evidence)]
    wrong += duplicate_owners(evidence, lost)
    Verdict(wrong, len(evidence.rows), facts=counts(evidence)).write(workspace.verdict_file)


def counts(evidence: Evidence) -> dict[str, int]:
    """The numbers of lost acknowledged jobs, of claims that two processes ran under one fence, and
    of refused outcomes of jobs that still exist."""
    promised = {entry.subject for entry in evidence.entries("promised")}
    ran: dict[tuple[str, int], set[int]] = defaultdict(set)
    for entry in evidence.entries("began"):
        ran[entry.subject, entry.fence].add(entry.pid)
    return {
        "lost": len(promised - evidence.rows.keys()),
        "contested": sum(len(pids) > 1 for pids in ran.values()),
        "refused": sum(entry.subject in evidence.rows for entry in evidence.entries("outdated")),
    }
