"""Answers that last: sent a part at a time until somebody ends them, whoever and however.

What is sent last may find a client that takes nothing any more: then the line is cut, because one
that is only closed is kept until all that was written has been taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any

from starlette.types import Receive, Scope, Send

from .hanging_up import HANG_UP

STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
FINAL_SEND_TIMEOUT_S = 1.0  # seconds that the last word may take


class ClientStalled(Exception):
    """The client takes nothing any more."""


async def race(
    sending: Coroutine[Any, Any, None], others: Mapping[str, Coroutine[Any, Any, Any]]
) -> tuple[str, BaseException | None]:
    """The name of whoever ends first, and all of them have ended; none, if that is who sends, and
    what it failed with."""
    sender = asyncio.create_task(sending)
    enders = {sender: ""} | {asyncio.create_task(other): name for name, other in others.items()}
    try:
        await asyncio.wait(enders, return_when=asyncio.FIRST_COMPLETED)
        name = next(enders[task] for task in enders if task.done())
    finally:
        for task in enders:
            task.cancel()
        await asyncio.gather(*enders, return_exceptions=True)
    return name, None if name else sender.exception()


async def send_with_timeout(seconds: float, sending: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await sending
    except TimeoutError:
        raise ClientStalled from None


async def send_final(content: bytes, scope: Scope, receive: Receive, send: Send) -> None:
    """The last word, if it can be said; else the line is cut."""
    try:
        await send_with_timeout(FINAL_SEND_TIMEOUT_S, send(body_message(content, more=False)))
    except ClientStalled:
        if hang_up := scope.get("extensions", {}).get(HANG_UP):
            hang_up()
            await disconnected(receive)  # the server has learned of it
    except OSError:
        pass  # it has gone


def body_message(part: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": part, "more_body": more}


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
