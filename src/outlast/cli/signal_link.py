"""One-time links: `outlast signal-link` and `outlast revoke-link`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from ..model.errors import LinkRefused
from .apps import find_app
from .database_options import json_option, open_client, with_client, with_database_options
from .errors import CommandFailed, one_line
from .output import print_json
from .parsing import parse_json

if TYPE_CHECKING:
    from ..client.client import Outlast


@click.command(
    epilog="""
    \b
    Examples: outlast signal-link 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f approval '{"ok": true}'
              outlast signal-link 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f approval --expires 2d \\
                  --choice Approve=true --choice Reject=false --text 'Refund of 70 to Ada'
    """
)
@click.argument("id")
@click.argument("name")
@click.argument("value", default=None, required=False, metavar="[JSON]")
@click.option(
    "--choice",
    "choices",
    multiple=True,
    metavar="LABEL=JSON",
    help="A button and the value that it sends; repeatable.",
)
@click.option("--expires", default="7d", show_default=True, metavar="SPAN", help="Valid for: 2d.")
@click.option("--text", default="", metavar="TEXT", help="Shown above the buttons.")
@click.option("--key", metavar="TEXT", help="Of several links with one key, the first used counts.")
@click.option("--app", metavar="APP", help="App whose task checks values, and makes the form.")
@click.option(
    "--public-url",
    metavar="URL",
    envvar="OUTLAST_PUBLIC_URL",
    show_envvar=True,
    help="Public address of the service; default: only the path is printed.",
)
@json_option
@with_database_options
def signal_link(
    id: str, name: str, value: str | None, choices: tuple[str, ...], app: str | None, as_json: bool,
    **given: Any,
) -> None:  # fmt: skip
    """Create a link that sends a signal once, without a login.

    Its page has a button for the value, one for each --choice, or else a form of the type that the
    task declares (with --app). The address is shown only once: only its hash is stored.
    """
    from ..model.signal_link import check_public_url

    base = check_public_url(given["public_url"])
    options = {option: given[option] for option in ("expires", "text", "key")}
    if value is not None:
        options["value"] = _json(value)
    if choices:
        options["choices"] = dict(map(_choice, choices))
    with ExitStack() as stack:
        database = given["url"], given["schema"]
        opened = open_client(*database) if app is None else find_app(app, *database)
        link = stack.enter_context(opened).signal_link(id, name, **options)
    address = (base or link.base or "") + link.path
    if as_json:
        facts = {"id": link.id, "job": link.job, "signal": link.name}
        print_json({**facts, "expires_at": link.expires_at.isoformat(), "address": address})
    else:
        click.echo(address)


@click.command(epilog="Example: outlast revoke-link 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f")
@click.argument("link")
@json_option
@with_client
def revoke_link(ol: Outlast, link: str, as_json: bool) -> None:
    """Revoke a one-time link, by its id. Idempotent; `outlast job` lists the links of a job."""
    try:
        found = ol.revoke_signal_link(link)
    except LinkRefused as error:
        text = f"There is no link {one_line(link)[:80]}: `outlast job ID` lists those of a job."
        raise CommandFailed(text) from error
    if as_json:
        print_json(found.as_json())
    else:
        click.echo(f"Link {found.id} ({found.name}) is {found.state}.")


def _choice(text: str) -> tuple[str, object]:
    label, given, value = text.partition("=")
    if not given:
        raise click.UsageError(f"--choice is LABEL=JSON, as in Approve=true, not {text!r:.80}")
    return label, _json(value)


def _json(text: str) -> object:
    return parse_json(click.get_current_context(), None, text)  # type: ignore[arg-type]
