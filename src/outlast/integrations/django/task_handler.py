"""The handler of Django tasks: calls the task, and sends Django's signals."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from ...model.errors import DependencyDown, NotAttempted, Permanent, RetryLater
from ...ops.report import Attempt
from ...worker.context import Context
from .task_api import TaskContext, TaskError, TaskResultStatus, assign, normalize_json, signals
from .task_results import stored_result

if TYPE_CHECKING:
    from .client import DjangoOutlast

log = logging.getLogger("outlast.django")


def task_handler(app: DjangoOutlast, task: Any, sender: type) -> Callable[..., Any]:
    """A handler for the jobs of this task. Signals are sent before the outcome is stored: if the
    worker is lost in between, the attempt and its signals are repeated."""

    def run(args: list[Any], kwargs: dict[str, Any], ctx: Context) -> Any:
        before = app.history(ctx.job.id)[0] if ctx.attempt > 1 else []
        attempt = TaskAttempt(task, ctx, before)
        _send(signals.task_started, sender, attempt.result)
        try:
            value = attempt.succeeded(task.func(*attempt.context(), *args, **kwargs))
        except BaseException as error:
            if attempt.failed(error):
                _send(signals.task_finished, sender, attempt.result)
            raise
        _send(signals.task_finished, sender, attempt.result)
        return value

    async def arun(args: list[Any], kwargs: dict[str, Any], ctx: Context) -> Any:
        before = (await app.ahistory(ctx.job.id))[0] if ctx.attempt > 1 else []
        attempt = TaskAttempt(task, ctx, before)
        await _asend(signals.task_started, sender, attempt.result)
        try:
            value = attempt.succeeded(await task.func(*attempt.context(), *args, **kwargs))
        except BaseException as error:
            if attempt.failed(error):
                await _asend(signals.task_finished, sender, attempt.result)
            raise
        await _asend(signals.task_finished, sender, attempt.result)
        return value

    return arun if inspect.iscoroutinefunction(task.func) else run


def _send(signal: Any, sender: type, result: Any) -> None:
    """Send a signal. A receiver that raises changes no outcome; Django logs its error."""
    try:
        signal.send_robust(sender, task_result=result)
    except Exception:  # Django may fail to log it
        log.exception("a signal of the task %s could not be sent", result.task.module_path)


async def _asend(signal: Any, sender: type, result: Any) -> None:
    try:
        await signal.asend_robust(sender, task_result=result)
    except Exception:
        log.exception("a signal of the task %s could not be sent", result.task.module_path)


class TaskAttempt:
    """An attempt, for Django's signals and task context."""

    def __init__(self, task: Any, ctx: Context, before: list[Attempt]) -> None:
        self._task = task
        self._ctx = ctx
        self.result = stored_result(task, task.backend, ctx.job, before)

    def context(self) -> tuple[Any, ...]:
        """The context as the task's first argument, if it takes one."""
        return (TaskContext(task_result=self.result),) if self._task.takes_context else ()

    def succeeded(self, value: object) -> Any:
        plain = normalize_json(value)
        self._end(TaskResultStatus.SUCCESSFUL, _return_value=plain)
        return plain

    def failed(self, error: BaseException) -> bool:
        """Whether the task has failed for good."""
        if not self._is_last(error):
            return False
        kind = type(error)
        path = f"{kind.__module__}.{kind.__qualname__}"
        failure = TaskError(exception_class_path=path, traceback="".join(format_exception(error)))
        self._end(TaskResultStatus.FAILED, errors=[*self.result.errors, failure])
        return True

    def _is_last(self, error: BaseException) -> bool:
        if isinstance(error, RetryLater | NotAttempted | DependencyDown):
            return False
        if self._ctx.cancelled.is_set():
            return False  # stopped from outside: the worker decides the outcome
        job = self._ctx.job
        return isinstance(error, Permanent) or job.failures + 1 >= (job.max_attempts or 1)

    def _end(self, status: object, **values: object) -> None:
        assign(self.result, status=status, finished_at=timezone.now(), **values)
