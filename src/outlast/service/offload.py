"""Parse large bodies in a thread, to keep the event loop responsive.

One thread at a time: several would compete with the event loop for the interpreter lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

THREAD_FROM_BYTES = 20_000  # smaller bodies take less time than a thread switch

_thread = ThreadPoolExecutor(1, "outlast-bodies")


async def in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """The result of `work`, in a thread if the body is large."""
    if size <= THREAD_FROM_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)
