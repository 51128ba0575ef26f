"""What rows say of the blobs that hold what is too large for them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Self

from ..model.blob import new_namespace, parse_name, parse_reference
from .operation import Op, Rows, Statement, creates_database
from .tokens import secret

NAMESPACE_KEY = "blobs"  # under which name a database keeps what its own folder is called


class Removed(int):
    """How many jobs were removed, which, and the names of the blobs that they alone referred to."""

    ids: frozenset[str] = frozenset()
    blobs: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """From rows that begin with a job's id and end with its two references."""
        removed = cls(len(rows))
        removed.ids = frozenset(str(row[0]) for row in rows)
        removed.blobs = names(rows)
        return removed


def names(rows: Iterable[tuple[object, ...]]) -> tuple[str, ...]:
    """The blobs that such rows refer to."""
    return tuple(
        blob.name(str(row[0]))
        for row in rows
        for text in row[-2:]
        if isinstance(text, str) and (blob := parse_reference(text)) is not None
    )


@creates_database
def blob_namespace() -> Op[str]:
    """What the folder of this database is called, in whatever store it is."""
    return (yield from secret(NAMESPACE_KEY, new_namespace()))


def unreferenced(blobs: Collection[str]) -> Op[list[str]]:
    """Those of the blobs that no job refers to, and that no running one is about to."""
    parts = {name: parse_name(name) for name in blobs}
    ids = sorted({part[1] for part in parts.values() if part})
    rows: Rows = yield Statement("referred", {"ids": json.dumps(ids)})
    referred = set(names(rows))
    under_way = {f"{id}.result-{fence}-" for id, fence, *_ in rows if fence is not None}
    return [
        name
        for name, part in parts.items()
        if part and name not in referred and _stem(name) not in under_way
    ]


def _stem(name: str) -> str:
    """Its job and what it holds, whichever time that was stored."""
    return name.split("/", 1)[1][:-8]
