"""Something raises in the worker itself, between a claim and its return, at every line there is."""

from __future__ import annotations

import sys
import tracemalloc  # noqa: F401 - or it is first imported where something is being collected
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest

from outlast import Outlast, State
from outlast.worker import batches, coroutine_runner, executor, leak_check
from outlast.worker.batch import BatchAttempt
from outlast.worker.batches import Batches
from outlast.worker.coroutine_runner import CoroutineRunner
from outlast.worker.executor import Execution, InProcessExecution
from outlast.worker.finished_jobs import FinishedJobs
from outlast.worker.finisher import Finisher
from outlast.worker.in_flight import InFlightJobs
from outlast.worker.job_source import DatabaseSource
from outlast.worker.outcome_policy import OutcomePolicy
from outlast.worker.runner import JobRunner
from tests.support import aeventually
from tests.worker.working import work

BOTH = [
    JobRunner._accept,
    JobRunner.start,
    JobRunner._begin_jobs,
    JobRunner._start,
    JobRunner._begin,
    JobRunner._set_timeouts,
    JobRunner.end,
    OutcomePolicy.decide,
    OutcomePolicy._retry,
    JobRunner._log_end,
    InFlightJobs.add,
    InFlightJobs.remove,
    InFlightJobs.discard,
    InFlightJobs.take_slot,
    InFlightJobs.free_slot,
    Finisher.add,
]
ALONE = [
    CoroutineRunner.run,
    CoroutineRunner._run_batch,
    CoroutineRunner._take_next,
    CoroutineRunner._split_off,
    CoroutineRunner._run_one,
    JobRunner._done,
    executor.new_execution,
    InProcessExecution.run,
    Execution.arguments,
    Execution.returned,
    Execution.raised,
    coroutine_runner._is_unchanged,
]
ON_THE_WAY = [  # after which a queue is left alone for a while, or a lease has to run out
    DatabaseSource._claim,
    DatabaseSource._receive,
    DatabaseSource._start,
    JobRunner.accept,
    Finisher.flush_and_claim,
    Finisher._flush,
    Finisher._claim,
    Finisher._apply_finished,
    FinishedJobs.apply,
]
TOGETHER = [
    Batches.join,
    Batches._open_batch,
    Batches._wait,
    Batches._timer_fired,
    Batches._close_if_due,
    Batches._close,
    Batches._begin,
    Batches._done,
    Batches._end,
    Batches.note_filled,
    Batches.note_claim,
    BatchAttempt.run,
    BatchAttempt._attempt,
    BatchAttempt._decoded,
    BatchAttempt._returned,
    BatchAttempt._raised,
    BatchAttempt.end_item,
]

Place = tuple[CodeType, int]


def lines(functions: list[Callable[..., Any]]) -> list[Place]:
    found = []
    for code in (function.__code__ for function in functions):
        known = {line for _, _, line in code.co_lines() if line is not None}
        found += [(code, line) for line in sorted(known - {code.co_firstlineno})]
    return found


class Raised(Exception):
    """By nobody's will."""


class Trap:
    """Raises once, when a line is reached."""

    def __init__(self, at: Place) -> None:
        self.at: Place | None = at

    @property
    def sprung(self) -> bool:
        return self.at is None

    def __call__(self, frame: FrameType, event: str, given: Any) -> Any:
        return self._line if self.at is not None and frame.f_code is self.at[0] else None

    def _line(self, frame: FrameType, event: str, given: Any) -> Any:
        if event == "line" and (frame.f_code, frame.f_lineno) == self.at:
            self.at = None
            raise Raised(f"{frame.f_code.co_qualname}, line {frame.f_lineno}")
        return self._line


@contextmanager
def trap(at: Place) -> Iterator[Trap]:
    before, laid = sys.gettrace(), Trap(at)
    sys.settrace(laid)
    try:
        yield laid
    finally:
        sys.settrace(before)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leak_check, "CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr(batches, "TIMER_SLACK_S", 0.05)


@pytest.mark.kinds("sqlite")
@pytest.mark.usefixtures("impatient")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "where",
    [
        ALONE + BOTH,
        TOGETHER,
        pytest.param(TOGETHER + BOTH, marks=pytest.mark.campaign),
        pytest.param(ON_THE_WAY, marks=pytest.mark.campaign),
    ],
    ids=["alone", "together", "all-together", "on-the-way"],
)
async def test_wherever_the_worker_itself_fails_no_job_stays_in_its_hands(
    ol: Outlast, where: list[Callable[..., Any]]
) -> None:
    """R041: at each line of what carries jobs out they end, are tried again or go back, and the
    worker works on."""

    @ol.task(max_attempts=1, timeout=600)
    async def alone(fails: bool) -> str:
        if fails:
            raise ValueError("as asked")
        return "done"

    @ol.task(max_attempts=1, batch=2, wait=0.01)
    async def together(fails: list[bool]) -> None:
        if any(fails):
            raise ValueError("as asked")

    task, places = together if Batches.join in where else alone, lines(where)
    left, sprung = [], 0
    async with work(ol, concurrency=2, lease=0.6, renew_every=0.2, reclaim_every=0.1) as worker:
        worker._backoff.first = 0.01
        for at in places:
            for fails in (False, True):
                with trap(at) as laid:
                    job = await task.aenqueue(fails)
                    try:
                        await aeventually(lambda job=job: ol.job(job.id).final, 5.0)
                    except AssertionError:
                        left.append((at[0].co_qualname, at[1], str(ol.job(job.id).state)))
                if laid.sprung:
                    sprung += 1
                    break
        await aeventually(lambda: len(worker.in_flight) == 0)
        assert worker.executor.abandoned_threads == 0 and worker.executor.batches.slots == 0
        assert worker.source.capacity.free_slots() == 2, "and nobody takes a slot for nothing"
    assert left == []
    assert sprung > len(places) / 2
    assert ol.counts()[State.RUNNING] == 0
