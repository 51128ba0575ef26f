"""The child's side of an isolated task: a process that runs one attempt and reports its end.

    the worker ── claim, as a line of JSON ──▶ standard input
               ◀── events, then the end ────── a pipe, whose number is an argument

See `isolated` for the worker's side.
"""

from __future__ import annotations

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
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any, NoReturn

from ..model.claim import Claim, ClaimEvent
from ..model.errors import Unsupported
from ..model.lifecycle import Outcome
from ..model.outcome import AttemptEnd
from ..model.safe_text import error_record
from ..model.stream import STREAM
from ..store import Store
from ..store.blobs.store import Blobs
from ..task import Task
from ..tracing import continue_trace, running, trace_of, tracer
from .context import Context
from .executor import Execution
from .steps import OutputRows
from .stream_buffers import StreamBuffers

Send = Callable[[dict[str, object]], None]

PRELOAD_VARIABLE = "OUTLAST_PRELOAD"  # a module that a framework sets for children to import first


def main() -> None:
    kind, location, name, fd = sys.argv[1:]
    os.set_inheritable(int(fd), False)  # else processes started by the handler keep it open
    out = os.fdopen(int(fd), "wb", 0)
    given = json.loads(sys.stdin.buffer.readline())
    claim, sys.argv = Claim(**given["claim"]), given["argv"]
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    lock = threading.Lock()

    def send(message: dict[str, object]) -> None:
        with lock:
            out.write(json.dumps(message).encode() + b"\n")

    ended = _run((kind, location, name), claim, send, given["database"])
    send({"ended": {**ended._asdict(), "jobs": [asdict(job) for job in ended.jobs]}})


class ChildContext(Context):
    """A context in the child, which connects to the database only when needed. Events are numbered
    here, so that an event stored by both child and worker is stored once."""

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
        self._sent: dict[int, ClaimEvent] = {}  # by number, without output of kept steps
        operations = NoOperations() if store is None else store
        super().__init__(claim, self._send_event, operations, self._sent_events, blobs, store=store)

    def flush_stream(self) -> None:
        """Send the last chunks."""
        self._streams.seal_all(self._claim)

    def _sent_events(self, claim: Claim) -> list[ClaimEvent]:
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

    def _send_numbered(self, claim: Claim, kind: str, data: str, first: bool = False) -> None:
        with self._numbering:
            n = next(self._numbers)
            self._sent[n] = row = claim.event_row(kind, data, n)
            if first:
                row["first"] = True
            self._send({"event": [kind, data, n]})

    def _complete(self, result: str | None) -> None:
        super()._complete(result)
        self._send({"completed": result})


class StreamPump:
    """A thread that sends streamed output when it is due; started by the first chunk."""

    def __init__(self, streams: StreamBuffers) -> None:
        self._streams = streams
        self._chunks_added = threading.Event()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        self._chunks_added.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            self._chunks_added.wait()
            self._chunks_added.clear()
            while (wait := self._streams.due_in()) < math.inf:
                time.sleep(wait)
                self._streams.seal_due()


class NoOperations:
    """Takes the place of a store in the child of a remote worker: refuses every operation."""

    def run(self, *_: Any, **__: Any) -> NoReturn:
        reason = "an isolated task has no access to the database on a remote worker"
        raise Unsupported(reason=reason)

    async def arun(self, *_: Any, **__: Any) -> NoReturn:
        self.run()


def _run(
    location: tuple[str, str, str], claim: Claim, send: Send, database: list[str] | None
) -> AttemptEnd:
    try:
        task = _find(*location)
    except BaseException as error:  # the code is at fault, not the job: a retry may help
        return AttemptEnd(Outcome.FAILED, error=error_record(error))
    app = task._app._serving(claim.tenant, database)
    store = None if database is None else app.store
    definition = task._definition
    limit = app.store.settings.stream_limit
    context = ChildContext(claim, store, send, blobs=app.blobs, stream_limit=limit)
    context.check_tenants = app._parts.check_tenants
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
