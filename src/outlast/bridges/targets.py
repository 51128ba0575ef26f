"""Where a message goes, and how an address is shown: the same for every broker."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..model.errors import InvalidOption
from ..model.safe_text import error_summary
from .protocols import Message, Retry

Target = str | Callable[[Message], str]  # one name for all messages, or a function of the message


def check_target(option: str, target: object) -> None:
    """Refuse anything but a name or a function."""
    if callable(target) or (isinstance(target, str) and target):
        return
    reason = f"must be a name, or a function of the message, not {target!r:.80}"
    raise InvalidOption(option=option, reason=reason)


def name_of(target: Target, message: Message) -> str | Retry:
    """The name for a message. A function of the user's own that fails for one message must not keep
    the others of a batch, or have them sent again."""
    if isinstance(target, str):
        return target
    try:
        name: object = target(message)
    except Exception as error:
        return Retry(f"{shown(target)}, which names where it goes, failed: {error_summary(error)}")
    if isinstance(name, str):
        return name
    return Retry(f"{shown(target)}, which names where it goes, returned {name!r:.80}")


def shown(target: Target) -> str:
    """For people."""
    return target if isinstance(target, str) else getattr(target, "__name__", "by message")


def without_password(url: str) -> str:
    return re.sub(r"//[^@/,]*@", "//", url.partition("?")[0])
