"""System checks: `manage.py check` and every other command report mistakes in the settings."""

from __future__ import annotations

from django.core.checks import CheckMessage, Error, Warning

from ...model.errors import InvalidSetting
from .conf import read_settings
from .database_url import refusal


def check_outlast(**_: object) -> list[CheckMessage]:
    from django.db import connections

    try:
        conf = read_settings()
    except InvalidSetting as error:
        return [Error(str(error), hint="See settings.OUTLAST.", id="outlast.E001")]
    alias = conf.alias
    if (reason := refusal(alias)) is not None:
        return [Error(f"{reason}.", id="outlast.E002")]
    connection = connections[alias]
    options = connection.settings_dict.get("OPTIONS") or {}
    in_a_file = connection.vendor == "sqlite" and not connection.is_in_memory_db()
    if in_a_file and options.get("transaction_mode") != "IMMEDIATE":
        return [
            Warning(
                f"DATABASES[{alias!r}] begins its transactions as readers: one that reads and then"
                " enqueues fails with 'database is locked' if a worker writes in between.",
                hint="Set OPTIONS['transaction_mode'] = 'IMMEDIATE'.",
                id="outlast.W001",
            )
        ]
    return []
