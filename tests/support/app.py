"""An application for worker processes: tasks that write down what they do.

Each handler appends to a ledger, a file that knows nothing of the database, so that a test can
compare what ran with what the database says. `python -m tests.support.app` runs a worker on it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlast import Context, Job, Outlast, Retry, RetryLater
from tests.support.databases import Database
from tests.support.durable import Durable
from tests.support.points import arm
from tests.support.processes import Process, Processes
from tests.support.waiting import eventually

TIMINGS = {"lease": 2.0, "renew_every": 0.5, "reclaim_every": 0.5, "poll_max": 0.2}
BOUND = 3.7  # seconds: lease + renewal + a look for lost claims + a look for work, by TIMINGS
SLACK = 5.0  # seconds that a loaded machine may take on top
PATIENCE = 30.0  # seconds to wait for what has no bound of its own, such as a process that starts


@dataclass(frozen=True)
class Entry:
    """One line of the ledger."""

    what: str
    task: str
    job: str
    attempt: int
    pid: int
    at: float  # seconds by the monotonic clock, which all processes share


class Ledger:
    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, what: str, task: str, context: Context) -> None:
        who = f"{context.job.id} {context.attempt} {os.getpid()}"
        line = f"{what} {task} {who} {time.monotonic()}\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)

    @contextmanager
    def around(self, task: str, context: Context) -> Iterator[None]:
        """`start` when it begins, `end` if it gets that far."""
        self.write("start", task, context)
        yield
        self.write("end", task, context)

    def read(self, what: str | None = None, job: str | None = None) -> list[Entry]:
        if not self.path.exists():
            return []
        lines = [line.split() for line in self.path.read_text().splitlines()]
        entries = [
            Entry(what, task, job, int(attempt), int(pid), float(at))
            for what, task, job, attempt, pid, at in lines
        ]
        return [e for e in entries if what in (None, e.what) and job in (None, e.job)]

    def wait(self, what: str, job: str | None = None, count: int = 1) -> Any:
        """The entries of a kind, as soon as there are so many."""

        def enough() -> list[Entry]:
            found = self.read(what, job)
            return found if len(found) >= count else []

        return eventually(enough, PATIENCE, message=lambda: f"ledger: {self.read()}")


class App:
    """The tasks, on one database, with one ledger."""

    def __init__(self, url: str, schema: str, folder: Path) -> None:
        self.folder = folder
        self.url, self.schema = url, schema
        self.ol = ol = Outlast(url, schema=schema)
        self.ledger = ledger = Ledger(folder / "ledger")

        @ol.task
        async def mark(n: int, ctx: Context) -> int:
            ledger.write("run", "mark", ctx)
            return n

        @ol.task
        async def nap(seconds: float, ctx: Context) -> dict[str, Any]:
            with ledger.around("nap", ctx):
                await asyncio.sleep(seconds)
            return {"pid": os.getpid(), "attempt": ctx.attempt}

        @ol.task
        def nap_in_thread(seconds: float, ctx: Context) -> dict[str, Any]:
            with ledger.around("nap_in_thread", ctx):
                time.sleep(seconds)
            return {"pid": os.getpid(), "attempt": ctx.attempt}

        @ol.task
        async def block(seconds: float, ctx: Context) -> None:
            """Blocks the event loop, as no handler should."""
            with ledger.around("block", ctx):
                time.sleep(seconds)  # noqa: ASYNC251

        @ol.task
        async def block_at_first(ctx: Context) -> None:
            """Blocks the event loop for good, on its first attempt."""
            with ledger.around("block_at_first", ctx):
                time.sleep(300.0 if ctx.attempt == 1 else 0.0)  # noqa: ASYNC251

        @ol.task
        async def gated(gate: str, ctx: Context) -> dict[str, Any]:
            """Runs until a file exists; on its first attempt only, it may never."""
            with ledger.around("gated", ctx):
                while ctx.attempt == 1 and not (folder / gate).exists():  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                ctx.progress(1, 1, "last words")
            return {"pid": os.getpid(), "attempt": ctx.attempt}

        @ol.task
        async def followed(n: int, ctx: Context) -> int:
            """Says something, and leaves a job behind if it is accepted."""
            ledger.write("run", "followed", ctx)
            ctx.progress(n, n, "done")
            ctx.enqueue(mark.job(n))
            return n

        @ol.task(retry=Retry(max_attempts=5, base=2.0, jitter=0.0))
        async def fails_once(ctx: Context) -> int:
            ledger.write("run", "fails_once", ctx)
            if ctx.attempt == 1:
                raise RuntimeError("the first attempt fails")
            return ctx.attempt

        @ol.task(retry=Retry(max_attempts=5, base=0.0, jitter=0.0))
        async def stalls(then: str, ctx: Context) -> dict[str, Any]:
            """On its first attempt its whole process stops, like a machine that is put to sleep;
            when it goes on, the handler ends in the way that was asked for."""
            ledger.write("run", "stalls", ctx)
            if ctx.attempt == 1:
                stall()
                ctx.progress(1, 1, "from the past")
                if then == "fails":
                    raise RuntimeError("from the past")
                if then == "postpones":
                    raise RetryLater(0.0, "from the past")
            return {"pid": os.getpid(), "attempt": ctx.attempt}

        @ol.task
        async def poison(ctx: Context) -> None:
            """Takes its process with it, once the others have begun."""
            ledger.write("start", "poison", ctx)
            await asyncio.sleep(0.2)
            os.kill(os.getpid(), signal.SIGKILL)

        @ol.task
        async def ends_thread(name: str, ctx: Context) -> None:
            """Ends a thread of its own process from inside, as a bug there would."""
            ledger.write("run", "ends_thread", ctx)
            [thread] = [one for one in threading.enumerate() if one.name == name]
            ended = ctypes.py_object(SystemExit)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ended)

        self.mark, self.nap, self.nap_in_thread, self.block = mark, nap, nap_in_thread, block
        self.block_at_first = block_at_first
        self.gated, self.followed, self.fails_once = gated, followed, fails_once
        self.stalls, self.ends_thread, self.poison = stalls, ends_thread, poison
        self.durable = Durable(ol, schema, ledger.write, stall)

    @classmethod
    def of(cls, database: Database, folder: Path) -> App:
        return cls(database.url, database.schema, folder)

    def environment(self, **settings: object) -> dict[str, str]:
        """What a process needs to be a worker of this application."""
        return {
            "OUTLAST_URL": self.url,
            "OUTLAST_SCHEMA": self.schema,
            "OUTLAST_TEST_FOLDER": str(self.folder),
            **{f"OUTLAST_{k.upper()}": str(v) for k, v in {**TIMINGS, **settings}.items()},
        }

    def start_worker(
        self,
        processes: Processes,
        point: str = "",
        queue: str = "",
        *,
        heals: bool = False,
        **settings: object,
    ) -> Process:
        """A worker process for one queue or for all, which kills itself at `point` (see
        tests.support.points). A victim heals only if told, or it might die of that instead."""
        env = self.environment(**settings) | ({"OUTLAST_TEST_HEALS": "1"} if heals else {})
        return processes.python("tests.support.app", point, queue, env=env)

    def finished(self, job: Job) -> Job:
        """The job, once it has succeeded; R090: a crash is never its end."""

        def succeeded() -> Job | None:
            now = self.ol.job(job.id)
            assert now.state not in ("dead", "cancelled"), now
            return now if now.state == "succeeded" else None

        return eventually(succeeded, PATIENCE, message=lambda: str(self.ol.job(job.id)))

    def close(self) -> None:
        self.ol.close()


def stall() -> None:
    """Stop this whole process until somebody sends SIGCONT."""
    from outlast.store.forks import _registered

    # Not in the middle of a transaction: on SQLite nobody else could write until we go on.
    locks = [one._lock for one in _registered if hasattr(one, "_writer")]
    for lock in locks:
        lock.acquire()
    os.kill(os.getpid(), signal.SIGSTOP)
    # The signal may take a moment to reach every thread; nothing may happen in that moment.
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        pass
    for lock in locks:
        lock.release()


def from_environment() -> App:
    folder = Path(os.environ["OUTLAST_TEST_FOLDER"])
    return App(os.environ["OUTLAST_URL"], os.environ["OUTLAST_SCHEMA"], folder)


def main() -> None:
    from outlast.worker.logs import set_up
    from outlast.worker.maintenance import Maintenance

    set_up(os.environ.get("OUTLAST_TEST_LOG", "info"))
    point, queue, *_ = (*sys.argv[1:], "", "")
    if point and "OUTLAST_TEST_HEALS" not in os.environ:
        Maintenance.loops = lambda self: []  # type: ignore[method-assign]
    arm(point)
    from_environment().ol.worker(queue or None).run()


if __name__ == "__main__":
    main()
