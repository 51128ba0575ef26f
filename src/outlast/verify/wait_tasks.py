"""Tasks that wait. Their signals are numbered in the order of arrival, so a handler detects a lost,
repeated or out-of-order signal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model.errors import SignalTimeout
from ..model.retry import Retry
from ..worker.context import Context

if TYPE_CHECKING:
    from .workload import Workload

RETRY = Retry(max_attempts=5, base=0.01, cap=0.05)
MAX_CRASHES = 50  # per job: kills hit jobs at random
SIGNAL, MAYBE = "go", "maybe"  # a signal that comes, and one that may come too late


class WaitTasks:
    def __init__(self, work: Workload) -> None:
        self.work = work
        task = work.ol.task(max_crashes=MAX_CRASHES, retry=RETRY)

        @task
        async def waits(
            ctx: Context, signals: int = 1, nap: float = 0.0, timeout: float | None = None
        ) -> dict[str, Any]:
            """Sleeps, waits for a number of signals, and for one more that may time out."""
            self._begin(ctx)
            await ctx.sleep(nap)
            values = [await ctx.wait(SIGNAL) for _ in range(signals)]
            late = None
            if timeout is not None:
                try:
                    late = await ctx.wait(MAYBE, timeout=timeout)
                except SignalTimeout:
                    late = "timed out"
            return self._end(ctx, values, late)

        @task
        def waits_in_thread(ctx: Context, signals: int = 1) -> dict[str, Any]:
            self._begin(ctx)
            return self._end(ctx, [ctx.wait(SIGNAL) for _ in range(signals)], None)

        @task
        async def awaits(ctx: Context, child: str = "") -> dict[str, Any]:
            """Waits for the end of another job."""
            self._begin(ctx)
            if child:
                await ctx.wait_for(child, name="child")
            return self._end(ctx, [], None)

        self.waits, self.waits_in_thread, self.awaits = waits, waits_in_thread, awaits

    def _begin(self, ctx: Context) -> None:
        self.work.ledger.write("began", ctx.job.id, ctx.fence)

    def _end(self, ctx: Context, values: list[Any], late: Any) -> dict[str, Any]:
        if values != list(range(len(values))):
            message = f"{ctx.job.id} got the signals {values}"
            self.work.ledger.write("saw", ctx.job.queue, 0, ["I3", "repeated", message])
        self.work.ledger.write("passed", ctx.job.id, ctx.fence, [values, late])
        return {"fence": ctx.fence, "values": values, "late": late}

    def send(self, id: str, number: int = 1, name: str = SIGNAL, **options: Any) -> None:
        """Send numbered signals, each with a key: a repeat is the same signal."""
        for value in range(number):
            self.work.ol.signal(id, name, value, key=f"{name} {value}", **options)

    def warm_up(self) -> None:
        for task in (self.waits, self.waits_in_thread, self.awaits):
            task.job().new_job()
