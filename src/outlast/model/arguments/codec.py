"""Encode and decode arguments; needs pydantic, so it is imported with the first enqueue or run.

A value is accepted only if its JSON text, read back, gives an equal value. There is no list of
permitted types that could have a gap.

    given ─▶ refuse unstorable ─▶ validate strictly ─▶ write ─▶ read back ─▶ equal? ─▶ text

`encode_fast` does this at once for a whole call. If it fails, `encode_checked` repeats it for each
argument, to name every problem.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from ..errors import InvalidArguments, Problem
from ..safe_text import error_summary, storable_text
from .fast_check import is_plain
from .jsontext import Writer, oversized, suspicious, type_adapter
from .parameters import adapter_of
from .roundtrip import differences
from .signature import Signature
from .storable import MAX_PAYLOAD, MAX_PROBLEMS, examine, unstorable
from .value_path import actual_path, overlaps, render

_MESSAGES = {"missing": "is missing", "extra_forbidden": "is not expected here"}

Values = dict[str, object]


class Codec:
    """Writes and reads the arguments of one task."""

    def __init__(self, task: str, signature: Signature) -> None:
        adapter = adapter_of(task, signature)
        self.task = task
        self.required = signature.required
        self._validator = adapter.validator
        self._writer = Writer(adapter.serializer)

    def encode_fast(self, given: Values, limit: int = MAX_PAYLOAD) -> str | None:
        """The text of these arguments, or None if anything is doubtful."""
        try:
            if not is_plain(given, limit) and unstorable(given, (), limit):
                return None
            self._check(given)
            text = self._writer.write(given)
            sound = len(text) <= limit and not suspicious(text) and self._read(text) == given
            return text.decode() if sound else None
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # `encode_checked` meets it again and names it
            return None

    def encode_checked(self, given: Values, limit: int = MAX_PAYLOAD) -> tuple[str, list[Problem]]:
        """The text, or every problem with these arguments."""
        if problems := [one for item in given.items() for one in self._examine(*item, limit)]:
            return "", _at_most(MAX_PROBLEMS, problems)
        text, problems = self._writer.write_checked(given, "", limit)
        return text.decode(), problems or oversized(text, "the arguments take", limit)

    def read(self, text: str) -> Values:
        """The arguments as their annotated types."""
        try:
            values = self._read(text)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            raise InvalidArguments(self.task, self._unreadable(text, error)) from None
        if not self.required <= values.keys():
            raise InvalidArguments(self.task, self.missing(values))
        return values

    def missing(self, given: Mapping[str, object]) -> list[Problem]:
        return [Problem(name, "is missing") for name in sorted(self.required - given.keys())]

    def _check(self, given: Values) -> Any:
        return self._validator.validate_python(given, strict=True)

    def _read(self, text: str | bytes) -> Values:
        values: Values = self._validator.validate_json(text, by_alias=False, by_name=True)
        return values

    def _examine(self, name: str, value: object, limit: int) -> list[Problem]:
        one = {name: value}
        walk = examine(one, (), limit)
        found = list(walk.problems)
        if walk.endless:
            return found
        checked: Values = {}
        found += _unrelated_problems(
            found, _validation_problems(lambda: checked.update(self._check(one)), one)
        )
        if changed := self._not_equal(one, render([name]), limit):
            # If validation alone changes the value (a dictionary to a model), report only that.
            found += _unrelated_problems(found, _different(one, checked) if checked else [])
            found += _unrelated_problems(found, changed)
        return found

    def _not_equal(self, one: Values, path: str, limit: int) -> list[Problem]:
        text, problems = self._writer.write_checked(one, path, limit)
        if not text:
            return problems
        back: Values = {}
        if unread := _validation_problems(lambda: back.update(self._read(text)), one):
            return problems + [Problem(p.path, f"does not come back: {p.message}") for p in unread]
        return problems + _different(one, back)

    def _unreadable(self, text: str, error: BaseException) -> list[Problem]:
        try:
            stored = json.loads(text)
        except Exception as reason:
            return [Problem("", f"what is stored is not JSON: {error_summary(reason)}")]
        if not isinstance(stored, dict):
            return [Problem("", "what is stored is not a JSON object")]
        found = self.missing(stored)
        for name, value in stored.items():
            found += self._stored_problems({name: value})
        return found or [Problem("", error_summary(error))]

    def _stored_problems(self, one: Values) -> list[Problem]:
        return _validation_problems(lambda: self._read(json.dumps(one)), one)


def read_value(value: object, annotation: object) -> tuple[object, list[Problem]]:
    """A JSON value as the annotated type, and the problems with it."""
    adapter, text = type_adapter(annotation), to_json(value)
    read: list[Any] = []
    problems = _validation_problems(
        lambda: read.append(adapter.validate_json(text, by_alias=False, by_name=True)), value, []
    )
    return read[0] if read else None, problems


def _different(given: Values, back: Values) -> list[Problem]:
    return list(islice(differences(given, back), MAX_PROBLEMS + 1))


def _unrelated_problems(known: list[Problem], more: list[Problem]) -> list[Problem]:
    """Drop the problems of later steps at paths that earlier steps have named better."""
    return [each for each in more if not any(overlaps(each.path, one.path) for one in known)]


def _at_most(limit: int, problems: list[Problem]) -> list[Problem]:
    if len(problems) <= limit:
        return problems
    return [*problems[:limit], Problem("", "and there are more problems")]


def _validation_problems(
    check: Callable[[], object], values: Any, root: list[object] | None = None
) -> list[Problem]:
    """The problems that validation finds in one argument, or in a value at `root`; a user's
    validator may raise anything."""
    root = list(values) if root is None else root
    try:
        try:
            check()
        except ValidationError as error:
            return list(_located(error, values, root))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return [Problem(render(root), f"its validation raised {error_summary(error)}")]
    return []


def _located(error: ValidationError, values: object, root: list[object]) -> Iterator[Problem]:
    # A union reports one error per branch, all at the same path.
    by_path: dict[str, list[str]] = {}
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    for each in errors[: MAX_PROBLEMS + 1]:
        kind = each["type"]
        path = render(actual_path(each["loc"], values, missing=kind == "missing") or root)
        by_path.setdefault(path, []).append(_MESSAGES.get(kind) or storable_text(each["msg"], 300))
    for path, messages in by_path.items():
        yield Problem(path, "; or ".join(dict.fromkeys(messages)))
