"""`outlast.loops`: one pass after the other, back-off on errors, a clean stop."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from outlast import InvalidOption
from outlast.loops import Backoff, Loop
from tests.support import Processes, aeventually, eventually

SHORT = {"first": 0.01, "cap": 0.05, "factor": 2.0}


def test_a_loop_in_a_thread_outlives_errors_and_stops_when_it_is_told() -> None:
    """R014, R023: each failure is counted and waited out; stop ends a pause."""
    seen: list[int] = []

    def once() -> None:
        seen.append(len(seen))
        if len(seen) <= 3:
            raise ConnectionError("away")

    loop = Loop("test", once, every=3600, backoff=Backoff(**SHORT))
    thread = threading.Thread(target=loop.run)
    thread.start()
    eventually(lambda: loop.passes == 4)
    assert loop.failures == 3
    loop.trigger()
    eventually(lambda: loop.passes == 5)
    assert thread.is_alive()
    loop.stop()
    thread.join(5)
    assert not thread.is_alive() and loop.stopped
    assert loop.passes == 5, "no pass after the stop"


def test_a_pass_says_when_it_wants_to_run_again() -> None:
    waits = iter([0.0, 7.5, None])
    loop = Loop("test", lambda: next(waits), every=10)
    assert [loop.step(), loop.step()] == [0.0, 7.5]
    assert 8.0 <= loop.step() <= 10.0


def test_durations_may_be_timedeltas() -> None:
    backoff = Backoff(first=timedelta(seconds=2), cap=timedelta(seconds=3))
    assert 1.4 <= backoff.failed() <= 2.0
    waits = iter([None, timedelta(seconds=7)])
    loop = Loop(
        "test", lambda: next(waits), every=timedelta(seconds=10), backoff=backoff,
        stable_after=timedelta(minutes=1),
    )  # fmt: skip
    assert 8.0 <= loop.step() <= 10.0
    assert loop.step() == 7.0
    assert 1.4 <= loop.step() <= 2.0, "nothing is left: it has failed"


@pytest.mark.parametrize("returned", ["soon", {"next": 1}, [], float("nan"), float("inf")])
def test_a_pass_that_returns_no_number_has_failed(
    returned: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """R014: the loop goes on, and says what is wrong."""
    loop = Loop("test", lambda: returned, every=10, backoff=Backoff(**SHORT))
    assert loop.step() <= 0.01
    assert asyncio.run(loop.astep()) <= 0.02
    assert loop.failures == loop.passes == 2
    assert "must return None or the seconds until the next pass" in caplog.text


async def test_the_same_loop_in_an_event_loop() -> None:
    """Sync passes run in a thread, and do not block it; stop comes from another thread."""
    began, gate = threading.Event(), threading.Event()

    def blocking() -> None:
        began.set()
        gate.wait(5)

    loop = Loop("test", blocking, every=3600)
    running = asyncio.create_task(loop.arun())
    while not began.is_set():  # noqa: ASYNC110 - this event loop goes on, that is the point
        await asyncio.sleep(0.01)
    await asyncio.to_thread(loop.stop)
    gate.set()
    await asyncio.wait_for(running, 5)
    assert loop.passes == 1


async def test_a_cancelled_loop_ends_and_a_failure_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`on_failure` may report instead of the log."""
    reported: list[tuple[str, float]] = []

    async def once() -> None:
        raise OSError("away")

    loop = Loop("mailbox", once, every=1, backoff=Backoff(**SHORT))
    assert 0.007 <= await loop.astep() <= 0.01
    assert "mailbox failed (away); next try in 0.0 s" in caplog.text
    caplog.clear()
    loop.on_failure = lambda error, wait: reported.append((str(error), wait)) or True
    await loop.astep()
    assert [text for text, _ in reported] == ["away"] and caplog.text == ""
    running = asyncio.create_task(loop.arun())
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_a_signal_stops_a_loop_in_its_pause(processes: Processes) -> None:
    """R021: the handler runs in the very thread that waits; within a second, with code 0."""
    script = """
        import signal
        from outlast.loops import Loop

        loop = Loop("test", lambda: print("pass", flush=True), every=3600)
        signal.signal(signal.SIGTERM, lambda *_: loop.stop())
        loop.run()
        print("ended in good order", flush=True)
    """
    process = processes.python(script)
    eventually(lambda: "pass" in process.output(), 20.0)
    since = time.monotonic()
    process.terminate()
    assert process.wait(20.0) == 0
    assert time.monotonic() - since < 5.0
    assert "ended in good order" in process.output()


@pytest.mark.parametrize(
    "given",
    [
        {"once": None},
        {"every": -1},
        {"every": None},
        {"every": "often"},
    ],
)
def test_bad_input_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        Loop(**{"name": "x", "once": lambda: None, "every": 1.0} | given)


async def test_only_a_pass_that_failed_is_retried_at_once() -> None:
    async def once() -> None:
        if loop.passes == 2:
            raise ValueError("away")

    loop = Loop("test", once, every=3600, backoff=Backoff(first=3600, cap=3600))
    running = asyncio.create_task(loop.arun())
    for retry, passes in ((loop.trigger, 2), (loop.retry_now, 3)):
        await aeventually(lambda: loop.passes >= 1)
        retry()
        await aeventually(lambda passes=passes: loop.passes == passes)
    await asyncio.sleep(0)  # it waits
    loop.retry_now()
    loop.stop()
    await asyncio.wait_for(running, 5)
    assert loop.passes == 3


@pytest.mark.parametrize("given", [{"first": -1}, {"cap": float("inf")}, {"factor": 0.5}])
def test_a_bad_back_off_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        Backoff(**given)


def test_an_async_pass_is_refused_where_nobody_awaits() -> None:
    async def once() -> None: ...

    with pytest.raises(InvalidOption, match="arun"):
        Loop("x", once, every=1).run()
