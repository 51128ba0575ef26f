"""Targets of messages, and addresses without passwords, for all brokers."""

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
    """The target of a message. A user's function that fails for one message must not delay or
    repeat the others of a batch."""
    if isinstance(target, str):
        return target
    try:
        name: object = target(message)
    except Exception as error:
        return Retry(f"{shown(target)}, which selects the target, failed: {error_summary(error)}")
    if isinstance(name, str):
        return name
    return Retry(f"{shown(target)}, which selects the target, returned {name!r:.80}")


def shown(target: Target) -> str:
    """For people."""
    return target if isinstance(target, str) else getattr(target, "__name__", "by message")


def without_password(url: str) -> str:
    return re.sub(r"//[^@/,]*@", "//", url.partition("?")[0])
