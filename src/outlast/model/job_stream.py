"""The jobs of a long iterator of calls, in parts of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

from .errors import InvalidArguments, InvalidOption, Problem
from .ids import new_job_ids
from .job import NewJob
from .task import Call

MAX_PART_JOBS = 1000
MAX_PART_CHARS = 1_000_000  # of arguments


class PartBuilder:
    """Makes jobs of calls, and collects them until a part is full."""

    def __init__(self, limit: int) -> None:
        self._limit = limit  # bytes of one job's arguments
        self._ids: Iterator[str] = iter(())
        self._part: list[NewJob] = []
        self._chars = 0
        self._number = 0

    def add(self, call: object) -> list[NewJob] | None:
        """Add a call; returns the part that it completes."""
        if not isinstance(call, Call) or call.options.after or call.options.flow:
            raise InvalidOption(
                option="jobs",
                reason="of an iterator must be made with task.job(…) and wait for no others;"
                f" number {self._number} is {call!r:.80}",
            )
        try:
            job = call.new_job(self._next_id(), self._limit)
        except InvalidArguments as error:
            where = f"job {self._number}"
            found = [Problem(f"{where}: {p}" if p else where, m) for p, m in error.problems]
            raise InvalidArguments(error.task, found) from None
        self._number += 1
        self._part.append(job)
        self._chars += len(job.args)
        full = len(self._part) >= MAX_PART_JOBS or self._chars >= MAX_PART_CHARS
        return self.take() if full else None

    def take(self) -> list[NewJob]:
        """The part as it is."""
        part, self._part, self._chars = self._part, [], 0
        return part

    def _next_id(self) -> str:
        if (id := next(self._ids, None)) is None:
            self._ids = iter(new_job_ids(MAX_PART_JOBS))
            id = next(self._ids)
        return id
