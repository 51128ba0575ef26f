"""Enqueuers of random graphs of jobs, which also cancel some of them.

Acknowledged graphs are recorded in the ledger at once: every job, with its requested prerequisites.
When a cancel of a flow has returned, the claims up to then are recorded.
"""

from __future__ import annotations

import faulthandler
import heapq
import random
import time
from collections import deque
from contextlib import suppress

from ..model.errors import JobNotFound, PrerequisiteFailed, TooLate
from ..model.job import Job
from ..ops.audit import LOWEST_ID
from ..ops.flow_report import PAGE, flow_jobs
from .checks.judge import unfinished
from .graphs import GraphGenerator, PlannedGraph
from .load import EXPECTED_ERRORS, Gate
from .workload import Workload

MAX_IN_FLIGHT = 1500  # unfinished jobs above which no more are enqueued
MAX_JOBS_PER_CALL = 120  # jobs per call, or one graph if that has more
COUNT_INTERVAL_S = 0.4  # seconds
CANCEL_JOB_SHARE = 0.03  # of graphs of which one job is cancelled
CANCEL_FLOW_SHARE = 0.03  # of graphs that are cancelled as a whole
CANCEL_WITHIN_S = 1.5  # seconds until the cancel
LATE_SHARE = 0.3  # of calls with another graph after existing jobs


class GraphLoad:
    def __init__(self, work: Workload, rng: random.Random, name: str) -> None:
        self.work, self.rng = work, rng
        self.generator = GraphGenerator(work.flows, rng, name)
        self._cancellations: list[tuple[float, str, str]] = []
        self._known_jobs: deque[str] = deque(maxlen=200)  # earlier jobs
        self._count_at, self._has_capacity = 0.0, True

    def run(self, gate: Gate) -> None:
        while gate.state != Gate.SHUT:
            try:
                self._cancel()
                if gate.state == Gate.FULL or not self._has_room():
                    time.sleep(0.01)
                    continue
                self.enqueue_graphs()
            except EXPECTED_ERRORS:  # a busy database: nothing was acknowledged
                time.sleep(0.05)
        with suppress(*EXPECTED_ERRORS):
            self._cancel(whole_flow=True)

    def enqueue_graphs(self) -> None:
        """Enqueue a few graphs in one call, and sometimes one after earlier jobs."""
        plans = [self.generator.generate()]
        while sum(len(plan.nodes) for plan in plans) < MAX_JOBS_PER_CALL:
            plans.append(self.generator.generate())
        self._enqueue(plans)
        if self._known_jobs and self.rng.random() < LATE_SHARE:
            number = min(len(self._known_jobs), self.rng.randint(1, 4))
            with suppress(PrerequisiteFailed, JobNotFound):  # too late: refused as a whole
                self._enqueue(
                    [self.generator.after_existing(self.rng.sample(list(self._known_jobs), number))]
                )

    def _enqueue(self, plans: list[PlannedGraph]) -> None:
        jobs = self.work.ol.enqueue(*[plan.item for plan in plans])
        by_tag = {job.args["tag"]: job for job in jobs}
        for plan in plans:
            if plan.nodes:
                self._record(plan, by_tag)

    def _record(self, plan: PlannedGraph, by_tag: dict[str, Job]) -> None:
        own = [by_tag[node.tag] for node in plan.nodes]
        nodes = [
            [by_tag[node.tag].id, node.tag, node.kind,
             [by_tag[tag].id if tag in by_tag else tag for tag in node.after], node.hooks]
            for node in plan.nodes
        ]  # fmt: skip
        graph = {"shape": plan.shape, "fan_ins": plan.fan_ins, "nodes": nodes}
        flow = own[0].flow
        self.work.ledger.write("flow", flow or own[0].id, 0, graph)
        self._known_jobs.append(self.rng.choice(own).id)
        soon = time.monotonic() + self.rng.uniform(0.0, CANCEL_WITHIN_S)
        if self.rng.random() < CANCEL_JOB_SHARE:
            heapq.heappush(self._cancellations, (soon, "job", self.rng.choice(own).id))
        if flow and self.rng.random() < CANCEL_FLOW_SHARE:
            heapq.heappush(self._cancellations, (soon, "flow", flow))

    def _cancel(self, *, whole_flow: bool = False) -> None:
        while self._cancellations and (whole_flow or self._cancellations[0][0] <= time.monotonic()):
            _, kind, id = heapq.heappop(self._cancellations)
            if kind == "job":
                with suppress(TooLate):
                    self.work.ol.cancel(id, "verify")
                    self.work.ledger.write("unwanted", id)
            else:
                self.work.ol.cancel_flow(id, "verify")
                self.work.ledger.write("stopped", id, 0, self._claims(id))

    def _claims(self, flow: str) -> dict[str, int]:
        found: dict[str, int] = {}
        page = self.work.ol.store.run(flow_jobs, flow, LOWEST_ID, PAGE)
        while page:
            found |= {job.id: job.fence for job in page}
            page = self.work.ol.store.run(flow_jobs, flow, page[-1].id, PAGE)
        return found

    def _has_room(self) -> bool:
        if time.monotonic() >= self._count_at:
            self._has_capacity = unfinished(self.work.ol.counts()) < MAX_IN_FLIGHT
            self._count_at = time.monotonic() + COUNT_INTERVAL_S
        return self._has_capacity


def run_graph_load(work: Workload, gate: Gate, seed: int, number: int) -> None:
    """In a child: enqueue until the gate is closed."""
    faulthandler.cancel_dump_traceback_later()
    GraphLoad(work, random.Random(f"{seed} {number}"), f"a{number}").run(gate)
    work.ol.close()


def wait_until_idle(work: Workload, stall_limit: float) -> None:
    """In a child: wait until no job is unfinished, or no progress is made."""
    faulthandler.cancel_dump_traceback_later()
    seen, until = {"": 0}, 0.0
    while unfinished(counts := work.ol.counts()):
        if counts != seen:
            seen, until = counts, time.monotonic() + stall_limit
        elif time.monotonic() > until:
            break
        time.sleep(0.1)
    work.ol.close()
