"""API tokens: `outlast token create`, `list` and `revoke`. Every change is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from ..model.api_token import Scope
from ..model.errors import TokenNotFound
from .database_options import json_option, with_client
from .default_group import SpellingGroup
from .output import print_json, print_table
from .parsing import parse_duration

if TYPE_CHECKING:
    from ..client.client import Outlast


@click.group(cls=SpellingGroup)
def token() -> None:
    """API tokens of the service."""


@token.command(
    epilog="""
    \b
    Examples: outlast token create --name shop --scope enqueue --scope read --tenant acme
              outlast token create --name fleet --scope work --queue mail --expires 90d
    """
)
@click.option(
    "--name",
    default="unnamed",
    show_default=True,
    metavar="TEXT",
    help="Name in lists and records.",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice([str(scope) for scope in Scope]),
    help="Scope of the token; repeatable. admin includes all others.",
)
@click.option("--tenant", metavar="NAME", help="Only this tenant's jobs; default: all tenants'.")
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Only this queue; repeatable.",
)
@click.option(
    "--expires",
    "expires_in",
    callback=parse_duration,
    metavar="SPAN",
    help="Expires after this: 12h, 30d.",
)
@json_option
@with_client
def create(ol: Outlast, name: str, scopes: Sequence[str], as_json: bool, **limits: Any) -> None:
    """Create a token and print it. It is shown only once: only its hash is stored."""
    from ..client.verb_arguments import actor
    from ..model.api_token import new_token
    from ..ops import tokens

    secret, new = new_token(name, scopes, **limits)
    made = ol.store.run(tokens.create, new, actor())
    if as_json:
        print_json({**made.as_json(), "token": secret})
    else:
        click.echo(f"Token {made.id} is shown only once:", err=True)
        click.echo(secret)


@token.command("list", epilog="Example: outlast token list")
@json_option
@with_client
def list_tokens(ol: Outlast, as_json: bool) -> None:
    """List the tokens, newest first: names and permissions, never secrets."""
    from ..ops import tokens

    found = ol.store.run(tokens.tokens)
    if as_json:
        print_json([one.as_json() for one in found])
        return
    print_table(
        ["id", "name", "", "scopes", "tenant", "queues", "expires", "used"],
        (
            [one.id, one.name, one.state, ", ".join(one.scopes), one.tenant or "all",
             "all" if one.queues is None else ", ".join(one.queues), one.expires_at, one.used_at]
            for one in found
        ),
        none="No tokens: only callers on this machine can use the service.",
    )  # fmt: skip


@token.command(epilog="Example: outlast token revoke 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@json_option
@with_client
def revoke(ol: Outlast, ids: Sequence[str], as_json: bool) -> None:
    """Revoke tokens: within seconds they are rejected, and their open streams are closed.

    Idempotent.
    """
    from ..client.verb_arguments import actor
    from ..ops import tokens

    done = [ol.store.run(tokens.revoke, _id(id), actor()) for id in ids]
    if as_json:
        print_json([one.as_json() for one in done])
    else:
        for one in done:
            click.echo(f"{one.id} {one.state}")


def _id(id: str) -> str:
    try:
        return str(UUID(id))
    except ValueError:
        raise TokenNotFound(token=id) from None
