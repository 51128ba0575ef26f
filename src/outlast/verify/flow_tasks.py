"""Tasks of flows. Each returns its job and claim, so that its followers can record exactly which
results they read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..model.errors import Permanent
from ..model.retry import Retry
from ..worker.context import Context

if TYPE_CHECKING:
    from .workload import Workload

FAST_RETRY = Retry(max_attempts=5, base=0.01, cap=0.05)
MAX_CRASHES = 50  # per job: kills hit jobs at random
NAP_S = 0.03  # seconds


class FlowTasks:
    """The tasks; `kind` selects how a handler ends: at once, after a pause, successfully at the
    second attempt, or never successfully."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        task = work.ol.task(max_crashes=MAX_CRASHES, retry=FAST_RETRY)

        @task
        async def step(
            ctx: Context, tag: str = "", kind: str = "ok", parent: str = "", claim: int = 0,
            joined: bool = False,
        ) -> dict[str, Any]:  # fmt: skip
            """Reads no results of prerequisites."""
            self._record_begun(ctx)
            return await self._finish(ctx, kind)

        @task
        async def gather(ctx: Context, tag: str = "", kind: str = "ok") -> dict[str, object]:
            """Reads the results of its prerequisites."""
            self._record_begun(ctx)
            self._record_read(ctx, [_result_key(result) async for result in ctx.results()])
            return await self._finish(ctx, kind)

        @task
        def gather_in_thread(ctx: Context, tag: str = "", kind: str = "ok") -> dict[str, object]:
            self._record_begun(ctx)
            self._record_read(ctx, [_result_key(job.result) for job in ctx.prerequisites()])
            return self._record_ended(ctx, kind)

        @task
        async def crawl(
            ctx: Context, tag: str = "", widths: Sequence[int] = (2,), parent: str = "",
            claim: int = 0, joined: bool = False,
        ) -> dict[str, Any]:  # fmt: skip
            """Enqueues more jobs, which enqueue more themselves: dependents wait for all of
            them."""
            self._record_begun(ctx)
            found = {"parent": ctx.job.id, "claim": ctx.fence, "joined": True}
            width, *deeper = widths
            for _ in range(width):
                child = crawl.job(widths=deeper, **found) if deeper else step.job(**found)
                ctx.enqueue(child, join=True)
            return await self._finish(ctx, "ok", width)

        @task
        async def hook(ctx: Context, hook_of: str, on: str) -> dict[str, object]:
            """Enqueued at the end of another job, which it can read."""
            self._record_begun(ctx)
            self._record_read(ctx, [_result_key(result) async for result in ctx.results()])
            return await self._finish(ctx, "ok")

        self.step, self.crawl, self.hook = step, crawl, hook
        self.gather, self.gather_in_thread = gather, gather_in_thread

    def warm_up(self) -> None:
        for task in (self.step, self.gather, self.gather_in_thread, self.crawl):
            task.job().new_job()
        self.hook.job("", "").new_job()

    def _record_begun(self, ctx: Context) -> None:
        self.work.ledger.write("began", ctx.job.id, ctx.fence)

    def _record_read(self, ctx: Context, results: list[object]) -> None:
        self.work.ledger.write("read", ctx.job.id, ctx.fence, results)

    async def _finish(self, ctx: Context, kind: str, added: int = 0) -> dict[str, object]:
        if kind == "naps":
            await asyncio.sleep(NAP_S)
        return self._record_ended(ctx, kind, added)

    def _record_ended(self, ctx: Context, kind: str, added: int = 0) -> dict[str, object]:
        if kind == "dies":
            raise Permanent("never")
        if kind == "fails" and ctx.job.failures == 0:
            raise RuntimeError("not the first time")
        self.work.ledger.write("ended", ctx.job.id, ctx.fence, added)
        return {"of": ctx.job.id, "fence": ctx.fence}


def _result_key(result: object) -> object:
    return [result.get("of"), result.get("fence")] if isinstance(result, dict) else result
