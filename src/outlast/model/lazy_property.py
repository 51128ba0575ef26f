"""A value that is worked out when it is first asked for, and then kept.

Like `functools.cached_property`, but without a lock: up to Python 3.11 that one has a lock for the
whole class, and a process that is forked while another thread works out a value waits for ever.
Two threads that ask at once may both work it out; both get the one that was kept first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class lazy(Generic[T]):
    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self._work_out = work_out
        self._name = work_out.__name__
        self.__doc__ = work_out.__doc__

    def __get__(self, instance: object | None, owner: type | None = None) -> T:
        if instance is None:
            return self  # type: ignore[return-value]
        # Found before us from now on, because this class has no __set__.
        value: T = vars(instance).setdefault(self._name, self._work_out(instance))
        return value
