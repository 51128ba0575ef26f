"""Check signals: each was taken once, by a wait of its job, and none was lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from ...model.job import Job
from ...model.lifecycle import State
from ...model.wait import free_name
from ...ops.operation import Op, Rows, Statement
from ..wait_tasks import MAYBE, SIGNAL

TIMED_OUT = "timed out"


def all_signals() -> Op[Rows]:
    """Job, name, value and the wait that took it, in the order of arrival."""
    rows: Rows = yield Statement("outlast.verify:all_signals")
    return rows


def count_signals(jobs: Sequence[Job], signals: Rows) -> dict[str, int]:
    """Counts of distinct signals that arrived, of those that were taken, and of waits that timed
    out."""
    return {
        "signals": len(signals),
        "taken": sum(taken_by is not None for *_, taken_by in signals),
        "timed_out": sum(_late(job) == TIMED_OUT for job in jobs),
    }


def judge_signals(jobs: Sequence[Job], signals: Rows) -> list[str]:
    """All violations in the signals of succeeded jobs."""
    return [f"I8: {wrong}" for wrong in _wrong_signals(jobs, signals)]


def _wrong_signals(jobs: Sequence[Job], signals: Rows) -> Iterator[str]:
    sent: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for job, name, _, taken_by in signals:
        sent[job, name].append(taken_by)
    for one in jobs:
        if one.state is State.SUCCEEDED:
            yield from _of_job(one, sent[one.id, SIGNAL], sent[one.id, MAYBE])


def _of_job(job: Job, sent: list[object], maybe: list[object]) -> Iterator[str]:
    names: list[str] = []
    for _ in range(int(job.args["signals"])):
        names.append(free_name(SIGNAL, names))
    if sent != names:
        yield f"{job.id}: the signals were taken by {sent}, and should be by {names}"
    taken = [wait for wait in maybe if wait is not None]
    late = _late(job)
    expected = [MAYBE] if late == 0 else []
    if taken != expected or (job.args.get("timeout") and late not in (0, TIMED_OUT)):
        yield f"{job.id}: a signal that may come late was taken by {taken}, the result is {late!r}"


def _late(job: Job) -> object:
    """The result of the wait that may time out."""
    return job.result.get("late") if isinstance(job.result, dict) else None
