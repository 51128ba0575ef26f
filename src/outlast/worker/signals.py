"""A worker as a process of its own: an event loop, and what SIGTERM and SIGINT mean."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..model.safe_text import error_summary
from . import parent_pipe

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("outlast.worker")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
FORCED_EXIT_S = 1.0  # seconds after a second signal; then the process ends, whatever it is doing
SIGNAL_ECHO_S = 0.25  # seconds in which a supervised worker may be told the same stop twice
CANCEL_WAIT_S = 0.1  # seconds that cancelled tasks have when the loop closes


def run_with_signals(worker: Worker) -> None:
    """The first signal drains, the second leaves quickly: see `Worker.stop`."""
    _check_thread()
    with stop_on_signals(worker):
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
            "worker.run() makes an event loop of its own, and one is running in this thread: use"
            " `await worker.arun()`, or `async with worker:`"
        )


def run_to_end(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, None]) -> None:
    """Run until `main` has ended, whatever a handler's own tasks do. A `sys.exit()` in one of them,
    or `loop.stop()`, ends the loop but no handler: the job would be released unspent, and end the
    next worker, too."""
    task = loop.create_task(main)
    task.add_done_callback(lambda _: loop.stop())
    while not task.done():
        try:
            loop.run_forever()
            reason = "loop.stop()"
        except (SystemExit, KeyboardInterrupt) as error:
            reason = error_summary(error)
        if not task.done():
            log.error("a handler ended the event loop, which goes on: %s", reason)
    task.result()


async def _main(worker: Worker) -> None:
    try:
        await worker.arun()
    finally:
        await worker.app.store.aclose()


class StopHandler:
    """Stops a worker. Called by the interpreter, not by the loop: a job may be blocking that."""

    def __init__(self, worker: Worker, supervised: bool) -> None:
        self.worker = worker
        self._supervised = supervised
        self._signalled_at: float | None = None

    def __call__(self, *_: object) -> None:
        now = time.monotonic()
        if self._signalled_at is not None:
            if self._supervised and now - self._signalled_at < SIGNAL_ECHO_S:
                # An init system signals every process of a service, and our supervisor passes
                # its own signal on: that is one wish, not two.
                return
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, FORCED_EXIT_S)
        self._signalled_at = self._signalled_at or now
        self.worker.stop()


@contextmanager
def stop_on_signals(worker: Worker) -> Iterator[None]:
    """Signals stop a worker, also one that is still to run: a process that says it has started is
    stopped, not killed. Within itself it does nothing."""
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
    """uvloop where it is installed."""
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """As `asyncio.run` does, but a handler that refuses to be cancelled is left behind."""
    try:
        if tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_WAIT_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
