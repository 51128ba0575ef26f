"""Tasks of the campaigns. Each handler records its actions in the ledger and returns the fence of
its claim, so that the checker sees which result was accepted.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..client.client import Outlast
from ..client.verb_arguments import actor
from ..model.breaker import Breaker
from ..model.errors import BatchFailed, Permanent, RetryLater
from ..model.retry import Retry
from ..model.settings import StoreSettings
from ..worker.batch_context import BatchContext
from ..worker.context import Context
from .flow_tasks import FlowTasks
from .ledger import Ledger
from .wait_tasks import WaitTasks
from .workspace import Workspace

FAST_RETRY = Retry(max_attempts=5, base=0.01, cap=0.05)
MAX_CRASHES = 50  # per job: on a busy machine, leases of a second may expire without a fault
POOLED = "pooled"
TARRY_S = 0.6  # long enough for other workers to check its liveness twice
STEP_NAMES = ("one", "two")
FAILED_CALLS = 8  # failing calls of a dependency before it recovers
LINGER_LIMIT_S = 20.0  # seconds that a handler lingers unless it is asked to stop


class Workload:
    """An application and its ledger, which can move between workspaces."""

    def __init__(self, workspace: Workspace, **settings: Any) -> None:
        store = replace(StoreSettings.of(), **settings)
        self.workspace = workspace
        self.ledger = Ledger(workspace.ledger_file)
        self.ol = Outlast(workspace.url, schema=workspace.schema, settings=store)
        self._begun: set[tuple[str, int]] = set()
        self._define(self.ol)
        self._define_awkward(self.ol)
        self._define_reliant(self.ol)
        self._define_batch(self.ol)
        self._define_durable(self.ol)
        self.flows = FlowTasks(self)
        self.waiting = WaitTasks(self)

    def move_to(self, workspace: Workspace) -> Workload:
        """Continue in another workspace, and write to its ledger."""
        if workspace != self.workspace:
            self.workspace = workspace
            self.ledger = Ledger(workspace.ledger_file)
            self.ol.move(workspace.url, workspace.schema)
        return self

    def use_prepared(self, workspace: Workspace) -> Workload:
        """Move to a prepared workspace, whose facts children need not read again."""
        self.move_to(workspace)
        store = self.ol.store
        store._checked = True
        if workspace.ready_file.read_text() == POOLED:
            store.pooled = True
        return self

    def prepare(self) -> None:
        """Create the tables of this workspace, and announce them."""
        self.ol.store.ready()
        self.workspace.create_business_table()
        self.ol.close()
        pooled = self.ol.store.pooled
        written = self.workspace.ready_file.with_suffix(".new")
        written.write_text(POOLED if pooled else "direct")
        written.replace(self.workspace.ready_file)  # atomically

    def warm_up(self) -> None:
        """Run code that is slow the first time, so that children need not repeat it."""
        from ..worker import isolated, signals  # noqa: F401

        with suppress(ImportError):
            import uvloop  # noqa: F401
        actor()
        for task in (self.mark, self.thread, self.parent, self.tarries, self.naps, self.fails_once):
            task.job().new_job()
        self.relies.job().new_job()
        for awkward in (self.permanent, self.postpones, self.lingers, self.lingers_in_thread):
            awkward.job().new_job()
        self.together.job("good").new_job()
        for durable in (self.stepped, self.completes, self.completes_async):
            durable.job().new_job()
        self.flows.warm_up()
        self.waiting.warm_up()

    def _define(self, ol: Outlast) -> None:
        @ol.task(max_crashes=MAX_CRASHES)
        async def mark(ctx: Context, parent: str = "", claim: int = 0) -> dict[str, int]:
            """Records its run; a follow-up job names its enqueuer."""
            return self._record_run(ctx)

        @ol.task(max_crashes=MAX_CRASHES)
        def thread(ctx: Context) -> dict[str, int]:
            return self._record_run(ctx)

        @ol.task(max_crashes=MAX_CRASHES)
        async def parent(ctx: Context) -> dict[str, int]:
            """Reports, and enqueues two jobs, which exist only if this attempt is accepted."""
            self.ledger.write("began", ctx.job.id, ctx.fence)
            ctx.log("halfway", fence=ctx.fence)
            await asyncio.sleep(0.02)
            child = self.mark.using(queue=ctx.job.queue).job(parent=ctx.job.id, claim=ctx.fence)
            ctx.enqueue(child, child)
            self.ledger.write("ended", ctx.job.id, ctx.fence, 2)
            return {"fence": ctx.fence}

        @ol.task(max_crashes=MAX_CRASHES)
        async def tarries(ctx: Context) -> dict[str, int]:
            result = self._record_run(ctx)
            await asyncio.sleep(TARRY_S)
            return result

        @ol.task(max_crashes=MAX_CRASHES)
        async def naps(ctx: Context, seconds: float = 0.0) -> dict[str, int]:
            """Slow under its first claim, fast afterwards."""
            result = self._record_run(ctx)
            if ctx.fence == 1:
                await asyncio.sleep(seconds)
            return result

        @ol.task
        async def holds(ctx: Context) -> dict[str, int]:
            """Runs until it is released, with the default crash limit."""
            result = self._record_run(ctx)
            while not self.workspace.release_file.exists():  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.2)
            return result

        self.mark, self.thread, self.parent = mark, thread, parent
        self.tarries, self.naps, self.holds = tarries, naps, holds

    def _define_awkward(self, ol: Outlast) -> None:
        @ol.task(max_crashes=MAX_CRASHES, retry=FAST_RETRY)
        async def fails_once(ctx: Context) -> dict[str, int]:
            result = self._record_run(ctx)
            if ctx.job.failures == 0:
                raise RuntimeError("not the first time")
            return result

        @ol.task(max_crashes=MAX_CRASHES, retry=FAST_RETRY)
        def permanent(ctx: Context) -> None:
            self._record_run(ctx)
            raise Permanent("never")

        @ol.task(max_crashes=MAX_CRASHES, retry=FAST_RETRY)
        async def postpones(ctx: Context) -> dict[str, int]:
            """Raises RetryLater the first time."""
            result = self._record_run(ctx)
            if ctx.fence == 1:
                raise RetryLater(0.01)
            return result

        @ol.task(max_crashes=MAX_CRASHES, retry=FAST_RETRY)
        async def lingers(ctx: Context) -> dict[str, int]:
            """Does not end by itself under its first claim."""
            result = self._record_run(ctx)
            if ctx.fence == 1:
                await asyncio.sleep(LINGER_LIMIT_S)
            return result

        @ol.task(max_crashes=MAX_CRASHES, retry=FAST_RETRY)
        def lingers_in_thread(ctx: Context) -> dict[str, int]:
            result = self._record_run(ctx)
            if ctx.fence == 1 and ctx.cancelled.wait(LINGER_LIMIT_S):
                raise RuntimeError("asked to stop")
            return result

        self.fails_once, self.permanent, self.postpones = fails_once, permanent, postpones
        self.lingers, self.lingers_in_thread = lingers, lingers_in_thread

    def _define_reliant(self, ol: Outlast) -> None:
        breaker = Breaker(failures=1, probe_first=0.01, probe_cap=0.02)

        @ol.task(
            max_crashes=MAX_CRASHES, retry=replace(FAST_RETRY, max_attempts=2), breaker=breaker
        )
        async def relies(ctx: Context) -> dict[str, int]:
            """Uses a dependency that fails for the first calls in its queue."""
            result = self._record_run(ctx)
            calls = self.workspace.folder / f"calls-{ctx.job.queue}"
            with calls.open("ab", buffering=0) as file:
                file.write(b".")
            if calls.stat().st_size <= FAILED_CALLS:
                raise ConnectionError("away")
            return result

        self.relies = relies

    def _define_batch(self, ol: Outlast) -> None:
        @ol.task(max_crashes=MAX_CRASHES, retry=FAST_RETRY, batch=20, wait=0.02)
        async def together(items: list[str], ctx: BatchContext) -> list[dict[str, int]]:
            """Fails for the items that it names, or as a whole for one that it does not name."""
            results = [self._record_run_once(own) for own in ctx.items]
            if "spoils" in items:
                raise Permanent("one of these")
            failed = {
                index: Permanent("never") if item == "never" else "not the first time"
                for index, item in enumerate(items)
                if item == "never" or (item == "once" and ctx.items[index].job.failures == 0)
            }
            if failed:
                raise BatchFailed(failed, results=results)
            return results

        self.together = together

    def _record_run_once(self, ctx: Context) -> dict[str, int]:
        """Record a run once per claim: a batch may be called again in parts."""
        if (ctx.job.id, ctx.fence) in self._begun:
            return {"fence": ctx.fence}
        self._begun.add((ctx.job.id, ctx.fence))
        return self._record_run(ctx)

    def _define_durable(self, ol: Outlast) -> None:
        @ol.task(max_crashes=MAX_CRASHES, retry=FAST_RETRY)
        def stepped(ctx: Context) -> dict[str, int]:
            result = self._record_run(ctx)
            for name in STEP_NAMES:
                self.step(ctx, name)
            return result

        @ol.task(max_crashes=MAX_CRASHES, retry=FAST_RETRY)
        def completes(ctx: Context) -> None:
            with ctx.completing(self._record_run(ctx)) as connection:
                self.workspace.insert_business_row(connection, self.writes(ctx))

        @ol.task(max_crashes=MAX_CRASHES, retry=FAST_RETRY)
        async def completes_async(ctx: Context) -> None:
            async with ctx.completing(self._record_run(ctx)) as connection:
                writing = self.workspace.insert_business_row(connection, self.writes(ctx))
                if not self.workspace.is_sqlite:
                    await writing

        self.stepped, self.completes, self.completes_async = stepped, completes, completes_async

    def step(self, ctx: Context, name: str) -> None:
        """Run a step whose result names its claim."""
        given = ctx.step(name, self.do_step, ctx, name)
        self.ledger.write("stepped", ctx.job.id, given["fence"], [name, True])

    def do_step(self, ctx: Context, name: str) -> dict[str, int]:
        self.ledger.write("did", ctx.job.id, ctx.fence, name)
        return {"fence": ctx.fence}

    def writes(self, ctx: Context, *, late: bool = False) -> str:
        """Record the handler's own row; returns its name."""
        name = f"{ctx.job.id}/{ctx.fence}{'/late' if late else ''}"
        self.ledger.write("wrote", ctx.job.id, ctx.fence, [name, not late])
        return name

    def _record_run(self, ctx: Context) -> dict[str, int]:
        self.ledger.write("began", ctx.job.id, ctx.fence)
        return {"fence": ctx.fence}
