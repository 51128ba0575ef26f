"""`self.request`: the job of a running task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...worker.context import Context

if TYPE_CHECKING:
    from .tasks import CeleryTask


@dataclass
class TaskRequest:
    """The job of a running task. `outlast` is the handler's `Context`: progress, steps, follow-up
    jobs, completion in your own transaction; None outside of a worker."""

    id: str | None = None
    task: str | None = None
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    retries: int = 0
    is_eager: bool = False
    called_directly: bool = True
    hostname: str | None = None
    delivery_info: dict[str, Any] = field(default_factory=dict)
    outlast: Context | None = field(default=None, repr=False)

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(sorted(self.__dataclass_fields__))
        raise AttributeError(f"self.request has no {name!r}: it has {known}")


_running: ContextVar[tuple[CeleryTask, TaskRequest] | None] = ContextVar(
    "outlast_celery_task", default=None
)


@contextmanager
def running(task: CeleryTask, request: TaskRequest) -> Iterator[None]:
    """Set the request of a task for the duration of this context."""
    token = _running.set((task, request))
    try:
        yield
    finally:
        _running.reset(token)


def current_request(task: CeleryTask) -> TaskRequest:
    """The request of a task; an empty one for a task called as a plain function."""
    found = _running.get()
    return found[1] if found is not None and found[0] is task else TaskRequest()


def running_task() -> CeleryTask | None:
    found = _running.get()
    return None if found is None else found[0]
