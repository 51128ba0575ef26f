"""The signature of a batch task: a list, to which each job contributes one item."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Annotated, Any

from ..secret import Secret, is_secret
from .signature import Signature, read_signature, refuse

ITEM = "item"  # the stored name of a batch job's only argument


def read_item_signature(
    function: Callable[..., object], task: str, context_type: type | None
) -> tuple[str, str | None, Signature]:
    """The list's name, the context's name, and the signature stored for each job."""
    whole = read_signature(function, task, context_type)
    name = _the_list(whole, task)
    item = Signature(
        hints={ITEM: _element(whole.hints[name], task, name)},
        positional=(ITEM,),
        required=frozenset((ITEM,)),
        takes_more=False,
        more=Any,
        context=None,
        returns=_element_of(whole.returns) or Any,
    )
    return name, whole.context, item


def _the_list(signature: Signature, task: str) -> str:
    names = [*signature.hints, *(["**kwargs"] if signature.takes_more else [])]
    if not names:
        refuse(task, "items", "is missing: a batch task takes a list of items, such as list[int]")
    if len(names) > 1:
        refuse(
            task,
            names[1],
            f"is one too many: a batch task takes one list of items (here: {names[0]}) and,"
            " optionally, a BatchContext",
        )
    return names[0]


def _element(hint: object, task: str, name: str) -> object:
    element = _element_of(hint)
    if element is None:
        refuse(task, name, "must be a list of items, such as list[int]: the task has batch=…")
    return Annotated[element, Secret] if is_secret(hint) else element


def _element_of(hint: object) -> object:
    """The element type of a list type; None if it is not a list."""
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    if hint is list:
        return Any
    return typing.get_args(hint)[0] if typing.get_origin(hint) is list else None
