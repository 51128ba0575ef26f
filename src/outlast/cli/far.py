"""Carrying out jobs for a server: what `outlast worker --server` needs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..model.errors import InvalidOption

if TYPE_CHECKING:
    from ..client import Outlast
    from ..remote import RemoteWorker

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("outlast.worker")

_OPTIONS = (
    click.option(
        "--server",
        metavar="URL",
        envvar="OUTLAST_SERVER",
        show_envvar=True,
        help="Work for the service at this address, without a database of one's own.",
    ),
    click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        envvar="OUTLAST_TOKEN_FILE",
        show_envvar=True,
        help="Holds the token to show to the server; it needs the scope work.",
    ),
    click.option(
        "--spool",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        envvar="OUTLAST_SPOOL",
        show_envvar=True,
        help="Keeps what handlers said until the server has it; else in the user's state folder.",
    ),
)


def remote_options(command: F) -> F:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def remote_worker(
    app: Outlast, queues: list[str] | None, far: dict[str, Any], settings: dict[str, Any]
) -> RemoteWorker:
    """A worker of this app for a server."""
    from ..remote import RemoteWorker

    logging.getLogger("httpx").setLevel(logging.WARNING)  # which tells of every call
    token = _token(far["token_file"])
    return RemoteWorker(far["server"], token, app, queues, spool=far["spool"], **settings)


def _token(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        mode, text = file.stat().st_mode, file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}"
        raise InvalidOption(option="token-file", reason=reason) from None
    if not text or len(text.split()) > 1:
        raise InvalidOption(option="token-file", reason="must hold one token and nothing else")
    if mode & 0o077:
        log.warning("others can read %s: it should be yours alone (chmod 600)", file)
    return text
