"""Enqueuers: a mix of all kinds of jobs at a steady rate.

An acknowledged job is recorded in the ledger at once; if its enqueuer dies before that, it does not
count as acknowledged.
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
from .ledger import LedgerEntry
from .scenario_context import ScenarioContext
from .scenarios import SCENARIOS, run_scenario
from .workload import Workload

MAX_BACKLOG = 1000  # jobs that wait to start
MAX_BULK = 30  # jobs per call
QUEUES = ("a", "b", "c")
SPECIAL_SCENARIOS = (
    "enqueue",
    "enqueue-key",
    "enqueue-delayed",
    "bulk",
    "transaction",
    "transaction-bulk",
    "rollback",
    "flow-enqueue",
    "flow-keys",
)
SPECIAL_SHARE = 0.12  # of these kinds, each in its own queue
TASK_WEIGHTS = (("naps", 50), ("mark", 20), ("thread", 10), ("parent", 8), ("fails_once", 6),
       ("postpones", 3), ("permanent", 3))  # fmt: skip
MAX_CATCH_UP_S = 1.0  # delay that an enqueuer makes up by going faster
LEASE_S = 2.0  # unused: enqueuers own no jobs


class Gate:
    """A byte of shared memory: whether enqueuers may continue."""

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
    """Acknowledged jobs that have not started: opens and closes the gate."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.waiting: set[str] = set()
        self._begun_early: set[str] = set()  # started before their acknowledgement was written

    def record(self, entries: Iterable[LedgerEntry]) -> int:
        """Record entries; returns the number of acknowledged jobs."""
        promised = 0
        for entry in entries:
            if entry.kind == "promised":
                promised += 1
                if entry.subject not in self._begun_early:
                    self.waiting.add(entry.subject)
            elif entry.kind == "began":
                if entry.subject in self.waiting:
                    self.waiting.discard(entry.subject)
                else:
                    self._begun_early.add(entry.subject)
        if self.gate.state != Gate.SHUT:
            self.gate.set(Gate.FULL if len(self.waiting) > MAX_BACKLOG else Gate.OPEN)
        return promised


class LoadGenerator:
    """Enqueues jobs of all kinds; `rate`: jobs per second."""

    def __init__(self, work: Workload, rng: random.Random, rate: float) -> None:
        self.work, self.rng, self.rate = work, rng, rate
        self._specials = 0

    def run(self, gate: Gate) -> None:
        due = time.monotonic()
        while gate.state != Gate.SHUT:
            now = time.monotonic()
            due = max(due, now - MAX_CATCH_UP_S)
            if gate.state == Gate.FULL or now < due:
                time.sleep(0.005)
                continue
            try:
                due += self.enqueue_once() / self.rate
            except EXPECTED_ERRORS:  # hit by a fault: nothing was acknowledged
                time.sleep(0.05)

    def enqueue_once(self) -> int:
        """One call; returns its number of jobs."""
        if self.rng.random() < SPECIAL_SHARE:
            self._specials += 1
            label = f"f{os.getpid()}_{self._specials}"
            run_scenario(
                SCENARIOS[self.rng.choice(SPECIAL_SCENARIOS)],
                ScenarioContext(self.work, label, LEASE_S),
            )
            return 1
        queue, number = self.rng.choice(QUEUES), self.rng.randint(1, MAX_BULK)
        calls = [self._call(queue) for _ in range(number)]
        jobs = self.work.ol.enqueue(*[call for call, _ in calls])
        for job, (_, state) in zip(jobs, calls, strict=True):
            self.work.ledger.write("promised", job.id, 0, [state])
        return number

    def _call(self, queue: str) -> tuple[Any, str]:
        """A call, and the state in which it will end."""
        ((kind, _),) = self.rng.choices(TASK_WEIGHTS, [weight for _, weight in TASK_WEIGHTS])
        nap = {"seconds": self.rng.uniform(0.0, 0.1)} if kind == "naps" else {}
        call = getattr(self.work, kind).using(queue=queue).job(**nap)
        return call, "dead" if kind == "permanent" else "succeeded"


def run_load(work: Workload, gate: Gate, seed: int, rate: float, number: int) -> None:
    """In a child: enqueue until the gate is closed."""
    faulthandler.cancel_dump_traceback_later()
    LoadGenerator(work, random.Random(f"{seed} {number}"), rate).run(gate)
    work.ol.close()


def _expected_errors() -> tuple[type[Exception], ...]:
    try:
        import psycopg
    except ImportError:
        return (OutlastError, sqlite3.Error)
    return (OutlastError, sqlite3.Error, psycopg.Error)


EXPECTED_ERRORS = _expected_errors()
