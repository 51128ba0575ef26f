"""Events in one order for all who read them, whoever commits when."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from outlast.model.claim import Claim
from outlast.model.settings import StoreSettings
from outlast.ops import events
from outlast.ops.events import StoredEvent
from outlast.ops.finish import finish
from outlast.ops.job_actions import record_action, redrive_one
from outlast.store import Store, open_store
from tests.store.conftest import Run
from tests.store.jobs import end, put_and_take, take
from tests.support import Database
from tests.support.databases import KINDS

pytestmark = pytest.mark.kinds(*KINDS)


def say(run: Run, claim: Claim, *numbers: int) -> None:
    """What an attempt says, by its numbers."""
    run(finish, [], [said(claim, n) for n in numbers])


def said(claim: Claim, n: int) -> dict[str, Any]:
    data = json.dumps({"done": n})
    return {"job": claim.id, **claim.guard, "kind": "progress", "data": data, "n": n}


def place_all(run: Run) -> None:
    while run(events.assign_positions)[0]:
        pass


def read(
    run: Run, after: int = 0, tenant: str | None = None, limit: int = 1000
) -> list[StoredEvent]:
    return run(events.page, after, tenant, limit).events


def read_job(run: Run, id: str, after: int = 0) -> list[StoredEvent]:
    return run(events.page_of_job, id, after, None, 1000).events


def numbers(told: list[StoredEvent]) -> list[Any]:
    return [json.loads(one.data or "{}").get("done") for one in told]


def test_events_are_read_in_the_order_in_which_they_were_said(run: Run) -> None:
    """R135: by place, a page at a time, of one job and of all."""
    first, second = put_and_take(run), put_and_take(run)
    say(run, first, 1, 2)
    say(run, second, 3)
    say(run, first, 4)
    place_all(run)
    assert numbers(read(run)) == [1, 2, 3, 4]
    assert numbers(read_job(run, first.id)) == [1, 2, 4]
    page = run(events.page, 0, None, 3)
    assert (numbers(page.events), page.more) == ([1, 2, 3], True)
    page = run(events.page, page.position, None, 3)
    assert (numbers(page.events), page.more) == ([4], False)
    assert page.position == run(events.last_position)
    assert run(events.page, page.position, None, 3) == ([], page.position, False)


def test_a_page_is_of_one_tenant_and_reaches_as_far_as_any(run: Run) -> None:
    """R151: what is somebody else's is not read, and is got past."""
    ours, theirs = put_and_take(run, tenant="ours"), put_and_take(run, tenant="theirs")
    for n in range(4):
        say(run, theirs if n % 2 else ours, n)
    run(record_action, "worker-lost", [None], {})
    place_all(run)
    page = run(events.page, 0, "ours", 4)
    assert (numbers(page.events), page.more) == ([0, 2], True)
    assert run(events.page, page.position, "ours", 4).events == []
    assert run(events.page_of_job, theirs.id, 0, "ours", 4).events == []
    assert run(events.job_status, [theirs.id], "ours") == {}
    assert len(read(run)) == 5


def test_attempts_are_kept_apart_and_a_stale_one_is_not_heard(run: Run) -> None:
    """R138: each counts from 1; what an attempt says when the job is no longer its own is not
    kept, and how it ended is told between the two."""
    first = put_and_take(run)
    say(run, first, 1, 2)
    end(run, first, "released")
    (second,) = take(run)
    say(run, second, 1)
    say(run, first, 3)
    say(run, second, 1, 2)  # 1 is sent again, as after an answer that got lost
    place_all(run)
    told = read_job(run, first.id)
    assert [(one.fence, one.kind) for one in told] == [
        (first.fence, "progress"),
        (first.fence, "progress"),
        (first.fence, "attempt"),
        (second.fence, "progress"),
        (second.fence, "progress"),
    ]
    assert numbers(told) == [1, 2, None, 1, 2]
    assert json.loads(told[2].data or "")["outcome"] == "released"


def test_attempts_of_different_lives_are_told_apart(run: Run) -> None:
    """R138: a redriven job counts its attempts from 1 again; claims have numbers of their own."""
    first = put_and_take(run)
    end(run, first, "permanent")
    run(redrive_one, first.id, "somebody")
    (second,) = take(run)
    say(run, second, 1)
    place_all(run)
    told = [(one.kind, one.attempt, one.fence) for one in read_job(run, first.id)]
    assert told == [("attempt", 1, 1), ("redrive", None, None), ("progress", 1, 2)]


def test_a_first_success_costs_no_event(run: Run) -> None:
    """R180: most jobs have nothing to tell, and write nothing for those who follow."""
    end(run, put_and_take(run))
    place_all(run)
    assert read(run) == []


