"""What a handler may know and say: its job, whether to stop, progress, logs, follow-up jobs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from ..model.errors import ClaimLost
from ..model.flow import Enqueueable
from ..model.job import Claim, Job, NewJob, lenient_json, moment
from ..model.layout import new_jobs
from ..model.lifecycle import State
from ..model.text import clean, type_name
from ..store import Store
from .results import Results

LONGEST_NOTE = 4000  # characters of one progress note or log line


class Context:
    """Given to a handler that has a parameter annotated `Context`.

    `cancelled` is set when the handler should stop: somebody cancelled the job, its time is up, the
    worker is going away, or another worker has the job. An async handler is cancelled as well; a
    sync one has to look.
    """

    def __init__(self, claim: Claim, say: Callable[[str, str], None], store: Store) -> None:
        self._claim = claim
        self._say = say
        self._store = store
        self._lost = False
        self.jobs: list[NewJob] = []
        self.cancelled = threading.Event()

    @property
    def job(self) -> Job:
        """The job as it was claimed."""
        claim = self._claim
        return Job(
            id=claim.id, task=claim.task, queue=claim.queue, state=State.RUNNING,
            attempt=claim.attempt, args=lenient_json(claim.args), result=None, error=None,
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
        self.jobs += new_jobs(calls, self._claim.flow, self._claim.id if join else None)

    def results(self) -> Results:
        """The results of the jobs that this one comes after, in the order given; None for one that
        did not succeed. `for … in` or `async for … in`: they are read a page at a time."""
        return Results(self._store, self._claim.id, lambda job: job.result)

    def prerequisites(self) -> Results:
        """The same jobs whole, with their states and errors."""
        return Results(self._store, self._claim.id, lambda job: job)

    def lose(self) -> None:
        """From now on this attempt owns nothing."""
        self._lost = True
        self.cancelled.set()

    def _record(self, kind: str, data: dict[str, Any]) -> None:
        self._check()
        self._say(kind, json.dumps({name: _storable(value) for name, value in data.items()}))

    def _check(self) -> None:
        if self._lost:
            raise ClaimLost(job=self._claim.id)


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
