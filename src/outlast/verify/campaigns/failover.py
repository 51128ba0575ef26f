"""`outlast verify failover`: the primary fails and a standby is promoted, repeatedly.

load      enqueuers and workers, all the time; each finds the primary by one of the cluster's routes
fail      the primary is stopped or killed, and a standby promoted
measure   from the failure to the new primary, and from there to the first claim, and by each route
          to the first accepted outcome and the first acknowledged enqueue
rebuild   the old primary comes back as a standby of the new one
settle    after the last failover all jobs end, and are checked

The standby is synchronous: it has every commit before it is acknowledged, so every acknowledged job
must exist and must have run. `split_brain` has the asynchronous campaign.
"""

from __future__ import annotations

import asyncio
import faulthandler
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

from ..checks.checker import check
from ..checks.evidence import collect
from ..checks.judge import Verdict, settle
from ..children import ChildExit
from ..faults.failover_cluster import FailoverCluster, FailoverTimes
from ..ledger import LedgerEntry
from ..load import Gate, run_load
from ..results import CampaignResults
from ..worker_settings import CampaignWorkerOptions
from ..workload import Workload
from ..workspace import Workspace
from .accepted_outcomes import duplicate_owners, run_watched_worker
from .campaign import CampaignOptions
from .load_campaign import LOADERS
from .long_campaign import JUDGE_TIMEOUT_S
from .postgres_crash_campaign import RESUME_WITHIN_S, PostgresCrashCampaign
from .resumption import Resumption

WORK_RANGE_S = (0.5, 2.0)  # between a rebuilt standby and the next failure


class Failover(PostgresCrashCampaign):
    name = "failover"
    columns: ClassVar[tuple[str, ...]] = ("failovers", "enqueued", "lost", "accepted_twice")
    goal = "failovers"
    server_label = "primary"
    jobs_per_second = 150.0

    def __init__(
        self,
        options: CampaignOptions,
        on_progress: Callable[[CampaignResults], None] = lambda _: None,
        *,
        cluster: FailoverCluster,
    ) -> None:
        self.cluster = cluster
        self.route_of_process: dict[int, str] = {}
        super().__init__(options, on_progress, database=cluster)

    def worker_body(self) -> Callable[[int], object]:
        return partial(run_routed_worker, self.work, self.cluster.routes, self.worker_settings)

    def loader_body(self) -> Callable[[int], object]:
        rate = self.jobs_per_second / LOADERS
        return partial(
            run_routed_load, self.work, self.cluster.routes, self.backlog.gate, self.seed, rate
        )

    def read_ledger(self) -> list[LedgerEntry]:
        entries = super().read_ledger()
        self.route_of_process |= {e.pid: e.subject for e in entries if e.kind == "route"}
        return entries

    def drive(self) -> None:
        self.attach_standby()
        super().drive()

    def crash_and_resume(self) -> None:
        self.keep_working(*WORK_RANGE_S)
        self.measure_failover(self.cluster.fail_over(self.read_ledger))
        self.cluster.rebuild(self.children, self.read_ledger)
        self.attach_standby()

    def attach_standby(self) -> None:
        """Make the standby synchronous: it has every commit before it is acknowledged."""
        self.cluster.synchronise(self.poll)

    def measure_failover(self, times: FailoverTimes) -> None:
        """Measure the time without a primary, and the time until work resumes at the new one."""
        resumption = Resumption(times.primary_at, self.route_of_process, self.cluster.routes)
        self.wait_for(lambda: resumption.record(self.read_ledger()), RESUME_WITHIN_S)
        measured = {"new_primary": times.primary_at - times.failed_at, **resumption.seconds}
        for name, seconds in measured.items():
            self.results.spans.setdefault(name, []).append(seconds)
        for name in resumption.missing:
            words = name.replace("_", " ")
            message = (
                f"I2 stalled-net: no {words} within {RESUME_WITHIN_S:g} s after a standby was"
                " promoted"
            )
            self.results.add_violation(self.server_label, self.server_label, message)

    def judge_body(self) -> Callable[[], object]:
        return partial(judge_acknowledged, self.work, self.workspace)

    def _judge(self) -> None:
        ends: list[ChildExit] = []
        self.children.start(self.judge_body(), ends.append)
        while not ends:
            self.poll()
        if verdict := self.record_verdict(self.workspace, {}, ends[0]):
            for what, number in verdict.facts.items():
                self.results.counts_of("load").add(what, number)
            self.examine(verdict)

    def examine(self, verdict: Verdict) -> None:
        """Violations by the counts of a verdict."""


# In children


def take_route(work: Workload, routes: Mapping[str, str], number: int) -> str:
    """The URL of this process's route; processes take the routes in turn."""
    name, url = list(routes.items())[(number - 1) % len(routes)]
    work.ledger.write("route", name)
    return url


def run_routed_worker(
    work: Workload, routes: Mapping[str, str], settings: CampaignWorkerOptions, number: int
) -> None:
    run_watched_worker(work, take_route(work, routes, number), settings, number)


def run_routed_load(
    work: Workload, routes: Mapping[str, str], gate: Gate, seed: int, rate: float, number: int
) -> None:
    work.use_prepared(replace(work.workspace, url=take_route(work, routes, number)))
    run_load(work, gate, seed, rate, number)


def judge_acknowledged(work: Workload, workspace: Workspace) -> None:
    """Settle the remaining jobs, check everything, and count the two worst findings."""
    faulthandler.cancel_dump_traceback_later()
    store = work.ol.store
    store.settings = replace(
        store.settings, statement_timeout=JUDGE_TIMEOUT_S, deadline=JUDGE_TIMEOUT_S
    )
    asyncio.run(settle(work.ol))
    evidence = collect(store, work.ledger.read(), workspace.business_rows())
    work.ol.close()
    twice = list(duplicate_owners(evidence))
    promised = {entry.subject for entry in evidence.entries("promised")}
    facts = {"lost": len(promised - evidence.rows.keys()), "accepted_twice": len(twice)}
    verdict = Verdict([*check(evidence), *twice], len(evidence.rows), facts=facts)
    verdict.write(workspace.verdict_file)