@pytest.mark.kinds("postgres")
def test_who_commits_late_is_not_missed(store: Store, database: Database) -> None:
    """R135: a transaction holds a lower number open while later ones commit and are read; its
    event comes after those, to everybody, and nobody has waited for it."""
    run = store.run
    claim = put_and_take(run)
    with psycopg.connect(database.direct_url) as late:
        query = f"INSERT INTO {database.schema}.event (job, kind, data, at)"
        query += " VALUES (%s, 'log', '{\"done\": \"late\"}', now()) RETURNING seq"
        ((low,),) = late.execute(query, (claim.id,)).fetchall()
        say(run, claim, 1, 2)
        place_all(run)
        seen = read(run)
        assert numbers(seen) == [1, 2]
        assert [seq for (seq,) in database.rows("SELECT seq FROM event")] == [low + 1, low + 2]
        late.commit()
    say(run, claim, 3)
    place_all(run)
    assert numbers(read(run, after=seen[-1].position)) == ["late", 3]
    assert numbers(read(run)) == numbers(read_job(run, claim.id)) == [1, 2, "late", 3]


@pytest.mark.kinds("postgres")
def test_nobody_else_gives_places_while_somebody_does(store: Store, database: Database) -> None:
    """R135: or a higher place could be seen before a lower one."""
    claim = put_and_take(store.run)
    say(store.run, claim, 1)
    beside = open_store(database.url, database.schema)
    with psycopg.connect(database.direct_url) as slow, ThreadPoolExecutor(1) as pool:
        query = f"SELECT value FROM {database.schema}.counter WHERE name = 'place' FOR UPDATE"
        slow.execute(query)
        slow.execute(f"UPDATE {database.schema}.event SET place = 1")
        slow.execute(f"UPDATE {database.schema}.counter SET value = 1")
        say(store.run, claim, 2)
        placing = pool.submit(beside.run, events.assign_positions)
        time.sleep(0.3)  # it may be in time to do wrong
        assert not placing.done() and read(store.run) == []
        slow.commit()
        assert placing.result(10)[0] == 1
    assert [one.position for one in read(store.run)] == [1, 2]
    beside.close()


@pytest.mark.kinds("postgres")
def test_a_place_is_never_given_twice(store: Store, database: Database) -> None:
    """R136: the events with the highest ones may have been pruned; whoever resumes there would
    miss what came after."""
    claim = put_and_take(store.run)
    say(store.run, claim, 1, 2)
    place_all(store.run)
    database.rows("DELETE FROM event")
    say(store.run, claim, 3)
    place_all(store.run)
    assert [one.position for one in read(store.run)] == [3]


def test_readers_among_writers_see_one_sequence(store: Store, database: Database) -> None:
    """R135: several write at once and commit when they like, several give places, and each reader
    sees each event once, in the same order as every other reader."""
    sequences = race(database, writers=4, readers=3, events_each=40)
    assert sequences[0] and all(one == sequences[0] for one in sequences)


@pytest.mark.campaign
def test_readers_among_many_writers_see_one_sequence(store: Store, database: Database) -> None:
    """R135, at length."""
    sequences = race(database, writers=12, readers=6, events_each=1000)
    assert all(one == sequences[0] for one in sequences)


def race(database: Database, writers: int, readers: int, events_each: int) -> list[list[Any]]:
    # One file has one writer at a time, and who waits has no place in a line: so they are patient.
    patient = StoreSettings(lock_timeout=60.0)
    stores = [open_store(database.url, database.schema, patient) for _ in range(writers + readers)]
    claims = [put_and_take(stores[0].run) for _ in range(writers)]
    total, stop = writers * events_each, threading.Event()

    def write(store: Store, claim: Claim) -> None:
        for n in range(events_each):
            store.run(_slowly, claim, n)

    def follow(store: Store) -> list[Any]:
        """By nothing but the highest place that it has seen."""
        seen: list[StoredEvent] = []
        while len(seen) < total and not stop.is_set():
            store.run(events.assign_positions)
            seen += read(store.run, seen[-1].position if seen else 0, limit=50)
        return [(one.position, one.job, one.data) for one in seen]

    with ThreadPoolExecutor(writers + readers) as pool:
        reading = [pool.submit(follow, store) for store in stores[writers:]]
        writing = [pool.submit(write, *each) for each in zip(stores, claims, strict=False)]
        try:
            for each in writing:
                each.result(300)
            sequences = [each.result(60) for each in reading]
        finally:
            stop.set()
    for store in stores:
        store.close()
    expected = {(claim.id, json.dumps({"done": n})) for claim in claims for n in range(events_each)}
    for sequence in sequences:
        assert len(sequence) == total and {(job, data) for _, job, data in sequence} == expected
        for claim in claims:
            own = [json.loads(data)["done"] for _, job, data in sequence if job == claim.id]
            assert own == sorted(own), "what somebody says in turn is read in turn"
    return sequences


def _slowly(claim: Claim, n: int) -> Any:
    """An event whose transaction is open for a moment after its number was taken."""
    finished = yield from finish([], [said(claim, n)])
    time.sleep(0.002 * (n % 3))
    return finished
