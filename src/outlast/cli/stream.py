"""`outlast stream`: print the output of a job as it is streamed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from .database_options import json_option, with_client
from .errors import one_line, printable
from .output import to_json

if TYPE_CHECKING:
    from ..client.client import Outlast
    from ..model.stream import StreamChunk


@click.command(epilog="Example: outlast stream 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f")
@click.argument("id")
@click.option("--after", metavar="ID", help="Begin after this chunk; default: with the first one.")
@json_option
@with_client
def stream(ol: Outlast, id: str, after: str | None, as_json: bool) -> None:
    """Print the output that a job streams, until the job ends.

    Text goes to standard output as it is, other values as one line of JSON. Marks of attempts go to
    standard error. With --json, one object a line.
    """
    follow_stream(ol, id, after, as_json=as_json)


def follow_stream(ol: Outlast, id: str, after: str | None = None, *, as_json: bool = False) -> None:
    ol.job(id)  # fails if the database is unavailable at the start; later outages are waited out
    within_line = False
    for chunk in ol.stream(id, after=after):
        if as_json:
            click.echo(json.dumps(to_json(chunk)))
        else:
            within_line = _print(chunk, within_line)
    if within_line:
        click.echo()


def _print(chunk: StreamChunk, within_line: bool) -> bool:
    """Print a chunk; returns whether its last line is unfinished."""
    if chunk.kind == "text":
        click.echo("\t".join(map(printable, chunk.text.split("\t"))), nl=False)
        return not chunk.text.endswith("\n")
    if within_line:
        click.echo()
    match chunk.kind:
        case "json":
            click.echo(one_line(json.dumps(chunk.data, ensure_ascii=False)))
        case "attempt":
            click.echo(f"-- attempt {chunk.attempt}", err=True)
        case "truncated":
            click.echo("-- the output is cut off here: it has reached its limit", err=True)
    return False
