"""Bulk actions on every job that matches a filter: how many were changed, and why not the others.

127 matched, 120 were retried. Left alone: 5 running, 2 succeeded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Self

from .humanize import pluralize

REMOVED = "removed"  # the job no longer exists
TOO_RECENT = "ended too recently"
NEEDED = "needed by a flow"
BLOCKED = "blocked by a dead prerequisite"
KEY_TAKEN = "key held by another job"
UNIQUE_THERE = "unique in its queue"
NO_LANES = "in a queue without lanes"


class BulkCount(int):
    """The number of jobs that an action changed. Of the matching jobs, `left` were left alone, by
    reason: the job's state by now, or why it cannot be changed. `more` changed along with
    others."""

    left: Mapping[str, int]
    more: int

    @classmethod
    def of(cls, done: int, left: Mapping[str, int], more: int = 0) -> Self:
        made = cls(done)
        made.left, made.more = dict(left), more
        return made

    @classmethod
    def sum(cls, parts: Iterable[BulkCount]) -> Self:
        done, left, more = 0, Counter[str](), 0
        for part in parts:
            done, left, more = done + part, left + Counter(part.left), more + part.more
        return cls.of(done, left, more)

    def as_json(self) -> dict[str, object]:
        """The reasons why the count differs from the announced one."""
        return {"left": dict(self.left), "more": self.more}


def explain_difference(announced: int, done: BulkCount) -> str:
    """Why the number of changed jobs differs from the announced number."""
    sentences: list[str] = []
    if done.left:
        sentences.append(
            f"{pluralize(announced, 'job')} matched. Left alone: {list_reasons(done.left)}."
        )
    if done.more:
        sentences.append(
            f"{done.more} of these had not matched: they were dead because of the others."
        )
    if (missing := announced - done + done.more - sum(done.left.values())) > 0:
        sentences.append(f"{missing} no longer matched when their turn came.")
    elif missing < 0:
        sentences.append(f"{-missing} matched only after the count.")
    return " ".join(sentences)


def list_reasons(left: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {reason}" for reason, number in sorted(left.items()))


def pack_reasons(left: Mapping[str, int]) -> str:
    """Encode reasons as the text of one form field."""
    return ",".join(f"{reason}={number}" for reason, number in sorted(left.items()))


def unpack_reasons(text: str) -> Counter[str]:
    """Decode packed reasons; unreadable ones are dropped."""
    pairs = re.findall(r"(?:^|,)([a-z ]{1,40})=([0-9]{1,15})(?=,|$)", text)
    return Counter({reason: int(number) for reason, number in pairs})
