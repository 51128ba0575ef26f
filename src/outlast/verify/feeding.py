"""Whoever enqueues while a campaign goes on: a little of everything, at a steady rate.

What was acknowledged is promised in the ledger right after; somebody who dies in between has been
promised nothing.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import random
import sqlite3
import time
from collections.abc import Iterable
from typing import Any

from ..model.errors import OutlastError
from .ledger import Entry
from .paths import PATHS, perform
from .stage import Stage
from .workload import Workload

BACKLOG = 1000  # jobs that may wait to be begun
BULK = 30  # jobs in one call at the most
QUEUES = ("a", "b", "c")
WAYS = ("enqueue", "enqueue-key", "enqueue-delayed", "bulk", "transaction", "transaction-bulk",
        "rollback", "flow-enqueue", "flow-keys")  # fmt: skip
OFTEN = 0.12  # how often one of these is taken, each in a queue of its own
MIX = (("naps", 50), ("mark", 20), ("thread", 10), ("parent", 8), ("fails_once", 6),
       ("postpones", 3), ("permanent", 3))  # fmt: skip
CATCH_UP = 1.0  # seconds for which a feeder that was held up may go faster
LEASE = 2.0  # of nobody: feeders own nothing


class Gate:
    """One byte that all processes share: whether more is wanted."""

    SHUT, OPEN, FULL = range(3)

    def __init__(self) -> None:
        self._byte = mmap.mmap(-1, 1)
        self.set(self.OPEN)

    def set(self, state: int) -> None:
        self._byte[0] = state

    @property
    def state(self) -> int:
        return self._byte[0]


class Backlog:
    """What was promised and has not been begun: opens and closes the gate."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.waiting: set[str] = set()
        self._early: set[str] = set()  # begun before their promise was written

    def hear(self, entries: Iterable[Entry]) -> int:
        """How many were promised."""
        promised = 0
        for entry in entries:
            if entry.what == "promised":
                promised += 1
                if entry.about not in self._early:
                    self.waiting.add(entry.about)
            elif entry.what == "began":
                if entry.about in self.waiting:
                    self.waiting.discard(entry.about)
                else:
                    self._early.add(entry.about)
        if self.gate.state != Gate.SHUT:
            self.gate.set(Gate.FULL if len(self.waiting) > BACKLOG else Gate.OPEN)
        return promised


class Feeder:
    """`rate`: jobs a second."""

    def __init__(self, work: Workload, luck: random.Random, rate: float) -> None:
        self.work, self.luck, self.rate = work, luck, rate
        self._ways = 0

    def run(self, gate: Gate) -> None:
        due = time.monotonic()
        while gate.state != Gate.SHUT:
            now = time.monotonic()
            due = max(due, now - CATCH_UP)
            if gate.state == Gate.FULL or now < due:
                time.sleep(0.005)
                continue
            try:
                due += self.once() / self.rate
            except TROUBLE:  # the fault was ours to feel: nothing was promised
                time.sleep(0.05)

    def once(self) -> int:
        """One call; how many jobs it was about."""
        if self.luck.random() < OFTEN:
            self._ways += 1
            label = f"f{os.getpid()}_{self._ways}"
            perform(PATHS[self.luck.choice(WAYS)], Stage(self.work, label, LEASE))
            return 1
        queue, number = self.luck.choice(QUEUES), self.luck.randint(1, BULK)
        calls = [self._call(queue) for _ in range(number)]
        jobs = self.work.ol.enqueue(*[call for call, _ in calls])
        for job, (_, state) in zip(jobs, calls, strict=True):
            self.work.ledger.write("promised", job.id, 0, [state])
        return number

    def _call(self, queue: str) -> tuple[Any, str]:
        """A call, and how it will end."""
        ((kind, _),) = self.luck.choices(MIX, [weight for _, weight in MIX])
        nap = {"seconds": self.luck.uniform(0.0, 0.1)} if kind == "naps" else {}
        call = getattr(self.work, kind).using(queue=queue).job(**nap)
        return call, "dead" if kind == "permanent" else "succeeded"


def feed(work: Workload, gate: Gate, seed: int, rate: float, number: int) -> None:
    """In a child: enqueue until the gate is shut."""
    faulthandler.cancel_dump_traceback_later()
    Feeder(work, random.Random(f"{seed} {number}"), rate).run(gate)
    work.ol.close()


def _trouble() -> tuple[type[Exception], ...]:
    try:
        import psycopg
    except ImportError:
        return (OutlastError, sqlite3.Error)
    return (OutlastError, sqlite3.Error, psycopg.Error)


TROUBLE = _trouble()
