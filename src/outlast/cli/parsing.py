"""Option callbacks that parse durations, timestamps and JSON."""

from __future__ import annotations

import re
import sys
from datetime import datetime

import click

from ..model import strict_json
from ..model.humanize import duration_seconds


def parse_duration(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """Seconds, or a number with s, m, h or d."""
    if text is None:
        return None
    if (seconds := duration_seconds(text)) is None:
        raise click.BadParameter(f"{text!r} is not a duration: write 30, 30s, 5m, 2h or 1d.")
    return seconds


def parse_time(ctx: click.Context, param: click.Parameter, text: str | None) -> datetime | None:
    """A date and time with a time zone."""
    if text is None:
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is not a timestamp: write 2030-01-31T12:00:00Z."
        raise click.BadParameter(message) from None
    if parsed.tzinfo is None:
        raise click.BadParameter(f"{text!r} has no time zone: add Z, or an offset such as +02:00.")
    return parsed


def parse_duration_or_time(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> float | datetime | None:
    if text is not None and re.match(r"\d{4}-", text):
        return parse_time(ctx, param, text)
    if text is not None and duration_seconds(text) is None:
        raise click.BadParameter(
            f"{text!r} is neither a duration nor a timestamp:"
            " write 30, 30s, 5m, 2h, 1d or 2030-01-31T12:00:00Z."
        )
    return parse_duration(ctx, param, text)


def parse_json(ctx: click.Context, param: click.Parameter, text: str) -> object:
    """A JSON value; `-` reads it from standard input."""
    if text == "-":
        text = sys.stdin.read()
    try:
        return strict_json.read(text)
    except RecursionError:
        raise click.BadParameter("the JSON is nested too deeply.") from None
    except ValueError as error:
        raise click.BadParameter(f"invalid JSON: {error}.") from None


def parse_json_object(ctx: click.Context, param: click.Parameter, text: str) -> dict[str, object]:
    """A JSON object; `-` reads it from standard input."""
    parsed = parse_json(ctx, param, text)
    if not isinstance(parsed, dict):
        raise click.BadParameter('must be a JSON object such as {"doc": 7}.')
    return parsed
