"""The output of jobs over real sockets: in order, resumable on any instance, for its tenant."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from outlast import Outlast
from outlast.model.claim import Claim
from outlast.model.settings import ServiceSettings
from outlast.ops import job_actions
from outlast.ops.streams import store_stream
from outlast.service.events import stream_feeds
from tests.service.following import Follower, Raw, claimed
from tests.service.serving import Served, bearer, serving
from tests.store.jobs import end, take
from tests.support import aeventually

LIMIT = 1_000_000


def of_job(served: Served, id: str, query: str = "") -> str:
    return f"{served.url}/api/v1/jobs/{id}/stream{query}"


def write(ol: Outlast, held: Claim, n: int, *items: Any, first: bool = False) -> None:
    row = {"job": held.id, **held.guard, "n": n, "data": json.dumps(items), "first": first}
    assert ol.store.run(store_stream, [row], LIMIT, ol.store.events_channel) == 1


def told(follower: Follower) -> list[tuple[str, Any]]:
    return [(one.kind, one.said.get("data")) for one in follower.heard]


async def test_output_is_sent_from_its_beginning_to_the_end_of_its_job(
    served: Served, ol: Outlast
) -> None:
    """R248: what was before the stream, what comes while it is open, the next attempt, the end."""
    held = claimed(ol)
    write(ol, held, 1, "one", {"a": "<b>\n"})
    follower = Follower(of_job(served, held.id))
    following = asyncio.create_task(follower.follow())
    await aeventually(lambda: len(follower.heard) == 3)
    write(ol, held, 4, "two")
    await aeventually(lambda: len(follower.heard) == 4)
    end(ol.store.run, held, "released")
    (again,) = take(ol.store.run)
    await aeventually(lambda: len(follower.heard) == 5)  # before it streams anything
    write(ol, again, 0, "three", first=True)
    end(ol.store.run, again)
    await following
    assert told(follower) == [
        ("attempt", None), ("text", "one"), ("json", {"a": "<b>\n"}), ("text", "two"),
        ("attempt", None), ("text", "three"), ("end", None),
    ]  # fmt: skip
    assert follower.heard[-1].said["state"] == "succeeded"
    assert (follower.heard[4].said["attempt"], follower.heard[4].said["fence"]) == (1, 2)
    assert (await Follower(of_job(served, held.id), last=follower.last).follow()).status == 204
    with serving(ol) as other:  # each position, on another instance
        for n, one in enumerate(follower.heard[:-1]):
            rest = await Follower(of_job(other, held.id), last=one.id).follow()
            assert told(rest) == told(follower)[n + 1 :]


async def test_a_redriven_job_goes_on_after_its_end(served: Served, ol: Outlast) -> None:
    """R248: a reader that has the end comes back, and gets the new attempt alone."""
    held = claimed(ol)
    write(ol, held, 1, "one")
    end(ol.store.run, held, "permanent")
    first = await Follower(of_job(served, held.id)).follow()
    ol.store.run(job_actions.redrive, [held.id], "me")
    (again,) = take(ol.store.run)
    write(ol, again, 1, "two", first=True)
    end(ol.store.run, again)
    rest = await Follower(of_job(served, held.id), last=first.last).follow()
    assert told(rest) == [("attempt", None), ("text", "two"), ("end", None)]


async def test_a_reader_that_is_behind_the_feed_misses_nothing(
    served: Served, ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R248: the feed keeps little, and one that lags reads from the store."""
    monkeypatch.setattr(stream_feeds, "FEED_BYTES", 100)
    held = claimed(ol)
    followers = [Follower(of_job(served, held.id)) for _ in range(3)]
    following = [asyncio.create_task(one.follow()) for one in followers]
    await aeventually(lambda: all(one.heard for one in followers))
    for n in range(40):
        write(ol, held, n, f"{n} " * 10)
    end(ol.store.run, held)
    await asyncio.gather(*following)
    expected = "".join(f"{n} " * 10 for n in range(40))
    for one in followers:
        assert "".join(data for kind, data in told(one) if kind == "text") == expected


async def test_the_output_of_another_tenant_or_queue_is_not_found(
    served: Served, ol: Outlast
) -> None:
    """R248: nor without the scope, nor without a token."""
    held = claimed(ol, tenant="acme", queue="a")
    write(ol, held, 1, "secret")
    mine, queue = served.token("read", tenant="acme"), served.token("read", queues=["a"])
    assert (await _status(served, held, mine)) == (await _status(served, held, queue)) == 200
    others = {
        404: [served.token("read", tenant="other"), served.token("read", queues=["b"])],
        403: [served.token("enqueue")],
        401: ["ol_wrong"],
    }
    for status, tokens in others.items():
        for token in tokens:
            assert await _status(served, held, token) == status
    bad = await _status(served, held, mine, "?after=x")
    assert bad == 422


async def _status(served: Served, held: Claim, token: str, query: str = "") -> int:
    async with (
        httpx.AsyncClient(trust_env=False, verify=False) as client,
        client.stream("GET", of_job(served, held.id, query), headers=bearer(token)) as answer,
    ):
        return answer.status_code


async def test_a_silent_stream_is_kept_alive_and_leaves_nothing_behind(ol: Outlast) -> None:
    """R137: also of a client that runs away before the first frame."""
    held = claimed(ol)
    with serving(ol, ServiceSettings.of(events_keep_alive=0.1)) as served:
        feeds = served.app.service.broadcaster.feeds
        follower = Follower(of_job(served, held.id))
        following = asyncio.create_task(follower.follow())
        await aeventually(lambda: follower.raw.count(": keep-alive") >= 2)
        for hard in (True, False):
            Raw(served.url, f"/api/v1/jobs/{held.id}/stream").run_away(hard)
        end(ol.store.run, held)
        await following
        await aeventually(
            lambda: not feeds.jobs() and not served.app.service.broadcaster.subscribers
        )
