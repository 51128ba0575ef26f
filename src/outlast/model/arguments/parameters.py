"""A task's parameters as one pydantic schema: a single call into compiled code checks them all."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema

from ..errors import InvalidArguments, Problem
from ..safe_text import storable_text
from .signature import Signature


def adapter_of(task: str, signature: Signature) -> TypeAdapter[Any]:
    """The adapter that validates and serialises the arguments of one task."""
    shape: Any = Annotated[dict, _Schema(task, signature)]
    try:
        return TypeAdapter(shape)
    except InvalidArguments:
        raise
    except Exception as error:
        reason = f"the parameters cannot be stored as JSON: {_first_sentence(error)}"
        raise InvalidArguments(task, [Problem("", reason)]) from None


class _Schema:
    """A schema without required parameters: `Codec` reports missing ones itself, always alike."""

    def __init__(self, task: str, signature: Signature) -> None:
        self._task = task
        self._signature = signature

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        signature = self._signature
        return core_schema.typed_dict_schema(
            {
                name: core_schema.typed_dict_field(self._of(name, hint, handler), required=False)
                for name, hint in signature.hints.items()
            },
            extra_behavior="allow" if signature.takes_more else "forbid",
            extras_schema=self._of("**kwargs", signature.more, handler)
            if signature.takes_more
            else None,
        )

    def _of(self, name: str, hint: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        try:
            return handler.generate_schema(hint)
        except Exception as error:
            reason = f"its type cannot be stored as JSON: {_first_sentence(error)}"
            raise InvalidArguments(self._task, [Problem(name, reason)]) from None


def _first_sentence(error: Exception) -> str:
    # Pydantic continues with advice about settings that users cannot reach here.
    return storable_text(str(error).split(". ")[0].split("\n")[0], 300)
