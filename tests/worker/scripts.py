"""Handlers of both colours from one script: a generator that yields whatever an async handler would
await, and gets the answer either way."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from typing import Any

import pytest

from outlast import Context, Outlast, Task

Script = Callable[[Context], Generator[Any, Any, Any]]
both_colours = pytest.mark.parametrize("colour", ["sync", "async"])


def handler(ol: Outlast, colour: str, script: Script, **options: Any) -> Task[Any, Any]:
    """A task that does what the script says."""

    def handles(ctx: Context) -> Any:
        return play(script(ctx))

    async def ahandles(ctx: Context) -> Any:
        return await aplay(script(ctx))

    return ol.task(name="handles", **options)(handles if colour == "sync" else ahandles)


def play(script: Generator[Any, Any, Any]) -> Any:
    answer: Any = None
    while True:
        try:
            answer = script.send(answer)
        except StopIteration as stop:
            return stop.value


async def aplay(script: Generator[Any, Any, Any]) -> Any:
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            wanted = script.send(answer) if error is None else script.throw(error)
        except StopIteration as stop:
            return stop.value
        try:
            answer, error = (await wanted if inspect.isawaitable(wanted) else wanted), None
        except BaseException as raised:
            error = raised
