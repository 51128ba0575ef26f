"""Results of Django's tasks, read from jobs and their attempts."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from ...model.job import Job
from ...model.lifecycle import Outcome, State
from ...ops.report import Attempt
from .task_api import TaskError, TaskResult, TaskResultStatus, assign

UNSPENT = {Outcome.RELEASED, Outcome.POSTPONED}  # the task did not run, or postponed itself
NO_EXCEPTION = "outlast.JobFailed"  # without an exception of the handler: a lost worker, a cancel


def new_result(
    task: object, backend: str, args: Iterable[object], kwargs: Mapping[str, object]
) -> Any:
    """A result before its job exists. Raises TypeError for arguments that are not JSON."""
    return TaskResult(
        task=task,
        id="",
        status=TaskResultStatus.READY,
        enqueued_at=None,
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=list(args),
        kwargs=dict(kwargs),
        backend=backend,
        errors=[],
        worker_ids=[],
    )


def stored_result(task: Any, backend: str, job: Job, attempts: Sequence[Attempt]) -> Any:
    """The result of a job, with its unsuccessful attempts."""
    arguments = job.args if isinstance(job.args, dict) else {}
    result = new_result(task, backend, arguments.get("args", ()), arguments.get("kwargs", {}))
    spent = [one for one in attempts if one.outcome not in UNSPENT]
    workers = [one.worker for one in spent if one.worker is not None]
    running_or_done = job.state in (State.RUNNING, State.SUCCEEDED)
    if running_or_done and job.worker is not None and len(spent) < max(job.attempt, 1):
        workers.append(job.worker)
    first = spent[0].started_at if spent else job.started_at
    assign(
        result,
        id=job.id,
        status=_status(job.state),
        enqueued_at=_moment(job.created_at),
        started_at=_moment(first),
        last_attempted_at=_moment(job.started_at or (spent[-1].started_at if spent else None)),
        finished_at=_moment(job.finished_at),
        errors=_errors(job, spent),
        worker_ids=workers,
        _return_value=job.result if job.state is State.SUCCEEDED else None,
    )
    return result


def _status(state: State) -> object:
    match state:
        case State.RUNNING:
            return TaskResultStatus.RUNNING
        case State.SUCCEEDED:
            return TaskResultStatus.SUCCESSFUL
        case State.DEAD | State.CANCELLED:
            return TaskResultStatus.FAILED
    return TaskResultStatus.READY


def _errors(job: Job, spent: Sequence[Attempt]) -> list[object]:
    found = [one.error for one in spent if isinstance(one.error, dict)]
    if not found and job.state in (State.DEAD, State.CANCELLED) and isinstance(job.error, dict):
        found = [job.error]
    return [_error(one) for one in found]


def _error(error: Mapping[str, object]) -> object:
    kind = str(error.get("type", ""))
    if "." in kind:
        path = kind
    elif kind == "TimedOut":
        path = "builtins.TimeoutError"
    else:
        path = f"builtins.{kind}" if hasattr(builtins, kind) else NO_EXCEPTION
    text = str(error.get("traceback") or f"{kind}: {error.get('message', '')}")
    return TaskError(exception_class_path=path, traceback=text)


def _moment(moment: datetime | None) -> datetime | None:
    """A time in Django's form: aware, or naive in its time zone with USE_TZ = False."""
    if moment is None or settings.USE_TZ:
        return moment
    naive: datetime = timezone.make_naive(moment)
    return naive
