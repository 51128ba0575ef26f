"""A task as callers hold it: still a plain function, and a way to enqueue calls of it."""

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

    # What `enqueue` takes (no context); what a plain call takes, and what that returns.
    P = typing_extensions.ParamSpec("P", default=...)
    C = typing_extensions.ParamSpec("C", default=...)
    V = typing_extensions.TypeVar("V", covariant=True, default=Any)  # noqa: PLC0105
else:
    P, C, V = ParamSpec("P"), ParamSpec("C"), TypeVar("V")


class BoundTask(Generic[P, R]):
    """A task with a job's options said: `extract.using(delay=30).enqueue(doc=7)`."""

    def __init__(
        self, app: Outlast | Databases, definition: TaskDefinition, options: Options, conn: object
    ) -> None:
        self._app = app
        self._definition = definition
        self._options = options
        self._conn = conn

    def using(self, *, conn: Any = None, **options: Unpack[JobOptions]) -> BoundTask[P, R]:
        """Say more: queue, priority, tenant, key (with `unique`, or `debounce` and `max_wait`),
        delay, at, expires, timeout, max_attempts, max_crashes, retry; `after` (with `when`) and
        `flow`: what it waits for and belongs to; `on_success`, `on_dead`, `on_cancel`: calls to be
        enqueued when it ends so; and `conn`, the caller's own open connection or session."""
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
    """What `@ol.task` makes of a function. Calling it still just calls the function.

    `Task[..., Report]` is enough for an annotation: a task whose jobs result in a report.
    """

    if not TYPE_CHECKING:  # before Python 3.13 only checkers know that a type may have a default

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
