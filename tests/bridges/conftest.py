"""`redis`: an empty Redis server of this test process; `own_redis`: one that a test may stop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.redis import RedisServer


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    server = RedisServer()
    try:
        server.start()
        yield server
    finally:
        server.destroy()


@pytest.fixture
def redis(redis_server: RedisServer) -> RedisServer:
    import redis as client

    with client.Redis.from_url(redis_server.url) as connection:
        connection.flushall()
    return redis_server


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    server = RedisServer()
    try:
        server.start()
        yield server
    finally:
        server.destroy()
