"""The Django app: finds the tasks of all apps when Django is ready."""

from __future__ import annotations

import sys

import django
from django.apps import AppConfig, apps


class OutlastConfig(AppConfig):  # type: ignore[misc]
    name = "outlast.integrations.django"
    label = "outlast"
    verbose_name = "Outlast"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django.core import checks
        from django.db.backends.signals import connection_created
        from django.utils.module_loading import autodiscover_modules

        from ...model.errors import InvalidSetting
        from .checks import check_outlast
        from .conf import read_settings
        from .stale_connections import on_connection_created

        checks.register(check_outlast)
        connection_created.connect(
            on_connection_created, dispatch_uid="outlast.integrations.django"
        )
        try:
            autodiscover = read_settings().autodiscover
        except InvalidSetting:
            return  # reported by the check
        if autodiscover:
            autodiscover_modules("tasks")
            self._register_django_tasks()

    def _register_django_tasks(self) -> None:
        """Let this process run tasks that were declared with Django's own decorator."""
        api = sys.modules.get("django_tasks" if django.VERSION < (6, 0) else "django.tasks")
        if api is None:
            return  # no task was declared
        from .client import default_app
        from .task_backend import register_known

        names = {f"{app.name}.tasks" for app in apps.get_app_configs()}
        register_known(default_app(), [sys.modules[name] for name in names & sys.modules.keys()])
