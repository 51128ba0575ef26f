"""`AsyncResult`: a job, in Celery's terms."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...model.errors import JobCancelled, JobDead, JobNotFound, Unsupported
from ...model.job import Job
from ...model.lifecycle import State
from .exceptions import TaskRevokedError, rebuilt
from .json_types import to_python
from .request import running_task
from .sending import job_id_of
from .states import FAILURE, PENDING, READY_STATES, REVOKED, STARTED, SUCCESS, retries_of, state_of

if TYPE_CHECKING:
    from .app import Celery
    from .group_result import GroupResult

MISSING = {
    "children": "related jobs are flows: see app.ol.flow(…)",
    "collect": "see app.ol.flow_jobs(…)",
    "iterdeps": "see app.ol.flow_jobs(…)",
    "graph": "see `outlast flow`",
    "backend": "results are columns of jobs: see app.ol.result(…)",
    "then": "use link=…",
}


class AsyncResult:
    """The job of a task id. An unknown id is PENDING, as in Celery."""

    def __init__(
        self, id: str, app: Celery | None = None, parent: AsyncResult | GroupResult | None = None
    ) -> None:
        if not isinstance(id, str) or not id:
            raise ValueError(f"AsyncResult needs a task's id, not {id!r:.80}")
        self.id = id
        self._app = app
        self.parent = parent

    @property
    def app(self) -> Celery:
        if self._app is None:
            from .app import current_app

            self._app = current_app()
        return self._app

    @property
    def task_id(self) -> str:
        return self.id

    @property
    def job_id(self) -> str:
        """The id of its row: the task id, or a derived UUID."""
        return job_id_of(self.id)

    def job(self) -> Job:
        """The current `Job` of Outlast."""
        return self.app.ol.job(self.job_id)

    def _found(self) -> Job | None:
        try:
            return self.job()
        except JobNotFound:
            return None

    # State

    @property
    def state(self) -> str:
        job = self._found()
        if job is None:
            return PENDING
        if job.state is State.RUNNING:
            return str((self._reported() or {}).get("state") or STARTED)
        return state_of(job)

    status = state

    @property
    def result(self) -> Any:
        """The return value, the exception, or the data of `update_state`."""
        job = self._found()
        if job is None:
            return None
        if job.state is State.RUNNING:
            return (self._reported() or {}).get("meta")
        if job.state is State.DEAD:
            return rebuilt(job.error)
        if job.state is State.CANCELLED:
            return TaskRevokedError("revoked")
        return to_python(job.result)

    info = result

    def _reported(self) -> dict[str, object] | None:
        from .tasks import STATE_EVENT

        for event in reversed(self.app.ol.history(self.job_id)[1]):
            data = event.data
            if isinstance(data, dict) and data.get("message") == STATE_EVENT:
                return data
        return None

    @property
    def traceback(self) -> str | None:
        job = self._found()
        error = job.error if job is not None else None
        return str(error.get("traceback")) if isinstance(error, dict) else None

    @property
    def date_done(self) -> datetime | None:
        job = self._found()
        return None if job is None else job.finished_at

    @property
    def retries(self) -> int:
        job = self._found()
        return 0 if job is None else retries_of(job)

    def ready(self) -> bool:
        return self.state in READY_STATES

    def successful(self) -> bool:
        return self.state == SUCCESS

    def failed(self) -> bool:
        return self.state == FAILURE

    def maybe_throw(self, propagate: bool = True) -> Any:
        """The result if it has one; raises the exception if it failed."""
        return self.get() if propagate and self.ready() else self.result

    # Wait

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        disable_sync_subtasks: bool = True,
        **waiting: object,
    ) -> Any:
        """Wait for the result; raises the task's exception, TaskRevokedError or TimeoutError.
        Options of the wait (`interval`, `no_ack`, …) are ignored."""
        refuse_in_task(disable_sync_subtasks)
        refuse_callbacks(waiting)
        try:
            return to_python(self.app.ol.result(self.job_id, timeout, raw=True))
        except (JobDead, JobCancelled) as ended:
            return self._failed(ended, self.result, propagate)

    async def aget(self, timeout: float | None = None, propagate: bool = True) -> Any:
        try:
            return to_python(await self.app.ol.aresult(self.job_id, timeout, raw=True))
        except (JobDead, JobCancelled) as ended:
            job = await self.app.ol.ajob(self.job_id)
            dead = job.state is State.DEAD
            error = rebuilt(job.error) if dead else TaskRevokedError("revoked")
            return self._failed(ended, error, propagate)

    wait = get

    @staticmethod
    def _failed(ended: Exception, error: Any, propagate: bool) -> Any:
        if propagate:
            raise error from ended
        return error

    # Act

    def revoke(self, terminate: bool = False, **_: object) -> None:
        """Cancel the job if it has not begun; with `terminate`, also stop a running one."""
        job = self._found()
        if job is None or (job.state is State.RUNNING and not terminate):
            return
        if job.state not in (State.SUCCEEDED, State.DEAD, State.CANCELLED):
            self.app.ol.cancel(job.id, "revoked")

    def forget(self) -> None:
        """Erase the result."""
        self.app.ol.forget(self.job_id)

    def __getattr__(self, name: str) -> Any:
        if name in MISSING:
            raise Unsupported(reason=f"AsyncResult.{name} is not supported: {MISSING[name]}")
        raise AttributeError(f"AsyncResult has no attribute {name!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"


class EagerResult(AsyncResult):
    """The result of an eager task, without a job."""

    def __init__(self, id: str, value: Any, state: str, traceback: str | None = None) -> None:
        super().__init__(id)
        self._value, self._state, self._traceback = value, state, traceback

    state = status = property(lambda self: self._state)
    result = info = property(lambda self: self._value)
    traceback = property(lambda self: self._traceback)

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        disable_sync_subtasks: bool = True,
        **waiting: Any,
    ) -> Any:
        if self._state == FAILURE and propagate:
            raise self._value
        return self._value

    wait = get

    async def aget(self, timeout: float | None = None, propagate: bool = True) -> Any:
        return self.get(timeout, propagate)

    def revoke(self, terminate: bool = False, **_: object) -> None:
        self._state = REVOKED

    def forget(self) -> None: ...


def refuse_in_task(disable: bool) -> None:
    if disable and running_task() is not None:
        raise RuntimeError(
            "never call result.get() within a task: its slot waits for others. Use a chain or a"
            " chord, or self.request.outlast.wait_for(…)"
        )


def refuse_callbacks(waiting: dict[str, object]) -> None:
    for name in ("callback", "on_message"):
        if waiting.get(name) is not None:
            raise Unsupported(reason=f"get({name}=…) is not supported: use app.ol.events(…)")


def __getattr__(name: str) -> Any:
    if name == "GroupResult":  # where Celery has it
        from .group_result import GroupResult

        return GroupResult
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
