"""Call timer: records the duration of every call to Outlast in the ledger of the campaign."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps

from ..client.client import Outlast
from ..model.errors import OutlastError
from ..store.base import Store
from .checks.checker import Violation
from .ledger import Ledger, LedgerEntry

CLIENT_METHODS = (
    "enqueue",
    "aenqueue",
    "cancel",
    "acancel",
    "retry",
    "retry_all",
    "pause",
    "resume",
    "migrate",
    "job",
    "jobs",
    "counts",
    "acounts",
)
STORE_METHODS = ("run", "arun", "ready")
ANSWER = "answer"


@dataclass
class CallTimer:
    """Wraps Outlast's calls in this process, permanently: the process is a short-lived child."""

    ledger: Ledger
    label: str
    armed: Callable[[], bool]
    caller_errors: tuple[type[Exception], ...] = ()  # errors of the caller's own connection

    def install(self) -> None:
        for kind, names in ((Store, STORE_METHODS), (Outlast, CLIENT_METHODS)):
            for name in names:
                setattr(kind, name, self._timed(getattr(kind, name)))

    def _timed(self, call: Callable[..., object]) -> Callable[..., object]:
        if inspect.iscoroutinefunction(call):

            @wraps(call)
            async def awaited(*args: object, **kwargs: object) -> object:
                with self._measured(_name(call, args)):
                    return await call(*args, **kwargs)

            return awaited

        @wraps(call)
        def timed(*args: object, **kwargs: object) -> object:
            with self._measured(_name(call, args)):
                return call(*args, **kwargs)

        return timed

    @contextmanager
    def _measured(self, name: str) -> Iterator[None]:
        expected: tuple[type[BaseException], ...]
        expected = (OutlastError, asyncio.CancelledError, *self.caller_errors)
        began, outcome = time.monotonic(), ANSWER
        try:
            yield
        except expected as error:
            outcome = type(error).__name__
            raise
        except BaseException as error:
            outcome = f"!{type(error).__name__}: {error}"
            raise
        finally:
            if self.armed():
                self.ledger.write(
                    "called", self.label, 0, [name, time.monotonic() - began, outcome]
                )


def _name(call: Callable[..., object], args: tuple[object, ...]) -> str:
    """The name of a call; an operation has its own."""
    if call.__name__ in ("run", "arun") and len(args) > 1:
        return str(getattr(args[1], "__name__", call.__name__))
    return call.__name__


@dataclass(frozen=True, slots=True)
class TimedCall:
    label: str
    name: str
    seconds: float
    outcome: str


def timed_calls(entries: Iterator[LedgerEntry]) -> list[TimedCall]:
    return [TimedCall(entry.subject, *entry.data) for entry in entries if entry.kind == "called"]


def overdue_calls(made: list[TimedCall], limit: float) -> Iterator[Violation]:
    """Calls that returned too late, or with an error of another library."""
    for call in made:
        if call.seconds > limit:
            message = f"took {call.seconds:.1f} s, the limit is {limit:g} s ({call.outcome})"
            yield Violation("deadline", call.name, "hung", message, call.label)
        if call.outcome.startswith("!"):
            message = f"ended with an error of another library: {call.outcome[1:]}"
            yield Violation("deadline", call.name, "untyped", message, call.label)
