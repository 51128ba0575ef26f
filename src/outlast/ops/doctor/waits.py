"""Doctor: jobs that wait for an answer that cannot come, or whose code has changed since."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...model.humanize import format_duration, pluralize
from ..operation import Op, Rows, Statement
from ..report import WorkerInfo
from .findings import Finding

MAX_GROUPS = 1000  # of waits, and of names of steps


class AwaitedSignals(NamedTuple):
    """Jobs of a task that wait for the same signals."""

    queue: str
    task: str
    names: tuple[str, ...]
    jobs: int
    oldest: float  # seconds

    @property
    def text(self) -> str:
        verb = "waits" if self.jobs == 1 else "wait"
        names = " or ".join(self.names)
        since = format_duration(self.oldest)
        return f"{pluralize(self.jobs, 'job')} of {self.task!r} {verb} for {names} (up to {since})"


def awaited_signals() -> Op[list[AwaitedSignals]]:
    rows: Rows = yield Statement("awaited_signals", {"limit": MAX_GROUPS})
    return [
        AwaitedSignals(queue, task, tuple(json.loads(names)), int(jobs), float(oldest))
        for queue, task, names, jobs, oldest in rows
    ]


def kept_step_names() -> Op[list[tuple[str, str, int]]]:
    """Task, step, and the number of jobs that have stored the step and will start again."""
    rows: Rows = yield Statement("kept_step_names", {"limit": MAX_GROUPS})
    return [(task, step, int(jobs)) for task, step, jobs in rows]


def unanswerable_waits(
    waits: Sequence[AwaitedSignals], alive: Sequence[WorkerInfo]
) -> Iterator[Finding]:
    """Waits of tasks that no live worker knows: an answer would start nothing."""
    for wait in waits:
        serving = [worker for worker in alive if worker.serves(wait.queue)]
        if serving and not any(wait.task in worker.tasks for worker in serving):
            yield Finding(
                "unanswerable",
                f"{wait.text}, and no live worker that serves {wait.queue!r} knows the task.",
                "Deploy the code that defines it, or cancel the jobs. Answers are kept meanwhile.",
            )
