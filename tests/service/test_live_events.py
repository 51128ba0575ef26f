"""Streams of starts and successes, and of flows, over real sockets."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from outlast import Outlast, group
from outlast.live_event_reader import LiveBatch, LiveReader
from outlast.model.settings import ServiceSettings
from outlast.ops import live_events
from tests.service.following import Follower
from tests.service.serving import Served, serving
from tests.store.jobs import end, put, put_and_take, take
from tests.support import aeventually


async def test_starts_and_successes_are_streamed_if_they_are_asked_for(
    served: Served, ol: Outlast
) -> None:
    """R135: each once; resumed after any of them; without `kind`, stored events alone."""
    url = f"{served.url}/api/v1/events"
    asked, plain = Follower(f"{url}?kind=started,succeeded"), Follower(url)
    following = [asyncio.create_task(one.follow()) for one in (asked, plain)]
    await aeventually(lambda: served.app.service.broadcaster.subscribers == 2)
    await aeventually(lambda: asked.status == 200)

    def heard_of_one() -> bool:
        end(ol.store.run, put_and_take(ol.store.run))
        return bool(asked.heard)

    await aeventually(heard_of_one, interval=0.2)  # it has found its beginning
    jobs = set()
    for _ in range(3):
        held = put_and_take(ol.store.run)
        end(ol.store.run, held)
        jobs.add(str(held.id))

    def heard(kind: str) -> list[str]:
        return [one.said["job"] for one in asked.heard if one.kind == kind]

    await aeventually(lambda: jobs <= set(heard("succeeded")))
    assert jobs <= set(heard("started"))
    assert max(Counter(heard("started") + heard("succeeded")).values()) == 2, "each of them once"
    assert plain.kinds == []
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)
    told = [one for one in asked.events if one.kind == "succeeded"]
    again = Follower(f"{url}?kind=succeeded&stay=2", last=told[0].id)
    await again.follow()
    assert [one.id for one in again.events] == [one.id for one in told[1:]]


async def test_a_flow_has_a_stream_that_ends_with_it(served: Served, ol: Outlast) -> None:
    """R137: from its first event to its end; who comes back with that is told so (204)."""

    @ol.task(name="work")
    def work(n: int) -> None: ...

    jobs = ol.enqueue(group(*(work.job(n) for n in range(3))))
    url = f"{served.url}/api/v1/flows/{jobs[0].flow}/events?kind=succeeded,attempt"
    follower = Follower(url)
    following = asyncio.create_task(follower.follow())
    await aeventually(lambda: follower.status == 200)
    first, *others = take(ol.store.run, 3)
    end(ol.store.run, first, "permanent")
    for claim in others:
        end(ol.store.run, claim)
    other = put_and_take(ol.store.run)
    end(ol.store.run, other)
    await asyncio.wait_for(following, 20)
    assert Counter(follower.kinds) == {"attempt": 1, "succeeded": 2, "end": 1}
    assert {one.said["job"] for one in follower.events[:-1]} == {job.id for job in jobs}
    assert follower.events[-1].said["data"]["state"] == "partial"
    again = await Follower(url, last=follower.last).follow()
    assert again.status == 204


async def test_a_stream_shows_what_its_token_may_see(served: Served, ol: Outlast) -> None:
    """R141: successes of one tenant, in its queues; another tenant's flow is not found."""

    @ol.task(name="work", tenant="acme", queue="mail")
    def work() -> None: ...

    mine = put_and_take(ol.store.run, tenant="acme", queue="mail")
    others = [
        put_and_take(ol.store.run, tenant="acme", queue="docs"),
        put_and_take(ol.store.run, tenant="other", queue="mail"),
    ]
    for claim in (*others, mine):
        end(ol.store.run, claim)
    token = served.token("read", tenant="acme", queues=["mail"])
    url = f"{served.url}/api/v1/events?kind=succeeded&after=0&stay=3"
    follower = await Follower(url, token=token).follow()
    assert [one.said["job"] for one in follower.events] == [mine.id]
    (job,) = ol.enqueue(group(work.job()))
    foreign = served.token("read", tenant="other")
    assert served.get(f"/api/v1/flows/{job.flow}/events", foreign).status_code == 404
    assert served.get("/api/v1/events?kind=succeeded&after=x", foreign).status_code == 422


async def test_a_busy_system_is_looked_at_now_and_then(
    ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R140: with something new at every look, a watcher costs a look per `events_poll`."""
    put(ol.store.run, 100)
    claims, look, looks = take(ol.store.run, 100), LiveReader.read, [0]

    async def after_one_more_success(reader: LiveReader) -> LiveBatch:
        looks[0] += 1
        await asyncio.to_thread(end, ol.store.run, claims.pop())
        return await look(reader)

    monkeypatch.setattr(LiveReader, "read", after_one_more_success)
    monkeypatch.setattr(live_events, "SETTLE_S", 0.0)
    with serving(ol, ServiceSettings(events_poll=1.0)) as served:
        url = f"{served.url}/api/v1/events?kind=succeeded&after=0&stay=3"
        follower = await Follower(url).follow()
    assert len(follower.events) >= 2
    assert looks[0] <= 5
