"""Search a value for anything that JSON text in a database cannot hold.

This runs before serialisation, so nothing hostile reaches the serialiser: an infinite generator, a
list that contains itself, or one that multiplies itself a hundred times.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from ..errors import Problem
from ..safe_text import error_summary, type_name
from .value_path import named_fields, render

MAX_DEPTH = 100
MAX_DIGITS = 4_300  # Python refuses to parse longer numbers
MAX_PAYLOAD = 1_000_000
MAX_PROBLEMS = 100

# Nested references to one list can be practically infinite. Each value weighs this many bytes, so
# that half as many values as the limit has bytes stop the walk, however small they are.
_NODE_BYTES = 32
_MAX_EXPANSION = 16

_MAX_INT = 10**MAX_DIGITS
SAFE_TYPES = frozenset({bool, type(None), datetime, date, time, timedelta, UUID})


def too_big(limit: int) -> str:
    """The part of a message about size: the limit of a row, or of the blob store."""
    elsewhere = "store the data elsewhere and pass its key"
    if limit > MAX_PAYLOAD:
        return f"more than {limit:,} (blob_limit): {elsewhere}"
    return f"more than {limit:,}: {elsewhere}, or have Outlast do so (blobs=…)"


def unstorable(
    value: object, unknown: Collection[int] = (), limit: int = MAX_PAYLOAD
) -> list[Problem]:
    """Every reason why this value cannot be stored. `unknown` holds ids of objects to refuse."""
    return examine(value, unknown, limit).problems


def examine(value: object, unknown: Collection[int] = (), limit: int = MAX_PAYLOAD) -> Walk:
    """Walk through a value and collect its problems."""
    walk = Walk(unknown, limit)
    walk.visit(value)
    if walk.weight > walk.max_weight:
        walk.problems.append(Problem("", f"the number of bytes is far {too_big(limit)}"))
    return walk


class Walk:
    """One walk through one value."""

    def __init__(self, unknown: Collection[int] = (), limit: int = MAX_PAYLOAD) -> None:
        self.problems: list[Problem] = []
        self.weight = 0
        self.max_weight = _MAX_EXPANSION * limit
        self._iterators = False
        self._unknown = unknown
        self._path: list[object] = []
        self._open: set[int] = set()

    @property
    def endless(self) -> bool:
        """Whether walking this value to its end may never finish."""
        return self.weight > self.max_weight or self._iterators

    def visit(self, value: object) -> None:
        self.weight += _NODE_BYTES
        kind = type(value)
        if kind in SAFE_TYPES:
            return
        try:
            _CHECKS.get(kind, Walk._other)(self, value)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the value's own methods ran
            self._refuse(f"cannot be read: {error_summary(error)}")

    def _refuse(self, message: str) -> None:
        if len(self.problems) <= MAX_PROBLEMS:
            self.problems.append(Problem(render(self._path), message))

    def _text(self, value: str, prefix: str = "") -> None:
        self.weight += len(value)
        if (at := str.find(value, "\0")) >= 0:
            self._refuse(f"{prefix}contains U+0000 at position {at}, which a database cannot store")
        if not str.isascii(value):
            try:
                str.encode(value)
            except UnicodeEncodeError as error:
                code = ord(str.__getitem__(value, error.start))
                self._refuse(f"{prefix}contains the lone surrogate U+{code:04X}, which is not text")

    def _int(self, value: int) -> None:
        if not -_MAX_INT < value < _MAX_INT:
            self._refuse(f"has more than {MAX_DIGITS:,} digits: pass it as text")

    def _float(self, value: float) -> None:
        if not math.isfinite(value):
            self._refuse(f"{float.__repr__(value)} is not a JSON number: pass None or text")

    def _decimal(self, value: Decimal) -> None:
        if not value.is_finite():
            self._refuse(f"{value} is not a JSON number: pass None or text")

    def _bytes(self, value: object) -> None:
        self._refuse(
            f"{type(value).__name__} cannot be JSON: pass text (base64, say), "
            "or store the data elsewhere and pass its key"
        )

    def _mapping(self, value: Mapping[object, object]) -> None:
        self._inside(value, value.items(), keyed=True)

    def _sequence(self, value: Iterable[object]) -> None:
        self._inside(value, enumerate(value))

    def _inside(
        self, container: object, items: Iterable[tuple[object, object]], *, keyed: bool = False
    ) -> None:
        if id(container) in self._open:
            return self._refuse("contains itself")
        if len(self._path) > MAX_DEPTH:
            return self._refuse(f"is nested more than {MAX_DEPTH} levels deep")
        self._open.add(id(container))
        self._path.append(None)
        try:
            for key, child in items:
                self._path[-1] = key
                if keyed:
                    self._key(key)
                self.visit(child)
                if self.weight > self.max_weight:
                    break
        finally:
            self._path.pop()
            self._open.discard(id(container))
        return None

    def _key(self, key: object) -> None:
        if isinstance(key, str):
            self._text(key, "the key ")
        else:
            self.visit(key)

    def _other(self, value: object) -> None:
        if id(value) in self._unknown:
            return self._refuse(f"{type_name(value)} cannot be JSON: pass its data, or its id")
        for base, check in _BASES:
            if isinstance(value, base):
                return check(self, value)
        if (parts := named_fields(value)) is not None:
            return self._inside(value, parts.items())
        return None

    def _enum(self, value: Enum) -> None:
        self.visit(value.value)

    def _named(self, value: tuple[object, ...]) -> None:
        parts = named_fields(value)
        self._inside(value, enumerate(value) if parts is None else parts.items())

    def _iterator(self, value: object) -> None:
        self._iterators = True
        self._refuse(f"{type_name(value)} can be read only once: pass a list")


# Exact types are looked up; subclasses are tried in order, so that an IntEnum is an enum.
_CHECKS: dict[type, Callable[[Walk, Any], None]] = {
    str: Walk._text,
    int: Walk._int,
    float: Walk._float,
    dict: Walk._mapping,
    list: Walk._sequence,
    tuple: Walk._sequence,
    set: Walk._sequence,
    frozenset: Walk._sequence,
    Decimal: Walk._decimal,
    bytes: Walk._bytes,
}
_BASES: tuple[tuple[Any, Callable[[Walk, Any], None]], ...] = (
    (Enum, Walk._enum),
    (str, Walk._text),
    (int, Walk._int),
    (float, Walk._float),
    (Decimal, Walk._decimal),
    ((bytes, bytearray, memoryview), Walk._bytes),
    (Iterator, Walk._iterator),
    (tuple, Walk._named),
    ((list, set, frozenset, deque), Walk._sequence),
    (Mapping, Walk._mapping),
)
