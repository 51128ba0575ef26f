"""Values as people type them, read by options' callbacks: spans of time, moments, JSON."""

from __future__ import annotations

import re
import sys
from datetime import datetime
from typing import Any

import click

from ..model import strict_json
from ..model.words import seconds_in


def span(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """Seconds, or a number with s, m, h or d."""
    if text is None:
        return None
    if (seconds := seconds_in(text)) is None:
        raise click.BadParameter(f"{text!r} is no span: write 30, 30s, 5m, 2h or 1d.")
    return seconds


def moment(ctx: click.Context, param: click.Parameter, text: str | None) -> datetime | None:
    """A date and time with its zone."""
    if text is None:
        return None
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is no moment: write 2030-01-31T12:00:00Z."
        raise click.BadParameter(message) from None
    if read.tzinfo is None:
        raise click.BadParameter(f"{text!r} names no time zone: add Z, or +02:00, say.")
    return read


def span_or_moment(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> float | datetime | None:
    if text is not None and re.match(r"\d{4}-", text):
        return moment(ctx, param, text)
    if text is not None and seconds_in(text) is None:
        raise click.BadParameter(
            f"{text!r} is no span and no moment: write 30, 30s, 5m, 2h, 1d or 2030-01-31T12:00:00Z."
        )
    return span(ctx, param, text)


def json_object(ctx: click.Context, param: click.Parameter, text: str) -> dict[str, Any]:
    """A JSON object; `-` reads it from standard input."""
    if text == "-":
        text = sys.stdin.read()
    try:
        read = strict_json.read(text)
    except RecursionError:
        raise click.BadParameter("it is nested too deeply.") from None
    except ValueError as error:
        raise click.BadParameter(f"this is no JSON: {error}.") from None
    if not isinstance(read, dict):
        raise click.BadParameter('it must be a JSON object, as in {"doc": 7}.')
    return read
