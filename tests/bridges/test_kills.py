"""SIGKILL at every step between a broker and the database: nothing is lost, ids are stable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bridges.kill_checks import check_sink, check_source
from tests.bridges.killing import SINK_STEPS, SOURCE_STEPS, Bridged
from tests.support import Database, Processes
from tests.support.redis import RedisServer


@pytest.fixture
def bridged(
    database: Database, redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bridged]:
    monkeypatch.setenv("OUTLAST_URL", database.url)
    monkeypatch.setenv("OUTLAST_SCHEMA", database.schema)
    monkeypatch.setenv("OUTLAST_TEST_REDIS", redis.url)
    monkeypatch.setenv("OUTLAST_TEST_BROKER", "tests.bridges.redis_broker")
    monkeypatch.setattr("tests.bridges.redis_broker.URL", redis.url)
    app = Bridged(tmp_path)
    app.ol.migrate()
    yield app
    app.ol.close()


@pytest.mark.parametrize("step", SOURCE_STEPS)
def test_a_message_is_one_job_wherever_its_receiver_is_killed(
    bridged: Bridged, processes: Processes, step: str
) -> None:
    """R026, R123, R130: after receive, after the commit, after the acknowledgement."""
    check_source(bridged, processes, [step] * 3)


@pytest.mark.parametrize("step", SINK_STEPS)
def test_every_message_is_sent_in_order_wherever_its_sender_is_killed(
    bridged: Bridged, processes: Processes, step: str
) -> None:
    """R123: at least once, under the id of its job, in order per key."""
    check_sink(bridged, processes, [step] * 3)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("step", [*SOURCE_STEPS, *SINK_STEPS])
def test_a_hundred_kills_at_each_step(bridged: Bridged, processes: Processes, step: str) -> None:
    """R123, R130: each step × 100."""
    check = check_source if step in SOURCE_STEPS else check_sink
    check(bridged, processes, [step] * 100)
