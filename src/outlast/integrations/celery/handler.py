"""The handler of a job that is a Celery task: one for all tasks of an app.

arguments ─▶ before_start ─▶ the task ─┬─ returned ─▶ on_success ─▶ its callbacks are enqueued
                                       ├─ Retry ────▶ on_retry ───▶ due again later
                                       └─ raised ───▶ on_failure ─▶ dead
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from ...model.errors import DependencyDown, NotAttempted, Permanent, RetryLater
from ...worker.context import Context
from .canvas import read_signature
from .exceptions import Ignore, Reject, RetryRequested, rebuilt
from .json_types import to_plain, to_python
from .request import TaskRequest, running
from .sending import ERROR, RESULT, RESULTS, job_id_of
from .signatures import CelerySignature
from .states import FAILURE, RETRY, SUCCESS, retries_of

if TYPE_CHECKING:
    from .tasks import CeleryTask

log = logging.getLogger("outlast.celery")


class ErrorInfo:
    """The parameter `einfo` of a task's hooks."""

    def __init__(self, error: BaseException) -> None:
        self.exception = error
        self.type = type(error)
        self.traceback = "".join(format_exception(error))

    def __str__(self) -> str:
        return self.traceback


def handler_of(task: CeleryTask) -> Callable[..., Any]:
    """The handler of this task's jobs. `gets` is the source of its first arguments, `then` has the
    calls that follow a success; `retries` are those made by Celery before the migration, `task_id`
    is an id that is not a UUID, and `ignore_result` the option of the call."""

    def run(  # noqa: PLR0913 - the stored arguments
        ctx: Context,
        args: list[Any],
        kwargs: dict[str, Any],
        *,
        gets: str | None = None,
        then: list[Any] | None = None,
        retries: int = 0,
        task_id: str | None = None,
        ignore_result: bool | None = None,
    ) -> Any:
        job = ctx.job
        first = _first_arguments(task, ctx, gets)
        if first is None:
            return None
        attempt = TaskRun(
            task,
            TaskRequest(
                id=task_id or job.id,
                task=task.name,
                args=[*first, *to_python(args)],
                kwargs=to_python(kwargs),
                retries=retries + retries_of(job),
                called_directly=False,
                hostname=job.worker,
                delivery_info={"routing_key": job.queue, "priority": job.priority},
                outlast=ctx,
            ),
        )
        value = attempt.run()
        for callback in then or ():
            enqueue_callback(task, ctx, callback, value)
        ignored = ignores_result(task) if ignore_result is None else ignore_result
        # Followers in a flow read the result from this job.
        return None if ignored and job.flow is None else to_plain(value, task.name)

    return run


def ignores_result(task: CeleryTask) -> bool:
    """Whether results are ignored, by the task, else by the settings."""
    ignored = task.ignore_result
    return bool(task.app.conf.task_ignore_result if ignored is None else ignored)


class TaskRun:
    """One attempt of a task, with its hooks."""

    def __init__(self, task: CeleryTask, request: TaskRequest) -> None:
        self._task = task
        self._request = request
        self._given = (str(request.id), request.args, request.kwargs)

    def run(self) -> Any:
        task, request = self._task, self._request
        with running(task, request):
            try:
                task.before_start(*self._given)
                value = task(*request.args, **request.kwargs)
            except RetryRequested as error:
                raise self._retry(error) from error
            except Ignore:
                return None
            except Reject as error:
                raise (RetryLater(0) if error.requeue else Permanent(str(error.reason))) from error
            except (RetryLater, NotAttempted, DependencyDown):  # Outlast's own errors
                raise
            except Exception as error:
                self._failed(error)
                raise
            self._hook(task.on_success, value, *self._given)
            self._hook(task.after_return, SUCCESS, value, *self._given, None)
            return value

    def _retry(self, error: RetryRequested) -> RetryLater:
        cause = error.exc or error
        self._hook(self._task.on_retry, cause, *self._given, ErrorInfo(cause))
        self._hook(self._task.after_return, RETRY, cause, *self._given, ErrorInfo(cause))
        seconds = error.when if isinstance(error.when, int | float) else 0.0
        reason = f"retry {self._request.retries + 1} in {seconds:g} s: {cause!r}"
        return RetryLater(max(0.0, seconds), reason)

    def _failed(self, error: Exception) -> None:
        context = self._request.outlast
        if context is not None and context.cancelled.is_set():
            return  # stopped from outside: the worker decides the outcome
        self._hook(self._task.on_failure, error, *self._given, ErrorInfo(error))
        self._hook(self._task.after_return, FAILURE, error, *self._given, ErrorInfo(error))

    def _hook(self, hook: Callable[..., None], *given: object) -> None:
        """Call a hook; its errors change no outcome."""
        try:
            hook(*given)
        except Exception:
            log.exception("%s of the task %s failed", hook.__name__, self._task.name)


def _first_arguments(task: CeleryTask, ctx: Context, gets: str | None) -> Sequence[object] | None:
    """The arguments before the call's own. None: do not run the call."""
    match gets:
        case str() if gets == RESULT:
            return [to_python(value) for value in ctx.results()]
        case str() if gets == RESULTS:
            return [[to_python(value) for value in ctx.results()]]
        case str() if gets == ERROR:
            return _errback_arguments(task, ctx)
    return ()


def _errback_arguments(task: CeleryTask, ctx: Context) -> Sequence[object] | None:
    """(request, exc, traceback) for a function that takes several, else the id of the job."""
    [failed] = list(ctx.prerequisites())
    error: Mapping[str, Any] = failed.error if isinstance(failed.error, dict) else {}
    if str(error.get("type", "")).endswith("PrerequisiteFailed"):
        return None  # the job never ran: the errback of the failed job is called
    parameters = inspect.signature(task.function).parameters.values()
    positional = [one for one in parameters if one.kind in (0, 1)]
    if len(positional) - len(task.leading) < 2:
        return [failed.id]
    request = TaskRequest(id=failed.id, task=failed.task, hostname=failed.worker)
    return [request, rebuilt(error), str(error.get("traceback", ""))]


def enqueue_callback(
    task: CeleryTask, ctx: Context, callback: Mapping[str, Any], value: Any
) -> None:
    """Enqueue a call that follows this success: it exists only if this attempt is accepted."""
    signature = read_signature(callback, task.app)
    if not isinstance(signature, CelerySignature):
        ctx.enqueue(signature.given((value,), {}, {}).part(None))
        return
    ctx.enqueue(signature.clone((value,)).call())
    if task_id := signature.options.get("task_id"):
        ctx.jobs[-1].id = job_id_of(task_id)
