"""Wire headers: a message's key and headers, for brokers with stricter limits than Outlast's.

every header fits     each as itself, and the key as `outlast-key`
one of them does not  all of them as one JSON text, `outlast-headers`
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from .protocols import Message

ID = "outlast-id"  # for a broker whose messages have no id
KEY = "outlast-key"
HEADERS = "outlast-headers"

Fits = Callable[[str, str], bool]  # whether a broker can carry a header as itself


def to_wire(
    message: Message, fits: Fits, most: int = 1000, *, taken: str = HEADERS
) -> dict[str, str]:
    """The key and headers of a message, in at most `most` headers that fit. `taken` is a further
    name that the bridge uses itself."""
    found = dict(message.headers)
    if message.key is not None:
        found[KEY] = message.key
    ours = {ID, HEADERS, taken} & found.keys()
    if len(found) <= most and not ours and all(fits(*pair) for pair in found.items()):
        return found
    return {HEADERS: json.dumps(found)}


def from_wire(wire: Mapping[str, str]) -> tuple[str | None, dict[str, str]]:
    """The key and headers of a message that was received."""
    headers = dict(wire)
    try:
        packed = json.loads(headers.get(HEADERS, "{}"))
        packed = {str(name): str(value) for name, value in packed.items()}
    except (ValueError, AttributeError, RecursionError):  # written by another program
        packed = {}
    else:
        headers.pop(HEADERS, None)
    headers.pop(ID, None)
    headers |= packed
    return headers.pop(KEY, None), headers
