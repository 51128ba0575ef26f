"""Chains, groups and chords, stored as flows.

    chain(a.s(1), b.s(2))          b gets a's result before its own arguments
    group(a.s(1), a.s(2)) | b.s()  b gets the list of their results: a chord

All jobs of one `apply_async` are inserted together or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from ...model.errors import InvalidOption
from ...model.flow import Chain, Group, Part
from ...model.job import Job
from .group_result import GroupResult
from .sending import HONOURED, RESULT, RESULTS, listed
from .signatures import Canvas, CelerySignature, Result

if TYPE_CHECKING:
    from .app import Celery


class CeleryChain(Canvas):
    """`chain(a.s(1), b.s(2))`, or `a.s(1) | b.s(2)`."""

    def __init__(self, *tasks: object, app: Celery | None = None) -> None:
        self.tasks = _canvases(tasks)
        super().__init__(app or (self.tasks[0]._app if self.tasks else None))
        if not self.tasks:
            raise InvalidOption(option="chain", reason="needs a signature")
        self.ends = self.tasks[-1].ends

    def part(self, gets: str | None) -> Part:
        parts = []
        for task in self.tasks:
            parts.append(task.part(gets))
            gets = task.ends
        return Chain(*parts)

    def results(self, jobs: Iterator[Job], parent: Result | None) -> Result:
        for task in self.tasks:
            parent = task.results(jobs, parent)
        assert parent is not None
        return parent

    def given(
        self, args: Iterable[object], kwargs: Mapping[str, object], options: Mapping[str, object]
    ) -> CeleryChain:
        """A copy whose first call gets them, as in Celery; errbacks apply to all calls."""
        options = dict(options)
        errbacks = listed(options.pop("link_error", None))
        made = copy(self)
        made.tasks = [self.tasks[0].given(args, kwargs, options)]
        made.tasks += [task.given((), {}, {}) for task in self.tasks[1:]]
        for errback in errbacks:
            made.link_error(errback)
        return made

    def link_error(self, errback: CelerySignature) -> CelerySignature:
        for task in self.tasks:
            task.link_error(errback)
        return errback

    def apply(
        self,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: object,
    ) -> Any:
        result, given = None, tuple(args)
        for number, task in enumerate(self.tasks):
            result = task.apply(given, kwargs if number == 0 else None, **options)
            given, options = (result.get(),), {}
        return result

    def as_dict(self) -> dict[str, Any]:
        return _compound("chain", tasks=[one.as_dict() for one in self.tasks])

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.tasks))


class CeleryGroup(Canvas):
    """`group(a.s(1), a.s(2))`, or a group of an iterable of signatures."""

    ends = RESULTS

    def __init__(self, *tasks: Any, app: Celery | None = None) -> None:
        if len(tasks) == 1 and not isinstance(tasks[0], Canvas):
            tasks = tuple(tasks[0])
        self.tasks = _canvases(tasks)
        super().__init__(app or (self.tasks[0]._app if self.tasks else None))

    def part(self, gets: str | None) -> Part:
        if not self.tasks and gets is not None:
            raise InvalidOption(option="group", reason="cannot be empty in the middle of a chain")
        return Group(*(task.part(gets) for task in self.tasks))

    def results(self, jobs: Iterator[Job], parent: Result | None) -> GroupResult:
        made = [task.results(jobs, parent) for task in self.tasks]
        return GroupResult(None, made, parent)

    def _results(self, jobs: list[Job]) -> GroupResult:
        made = self.results(iter(jobs), None)
        made.id = jobs[0].flow if jobs else None
        return made

    def given(
        self, args: Iterable[object], kwargs: Mapping[str, object], options: Mapping[str, object]
    ) -> CeleryGroup:
        made, args = copy(self), tuple(args)
        made.tasks = [task.given(args, kwargs, options) for task in self.tasks]
        return made

    def link_error(self, errback: CelerySignature) -> CelerySignature:
        for task in self.tasks:
            task.link_error(errback)
        return errback

    def apply(
        self,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: object,
    ) -> GroupResult:
        args = tuple(args)
        made = [task.apply(args, kwargs, **options) for task in self.tasks]
        return GroupResult(None, made)

    def as_dict(self) -> dict[str, Any]:
        return _compound("group", tasks=[one.as_dict() for one in self.tasks])

    def __repr__(self) -> str:
        return f"group({self.tasks!r})"


class CeleryChord(Canvas):
    """`chord([a.s(1), a.s(2)])(b.s())`: the body gets the list of the header's results. A failed
    job of the header also fails the body."""

    def __init__(self, header: object, body: object = None, app: Celery | None = None) -> None:
        self.header = header if isinstance(header, CeleryGroup) else CeleryGroup(*_one(header))
        self.body: Canvas | None = None if body is None else _canvas(body)
        super().__init__(app or self.header._app or (self.body._app if self.body else None))
        self.ends = self.body.ends if self.body is not None else RESULT

    def __call__(self, body: object = None, *args: Any, **kwargs: Any) -> Any:
        whole = self if body is None else CeleryChord(self.header, body, app=self._app)
        return whole.apply_async(args, kwargs)

    def part(self, gets: str | None) -> Part:
        body = self._body()
        if not self.header.tasks and gets is None:
            return body.given(([],), {}, {}).part(None)
        return Chain(self.header.part(gets), body.part(RESULTS))

    def results(self, jobs: Iterator[Job], parent: Result | None) -> Result:
        header = self.header.results(jobs, parent)
        return self._body().results(jobs, header)

    def given(
        self, args: Iterable[object], kwargs: Mapping[str, object], options: Mapping[str, object]
    ) -> CeleryChord:
        if options:
            reason = "of a chord are set on its signatures: body.set(queue=…)"
            raise InvalidOption(option=next(iter(options)), reason=reason)
        made = copy(self)
        made.header = self.header.given(args, kwargs, {})
        return made

    def link_error(self, errback: CelerySignature) -> CelerySignature:
        self.header.link_error(errback)
        self._body().link_error(errback)
        return errback

    def apply(self, args: Iterable[Any] = (), kwargs: Any = None, **options: Any) -> Any:
        return self._body().apply((self.header.apply(args, kwargs).get(),), **options)

    def as_dict(self) -> dict[str, Any]:
        header = [one.as_dict() for one in self.header.tasks]
        return _compound("chord", header=header, body=self._body().as_dict())

    def _body(self) -> Canvas:
        if self.body is None:
            raise InvalidOption(option="chord", reason="needs a body: chord(header)(body)")
        return self.body

    def __repr__(self) -> str:
        return f"chord({self.header!r}, {self.body!r})"


def read_signature(given: Mapping[str, Any], app: Celery | None = None) -> Canvas:
    """A signature from a dictionary written by `as_dict`, or by Celery in a message. Unsupported
    options are ignored."""
    kind, kwargs = given.get("subtask_type"), given.get("kwargs") or {}
    if kind in ("chain", "group"):
        tasks = [_inner(one, app) for one in kwargs["tasks"]]
        made = CeleryChain if kind == "chain" else CeleryGroup
        return made(*tasks, app=app)
    if kind == "chord":
        header, body = kwargs["header"], _inner(kwargs["body"], app)
        tasks = header["kwargs"]["tasks"] if isinstance(header, Mapping) else header
        return CeleryChord([_inner(one, app) for one in tasks], body, app=app)
    if kind is not None:
        raise ValueError(f"signatures of the type {kind!r:.80} cannot be read")
    stored = given.get("options") or {}
    options = {name: stored[name] for name in HONOURED if name in stored}
    for name in ("link", "link_error"):
        if options.get(name):
            options[name] = [read_signature(one, app) for one in listed(options[name])]
    return CelerySignature(
        given["task"],
        given.get("args"),
        kwargs,
        options,
        immutable=bool(given.get("immutable")),
        app=app,
    )


def _inner(given: Mapping[str, object], app: Celery | None) -> Canvas:
    """A signature within a flow, without an id: the flow assigns ids to its jobs."""
    made = read_signature(given, app)
    if isinstance(made, CelerySignature):
        made.options.pop("task_id", None)
    return made


def joined(first: Canvas, second: Canvas) -> Canvas:
    """`first | second`."""
    if isinstance(first, CeleryGroup):
        return CeleryChord(first, second, app=first._app)
    before = first.tasks if isinstance(first, CeleryChain) else [first]
    after = second.tasks if isinstance(second, CeleryChain) else [second]
    return CeleryChain(*before, *after, app=first._app)


def _compound(kind: str, **kwargs: Any) -> dict[str, Any]:
    return {
        "task": f"celery.{kind}", "args": [], "kwargs": kwargs, "options": {}, "subtask_type": kind,
        "immutable": False,
    }  # fmt: skip


def _canvases(tasks: Iterable[object]) -> list[Any]:
    return [_canvas(one) for one in tasks]


def _canvas(one: Any) -> Any:
    if isinstance(one, Mapping):
        return read_signature(one)
    if not isinstance(one, Canvas):
        raise InvalidOption(option="signature", reason=f"must be task.s(…), not {one!r:.80}")
    return one


def _one(header: Any) -> tuple[Any, ...]:
    return (header,) if isinstance(header, Canvas) else tuple(header)
