"""Tasks with durable steps, and tasks that complete their own job, for worker processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from outlast import Context, Outlast, Retry
from outlast.ops.streams import stream_tail
from outlast.store import forks

UNITS = 5
WORDS = [f"word-{n} " for n in range(60)]
AT_ONCE = Retry(max_attempts=5, base=0.0, jitter=0.0)


class Durable:
    def __init__(
        self, ol: Outlast, schema: str, write: Callable[..., None], stall: Callable[[], None]
    ) -> None:
        sqlite = ol.store.address.dialect == "sqlite"
        self.table = "payment" if sqlite else f"{schema}.payment"

        def unit(n: int, ctx: Context) -> int:
            write("unit", f"unit-{n}", ctx)
            return n * n

        @ol.task(retry=AT_ONCE)
        def steps(ctx: Context) -> list[int]:
            return [ctx.step(f"unit {n}", unit, n, ctx) for n in range(UNITS)]

        @ol.task(retry=AT_ONCE)
        async def asteps(ctx: Context) -> list[int]:
            return [await ctx.step(f"unit {n}", unit, n, ctx) for n in range(UNITS)]

        def pay(ctx: Context, how: str) -> str:
            if how == "stalls inside" and ctx.attempt == 1:
                stall()
            return f"INSERT INTO {self.table} VALUES ('{ctx.job.id}', {ctx.attempt})"

        def before(ctx: Context, how: str) -> None:
            write("start", "pays", ctx)
            if how == "stalls before" and ctx.attempt == 1:
                forks._before()  # no thread of ours is in a transaction: that would keep the file
                stall()
                forks._after_here()

        def after(ctx: Context, how: str) -> None:
            write("paid", "pays", ctx)
            if how == "dies after" and ctx.attempt == 1:
                os.kill(os.getpid(), signal.SIGKILL)

        @ol.task(retry=AT_ONCE)
        def pays(how: str, ctx: Context) -> None:
            before(ctx, how)
            with ctx.completing(ctx.attempt) as connection:
                connection.execute(pay(ctx, how))
            after(ctx, how)

        @ol.task(retry=AT_ONCE)
        async def apays(how: str, ctx: Context) -> None:
            before(ctx, how)
            async with ctx.completing(ctx.attempt) as connection:
                done: Any = connection.execute(pay(ctx, how))
                if not sqlite:
                    await done
            after(ctx, how)

        @ol.task(retry=AT_ONCE)
        def talks(ctx: Context) -> None:
            for word in WORDS:
                ctx.stream(word)
                time.sleep(0.02)

        @ol.task(retry=AT_ONCE)
        async def atalks(ctx: Context) -> None:
            for word in WORDS:
                ctx.stream(word)
                await asyncio.sleep(0.02)

        @ol.task(retry=AT_ONCE)
        def talks_and_stalls(ctx: Context) -> None:
            ctx.stream(WORDS[0])
            if ctx.attempt == 1:
                time.sleep(0.3)  # its first word is stored
                forks._before()  # no thread of ours is in a transaction: that would keep the file
                stall()
                forks._after_here()
                ctx.stream("zombie")
            for word in WORDS[1:]:
                ctx.stream(word)

        def tell(ctx: Context) -> int:
            """The words after the first are streamed when no write is due for a while."""
            ctx.stream(WORDS[0])
            while not ol.store.run(stream_tail, ctx.job.id):
                time.sleep(0.001)
            for word in WORDS[1:]:
                ctx.stream(word)
            return len(WORDS)

        @ol.task(retry=AT_ONCE)
        def tells(ctx: Context) -> list[int]:
            return [ctx.step("tell", tell, ctx), ctx.attempt]

        @ol.task(retry=AT_ONCE)
        async def atells(ctx: Context) -> list[int]:
            return [await ctx.step("tell", tell, ctx), ctx.attempt]

        self.tells = {"sync": tells, "async": atells}
        self.talks = {"sync": talks, "async": atalks, "stalls": talks_and_stalls}
        self.steps = {"sync": steps, "async": asteps}
        self.pays = {"sync": pays, "async": apays}
