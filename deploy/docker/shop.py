"""The tasks that compose.yaml runs: replace this file by your own package."""

from __future__ import annotations

import asyncio

from outlast import Context, Outlast

ol = Outlast()  # $OUTLAST_URL


@ol.task(queue="mail", timeout=60)
async def welcome(to: str, ctx: Context) -> str:
    for done in range(1, 6):
        await asyncio.sleep(1)
        ctx.progress(done, 5, f"part {done} for {to}")
    return f"sent to {to}"
