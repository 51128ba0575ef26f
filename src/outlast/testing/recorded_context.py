"""A `Context` for calling a handler directly, without a job: it records what the handler does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from ..model.claim import Claim
from ..model.errors import Unsupported
from ..model.ids import new_job_id
from ..model.job import JOB_COLUMNS, NewJob, read_args
from ..model.lifecycle import State
from ..model.stream import STREAM
from ..ops.operation import Op, Pipeline, Row, Rows, Statement
from ..worker.completion import CompletionTransaction
from ..worker.context import Context

T = TypeVar("T")
P = ParamSpec("P")


class Progress(NamedTuple):
    """One call of `ctx.progress`."""

    done: float
    total: float | None
    note: str


class EnqueuedCall(NamedTuple):
    """One job that the handler enqueues with its success."""

    task: str
    args: Any
    queue: str


class RecordedContext(Context):
    """Steps run and are kept in memory; jobs, progress, log lines and output are recorded."""

    def __init__(self, claim: Claim, memory: _MemoryOperations) -> None:
        self.progressed: list[Progress] = []
        self.logged: list[dict[str, Any]] = []
        self.streamed: list[Any] = []
        self._memory = memory
        super().__init__(claim, self._record_event, memory)

    @property
    def enqueued(self) -> list[EnqueuedCall]:
        """The jobs that were passed to `ctx.enqueue`."""
        return [EnqueuedCall(job.task, read_args(job.args), job.queue) for job in self.jobs]

    @property
    def kept_steps(self) -> dict[str, Any]:
        """The results of steps by name: pass them as `steps` to the next attempt's context."""
        return {name: json.loads(text) for name, text in self._memory.steps.items()}

    @property
    def slowed_down(self) -> list[float]:
        """The seconds of each call of `ctx.slow_down`."""
        return self._memory.slowed_down

    @property
    def new_jobs(self) -> list[NewJob]:
        return self.jobs

    def completing(self, result: object = None) -> CompletionTransaction:
        raise Unsupported(
            reason="completing() needs a job in a database: enqueue the task and drain(ol)"
        )

    def _record_event(self, claim: Claim, kind: str, data: str) -> None:
        facts = json.loads(data)
        if kind == "progress":
            self.progressed.append(Progress(**facts))
        elif kind == STREAM:
            self.streamed.append(facts)
        else:
            self.logged.append(facts)


def context(
    args: Mapping[str, Any] | None = None,
    *,
    attempt: int = 1,
    steps: Mapping[str, Any] | None = None,
    results: Sequence[Any] = (),
    **facts: Any,
) -> RecordedContext:
    """A context for `handler(…, ctx=context())`.

    `args` are the value of `ctx.job.args`, `steps` the results that earlier attempts stored,
    `results` those of the prerequisites. Other facts of the job: id, task, queue, tenant, priority,
    key,
    lane, timeout, max_attempts, failures, crashes, flow.
    """
    now = time.time()
    claim = Claim(
        id=new_job_id(), fence=attempt, task="task", args=json.dumps(dict(args or {})),
        attempt=attempt, failures=attempt - 1, crashes=0, max_attempts=max(attempt, 20),
        max_crashes=3, queue="default", tenant="default", priority=0, run_at=now, started_at=now,
        created_at=now, timeout=None, retry=None, trace=None, key=None, worker="test",
    )  # fmt: skip
    unknown = sorted(facts.keys() - set(Claim._fields))
    if unknown:
        raise TypeError(f"a job has no {unknown[0]!r}: there are {', '.join(Claim._fields)}")
    claim = claim._replace(**facts)
    return RecordedContext(claim, _MemoryOperations(claim, steps or {}, results))


class _MemoryOperations:
    """Runs the operations of a context without a database: steps, results, closed lanes."""

    def __init__(
        self, claim: Claim, steps: Mapping[str, object], results: Iterable[object]
    ) -> None:
        self.steps = {name: json.dumps(value) for name, value in steps.items()}
        self.slowed_down: list[float] = []
        self._claim = claim
        self._results = list(results)

    def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        with closing(operation(*args, **kwargs)) as op:
            answer: object = None
            try:
                while True:
                    answer = self._answer(op.send(answer))
            except StopIteration as stop:
                return cast("T", stop.value)

    async def arun(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(operation, *args, **kwargs)

    def _answer(self, step: object) -> object:
        if isinstance(step, Pipeline):
            return [self._answer(statement) for statement in step]
        assert isinstance(step, Statement)
        given = step.params
        match step.name:
            case "step":
                stored = self.steps.get(str(given["name"]))
                return [] if stored is None else [(stored,)]
            case "keep_step":
                return [(self.steps.setdefault(str(given["name"]), str(given["result"])),)]
            case "slow_down":
                self.slowed_down.append(cast("float", given["seconds"]))
                return [(time.time() + self.slowed_down[-1],)]
            case "prerequisites":
                return self._prerequisites(cast("int", given["place"]))
        raise Unsupported(reason=f"{step.name} needs a database: enqueue the task and drain(ol)")

    def _prerequisites(self, after: int) -> Rows:
        """Jobs that have succeeded with the given results, all on the first page."""
        return [] if after >= 0 else [self._row(n, value) for n, value in enumerate(self._results)]

    def _row(self, position: int, result: object) -> Row:
        facts = {
            **dict.fromkeys(JOB_COLUMNS), **self._claim._asdict(), "id": new_job_id(),
            "state": State.SUCCEEDED, "args": "{}", "result": json.dumps(result),
            "finished_at": self._claim.started_at, "cancelling": False, "waits_for": 0,
        }  # fmt: skip
        return (position, *(facts[name] for name in JOB_COLUMNS))
