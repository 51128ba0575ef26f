"""Tasks as callers see them: callable as plain functions, and able to enqueue calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import WRAPPER_UPDATES, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast

from .model.job import Job, R
from .model.options import JobOptions, Options
from .model.task import Call, TaskDefinition
from .model.task_function import is_importable

if TYPE_CHECKING:
    import typing_extensions

    from .client.client import Outlast
    from .client.databases import Databases

    # The parameters of `enqueue` (no context), and the parameters and result of a plain call.
    P = typing_extensions.ParamSpec("P", default=...)
    C = typing_extensions.ParamSpec("C", default=...)
    V = typing_extensions.TypeVar("V", covariant=True, default=Any)  # noqa: PLC0105
else:
    P, C, V = ParamSpec("P"), ParamSpec("C"), TypeVar("V")


class BoundTask(Generic[P, R]):
    """A task with options of a job: `extract.using(delay=30).enqueue(doc=7)`."""

    def __init__(
        self, app: Outlast | Databases, definition: TaskDefinition, options: Options, conn: object
    ) -> None:
        self._app = app
        self._definition = definition
        self._options = options
        self._conn = conn

    def using(self, *, conn: Any = None, **options: Unpack[JobOptions]) -> BoundTask[P, R]:
        """Add options: queue, priority, tenant, key (with `unique`, or `debounce` and `max_wait`),
        delay, at, expires, timeout, max_attempts, max_crashes, retry; `after` (with `when`) and
        `flow`: its prerequisites and its flow; `on_success`, `on_dead`, `on_cancel`: calls that
        its end enqueues; and `conn`, the caller's own open connection or session."""
        return BoundTask(
            self._app,
            self._definition,
            Options.of(options, also=("conn",), owner="Task.using()").over(self._options),
            self._conn if conn is None else conn,
        )

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call to be enqueued together with others: `ol.enqueue(a.job(…), b.job(…))`."""
        return Call(self._definition, self._options, args, kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Enqueue one call. It is durable when this returns (or when `conn` commits)."""
        made: list[Job[R]] = self._app.enqueue(self.job(*args, **kwargs), conn=self._conn)
        return made[0]

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        made: list[Job[R]] = await self._app.aenqueue(self.job(*args, **kwargs), conn=self._conn)
        return made[0]


class Task(BoundTask[P, R], Generic[P, R, C, V]):
    """The task that `@ol.task` makes from a function. Calling it still calls the function.

    `Task[..., Report]` is enough for an annotation: a task whose jobs return a report.
    """

    if not TYPE_CHECKING:  # before Python 3.13 only type checkers know defaults of type parameters

        def __class_getitem__(cls, types: object) -> Any:
            types = types if isinstance(types, tuple) else (types,)
            return super().__class_getitem__((*types, ..., object) if len(types) == 2 else types)

    def __init__(self, app: Outlast | Databases, definition: TaskDefinition) -> None:
        super().__init__(app, definition, Options(), None)
        self.name = definition.name
        # Not the attributes of a callable object, which may have our names.
        kept = WRAPPER_UPDATES if is_importable(definition.function) else ()
        update_wrapper(self, definition.function, updated=kept)

    def __call__(self, *args: C.args, **kwargs: C.kwargs) -> V:
        return cast("V", self._definition.function(*args, **kwargs))

    @property
    def function(self) -> Callable[C, V]:
        return self._definition.function

    def __repr__(self) -> str:
        return f"<task {self.name}>"
