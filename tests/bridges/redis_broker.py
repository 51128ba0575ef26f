"""Redis for the kill tests: streams `orders` (sink) and `mail` (source)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import redis

from outlast.bridges import Message, Redis


def sink() -> Redis:
    return Redis(os.environ["OUTLAST_TEST_REDIS"], stream="orders")


def source() -> Redis:
    return Redis(os.environ["OUTLAST_TEST_REDIS"], stream="mail", group="sync", idle=0.5)


def put(messages: Sequence[Message]) -> None:
    with redis.Redis.from_url(os.environ["OUTLAST_TEST_REDIS"]) as client:
        for one in messages:
            client.xadd("mail", {"id": one.id, "body": one.raw})


def sent() -> list[Message]:
    with redis.Redis.from_url(os.environ["OUTLAST_TEST_REDIS"]) as client:
        found = []
        for _, fields in client.xrange("orders"):
            key = fields.get(b"key")
            headers = json.loads(fields.get(b"headers", b"{}"))
            body, id = fields[b"body"], fields[b"id"].decode()
            found.append(Message(id, body, key.decode() if key else None, headers))
        return found


def left() -> int:
    with redis.Redis.from_url(os.environ["OUTLAST_TEST_REDIS"]) as client:
        (group,) = client.xinfo_groups("mail")
        return int(group["pending"]) + int(group["lag"] or 0)
