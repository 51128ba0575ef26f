"""A rolling deploy: workers of an earlier state and of the next release, on one set of tables."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from outlast import Outlast, group
from outlast.store.schema import latest
from outlast.verify.checks.evidence import collect
from tests.support import Database, Process, Processes, eventually
from tests.support.app import TIMINGS
from tests.support.releases import earlier, later

APP = """
import os, sys, time
from pathlib import Path
from outlast import Context, Outlast, Retry, chain, group

ol = Outlast()
again = Retry(max_attempts=50, base=0.01, jitter=0.0)

def note(what, ctx):
    line = f"{what} {ctx.job.id} {ctx.attempt} {os.environ['CODE']}\\n"
    fd = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, line.encode())
    os.close(fd)

@ol.task(retry=again, max_crashes=50)
def step(n: int, ctx: Context) -> int:
    note("step", ctx)
    ctx.progress(n)
    time.sleep(0.005)
    if n % 7 == 0 and ctx.attempt == 1:
        raise RuntimeError("the first attempt fails")
    if n % 5 == 0:
        ctx.enqueue(leaf.job(n))
    return n

@ol.task(retry=again, max_crashes=50)
async def leaf(n: int, ctx: Context) -> int:
    note("leaf", ctx)
    return n

@ol.task(retry=again, max_crashes=50)
def total(ctx: Context) -> int:
    note("total", ctx)
    return sum(ctx.results())

def load(number):
    for n in range(number):
        ol.enqueue(step.using(key=f"key-{n}").job(n))
        if n % 10 == 0:
            ol.enqueue(group(*[step.job(k) for k in range(1, 5)]).then(total.job()))

if __name__ == "__main__":
    if sys.argv[1] == "work":
        ol.worker(concurrency=4).run()
    elif sys.argv[1] == "migrate":
        print(ol.migrate())
    else:
        load(int(sys.argv[1]))
"""


class Deploy:
    """Processes of both releases on one database."""

    def __init__(self, database: Database, processes: Processes, folder: Path) -> None:
        self.database, self.processes, self.folder = database, processes, folder
        self.notes = folder / "notes"
        (folder / "rolling.py").write_text(APP)
        self.paths = {"old": earlier(folder / "earlier"), "new": later(folder / "later")}
        self.running: list[tuple[str, Process]] = []

    def start(self, code: str, what: object) -> Process:
        env = {
            "OUTLAST_URL": self.database.url,
            "OUTLAST_SCHEMA": self.database.schema,
            "PYTHONPATH": f"{self.paths[code]}:{self.folder}",
            "CODE": code,
            "NOTES": str(self.notes),
            **{f"OUTLAST_{name.upper()}": str(value) for name, value in TIMINGS.items()},
        }
        return self.processes.python("rolling", what, env=env)

    def work(self, code: str) -> None:
        self.running.append((code, self.start(code, "work")))

    def load(self, code: str, number: int) -> Process:
        return self.start(code, number)

    def kill_one(self, luck: random.Random) -> None:
        code, worker = self.running.pop(luck.randrange(len(self.running)))
        worker.kill()
        self.work(code)

    def ran(self) -> Counter[str]:
        """How many handlers each release has begun."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        return Counter(line.split()[3] for line in lines)


@pytest.fixture
def deploy(database: Database, processes: Processes, tmp_path: Path) -> Deploy:
    return Deploy(database, processes, tmp_path)


@pytest.mark.fresh
@pytest.mark.kinds("sqlite")
def test_an_earlier_release_works_beside_the_next_one(deploy: Deploy) -> None:
    """R177: it made the tables and has jobs in flight when the next one migrates them; both work
    from then on, and nothing is lost, torn or stuck."""
    side_by_side(deploy, jobs=20, kills=0)


@pytest.mark.fresh
@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.kinds("sqlite", "postgres")
def test_two_releases_under_load_and_kills(deploy: Deploy) -> None:
    """R177: both enqueue, too, and workers of both are killed: I1 to I4 hold."""
    side_by_side(deploy, jobs=600, kills=25)


def side_by_side(deploy: Deploy, jobs: int, kills: int) -> None:
    deploy.load("old", jobs).succeed(60)
    deploy.work("old")
    eventually(lambda: deploy.ran()["old"] > 0, 30)
    database = deploy.database
    with Outlast(database.url, schema=database.schema) as ol:
        assert deploy.start("new", "migrate").succeed(60).strip() == f"[{latest() + 1}]"
        deploy.work("new")
        eventually(lambda: len(ol.workers()) == 2, 30)
        more = len(ol.enqueue(_flow(ol, 0, 10)))
        loads = [deploy.load(code, jobs) for code in ("old", "new") if kills]
        luck = random.Random(177)
        for _ in range(kills):
            time.sleep(luck.uniform(0.3, 1.0))
            deploy.kill_one(luck)
        for one in loads:
            one.succeed(300)
        while min(deploy.ran()[code] for code in ("old", "new")) == 0:  # both shall have worked
            more += len(ol.enqueue(_flow(ol, more, 10)))
            eventually(lambda: ol.counts()["ready"] == 0, 60)
        eventually(lambda: _left(ol) == 0, 300, message=lambda: f"{ol.counts()}")
        _judge(ol, jobs, 1 + len(loads), more)


def _flow(ol: Outlast, number: int, parts: int) -> Any:
    """A flow of this release's kind, beside those that the processes enqueue."""

    @ol.task
    def leaf(n: int) -> int:
        return n

    return group(*[leaf.job(n) for n in range(parts)]).using(key=f"flow-{number}")


def _left(ol: Outlast) -> int:
    return sum(number for state, number in ol.counts().items() if state != "succeeded")


def _judge(ol: Outlast, jobs: int, loads: int, leaves: int) -> None:
    evidence = collect(ol.store, [])
    tasks = Counter(job.task for job in ol.jobs(limit=100_000))
    flows = -(-jobs // 10)
    # The keyed jobs of all loads are the same; each load has flows of its own.
    assert tasks["step"] == jobs + loads * flows * 4
    assert tasks["total"] == loads * flows
    assert tasks["leaf"] == -(-jobs // 5) + leaves
    assert evidence.orphans == []
    for row in evidence.rows.values():
        assert row.state == "succeeded", row
        fences = [attempt.fence for attempt in evidence.attempts.get(row.id, [])]
        assert len(set(fences)) == len(fences) and row.fence >= max(fences, default=1), row
