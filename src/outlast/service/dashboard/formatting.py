"""Template filters for times, durations, numbers and states.

Filters that return markup escape their input; the template escapes everything else.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import islice

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from ...model.blob import Blob
from ...model.timestamps import to_datetime as stored_moment
from ...ops.job_lists import LongArguments
from .cards import as_cards
from .event_lines import inline_code

NONE = Markup('<span class="none">–</span>')  # a missing value
MAX_VALUE_LENGTH = 20_000  # characters of arguments or results

MAX_LINE_LENGTH = 300
MAX_PREVIEW_LENGTH = 80  # characters of arguments in a list
OUTCOME_STYLES = {"succeeded": "good", "running": "now", "released": "warn", "postponed": "warn",
            "cancelled": "warn", "waited": "now"}  # fmt: skip

DURATION_UNITS = ((86400.0, "d", 3600.0, "h"), (3600.0, "h", 60.0, "min"), (60.0, "min", 1.0, "s"))


def number(value: float | None) -> str:
    """12,345; with a decimal only where it matters."""
    if value is None:
        return NONE
    if float(value).is_integer() or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 1 else f"{value:,.2g}"


def plural(value: int, noun: str) -> str:
    return f"{number(value)} {noun}{'' if value == 1 else 's'}"


def duration(seconds: float | None) -> str:
    """0.4 ms, 12 ms, 3.4 s, 2 min 5 s, 3 h 12 min, 4 d 2 h."""
    if seconds is None:
        return NONE
    seconds = max(0.0, float(seconds))
    if seconds < 0.01:
        return f"{seconds * 1000:.1f} ms" if seconds else "0 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    for size, unit, smaller, lesser in DURATION_UNITS:
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            small = int(rest // smaller)
            return f"{whole:.0f} {unit} {small} {lesser}" if small else f"{whole:.0f} {unit}"
    return "1 min"


def moment(value: datetime | float | None) -> datetime | None:
    return stored_moment(value) if isinstance(value, int | float) else value


@pass_context
def when(context: Context, value: datetime | float | None) -> str:
    """A relative time; the element's title has the exact one."""
    at = moment(value)
    if at is None:
        return NONE
    exact = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    shown = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    text = relative(at.timestamp() - float(context["now"]))
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, shown, text)


def relative(seconds: float) -> str:
    """A relative time in words, as in `outlast.js`."""
    if abs(seconds) < 1:
        return "now"
    span = duration(abs(seconds) if abs(seconds) >= 60 else float(round(abs(seconds))))
    span = span.replace(".0 s", " s")
    return f"in {span}" if seconds > 0 else f"{span} ago"


def state(value: object) -> Markup:
    """A state's name in its colour; never the colour alone."""
    return Markup('<span class="state state-{0}">{0}</span>').format(str(value))


def short(id: object) -> str:
    """The end of an id, in which ids differ."""
    return f"…{str(id)[-8:]}" if len(str(id)) > 12 else str(id)


def pretty(value: object) -> str:
    """A value as indented JSON, cut to a maximum length."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return (
        text
        if len(text) <= MAX_VALUE_LENGTH
        else f"{text[:MAX_VALUE_LENGTH]}\n… ({len(text):,} characters)"
    )


def error_line(error: object) -> str:
    """An error in one line: its type and its message."""
    if isinstance(error, dict):
        text = ": ".join(str(error[name]) for name in ("type", "message") if error.get(name))
    else:
        text = "" if error is None else str(error)
    return text if len(text) <= MAX_LINE_LENGTH else f"{text[:MAX_LINE_LENGTH]}…"


def arguments_line(args: object) -> str:
    """The beginning of a job's arguments in one line: `user=7, card='***'`."""
    if isinstance(args, Blob):
        return f"{args.size:,} bytes, by reference"
    if isinstance(args, LongArguments):
        return f"{args.characters:,} characters"
    if not isinstance(args, dict):
        return "" if args is None else str(args)[:MAX_PREVIEW_LENGTH]
    parts = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in args.items())
    text = ", ".join(islice(parts, MAX_PREVIEW_LENGTH))
    return text if len(text) <= MAX_PREVIEW_LENGTH else f"{text[:MAX_PREVIEW_LENGTH]}…"


def outcome_style(value: str) -> str:
    """The style class of an attempt's outcome."""
    return OUTCOME_STYLES.get(value, "bad")


FILTERS = {
    "arguments_line": arguments_line,
    "cards": as_cards,
    "error_line": error_line,
    "outcome": outcome_style,
    "inline_code": inline_code,
    "number": number,
    "plural": plural,
    "duration": duration,
    "when": when,
    "state": state,
    "short": short,
    "pretty": pretty,
}
