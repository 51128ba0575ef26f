"""Benchmarks on your own database: enqueue, drain and latency, in a workspace of their own.

Each measurement has a fresh schema or file. The worker is a forked process with default settings
that runs a no-op; jobs count as done when the store has their outcome. `make bench`, in a
checkout, compares with the bare database and with other job systems.
"""

from __future__ import annotations

import faulthandler
import json
import os
import platform
import signal
import sqlite3
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .client.client import Outlast
from .model.errors import OutlastError
from .verify.children import ChildExit, Children
from .verify.distribution import Distribution
from .verify.workspace import Workspace, WorkspaceFactory, cleaned_up
from .version import VERSION

PAYLOAD = "x" * 100
BULK = 1000  # jobs per call
WARM_UP_JOBS = 10
LATENCY_INTERVAL_S = 0.02  # between two jobs for an idle worker
POLL_INTERVAL_S = 0.01
MAX_MEASUREMENT_S = 900.0

Sample = dict[str, float]


class MeasurementFailed(OutlastError):
    """A benchmark did not end, or its worker did."""


@dataclass
class Bench:
    """One measurement: an application, its workspace and its worker."""

    workspace: Workspace
    jobs: int
    concurrency: int
    _children: Children = field(init=False)
    _exits: list[ChildExit] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._children = Children(self.workspace.folder / "worker.log")

    def open(self) -> tuple[Outlast, Any]:
        ol = Outlast(self.workspace.url, schema=self.workspace.schema)
        return ol, ol.task(name="noop")(_noop)

    def start_worker(self) -> int:
        return self._children.start(self._run_worker, self._exits.append)

    def stop_worker(self, pid: int) -> list[tuple[float, float]]:
        """The start of each handler, and its delay since the job was sent."""
        os.kill(pid, signal.SIGTERM)
        while not self._exits:
            self._children.wait()
        if not self._exits[0].ok:
            raise MeasurementFailed(f"the worker failed: {self._children.stderr_tail()}")
        return [(at, delay) for at, delay in json.loads(self._runs_file.read_text())]

    def wait_until_done(self, ol: Outlast, number: int) -> float:
        """The time at which the store has the outcomes of `number` jobs."""
        until = time.monotonic() + MAX_MEASUREMENT_S
        while (done := ol.counts()["succeeded"]) < number:
            self._children.poll()
            if self._exits or time.monotonic() > until:
                log = self._children.stderr_tail()
                raise MeasurementFailed(f"{done:,} of {number:,} jobs were done: {log}")
            time.sleep(POLL_INTERVAL_S)
        return time.monotonic()

    def close(self) -> None:
        self._children.kill_all()
        self.workspace.remove()

    @property
    def _runs_file(self) -> Path:
        return self.workspace.folder / "runs"

    def _run_worker(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        runs: list[tuple[float, float]] = []
        ol = Outlast(self.workspace.url, schema=self.workspace.schema)

        @ol.task(name="noop")
        async def noop(sent_at: float, payload: str) -> None:
            now = time.monotonic()
            runs.append((now, now - sent_at))

        ol.worker(concurrency=self.concurrency).run()
        self._runs_file.write_text(json.dumps(runs))


async def _noop(sent_at: float, payload: str) -> None:
    """The task as callers enqueue it; the worker has its own."""


def measure_enqueue(bench: Bench) -> Sample:
    ol, noop = bench.open()
    with ol:
        noop.enqueue(0.0, PAYLOAD)  # connections are open now
        began = time.monotonic()
        for _ in range(bench.jobs):
            noop.enqueue(0.0, PAYLOAD)
        return {"rate": bench.jobs / (time.monotonic() - began)}


def measure_enqueue_bulk(bench: Bench) -> Sample:
    ol, noop = bench.open()
    with ol:
        noop.enqueue(0.0, PAYLOAD)
        began = time.monotonic()
        _enqueue_bulk(ol, noop, bench.jobs)
        return {"rate": bench.jobs / (time.monotonic() - began)}


def measure_drain(bench: Bench) -> Sample:
    """The time from the first handler until the store has every outcome, without the start-up."""
    ol, noop = bench.open()
    with ol:
        _enqueue_bulk(ol, noop, bench.jobs)
    worker = bench.start_worker()  # forked while no connection is open
    ol, _ = bench.open()
    with ol:
        done_at = bench.wait_until_done(ol, bench.jobs)
    began_at = min(at for at, _ in bench.stop_worker(worker))
    return {"rate": bench.jobs / (done_at - began_at)}


def measure_latency(bench: Bench) -> Sample:
    """The time from the call of enqueue until the handler runs, with an idle worker."""
    worker = bench.start_worker()
    ol, noop = bench.open()
    with ol:
        for _ in range(WARM_UP_JOBS):
            noop.enqueue(time.monotonic(), PAYLOAD)
        bench.wait_until_done(ol, WARM_UP_JOBS)
        for _ in range(bench.jobs):
            noop.enqueue(time.monotonic(), PAYLOAD)
            time.sleep(LATENCY_INTERVAL_S)
        bench.wait_until_done(ol, WARM_UP_JOBS + bench.jobs)
    runs = sorted((at - delay, delay) for at, delay in bench.stop_worker(worker))
    delays = Distribution(delay for _, delay in runs[WARM_UP_JOBS:])
    return {"p50": delays.percentile(0.5) * 1000, "p99": delays.percentile(0.99) * 1000}


def _enqueue_bulk(ol: Outlast, noop: Any, number: int) -> None:
    for first in range(0, number, BULK):
        ol.enqueue(*(noop.job(0.0, PAYLOAD) for _ in range(min(BULK, number - first))))


@dataclass(frozen=True)
class Cell:
    """One kind of measurement; `figures` are names and units of a sample."""

    about: str
    figures: dict[str, str]
    measure: Callable[[Bench], Sample]
    jobs: int
    max_jobs: int = 10_000_000


RATE = {"rate": "jobs/s"}
LATENCY = {"p50": "ms", "p99": "ms"}
CELLS = {
    "enqueue": Cell("one by one, each durable before the next", RATE, measure_enqueue, 4000),
    "enqueue-bulk": Cell("1,000 in one call", RATE, measure_enqueue_bulk, 20_000),
    "drain": Cell("one worker process; async no-op, 100 bytes", RATE, measure_drain, 20_000),
    "latency": Cell("an idle worker, one job every 20 ms", LATENCY, measure_latency, 200, 200),
}


@dataclass(frozen=True)
class BenchPlan:
    cells: list[str]
    rounds: int = 3
    jobs: int | None = None  # None: the cell's default
    concurrency: int = 100


def run_bench(
    plan: BenchPlan, workspaces: WorkspaceFactory, report: Callable[[str], None]
) -> dict[str, object]:
    """Samples, medians and conditions; leaves nothing in the database."""
    results: dict[str, Any] = {"conditions": _conditions(plan, str(workspaces)), "cells": {}}
    with cleaned_up(workspaces.remove):
        for name in plan.cells:
            results["cells"][name] = _run_cell(name, plan, workspaces, report)
    return results


def _run_cell(
    name: str, plan: BenchPlan, workspaces: WorkspaceFactory, report: Callable[[str], None]
) -> dict[str, object]:
    cell = CELLS[name]
    jobs = min(plan.jobs or cell.jobs, cell.max_jobs)
    samples = []
    for number in range(1, plan.rounds + 1):
        sample = _run_once(cell, Bench(workspaces.next(), jobs, plan.concurrency))
        samples.append(sample)
        figures = ", ".join(f"{figure} {sample[figure]:,.1f}" for figure in cell.figures)
        report(f"{name}, round {number}: {figures}")
    medians = {figure: statistics.median(s[figure] for s in samples) for figure in cell.figures}
    about = {"about": cell.about, "jobs": jobs, "units": cell.figures}
    return {**about, "samples": samples, "medians": medians}


def _run_once(cell: Cell, bench: Bench) -> Sample:
    with cleaned_up(bench.close):
        with Outlast(bench.workspace.url, schema=bench.workspace.schema) as ol:
            ol.migrate()
        return cell.measure(bench)


def _conditions(plan: BenchPlan, database: str) -> dict[str, object]:
    facts: dict[str, object] = {
        "outlast": VERSION,
        "python": platform.python_version(),
        "database": database,
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count(),
        "rounds": plan.rounds,
        "concurrency": plan.concurrency,
    }
    with suppress(OSError):
        facts["load_before"] = round(os.getloadavg()[0], 2)
    return facts
