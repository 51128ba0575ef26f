"""An iterator of calls is enqueued whole or not at all, and in bounded memory."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from outlast import InvalidArguments, InvalidOption, KeyConflict, Outlast, QueueFull, chain
from outlast.client import job_file
from outlast.client.job_file import JobFile
from outlast.model import job_stream
from outlast.model.errors import StoreUnavailable
from outlast.model.flow_builder import build_jobs
from outlast.model.job import Job, NewJob
from outlast.ops.operation import BEGIN, BEGIN_PART, Step
from outlast.store.postgres.session import AsyncPostgresSession, PostgresSession
from outlast.store.postgres.store import PostgresStore
from tests.store.callers import Caller
from tests.worker.working import Spy

PART = 100  # jobs
MANY = 5 * PART + 7

Verb = Callable[..., Any]


@pytest.fixture
def note(app: Outlast) -> Any:
    @app.task
    async def note(text: str, n: int = 0) -> None: ...

    return note


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_stream, "MAX_PART_JOBS", PART)


@pytest.fixture
def newborn() -> Iterator[None]:
    """`held` counts what is made from here on."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def held() -> int:
    """Jobs in memory, in any form."""
    return sum(type(one) in (NewJob, Job) for one in gc.get_objects())


class Census(Spy):
    """Counts the jobs in memory whenever a part is sent."""

    most = 0

    def _see(self, step: Step) -> None:
        super()._see(step)
        self.most = max(self.most, held())


@pytest.mark.usefixtures("small_parts", "newborn")
def test_only_a_part_of_the_jobs_is_in_memory(app: Outlast, note: Any, verb: Verb) -> None:
    """R008, R180: while they are read, and while they are sent."""
    app.migrate()
    census = Census(app)

    def calls() -> Iterator[Any]:
        for n in range(MANY):
            if n % PART == PART - 1:
                census.most = max(census.most, held())
            yield note.job("x", n)

    assert verb("enqueue", calls()) == MANY
    assert PART - 1 <= census.most <= 2 * PART
    assert census.counts["copy_jobs"] >= MANY // PART
    assert app.counts()["ready"] == MANY


