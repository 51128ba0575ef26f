"""Tasks with Celery's interface: `delay`, `apply_async`, `s`, `retry`, `request`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ...model.errors import InvalidOption, Unsupported
from ...model.spelling import unknown_option
from .eager import apply_eagerly
from .request import TaskRequest, current_request
from .result import AsyncResult, EagerResult
from .retrying import refuse_changes, requested_retry, with_autoretry
from .sending import call_of, new_job
from .signatures import CelerySignature

if TYPE_CHECKING:
    from .app import Celery

OPTIONS = (
    "acks_late", "autoretry_for", "base", "bind", "default_retry_delay", "dont_autoretry_for",
    "expires", "ignore_result", "max_retries", "name", "priority", "queue", "reject_on_worker_lost",
    "retry_backoff", "retry_backoff_max", "retry_jitter", "retry_kwargs", "send_events",
    "serializer", "store_errors_even_if_ignored", "throws", "time_limit", "track_started", "typing",
)  # fmt: skip
REFUSED = {
    "soft_time_limit": "use time_limit=…, and check self.request.outlast.cancelled in loops",
    "rate_limit": 'limit the queue for all workers together: app.ol.queue(name, rate="100/m")',
    "compression": "omit it; see large payloads",
    "pydantic": "declare the task with @app.ol.task, which checks its arguments",
    "exchange": "say queue=…",
    "routing_key": "say queue=…",
}
MISSING_METHODS = {
    "map": "use group(…)",
    "starmap": "use group(…)",
    "chunks": "use group(…), or a batch task: @app.ol.task(batch=…)",
    "replace": "enqueue the next job with self.request.outlast.enqueue(…)",
    "add_trail": "related jobs are flows",
    "send_event": "use self.request.outlast.progress(…) or log(…)",
    "backend": "results are columns of jobs: see app.ol.result(…)",
}


class CeleryTask:
    """A task created by `@app.task`, and the base of classes for `base=…`."""

    name: str = ""
    run: Callable[..., Any]
    app: Celery  # found on first use for `shared_task`
    max_retries: int | None = 3
    default_retry_delay: float = 180
    autoretry_for: Iterable[type[BaseException]] = ()
    dont_autoretry_for: Iterable[type[BaseException]] = ()
    retry_kwargs: Mapping[str, Any] = {}
    retry_backoff: bool | int = False
    retry_backoff_max: int = 600
    retry_jitter: bool = True
    queue: str | None = None
    priority: int | None = None
    expires: Any = None
    time_limit: float | None = None
    ignore_result: bool | None = None
    acks_late: bool | None = None
    typing: bool = True
    throws: tuple[type[BaseException], ...] = ()
    bound: ClassVar[bool] = True

    def __init__(self) -> None:
        self._run = with_autoretry(self, self.run)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Call the function, as a worker does."""
        return self._run(*args, **kwargs)

    # Enqueue

    def delay(self, *args: object, **kwargs: object) -> AsyncResult:
        return self.apply_async(args, kwargs)

    async def adelay(self, *args: object, **kwargs: object) -> AsyncResult:
        return await self.aapply_async(args, kwargs)

    def apply_async(
        self,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Enqueue one call. Options: countdown, eta, expires, queue, priority, task_id, time_limit,
        link, link_error. The job is durable when this returns, or when the transaction bound with
        `app.ol.bind` commits."""
        if self.app.conf.task_always_eager:
            return self.apply(args, kwargs, task_id=task_id, **options)
        job = new_job(self.app, self._call(args, kwargs, {**options, "task_id": task_id}), task_id)
        [made] = self.app.ol._enqueue_jobs([job])
        return AsyncResult(task_id or made.id, app=self.app)

    async def aapply_async(
        self,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        **options: Any,
    ) -> AsyncResult:
        if self.app.conf.task_always_eager:
            return self.apply(args, kwargs, task_id=task_id, **options)
        job = new_job(self.app, self._call(args, kwargs, {**options, "task_id": task_id}), task_id)
        [made] = await self.app.ol._aenqueue_jobs([job])
        return AsyncResult(task_id or made.id, app=self.app)

    def _call(
        self,
        args: Iterable[object] | None,
        kwargs: Mapping[str, object] | None,
        options: dict[str, Any],
    ) -> Any:
        return call_of(self.app, self.name, args or (), kwargs or {}, options)

    def apply(
        self,
        args: Iterable[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        throw: bool | None = None,
        **options: object,
    ) -> EagerResult:
        """Run the task in this process, including retries."""
        return apply_eagerly(self, list(args or ()), dict(kwargs or {}), throw, options)

    def s(self, *args: Any, **kwargs: Any) -> CelerySignature:
        return self.signature(args, kwargs)

    def si(self, *args: object, **kwargs: object) -> CelerySignature:
        """An immutable signature, which does not get the result of the job before it."""
        return self.signature(args, kwargs, immutable=True)

    def signature(
        self,
        args: Iterable[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        options: Mapping[str, object] | None = None,
        *,
        immutable: bool = False,
        **more: object,
    ) -> CelerySignature:
        options = {**(options or {}), **more}
        return CelerySignature(self.name, args, kwargs, options, immutable=immutable, app=self.app)

    subtask = signature

    # For the running job

    @property
    def request(self) -> TaskRequest:
        return current_request(self)

    def retry(
        self,
        args: Iterable[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        exc: BaseException | None = None,
        throw: bool = True,
        max_retries: int | None = None,
        **options: object,
    ) -> Exception:
        """Retry in `countdown` seconds or at `eta`. Raises `Retry`, which ends this attempt; after
        `max_retries` retries it raises `exc`, or MaxRetriesExceededError."""
        delay = {name: options.pop(name, None) for name in ("countdown", "eta")}
        refuse_changes(self.request, {"args": args, "kwargs": kwargs, **options})
        again = requested_retry(self, self.request, exc, delay, max_retries)
        if throw:
            raise again from exc
        return again

    def update_state(
        self, task_id: str | None = None, state: str | None = None, meta: object = None, **_: object
    ) -> None:
        """Report progress, which `AsyncResult.state` and `.info` show while the job runs."""
        request = self.request
        if task_id not in (None, request.id):
            raise Unsupported(reason="update_state() is for the running job: omit task_id")
        if request.outlast is None:
            return
        request.outlast.log(STATE_EVENT, state=state, meta=meta)
        if isinstance(meta, dict) and {"current", "total"} <= meta.keys():
            request.outlast.progress(meta["current"], meta["total"])

    # Called by the worker; for subclasses

    def before_start(self, task_id: str, args: list[Any], kwargs: dict[str, Any]) -> None: ...

    def on_success(
        self, retval: object, task_id: str, args: list[Any], kwargs: dict[str, Any]
    ) -> None: ...

    def on_failure(
        self,
        exc: BaseException,
        task_id: str,
        args: list[Any],
        kwargs: dict[str, Any],
        einfo: object,
    ) -> None: ...

    def on_retry(
        self,
        exc: BaseException,
        task_id: str,
        args: list[Any],
        kwargs: dict[str, Any],
        einfo: object,
    ) -> None: ...

    def after_return(
        self,
        status: str,
        retval: object,
        task_id: str,
        args: list[Any],
        kwargs: dict[str, Any],
        einfo: object,
    ) -> None: ...

    # Properties

    @property
    def function(self) -> Callable[..., Any]:
        """The user's function."""
        return getattr(self.run, "__func__", self.run)

    @property
    def leading(self) -> tuple[Any, ...]:
        """The arguments before a job's own: `self`, for a bound task."""
        return (self,) if inspect.ismethod(self.run) else ()

    def AsyncResult(self, task_id: str) -> AsyncResult:
        return AsyncResult(task_id, app=self.app)

    def __getattr__(self, name: str) -> Any:
        if name in MISSING_METHODS:
            raise Unsupported(reason=f"task.{name} is not supported: {MISSING_METHODS[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<@task: {self.name}>"


STATE_EVENT = "celery state"


def make_task(function: Callable[..., Any], name: str, options: Mapping[str, Any]) -> CeleryTask:
    """Create a task of a function: an instance of its own class, as in Celery."""
    check_task_options(name, options)
    if inspect.iscoroutinefunction(function):
        raise InvalidOption(option="task", reason=f"{name} is async: declare it with @app.ol.task")
    base = options.get("base") or CeleryTask
    attributes = {key: value for key, value in options.items() if key not in ("base", "bind")}
    attributes |= {
        "name": name,
        "run": function if options.get("bind") else staticmethod(function),
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "__wrapped__": function,
    }
    made: CeleryTask = type(function.__name__, (base,), attributes)()
    check_task(made)
    return made


def check_task_options(name: str, options: Mapping[str, object]) -> None:
    for option in options:
        if option in REFUSED:
            raise Unsupported(reason=f"{name}: {option}=… is not supported: {REFUSED[option]}")
        if option not in OPTIONS:
            raise unknown_option(option, OPTIONS, f"The task {name}")
    if options.get("serializer") not in (None, "json"):
        raise Unsupported(reason=f"{name}: arguments and results are JSON: omit serializer")
    if options.get("reject_on_worker_lost") is False:
        raise Unsupported(reason=f"{name}: use acks_late=False for a job that never runs again")


def check_task(task: CeleryTask) -> None:
    """Check a task's options, including those of its base class."""
    for option, instead in REFUSED.items():
        if getattr(task, option, None) is not None:
            raise Unsupported(reason=f"{task.name}: {option}=… is not supported: {instead}")
