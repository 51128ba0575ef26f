"""The demo's tasks. `python -m outlast.demo.tasks LEDGER` is one of its worker processes."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..client.client import Outlast
from ..model.retry import Retry
from ..model.task import Call
from ..verify.ledger import Ledger
from ..worker.context import Context

STARTED, DONE, FAILED = "started", "done", "failed"  # kinds of entries: a job and its attempt

# A worker dies every second here, so a job may lose several in a row through no fault of its own.
# By default it would be dead after three, because a job that kills its workers must be stopped.
UNLUCKY_EVERY = 1000

CONCURRENCY = 2  # small, so that the work lasts for half a minute
GRACE_S = 1.0  # seconds to drain at the end; all other settings are the defaults


class DemoTasks:
    def __init__(self, ol: Outlast, ledger: Ledger) -> None:
        @contextmanager
        def recorded(ctx: Context) -> Iterator[None]:
            job = ctx.job.id
            ledger.write(STARTED, job, ctx.attempt)
            try:
                yield
            except RuntimeError:
                ledger.write(FAILED, job, ctx.attempt)
                raise
            ledger.write(DONE, job, ctx.attempt)

        @ol.task(max_crashes=UNLUCKY_EVERY)
        async def resize(n: int, ms: int, ctx: Context) -> int:
            with recorded(ctx):
                await asyncio.sleep(ms / 1000)
            return ctx.attempt

        @ol.task(max_crashes=UNLUCKY_EVERY)
        def render(n: int, ms: int, ctx: Context) -> int:
            """A sync function: it runs in a thread."""
            with recorded(ctx):
                time.sleep(ms / 1000)
            return ctx.attempt

        @ol.task(max_crashes=UNLUCKY_EVERY, retry=Retry(base=0.2))
        async def deliver(n: int, ms: int, ctx: Context) -> int:
            """Fails the first time."""
            with recorded(ctx):
                await asyncio.sleep(ms / 1000)
                if ctx.job.failures == 0:
                    raise RuntimeError("no answer")
            return ctx.attempt

        @ol.task(max_crashes=UNLUCKY_EVERY)
        async def receipt(n: int, ctx: Context) -> int:
            with recorded(ctx):
                return ctx.attempt

        @ol.task(max_crashes=UNLUCKY_EVERY)
        async def order(n: int, ms: int, ctx: Context) -> int:
            """Its receipt exists if, and only if, this attempt is accepted."""
            with recorded(ctx):
                await asyncio.sleep(ms / 1000)
                ctx.enqueue(receipt.job(n))  # ctx: enqueued if this attempt succeeds
            return ctx.attempt

        self._mix: list[Any] = [*[resize] * 3, *[render] * 3, *[deliver] * 2, *[order] * 2]

    def call(self, n: int) -> Call:
        """The n-th job: all kinds in turn, 5 to 60 ms long."""
        made: Call = self._mix[n % len(self._mix)].job(n, 5 + n * 37 % 56)
        return made


def main() -> None:
    logging.basicConfig(level="WARNING", format="%(asctime)s %(process)d %(message)s")
    ol = Outlast(os.environ["OUTLAST_URL"], schema=os.environ["OUTLAST_SCHEMA"])
    DemoTasks(ol, Ledger(Path(sys.argv[1])))
    ol.worker(concurrency=CONCURRENCY, grace=GRACE_S).run()


if __name__ == "__main__":
    main()
