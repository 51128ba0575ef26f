"""Context of a handler: its job, cancellation, progress, logs, follow-up jobs, durable steps, waits
and completion."""

from __future__ import annotations

import json
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
from .stop_event import StopEvent
from .waits import Duration, Waits

MAX_NOTE_LENGTH = 4000  # characters of one progress note or log line


class Context:
    """Passed to a handler that has a parameter annotated `Context`.

    `cancelled` is set when the handler should stop: the job was cancelled, it has timed out, the
    worker is shutting down, or another worker has the job. An async handler is cancelled as well; a
    sync one has to check it. A handler that has seen it and returns nothing has stopped.
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
        self.has_database = store is not None  # False on a remote worker
        self.blobs = blobs  # to read values stored by reference
        self.blob_slots = blobs if self.has_database else None  # to store large values
        self.inline_limit = MAX_PAYLOAD if self.blob_slots is None else self.blob_slots.limit
        self._add_event = add_event
        self._pending_events = pending_events  # events that may not be stored yet
        self._operations = operations
        self._store = store
        # Refuses jobs of tenants in other databases; None: there is one database.
        self.check_tenants: Callable[[Sequence[NewJob]], None] | None = None
        self._lost = False
        self._completing = False
        self.completed = False
        self.can_wait = True  # False for items of a batch
        self.result: str | None = None  # of a completion
        self.jobs: list[NewJob] = []
        self.run_trace: str | None = None  # the span of this attempt, if there is one

    # Created on first use: most handlers need none of these, and they are expensive.

    @lazy
    def cancelled(self) -> StopEvent:
        """Set when the handler should stop."""
        return StopEvent()

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
        """The nominal time of a job that a schedule fired, in UTC; None for any other job."""
        return tick_of_key(self._claim.key)

    @property
    def message(self) -> Message | None:
        """The message that became this job: id, headers and raw body; None for any other job. A
        task with secrets has no copy of the raw body."""
        return message_of(self._claim.args)

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        return self._claim.attempt

    @property
    def fence(self) -> int:
        """The fence, which grows with every claim of this job: other systems can use it to refuse
        stale claims."""
        return self._claim.fence

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report progress. It is stored only while this attempt owns the job."""
        self._record("progress", {"done": done, "total": total, "note": note})

    def log(self, message: object, **fields: object) -> None:
        """Store a log line with the job."""
        self._record("log", {"message": message, **fields})

    def stream(self, chunk: object) -> None:
        """Send a text or a JSON value to the readers of this job (`ol.stream`), in order, while it
        runs. Consecutive texts may arrive joined. It is stored only while this attempt owns the
        job."""
        self._check()
        for item in encode_chunk(chunk):
            self._add_event(self._claim, STREAM, item)

    def enqueue(self, *calls: Enqueueable, join: bool = False) -> None:
        """Enqueue jobs with this attempt's success: they exist if, and only if, it is accepted.

        In a flow, they belong to the flow. With `join`, dependents of this job also wait for them.
        """
        self._check()
        beside = self._claim.id if join else None
        made = build_jobs(calls, self._claim.flow, beside, self.inline_limit)
        if self.check_tenants is not None:  # jobs of its own tenant are allowed, even after a move
            self.check_tenants([job for job in made if job.tenant != self._claim.tenant])
        self.jobs += traced(made, self._claim.trace)

    def results(self) -> PrerequisiteResults:
        """The results of this job's prerequisites, in their order; None for one that did not
        succeed. Iterate with `for` or `async for`: they are read in pages."""
        return PrerequisiteResults(self._operations, self._claim.id, values=True, blobs=self.blobs)

    def prerequisites(self) -> PrerequisiteResults:
        """The prerequisites as jobs, with their states and errors. A result stored by reference is
        a `Blob`, as in every list of jobs."""
        return PrerequisiteResults(self._operations, self._claim.id)

    def step(self, name: str, fn: Callable[..., Any], /, *args: object, **kwargs: object) -> Any:
        """Call `fn` and store its result, which later attempts of this job get without a call.

        In an async handler, await it. The result is converted to JSON and back, also the first
        time.
        """
        call = partial(fn, *args, **kwargs)
        return self._steps.arun(name, call) if in_event_loop() else self._steps.run(name, call)

    def steps(self, calls: Mapping[str, Callable[[], object]], limit: int = 4) -> Any:
        """Run several steps concurrently, at most `limit` at a time; returns a dict of their
        results. All started steps have ended when this returns or raises."""
        run = self._steps.arun_all if in_event_loop() else self._steps.run_all
        return run(calls, limit)

    def sleep(self, duration: Duration, *, name: str | None = None) -> Any:
        """Sleep for seconds, a timedelta, or a text such as "90s", "2h", "3d". This attempt ends,
        unspent and without a slot; afterwards the handler starts again, and continues past this
        call. In an async handler, await it."""
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
        """Wait for a signal, and return its value. A signal that has arrived before is taken at
        once. Otherwise this attempt ends, as in `sleep`, until `ol.signal` sends one; after
        `timeout`, this call raises `SignalTimeout`.

        `type` is the type of the value; by default, the one that the task declares for the signal.
        `name` is the name of the wait: by default the signal's, with a number from the second wait
        on."""
        return self._wait(self.waits.signal(signal, type, timeout, name))

    def wait_any(
        self, *signals: str, timeout: Duration | None = None, name: str | None = None
    ) -> Any:
        """Wait for the first of several signals; returns its name and its value."""
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
        `JobCancelled` if it has none. For a flow, return the number of its jobs in each state."""
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
        """A UUID to use as an idempotency key of other systems: the same for every attempt of this
        job, and different for each name."""
        return str(uuid.uuid5(uuid.UUID(self._claim.id), name))

    def completing(self, result: object = None) -> CompletionTransaction:
        """A transaction that also completes this job: both commit together or not at all.

        `with` (in an async handler `async with`) returns the connection, of sqlite3 or of psycopg.
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
        """Close this job's lane for this time, for all workers, when another system limits its
        calls (429). Running jobs continue; raise `RetryLater` to try this one again.

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
        """Whether a wait has to end this attempt."""
        return "waits" in self.__dict__ and self.waits.begun is not None

    def disown(self) -> None:
        """Note that this attempt no longer owns the job."""
        self._lost = True
        self.cancelled.set()

    def _end(self) -> None:
        """Note that the handler has ended: later calls by its threads or tasks are refused."""
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
        """Called after a step was stored together with these rows of output."""

    def _check(self) -> None:
        if self.completed:
            raise TooLate(job=self._claim.id, state=State.SUCCEEDED)
        if self._lost:
            raise ClaimLost(job=self._claim.id)

    def _check_not_completing(self, what: str = "step") -> None:
        self._check()
        if self._completing:
            reason = "belongs before completing(), which is the last action of a handler"
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
    """The value itself if it is JSON and not too long, else a storable text of it."""
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
