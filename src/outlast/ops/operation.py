"""What an operation is: a generator that yields named statements and returns a value.

    def finish(transitions: list[Transition]) -> Op[Finished]:
        rows = yield Statement("finish", rows=[…])
        return Finished(…)

The same generator is driven by a blocking runner, by an asyncio runner, and on a caller's own
connection; it holds all of the logic and does no I/O. Statements commit one by one until the
operation yields `BEGIN`; from there to its end everything commits together, or not at all.
`Pipeline` sends several statements in one round trip, as one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Row = tuple[Any, ...]
Rows = list[Row]


class Statement(NamedTuple):
    """A statement by its name in the .sql files, with its parameters.

    With `rows`, it is done for all of them at once: they travel as one JSON parameter.
    """

    name: str
    params: Mapping[str, object] = {}
    rows: Sequence[Mapping[str, object]] | None = None

    @property
    def bind(self) -> Mapping[str, object]:
        """What the driver is given."""
        if self.rows is None:
            return self.params
        from pydantic_core import to_json  # three times as fast as ours; not needed to get here

        # A number that is not finite comes from a row that somebody spoiled, and is no JSON.
        return {**self.params, "rows": to_json(self.rows, inf_nan_mode="null").decode()}


class Pipeline(tuple[Statement, ...]):
    """Statements that travel together; the answer is a list with the rows of each."""

    __slots__ = ()


class CommitPipeline(Pipeline):
    """The same, when nothing comes after them: what was begun commits in their round trip."""

    __slots__ = ()


class Begin:
    """Says that all that follows commits together."""


BEGIN = Begin()

Step = Statement | Pipeline | Begin
Op = Generator[Step, Any, T]

CREATES_DATABASE: set[Callable[..., Any]] = set()


def creates_database(operation: F) -> F:
    """Let an operation create the database if there is none: an enqueue, a worker's arrival. All
    others refuse, so that a mistyped URL does not look like an empty database."""
    CREATES_DATABASE.add(operation)
    return operation
