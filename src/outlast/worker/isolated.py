"""Isolated tasks: sync handlers in a process that can be killed (`@ol.task(isolated=True)`).

The worker starts a fresh interpreter for each attempt, passes the claim as JSON on its standard
input, and reads JSON lines from a pipe: events while it runs, then the end of the attempt. The
child imports the module that defined the task, by a name that comes from the worker's own code,
never from data. It exits when its standard input is closed, because the worker is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from ..model.breaker import Outage
from ..model.job import NewFlow, NewJob
from ..model.lifecycle import Outcome
from ..model.outcome import AttemptEnd
from ..model.task import TaskDefinition
from ..model.wait import read_wait
from .executor import SingleExecution

CHILD_MODULE = f"{__package__}.isolated_child"
MAX_MESSAGE_BYTES = 64 * 1024 * 1024  # of one line from the child: its result and its jobs
EXIT_WAIT_S = 2.0  # seconds between a child's last message and its exit, in either order


class IsolatedExecution(SingleExecution):
    """The worker's side of an isolated attempt; `isolated_child` is the other."""

    process: asyncio.subprocess.Process | None = None

    async def run(self, threads: Executor) -> AttemptEnd:
        receiving, sending = os.pipe()
        pipe = os.fdopen(receiving, "rb", 0)
        try:
            self.process = await self._spawn(sending)
            reader, transport = await _open_pipe(pipe)
        except BaseException as error:
            pipe.close()
            self._kill()
            return self.raised(error)
        try:
            return await self._wait_for_child(self.process, reader)
        except BaseException as error:
            return self.raised(error)
        finally:
            transport.close()  # and with it the pipe
            self._kill()

    async def _spawn(self, sending: int) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", CHILD_MODULE, *_task_location(self.definition), str(sending),
                stdin=asyncio.subprocess.PIPE, pass_fds=[sending], env=_environment(),
                start_new_session=True,  # a Ctrl-C reaches only the worker, which drains
            )  # fmt: skip
        finally:
            os.close(sending)

    async def _wait_for_child(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader
    ) -> AttemptEnd:
        if self.stopped is not None:
            return self.interrupted()  # asked to stop while the child was starting
        assert process.stdin is not None
        try:
            given = {
                "claim": self.claim._asdict(),
                "argv": sys.argv,
                "database": self._database(),
            }
            with suppress(ConnectionError):
                process.stdin.write(json.dumps(given).encode() + b"\n")
                await process.stdin.drain()
            ended = await self._until_ended(process, reader)
        finally:
            process.stdin.close()
        if ended is not None:
            return ended
        if self.stopped is not None or self.context.completed:
            return self.interrupted()
        return _crash_end(await process.wait())

    def _database(self) -> list[str] | None:
        """URL and schema; None: a remote worker has no database."""
        store = self.context._store
        return None if store is None else [store.address.url, store.address.schema]

    async def _until_ended(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader
    ) -> AttemptEnd | None:
        """The end that the child reported, or None. After the report it exits, and its exit closes
        the pipe; a process that it started and did not end may delay either."""
        listening = asyncio.create_task(self._listen(reader))
        exiting = asyncio.create_task(process.wait())
        both = {listening, exiting}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(both, timeout=EXIT_WAIT_S)
            self._kill()
            return listening.result() if listening.done() else None
        finally:
            listening.cancel()
            exiting.cancel()

    async def _listen(self, reader: asyncio.StreamReader) -> AttemptEnd | None:
        """Forward events until the child reports its end or the pipe closes."""
        while line := await reader.readline():
            message = json.loads(line)
            match message:
                case {"ended": ended}:
                    return _decode_end(ended)
                case {"completed": result}:
                    self.context._complete(result)
                case {"trace": trace}:
                    self.context.run_trace = trace
                case {"event": event}:
                    self.context._add_event(self.claim, *event)
        return None

    def interrupt(self, body: asyncio.Task[AttemptEnd] | None) -> None:
        super().interrupt(body)
        self._kill()

    def _kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.kill()


def _crash_end(code: int) -> AttemptEnd:
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    error = {"type": "ProcessDied", "message": f"its process ended {how}", "traceback": ""}
    return AttemptEnd(Outcome.FAILED, error=error)


async def _open_pipe(pipe: BinaryIO) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    reader = asyncio.StreamReader(limit=MAX_MESSAGE_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    return reader, transport


def _task_location(definition: TaskDefinition) -> list[str]:
    """The location of the task for the child: a module, or the file of the main program."""
    module = definition.function.__module__
    if module == "__main__":
        return [
            "file",
            str(Path(sys.modules["__main__"].__file__ or "").resolve()),
            definition.name,
        ]
    return ["module", module, definition.name]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}


def _decode_end(message: dict[str, Any]) -> AttemptEnd:
    jobs = tuple(_decode_job(**job) for job in message.pop("jobs"))
    outage = message.pop("outage")
    found = None if outage is None else Outage(outage)
    wait = read_wait(message.pop("wait"))
    outcome = Outcome(message.pop("outcome"))
    return AttemptEnd(outcome, jobs=jobs, outage=found, wait=wait, **message)


def _decode_job(*, new_flows: list[dict[str, Any]], after: list[str], **facts: Any) -> NewJob:
    flows = tuple(NewFlow(**flow) for flow in new_flows)
    return NewJob(new_flows=flows, after=tuple(after), **facts)
