"""Secret arguments, shown only to the handler: `Annotated[str, Secret]`.

    stored   {"user": 7, "secret:card": "4111…"}   the row keeps the value and the mark
    shown    {"user": 7, "card": "***"}            in every report of a job
    called   charge(user=7, card="4111…")

The mark is stored in the row, so that a server, a dashboard or a command line without the task's
code masks the value, too.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Annotated

MARK = "secret:"
MASK = "***"
MIN_MASKED_CHARS = 4  # characters; shorter values are not masked in errors


class Secret:
    """Marks a parameter of a task: `def charge(user: int, card: Annotated[str, Secret])`."""


def is_secret(hint: object) -> bool:
    """Whether a type, or a part of it, is marked: `Annotated[str, Secret] | None`."""
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is Annotated and any(map(_is_mark, inner[1:])):
        return True
    return any(map(is_secret, inner))


def _is_mark(mark: object) -> bool:
    return mark is Secret or isinstance(mark, Secret)


def masked_args(args: object) -> object:
    """A job's arguments with secrets masked."""
    if not isinstance(args, dict):
        return args
    if not any(name.startswith(MARK) for name in args):
        return args
    return {
        name.removeprefix(MARK): MASK if name.startswith(MARK) else value
        for name, value in args.items()
    }


def mark_secrets(text: str, secrets: Collection[str]) -> str:
    """The text of a call with these arguments marked as secret."""
    return _renamed(text, lambda name: MARK + name if name in secrets else name)


def unmark_secrets(text: str, secrets: Collection[str]) -> str:
    """The text of a call without marks, for the call itself. A client without the task's code may
    have marked none, or others."""
    marks = {MARK + name: name for name in secrets}
    return _renamed(text, lambda name: marks.get(name, name))


def secret_values(calls: Iterable[Mapping[str, object]], secrets: Iterable[str]) -> tuple[str, ...]:
    """The words that would reveal the values of these arguments, the longest first."""
    named = [call[name] for call in calls for name in secrets if name in call]
    words = {word for value in named for word in _words(value)}
    return tuple(
        sorted((word for word in words if len(word) >= MIN_MASKED_CHARS), key=len, reverse=True)
    )


def mask(error: dict[str, str], values: Iterable[str]) -> dict[str, str]:
    """An error record with these words masked."""
    for value in values:
        error = {name: text.replace(value, MASK) for name, text in error.items()}
    return error


def json_object_or_empty(text: str) -> dict[str, object]:
    """Parse a JSON object; anything else gives an empty one."""
    try:
        stored = json.loads(text)
    except ValueError:
        return {}
    return stored if isinstance(stored, dict) else {}


def _renamed(text: str, new_name: Callable[[str], str]) -> str:
    if not (stored := json_object_or_empty(text)):
        return text
    renamed = {new_name(name): value for name, value in stored.items()}
    return json.dumps(renamed, ensure_ascii=False, separators=(",", ":"))


def _words(value: object) -> Iterator[str]:
    match value:
        case None | bool():
            return
        case Mapping():
            for inner in value.values():
                yield from _words(inner)
        case list() | tuple() | set() | frozenset():
            for inner in value:
                yield from _words(inner)
        case _:
            yield from _spellings(value)


def _spellings(value: object) -> Iterator[str]:
    """The value's text, plain and as a traceback or message would show it."""
    for spelling in (str, repr):
        try:
            yield spelling(value).strip("'\"")
        except Exception:  # noqa: S112 - a user's own type: no error contains such text
            continue
