"""Sync handlers in a process of their own, which can be killed: `@ol.task(isolated=True)`.

The worker starts a fresh interpreter for each attempt, gives it the claim as JSON on its standard
input, and reads JSON lines from a pipe: events while it runs, and in the end how it ended. The
child imports the module that defined the task, by a name that comes from the worker's own code and
never from data. It ends with its worker: a closed input means that nobody waits any more.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import math
import os
import runpy
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from ..model.breaker import Outage
from ..model.claim import Claim
from ..model.errors import Unsupported
from ..model.job import NewFlow, NewJob
from ..model.lifecycle import Outcome
from ..model.outcome import AttemptEnd
from ..model.safe_text import error_record
from ..model.stream import STREAM
from ..model.task import TaskDefinition
from ..model.wait import read_wait
from ..store import Store
from ..store.blobs.store import Blobs
from ..task import Task
from ..tracing import continue_trace, running, trace_of, tracer
from .context import Context
from .executor import Execution, SingleExecution
from .steps import OutputRows
from .stream_buffers import StreamBuffers

Send = Callable[[dict[str, object]], None]

MAX_MESSAGE_BYTES = 64 * 1024 * 1024  # bytes of one line from the child: its result and its jobs
PRELOAD_VARIABLE = "OUTLAST_PRELOAD"  # a module that a framework sets for children to import first
EXIT_WAIT_S = 2.0  # seconds between a child's last message and its exit, whichever comes first


class IsolatedExecution(SingleExecution):
    """The parent's side."""

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
                sys.executable, "-m", __name__, *_task_location(self.definition), str(sending),
                stdin=asyncio.subprocess.PIPE, pass_fds=[sending], env=_environment(),
                start_new_session=True,  # a Ctrl-C is for the worker, which drains
            )  # fmt: skip
        finally:
            os.close(sending)

    async def _wait_for_child(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader
    ) -> AttemptEnd:
        if self.stopped is not None:
            return self.interrupted()  # told to stop while it was being started
        assert process.stdin is not None
        try:
            given = {
                "claim": self.claim._asdict(),
                "argv": sys.argv,
                "near": self.context.has_database,
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

    async def _until_ended(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader
    ) -> AttemptEnd | None:
        """What it said in the end, if it did. When it has spoken it exits, and when it exits the
        pipe closes; something that it started and did not end may hold up either."""
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
        """Events as they come, until it says how it ended or the pipe closes."""
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
    """Where the child finds the task: a module, or the file that was run as the main program."""
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


# The child's side


def main() -> None:
    kind, location, name, fd = sys.argv[1:]
    os.set_inheritable(int(fd), False)  # else what the handler starts would hold it open
    out = os.fdopen(int(fd), "wb", 0)
    given = json.loads(sys.stdin.buffer.readline())
    claim, sys.argv = Claim(**given["claim"]), given["argv"]
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    lock = threading.Lock()

    def send(message: dict[str, object]) -> None:
        with lock:
            out.write(json.dumps(message).encode() + b"\n")

    ended = _run((kind, location, name), claim, send, near=given["near"])
    send({"ended": {**ended._asdict(), "jobs": [asdict(job) for job in ended.jobs]}})


class ChildContext(Context):
    """The same in the child, which connects to the database only for what needs it. Events are
    numbered here, so that what it said and what its worker has stored are known to be the same."""

    def __init__(
        self,
        claim: Claim,
        store: Store | None,
        send: Send,
        *,
        blobs: Blobs | None,
        stream_limit: int,
    ) -> None:
        self._send = send
        self._numbering = threading.Lock()
        self._streams = StreamBuffers(stream_limit, lambda _: True, self._send_row)
        self._pump = StreamPump(self._streams)
        self._numbers = itertools.count()
        self._sent: dict[int, dict[str, object]] = {}  # by number, without output of kept steps
        operations = NoOperations() if store is None else store
        super().__init__(claim, self._send_event, operations, self._sent_events, blobs, store=store)

    def flush_stream(self) -> None:
        """Send the last chunks."""
        self._streams.seal_all(self._claim)

    def _sent_events(self, claim: Claim) -> list[dict[str, object]]:
        self.flush_stream()
        with self._numbering:
            return list(self._sent.values())

    def _output_stored(self, rows: OutputRows) -> None:
        with self._numbering:
            for row in rows:
                self._sent.pop(row["n"], None)

    def _send_event(self, claim: Claim, kind: str, data: str) -> None:
        if kind == STREAM:
            self._streams.add(claim, data)
            self._pump.wake()
        else:
            self._send_numbered(claim, kind, data)

    def _send_row(self, claim: Claim, data: str, first: bool) -> None:
        self._send_numbered(claim, STREAM, data, first=first)

    def _send_numbered(self, claim: Claim, kind: str, data: str, **more: object) -> None:
        event = {"job": claim.id, **claim.guard, "kind": kind, "data": data, **more}
        with self._numbering:
            n = next(self._numbers)
            self._sent[n] = {**event, "n": n}
            self._send({"event": [kind, data, n]})

    def _complete(self, result: str | None) -> None:
        super()._complete(result)
        self._send({"completed": result})


class StreamPump:
    """A thread that sends streamed output when it is due; started by the first chunk."""

    def __init__(self, streams: StreamBuffers) -> None:
        self._streams = streams
        self._news = threading.Event()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        self._news.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            while (wait := self._streams.due_in()) < math.inf:
                time.sleep(wait)
                self._streams.seal_due()


class NoOperations:
    """In the place of a store, in the child of a remote worker: refuses every operation."""

    def run(self, *_: Any, **__: Any) -> NoReturn:
        reason = "a task that is isolated can ask for nothing on a remote worker"
        raise Unsupported(reason=reason)

    async def arun(self, *_: Any, **__: Any) -> NoReturn:
        self.run()


def _run(location: tuple[str, str, str], claim: Claim, send: Send, *, near: bool) -> AttemptEnd:
    try:
        task = _find(*location)
    except BaseException as error:  # the code is at fault, not the job: another try may do
        return AttemptEnd(Outcome.FAILED, error=error_record(error))
    store = task._app.store if near else None
    definition = task._definition
    limit = task._app.store.settings.stream_limit
    context = ChildContext(claim, store, send, blobs=task._app.blobs, stream_limit=limit)
    execution = Execution(definition, claim, context)
    try:
        if execution.has_blob_arguments:
            execution.fetch()
        arguments = execution.arguments()
    except BaseException as error:
        return execution.unreadable(error)
    continue_trace(claim.trace)
    recorder = tracer()
    try:
        with nullcontext() if recorder is None else running(recorder, [claim]) as span:
            if span is not None:
                send({"trace": trace_of(span)})
            result = definition.handler(**arguments)
        return execution.store_large(execution.returned(result))
    except BaseException as error:
        return execution.raised(error)
    finally:
        context.flush_stream()


def _find(kind: str, location: str, name: str) -> Task[Any, Any]:
    if preload := os.environ.get(PRELOAD_VARIABLE):
        importlib.import_module(preload)
    if kind == "file":
        found = runpy.run_path(location, run_name="__outlast_isolated__")
    else:
        found = vars(importlib.import_module(location))
    for value in found.values():
        if isinstance(value, Task) and value.name == name:
            return value
    raise LookupError(f"{location} defines no task {name!r} at its top level")


def _exit_with_parent() -> None:
    # Not through sys.stdin: its lock, held by a waiting read, would abort the interpreter's end.
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
