"""Options of a remote worker: `outlast worker --server`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..model.errors import InvalidOption

if TYPE_CHECKING:
    from ..client.client import Outlast
    from ..remote import RemoteWorker

F = TypeVar("F", bound=Callable[..., object])

log = logging.getLogger("outlast.worker")

_OPTIONS = (
    click.option(
        "--server",
        metavar="URL",
        envvar="OUTLAST_SERVER",
        show_envvar=True,
        help="Run jobs of the service at this URL, without a database connection.",
    ),
    click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        envvar="OUTLAST_TOKEN_FILE",
        show_envvar=True,
        help="File with the token for the server; it needs the scope work.",
    ),
    click.option(
        "--spool",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        envvar="OUTLAST_SPOOL",
        show_envvar=True,
        help="Stores outcomes until the server has them; default: in the user's state folder.",
    ),
)


def remote_options(command: F) -> F:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def remote_worker(
    app: Outlast, queues: list[str] | None, remote: dict[str, Any], settings: dict[str, Any]
) -> RemoteWorker:
    """A worker that runs a server's jobs with this app's tasks."""
    from ..remote import RemoteWorker

    logging.getLogger("httpx").setLevel(logging.WARNING)  # INFO has a line for every request
    token = _token(remote["token_file"])
    return RemoteWorker(remote["server"], token, app, queues, spool=remote["spool"], **settings)


def _token(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        mode, text = file.stat().st_mode, file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}"
        raise InvalidOption(option="token-file", reason=reason) from None
    if not text or len(text.split()) > 1:
        raise InvalidOption(option="token-file", reason="must contain one token and nothing else")
    if mode & 0o077:
        log.warning("token file %s is readable by other users: run chmod 600 on it", file)
    return text
