"""Arguments that verbs share: checks of ids, filters and limits, and the name of the actor."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from ..model.errors import InvalidOption, JobNotFound
from ..model.job import Job
from ..model.lifecycle import State
from ..model.options import check_name
from ..model.safe_text import MESSAGE_LIMIT, storable_text
from ..ops.report import Filter

Names: TypeAlias = str | Iterable[str] | None

ANY_QUEUE = ""  # a notification for workers of every queue
MAX_ACTOR_CHARS = 200  # characters of an actor's name
MAX_ROWS = 1_000_000_000  # rows of one list


def actor() -> str:
    """The actor's name, for the record."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return storable_text(f"{user}@{socket.gethostname()}", MAX_ACTOR_CHARS)


def job_id(id: str | Job[Any]) -> str:
    """Normalize a job id, or take that of a job; other text names no job."""
    if isinstance(id, Job):
        return id.id
    try:
        return str(UUID(str(id)))
    except ValueError:
        text = f"{id!r:.80} is not a job id: `outlast jobs` lists them"
        raise JobNotFound(text, job=id) from None


def job_filter(
    state: str | None,
    queue: str | None,
    task: str | None,
    tenant: str | None,
    states: Sequence[State] | None = None,
) -> Filter:
    """A filter of jobs; `states`: those that the verb applies to, if not all."""
    if (state is not None or states is not None) and state not in (states or tuple(State)):
        listed = ", ".join(states or State)
        raise InvalidOption(option="state", reason=f"must be one of {listed}, not {state!r:.80}")
    for name, value in (("queue", queue), ("task", task), ("tenant", tenant)):
        if value is not None and (not isinstance(value, str) or "\0" in value):
            raise InvalidOption(option=name, reason=f"must be text, not {value!r:.80}")
    return Filter(state and str(state), queue, task, tenant)


def check_text(option: str, value: str) -> str:
    """Validate a text argument that names something."""
    if not isinstance(value, str):
        raise InvalidOption(option=option, reason=f"must be text, not {value!r:.80}")
    return value


def check_reason(reason: str | None) -> str:
    """A reason as stored: like an error's message, never refused for its characters or length."""
    return storable_text(check_text("reason", "" if reason is None else reason), MESSAGE_LIMIT)


def check_names(option: str, given: Names) -> list[str]:
    """One name or several, as a list."""
    if given is None:
        return []
    try:
        names = [given] if isinstance(given, str) else list(given)
    except TypeError:
        names = [given]  # type: ignore[list-item]  # refused below
    return [check_name(option, name) for name in names]


def check_limit(limit: int) -> int:
    """Validate the maximum number of rows of a list."""
    whole = isinstance(limit, int) and not isinstance(limit, bool)
    if not whole or not 0 <= limit <= MAX_ROWS:
        reason = f"must be a whole number from 0 to {MAX_ROWS}, not {limit!r:.80}"
        raise InvalidOption(option="limit", reason=reason)
    return limit
