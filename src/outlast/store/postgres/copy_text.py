"""The text format of COPY: a line for each row, a tab between two columns."""

from __future__ import annotations

from collections.abc import Iterator

from ...ops.operation import BulkInsert

_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def copy_lines(step: BulkInsert) -> Iterator[str]:
    """The rows of a bulk insert, in parts."""
    for alike, rows in step.runs:
        end = "".join(f"\t{_field(value)}" for value in alike) + "\n"
        yield "".join([f"{id}\t{_escaped(args)}{end}" for id, args in rows])


def _field(value: object) -> str:
    return "\\N" if value is None else _escaped(str(value))


def _escaped(text: str) -> str:
    if text.isprintable():  # the fast path: no tab and no line end
        return text.replace("\\", "\\\\")
    return text.translate(_ESCAPED)
