"""What a handler may know, say and do: its job, whether to stop, progress, logs, follow-up jobs,
durable steps, and its own completion."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..model.arguments import MAX_PAYLOAD, encode_result
from ..model.errors import ClaimLost, InvalidOption, TooLate
from ..model.flow import Enqueueable
from ..model.job import Claim, Job, NewJob, read_args
from ..model.layout import new_jobs
from ..model.lazy import lazy
from ..model.lifecycle import State
from ..model.moments import moment
from ..model.text import clean, type_name
from ..store import Store
from ..store.blobs import Blobs
from ..tracing import traced
from .completing import Completing
from .results import Results
from .steps import Steps, awaited

LONGEST_NOTE = 4000  # characters of one progress note or log line


class Context:
    """Given to a handler that has a parameter annotated `Context`.

    `cancelled` is set when the handler should stop: somebody cancelled the job, its time is up, the
    worker is going away, or another worker has the job. An async handler is cancelled as well; a
    sync one has to look.
    """

    near = True  # there is a database; a remote worker has none

    def __init__(
        self,
        claim: Claim,
        say: Callable[[Claim, str, str], None],
        store: Store,
        said: Callable[[Claim], list[dict[str, Any]]] = lambda _: [],
        blobs: Blobs | None = None,
    ) -> None:
        self._claim = claim
        self.blobs = blobs  # for what is referred to
        self.outlet = blobs if self.near else None  # for what it gives: a server takes no blobs
        self.largest = MAX_PAYLOAD if self.outlet is None else self.outlet.limit
        self._say = say
        self._said = said  # what was said and may not be stored yet
        self._store = store
        self._lost = False
        self._completing = False
        self.completed = False
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
        return Steps(self._claim, self._store, self._check_alone)

    @property
    def job(self) -> Job:
        """The job as it was claimed."""
        claim = self._claim
        return Job(
            id=claim.id, task=claim.task, queue=claim.queue, state=State.RUNNING,
            attempt=claim.attempt, args=read_args(claim.args), result=None, error=None,
            run_at=moment(claim.run_at), created_at=moment(claim.created_at),  # type: ignore[arg-type]
            started_at=moment(claim.started_at), finished_at=None, worker=claim.worker,
            tenant=claim.tenant, priority=claim.priority, key=claim.key, failures=claim.failures,
            crashes=claim.crashes, max_attempts=claim.max_attempts, max_crashes=claim.max_crashes,
            fence=claim.fence, timeout=claim.timeout, trace=claim.trace, flow=claim.flow,
        )  # fmt: skip

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

    def log(self, message: object, **fields: Any) -> None:
        """Keep a line with the job."""
        self._record("log", {"message": message, **fields})

    def enqueue(self, *calls: Enqueueable, join: bool = False) -> None:
        """Enqueue jobs with this attempt's success: they exist if, and only if, it is accepted.

        Those of a job in a flow belong to that flow. With `join`, whoever waits for this job waits
        for them too.
        """
        self._check()
        beside = self._claim.id if join else None
        made = new_jobs(calls, self._claim.flow, beside, self.largest)
        self.jobs += traced(made, self._claim.trace)

    def results(self) -> Results:
        """The results of the jobs that this one comes after, in the order given; None for one that
        did not succeed. `for … in` or `async for … in`: they are read a page at a time."""
        return Results(self._store, self._claim.id, values=True, blobs=self.blobs)

    def prerequisites(self) -> Results:
        """The same jobs, with their states and errors. What is kept by reference is a `Blob` here,
        as in every list of jobs."""
        return Results(self._store, self._claim.id)

    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `fn` and keep what it gives: later attempts of this job get that, and do not call.

        In an async handler, await it. What is given back has been JSON, the first time too.
        """
        call = partial(fn, *args, **kwargs)
        return self._steps.arun(name, call) if awaited() else self._steps.run(name, call)

    def steps(self, calls: Mapping[str, Callable[[], Any]], limit: int = 4) -> Any:
        """Several steps at once, at most `limit` of them: a dict of what each gave. All that began
        have ended when this returns or raises."""
        run = self._steps.arun_all if awaited() else self._steps.run_all
        return run(calls, limit)

    def token(self, name: str = "") -> str:
        """A UUID for outside systems that take such a key: the same on every attempt of this job,
        and another for each name."""
        return str(uuid.uuid5(uuid.UUID(self._claim.id), name))

    def completing(self, result: Any = None) -> Completing:
        """Write in a transaction that also completes this job: both are kept, or neither.

        `with` (in an async handler `async with`) gives the connection: of sqlite3, or of psycopg.
        """
        return Completing(self, encode_result(result, limit=self.largest))

    def lose(self) -> None:
        """From now on this attempt owns nothing."""
        self._lost = True
        self.cancelled.set()

    def _record(self, kind: str, data: dict[str, Any]) -> None:
        self._check()
        told = json.dumps({name: _storable(value) for name, value in data.items()})
        self._say(self._claim, kind, told)

    def _unstored(self) -> list[dict[str, Any]]:
        return self._said(self._claim)

    def _check(self) -> None:
        if self.completed:
            raise TooLate(job=self._claim.id, state=State.SUCCEEDED)
        if self._lost:
            raise ClaimLost(job=self._claim.id)

    def _check_alone(self) -> None:
        self._check()
        if self._completing:
            told = "belongs before completing(), which is the last that a handler does"
            raise InvalidOption(option="step", reason=told)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._check_alone()
        self._completing = True
        try:
            yield
        finally:
            self._completing = False

    def _complete(self, result: str | None) -> None:
        self.completed, self.result = True, result


def _storable(value: Any) -> Any:
    """The value itself if it is JSON and not too long, else as much of it as can be told."""
    try:
        if isinstance(value, str):
            return clean(value, LONGEST_NOTE)
        text = json.dumps(value, allow_nan=False)
        return value if len(text) <= LONGEST_NOTE else clean(text, LONGEST_NOTE)
    except Exception:
        return _told(value)


def _told(value: Any) -> str:
    try:
        return clean(str(value), LONGEST_NOTE)
    except Exception as error:  # str() ran the user's code
        return f"({type_name(value)}: its __str__ raised {type_name(error)})"
