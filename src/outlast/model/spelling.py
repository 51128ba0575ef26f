"""Refusals of misspelt options: they name what was asked, and the nearest spelling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from .errors import InvalidOption


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """The end of a sentence about an unknown name."""
    near = get_close_matches(name, known, n=1)
    return f": did you mean {near[0]}?" if near else "."


def unknown_option(name: str, known: Sequence[str], owner: str | None = None) -> InvalidOption:
    start = f"{owner} has" if owner else "There is"
    return InvalidOption(
        f"{start} no option {name!r:.80}{did_you_mean(name, known)} Options: {', '.join(known)}.",
        option=name,
        reason="is unknown",
    )


def refuse_unknown(owner: str, given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise unknown_option(name, known, owner)
