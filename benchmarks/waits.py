"""Figures of durable waits: `python -m benchmarks.waits`.

sleeps    many jobs that sleep three times for a second, on few slots: seconds until all have ended
waiting   an idle worker beside many jobs that wait for a signal, and without them: processor time,
          statements and log; and seconds to run plain jobs
wait      a job that waits once and one that does not: statements and bytes of log per wait
latency   from `signal` to the handler that goes on, and from `enqueue` to a handler that starts

The worker is in this process, so the processor time is that of the sender, too. Statements are
those that Outlast sends, and log is the write-ahead log: both are figures of PostgreSQL only.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import click

from benchmarks.ground import execute
from benchmarks.meters import LOG
from benchmarks.services import postgres
from outlast import Context, Outlast
from outlast.model.wait import Wait, WaitKind
from outlast.ops.finish import finish
from tests.store.jobs import ending, put, take
from tests.worker.working import Spy

SLEEP_S = 1.0
IDLE_S = 10.0  # seconds for which an idle worker is watched
CALM_S = 2.0  # seconds after which a started worker is idle
PAUSE_S = 0.2  # seconds between two signals: each finds the worker idle
PLAIN_JOBS = 500

Figures = dict[str, float]


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Outlast]:
    ol = Outlast(url, schema=f"bench_{os.urandom(4).hex()}")
    try:
        await ol.amigrate()
        yield ol
    finally:
        await ol.aclose()


class Countdown:
    """Handlers that are still to end."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._over = asyncio.Event()
        self.wait = self._over.wait

    def __call__(self) -> None:
        self._left -= 1
        if not self._left:
            self._over.set()


async def parked(ol: Outlast, number: int) -> None:
    """Wait until so many jobs wait for a signal."""
    while (await ol.acounts())["waiting"] < number:  # noqa: ASYNC110 - a count in the database
        await asyncio.sleep(0.05)


def log_bytes(url: str) -> float:
    return 0.0 if url.startswith("sqlite") else float(execute(url, LOG)[0][0])


async def sleeps(url: str, jobs: int, times: int, slots: int) -> Figures:
    async with opened(url) as ol:
        ended = Countdown(jobs)

        @ol.task
        async def nap(ctx: Context) -> None:
            for _ in range(times):
                await ctx.sleep(SLEEP_S)
            ended()

        await ol.aenqueue(*[nap.job() for _ in range(jobs)])
        began_at = time.monotonic()
        async with ol.worker(concurrency=slots):
            await ended.wait()
        return {f"{jobs:,} jobs with {times} sleeps, seconds": time.monotonic() - began_at}


def park(ol: Outlast, number: int) -> None:
    """Jobs that wait for a signal, as if a worker had run them."""
    for start in range(0, number, 1000):
        size = min(1000, number - start)
        put(ol.store.run, size, queue="parked")
        claims = take(ol.store.run, size, queue="parked")
        wait = Wait("go", WaitKind.SIGNAL, ("go",))
        ol.store.run(finish, [ending(claim, "waited", wait=wait) for claim in claims])


async def beside_waiting(url: str, number: int) -> Figures:
    found: Figures = {}
    async with opened(url) as ol:
        ended = Countdown(0)

        @ol.task
        async def plain() -> None:
            ended()

        spy = Spy(ol)
        for beside in (0, number):
            await asyncio.to_thread(park, ol, beside)
            async with ol.worker(concurrency=10):
                await asyncio.sleep(CALM_S)
                spy.forget()
                cpu, log = time.process_time(), log_bytes(url)
                await asyncio.sleep(IDLE_S)
                name = f"{beside:,} waiting, "
                found[f"{name}idle, processor %"] = (time.process_time() - cpu) / IDLE_S * 100
                if not url.startswith("sqlite"):
                    found[f"{name}idle, statements/s"] = spy.counts.total() / IDLE_S
                    found[f"{name}idle, log bytes/s"] = (log_bytes(url) - log) / IDLE_S
                ended, began_at = Countdown(PLAIN_JOBS), time.monotonic()
                await ol.aenqueue(*[plain.job() for _ in range(PLAIN_JOBS)])
                await ended.wait()
                found[f"{name}{PLAIN_JOBS} jobs, seconds"] = time.monotonic() - began_at
    return found


