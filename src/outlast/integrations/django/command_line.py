"""Command line: passes a command of `manage.py outlast` to Outlast's own command line.

The database's URL is passed through the environment: it may hold a password, and other users of a
machine can read a process's arguments.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .client import default_app
from .database_url import database_url

APP = f"{__package__}.worker_app:ol"
DEFAULTS = {
    "worker": {"app": APP},
    "serve": {"app": APP},
    "source": {"app": APP},
    "schedules": {"preview": {"app": APP}},
}
APART = {"demo", "verify", "bench"}  # these write to their database, and need one of their own


def run(arguments: Sequence[str]) -> None:
    from ...cli import outlast

    words = [word for word in arguments if not word.startswith("-")]
    if words and words[0] in APART:
        sys.stderr.write(
            f"Run `outlast {words[0]}` without manage.py: it needs its own database.\n"
        )
        raise SystemExit(2)
    conf = default_app().conf
    os.environ["OUTLAST_URL"] = database_url(conf.alias)
    os.environ["OUTLAST_SCHEMA"] = conf.schema
    _make_importable()
    outlast(list(arguments), prog_name="manage.py outlast", default_map=DEFAULTS)


def _make_importable() -> None:
    """Let the children of a supervisor import the project, whatever the working directory."""
    here = str(Path(sys.path[0] or ".").absolute())
    known = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    if here not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *known])
