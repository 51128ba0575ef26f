"""Whoever asks for graphs of jobs while a campaign goes on, and changes their mind about some.

What stands is told to the ledger right after: every job of a graph, and whom it was asked to come
after. When a cancel of a flow has returned, it is told which claims there had been until then.
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
from ..ops.audit import FIRST
from ..ops.flow_report import PAGE, flow_jobs
from .feeding import TROUBLE, Gate
from .graphs import Artist, Sketch
from .recovery import under_way
from .workload import Workload

IN_FLIGHT = 1500  # jobs that may be under way while more are asked for
AT_ONCE = 120  # jobs of one call, or one graph if that has more
COUNT_EVERY = 0.4  # seconds
CANCELLED, STOPPED = 0.03, 0.03  # graphs of which one job is cancelled, or all of it
WITHIN = 1.5  # seconds in which that happens
LATE = 0.3  # calls beside which somebody comes after jobs that stand already


class Asker:
    def __init__(self, work: Workload, luck: random.Random, name: str) -> None:
        self.work, self.luck = work, luck
        self.artist = Artist(work.flows, luck, name)
        self._regrets: list[tuple[float, str, str]] = []
        self._known: deque[str] = deque(maxlen=200)  # jobs of before
        self._count_at, self._room = 0.0, True

    def run(self, gate: Gate) -> None:
        while gate.state != Gate.SHUT:
            try:
                self._regret()
                if gate.state == Gate.FULL or not self._has_room():
                    time.sleep(0.01)
                    continue
                self.ask()
            except TROUBLE:  # a database that is busy: nothing was promised
                time.sleep(0.05)
        with suppress(*TROUBLE):
            self._regret(everything=True)

    def ask(self) -> None:
        """A few graphs in one call; and perhaps one that comes after jobs of before."""
        sketches = [self.artist.draw()]
        while sum(len(sketch.nodes) for sketch in sketches) < AT_ONCE:
            sketches.append(self.artist.draw())
        self._enqueue(sketches)
        if self._known and self.luck.random() < LATE:
            number = min(len(self._known), self.luck.randint(1, 4))
            with suppress(PrerequisiteFailed, JobNotFound):  # too late: it was refused, whole
                self._enqueue([self.artist.late(self.luck.sample(list(self._known), number))])

    def _enqueue(self, sketches: list[Sketch]) -> None:
        jobs = self.work.ol.enqueue(*[sketch.item for sketch in sketches])
        by_tag = {job.args["tag"]: job for job in jobs}
        for sketch in sketches:
            if sketch.nodes:
                self._stands(sketch, by_tag)

    def _stands(self, sketch: Sketch, by_tag: dict[str, Job]) -> None:
        own = [by_tag[node.tag] for node in sketch.nodes]
        nodes = [
            [by_tag[node.tag].id, node.tag, node.kind,
             [by_tag[tag].id if tag in by_tag else tag for tag in node.after], node.hooks]
            for node in sketch.nodes
        ]  # fmt: skip
        said = {"shape": sketch.shape, "fan_ins": sketch.fan_ins, "nodes": nodes}
        flow = own[0].flow
        self.work.ledger.write("flow", flow or own[0].id, 0, said)
        self._known.append(self.luck.choice(own).id)
        soon = time.monotonic() + self.luck.uniform(0.0, WITHIN)
        if self.luck.random() < CANCELLED:
            heapq.heappush(self._regrets, (soon, "job", self.luck.choice(own).id))
        if flow and self.luck.random() < STOPPED:
            heapq.heappush(self._regrets, (soon, "flow", flow))

    def _regret(self, *, everything: bool = False) -> None:
        while self._regrets and (everything or self._regrets[0][0] <= time.monotonic()):
            _, kind, id = heapq.heappop(self._regrets)
            if kind == "job":
                with suppress(TooLate):
                    self.work.ol.cancel(id, "verify")
                    self.work.ledger.write("unwanted", id)
            else:
                self.work.ol.cancel_flow(id, "verify")
                self.work.ledger.write("stopped", id, 0, self._claims(id))

    def _claims(self, flow: str) -> dict[str, int]:
        found: dict[str, int] = {}
        page = self.work.ol.store.run(flow_jobs, flow, FIRST, PAGE)
        while page:
            found |= {job.id: job.fence for job in page}
            page = self.work.ol.store.run(flow_jobs, flow, page[-1].id, PAGE)
        return found

    def _has_room(self) -> bool:
        if time.monotonic() >= self._count_at:
            self._room = under_way(self.work.ol.counts()) < IN_FLIGHT
            self._count_at = time.monotonic() + COUNT_EVERY
        return self._room


def ask(work: Workload, gate: Gate, seed: int, number: int) -> None:
    """In a child: ask until the gate is shut."""
    faulthandler.cancel_dump_traceback_later()
    Asker(work, random.Random(f"{seed} {number}"), f"a{number}").run(gate)
    work.ol.close()


def drain(work: Workload, longest: float) -> None:
    """In a child: wait until nothing is under way, or nothing moves."""
    faulthandler.cancel_dump_traceback_later()
    seen, until = {"": 0}, 0.0
    while under_way(counts := work.ol.counts()):
        if counts != seen:
            seen, until = counts, time.monotonic() + longest
        elif time.monotonic() > until:
            break
        time.sleep(0.1)
    work.ol.close()
