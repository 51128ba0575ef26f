"""Short ways to say what these tests do with workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from time import monotonic
from typing import Any

from outlast import Job, Outlast, State, Worker
from outlast.ops.operation import Begin, BulkInsert, Pipeline, Step
from tests.support import Database, aeventually
from tests.support.app import BOUND, SLACK, TIMINGS
from tests.support.waiting import TIMEOUT

__all__ = ["BOUND", "SLACK", "TIMINGS", "Spy", "change", "ended", "sql", "started", "work"]

TABLES = ("job", "attempt", "event", "step", "worker", "duty", "breaker", "lane", "schedule")


def work(ol: Outlast, **said: Any) -> Worker:
    """A worker with short timings. Its leases are not: a busy machine must not cost a test a job
    that it says nothing about."""
    return ol.worker(**{**TIMINGS, "lease": 15.0, "grace": 2.0, **said})


async def ended(ol: Outlast, job: Job, timeout: float = TIMEOUT) -> Job:
    """The job, once it is in a final state."""

    async def look() -> Job:
        now = await ol.ajob(job.id)
        assert now.final
        return now

    return await aeventually(look, timeout, message=lambda: ol.explain(job.id))


async def started(ol: Outlast, job: Job, timeout: float = TIMEOUT) -> Job:
    """The job, once it is running."""

    async def look() -> Job:
        now = await ol.ajob(job.id)
        assert now.state is State.RUNNING
        return now

    return await aeventually(look, timeout, message=lambda: ol.explain(job.id))


def change(worker: Worker, **settings: Any) -> None:
    """What a worker's settings say from now on."""
    worker.shared.state.settings = replace(worker.settings, **settings)


def sql(database: Database, text: str, *params: Any) -> list[tuple[Any, ...]]:
    """One statement past the product; `{job}` is the table's name, `?` a parameter."""
    names = {
        table: _name(database, table)
        for table in (
            "job",
            "attempt",
            "event",
            "step",
            "worker",
            "duty",
            "breaker",
            "lane",
            "schedule",
            "wait",
            "signal",
            "stream",
        )
    }
    text = text.format(**names)
    return database.rows(text if database.is_sqlite else text.replace("?", "%s"), params)


def _name(database: Database, table: str) -> str:
    return f"{database.schema}_{table}" if database.is_sqlite else f"{database.schema}.{table}"


class Spy:
    """Sees every statement that an application's stores are asked for, and can refuse some."""

    def __init__(self, ol: Outlast) -> None:
        self.counts: Counter[str] = Counter()
        self.round_trips = 0
        self.seen: list[tuple[float, str]] = []
        self._refused: dict[str, tuple[list[Exception], dict[str, Any]]] = {}
        _spied(ol.store, self)

    def refuse(self, name: str, error: Exception, times: int = 1, **params: Any) -> None:
        """The next statements of this name, with these parameters, fail."""
        self._refused[name] = ([error] * times, params)

    def refusing(self, name: str) -> bool:
        return bool(self._refused[name][0])

    def times(self, name: str) -> list[float]:
        return [at for at, seen in self.seen if seen == name]

    def forget(self) -> None:
        self.counts.clear()
        self.seen.clear()
        self.round_trips = 0

    def watched(self, op: Generator[Step, Any, Any]) -> Generator[Step, Any, Any]:
        with closing(op):
            answer: Any = None
            try:
                while True:
                    step = op.send(answer)
                    self._see(step)
                    answer = yield step
            except StopIteration as stop:
                return stop.value

    def _see(self, step: Step) -> None:
        if isinstance(step, Begin):
            return
        self.round_trips += 1
        for statement in step if isinstance(step, Pipeline) else (step,):
            self.counts[statement.name] += 1
            self.seen.append((monotonic(), statement.name))
            errors, params = self._refused.get(statement.name, ([], {}))
            given = {} if isinstance(statement, BulkInsert) else statement.params
            if errors and params.items() <= dict(given).items():
                raise errors.pop()


def _spied(store: Any, spy: Spy) -> None:
    """Make a store, and the twins that it will have, tell a spy of everything."""
    kind: Any = type(store)

    class Spied(kind):  # type: ignore[misc]
        def run_once(self, op: Any) -> Any:
            return super().run_once(spy.watched(op))

        async def arun_once(self, op: Any) -> Any:
            return await super().arun_once(spy.watched(op))

        def clone(self, connections: int | None = None, lock_timeout: float | None = None) -> Any:
            twin = super().clone(connections, lock_timeout)
            _spied(twin, spy)
            return twin

    store.__class__ = Spied
