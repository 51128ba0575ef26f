"""Who may call the service: `outlast token create`, `list` and `revoke`. All of it is on record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from ..model.errors import TokenNotFound
from ..model.tokens import Scope
from .places import connected, json_option
from .show import print_json, print_table
from .values import span

if TYPE_CHECKING:
    from ..client import Outlast


@click.group()
def token() -> None:
    """Tokens for the service: who may call it, and what for."""


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
    help="What it is for, on lists and on record.",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice([str(scope) for scope in Scope]),
    help="What it allows; several may be given. admin is all of them.",
)
@click.option("--tenant", metavar="NAME", help="Only this tenant's jobs; else everybody's.")
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Only this queue; several may be given.",
)
@click.option(
    "--expires", "expires_in", callback=span, metavar="SPAN", help="Good for so long: 12h, 30d."
)
@json_option
@connected
def create(ol: Outlast, name: str, scopes: Sequence[str], as_json: bool, **limits: Any) -> None:
    """Make a token and print it. It is shown this once: only its hash is kept."""
    from ..connected import actor
    from ..model.tokens import new_token
    from ..ops import tokens

    secret, new = new_token(name, scopes, **limits)
    made = ol.store.run(tokens.create, new, actor())
    if as_json:
        print_json({**made.as_json(), "token": secret})
    else:
        click.echo(f"Token {made.id} is shown this once:", err=True)
        click.echo(secret)


@token.command("list", epilog="Example: outlast token list")
@json_option
@connected
def list_tokens(ol: Outlast, as_json: bool) -> None:
    """List the tokens, the newest first; never what they are, only what they allow."""
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
        none="There is no token: the service is open to this machine, and to no other.",
    )  # fmt: skip


@token.command(epilog="Example: outlast token revoke 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@json_option
@connected
def revoke(ol: Outlast, ids: Sequence[str], as_json: bool) -> None:
    """Revoke tokens: within seconds they open nothing, and what they opened is closed.

    Revoking twice is revoking once.
    """
    from ..connected import actor
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
