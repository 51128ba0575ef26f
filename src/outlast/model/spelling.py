"""Refusals of misspelt options: they name the given option and the nearest known one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from .errors import InvalidOption


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """The end of a sentence about an unknown name."""
    near = get_close_matches(name, known, n=1)
    return f": did you mean {near[0]}?" if near else "."


def unknown_option(name: str, known: Sequence[str], owner: str) -> InvalidOption:
    """`owner` is the public class or method that takes the options."""
    near = did_you_mean(name, known)
    return InvalidOption(
        f"{owner} has no option {name!r:.80}{near} Options: {', '.join(known)}.",
        option=name,
        reason="is unknown",
    )


def refuse_unknown(owner: str, given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise unknown_option(name, known, owner)
