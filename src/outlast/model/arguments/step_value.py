"""What a step gives, as JSON text and back: its first run and every later one give the same value.

The function's return annotation says as what it comes back; without one, or with one that pydantic
does not know, as plain JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..errors import InvalidResult, Problem
from ..safe_text import error_summary
from . import encode_result
from .signature import returns


def return_annotation(function: Callable[..., Any]) -> Any:
    """The annotated type of what a function gives; Any if it does not say."""
    while isinstance(function, partial):
        function = function.func
    return returns(function)


def write(step: str, value: Any, annotation: Any) -> str:
    """The text that is kept, or an error that names the step."""
    try:
        text = encode_result(value, annotation) or "null"
    except InvalidResult as error:
        raise _refused(step, error.problems) from None
    read(step, text, annotation)  # what does not come back must not be kept
    return text


def read(step: str, text: str, annotation: Any) -> Any:
    """The value of what was kept."""
    # Pydantic takes a tenth of a second to import: not for those who keep no steps.
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
