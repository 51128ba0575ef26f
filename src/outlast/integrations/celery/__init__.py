"""Celery's interface on Outlast: a Celery app migrates by changing its import.

    from celery import Celery, chain, group, shared_task
    from outlast.integrations.celery import Celery, chain, group, shared_task

app           `Celery`: configuration, tasks, migration; `app.ol` is its `Outlast`
tasks         `delay`, `apply_async`, `s`, `retry`, `request`
signatures    calls for later; `canvas`: chains, groups and chords as flows
sending       a call and its options as a job; `handler`: the job as a call of the task
result        `AsyncResult`; `states`: a job's state in Celery's terms
beat          the beat schedule as schedules
drain         messages of a running Celery as jobs, each once

`schedules`, `exceptions`, `result`, `states` and `utils.log` have the names of Celery's modules. It
needs neither Celery nor a broker.
"""

from __future__ import annotations

from typing import Any

from ...bridges.celery import CeleryQueue
from . import exceptions, result, schedules, states
from .app import Celery, current_app, shared_task
from .canvas import CeleryChain, CeleryChord, CeleryGroup, read_signature
from .group_result import GroupResult
from .request import running_task
from .result import AsyncResult
from .schedules import crontab
from .signatures import CelerySignature
from .tasks import CeleryTask

Task = CeleryTask
Signature = CelerySignature
chain, chord, group = CeleryChain, CeleryChord, CeleryGroup

__all__ = [
    "AsyncResult",
    "Celery",
    "CeleryQueue",
    "GroupResult",
    "Signature",
    "Task",
    "chain",
    "chord",
    "crontab",
    "current_app",
    "exceptions",
    "group",
    "result",
    "schedules",
    "shared_task",
    "signature",
    "states",
]

_INSTEAD = {
    "bootsteps": "see app.ol.worker(…)",
    "chunks": "use group(…), or a batch task: @app.ol.task(batch=…)",
    "maybe_signature": "use signature(…)",
    "signals": "use the hooks of a base class (on_success, on_failure, …), or app.ol.events(…)",
    "xmap": "use group(…)",
    "xstarmap": "use group(…)",
}


def signature(task: Any, args: Any = None, kwargs: Any = None, **given: Any) -> Any:
    """A signature of a task by its name, or from a dictionary."""
    if isinstance(task, dict):
        return read_signature(task)
    return current_app().signature(str(task), args, kwargs, **given)


def __getattr__(name: str) -> Any:
    if name == "current_task":
        return running_task()
    if name in _INSTEAD:
        raise ImportError(f"{name} is not in {__name__}: {_INSTEAD[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
