"""One app and its tests, on Celery and on Outlast: what differs is one import."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integrations.celery.shop import CeleryShop
from tests.support import Database, Processes
from tests.support.redis import RedisServer

CHECKS = "16 passed"
LONGEST_RUN_S = 200.0


@pytest.mark.slow
@pytest.mark.kinds("sqlite")
def test_the_app_passes_its_tests_on_celery(
    database: Database, redis: RedisServer, processes: Processes, tmp_path: Path
) -> None:
    """The yardstick: real Celery, broker and results in a real Redis."""
    shop = CeleryShop.copied(tmp_path / "shop", redis.url, redis.url, database, moved=False)
    shop.worker(processes)
    assert CHECKS in shop.checks(processes).succeed(LONGEST_RUN_S)


@pytest.mark.slow
@pytest.mark.kinds("sqlite")
def test_the_moved_app_passes_the_same_tests(
    database: Database, redis: RedisServer, processes: Processes, tmp_path: Path
) -> None:
    """One import changed, `outlast worker shop:app` in the place of `celery -A shop worker`."""
    shop = CeleryShop.copied(tmp_path / "shop", redis.url, redis.url, database, moved=True)
    shop.worker(processes)
    assert CHECKS in shop.checks(processes).succeed(LONGEST_RUN_S)


@pytest.mark.campaign
@pytest.mark.kinds("postgres")
def test_the_moved_app_on_postgres(
    database: Database, redis: RedisServer, processes: Processes, tmp_path: Path
) -> None:
    shop = CeleryShop.copied(tmp_path / "shop", redis.url, redis.url, database, moved=True)
    shop.worker(processes)
    assert CHECKS in shop.checks(processes).succeed(LONGEST_RUN_S)
