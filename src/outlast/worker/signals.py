"""A worker as a process of its own: its event loop, and the handling of SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..model.safe_text import error_summary
from . import parent_pipe
from .garbage import rarely_collected

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("outlast.worker")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
FORCED_EXIT_S = 1.0  # seconds after a second signal until the process is killed
SIGNAL_ECHO_S = 0.25  # seconds in which a supervised worker may receive the same stop twice
CANCEL_WAIT_S = 0.1  # seconds that cancelled tasks get when the loop closes


def run_with_signals(worker: Worker) -> None:
    """Run a worker until a signal: the first one drains, the second one skips the grace time."""
    _check_thread()
    with stop_on_signals(worker), rarely_collected():
        loop = _new_loop()
        try:
            run_to_end(loop, _main(worker))
        finally:
            _close(loop)


def _check_thread() -> None:
    """Refuse a thread that cannot handle signals, or in which an event loop runs already."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "worker.run() handles signals, so it needs the main thread: in another thread, use"
            " asyncio.run(worker.arun()), and worker.stop() to end it"
        )
    if asyncio._get_running_loop() is not None:
        raise RuntimeError(
            "worker.run() starts an event loop, but one is already running in this thread: use"
            " `await worker.arun()`, or `async with worker:`"
        )


def run_to_end(loop: asyncio.AbstractEventLoop, main: Coroutine[object, object, None]) -> None:
    """Run until `main` has ended, whatever tasks of handlers do. A `sys.exit()` or `loop.stop()` in
    one of them ends the loop but no attempt: the job would be released unspent, and stop the next
    worker as well."""
    task = loop.create_task(main)
    task.add_done_callback(lambda _: loop.stop())
    while not task.done():
        try:
            loop.run_forever()
            reason = "loop.stop()"
        except (SystemExit, KeyboardInterrupt) as error:
            reason = error_summary(error)
        if not task.done():
            log.error("a handler stopped the event loop, which is resumed: %s", reason)
    task.result()


async def _main(worker: Worker) -> None:
    try:
        await worker.arun()
    finally:
        await worker.app.store.aclose()


class StopHandler:
    """Signal handler that stops a worker. Called by the interpreter, not by the event loop, which
    a job may block."""

    def __init__(self, worker: Worker, supervised: bool) -> None:
        self.worker = worker
        self._supervised = supervised
        self._signalled_at: float | None = None

    def __call__(self, *_: object) -> None:
        now = time.monotonic()
        if self._signalled_at is not None:
            if self._supervised and now - self._signalled_at < SIGNAL_ECHO_S:
                # An init system signals every process of a service, and the supervisor forwards
                # its own signal: both are the same request.
                return
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, FORCED_EXIT_S)
        self._signalled_at = self._signalled_at or now
        self.worker.stop()


@contextmanager
def stop_on_signals(worker: Worker) -> Iterator[None]:
    """Stop a worker at signals, even before it runs: a process that reports its start is stopped,
    not killed. A nested use changes nothing."""
    current = signal.getsignal(signal.SIGTERM)
    if isinstance(current, StopHandler) and current.worker is worker:
        yield
        return
    handler = StopHandler(worker, parent_pipe.watch_parent(worker))
    before = {number: signal.signal(number, handler) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, former in before.items():
            signal.signal(number, former)


def _new_loop() -> asyncio.AbstractEventLoop:
    """A new event loop: uvloop if installed."""
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close the loop as `asyncio.run` does, but abandon handlers that refuse to be cancelled."""
    try:
        if tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_WAIT_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
