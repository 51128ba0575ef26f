"""Outlast in Django: `INSTALLED_APPS += ["outlast.integrations.django"]`.

    from outlast.integrations.django import ol, task

    @task(queue="mail")                  # the same as @ol.task
    def welcome(user_id: int) -> None: ...

    with transaction.atomic():
        user.save()
        welcome.enqueue(user_id=user.pk)     # belongs to this transaction

Public names are imported on first use, because Django imports this package before its own apps are
ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...task_decorator import TaskDecorator
    from .client import DjangoOutlast
    from .task_backend import TaskBackend
    from .testing import OutlastTestCase

    ol: DjangoOutlast
    task: TaskDecorator

__all__ = ["DjangoOutlast", "OutlastTestCase", "TaskBackend", "ol", "task"]

_HOMES = {
    "DjangoOutlast": "client",
    "OutlastTestCase": "testing",
    "TaskBackend": "task_backend",
}


def __getattr__(name: str) -> object:
    if name in ("ol", "task"):
        from .client import default_app

        return default_app() if name == "ol" else default_app().task
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
