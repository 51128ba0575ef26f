"""Arguments: convert the call of one task to JSON text, and back.

The promise: accepted arguments come back equal, and all others are refused at the call, with every
problem named. Nothing is left to fail when the job runs.

Omitted arguments are not stored: when the job runs, Python fills in the default that the function
has then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArguments, Problem, ResultMismatch
from ..lazy_property import lazy
from ..message import PREFIX as MESSAGE_PREFIX
from ..message import split_message
from ..secret import (
    MARK,
    is_secret,
    json_object_or_empty,
    mark_secrets,
    secret_values,
    unmark_secrets,
)
from .batch_item import ITEM, read_item_signature
from .signature import parameters_of, read_signature
from .storable import MAX_PAYLOAD
from .value_path import render

if TYPE_CHECKING:
    from .codec import Codec

HIDDEN_PROBLEM = "does not match the task; details are withheld, because it is secret"
_SAFE_MESSAGES = {"is missing", "is given twice, by position and by name"}
PLAIN_TYPES = (int, bool)  # results of these types are JSON text without a serialiser
MAX_PLAIN_INT = 2**63

__all__ = [
    "MAX_PAYLOAD",
    "Arguments",
    "ItemArguments",
    "decode_result",
    "encode_result",
    "parameters_of",
]


class Arguments:
    """The arguments of one task."""

    def __init__(
        self, function: Callable[..., object], task: str, context_type: type | None = None
    ) -> None:
        self.task = task
        self._signature = read_signature(function, task, context_type)
        # The parameter that the worker fills in; it is not part of the text.
        self.context_parameter = self._signature.context

    @property
    def positional(self) -> tuple[str, ...]:
        """The parameters that may be given by position."""
        return self._signature.positional

    @property
    def returns(self) -> Any:
        """The annotated type of the result, for `encode_result`."""
        return self._signature.returns

    def encode(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], limit: int = MAX_PAYLOAD
    ) -> str:
        """The JSON object that stores this call, in at most `limit` bytes."""
        given, problems = self._bind(args, kwargs)
        if not problems and (text := self._codec.encode_fast(given, limit)) is not None:
            return mark_secrets(text, self.secrets) if self.secrets else text
        text, found = self._codec.encode_checked(given, limit)
        if problems or found:
            raise self._refusal(problems + found)
        return mark_secrets(text, self.secrets) if self.secrets else text

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The given arguments by name, unchanged."""
        return self._bind(args, kwargs)[0]

    def decode(self, text: str) -> dict[str, Any]:
        """The keyword arguments for the call, converted to the annotated types."""
        if text.startswith(MESSAGE_PREFIX):
            text = split_message(text, self.task)
        try:
            values = self._codec.read(
                unmark_secrets(text, self._signature.hints) if MARK in text else text
            )
        except InvalidArguments as error:
            raise self._refusal(error.problems, stored=True) from None
        if self._signature.context in values:
            raise InvalidArguments(self.task, [self._unexpected(str(self.context_parameter))])
        return values

    @lazy
    def secrets(self) -> frozenset[str]:
        """The parameters whose values must not be shown."""
        return frozenset(name for name, hint in self._signature.hints.items() if is_secret(hint))

    def secret_values(self, text: str) -> tuple[str, ...]:
        """The words that would reveal the secrets of a call: as stored, and as passed to the
        function. Called only after an error."""
        if not self.secrets:
            return ()
        stored = json_object_or_empty(unmark_secrets(text, self.secrets))
        try:
            given = self.decode(text)
        except InvalidArguments:
            given = {}
        return secret_values((stored, given), self.secrets)

    def _refusal(self, problems: Iterable[Problem], stored: bool = False) -> InvalidArguments:
        """The refusal of these arguments. A problem could reveal a secret value: it is withheld."""
        if self.secrets:
            problems = dict.fromkeys(self._redact(problem, stored) for problem in problems)
        return InvalidArguments(self.task, list(problems))

    def _redact(self, problem: Problem, stored: bool) -> Problem:
        name = re.split(r"[.\[]", problem.path, maxsplit=1)[0]
        about_all = stored and not name  # it may quote any stored value
        if problem.message in _SAFE_MESSAGES or not (name in self.secrets or about_all):
            return problem
        return Problem(name, HIDDEN_PROBLEM)

    @lazy
    def _codec(self) -> Codec:
        # Pydantic takes a tenth of a second to import: spare processes that only import outlast.
        from .codec import Codec

        return Codec(self.task, self._signature)

    def _bind(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[Problem]]:
        """The given arguments by name, and the problems with the names.

        In the order of the signature, so that two spellings of one call are stored as one text.
        """
        known = self._signature.hints
        by_name = kwargs
        if args:
            by_name = {**kwargs, **dict(zip(self._signature.positional, args, strict=False))}
        given = {name: by_name[name] for name in known if name in by_name}
        if len(given) < len(by_name) and self._signature.takes_more:
            more = by_name.keys() - known.keys() - {self.context_parameter}
            given |= {name: by_name[name] for name in sorted(more)}
        if len(given) == len(args) + len(kwargs) and self._signature.required <= given.keys():
            return given, []
        return given, list(self._binding_problems(args, kwargs, given))

    def _binding_problems(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], given: dict[str, Any]
    ) -> Iterator[Problem]:
        positional = self._signature.positional
        for index in range(len(positional), len(args)):
            yield Problem(f"[{index}]", f"only {len(positional)} can be given by position")
        for name in positional[: len(args)]:
            if name in kwargs:
                yield Problem(name, "is given twice, by position and by name")
        for name in self._signature.hints:
            if name in self._signature.required and name not in given:
                yield Problem(name, "is missing")
        for name in kwargs:
            if name not in given:
                yield self._unexpected(name)

    def _unexpected(self, name: str) -> Problem:
        if name == self.context_parameter:
            return Problem(name, "is filled in by the worker: leave it out")
        takes = ", ".join(self._signature.hints) or "no arguments"
        return Problem(render([name]), f"is unexpected: {self.task} takes {takes}")


class ItemArguments(Arguments):
    """The argument of one job of a batch task: an item of its list."""

    def __init__(
        self, function: Callable[..., object], task: str, context_type: type | None = None
    ) -> None:
        self.task = task
        self.list_parameter, self.batch_context, self._signature = read_item_signature(
            function, task, context_type
        )
        self.context_parameter = self._signature.context

    def item(self, text: str) -> Any:
        """The item that this text stores."""
        return self.decode(text)[ITEM]

    def call(self, items: list[Any], context: Any) -> dict[str, Any]:
        """The keyword arguments for one call with these items."""
        given: dict[str, Any] = {self.list_parameter: items}
        return given | ({self.batch_context: context} if self.batch_context else {})


def encode_result(value: Any, annotation: Any = Any, limit: int = MAX_PAYLOAD) -> str | None:
    """A handler's result as JSON text; None stays None. It may come back as a simpler type."""
    if value is None:
        return None
    if (
        (kind := type(value)) in PLAIN_TYPES
        and _is_short(value)
        and (annotation is Any or annotation is kind)
    ):
        return str(value) if kind is int else str(value).lower()
    from .jsontext import write_result

    return write_result(value, annotation, limit)


def _is_short(number: int) -> bool:
    return -MAX_PLAIN_INT < number < MAX_PLAIN_INT


def decode_result(value: Any, annotation: Any, job: str, task: str) -> Any:
    """A result's JSON value as the annotated type; None stays None."""
    if annotation is Any:
        return value
    from .codec import read_value

    result, problems = read_value(value, annotation)
    if problems:
        raise ResultMismatch(job, task, problems)
    return result