def test_large_arguments_are_not_held_either(
    app: Outlast, note: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R180: 20 MB of them, in less than half of that."""
    monkeypatch.setattr(job_file, "MAX_BYTES_IN_MEMORY", 100_000)
    note.enqueue("imports everything")
    tracemalloc.start()
    try:
        assert app.enqueue(note.job("x" * 100_000, n) for n in range(200)) == 200
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


def test_what_an_iterator_gives_is_read_as_it_was_given(
    app: Outlast, note: Any, verb: Verb
) -> None:
    """R008: options, too; and an existing key stands for its job."""
    there = note.using(key="k").enqueue("kept")
    options = [{}, {"delay": 60.0}, {"key": "k"}, {"lane": "l", "priority": 3}, {"tenant": "t"}]
    tasks = [note.using(**said) for said in options]
    texts = ["a\\b\t\n", "é🙂", "kept", "", "\\N"]
    assert verb("enqueue", map(lambda task, text: task.job(text), tasks, texts)) == 5
    found = {job.args["text"]: job for job in app.jobs()}
    assert set(found) == set(texts) and found["kept"].id == there.id
    assert (found["é🙂"].state, found[""].lane, found[""].priority) == ("scheduled", "l", 3)
    assert found["\\N"].tenant == "t"


@pytest.mark.usefixtures("small_parts")
async def test_an_async_iterator_is_taken_as_well(app: Outlast, note: Any) -> None:
    async def calls() -> AsyncIterator[Any]:
        for n in range(PART + 1):
            yield note.job("x", n)

    assert await app.aenqueue(calls()) == PART + 1
    assert (await app.acounts())["ready"] == PART + 1
    assert await app.aenqueue(iter(())) == 0
    await app.aclose()


def broken(calls: Iterator[Any]) -> Iterator[Any]:
    yield from calls
    raise OSError("the file ends here")


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    ("last", "error", "message"),
    [
        (lambda note: broken(iter(())), OSError, "ends here"),
        (lambda note: [note.job(7)], InvalidArguments, r"note: 1 problem.*\n  job 250: text"),
        (lambda note: [note.using(key="k").job("other")], KeyConflict, "'k'"),
        (lambda note: [chain(note.job("x"))], InvalidOption, "number 250 is .*Chain"),
    ],
)
def test_one_that_fails_late_leaves_none(
    app: Outlast, note: Any, verb: Verb, last: Any, error: type[Exception], message: str
) -> None:
    """R008: whatever fails after the first part: the iterator, a call, the database."""
    note.using(key="k").enqueue("kept")

    def calls() -> Iterator[Any]:
        for n in range(250):
            yield note.job("x", n)
        yield from last(note)

    with pytest.raises(error, match=message):
        verb("enqueue", calls())
    assert app.counts()["ready"] == 1


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("answered", [True, False])
def test_after_a_broken_connection_each_job_is_there_once(
    app: Outlast, note: Any, answered: bool
) -> None:
    """R003: before the commit, or before its answer came."""
    app.migrate()
    spy, run_once, tries = Spy(app), app.store.run_once, iter([False, True])
    if answered:
        spy.refuse("clock_of_copy", StoreUnavailable(reason="broken", broke=True))

    def unheard(op: Any) -> Any:
        done = run_once(op)
        if not answered and not next(tries, True):
            raise StoreUnavailable(reason="broken", broke=True)
        return done

    app.store.run_once = unheard  # type: ignore[method-assign]
    assert app.enqueue(note.job("x", n) for n in range(250)) == 250
    assert sorted(job.args["n"] for job in app.jobs(limit=500)) == list(range(250))


@pytest.mark.usefixtures("small_parts")
def test_it_belongs_to_the_caller_s_transaction(app: Outlast, note: Any, caller: Caller) -> None:
    """R002"""
    for end in (caller.rollback, caller.commit):
        assert app.enqueue((note.job("x", n) for n in range(250)), conn=caller.connection) == 250
        assert app.counts()["ready"] == 0
        end()
    assert app.counts()["ready"] == 250


def test_a_full_queue_refuses_all_of_it(app: Outlast, note: Any) -> None:
    app.queue("narrow", most_waiting=10, overflow="refuse")
    with pytest.raises(QueueFull):
        app.enqueue(note.using(queue="narrow").job("x", n) for n in range(11))
    assert app.enqueue(note.using(queue="narrow").job("x", n) for n in range(10)) == 10
    assert app.counts()["ready"] == 10


def test_the_file_gives_back_every_field(app: Outlast, note: Any) -> None:
    tasks = [
        note,
        note.using(key="k", debounce=5, max_wait=60),
        note.using(key="k", unique="waiting", expires=3.5, timeout=2, on_dead=note.job("dead")),
    ]
    jobs = [build_jobs([task.job(text)]) for task in tasks for text in ("a", "é\n")]
    with JobFile() as file:
        for part in jobs:
            file.write(part)
        assert list(file.parts()) == list(file.parts()) == jobs


@pytest.mark.kinds("postgres")
async def test_each_part_has_the_whole_deadline(app: Outlast) -> None:
    """R180: so the number of jobs is not limited by the time of one call."""
    store = app.store
    assert isinstance(store, PostgresStore)
    app.migrate()
    with store._pool.acquire() as link:
        link.until = 1.0
        session = PostgresSession(store, link)
        session.execute_step(BEGIN)
        assert link.until == 1.0
        session.execute_step(BEGIN_PART)
        assert link.until > 1.0
    async with store._pools.loop_pool().acquire() as other:
        other.until = 1.0
        await AsyncPostgresSession(store, other).execute_step(BEGIN_PART)
        assert other.until > 1.0
    await app.aclose()
