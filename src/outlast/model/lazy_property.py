"""A property computed on first access and then cached.

Like `functools.cached_property`, but without a lock: up to Python 3.11 that one has a lock for the
whole class, and a process forked while another thread holds it waits for ever. Concurrent threads
may both compute the value; both get the one cached first.
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
        # Without __set__, the instance's attribute takes precedence from now on.
        value: T = vars(instance).setdefault(self._name, self._work_out(instance))
        return value
