"""A backup is put in the place of the database: readers stand where nobody has been yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from outlast import Outlast
from outlast.ops import events
from outlast.service.events import broadcaster
from tests.service.following import Follower, claimed, say
from tests.service.serving import Served, serving
from tests.store.jobs import table
from tests.support import Database, aeventually


@pytest.fixture
def other(ol: Outlast) -> Iterator[Served]:
    """Another server on the same database."""
    with serving(ol) as running:
        yield running


def put_back(database: Database, place: int) -> None:
    """As in a backup that was made when this was the last place."""
    name, counter = table(database, "event"), table(database, "counter")
    with database.connect() as connection:
        if database.is_sqlite:
            connection.execute(f"DELETE FROM {name} WHERE seq > {place}")
            connection.execute(f"UPDATE sqlite_sequence SET seq = {place} WHERE name = '{name}'")
        else:
            connection.execute(f"DELETE FROM {name} WHERE place IS NULL OR place > {place}")
            connection.execute(f"UPDATE {counter} SET value = {place} WHERE name = 'place'")


@pytest.mark.parametrize("path", ["/api/v1/events", "/api/v1/jobs/{id}/events"])
async def test_who_comes_back_beyond_the_last_event_is_told_so_and_goes_on(
    served: Served, other: Served, ol: Outlast, path: str
) -> None:
    """R135, R136: on any server; the id of `reset` is one to come back with."""
    held = claimed(ol)
    say(ol, held, range(3))
    path = path.replace("{id}", held.id)
    before = await Follower(served.url + path, last="0").follow(3)
    assert before.last is not None
    beyond = str(int(before.last) + 1000)
    follower = Follower(other.url + path, last=beyond)
    following = asyncio.create_task(follower.follow(3))
    await aeventually(lambda: "reset" in follower.kinds)
    [reset] = follower.events
    assert (reset.id, reset.said["asked"]) == (before.last, beyond)
    say(ol, held, [3, 4])
    await following
    assert follower.counted == [3, 4]
    say(ol, held, [5])
    again = await Follower(served.url + path, last=reset.id).follow(3)
    assert again.counted == [3, 4, 5] and "reset" not in again.kinds


async def test_the_end_of_a_job_beyond_the_last_event_is_told_anew(
    served: Served, ol: Outlast
) -> None:
    """R137: what was told may be another end than that which stands now."""
    held = claimed(ol)
    say(ol, held, range(3))
    ol.cancel(held.id)
    ol.reclaim(held.id)
    url = f"{served.url}/api/v1/jobs/{held.id}/events"
    told = await Follower(url).follow()
    assert told.kinds[-1] == "end" and (await Follower(url, last=told.last).follow()).status == 204
    again = await Follower(url, last="1000000-end").follow()
    assert [one.kind for one in again.events] == ["reset", "end"] and again.last == told.last


async def test_who_follows_while_the_sequence_is_put_back_goes_on(
    served: Served, ol: Outlast, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R135: a server that has run on notices too."""
    monkeypatch.setattr(broadcaster, "RESTORE_CHECK_INTERVAL_S", 0.1)
    held = claimed(ol)
    follower = Follower(f"{served.url}/api/v1/events", last="0")
    following = asyncio.create_task(follower.follow(12))
    say(ol, held, range(10))
    await aeventually(lambda: len(follower.counted) == 10)
    third = follower.events[2].id
    assert third is not None
    put_back(database, int(third))
    await aeventually(lambda: "reset" in follower.kinds)
    assert follower.events[-1].id == third
    say(ol, held, [77])
    await following
    assert follower.counted == [*range(10), 77]
    assert follower.last == str(int(third) + 1)


def test_the_last_place_stays_whatever_is_pruned(ol: Outlast, database: Database) -> None:
    """Else everybody would be sent back whenever the last job is removed."""
    say(ol, claimed(ol), range(3))
    ol.store.run(events.assign_positions)
    last = ol.store.run(events.last_position)
    assert last >= 3
    with database.connect() as connection:
        connection.execute(f"DELETE FROM {table(database, 'event')}")
    assert ol.store.run(events.last_position) == last
