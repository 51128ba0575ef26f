"""Format counts and durations for people, and parse durations that they type."""

from __future__ import annotations

import re

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def pluralize(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_duration(seconds: float) -> str:
    seconds = max(0.0, seconds)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def compact_duration(seconds: float) -> str:
    """A duration as people type it: 90s, 5m, 2h, 1d."""
    whole = (unit for unit in ("d", "h", "m") if seconds and not seconds % UNITS[unit])
    unit = next(whole, "s")
    return f"{seconds / UNITS[unit]:.15g}{unit}"


def duration_seconds(text: str) -> float | None:
    """Parse a duration: seconds, or a number with s, m, h or d; None if it is neither."""
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([smhd]?)", text.strip())
    return None if found is None else float(found[1]) * UNITS[found[2]]
