"""A sorted set of Redis for the kill tests: `orders` (sink); the source is a stream."""

from __future__ import annotations

import json
import os

import redis

from outlast.bridges import Message, Redis
from tests.bridges.redis_broker import left, put, source

__all__ = ["left", "put", "sent", "sink", "source"]


def sink() -> Redis:
    return Redis(os.environ["OUTLAST_TEST_REDIS"], zset="orders")


def sent() -> list[Message]:
    """By score, which is the time of the last send: a repeat is the same member."""
    with redis.Redis.from_url(os.environ["OUTLAST_TEST_REDIS"]) as client:
        members = [json.loads(member) for member in client.zrange("orders", 0, -1)]
    return [
        Message(one["id"], one["body"].encode(), one.get("key"), one.get("headers") or {})
        for one in members
    ]
