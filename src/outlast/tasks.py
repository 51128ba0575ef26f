"""A task as callers hold it: still a plain function, and a way to enqueue calls of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import WRAPPER_UPDATES, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from .model.job import Job
from .model.options import Options
from .model.task import Call, Definition
from .model.task_function import has_home

if TYPE_CHECKING:
    from .client import Outlast

P = ParamSpec("P")
R = TypeVar("R")


class Prepared:
    """A task with a job's options said: `extract.using(delay=30).enqueue(doc=7)`.

    Arguments are the function's own, without the context, which no type can express: they are
    checked when they are given.
    """

    def __init__(self, app: Outlast, definition: Definition, options: Options, conn: Any) -> None:
        self._app = app
        self._definition = definition
        self._options = options
        self._conn = conn

    def using(self, *, conn: Any = None, **options: Any) -> Prepared:
        """Say more: queue, priority, tenant, key, delay, at, expires, timeout, max_attempts,
        max_crashes, retry; `after` (with `when`) and `flow`: what it waits for and belongs to;
        `on_success`, `on_dead`, `on_cancel`: calls to be enqueued when it ends so; and `conn`, the
        caller's own open connection or session."""
        return Prepared(
            self._app,
            self._definition,
            Options.of(options, also=("conn",)).over(self._options),
            self._conn if conn is None else conn,
        )

    def job(self, *args: Any, **kwargs: Any) -> Call:
        """A call to be enqueued together with others: `ol.enqueue(a.job(…), b.job(…))`."""
        return Call(self._definition, self._options, args, kwargs)

    def enqueue(self, *args: Any, **kwargs: Any) -> Job:
        """Enqueue one call. It is durable when this returns (or when `conn` commits)."""
        return self._app.enqueue(self.job(*args, **kwargs), conn=self._conn)[0]

    async def aenqueue(self, *args: Any, **kwargs: Any) -> Job:
        return (await self._app.aenqueue(self.job(*args, **kwargs), conn=self._conn))[0]


class Task(Prepared, Generic[P, R]):
    """What `@ol.task` makes of a function. Calling it still just calls the function."""

    def __init__(self, app: Outlast, definition: Definition) -> None:
        super().__init__(app, definition, Options(), None)
        self.name = definition.name
        # Not the attributes of a callable object, which may have our names.
        kept = WRAPPER_UPDATES if has_home(definition.function) else ()
        update_wrapper(self, definition.function, updated=kept)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._definition.function(*args, **kwargs)  # type: ignore[no-any-return]

    @property
    def function(self) -> Callable[P, R]:
        return self._definition.function

    def __repr__(self) -> str:
        return f"<task {self.name}>"
