"""Strict JSON: no NaN, and no duplicate names in an object."""

from __future__ import annotations

import json
from collections import Counter


def read(text: str) -> object:
    """Parse JSON; raises ValueError, or RecursionError for excessive nesting."""
    return json.loads(text, parse_constant=_refuse, object_pairs_hook=_object)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object without duplicate names, whose meaning would be ambiguous."""
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the name {twice!r:.80} occurs twice in one object")
    return found
