"""Django's tasks: `django.tasks` of Django 6, else the package `django-tasks`, its backport."""

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
    """Change a result in place. It is frozen for callers; backends are meant to do it so."""
    for name, value in values.items():
        object.__setattr__(result, name, value)
