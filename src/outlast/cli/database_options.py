"""Database options: `--url` and `--schema`, accepted before and after every command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from ..client.client import Outlast

F = TypeVar("F", bound=Callable[..., Any])

url_option = click.option(
    "--url",
    metavar="URL",
    envvar="OUTLAST_URL",
    show_envvar=True,
    help="sqlite:///file.db or postgresql://…; default: sqlite:///outlast.db.",
)
campaign_url_option = click.option(
    "--url",
    metavar="URL",
    envvar="OUTLAST_URL",
    show_envvar=True,
    help="sqlite:///file.db or postgresql://…; default: a temporary SQLite file.",
)
refused_url_option = click.option(
    "--url", metavar="URL", help="Rejected: this campaign starts its own database."
)
schema_option = click.option(
    "--schema",
    metavar="NAME",
    envvar="OUTLAST_SCHEMA",
    show_envvar=True,
    help="Schema of Outlast's tables (on SQLite their prefix); default: outlast.",
)
blobs_option = click.option(
    "--blobs",
    metavar="URL",
    envvar="OUTLAST_BLOBS",
    show_envvar=True,
    help="file:///a/directory for arguments and results too large for a row.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def given_database(ctx: click.Context) -> tuple[str | None, str | None]:
    """URL and schema passed on the command line, after or before the command. `Outlast` itself
    reads the environment, unless the app's code names a database."""
    return _given(ctx, "url"), _given(ctx, "schema")


def given_on_command(ctx: click.Context, name: str) -> str | None:
    """The option's value if it is passed on the command itself."""
    on_it = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    return str(ctx.params[name]) if on_it else None


def _given(ctx: click.Context, name: str) -> str | None:
    for each in (ctx, ctx.find_root()):
        if each.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            return str(each.params[name])
    return None


def with_database_options(
    command: F, url_option: Callable[[Callable[..., object]], Callable[..., object]] = url_option
) -> F:
    """Pass `url` and `schema` to a command: the user's values, or None."""

    @wraps(command)
    def with_database(*args: object, **kwargs: object) -> object:
        kwargs["url"], kwargs["schema"] = given_database(click.get_current_context())
        return command(*args, **kwargs)

    return url_option(schema_option(with_database))  # type: ignore[return-value]


def with_client(command: F) -> F:
    """Pass an open `Outlast` to a command as its first argument."""

    @wraps(command)
    def with_outlast(*args: object, url: object, schema: object, **kwargs: object) -> object:
        with open_client(*given_database(click.get_current_context())) as ol:
            return command(ol, *args, **kwargs)

    return url_option(schema_option(with_outlast))  # type: ignore[return-value]


@contextmanager
def open_client(url: str | None, schema: str | None, blobs: str | None = None) -> Iterator[Outlast]:
    from ..client.client import Outlast

    with Outlast(url, schema=schema, blobs=blobs) as ol:
        yield ol
