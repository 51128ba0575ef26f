"""The brokers of Celery: those of the tests of bridges."""

from tests.bridges.conftest import rabbit_server, redis, redis_server

__all__ = ["rabbit_server", "redis", "redis_server"]
