"""The Redis lists of a Celery queue: messages are taken and held until they are stored.

    LPUSH by producers ─▶ [celery] ─▶ RPOP, HSET, ZADD (one script) ─▶ HDEL, ZREM once it is stored
                                        ▲                  │
                                        └── taken again ◀──┘ held longer than `idle` seconds

A message is always in a list or in the hash: a kill at any point loses none. Once taken, it does
not return to the list, where a Celery worker might run a task that is already a job. Celery's own
structures (`unacked`, `unacked_index`) are left alone. Kombu keeps a list for each of four
priorities, the first of which has the queue's own name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from ..model.ids import new_instance_id
from ..model.options import seconds
from .client_library import require_client
from .protocols import Message
from .redis_connection import RedisConnection, redis_outages

DEFAULT_IDLE_S = 60.0
POLL_MIN_S, POLL_MAX_S = 0.05, 0.5
PRIORITY_STEPS = (0, 3, 6, 9)
SEPARATOR = "\x06\x16"

# KEYS of all scripts: the lists, the hash, the index.
# ARGV: the limit, a name for this call, the seconds after which a held message is taken again.
TAKE = """
local lists, hash, index, limit = #KEYS - 2, KEYS[#KEYS - 1], KEYS[#KEYS], tonumber(ARGV[1])
local time, found = redis.call('TIME'), {}
local now = time[1] + time[2] / 1000000
local function take(id, raw)
    redis.call('ZADD', index, now, id)
    found[#found + 1] = id
    found[#found + 1] = raw
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', now - ARGV[3], 'LIMIT', 0, limit)) do
    local raw = redis.call('HGET', hash, id)
    if raw then take(id, raw) else redis.call('ZREM', index, id) end
end
for i = 1, lists do
    while #found < 2 * limit do
        local raw = redis.call('RPOP', KEYS[i])
        if not raw then break end
        local id = i .. ':' .. ARGV[2] .. ':' .. #found
        redis.call('HSET', hash, id, raw)
        take(id, raw)
    end
end
return found
"""
# ARGV: the limit.
GIVE_BACK = """
local hash, index = KEYS[#KEYS - 1], KEYS[#KEYS]
local ids = redis.call('ZREVRANGE', index, 0, ARGV[1] - 1)
for _, id in ipairs(ids) do
    local raw = redis.call('HGET', hash, id)
    if raw then redis.call('RPUSH', KEYS[tonumber(string.match(id, '^%d+'))], raw) end
    redis.call('HDEL', hash, id)
    redis.call('ZREM', index, id)
end
return #ids
"""
GIVE_BACK_AT_ONCE = 1000


class CeleryList:
    """A source: the raw messages of one queue."""

    def __init__(
        self, url: str, queue: str, prefix: str, idle: float | None, redelivery: float
    ) -> None:
        require_client("redis", "redis", "A queue of Celery in Redis")
        self._connection = RedisConnection(url)
        self._queue = queue
        names = [queue, *(f"{queue}{SEPARATOR}{step}" for step in PRIORITY_STEPS if step)]
        self._lists = [f"{prefix}{name}" for name in names]
        self._hash = f"{prefix}outlast-taken:{queue}"
        self._index = f"{prefix}outlast-taken-at:{queue}"
        self._idle = seconds("idle", idle, above=0.0) or DEFAULT_IDLE_S
        self.redelivery = seconds("redelivery", redelivery) or 0.0

    async def open(self) -> None:
        await self._connection.open()

    async def close(self) -> None:
        await self._connection.close()

    async def _script(self, text: str, *given: Any) -> Any:
        keys = [*self._lists, self._hash, self._index]
        with redis_outages():
            return await self._connection.client.eval(text, len(keys), *keys, *given)

    async def receive(self, limit: int, wait: float) -> Sequence[Message]:
        """Messages whose hold has expired, else those of the lists, by priority."""
        until, pause = time.monotonic() + wait, POLL_MIN_S
        while True:
            if found := await self._script(TAKE, limit, new_instance_id(), self._idle):
                return [
                    Message(id.decode(), raw, receipt=id)
                    for id, raw in zip(found[::2], found[1::2], strict=True)
                ]
            if (left := until - time.monotonic()) <= 0:
                return []
            await asyncio.sleep(min(pause, left))
            pause = min(POLL_MAX_S, pause * 1.5)

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        ids = [one.receipt for one in messages]
        with redis_outages():
            async with self._connection.client.pipeline(transaction=True) as pipe:
                pipe.hdel(self._hash, *ids)
                pipe.zrem(self._index, *ids)
                await pipe.execute()

    async def hand_back(self, messages: Sequence[Message]) -> None:
        """Release held messages, but not to the list: a commit whose response was lost may have
        stored them as jobs."""
        with redis_outages():
            await self._connection.client.zadd(
                self._index, dict.fromkeys((m.receipt for m in messages), 0)
            )

    async def give_back(self) -> int:
        """Return all held messages to Celery's lists."""
        moved = 0
        while found := await self._script(GIVE_BACK, GIVE_BACK_AT_ONCE):
            moved += found
        return moved

    async def lag(self) -> int | None:
        """The number of messages in the lists, and of those that were taken and are not stored."""
        with redis_outages():
            async with self._connection.client.pipeline(transaction=False) as pipe:
                for name in self._lists:
                    pipe.llen(name)
                pipe.hlen(self._hash)
                return int(sum(await pipe.execute()))

    def __repr__(self) -> str:
        return f"Redis {self._connection!r}"
