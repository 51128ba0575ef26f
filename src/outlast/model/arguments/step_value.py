"""Results of steps as JSON text and back: the first run and every later one return the same value.

The step's return annotation is the type that is read back; without one, or with one that pydantic
does not know, the value is plain JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..errors import InvalidResult, Problem
from ..safe_text import error_summary
from . import encode_result
from .signature import returns


def return_annotation(function: Callable[..., object]) -> object:
    """A function's return annotation; Any if it has none."""
    while isinstance(function, partial):
        function = function.func
    return returns(function)


def write(step: str, value: object, annotation: object) -> str:
    """The text to store, or an error that names the step."""
    try:
        text = encode_result(value, annotation) or "null"
    except InvalidResult as error:
        raise _refused(step, error.problems) from None
    read(step, text, annotation)  # refuse a value that cannot be read back
    return text


def read(step: str, text: str, annotation: object) -> Any:
    """The value of a stored text."""
    # Importing pydantic takes 0.1 s; spare processes that use no steps.
    from .jsontext import type_adapter

    try:
        return type_adapter(annotation).validate_json(text, by_alias=False, by_name=True)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a user's validator may raise anything
        reason = f"does not come back as its function is annotated: {error_summary(error)}"
        raise _refused(step, [Problem("", reason)]) from None


def _refused(step: str, problems: Any) -> InvalidResult:
    return InvalidResult(
        [Problem(f"step {step!r} {path}".strip(), message) for path, message in problems]
    )
