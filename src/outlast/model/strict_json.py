"""JSON as it is defined: no NaN, and no name twice in one object."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any


def read(text: str) -> Any:
    """The value, or a ValueError (for nesting beyond all measure a RecursionError)."""
    return json.loads(text, parse_constant=_refuse, object_pairs_hook=_object)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    """An object whose names are all different: of two values, nobody could say which is meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the name {twice!r:.80} stands twice in one object")
    return found
