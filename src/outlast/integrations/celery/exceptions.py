"""`celery.exceptions`, as far as tasks and callers use them.

CeleryError
├── TaskPredicate            raised by a task, about itself
│   ├── Retry                by `self.retry(…)`
│   ├── Ignore
│   └── Reject
├── MaxRetriesExceededError
├── TaskRevokedError         by `result.get()`: the job was cancelled, or expired
└── ChordError               by `result.get()`: a prerequisite has failed
TimeoutError                 the built-in one, by `result.get(timeout=…)`
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

TimeoutError = builtins.TimeoutError

_INSTEAD = {
    "SoftTimeLimitExceeded": "there are no soft limits: give the task time_limit=…, and check"
    " self.request.outlast.cancelled in its loops",
    "TimeLimitExceeded": "a job whose time is over is dead with the error type TimedOut",
    "WorkerLostError": "a job whose worker is lost runs again; see max_crashes",
    "NotRegistered": "a job of an unknown task waits until a worker knows the task",
}


class CeleryError(Exception):
    """Base class of these errors."""


class TaskPredicate(CeleryError):
    """Raised by a task, about itself."""


class RetryRequested(TaskPredicate):
    """Raised by `self.retry(…)`: the attempt ends, and the job is due again at `when`."""

    def __init__(
        self,
        message: str | None = None,
        exc: BaseException | None = None,
        when: float | datetime | None = None,
    ) -> None:
        self.exc = exc
        self.when = when
        super().__init__(message or (repr(exc) if exc is not None else "retry"))


class Ignore(TaskPredicate):
    """Raise in a task: it ends without a result."""


class Reject(TaskPredicate):
    """Raise in a task: its job is dead, or ready again with `requeue`."""

    def __init__(self, reason: object = None, requeue: bool = False) -> None:
        self.reason = reason
        self.requeue = requeue
        super().__init__(reason, requeue)


class MaxRetriesExceededError(CeleryError):
    """A task requested more retries than allowed."""


class TaskRevokedError(CeleryError):
    """The awaited job was cancelled, or expired before it ran."""


class ChordError(CeleryError):
    """A prerequisite of the awaited job has failed."""


class TaskFailed(CeleryError):
    """The awaited job failed with an error whose class this process has not imported."""


Retry = RetryRequested


def rebuilt(error: object) -> Exception:
    """The exception of a dead job, with its original class if this process has imported it, and
    only the message as its argument."""
    facts: Mapping[str, object] = error if isinstance(error, Mapping) else {}
    name, message = str(facts.get("type", "")), str(facts.get("message", ""))
    if name == "TimedOut":
        return TimeoutError(message)
    if name.endswith("PrerequisiteFailed"):
        return ChordError(message)
    kind = _known_class(name)
    if kind is not None:
        try:
            return kind(message)
        except Exception:  # noqa: S110 - its constructor has other parameters
            pass
    return TaskFailed(f"{name}: {message}" if name else message)


def _known_class(name: str) -> type[Exception] | None:
    """A class by its name, if loaded; never imported, because the name comes from a row."""
    module, _, path = name.rpartition(".")
    found = getattr(sys.modules.get(module or "builtins"), path, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def __getattr__(name: str) -> Any:
    if name in _INSTEAD:
        raise ImportError(f"{name} is not in outlast.integrations.celery: {_INSTEAD[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