async def per_wait(url: str, jobs: int) -> Figures:
    """What a wait for a signal adds to a job, with the signal; without what an idle worker does."""
    if url.startswith("sqlite"):
        return {}
    plain, log = await _cost(url, jobs, waits=False)
    with_wait, with_log = await _cost(url, jobs, waits=True)
    return {"statements per wait": with_wait - plain, "log bytes per wait": with_log - log}


async def _cost(url: str, jobs: int, *, waits: bool) -> tuple[float, float]:
    async with opened(url) as ol:
        spy, ended = Spy(ol), Countdown(jobs)

        @ol.task
        async def work(ctx: Context) -> None:
            if waits:
                await ctx.wait("go")
            ended()

        async with ol.worker(concurrency=10):
            await asyncio.sleep(CALM_S)
            spy.forget()
            await asyncio.sleep(CALM_S)
            idle = _writes(spy.counts) / CALM_S
            spy.forget()
            log, began_at = log_bytes(url), time.monotonic()
            made = [await work.aenqueue() for _ in range(jobs)]
            if waits:
                await parked(ol, jobs)
                for job in made:
                    await ol.asignal(job.id, "go")
            await ended.wait()
            seconds = time.monotonic() - began_at
        return (_writes(spy.counts) - idle * seconds) / jobs, (log_bytes(url) - log) / jobs


def _writes(counts: Counter[str]) -> int:
    """Statements, without looks for work and counts: a busy worker looks more often."""
    return sum(n for name, n in counts.items() if not name.startswith(("poll", "count")))


async def latency(url: str, number: int) -> Figures:
    """Median and 95th percentile, in milliseconds; the two kinds take turns."""
    told: dict[str, list[float]] = {"signal": [], "enqueue": []}
    async with opened(url) as ol:
        ran = asyncio.Queue[float]()

        @ol.task
        async def waits(ctx: Context) -> None:
            await ctx.wait("go")
            ran.put_nowait(time.monotonic())

        @ol.task
        async def starts() -> None:
            ran.put_nowait(time.monotonic())

        jobs = [await waits.aenqueue() for _ in range(number)]
        async with ol.worker(concurrency=10):
            await parked(ol, number)
            for job in jobs:
                for kind, times in told.items():
                    await asyncio.sleep(PAUSE_S)
                    sent_at = time.monotonic()
                    if kind == "signal":
                        await ol.asignal(job.id, "go")
                    else:
                        await starts.aenqueue()
                    times.append((await ran.get() - sent_at) * 1000)
    found: Figures = {}
    for kind, times in told.items():
        found[f"{kind} to handler, p50 ms"] = statistics.median(times)
        found[f"{kind} to handler, p95 ms"] = statistics.quantiles(times, n=20)[-1]
    return found


@contextmanager
def database(store: str) -> Iterator[str]:
    if store == "postgres":
        with postgres() as url:
            yield url
    else:
        with tempfile.TemporaryDirectory(prefix="outlast-bench-") as folder:
            yield f"sqlite:///{Path(folder) / 'bench.db'}"


@click.command()
@click.option("--store", "stores", multiple=True, default=["sqlite", "postgres"])
@click.option("--jobs", default=1000, show_default=True, help="Jobs that sleep.")
@click.option("--sleeps", "times", default=3, show_default=True, help="Sleeps of each.")
@click.option("--slots", default=2, show_default=True, help="Concurrency of their worker.")
@click.option("--waiting", default=100_000, show_default=True, help="Jobs that wait.")
@click.option("--signals", default=200, show_default=True, help="Signals, for cost and latency.")
@click.option("--rounds", default=3, show_default=True)
def main(
    stores: tuple[str, ...], jobs: int, times: int, slots: int, waiting: int, signals: int,
    rounds: int,
) -> None:  # fmt: skip
    """Print the medians of all rounds."""
    found: dict[tuple[str, str], list[float]] = {}
    for store in stores:
        for _ in range(rounds):
            for measure, *sizes in (
                (sleeps, jobs, times, slots),
                (beside_waiting, waiting),
                (per_wait, signals),
                (latency, signals),
            ):
                with database(store) as url:
                    for name, figure in asyncio.run(measure(url, *sizes)).items():
                        found.setdefault((store, name), []).append(figure)
    for (store, name), figures in found.items():
        print(f"{store:9} {name}: {statistics.median(figures):,.2f}")


if __name__ == "__main__":
    main()
