"""A worker's event loop: handlers whose own tasks end it, and threads that cannot run it."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import Outlast, OutlastError
from tests.support import Database, Processes, aeventually, eventually
from tests.support.app import PATIENCE, App

SCRIPT = """
import asyncio, os, sys
from outlast import Outlast, Retry

ol = Outlast(os.environ["OUTLAST_URL"], schema=os.environ["OUTLAST_SCHEMA"])

async def leave(how):
    if how == "interrupt":
        raise KeyboardInterrupt
    sys.exit(how)

@ol.task(max_attempts=1)
async def in_a_group(how):
    async with asyncio.TaskGroup() as group:
        group.create_task(leave(how))
        group.create_task(asyncio.sleep(60))

@ol.task
async def beside(how):
    task = asyncio.create_task(leave(how))
    await asyncio.sleep(0.1)
    return str(task.exception())

@ol.task
async def stop(how):
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.1)
    return "ran on"

ol.worker(concurrency=4).run()
"""


@pytest.fixture
def app(database: Database, tmp_path: Path) -> Iterator[App]:
    app = App.of(database, tmp_path)
    yield app
    app.close()


@pytest.mark.kinds("sqlite")
def test_a_task_of_a_handler_that_exits_ends_neither_the_worker_nor_other_jobs(
    app: App, processes: Processes
) -> None:
    """R023, R049: asyncio lets `sys.exit()` in a task end the loop, past the handler."""

    @app.ol.task
    def in_a_group(how: object) -> None: ...

    @app.ol.task
    def beside(how: object) -> str: ...

    @app.ol.task
    def stop(how: object) -> str: ...

    how = [5, "interrupt"]
    failing = app.ol.enqueue(*[in_a_group.using(max_attempts=1).job(each) for each in how])
    others = app.ol.enqueue(*[beside.job(each) for each in how], stop.job(None))
    worker = processes.python(SCRIPT, env=app.environment())

    def ended() -> bool:
        assert not worker.ended, worker.output()
        return all(job.final for job in app.ol.jobs())

    eventually(ended, PATIENCE, message=worker.output)
    for job in failing:
        found = app.ol.job(job.id)
        assert (found.state, found.attempt) == ("dead", 1), found.error
    assert [app.ol.result(job.id) for job in others] == ["5", "", "ran on"]
    assert "stopped the event loop, which is resumed" in worker.output()
    worker.terminate()
    assert worker.wait(PATIENCE) == 0


@pytest.mark.kinds("sqlite")
async def test_run_in_an_event_loop_says_to_await_arun(ol: Outlast) -> None:
    with pytest.raises(RuntimeError, match=r"await worker\.arun"):
        ol.worker().run()


@pytest.mark.kinds("sqlite")
def test_run_in_another_thread_says_what_runs_there(ol: Outlast) -> None:
    raised: list[str] = []

    def run() -> None:
        try:
            ol.worker().run()
        except RuntimeError as error:
            raised.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "asyncio.run(worker.arun())" in raised[0]
    asyncio.run(_started_and_stopped(ol))


async def _started_and_stopped(ol: Outlast) -> None:
    async with ol.worker():
        pass


@pytest.mark.kinds("sqlite")
async def test_a_worker_runs_once_and_says_what_to_do(ol: Outlast) -> None:
    async with ol.worker() as worker:
        await aeventually(ol.aworkers, PATIENCE)
        with pytest.raises(RuntimeError, match="create another one"):
            await worker.arun()
        with pytest.raises(RuntimeError, match="create another one"):
            await worker.__aenter__()
    with pytest.raises(RuntimeError, match="create another one"):
        await worker.arun()


@pytest.mark.kinds("sqlite")
async def test_a_worker_without_a_heartbeat_says_why(
    ol: Outlast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R011: where open files run out, the cause is not hidden by an error of the clean-up."""

    def refuse(main: Coroutine[Any, Any, None]) -> None:
        main.close()
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched, pytest.raises(OutlastError, match="stopped itself"):
        patched.setattr(asyncio, "run", refuse)
        await ol.worker().arun()
    assert "heartbeat thread failed: [Errno 24]" in caplog.text
    assert ol.workers() == []
