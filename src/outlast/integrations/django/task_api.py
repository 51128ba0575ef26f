"""Django's task API: `django.tasks` of Django 6, else its backport, the package `django-tasks`."""

from __future__ import annotations

import django

BACKPORT = django.VERSION < (6, 0)

if BACKPORT:
    from django_tasks import signals
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.utils import normalize_json
else:
    from django.tasks import signals
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.utils.json import normalize_json

__all__ = [
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "assign",
    "normalize_json",
    "signals",
]


def assign(result: object, **values: object) -> None:
    """Change a result in place: it is frozen for callers, but not for backends."""
    for name, value in values.items():
        object.__setattr__(result, name, value)
