"""Which database a command talks to: `--url` and `--schema`, on every command and before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from ..client import Outlast

F = TypeVar("F", bound=Callable[..., Any])

url_option = click.option(
    "--url",
    metavar="URL",
    envvar="OUTLAST_URL",
    show_envvar=True,
    help="sqlite:///file.db or postgresql://…; without one, sqlite:///outlast.db.",
)
campaign_url_option = click.option(
    "--url",
    metavar="URL",
    envvar="OUTLAST_URL",
    show_envvar=True,
    help="sqlite:///file.db or postgresql://…; without one, a temporary SQLite file.",
)
refused_url_option = click.option(
    "--url", metavar="URL", help="Refused: this campaign starts a database of its own."
)
schema_option = click.option(
    "--schema",
    metavar="NAME",
    envvar="OUTLAST_SCHEMA",
    show_envvar=True,
    help="The schema of our tables (on SQLite their prefix); without one, outlast.",
)
blobs_option = click.option(
    "--blobs",
    metavar="URL",
    envvar="OUTLAST_BLOBS",
    show_envvar=True,
    help="file:///a/directory for arguments and results that are too large for a row.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def place(ctx: click.Context) -> tuple[str | None, str | None]:
    """What was said on the command, else before it, never what the environment says: that is for
    `Outlast` itself to read, and an app that names a place in its code does not."""
    return _said(ctx, "url"), _said(ctx, "schema")


def said_here(ctx: click.Context, name: str) -> str | None:
    """What was said on the command itself."""
    on_it = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    return str(ctx.params[name]) if on_it else None


def _said(ctx: click.Context, name: str) -> str | None:
    for each in (ctx, ctx.find_root()):
        if each.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            return str(each.params[name])
    return None


def placed(
    command: F, url_option: Callable[[Callable[..., Any]], Callable[..., Any]] = url_option
) -> F:
    """Gives a command `url` and `schema`: what the user said, or None."""

    @wraps(command)
    def with_place(*args: Any, **kwargs: Any) -> Any:
        kwargs["url"], kwargs["schema"] = place(click.get_current_context())
        return command(*args, **kwargs)

    return url_option(schema_option(with_place))  # type: ignore[return-value]


def connected(command: F) -> F:
    """Gives a command an open `Outlast` as its first argument."""

    @wraps(command)
    def with_outlast(*args: Any, url: object, schema: object, **kwargs: Any) -> Any:
        with opened(*place(click.get_current_context())) as ol:
            return command(ol, *args, **kwargs)

    return url_option(schema_option(with_outlast))  # type: ignore[return-value]


@contextmanager
def opened(url: str | None, schema: str | None, blobs: str | None = None) -> Iterator[Outlast]:
    from ..client import Outlast

    with Outlast(url, schema=schema, blobs=blobs) as ol:
        yield ol
