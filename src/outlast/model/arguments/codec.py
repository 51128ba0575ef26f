"""The half of arguments that needs pydantic, imported when a task is first enqueued or run.

Nothing is taken on trust: a value is accepted only if its JSON text, read back, gave an equal
value. So what may be enqueued is not a list of rules that could have a gap.

    given ─▶ look for the unstorable ─▶ validate strictly ─▶ write ─▶ read back ─▶ equal? ─▶ text

`proven` does that at once for a whole call. When it says no, `careful` does it again for each
argument, to name everything that is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import ValidationError

from ..errors import InvalidArguments, Problem
from ..text import brief, clean
from .jsontext import Writer, oversized, suspicious
from .parameters import adapter_of
from .paths import real, related, render
from .plain import plain
from .roundtrip import differences
from .signature import Signature
from .storable import MAX_PAYLOAD, MAX_PROBLEMS, look, unstorable

_OUR_WORDS = {"missing": "is missing", "extra_forbidden": "is not expected here"}

Arguments = dict[str, Any]


class Codec:
    """Writes and reads the arguments of one task."""

    def __init__(self, task: str, signature: Signature) -> None:
        adapter = adapter_of(task, signature)
        self.task = task
        self.required = signature.required
        self._validator = adapter.validator
        self._writer = Writer(adapter.serializer)

    def proven(self, given: Arguments, limit: int = MAX_PAYLOAD) -> str | None:
        """The text of these arguments, or None if anything at all is doubtful."""
        try:
            if not plain(given, limit) and unstorable(given, (), limit):
                return None
            self._check(given)
            text = self._writer.write(given)
            sound = len(text) <= limit and not suspicious(text) and self._read(text) == given
            return text.decode() if sound else None
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # `careful` will meet it again and name it
            return None

    def careful(self, given: Arguments, limit: int = MAX_PAYLOAD) -> tuple[str, list[Problem]]:
        """The text, or everything that is wrong with these arguments."""
        if problems := [one for item in given.items() for one in self._examine(*item, limit)]:
            return "", _at_most(MAX_PROBLEMS, problems)
        text, problems = self._writer.careful(given, "", limit)
        return text.decode(), problems or oversized(text, "the arguments take", limit)

    def read(self, text: str) -> Arguments:
        """The arguments as the annotated types."""
        try:
            values = self._read(text)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            raise InvalidArguments(self.task, self._unreadable(text, error)) from None
        if not self.required <= values.keys():
            raise InvalidArguments(self.task, self.missing(values))
        return values

    def missing(self, given: Mapping[str, Any]) -> list[Problem]:
        return [Problem(name, "is missing") for name in sorted(self.required - given.keys())]

    def _check(self, given: Arguments) -> Any:
        return self._validator.validate_python(given, strict=True)

    def _read(self, text: str | bytes) -> Arguments:
        values: Arguments = self._validator.validate_json(text, by_alias=False, by_name=True)
        return values

    def _examine(self, name: str, value: object, limit: int) -> list[Problem]:
        one = {name: value}
        walk = look(one, (), limit)
        found = list(walk.problems)
        if walk.endless:
            return found
        checked: Arguments = {}
        found += _news(found, _complaints(lambda: checked.update(self._check(one)), one))
        if changed := self._not_equal(one, render([name]), limit):
            # Where validation alone changes it, as it makes a model of a dictionary, say just that.
            found += _news(found, _different(one, checked) if checked else [])
            found += _news(found, changed)
        return found

    def _not_equal(self, one: Arguments, path: str, limit: int) -> list[Problem]:
        text, problems = self._writer.careful(one, path, limit)
        if not text:
            return problems
        back: Arguments = {}
        if unread := _complaints(lambda: back.update(self._read(text)), one):
            return problems + [Problem(p.path, f"does not come back: {p.message}") for p in unread]
        return problems + _different(one, back)

    def _unreadable(self, text: str, error: BaseException) -> list[Problem]:
        try:
            stored = json.loads(text)
        except Exception as reason:
            return [Problem("", f"what is stored is not JSON: {brief(reason)}")]
        if not isinstance(stored, dict):
            return [Problem("", "what is stored is not a JSON object")]
        found = self.missing(stored)
        for name, value in stored.items():
            found += self._stored_problems({name: value})
        return found or [Problem("", brief(error))]

    def _stored_problems(self, one: Arguments) -> list[Problem]:
        return _complaints(lambda: self._read(json.dumps(one)), one)


def _different(given: Arguments, back: Arguments) -> list[Problem]:
    return list(islice(differences(given, back), MAX_PROBLEMS + 1))


def _news(known: list[Problem], more: list[Problem]) -> list[Problem]:
    """Later steps stumble over what earlier ones have named better."""
    return [each for each in more if not any(related(each.path, one.path) for one in known)]


def _at_most(limit: int, problems: list[Problem]) -> list[Problem]:
    if len(problems) <= limit:
        return problems
    return [*problems[:limit], Problem("", "and there are more problems")]


def _complaints(check: Callable[[], object], values: Arguments) -> list[Problem]:
    """What a check says about one argument; a user's validator may raise anything."""
    try:
        try:
            check()
        except ValidationError as error:
            return list(_located(error, values))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return [Problem(render(list(values)), f"its validation raised {brief(error)}")]
    return []


def _located(error: ValidationError, values: Arguments) -> Iterator[Problem]:
    # A union complains once for each branch, all at the same place.
    by_path: dict[str, list[str]] = {}
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    for each in errors[: MAX_PROBLEMS + 1]:
        kind = each["type"]
        path = render(real(each["loc"], values, missing=kind == "missing") or list(values))
        by_path.setdefault(path, []).append(_OUR_WORDS.get(kind) or clean(each["msg"], 300))
    for path, messages in by_path.items():
        yield Problem(path, "; or ".join(dict.fromkeys(messages)))
