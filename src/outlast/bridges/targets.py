"""Where a message goes, and how an address is shown: the same for every broker."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..model.errors import InvalidOption
from .protocols import Message

Target = str | Callable[[Message], str]  # one name for all messages, or a function of the message


def check_target(option: str, target: object) -> None:
    """Refuse anything but a name or a function."""
    if callable(target) or (isinstance(target, str) and target):
        return
    reason = f"must be a name, or a function of the message, not {target!r:.80}"
    raise InvalidOption(option=option, reason=reason)


def name_of(target: Target, message: Message) -> str:
    return target if isinstance(target, str) else target(message)


def shown(target: Target) -> str:
    """For people."""
    return target if isinstance(target, str) else getattr(target, "__name__", "by message")


def without_password(url: str) -> str:
    return re.sub(r"//[^@/,]*@", "//", url.partition("?")[0])
