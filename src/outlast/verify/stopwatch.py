"""How long every call takes, told to the ledger by those who make it."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

from ..client import Outlast
from ..model.errors import OutlastError
from ..store.base import Store
from .checker import Violation
from .ledger import Entry, Ledger

VERBS = ("enqueue", "aenqueue", "cancel", "acancel", "retry", "retry_all", "pause", "resume",
         "migrate", "job", "jobs", "counts", "acounts")  # fmt: skip
OPERATIONS = ("run", "arun", "ready")
ANSWER = "answer"


@dataclass
class Stopwatch:
    """Wraps what callers call, in this process, for good: it is not meant to live on."""

    ledger: Ledger
    label: str
    armed: Callable[[], bool]
    theirs: tuple[type[Exception], ...] = ()  # errors of a connection that is the caller's own

    def install(self) -> None:
        for kind, names in ((Store, OPERATIONS), (Outlast, VERBS)):
            for name in names:
                setattr(kind, name, self._timed(getattr(kind, name)))

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(call):

            @wraps(call)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with self._measured(_name(call, args)):
                    return await call(*args, **kwargs)

            return awaited

        @wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self._measured(_name(call, args)):
                return call(*args, **kwargs)

        return timed

    @contextmanager
    def _measured(self, name: str) -> Iterator[None]:
        expected: tuple[type[BaseException], ...]
        expected = (OutlastError, asyncio.CancelledError, *self.theirs)
        began, told = time.monotonic(), ANSWER
        try:
            yield
        except expected as error:
            told = type(error).__name__
            raise
        except BaseException as error:
            told = f"!{type(error).__name__}: {error}"
            raise
        finally:
            if self.armed():
                self.ledger.write("called", self.label, 0, [name, time.monotonic() - began, told])


def _name(call: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """An operation is called by its own name."""
    if call.__name__ in ("run", "arun") and len(args) > 1:
        return str(getattr(args[1], "__name__", call.__name__))
    return call.__name__


@dataclass(frozen=True, slots=True)
class Called:
    label: str
    name: str
    seconds: float
    told: str


def calls(entries: Iterator[Entry]) -> list[Called]:
    return [Called(entry.about, *entry.said) for entry in entries if entry.what == "called"]


def overdue(called: list[Called], longest: float) -> Iterator[Violation]:
    """Calls that came back too late, or with an error that is none of ours."""
    for call in called:
        if call.seconds > longest:
            told = f"took {call.seconds:.1f} s, at most {longest:g} s were promised ({call.told})"
            yield Violation("deadline", call.name, "hung", told, call.label)
        if call.told.startswith("!"):
            told = f"ended with an error of somebody else's: {call.told[1:]}"
            yield Violation("deadline", call.name, "untyped", told, call.label)
