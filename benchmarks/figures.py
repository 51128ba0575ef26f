"""First figures: how fast jobs are enqueued, started and drained, on SQLite and on PostgreSQL.

    make bench                                   SQLite, and a PostgreSQL of its own
    python -m benchmarks.figures --url URL       any database (in a schema of its own)

Each figure is the median of three rounds in one run; workers are real processes (`outlast worker`).
Durability is full: fsync on, synchronous_commit on, SQLite synchronous=FULL.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from outlast import Outlast

URL = os.environ.get("OUTLAST_BENCH_URL", "sqlite:///bench.db")
SCHEMA = os.environ.get("OUTLAST_BENCH_SCHEMA", "outlast_bench")

ol = Outlast(URL, schema=SCHEMA)


@ol.task
async def noop(payload: str) -> None:
    """Does nothing: what is measured is everything around it."""


PAYLOAD = "x" * 88  # about 100 bytes as JSON


def start_worker(concurrency: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "outlast", "worker", "benchmarks.figures:ol"]
    return subprocess.Popen([*command, "--concurrency", str(concurrency), "--log-level", "error"])


def finished(jobs: int, workers: list[subprocess.Popen[bytes]]) -> None:
    """Wait until so many are through; a worker that gave up is an error, not a long wait."""
    while ol.counts()["succeeded"] < jobs:
        if gone := [worker.args for worker in workers if worker.poll() is not None]:
            raise SystemExit(f"a worker ended before the jobs did: {gone[0]}")
        time.sleep(0.1)


def stop(workers: list[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.wait(30)


def drain(jobs: int, processes: int, concurrency: int) -> float:
    """Jobs per second, from the first start to the last finish, by the database's clock."""
    wipe()
    for first in range(0, jobs, 1000):
        ol.enqueue(*(noop.job(payload=PAYLOAD) for _ in range(first, min(jobs, first + 1000))))
    workers = [start_worker(concurrency) for _ in range(processes)]
    try:
        finished(jobs, workers)
    finally:
        stop(workers)
    first, last = rows("SELECT min(started_at), max(finished_at) FROM {job}")[0]
    span = last - first
    return jobs / (span if isinstance(span, float) else span.total_seconds())


def enqueue_singly(jobs: int) -> float:
    wipe()
    begun = time.perf_counter()
    for _ in range(jobs):
        noop.enqueue(payload=PAYLOAD)
    return jobs / (time.perf_counter() - begun)


def enqueue_in_bulk(jobs: int) -> float:
    wipe()
    begun = time.perf_counter()
    for _ in range(0, jobs, 1000):
        ol.enqueue(*(noop.job(payload=PAYLOAD) for _ in range(1000)))
    return jobs / (time.perf_counter() - begun)


def idle_latency(jobs: int) -> list[float]:
    """Milliseconds from enqueue to start, one job every 20 ms, with an idle worker process."""
    wipe()
    workers = [start_worker(10)]
    try:
        noop.enqueue(payload="warm")
        finished(1, workers)
        for _ in range(jobs):
            time.sleep(0.02)
            noop.enqueue(payload=PAYLOAD)
        finished(jobs + 1, workers)
    finally:
        stop(workers)
    spans = [
        (job.started_at - job.created_at).total_seconds() * 1000
        for job in ol.jobs(limit=jobs)
        if job.started_at is not None
    ]
    return sorted(spans)


def wipe() -> None:
    rows("DELETE FROM {job}")


def rows(sql: str) -> list[tuple[object, ...]]:
    """Straight to the database: the measure must not depend on what is measured."""
    store = ol.store
    store.ready()
    if store.address.path is not None:
        import sqlite3

        with sqlite3.connect(store.address.path) as connection:
            return connection.execute(sql.format(job=f"{SCHEMA}_job")).fetchall()
    import psycopg

    with psycopg.connect(URL, autocommit=True) as connection:
        cursor = connection.execute(sql.format(job=f'"{SCHEMA}".job'))
        return cursor.fetchall() if cursor.description else []


def measure(jobs: int, concurrency: int, rounds: int = 3) -> dict[str, object]:
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        found.setdefault("enqueue one by one /s", []).append(enqueue_singly(min(jobs, 2000)))
        found.setdefault("enqueue in bulk /s", []).append(enqueue_in_bulk(jobs))
        for processes in (1, 2):
            name = f"drain, {processes} process{'es' * (processes > 1)} /s"
            found.setdefault(name, []).append(drain(jobs, processes, concurrency))
    spans = idle_latency(200)
    medians = {name: round(statistics.median(values)) for name, values in found.items()}
    return {
        "database": store_name(),
        **medians,
        "spread": {n: f"{min(v):.0f}–{max(v):.0f}" for n, v in found.items()},
        "idle latency p50 ms": round(spans[len(spans) // 2], 1),
        "idle latency p99 ms": round(spans[int(len(spans) * 0.99)], 1),
    }


def store_name() -> str:
    return str(ol.store.address.dialect)


def everywhere(arguments: argparse.Namespace) -> None:
    """One run for each database, each in a process whose environment says where."""
    with tempfile.TemporaryDirectory() as folder:
        places = [arguments.url] if arguments.url else [f"sqlite:///{folder}/bench.db"]
        server = None
        if not arguments.url:
            from tests.support.postgres import Postgres

            server = Postgres(fsync="on", synchronous_commit="on", full_page_writes="on")
            server.start()
            places.append(server.url())
        try:
            for place in places:
                environment = {**os.environ, "OUTLAST_BENCH_URL": place}
                command = [sys.executable, "-m", "benchmarks.figures", "--here"]
                command += ["--jobs", str(arguments.jobs)]
                command += ["--concurrency", str(arguments.concurrency)]
                subprocess.run(command, env=environment, check=True)
        finally:
            if server is not None:
                server.destroy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(measure(arguments.jobs, arguments.concurrency), indent=2), flush=True)
    else:
        everywhere(arguments)


if __name__ == "__main__":
    main()
