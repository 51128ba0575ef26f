"""The tasks of examples/remote_worker.mjs in Python, for workers that have no database: whoever
touched the one that is named here would fail."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from outlast import Context, Outlast, Permanent

ol = Outlast("sqlite:////nowhere/at/all.db")


@ol.task
def add(a: int, b: int) -> int:
    return a + b


@ol.task
async def nap(seconds: float, ctx: Context) -> int:
    await asyncio.sleep(seconds)
    return ctx.attempt


@ol.task
async def count(to: int, ctx: Context) -> None:
    for n in range(1, to + 1):
        ctx.progress(n, to)


@ol.task
async def talk(to: int, ctx: Context) -> None:
    """Streams its numbers; its first attempt takes its process with it in the middle."""
    for n in range(to):
        ctx.stream(f"{n} ")
        await asyncio.sleep(0.002)
        if n == to // 2 and ctx.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    ctx.stream({"to": to})


@ol.task
async def talk_in_steps(to: int, ctx: Context) -> None:
    """Each attempt streams one step more than the one before, and then takes its process with
    it; the last one has none more."""

    async def say(step: int) -> None:
        await asyncio.sleep(0.06)  # the last output is sent by then
        ctx.stream(f"{step}: ")
        await asyncio.sleep(0.005)  # and these words, a moment later, are not
        for n in range(10):
            ctx.stream(f"{n} ")

    for step in range(min(to, ctx.attempt)):
        await ctx.step(f"say {step}", say, step)
    if ctx.attempt <= to:
        os.kill(os.getpid(), signal.SIGKILL)


@ol.task
def fail(message: str) -> None:
    raise RuntimeError(message)


@ol.task
def refuse(message: str) -> None:
    raise Permanent(message)


@ol.task
async def say_and_die(things: int, ctx: Context) -> None:
    """Says so many things, and takes its process with it before any of them can be sent."""
    for n in range(things):
        ctx.log("said", n=n)
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@ol.task
async def echo(n: int) -> int:
    return n


@ol.task
def wait_for(path: str, ctx: Context) -> int:
    """Runs until somebody makes that file; one beside it says that it began."""
    Path(f"{path}.began").touch()
    while not Path(path).exists():
        time.sleep(0.02)
    return ctx.attempt
