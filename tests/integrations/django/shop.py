"""A Django project in processes of its own: settings, database and `OUTLAST` from a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support import Database

PROJECT = Path(__file__).parent / "project"


class Shop:
    """`manage.py` of the project, on one database."""

    def __init__(self, database: Database, outlast: dict[str, Any] | None = None, **entry: Any):
        self.database = database
        self.outlast = {"schema": database.schema, **(outlast or {})}
        self.entry = {**database_entry(database), **entry}
        self.more_env: dict[str, str] = {}

    @property
    def env(self) -> dict[str, str]:
        return {
            "SHOP_DATABASE": json.dumps(self.entry),
            "SHOP_OUTLAST": json.dumps(self.outlast),
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            "PYTHONWARNINGS": "error",
            **self.more_env,
        }

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, str(PROJECT / "manage.py"), *map(str, arguments)]

    def run(self, *arguments: object, code: int = 0) -> str:
        """Run a command to its end; its output."""
        done = subprocess.run(
            self.command(*arguments),
            env={**os.environ, **self.env},
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        output = done.stdout + done.stderr
        assert done.returncode == code, output
        return output

    def migrated(self) -> Shop:
        if not self.database.is_sqlite:
            with self.database.connect() as connection:
                connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{self.database.schema}"')
        self.run("migrate", "--verbosity", 0)
        return self


def database_entry(database: Database) -> dict[str, Any]:
    """An entry of DATABASES. Tables of Django are in the schema of the test, too."""
    if database.is_sqlite:
        options = {"transaction_mode": "IMMEDIATE"}
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(database.path),
            "OPTIONS": options,
        }
    parts = urlsplit(database.direct_url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": parts.username,
        "PASSWORD": "not-in-argv",
        "HOST": parts.hostname,
        "PORT": parts.port,
        "OPTIONS": {"options": f"-c search_path={database.schema}"},
        "TEST": {"NAME": f"test_{database.schema}"},
    }
