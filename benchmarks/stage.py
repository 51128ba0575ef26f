"""One measurement: the processes of one contender on one place."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.contender import Contender
from benchmarks.ground import Ground
from benchmarks.process import Failed, Process
from benchmarks.serve import Place

LOOK = 0.01  # seconds between looks at how far the workers are
MAX_MEASUREMENT_S = 900.0


@dataclass
class Stage:
    contender: Contender
    place: Place
    ground: Ground
    jobs: int
    processes: list[Process] = field(default_factory=list)

    def client(self) -> Process:
        """A process that enqueues. The first one makes the tables."""
        client = self.start()
        if len(self.processes) == 1:
            client.ask("prepare")
        return client

    def worker(self, handler: str | None = None) -> Process:
        worker = self.start(handler)
        worker.ask("work")
        return worker

    def workers(self, n: int, handler: str | None = None) -> list[Process]:
        """Started together, as by a supervisor."""
        made = [self.start(handler) for _ in range(n)]
        for worker in made:
            worker.tell("work")
        for worker in made:
            worker.answer()
        return made

    def start(self, handler: str | None = None) -> Process:
        """Handlers are async, unless it was said or cannot be."""
        best = "async" if "async" in self.contender.can else "sync"
        process = Process(self.contender, replace(self.place, handler=handler or best))
        self.processes.append(process)
        return process

    def preload(self, client: Process, n: int, size: int, how: str = "enqueue_many") -> None:
        client.ask("enqueue", n=n, size=size, how=how)
        if (left := client.ask("left")["left"]) < n:  # by this it is known when all is done
            raise Failed(f"{n} were enqueued, and it says that {left} are left")
        self.ground.settle(self.place)

    def kill(self, process: Process) -> None:
        process.kill()
        self.processes.remove(process)

    def clear(self) -> None:
        for process in self.processes:
            process.kill()


@contextmanager
def staged(contender: Contender, ground: Ground, jobs: int, concurrency: int) -> Iterator[Stage]:
    """Slow contenders get a share of the jobs, and no fewer than a hundred."""
    jobs = max(int(jobs * contender.share), min(jobs, 100))
    with ground.place(contender.store, concurrency) as place:
        stage = Stage(contender, place, ground, jobs)
        try:
            yield stage
        finally:
            stage.clear()


def ran(workers: list[Process], n: int) -> list[dict[str, Any]]:
    """Wait until so many handlers have run; what each worker has seen."""
    until = time.monotonic() + MAX_MEASUREMENT_S
    while (count := sum(worker.ask("count") for worker in workers)) < n:
        if time.monotonic() > until:
            raise Failed(f"{count} of {n} ran within {MAX_MEASUREMENT_S:g} s: {workers[0].said()}")
        time.sleep(LOOK)
    return [worker.ask("seen") for worker in workers]


def finished(client: Process) -> float:
    """Wait until nothing is left, as the store says: since when, at the latest."""
    until = time.monotonic() + MAX_MEASUREMENT_S
    while (told := client.ask("left"))["left"]:
        if time.monotonic() > until:
            raise Failed(f"{told['left']} are not finished after {MAX_MEASUREMENT_S:g} s")
        time.sleep(LOOK / 2)
    return float(told["at"])


def first(seen: list[dict[str, Any]]) -> float:
    """When the first handler ran."""
    return float(min(each["marks"][0] for each in seen if each["marks"]))
