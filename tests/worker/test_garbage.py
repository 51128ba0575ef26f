"""A process that only works is rarely searched for garbage."""

from __future__ import annotations

import gc
from typing import Any

from outlast import Outlast

JOBS = 3000
MOST_COLLECTIONS = 3  # 30 at Python's own threshold


def test_a_worker_process_collects_garbage_rarely_while_it_works(ol: Outlast) -> None:
    """R180: and afterwards, in a program that goes on, as before."""
    collections: list[dict[str, int]] = []
    frozen: list[int] = []  # objects that no collection looks at

    def collected(phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and frozen:
            collections.append(info)

    @ol.task
    async def work(n: int) -> int:
        if not frozen:
            frozen.append(gc.get_freeze_count())
        return n

    ol.enqueue(*(work.job(n) for n in range(JOBS)))
    before = gc.get_threshold()
    gc.callbacks.append(collected)
    try:
        ol.worker(concurrency=100).run(until_idle=True)
    finally:
        gc.callbacks.remove(collected)
    assert ol.counts()["succeeded"] == JOBS
    assert frozen[0] > 10_000, "modules are searched, too"
    assert len(collections) <= MOST_COLLECTIONS
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_a_program_that_disabled_the_collector_keeps_its_setting(ol: Outlast) -> None:
    """R180"""
    seen: list[tuple[int, int, int]] = []

    @ol.task
    async def look() -> None:
        seen.append(gc.get_threshold())

    look.enqueue()
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        ol.worker().run(until_idle=True)
        assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
    assert [first for first, *_ in seen] == [0]
