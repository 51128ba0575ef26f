"""What a job costs the worker's event loop: calls of its functions, counted and not timed."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

import outlast
from outlast import Outlast
from outlast.worker import capacity, finisher
from tests.support import aeventually
from tests.worker.working import work

PACKAGE = str(Path(outlast.__file__).parent)
NUMBER = 3000


@pytest.mark.kinds("sqlite")  # whose statements run in another thread
async def test_a_plain_job_costs_few_calls(ol: Outlast, monkeypatch: pytest.MonkeyPatch) -> None:
    """R180: thirty-eight as this is written."""
    for module in (finisher, capacity):
        monkeypatch.setattr(module, "SHORT_HANDLER_S", 60.0)
    monkeypatch.setattr(capacity, "AHEAD_S", 1000.0)
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, given: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls[frame.f_code.co_qualname] += 1

    @ol.task
    async def short(n: int) -> None: ...

    await ol.aenqueue(*map(short.job, range(NUMBER)))
    async with work(ol, concurrency=100) as worker:
        await aeventually(lambda: worker.counts["succeeded"] >= NUMBER / 10)
        before = worker.counts["succeeded"]
        sys.setprofile(count)
        try:
            await aeventually(lambda: worker.counts["succeeded"] == NUMBER, timeout=60)
        finally:
            sys.setprofile(None)
    assert calls.total() <= 40 * (NUMBER - before), calls.most_common(30)
