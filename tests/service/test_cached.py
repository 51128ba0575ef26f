"""Snapshots that are expensive to read are read once for all who ask."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from outlast import cached
from outlast.cached import Cached, Snapshot


@dataclass(slots=True)
class Number(Snapshot):
    value: int


class Reads:
    """A source that numbers its reads; each waits until it is let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self) -> Number:
        self.begun += 1
        number = self.begun
        await self.go.wait()
        return Number(number)


async def test_all_callers_without_a_snapshot_wait_for_one_read() -> None:
    reads = Reads()
    cache = Cached(reads, 60.0)
    assert {one.value for one in await asyncio.gather(*(cache.latest() for _ in range(20)))} == {1}
    assert (await cache.latest()).value == 1


async def test_an_older_snapshot_is_returned_at_once_while_the_next_is_read() -> None:
    reads = Reads()
    cache = Cached(reads, 60.0)
    first = await cache.latest()
    first.taken_at -= 61.0
    reads.go.clear()
    assert await cache.latest() is first and await cache.latest() is first
    assert await cache.latest_within(0.0) is first
    reads.go.set()
    newest = await cache.latest_within(60.0)
    assert newest is not None and (newest.value, reads.begun) == (2, 2)


async def test_a_stale_snapshot_is_returned_only_if_the_next_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads = Reads()
    cache = Cached(reads, 60.0)
    first = await cache.latest()
    first.taken_at -= 1000.0
    reads.go.clear()
    monkeypatch.setattr(cached, "STALE_WAIT_S", 0.01)
    assert await cache.latest() is first
    monkeypatch.setattr(cached, "STALE_WAIT_S", 60.0)
    waiting = asyncio.create_task(cache.latest())
    await asyncio.sleep(0)
    reads.go.set()
    assert (await waiting).value == 2


async def test_the_longer_a_read_takes_the_longer_it_is_fresh() -> None:
    """Reading takes at most one part in so many of the time."""

    async def slow() -> Number:
        await asyncio.sleep(0.02)
        return Number(1)

    assert (await Cached(slow, 0.0, cost_factor=50).latest()).fresh_for >= 50 * 0.02


async def test_a_read_that_fails_leaves_the_last_snapshot() -> None:
    reads = Reads()
    cache = Cached(reads, 60.0)
    first = await cache.latest()
    first.taken_at -= 61.0

    async def fail() -> Number:
        raise ValueError("away")

    cache._read = fail
    with pytest.raises(ValueError, match="away"):
        await cache.latest_within(60.0)
    assert await cache.latest() is first is cache.last
