"""What a large body makes us compute is computed in a thread: others have their turns meanwhile.

One thread at a time: more of them would take the same time from the event loop, again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

THREAD_FROM_BYTES = 20_000  # bytes: what is smaller takes less time than another thread

_thread = ThreadPoolExecutor(1, "outlast-bodies")


async def in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """What `work` gives, for a body of this size."""
    if size <= THREAD_FROM_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)
