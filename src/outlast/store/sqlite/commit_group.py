"""Group commit: statements of threads that wait for the writer share a transaction.

    thread 1 ── leads: waits for the writer, runs the statements of all, commits ─┬▶ result
    thread 2 ── follows ──────────────────────────────────────────────────────────┼▶ result
    thread 3 ── follows ──────────────────────────────────────────────────────────┴▶ result

While a commit is on its way to the disk, the next group gathers. No thread waits for others to
join, so a single thread is as fast as without groups. If anything fails, all of it is rolled back,
and each thread runs its own operation alone, for an error of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...ops.operation import BEGIN, CommitPipeline, Step
from .session import SqliteSession


class PendingCommit:
    """The statement of one thread, and its result once that is committed."""

    __slots__ = ("answer", "leads", "over", "step")

    def __init__(self, step: CommitPipeline, leads: bool) -> None:
        self.step = step
        self.leads = leads
        self.answer: object = None  # None: not committed
        self.over = threading.Lock()  # released when the group is over, committed or not
        self.over.acquire()


class CommitGroup:
    """The threads that wait for the writer, led by the first of them."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._members: list[PendingCommit] = []

    def __len__(self) -> int:
        return len(self._members)

    def join(self, step: Step) -> PendingCommit | None:
        """Wait for the writer with this statement; None: the operation has more than one."""
        if not isinstance(step, CommitPipeline) or len(step) > 1:
            return None
        with self._mutex:
            member = PendingCommit(step, leads=not self._members)
            self._members.append(member)
        return member

    @contextmanager
    def closed(self) -> Iterator[Sequence[PendingCommit]]:
        """The group, for its leader: from now on another one gathers. At the end it is over."""
        with self._mutex:
            members, self._members = self._members, []
        try:
            yield members
        finally:
            for member in members:
                member.over.release()


def commit_together(members: Sequence[PendingCommit], session: SqliteSession) -> None:
    """Run all statements in one transaction; they have results if, and only if, it commits."""
    with session:
        session.execute_step(BEGIN)
        answers = [session.execute_step(member.step) for member in members]
    for member, answer in zip(members, answers, strict=True):
        member.answer = answer
