"""Eager execution in the calling process: `task.apply()`, and `task_always_eager` for tests."""

from __future__ import annotations

from traceback import format_exception
from typing import TYPE_CHECKING, Any

from ...model.ids import new_job_id
from .exceptions import Ignore, Reject, RetryRequested
from .request import TaskRequest, running
from .result import EagerResult
from .sending import check_arguments, check_options, listed
from .states import FAILURE, SUCCESS

if TYPE_CHECKING:
    from .tasks import CeleryTask


def apply_eagerly(
    task: CeleryTask,
    args: list[Any],
    kwargs: dict[str, Any],
    throw: bool | None,
    options: dict[str, Any],
) -> EagerResult:
    """Run a call in this process, without its delays; returns the result."""
    check_options(options)
    if task.typing:
        check_arguments(task, args, kwargs, following=False)
    id = options.get("task_id") or new_job_id()
    retries = 0
    while True:
        request = TaskRequest(
            id, task.name, args, kwargs, retries, is_eager=True, called_directly=False
        )
        try:
            with running(task, request):
                value = task(*args, **kwargs)
        except RetryRequested:
            retries += 1
            continue
        except Ignore:
            return EagerResult(id, None, SUCCESS)
        except (Exception, Reject) as error:
            return _failed(task, id, error, throw)
        break
    for callback in listed(options.get("link")):
        callback.apply(args=() if callback.immutable else (value,))
    return EagerResult(id, value, SUCCESS)


def _failed(task: CeleryTask, id: str, error: Exception, throw: bool | None) -> EagerResult:
    propagates = task.app.conf.task_eager_propagates if throw is None else throw
    if propagates:
        raise error
    return EagerResult(id, error, FAILURE, "".join(format_exception(error)))
