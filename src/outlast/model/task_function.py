"""Checks of callables that should be tasks: at declaration, not at run time.

    def, async def, lambda, bound method, functools.partial, object with __call__    yes
    generator function, sync or async; class; positional-only or *args parameters    no

This imports nothing and resolves no annotations: types may be defined later.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from .errors import InvalidOption

Function = Callable[..., object]


def task_name(function: object) -> str:
    """The default name of a task."""
    if not callable(function):
        raise _no_function(function)
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        kind = type(function).__name__
        raise InvalidOption(option="name", reason=f"must be given: {kind} objects have no __name__")
    return name


def check_function(task: str, function: object) -> None:
    if isinstance(function, type):
        raise _refused(f"the task {task} is a class: declare a function that uses it")
    if not callable(function):
        raise _no_function(function)
    underlying = _underlying_function(function)
    if inspect.isgeneratorfunction(underlying) or inspect.isasyncgenfunction(underlying):
        raise _refused(
            f"the task {task} is a generator function (it has `yield`), and a call of it runs"
            " nothing: return the result, and use ctx.progress(…) or ctx.enqueue(…) for"
            " intermediate results"
        )


def is_async(function: Function) -> bool:
    return inspect.iscoroutinefunction(_underlying_function(function))


def is_importable(function: Function) -> bool:
    """Whether another process can import it by module and name."""
    return inspect.isroutine(function)


def same_function(one: Function, other: Function) -> bool:
    """Whether two functions are the same: a re-imported module (a reload, __main__) is not a
    clash."""
    if one is other or not (is_importable(one) and is_importable(other)):
        return one is other
    return one.__qualname__ == other.__qualname__ and _source(one) == _source(other)


def namespace(function: Function) -> dict[str, object]:
    """The names that its annotations may refer to."""
    found = getattr(inspect.unwrap(_underlying_function(function)), "__globals__", {})
    return dict(found) if not isinstance(found, dict) else found


def _underlying_function(function: object) -> Any:
    """The function whose body runs."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return type(function).__call__


def _source(function: Function) -> str | None:
    return inspect.getsourcefile(inspect.unwrap(function))


def _no_function(given: object) -> InvalidOption:
    named = ": its name is given with name=…" if isinstance(given, str) else ""
    return _refused(f"a task must be a function, not {given!r:.80}{named}")


def _refused(reason: str) -> InvalidOption:
    return InvalidOption(f"{reason[0].upper()}{reason[1:]}.", option="task", reason=reason)
