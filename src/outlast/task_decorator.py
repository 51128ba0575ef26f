"""The decorator `@ol.task`, and the types of the tasks that it makes.

A task is enqueued without its context, so type checkers must find the position of the context:

    def f(ctx: Context, a: int)      enqueue takes (a: int)
    def f(a: int, ctx: Context)      enqueue takes anything: no type can omit a later parameter
    def f(a: int)                    enqueue takes (a: int)

An overload finds it by a second call that the function must also allow (`CallableAs`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from .model.arguments.signal_value import check_declaration
from .model.batch import batch_of
from .model.breaker import Breaker
from .model.options import Options, TaskOptions
from .model.retry import Retry
from .model.schedule import SCHEDULE_OPTIONS, ScheduleOptions
from .model.schedule_state import ScheduleDefinition
from .model.task import TaskDefinition
from .model.task_function import task_name
from .task import Task

if TYPE_CHECKING:
    from .client.client import Outlast
    from .client.databases import Databases
    from .worker.batch_context import BatchContext
    from .worker.context import Context

DEFAULT_BREAKER = Breaker()
TASK_OPTIONS = (
    "name",
    "isolated",
    "batch",
    "wait",
    "breaker",
    "signals",
    *SCHEDULE_OPTIONS,
)  # options of a task only, not of one job


def task(  # noqa: PLR0913 - as the contract has it
    self: Outlast | Databases,
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    retry: Retry | None = None,
    isolated: bool = False,
    batch: int | None = None,
    wait: float | None = None,
    breaker: Breaker | None = DEFAULT_BREAKER,
    signals: Mapping[str, object] | None = None,
    **options: Unpack[ScheduledTaskOptions],
) -> Any:
    """Register a function as a task. Its name is the function's, unless another is given; jobs
    are found by that name, so a function may move to another module.

    With `batch`, the function takes a list of items, one from each job: it is called with up to
    `batch` of them, or with those that were gathered within `wait` seconds.

    `breaker` configures when its calls stop because a dependency is down; None: never.

    `signals` maps the signals that it waits for to the types of their values; other values are
    refused where the sender knows the task.

    With `cron` or `every`, workers enqueue a call without arguments by the clock; `tz`, `missed`,
    `overlap`, `jitter` and `grace` configure this. See `Outlast.schedule` for calls with arguments.

    Options: queue, priority, timeout, max_attempts, max_crashes, expires, tenant, on_success,
    on_dead, on_cancel.
    """
    timing, job_options = _split(options)
    gathered = batch_of(batch, wait)

    def register(function: Callable[..., object]) -> Task[..., Any]:
        definition = TaskDefinition(
            name=task_name(function) if name is None else name,
            function=function,
            retry=Retry() if retry is None else retry,
            options=job_options,
            isolated=isolated,
            context_type=_context_type(batch is not None),
            batch=gathered,
            breaker=breaker,
            tenant_required=self.tenant_required,
            signals=check_declaration(signals),
            around=self.around_handlers,
        )
        return _register(self, definition, timing)

    return register(function) if function is not None else register


def _register(
    app: Outlast | Databases, definition: TaskDefinition, timing: dict[str, object]
) -> Task[..., Any]:
    made: Task[..., Any] = Task(app, definition)
    planned = ScheduleDefinition.of(made.name, made.job(), timing) if timing else None
    app.registry.add(definition)
    if planned is not None:
        app.registry.add_schedule(planned)
    return made


class ScheduledTaskOptions(TaskOptions, ScheduleOptions, total=False):
    """The options of `@ol.task(…)`: those of all its jobs, and of its schedule."""


def _split(options: ScheduledTaskOptions) -> tuple[dict[str, object], Options]:
    """The options of a schedule, and all others."""
    given = dict(options)
    timing = {name: given.pop(name) for name in SCHEDULE_OPTIONS if name in given}
    others = Options.of(given, TASK_OPTIONS, "Outlast.task()")
    return {name: value for name, value in timing.items() if value is not None}, others


def _context_type(batch: bool) -> type:
    from .worker.batch_context import BatchContext
    from .worker.context import Context

    return cast(type, BatchContext if batch else Context)


P = ParamSpec("P")  # the parameters without the context
C = ParamSpec("C")  # all of them
K = ParamSpec("K")
R = TypeVar("R")  # what the function returns, awaited if it is async
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T")  # an item of a batch

if TYPE_CHECKING:

    class CallableAs(Protocol[C, K, V_co]):
        """A function with the parameters C that can also be called with K."""

        @overload
        def __call__(self, *args: C.args, **kwargs: C.kwargs) -> V_co: ...
        @overload
        def __call__(self, *args: K.args, **kwargs: K.kwargs) -> Any: ...

    class NoContext:
        """Matches only parameters and return values annotated with Any or object, never a context
        or a coroutine."""

    Async = Coroutine[object, object, R]
    ReturnsAny = Callable[C, NoContext]
    TakesAny = CallableAs[C, Concatenate[NoContext, ...], V]
    Context1st = CallableAs[C, Concatenate[Context, P], V]
    Context2nd = CallableAs[C, Concatenate[Any, Context, ...], V]
    Context3rd = CallableAs[C, Concatenate[Any, Any, Context, ...], V]
    Context4th = CallableAs[C, Concatenate[Any, Any, Any, Context, ...], V]
    Context5th = CallableAs[C, Concatenate[Any, Any, Any, Any, Context, ...], V]
    Context6th = CallableAs[C, Concatenate[Any, Any, Any, Any, Any, Context, ...], V]
    ContextAndMore = CallableAs[C, [Context], V]  # and **kwargs, where mypy finds no P

    class TaskDecorator(Protocol):
        """`ol.task` and `ol.task(…)`. The first matching overload counts, so a parameter that takes
        anything, and therefore a context, comes before one that is a context."""

        @overload
        def __call__(self, f: ReturnsAny[C], /) -> Task[..., Any, C, Any]: ...
        @overload
        def __call__(self, f: TakesAny[C, Async[R]], /) -> Task[..., R, C, Async[R]]: ...
        @overload
        def __call__(self, f: TakesAny[C, R], /) -> Task[..., R, C, R]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, f: Context1st[C, P, Async[R]], /) -> Task[P, R, C, Async[R]]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, f: Context1st[C, P, R], /) -> Task[P, R, C, R]: ...
        @overload
        def __call__(self, f: Context2nd[C, Async[R]], /) -> Task[..., R, C, Async[R]]: ...
        @overload
        def __call__(self, f: Context2nd[C, R], /) -> Task[..., R, C, R]: ...
        @overload
        def __call__(self, f: Context3rd[C, Async[R]], /) -> Task[..., R, C, Async[R]]: ...
        @overload
        def __call__(self, f: Context3rd[C, R], /) -> Task[..., R, C, R]: ...
        @overload
        def __call__(self, f: Context4th[C, Async[R]], /) -> Task[..., R, C, Async[R]]: ...
        @overload
        def __call__(self, f: Context4th[C, R], /) -> Task[..., R, C, R]: ...
        @overload
        def __call__(self, f: Context5th[C, Async[R]], /) -> Task[..., R, C, Async[R]]: ...
        @overload
        def __call__(self, f: Context5th[C, R], /) -> Task[..., R, C, R]: ...
        @overload
        def __call__(self, f: Context6th[C, Async[R]], /) -> Task[..., R, C, Async[R]]: ...
        @overload
        def __call__(self, f: Context6th[C, R], /) -> Task[..., R, C, R]: ...
        @overload
        def __call__(self, f: ContextAndMore[C, Async[R]], /) -> Task[..., R, C, Async[R]]: ...
        @overload
        def __call__(self, f: ContextAndMore[C, R], /) -> Task[..., R, C, R]: ...
        @overload
        def __call__(self, f: Callable[C, Async[R]], /) -> Task[C, R, C, Async[R]]: ...
        @overload
        def __call__(self, f: Callable[C, R], /) -> Task[C, R, C, R]: ...
        @overload
        def __call__(
            self,
            *,
            batch: int,
            wait: float | None = None,
            name: str | None = None,
            retry: Retry | None = None,
            breaker: Breaker | None = ...,
            **options: Unpack[ScheduledTaskOptions],
        ) -> BatchTaskDecorator: ...
        @overload
        def __call__(
            self,
            *,
            name: str | None = None,
            retry: Retry | None = None,
            isolated: bool = False,
            breaker: Breaker | None = ...,
            signals: Mapping[str, object] | None = None,
            **options: Unpack[ScheduledTaskOptions],
        ) -> TaskDecorator: ...

    Batch = CallableAs[C, [list[T]], V]
    ContextThenBatch = CallableAs[C, [BatchContext, list[T]], V]
    BatchThenContext = CallableAs[C, [list[T], BatchContext], V]

    class BatchTaskDecorator(Protocol):
        """`ol.task(batch=…)`: the function takes a list, `enqueue` takes one item."""

        @overload
        def __call__(
            self, f: Batch[C, T, Async[list[R]]], /
        ) -> Task[[T], R, C, Async[list[R]]]: ...
        @overload
        def __call__(self, f: Batch[C, T, list[R]], /) -> Task[[T], R, C, list[R]]: ...
        @overload
        def __call__(self, f: Batch[C, T, Async[None]], /) -> Task[[T], None, C, Async[None]]: ...
        @overload
        def __call__(self, f: Batch[C, T, None], /) -> Task[[T], None, C, None]: ...
        @overload
        def __call__(self, f: Batch[C, T, V], /) -> Task[[T], Any, C, V]: ...
        @overload
        def __call__(
            self, f: ContextThenBatch[C, T, Async[list[R]]], /
        ) -> Task[[T], R, C, Async[list[R]]]: ...
        @overload
        def __call__(self, f: ContextThenBatch[C, T, list[R]], /) -> Task[[T], R, C, list[R]]: ...
        @overload
        def __call__(
            self, f: ContextThenBatch[C, T, Async[None]], /
        ) -> Task[[T], None, C, Async[None]]: ...
        @overload
        def __call__(self, f: ContextThenBatch[C, T, None], /) -> Task[[T], None, C, None]: ...
        @overload
        def __call__(self, f: ContextThenBatch[C, T, V], /) -> Task[[T], Any, C, V]: ...
        @overload
        def __call__(
            self, f: BatchThenContext[C, T, Async[list[R]]], /
        ) -> Task[[T], R, C, Async[list[R]]]: ...
        @overload
        def __call__(self, f: BatchThenContext[C, T, list[R]], /) -> Task[[T], R, C, list[R]]: ...
        @overload
        def __call__(
            self, f: BatchThenContext[C, T, Async[None]], /
        ) -> Task[[T], None, C, Async[None]]: ...
        @overload
        def __call__(self, f: BatchThenContext[C, T, None], /) -> Task[[T], None, C, None]: ...
        @overload
        def __call__(self, f: BatchThenContext[C, T, V], /) -> Task[[T], Any, C, V]: ...
