"""Retries by `self.retry(…)` and `autoretry_for`: their delay and their limit."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Any

from ...model.errors import DependencyDown, NotAttempted, Permanent, RetryLater, Unsupported
from .exceptions import MaxRetriesExceededError, RetryRequested, TaskPredicate
from .sending import moment

if TYPE_CHECKING:
    from .request import TaskRequest
    from .tasks import CeleryTask

OUTCOMES = (DependencyDown, NotAttempted, Permanent, RetryLater)  # Outlast's own errors


def requested_retry(
    task: CeleryTask,
    request: TaskRequest,
    exc: BaseException | None,
    delay: Mapping[str, Any],
    max_retries: int | None,
) -> RetryRequested:
    """The error that ends this attempt with a retry; raises if no retry is left."""
    limit = task.max_retries if max_retries is None else max_retries
    if request.called_directly:  # no job to run again
        raise exc if exc is not None else RetryRequested("the task can be retried")
    if limit is not None and request.retries >= limit:
        if exc is not None:
            raise exc
        call = f"args: {request.args!r:.200} kwargs: {request.kwargs!r:.200}"
        raise MaxRetriesExceededError(f"Can't retry {task.name}[{request.id}] {call}")
    when = delay.get("countdown")
    if delay.get("eta") is not None:
        due = moment(task.app, "eta", delay["eta"])
        when = max(0.0, (due - datetime.now(UTC)).total_seconds())
    if when is None:
        when = task.default_retry_delay
    return RetryRequested(exc=exc, when=float(when))


def refuse_changes(request: TaskRequest, changed: Mapping[str, object]) -> None:
    """Refuse a retry with other arguments or options."""
    given = {name: value for name, value in changed.items() if value is not None}
    same: dict[str, object] = {"args": request.args, "kwargs": request.kwargs}
    for name, value in given.items():
        plain = list(value) if isinstance(value, tuple) else value
        if name not in same or same[name] != plain:
            raise Unsupported(
                reason=f"self.retry({name}=…) cannot change the job: enqueue another one with"
                " apply_async, and return"
            )


def with_autoretry(task: CeleryTask, run: Callable[..., object]) -> Callable[..., Any]:
    """The task's function, which requests a retry if it raises one of `autoretry_for`."""
    if not task.autoretry_for:
        return run

    @wraps(run)
    def retrying(*args: object, **kwargs: object) -> Any:
        try:
            return run(*args, **kwargs)
        except (TaskPredicate, *OUTCOMES):
            raise
        except tuple(task.dont_autoretry_for):
            raise
        except tuple(task.autoretry_for) as error:
            options = dict(task.retry_kwargs)
            if task.retry_backoff:
                options["countdown"] = backoff(task, task.request.retries)
            raise task.retry(exc=error, throw=False, **options) from error

    return retrying


def backoff(task: CeleryTask, retries: int) -> int:
    """Celery's backoff: factor · 2ⁿ up to `retry_backoff_max`; with jitter, a random part of it."""
    factor = max(1, int(task.retry_backoff))
    countdown = min(int(task.retry_backoff_max), factor * 2 ** min(retries, 60))
    return random.randrange(countdown + 1) if task.retry_jitter else countdown
