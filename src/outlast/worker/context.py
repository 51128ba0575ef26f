"""What a handler may know, say and do: its job, whether to stop, progress, logs, follow-up jobs,
durable steps, and its own completion."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from ..model.arguments import MAX_PAYLOAD, encode_result
from ..model.claim import Claim, ClaimEvent
from ..model.errors import ClaimLost, InvalidOption, TooLate, Unsupported
from ..model.flow import Enqueueable
from ..model.flow_builder import build_jobs
from ..model.job import Job, NewJob, read_args
from ..model.lane import seconds_of_pause
from ..model.lazy_property import lazy
from ..model.lifecycle import State
from ..model.message import Message, message_of
from ..model.safe_text import storable_text, type_name
from ..model.schedule import tick_of_key
from ..model.stream import STREAM, encode_chunk
from ..model.timestamps import to_datetime
from ..ops.lanes import slow_down
from ..store import OperationRunner, Store
from ..store.blobs.store import Blobs
from ..tracing import traced
from .completion import CompletionTransaction
from .prerequisites import PrerequisiteResults
from .steps import OutputRows, StepGenerator, StepOutput, Steps, in_event_loop
from .waits import Duration, Waits

MAX_NOTE_LENGTH = 4000  # characters of one progress note or log line


class Context:
    """Given to a handler that has a parameter annotated `Context`.

    `cancelled` is set when the handler should stop: somebody cancelled the job, its time is up, the
    worker is going away, or another worker has the job. An async handler is cancelled as well; a
    sync one has to look.
    """

    def __init__(
        self,
        claim: Claim,
        add_event: Callable[[Claim, str, str], None],
        operations: OperationRunner,
        pending_events: Callable[[Claim], list[ClaimEvent]] = lambda _: [],
        blobs: Blobs | None = None,
        *,
        store: Store | None = None,
    ) -> None:
        self._claim = claim
        self.has_database = store is not None  # there is a database; a remote worker has none
        self.blobs = blobs  # for what is referred to
        self.blob_slots = (
            blobs if self.has_database else None
        )  # for what it gives: a server takes no blobs
        self.inline_limit = MAX_PAYLOAD if self.blob_slots is None else self.blob_slots.limit
        self._add_event = add_event
        self._pending_events = pending_events  # what was said and may not be stored yet
        self._operations = operations
        self._store = store
        # Refuses jobs of another database's tenants; None: there is one database.
        self.check_tenants: Callable[[Sequence[NewJob]], None] | None = None
        self._lost = False
        self._completing = False
        self.completed = False
        self.can_wait = True  # not as an item of a batch
        self.result: str | None = None  # what it was completed with
        self.jobs: list[NewJob] = []
        self.run_trace: str | None = None  # the span of this attempt, if there is one

    # Most handlers ask for neither, and these are dear.

    @lazy
    def cancelled(self) -> threading.Event:
        """Set when the handler should stop."""
        return threading.Event()

    @lazy
    def _steps(self) -> Steps:
        limit = 0 if self._store is None else self._store.settings.stream_limit
        output = StepOutput(self._output_to_store, limit, self._output_stored)
        return Steps(self._claim, self._operations, self._check_not_completing, output)

    @lazy
    def waits(self) -> Waits:
        return Waits(self._claim, self.blobs)

    @property
    def job(self) -> Job:
        """The job as it was claimed."""
        claim = self._claim
        return Job(
            id=claim.id, task=claim.task, queue=claim.queue, state=State.RUNNING,
            attempt=claim.attempt, args=read_args(claim.args), result=None, error=None,
            run_at=to_datetime(claim.run_at), created_at=to_datetime(claim.created_at),
            started_at=to_datetime(claim.started_at), finished_at=None, worker=claim.worker,
            tenant=claim.tenant, priority=claim.priority, key=claim.key, failures=claim.failures,
            crashes=claim.crashes, max_attempts=claim.max_attempts, max_crashes=claim.max_crashes,
            fence=claim.fence, timeout=claim.timeout, trace=claim.trace, flow=claim.flow,
            lane=claim.lane,
        )  # fmt: skip

    @property
    def tick(self) -> datetime | None:
        """The nominal time of a job that a schedule made, in UTC; None for any other job."""
        return tick_of_key(self._claim.key)

    @property
    def message(self) -> Message | None:
        """The message that this job was made of: id, headers and raw body; None for any other job.
        A task with secrets has no copy of the raw body."""
        return message_of(self._claim.args)

    @property
    def attempt(self) -> int:
        """1 for the first try."""
        return self._claim.attempt

    @property
    def fence(self) -> int:
        """Grows with every claim of this job: outside systems can use it to refuse old ones."""
        return self._claim.fence

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Tell how far it is. Kept only while this attempt owns the job."""
        self._record("progress", {"done": done, "total": total, "note": note})

    def log(self, message: object, **fields: object) -> None:
        """Keep a line with the job."""
        self._record("log", {"message": message, **fields})

    def stream(self, chunk: object) -> None:
        """Send a text or a JSON value to the readers of this job (`ol.stream`), in order, while it
        runs. Texts that follow each other may arrive joined. Kept only while this attempt owns the
        job."""
        self._check()
        for item in encode_chunk(chunk):
            self._add_event(self._claim, STREAM, item)

    def enqueue(self, *calls: Enqueueable, join: bool = False) -> None:
        """Enqueue jobs with this attempt's success: they exist if, and only if, it is accepted.

        Those of a job in a flow belong to that flow. With `join`, whoever waits for this job waits
        for them too.
        """
        self._check()
        beside = self._claim.id if join else None
        made = build_jobs(calls, self._claim.flow, beside, self.inline_limit)
        if self.check_tenants is not None:  # its own tenant's may be here, also after a move
            self.check_tenants([job for job in made if job.tenant != self._claim.tenant])
        self.jobs += traced(made, self._claim.trace)

    def results(self) -> PrerequisiteResults:
        """The results of the jobs that this one comes after, in the order given; None for one that
        did not succeed. `for … in` or `async for … in`: they are read a page at a time."""
        return PrerequisiteResults(self._operations, self._claim.id, values=True, blobs=self.blobs)

    def prerequisites(self) -> PrerequisiteResults:
        """The same jobs, with their states and errors. What is kept by reference is a `Blob` here,
        as in every list of jobs."""
        return PrerequisiteResults(self._operations, self._claim.id)

    def step(self, name: str, fn: Callable[..., Any], /, *args: object, **kwargs: object) -> Any:
        """Call `fn` and keep what it gives: later attempts of this job get that, and do not call.

        In an async handler, await it. What is given back has been JSON, the first time too.
        """
        call = partial(fn, *args, **kwargs)
        return self._steps.arun(name, call) if in_event_loop() else self._steps.run(name, call)

    def steps(self, calls: Mapping[str, Callable[[], object]], limit: int = 4) -> Any:
        """Several steps at once, at most `limit` of them: a dict of what each gave. All that began
        have ended when this returns or raises."""
        run = self._steps.arun_all if in_event_loop() else self._steps.run_all
        return run(calls, limit)

    def sleep(self, duration: Duration, *, name: str | None = None) -> Any:
        """Sleep for seconds, a timedelta, or a text such as "90s", "2h", "3d". This attempt ends,
        unspent and without a slot; the handler starts again when the time has come, and then goes
        on. In an async handler, await it."""
        return self._wait(self.waits.sleep(duration, name))

    def wait(
        self,
        signal: str,
        /,
        type: Any = None,
        timeout: Duration | None = None,
        *,
        name: str | None = None,
    ) -> Any:
        """Wait for a signal, and return its value. One that came before is taken at once. Otherwise
        this attempt ends, as in `sleep`, until `ol.signal` sends one, or raises `SignalTimeout`.

        `type` is what the value must be; without one, what the task declares for that signal.
        `name` is that of the wait: by default the signal's, with a number from the second wait
        on."""
        return self._wait(self.waits.signal(signal, type, timeout, name))

    def wait_any(
        self, *signals: str, timeout: Duration | None = None, name: str | None = None
    ) -> Any:
        """Wait for the first of several signals: its name and its value."""
        return self._wait(self.waits.any_signal(signals, timeout, name))

    def wait_for(
        self,
        subject: object,
        /,
        type: object = None,
        timeout: Duration | None = None,
        *,
        name: str | None = None,
    ) -> Any:
        """Wait until another job has ended, and return its result; raises `JobDead` or
        `JobCancelled` if it has none. Of a flow: how many of its jobs ended in each state."""
        return self._wait(self.waits.end_of(subject, type, timeout, name))

    def _wait(self, wait: StepGenerator) -> object:
        self._check_not_completing("wait")
        if not self.can_wait:
            raise Unsupported(reason="a batch handler cannot wait: enqueue a job that does")
        if not self.has_database:
            raise Unsupported(
                reason="sleep() and wait() need the database, which a remote worker does not have:"
                " run this task on a local worker"
            )
        return self._steps.adrive(wait) if in_event_loop() else self._steps.drive(wait)

    def token(self, name: str = "") -> str:
        """A UUID for outside systems that take such a key: the same on every attempt of this job,
        and another for each name."""
        return str(uuid.uuid5(uuid.UUID(self._claim.id), name))

    def completing(self, result: object = None) -> CompletionTransaction:
        """Write in a transaction that also completes this job: both are kept, or neither.

        `with` (in an async handler `async with`) gives the connection: of sqlite3, or of psycopg.
        """
        if self._store is None:
            raise Unsupported(
                reason="completing() needs the database's own connection, which a remote worker"
                " does not have: return the result instead, or run this task on a local worker"
            )
        return CompletionTransaction(
            self, self._store, encode_result(result, limit=self.inline_limit)
        )

    def slow_down(self, seconds: float | timedelta) -> Any:
        """Close this job's lane for so long, for all workers: another system said that it is called
        too often (429). Jobs that run go on; raise `RetryLater` to try this one again.

        In an async handler, await it. Without a limited queue there is no lane to close."""
        self._check_not_completing("slow_down")
        if self._claim.lane is None:
            reason = f"needs a lane: declare limits with ol.queue({self._claim.queue!r}, …)"
            raise InvalidOption(option="slow_down", reason=reason)
        given = self._claim, seconds_of_pause(seconds)
        if in_event_loop():
            return self._operations.arun(slow_down, *given)
        return self._operations.run(slow_down, *given)

    @property
    def has_waited(self) -> bool:
        """Whether a wait was to end this attempt."""
        return "waits" in self.__dict__ and self.waits.begun is not None

    def disown(self) -> None:
        """From now on this attempt owns nothing."""
        self._lost = True
        self.cancelled.set()

    def _end(self) -> None:
        """The handler has ended: what a thread or task of it enqueues from now on would be lost."""
        self._lost = True

    def _record(self, kind: str, data: dict[str, object]) -> None:
        self._check()
        text = json.dumps({name: _storable(value) for name, value in data.items()})
        self._add_event(self._claim, kind, text)

    def _events_to_store(self) -> list[ClaimEvent]:
        return self._pending_events(self._claim)

    def _output_to_store(self) -> OutputRows:
        return [event for event in self._events_to_store() if event["kind"] == STREAM]

    def _output_stored(self, rows: OutputRows) -> None:
        """A step was stored, and these rows of output with it."""

    def _check(self) -> None:
        if self.completed:
            raise TooLate(job=self._claim.id, state=State.SUCCEEDED)
        if self._lost:
            raise ClaimLost(job=self._claim.id)

    def _check_not_completing(self, what: str = "step") -> None:
        self._check()
        if self._completing:
            reason = "belongs before completing(), which is the last that a handler does"
            raise InvalidOption(option=what, reason=reason)

    @contextmanager
    def _completing_alone(self) -> Iterator[None]:
        self._check_not_completing()
        self._completing = True
        try:
            yield
        finally:
            self._completing = False

    def _complete(self, result: str | None) -> None:
        self.completed, self.result = True, result


def _storable(value: object) -> object:
    """The value itself if it is JSON and not too long, else as much of it as can be told."""
    try:
        if isinstance(value, str):
            return storable_text(value, MAX_NOTE_LENGTH)
        text = json.dumps(value, allow_nan=False)
        return value if len(text) <= MAX_NOTE_LENGTH else storable_text(text, MAX_NOTE_LENGTH)
    except Exception:
        return _text_of(value)


def _text_of(value: object) -> str:
    try:
        return storable_text(str(value), MAX_NOTE_LENGTH)
    except Exception as error:  # str() ran the user's code
        return f"({type_name(value)}: its __str__ raised {type_name(error)})"
