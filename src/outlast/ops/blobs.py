"""Blob references in rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Self

from ..model.blob import new_namespace, parse_name, parse_reference
from .operation import Op, Rows, Statement, creates_database
from .tokens import secret

NAMESPACE_KEY = "blobs"  # the name under which a database stores its namespace


class Removed(int):
    """The number of removed jobs, their ids, and the names of the blobs that only they referred
    to."""

    ids: frozenset[str] = frozenset()
    blobs: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """Build from rows that begin with a job's id and end with its two references."""
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
    """The name of this database's folder in any blob store."""
    return (yield from secret(NAMESPACE_KEY, new_namespace()))


def unreferenced(blobs: Collection[str]) -> Op[list[str]]:
    """The blobs that no job refers to, and that no running job is about to refer to."""
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
    """The job and part of a blob's name, without the suffix of its upload."""
    return name.split("/", 1)[1][:-8]
