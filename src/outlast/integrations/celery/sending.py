"""Sending: the parameters of `apply_async` as the options and arguments of a job."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, UUID, uuid5

from ...model.errors import InvalidOption, Unsupported
from ...model.job import NewJob
from ...model.options import Options
from ...model.spelling import unknown_option
from ...model.task import Call, TaskDefinition
from ...worker.context import Context
from .json_types import to_plain

if TYPE_CHECKING:
    from .app import Celery
    from .tasks import CeleryTask

# Sources of a job's first argument in the jobs that it follows (`gets`).
RESULT, RESULTS, ERROR = "result", "results", "error"

HONOURED = (
    "countdown", "eta", "expires", "queue", "priority", "task_id", "time_limit", "link",
    "link_error", "ignore_result",
)  # fmt: skip
# Ignored: options of publishing a message.
WITHOUT_EFFECT = (
    "retry",
    "retry_policy",
    "connection",
    "producer",
    "delivery_mode",
    "add_to_parent",
)
REFUSED = {
    "serializer": "arguments are JSON",
    "compression": "omit it; see large payloads",
    "exchange": "say queue=…",
    "routing_key": "say queue=…",
    "soft_time_limit": "use time_limit=…, and check self.request.outlast.cancelled",
    "shadow": "jobs have the names of their tasks",
    "headers": "pass what the task needs as an argument",
    "chord": "use chord(header)(body)",
    "group_id": "use group(…)",
}


def call_of(
    app: Celery,
    task: str,
    args: Iterable[object],
    kwargs: Mapping[str, object],
    options: Mapping[str, Any],
    *,
    checked: bool = True,
    **stored: object,
) -> Call:
    """A call of a task by its name. `stored` has further arguments for its handler."""
    known = app.tasks.get(task)
    args, kwargs = list(args), dict(kwargs)
    if checked and known is not None and known.typing:
        check_arguments(known, args, kwargs, following=stored.get("gets") is not None)
    given = {"args": to_plain(args, task), "kwargs": to_plain(kwargs, task)}
    options = {name: value for name, value in options.items() if value is not None}
    if (id := options.get("task_id")) and id != job_id_of(id):
        stored["task_id"] = id
    if (ignored := options.get("ignore_result")) is not None:
        stored["ignore_result"] = bool(ignored)
    if links := listed(options.get("link")):
        stored["then"] = [to_plain(one.as_dict(), task) for one in links]
    given |= {name: value for name, value in stored.items() if value is not None}
    return Call(definition_of(app, task), job_options(app, task, options), (), given)


def job_options(app: Celery, task: str, given: Mapping[str, object]) -> Options:
    """The options of one job: of the call, else the task, else its route, else the settings."""
    check_options(given)
    known, conf = app.tasks.get(task), app.conf
    merged = {**conf.route(task), **_task_options(known), **given}
    eta, countdown = merged.get("eta"), merged.get("countdown")
    if eta is not None and countdown is not None:
        raise InvalidOption(option="eta", reason="cannot be given together with countdown")
    priority = merged.get("priority", conf.task_default_priority)
    return Options(
        queue=merged.get("queue") or conf.task_default_queue,
        priority=conf.priority(priority),
        delay=None if countdown is None else max(0.0, _number("countdown", countdown)),
        at=None if eta is None else moment(app, "eta", eta),
        expires=_expires(app, merged.get("expires")),
        timeout=merged.get("time_limit", conf.task_time_limit),
        max_attempts=1,  # the task requests retries itself, without spending attempts
        max_crashes=None if acknowledged_late(app, known) else 1,
        on_dead=[_errback(app, one) for one in listed(merged.get("link_error"))] or None,
    )


def _task_options(task: CeleryTask | None) -> dict[str, object]:
    names = ("queue", "priority", "expires", "time_limit")
    found = {name: getattr(task, name, None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def acknowledged_late(app: Celery, task: CeleryTask | None) -> bool:
    """Whether a job runs again after its worker was lost: unless `acks_late=False`."""
    late = getattr(task, "acks_late", None)
    return bool(app.conf.task_acks_late if late is None else late)


def _errback(app: Celery, signature: Any) -> Call:
    return call_of(
        app, signature.task, signature.args, signature.kwargs, signature.options, gets=ERROR
    )


def check_options(given: Mapping[str, object]) -> None:
    for name, value in given.items():
        if name == "serializer" and value == "json":
            continue
        if name in REFUSED:
            raise Unsupported(reason=f"{name}=… is not supported: {REFUSED[name]}")
        if name not in HONOURED and name not in WITHOUT_EFFECT:
            raise unknown_option(name, HONOURED, "apply_async")


def check_arguments(
    task: CeleryTask, args: list[object], kwargs: dict[str, object], *, following: bool
) -> None:
    """Raise TypeError, as Celery does, if the task cannot be called with these arguments."""
    first: tuple[object, ...] = (None,) if following else ()
    try:
        inspect.signature(task.function).bind(*task.leading, *first, *args, **kwargs)
    except TypeError as error:
        if following:  # an errback may get one argument or three
            return
        raise TypeError(f"{task.name}(): {error}") from None


def definition_of(app: Celery, task: str) -> TaskDefinition:
    """The definition of a task, even if only workers know it."""
    found = app.ol.registry.get(task)
    return found or TaskDefinition(name=task, function=elsewhere, context_type=Context)


def elsewhere(  # noqa: PLR0913 - the stored arguments
    ctx: Context,
    args: list[object],
    kwargs: dict[str, object],
    *,
    gets: str | None = None,
    then: list[object] | None = None,
    retries: int = 0,
    task_id: str | None = None,
    ignore_result: bool | None = None,
) -> Any:
    """Defines the stored arguments of all Celery jobs; `handler.py` has the handler that runs."""
    raise NotImplementedError


def new_job(app: Celery, call: Call, task_id: str | None) -> NewJob:
    id = None if task_id is None else job_id_of(task_id)
    return call.new_job(id, app.ol.max_args_bytes)


def job_id_of(task_id: str) -> str:
    """The job id of a task id: a UUID is kept, any other id becomes a derived UUID."""
    try:
        return str(UUID(task_id))
    except ValueError:
        return str(uuid5(NAMESPACE_OID, f"celery:{task_id}"))


def moment(app: Celery, name: str, given: object) -> datetime:
    """A time; naive times are in the time zone of the app."""
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            raise InvalidOption(option=name, reason=f"must be a time, not {given!r:.80}") from None
    if not isinstance(given, datetime):
        raise InvalidOption(option=name, reason=f"must be a datetime, not {given!r:.80}")
    return given if given.tzinfo is not None else given.replace(tzinfo=app.conf.zone)


def _expires(app: Celery, given: Any) -> datetime | timedelta | float | None:
    if isinstance(given, datetime | str):
        return moment(app, "expires", given)
    expires: timedelta | float | None = given
    return expires


def _number(name: str, given: object) -> float:
    if isinstance(given, timedelta):
        return given.total_seconds()
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InvalidOption(option=name, reason=f"must be a number of seconds, not {given!r:.80}")
    return float(given)


def listed(given: object) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]
