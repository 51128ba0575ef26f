"""Operations: generators that yield named statements and return a value.

    def finish(transitions: list[Transition]) -> Op[Finished]:
        rows = yield Statement("finish", rows=[…])
        return Finished(…)

The same generator is driven by a blocking runner, by an asyncio runner, and on a caller's own
connection; it holds all of the logic and does no I/O. Statements commit one by one until the
operation yields `BEGIN`; from there to its end everything commits together, or not at all.
`Pipeline` sends several statements in one round trip, as one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Row = tuple[Any, ...]
Rows = list[Row]


class Statement(NamedTuple):
    """A statement by its name in the .sql files, with its parameters.

    With `rows`, it applies to all of them at once, passed as one JSON parameter.
    """

    name: str
    params: Mapping[str, object] = {}
    rows: Sequence[Mapping[str, object]] | None = None

    @property
    def bind(self) -> Mapping[str, object]:
        """The parameters for the driver."""
        if self.rows is None:
            return self.params
        from pydantic_core import to_json  # three times as fast as json; imported only when used

        # A number that is not finite comes from a damaged row and has no JSON form.
        return {**self.params, "rows": to_json(self.rows, inf_nan_mode="null").decode()}


class Pipeline(tuple[Statement, ...]):
    """Statements sent in one round trip; the result is a list with the rows of each."""

    __slots__ = ()


class CommitPipeline(Pipeline):
    """A pipeline that ends the operation: the open transaction commits in its round trip."""

    __slots__ = ()


class AlikeRows(NamedTuple):
    """Rows that differ in their id and arguments only."""

    alike: tuple[object, ...]  # the other columns, in the statement's order
    rows: Sequence[tuple[str, str]]


class BulkInsert(NamedTuple):
    """Many rows, sent in the fastest way; only within a transaction, and only where the store or
    connection supports it (`can_copy`, `can_copy_on`). One refused row fails all."""

    name: str
    runs: Iterable[AlikeRows]


class Begin:
    """Start of a transaction: all later statements of the operation commit together."""


class BeginPart(Begin):
    """Start of a part of a long operation, in one transaction with the others. The deadline of an
    operation holds for each of its parts."""


BEGIN = Begin()
BEGIN_PART = BeginPart()

Step = Statement | Pipeline | Begin | BulkInsert
Op = Generator[Step, Any, T]

CREATES_DATABASE: set[Callable[..., Any]] = set()


def creates_database(operation: F) -> F:
    """Let an operation create a missing database: an enqueue, or the start of a worker. Other
    operations refuse, so that a mistyped URL does not look like an empty database."""
    CREATES_DATABASE.add(operation)
    return operation
