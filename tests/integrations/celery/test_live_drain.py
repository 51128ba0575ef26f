"""The switch, live: a worker of Celery and workers of Outlast take from one queue, and ours are
killed. Each message is run by one side, and becomes one job at the most."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import celery
import pytest

from tests.integrations.celery.shop import CeleryShop
from tests.support import Database, Processes, eventually
from tests.support.brokers import RabbitServer
from tests.support.processes import Process
from tests.support.redis import RedisServer

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

PATIENCE_S = 600.0


class Switch:
    """Both sides of the switch, in folders of their own, with one file of what ran."""

    def __init__(self, folder: Path, broker: str, database: Database, processes: Processes) -> None:
        self._processes = processes
        self._database = database
        shops = (
            CeleryShop.copied(folder / side, broker, "cache+memory://", database, side == "ours")
            for side in ("theirs", "ours")
        )
        self._theirs, self._ours = shops
        self.notes = folder / "notes"
        for side, shop in (("theirs", self._theirs), ("ours", self._ours)):
            shop.env |= {"SHOP_NOTES": str(self.notes), "SHOP_SIDE": side}
        self.notes.touch()
        self._drained = self._ours.folder / "drained.py"
        idle = ", idle=1" if broker.startswith("redis") else ""
        text = f'from shop import app\n\napp.drain_queue("celery", batch=20, wait=1{idle})\n'
        self._drained.write_text(text)
        self._producer = celery.Celery("old", broker=broker, set_as_current=False)
        self._producer.conf.task_ignore_result = True

    def send(self, numbers: range) -> None:
        with self._producer.producer_pool.acquire(block=True) as producer:
            for number in numbers:
                self._producer.send_task("shop.mark", (number,), producer=producer)

    def close(self) -> None:
        self._producer.close()

    def theirs(self) -> Process:
        return self._theirs.worker(self._processes)

    def ours(self) -> Process:
        return self._ours.worker(self._processes, "drained:app")

    def ran(self) -> dict[int, Counter[str]]:
        """How often each side ran each message."""
        found: dict[int, Counter[str]] = {}
        for line in self.notes.read_text().splitlines():
            side, number = line.split()
            found.setdefault(int(number), Counter())[side] += 1
        return found

    def ran_by_ours(self) -> int:
        return sum(bool(sides["ours"]) for sides in self.ran().values())

    def jobs(self) -> list[tuple[int, str, int]]:
        """Of each job: the number of its message, its state, and the workers that it lost."""
        job = f"{self._database.schema}{'_' if self._database.is_sqlite else '.'}job"
        rows = self._database.rows(
            f"SELECT args, state, crashes FROM {job} WHERE task = 'shop.mark'"
        )
        return [(number_of(args), str(state), int(crashes)) for args, state, crashes in rows]


def number_of(args: object) -> int:
    stored = args if isinstance(args, dict) else json.loads(str(args))
    return int(stored["args"][0])


def check(switch: Switch, messages: int, kills: int) -> dict[str, int]:
    """Send, drain with both, kill ours; then each message ran on one side."""
    chunk = messages // (kills + 1)
    switch.send(range(chunk))
    switch.theirs()
    workers = [switch.ours(), switch.ours()]
    for number in range(1, kills + 1):
        victim = workers.pop(0)
        eventually(lambda victim=victim: "concurrency=" in victim.output(), timeout=PATIENCE_S)
        before = switch.ran_by_ours()
        switch.send(range(number * chunk, messages if number == kills else (number + 1) * chunk))
        eventually(lambda before=before: switch.ran_by_ours() > before, timeout=PATIENCE_S)
        victim.kill()  # among its jobs, not before the first one
        workers.append(switch.ours())
    eventually(lambda: len(switch.ran()) == messages, timeout=PATIENCE_S)
    eventually(lambda: all(state == "succeeded" for _, state, _ in switch.jobs()), PATIENCE_S)
    ran, jobs = switch.ran(), switch.jobs()
    lost_a_worker = {number for number, _, crashes in jobs if crashes}
    assert [n for n, sides in ran.items() if len(sides) != 1] == []  # by one side only
    assert [n for n, sides in ran.items() if sides["theirs"] > 1] == []
    assert {n for n, sides in ran.items() if sides["ours"] > 1} <= lost_a_worker
    assert sorted(number for number, *_ in jobs) == sorted(n for n in ran if ran[n]["ours"])
    return {
        "messages": messages,
        "run by Celery": sum(bool(sides["theirs"]) for sides in ran.values()),
        "run by Outlast": len(jobs),
        "kills": kills,
        "jobs that lost a worker": len(lost_a_worker),
        "of them run again": sum(sides["ours"] > 1 for sides in ran.values()),
    }


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> str:
    if request.param == "redis":
        redis: RedisServer = request.getfixturevalue("redis")
        return redis.url
    rabbit: RabbitServer = request.getfixturevalue("rabbit_server")
    return rabbit.url


@pytest.mark.slow
@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_a_live_switch_runs_each_message_once(
    broker: str, database: Database, processes: Processes, tmp_path: Path
) -> None:
    """R129."""
    switch = Switch(tmp_path / "switch", broker, database, processes)
    check(switch, messages=200, kills=1)
    switch.close()


@pytest.mark.campaign
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("broker", ["redis", "rabbit"], indirect=True)
def test_ten_thousand_messages_while_ours_are_killed(
    broker: str, database: Database, processes: Processes, tmp_path: Path
) -> None:
    """R129: `pytest -m campaign -s tests/integrations/celery/test_live_drain.py`."""
    began = time.monotonic()
    switch = Switch(tmp_path / "switch", broker, database, processes)
    figures = check(switch, messages=10_000, kills=10)
    switch.close()
    took = time.monotonic() - began
    print(f"\n{broker.partition(':')[0]}, {database.kind}: {figures}, {took:.0f} s")
