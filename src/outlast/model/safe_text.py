"""Text that any database can store: sanitised output of users' programs."""

from __future__ import annotations

import traceback

MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 16_000

# A retry loop can chain thousands of errors, and nested groups multiply.
_MAX_CHAINED_ERRORS = 500


def storable_text(text: str, limit: int) -> str:
    """The text with NULs and lone surrogates escaped, and its middle cut out if it is too long."""
    text = str.__str__(text)  # a subclass's own methods may lie or raise
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= limit else _cut(text, limit)


def error_summary(error: BaseException) -> str:
    """An error as one line: its type and message."""
    return f"{type_name(error)}: {_message(error)}".rstrip(": ")


def error_record(error: BaseException) -> dict[str, str]:
    """The stored form of an error. It never raises, whatever the error does."""
    return {
        "type": storable_text(type_name(error), MESSAGE_LIMIT),
        "message": _message(error),
        "traceback": _traceback(error),
    }


def format_frames(error: BaseException) -> str:
    """An error's traceback without its messages: files, lines and functions."""
    try:
        return storable_text("".join(traceback.format_tb(error.__traceback__)), TRACEBACK_LIMIT)
    except BaseException:  # an error may bring a forged traceback
        return ""


def type_name(value: object) -> str:
    """The qualified name of a value's type, without `builtins.`."""
    kind = type(value)
    try:
        module = kind.__module__
        return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
    except BaseException:  # a metaclass can make even this raise
        return type.__dict__["__name__"].__get__(kind)  # type: ignore[no-any-return]


def _cut(text: str, limit: int) -> str:
    room = limit - 40  # the omission mark takes at most the rest
    if room < 2:
        return text[:limit]
    # The head of a traceback shows the call, its tail the failure: keep both.
    head = room // 2
    tail = room - head
    return f"{text[:head]}… ({len(text) - room:,} more characters) …{text[-tail:]}"


def _message(error: BaseException) -> str:
    try:
        return storable_text(str(error), MESSAGE_LIMIT)
    except BaseException as second:  # str() ran the user's code
        return f"(no message: its __str__ raised {type(second).__name__})"


def _traceback(error: BaseException) -> str:
    for form in (_full_traceback, _short_traceback):
        try:
            return storable_text(form(error), TRACEBACK_LIMIT)
        except BaseException:  # noqa: S112 – the next form asks less of the error
            continue
    return "(no traceback: it could not be formatted)"


def _full_traceback(error: BaseException) -> str:
    return (
        "".join(traceback.format_exception(error)) if _is_small(error) else _short_traceback(error)
    )


def _short_traceback(error: BaseException) -> str:
    """The traceback without causes and group members."""
    lines = traceback.format_tb(error.__traceback__)
    return "".join(["Traceback (most recent call last):\n", *lines, error_summary(error), "\n"])


def _is_small(error: BaseException) -> bool:
    seen: set[int] = set()
    pending = [error]
    for _ in range(_MAX_CHAINED_ERRORS):
        if not pending:
            return True
        link = pending.pop()
        seen.add(id(link))
        behind = (link.__cause__, link.__context__)
        pending += [one for one in behind if one is not None and id(one) not in seen]
        if isinstance(link, BaseExceptionGroup):
            pending += link.exceptions  # formatted as often as they occur
    return False
