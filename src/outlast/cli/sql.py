"""The SQL that Outlast sends: `outlast sql`."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from textwrap import fill
from typing import TYPE_CHECKING

import click

from ..store.dialects import POSTGRES, SQLITE
from .database_options import json_option, with_database_options
from .output import print_json, print_table, shorten

if TYPE_CHECKING:
    from ..store.statements import Query


@click.command(
    epilog="""
    \b
    Examples: outlast sql
              outlast sql claim --dialect postgres
              outlast sql finish --dialect sqlite --json
    """
)
@click.argument("name", metavar="[NAME]", required=False)
@click.option(
    "--dialect",
    type=click.Choice([POSTGRES, SQLITE]),
    help="SQL dialect; default: that of --url.",
)
@json_option
@with_database_options
def sql(
    name: str | None, dialect: str | None, as_json: bool, url: str | None, schema: str | None
) -> None:
    """Print the statement NAME as sent, with parameters as :name; without NAME, list all.

    Needs no database. Log lines, query plans and pg_stat_statements show the SQL of a statement;
    this command shows its name, by which operations send it, and its purpose.
    """
    from ..store.address import parse
    from ..store.statements import queries

    address = parse(url, schema)
    dialect = dialect or address.dialect
    found = queries(dialect, address.schema)
    if name is None:
        _list(found.all().values(), as_json)
        return
    try:
        query = found[name]
    except KeyError:
        near = get_close_matches(name, found.all(), 1)
        hint = f": did you mean {near[0]}?" if near else "; `outlast sql` lists them all."
        raise click.UsageError(f"There is no statement {name!r}{hint}") from None
    if as_json:
        facts = ("name", "purpose", "sql", "parameters", "reads")
        print_json({**{fact: getattr(query, fact) for fact in facts}, "dialect": dialect})
    else:
        click.echo(fill(query.purpose, 100, initial_indent="-- ", subsequent_indent="-- "))
        click.echo(query.sql or f"-- Not sent: {dialect} does not need it.")


def _list(found: Iterable[Query], as_json: bool) -> None:
    """List every statement with its purpose; in the table, only the purpose's first sentence."""
    purposes = sorted((query.name, query.purpose) for query in found)
    if as_json:
        print_json([{"name": name, "purpose": purpose} for name, purpose in purposes])
    else:
        rows = [
            (name, shorten(purpose.partition(". ")[0].removesuffix(".")))
            for name, purpose in purposes
        ]
        print_table(["name", "purpose"], rows, none="")
