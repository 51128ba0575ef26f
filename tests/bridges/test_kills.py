"""SIGKILL at every step between a broker and the database: nothing is lost, ids are stable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.bridges import Message
from tests.bridges.killing import SINK_STEPS, SOURCE_STEPS, Bridged
from tests.support import Database, Processes, eventually, rounds
from tests.support.redis import RedisServer

PATIENCE = 60.0
KEYS = 4


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
    check_source(bridged, processes, step, kills=3)


@pytest.mark.parametrize("step", SINK_STEPS)
def test_every_message_is_sent_in_order_wherever_its_sender_is_killed(
    bridged: Bridged, processes: Processes, step: str
) -> None:
    """R123: at least once, under the id of its job, in order per key."""
    check_sink(bridged, processes, step, kills=3)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("step", [*SOURCE_STEPS, *SINK_STEPS])
def test_a_hundred_kills_at_each_step(bridged: Bridged, processes: Processes, step: str) -> None:
    """R123, R130: each step × 100."""
    check = check_source if step in SOURCE_STEPS else check_sink
    check(bridged, processes, step, kills=100)


def check_source(bridged: Bridged, processes: Processes, step: str, kills: int) -> None:
    number = 0
    for _ in rounds(kills, step):
        bridged.broker.put([Message(f"m{number + n}", b"%d" % n) for n in range(30)])
        number += 30
        (bridged.folder / "kill-1").touch()
        victim = bridged.work(processes, step)
        assert victim.wait(PATIENCE) == -9, victim.output()
    worker = bridged.work(processes)
    ids = {f"m{n}" for n in range(number)}
    eventually(lambda: set(bridged.ran()) == ids, PATIENCE, message=worker.output)
    eventually(lambda: bridged.broker.left() == 0, PATIENCE, message=worker.output)
    worker.terminate()
    assert worker.wait(PATIENCE) == 0, worker.output()
    keys = [job.key for job in bridged.ol.jobs(task="sync", limit=10_000)]
    assert sorted(keys) == sorted(f"in:mail:{id}" for id in ids), "one job for each message"


def check_sink(bridged: Bridged, processes: Processes, step: str, kills: int) -> None:
    published: dict[str, tuple[str | None, int]] = {}
    for turn in rounds(kills, step):
        for n in range(40):
            key = f"k{n % KEYS}" if n % 2 else None
            job = bridged.outbox.publish(turn * 40 + n, key=key)
            published[job.id] = key, turn * 40 + n
        (bridged.folder / "kill-1").touch()
        victim = bridged.work(processes, step)
        assert victim.wait(PATIENCE) == -9, victim.output()
    worker = bridged.work(processes)
    counts = bridged.ol.counts
    eventually(
        lambda: counts()["succeeded"] == len(published), PATIENCE, message=lambda: f"{counts()}"
    )
    worker.terminate()
    assert worker.wait(PATIENCE) == 0, worker.output()
    sent = bridged.broker.sent()
    assert {message.id for message in sent} == set(published), "each at least once"
    assert all((one.key, one.body) == published[one.id] for one in sent), "repeats are the same"
    for key in {message.key for message in sent} - {None}:
        first = list(dict.fromkeys(one.body for one in sent if one.key == key))
        assert first == sorted(first), f"{key} is in order"
