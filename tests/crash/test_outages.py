"""Workers that are killed while what their jobs depend on is away."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.outage import Reliant
from tests.support import Database, Process, Processes, eventually
from tests.support.app import PATIENCE
from tests.worker.working import sql

JOBS = 30


@pytest.fixture
def reliant(database: Database, tmp_path: Path) -> Iterator[Reliant]:
    app = Reliant(database.url, database.schema, tmp_path)
    app.ol.migrate()
    app.down.touch()
    yield app
    app.close()


def test_the_breaker_outlives_the_worker_that_opened_and_probes_it(
    reliant: Reliant, processes: Processes
) -> None:
    """R120, R223: SIGKILL of the opener in the midst of its probe. Another worker of the fleet has
    the right to probe then, calls nothing else, and closes it when the probe succeeds."""
    reliant.ol.enqueue(*(reliant.push.job(n) for n in range(JOBS)))
    first = reliant.work(processes, concurrency=3)
    eventually(reliant.ol.breakers, PATIENCE, message=first.output)
    reliant.hang.touch()
    eventually(lambda: any(one.probing for one in reliant.ol.breakers()), PATIENCE)
    other = reliant.work(processes, concurrency=10)
    eventually(lambda: len(reliant.ol.workers()) == 2, PATIENCE, message=other.output)
    called, (before,) = len(reliant.ledger.read("call")), reliant.ol.breakers()
    first.kill()
    reliant.hang.unlink()
    eventually(lambda: len(reliant.ledger.read("call")) > called + 2, PATIENCE)
    calls = len(reliant.ledger.read("call")) - called
    (breaker,) = reliant.ol.breakers()
    assert (breaker.opened_at, breaker.kind) == (before.opened_at, "ConnectionError")
    assert calls <= breaker.probes - before.probes, "each call was a probe"
    reliant.down.unlink()
    eventually(
        lambda: reliant.ol.counts()["succeeded"] == JOBS,
        PATIENCE,
        message=lambda: f"{reliant.ol.counts()} {reliant.ol.breakers()}",
    )
    eventually(lambda: reliant.ol.breakers() == [], PATIENCE)
    other.terminate()
    assert other.wait(PATIENCE) == 0


@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_a_large_outbox_waits_out_its_sink_in_silence(
    reliant: Reliant, processes: Processes, database: Database
) -> None:
    """R223: 20,000 items, a sink that is away for 60 s: attempt records, log lines, processor."""
    for _ in range(20):
        reliant.ol.enqueue(*(reliant.publish.job(n) for n in range(1000)))
    defaults = {"lease": 15.0, "renew_every": 5.0, "poll_max": 1.0}
    worker = reliant.work(processes, **defaults)
    eventually(reliant.ol.breakers, PATIENCE, message=worker.output)
    began, used = time.monotonic(), _processor_seconds(worker)
    time.sleep(60.0)  # the outage is what is measured
    share = (_processor_seconds(worker) - used) / (time.monotonic() - began)
    records = sql(database, "SELECT count(*) FROM {attempt}")[0][0]
    lines, counts = len(worker.output().splitlines()), reliant.ol.counts()
    probes = reliant.ol.breakers()[0].probes
    reliant.down.unlink()
    back = time.monotonic()
    eventually(lambda: reliant.ol.counts()["succeeded"] == 20_000, 120)
    drained = time.monotonic() - back
    print(f"{database.kind}: {records} attempt records, {lines} log lines, {share:.1%} processor,"
          f" {probes} probes; delivered {drained:.1f} s after the return")  # fmt: skip
    assert counts["dead"] == 0 and records <= 100 and lines <= 100 and share <= 0.05
    assert max(job.failures for job in reliant.ol.jobs(limit=20_000)) == 0
    worker.terminate()
    assert worker.wait(PATIENCE) == 0


def _processor_seconds(process: Process) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
