"""A worker as a process of its own: an event loop, and what SIGTERM and SIGINT mean."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .worker import Worker


def run_with_signals(worker: Worker) -> None:
    """The first signal drains, the second leaves quickly: see `Worker.stop`."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
        try:
            await worker.arun()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            await worker.store.aclose()

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(main())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed."""
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop
