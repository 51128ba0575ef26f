"""`ol.events`: what happens to all jobs, as it happens; also starts and plain successes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from outlast import InvalidOption, Outlast, group, live_event_reader
from outlast.live_event_reader import LiveReader
from outlast.model.errors import FlowNotFound
from outlast.model.ids import new_job_id
from outlast.ops import live_events
from outlast.ops.event_filter import EventFilter
from outlast.ops.live_events import LiveCursor, LiveEvent
from tests.store.jobs import end, put, put_and_take, table, take
from tests.support import Database, eventually

BOTH = ("started", "succeeded")


@pytest.fixture(autouse=True)
def tables(app: Outlast) -> None:
    app.store.ready()


class Watcher:
    """Follows in a thread of its own."""

    def __init__(self, app: Outlast, **wanted: Any) -> None:
        self.heard: list[LiveEvent] = []
        self.events = app.events(poll=0.05, **wanted)
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        for event in self.events:
            self.heard.append(event)
        self.ended.set()

    def kinds(self) -> list[str]:
        return [event.kind for event in self.heard]

    def stop(self) -> None:
        self.events.stop()
        assert self.ended.wait(5)


@pytest.fixture
def watch(app: Outlast) -> Iterator[Callable[..., Watcher]]:
    made: list[Watcher] = []

    def started(**wanted: Any) -> Watcher:
        made.append(Watcher(app, **wanted))
        eventually(lambda: made[-1].events._reader._opened_at)
        return made[-1]

    yield started
    for watcher in made:
        watcher.stop()


def test_starts_and_plain_successes_are_told_if_they_are_asked_for(
    app: Outlast, database: Database, watch: Callable[..., Watcher]
) -> None:
    """R135: start before success, each once; and a plain success has written no event."""
    watcher, stored = watch(kinds=BOTH), watch()
    held = put_and_take(app.store.run)
    eventually(lambda: watcher.kinds() == ["started"])
    end(app.store.run, held)
    quick = put_and_take(app.store.run)
    end(app.store.run, quick)
    eventually(lambda: len(watcher.heard) == 4)
    assert [(event.kind, event.job) for event in watcher.heard if event.job == held.id] == [
        ("started", held.id),
        ("succeeded", held.id),
    ]
    assert Counter(watcher.kinds()) == {"started": 2, "succeeded": 2}
    first, last = watcher.heard[0], watcher.heard[-1]
    assert first.id is None and last.id is not None
    assert (first.attempt, first.fence, first.queue, first.task) == (1, 1, "default", "work")
    assert first.data == {"worker": "w1"}
    assert stored.heard == []
    assert database.rows(f"SELECT count(*) FROM {table(database, 'event')}") == [(0,)]


def test_events_can_be_resumed_after_any_of_them(app: Outlast) -> None:
    """R136: the rest, in the same order, no success twice and none missing, whoever reads."""
    for _ in range(3):
        claims = [put_and_take(app.store.run) for _ in range(4)]
        for claim in claims[:3]:
            end(app.store.run, claim)
        end(app.store.run, claims[3], "permanent")

    def read(after: str, number: int) -> list[LiveEvent]:
        following = app.events(kinds=("succeeded", "attempt"), after=after, poll=0.05)
        return [next(following) for _ in range(number)]

    whole = read("0", 12)
    assert Counter(event.kind for event in whole) == {"succeeded": 9, "attempt": 3}
    for n, event in enumerate(whole[:-1]):
        assert event.id is not None
        rest = read(event.id, 11 - n)
        assert [one.job for one in rest] == [one.job for one in whole[n + 1 :]]
        assert [one.id for one in rest] == [one.id for one in whole[n + 1 :]]


def test_successes_of_one_moment_are_told_page_by_page(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R136: many jobs that end in one statement have one time; a page may end among them."""
    from outlast.ops.finish import finish
    from tests.store.jobs import ending

    put(app.store.run, 25)
    app.store.run(finish, [ending(claim) for claim in take(app.store.run, 25)])
    time.sleep(live_events.SETTLE_S + 0.1)
    cursor, found = LiveCursor(0, 0.0), list[str]()
    while page := app.store.run(live_events.succeeded_after, cursor, None, 4):
        found += [job.id for job in page]
        cursor = LiveCursor.parse(str(LiveCursor(0, page[-1].finished_at, page[-1].id)))
    assert len(found) == len(set(found)) == 25


@pytest.mark.kinds("postgres")
def test_a_success_that_commits_late_is_told_in_its_order(
    app: Outlast, database: Database, watch: Callable[..., Watcher]
) -> None:
    """R136: another one has ended and committed before it; neither is missed. (SQLite has one
    writer at a time: nothing commits late.)"""
    import psycopg

    from outlast.ops.finish import finish
    from outlast.store.caller.connection import run_on
    from tests.store.jobs import ending

    watcher = watch(kinds="succeeded")
    late, other = put_and_take(app.store.run), put_and_take(app.store.run)
    with psycopg.connect(database.direct_url) as mine:
        run_on(mine, app.store, finish([ending(late)]))
        end(app.store.run, other)
        time.sleep(0.4)  # less than a second
        mine.commit()
    eventually(lambda: len(watcher.heard) == 2)
    assert [event.job for event in watcher.heard] == [late.id, other.id]


def test_a_filter_gives_some_of_them(app: Outlast, watch: Callable[..., Watcher]) -> None:
    """R139: by queue, task, tenant and kind, also of what is read from jobs."""
    said: dict[str, dict[str, Any]] = {
        "mail": {"queue": "mail"},
        "thumb": {"task": "thumb"},
        "acme": {"tenant": "acme"},
    }
    watchers = {name: watch(kinds=(*BOTH, "attempt"), **wanted) for name, wanted in said.items()}
    jobs = {name: put_and_take(app.store.run, **wanted) for name, wanted in said.items()}
    for claim in jobs.values():
        end(app.store.run, claim)
    failed = put_and_take(app.store.run, queue="mail")
    end(app.store.run, failed, "permanent")
    for name, watcher in watchers.items():
        eventually(lambda watcher=watcher: "succeeded" in watcher.kinds())
        assert {event.job for event in watcher.heard} <= {jobs[name].id, failed.id}
    eventually(lambda: "attempt" in watchers["mail"].kinds())
    assert "attempt" not in watchers["acme"].kinds()


def test_a_flow_is_told_from_its_beginning_to_its_end(app: Outlast) -> None:
    """R135: its jobs and no others; the iteration ends by itself."""

    @app.task
    def work(n: int) -> None: ...

    jobs = app.enqueue(group(work.job(1), work.job(2)).then(work.job(3)))
    flow = jobs[0].flow
    assert flow is not None
    other = put_and_take(app.store.run, queue="other")
    end(app.store.run, other)
    for _ in jobs:
        (claim,) = take(app.store.run)
        end(app.store.run, claim)
    told = list(app.events(flow=flow, kinds=("succeeded", "end"), poll=0.05))
    assert [event.kind for event in told] == [*["succeeded"] * 3, "end"]
    assert {event.job for event in told[:-1]} == {job.id for job in jobs}
    assert told[-1].data["state"] == "succeeded"
    assert {event.flow for event in told} == {flow}
    plain = list(app.events(flow=flow, poll=0.05))
    assert [event.kind for event in plain] == ["end"]
    with pytest.raises(FlowNotFound):
        next(app.events(flow=new_job_id(), poll=0.05))


async def test_a_position_names_no_job_of_another_tenant(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R141, R136: others' successes are stepped over, and a position may be kept and shown."""
    ends = {name: put_and_take(app.store.run, tenant=name) for name in ("acme", "other")}
    for claim in ends.values():
        end(app.store.run, claim)
    wanted = EventFilter(kinds=frozenset({"succeeded"}), tenant="acme")
    reader = LiveReader(app.store.arun, wanted, LiveCursor(0, 0.0))
    assert await reader.open() == []
    await asyncio.sleep(live_events.SETTLE_S + 0.1)
    assert [event.job for event in (await reader.read()).events] == [ends["acme"].id]
    assert (await reader.read()).events == []
    assert reader.cursor.job == ends["acme"].id
    monkeypatch.setattr(live_event_reader, "READ_AGAIN_S", -60.0)  # as if a minute had passed
    await reader.read()
    assert reader.cursor.job == live_events.LOWEST_ID, "long ago, it is a moment"
    await app.aclose()


async def test_the_same_in_an_event_loop(app: Outlast) -> None:
    """R135: and `stop` ends it."""
    following = app.aevents(kinds=BOTH, poll=0.05)
    heard: list[str] = []

    async def follow() -> None:
        async for event in following:
            heard.append(event.kind)
            if event.kind == "succeeded":
                following.stop()

    task = asyncio.create_task(follow())
    while not following._reader._opened_at:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    held = await asyncio.to_thread(put_and_take, app.store.run)
    await asyncio.to_thread(end, app.store.run, held)
    await asyncio.wait_for(task, 10)
    assert heard == ["started", "succeeded"]
    await app.aclose()


def test_an_outage_is_waited_out_and_nothing_is_lost(
    app: Outlast, watch: Callable[..., Watcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R136: a pass that fails midway is repeated from where it began."""
    from outlast.model.errors import StoreUnavailable

    watcher = watch(kinds=("succeeded", "attempt"))
    run, left = watcher.events._reader._run, [3]

    async def broken(operation: Any, *args: Any) -> Any:
        if operation is live_events.succeeded_after and left[0]:
            left[0] -= 1
            raise StoreUnavailable(reason="cut")
        return await run(operation, *args)

    monkeypatch.setattr(watcher.events._reader, "_run", broken)
    failed, fine = put_and_take(app.store.run), put_and_take(app.store.run)
    end(app.store.run, failed, "permanent")
    end(app.store.run, fine)
    eventually(lambda: len(watcher.heard) == 2, 15.0)
    assert sorted(watcher.kinds()) == ["attempt", "succeeded"]
    assert left == [0]


def test_an_outage_at_the_beginning_is_waited_out(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R136: the first position is looked for again."""
    from outlast.model.errors import StoreUnavailable

    held = put_and_take(app.store.run)
    end(app.store.run, held, "permanent")
    following = app.events(after="0", poll=0.05)
    run, left = following._reader._run, [3]

    async def broken(operation: Any, *args: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise StoreUnavailable(reason="cut")
        return await run(operation, *args)

    monkeypatch.setattr(following._reader, "_run", broken)
    assert next(following).job == held.id
    assert left == [0]


def test_bad_input_is_refused(app: Outlast) -> None:
    wrong: list[dict[str, Any]] = [
        {"after": "x"},
        {"after": "-1"},
        {"after": 7},
        {"poll": 0},
        {"kinds": [7]},
        {"queue": ""},
        {"tenant": "\0"},
    ]
    for given in wrong:
        with pytest.raises(InvalidOption):
            app.events(**given)
    with pytest.raises(FlowNotFound):
        app.events(flow="no flow")
