"""The parameters of a task's function, read once from its signature."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Union

from ..errors import InvalidInput
from ..safe_text import error_summary
from ..secret import is_secret
from ..task_function import namespace


@dataclass(frozen=True)
class Signature:
    """The parameters stored with a job, and the one that the worker fills in."""

    hints: dict[str, object]  # every stored parameter and its type, in order
    positional: tuple[str, ...]
    required: frozenset[str]
    takes_more: bool  # it has **kwargs …
    more: object  # … of this type
    context: str | None
    returns: object


def read_signature(
    function: Callable[..., object], task: str, context_type: type | None
) -> Signature:
    """The function's signature; raises with the reason if it cannot be a task."""
    parameters = parameters_of(function, task)
    hints = {p.name: _hint(function, task, p) for p in parameters}
    context = _context(hints, task, context_type)
    stored = [p for p in parameters if p.name != context and p.kind is not p.VAR_KEYWORD]
    more = [p.name for p in parameters if p.kind is p.VAR_KEYWORD]
    if more and is_secret(hints[more[0]]):
        refuse(task, f"**{more[0]}", "cannot be secret as a whole: name each secret parameter")
    return Signature(
        hints={p.name: hints[p.name] for p in stored},
        positional=tuple(p.name for p in stored if p.kind is p.POSITIONAL_OR_KEYWORD),
        required=frozenset(p.name for p in stored if p.default is p.empty),
        takes_more=bool(more),
        more=hints[more[0]] if more else Any,
        context=context,
        returns=returns(function),
    )


def parameters_of(function: Callable[..., object], task: str) -> list[inspect.Parameter]:
    """The function's parameters, provided that each can be stored by name."""
    try:
        parameters = list(_inspect(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{task}: its parameters cannot be read: {error}", task=task) from None
    for parameter in parameters:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            refuse(task, parameter.name, "is positional-only, but arguments are stored by name")
        if parameter.kind is parameter.VAR_POSITIONAL:
            refuse(task, f"*{parameter.name}", "has no names to store: take a list instead")
    return parameters


def _inspect(function: Callable[..., object]) -> inspect.Signature:
    if sys.version_info >= (3, 14):  # there, annotations are evaluated lazily and all at once
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def _hint(function: Callable[..., object], task: str, parameter: inspect.Parameter) -> object:
    if parameter.annotation is parameter.empty:
        return Any
    try:
        return _resolve(function, parameter.annotation)
    except Exception as error:
        return refuse(
            task,
            parameter.name,
            f"has an annotation that cannot be resolved ({error_summary(error)}): import or"
            " define its "
            "type at the top level of the module, and not only under TYPE_CHECKING",
        )


def _resolve(function: Callable[..., object], annotation: object) -> object:
    # Resolve one at a time, so that an error can name its parameter.
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    return typing.get_type_hints(holder, namespace(function), include_extras=True)["it"]


def returns(function: Callable[..., object]) -> object:
    """The return annotation; only a hint for storing the result, so never an error."""
    try:
        annotation = _inspect(function).return_annotation
        return Any if annotation is inspect.Signature.empty else _resolve(function, annotation)
    except Exception:
        return Any


def _context(hints: dict[str, object], task: str, context_type: type | None) -> str | None:
    names = [name for name, hint in hints.items() if _is_context(hint, context_type)]
    if len(names) > 1:
        refuse(task, names[1], f"is a second context beside {names[0]}: keep one")
    return names[0] if names else None


def _is_context(hint: object, context_type: type | None) -> bool:
    if typing.get_origin(hint) is Annotated:
        return _is_context(typing.get_args(hint)[0], context_type)
    if typing.get_origin(hint) in (Union, types.UnionType):
        branches = [branch for branch in typing.get_args(hint) if branch is not types.NoneType]
        return len(branches) == 1 and _is_context(branches[0], context_type)
    return context_type is not None and hint is context_type


def refuse(task: str, parameter: str, reason: str) -> typing.NoReturn:
    raise InvalidInput(f"{task}: the parameter {parameter} {reason}", task=task)
