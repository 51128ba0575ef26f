"""Signatures: calls that may be completed, combined and enqueued later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from ...model.errors import InvalidOption, Unsupported
from ...model.flow import Part
from ...model.flow_builder import build_jobs
from ...model.job import Job, NewJob
from ...model.task import Call
from .group_result import GroupResult
from .result import AsyncResult, EagerResult
from .sending import RESULT, call_of, listed, new_job

if TYPE_CHECKING:
    from .app import Celery
    from .tasks import CeleryTask

Result = AsyncResult | GroupResult


class Canvas:
    """Base class of calls that can be applied: a signature, or several together."""

    immutable = False
    ends: str = RESULT  # the argument of a follower: one result, or a list

    def __init__(self, app: Celery | None) -> None:
        self._app = app

    @property
    def app(self) -> Celery:
        if self._app is None:
            from .app import current_app

            return current_app()
        return self._app

    # Implemented by each kind

    def part(self, gets: str | None) -> Part:
        """This call as a part of a flow; `gets` is the source of its first jobs' arguments."""
        raise NotImplementedError

    def results(self, jobs: Iterator[Job], parent: Result | None) -> Result:
        """The results of the jobs, in the order of the flow."""
        raise NotImplementedError

    def given(
        self, args: Iterable[object], kwargs: Mapping[str, object], options: Mapping[str, object]
    ) -> Canvas:
        """A copy with further arguments and options, for the signatures that accept them."""
        raise NotImplementedError

    def apply(
        self,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: object,
    ) -> Any:
        """Run in this process."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        """As Celery writes it in messages."""
        raise NotImplementedError

    def link_error(self, errback: CelerySignature) -> Any:
        raise NotImplementedError

    # Common to all kinds

    def delay(self, *args: object, **kwargs: object) -> Any:
        return self.apply_async(args, kwargs)

    async def adelay(self, *args: object, **kwargs: object) -> Any:
        return await self.aapply_async(args, kwargs)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Iterable[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        **options: object,
    ) -> Any:
        """Enqueue; the options are those of a task's `apply_async`."""
        if self.app.conf.task_always_eager:
            return self.apply(args or (), kwargs, **options)
        whole = self.given(args or (), kwargs or {}, options)
        return whole._results(self.app.ol._enqueue_jobs(whole._jobs()))

    async def aapply_async(
        self,
        args: Iterable[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        **options: object,
    ) -> Any:
        if self.app.conf.task_always_eager:
            return self.apply(args or (), kwargs, **options)
        whole = self.given(args or (), kwargs or {}, options)
        return whole._results(await self.app.ol._aenqueue_jobs(whole._jobs()))

    def _jobs(self) -> list[NewJob]:
        return build_jobs([self.part(None)], limit=self.app.ol.max_args_bytes)

    def _results(self, jobs: list[Job]) -> Result:
        return self.results(iter(jobs), None)

    def on_error(self, errback: CelerySignature) -> Canvas:
        self.link_error(errback)
        return self

    def __or__(self, other: object) -> Canvas:
        from .canvas import joined

        return joined(self, other) if isinstance(other, Canvas) else NotImplemented


class CelerySignature(Canvas):
    """A call that may be completed and enqueued later: `add.s(2)`."""

    def __init__(
        self,
        task: str,
        args: Iterable[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        app: Celery | None = None,
    ) -> None:
        super().__init__(app)
        self.task = task
        self.args: tuple[Any, ...] = tuple(args or ())
        self.kwargs: dict[str, Any] = dict(kwargs or {})
        self.options = dict(options or {})
        self.immutable = immutable

    def clone(
        self,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: object,
    ) -> CelerySignature:
        """A copy; new arguments come first, unless the signature is immutable."""
        made = copy(self)
        made.options = {**self.options, **options}
        if not self.immutable:
            made.args = (*args, *self.args)
            made.kwargs = {**self.kwargs, **(kwargs or {})}
        return made

    partial = clone

    def set(self, immutable: bool | None = None, **options: object) -> CelerySignature:
        self.options |= options
        if immutable is not None:
            self.immutable = immutable
        return self

    def link(self, callback: CelerySignature) -> CelerySignature:
        """Add a call that follows a success, with its result."""
        self.options["link"] = [*listed(self.options.get("link")), callback]
        return callback

    def link_error(self, errback: CelerySignature) -> CelerySignature:
        self.options["link_error"] = [*listed(self.options.get("link_error")), errback]
        return errback

    def given(
        self, args: Iterable[object], kwargs: Mapping[str, object], options: Any
    ) -> CelerySignature:
        return self.clone(args, kwargs, **options)

    def call(self, gets: str | None = None, **stored: Any) -> Call:
        gets = None if self.immutable else gets
        return call_of(
            self.app, self.task, self.args, self.kwargs, self.options, gets=gets, **stored
        )

    def part(self, gets: str | None) -> Part:
        if self.options.get("task_id"):
            raise Unsupported(
                reason="task_id=… is for single calls: a flow assigns ids to its jobs"
            )
        return self.call(gets)

    def _jobs(self) -> list[NewJob]:
        return [new_job(self.app, self.call(), self.options.get("task_id"))]

    def results(self, jobs: Iterator[Job], parent: Result | None) -> Result:
        id = self.options.get("task_id") or next(jobs).id
        return AsyncResult(id, app=self.app, parent=parent)

    def apply(self, args: Iterable[Any] = (), kwargs: Any = None, **options: Any) -> EagerResult:
        whole = self.clone(args, kwargs, **options)
        return self._known_task().apply(whole.args, whole.kwargs, **whole.options)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Call the task's function in this process."""
        whole = self.clone(args, kwargs)
        return self._known_task()(*whole.args, **whole.kwargs)

    def _known_task(self) -> CeleryTask:
        if (task := self.app.tasks.get(self.task)) is None:
            raise InvalidOption(option="task", reason=f"{self.task!r} is not known in this process")
        return task

    def as_dict(self) -> dict[str, Any]:
        """As Celery writes it in messages."""
        options = dict(self.options)
        for name in ("link", "link_error"):
            if name in options:
                options[name] = [one.as_dict() for one in listed(options[name])]
        return {
            "task": self.task, "args": list(self.args), "kwargs": self.kwargs, "options": options,
            "subtask_type": None, "immutable": self.immutable,
        }  # fmt: skip

    def __repr__(self) -> str:
        given = [repr(one) for one in self.args]
        given += [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"{self.task}({', '.join(given)})"
