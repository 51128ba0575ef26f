"""Event streams over real sockets: from the store, in order, whoever comes and goes."""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from outlast import Outlast
from outlast.model.lifecycle import Outcome
from outlast.model.outcome import AttemptEnd, decide
from outlast.model.retry import Retry
from outlast.model.settings import ServiceSettings
from outlast.ops import claim
from outlast.ops.event_filter import EventFilter
from outlast.ops.finish import finish
from outlast.service import service
from tests.service.following import Follower, Raw, claimed, say
from tests.service.serving import Served, serving
from tests.store.jobs import ending, table
from tests.support import Database, Proxy, aeventually, eventually
from tests.support.processes import ROOT

QUICK = {"events_keep_alive": 0.2, "events_stall": 1.0}


@pytest.fixture
def quick(ol: Outlast) -> Iterator[Served]:
    """A service whose streams are impatient."""
    with serving(ol, ServiceSettings.of(**QUICK)) as running:
        yield running


def of_job(served: Served, id: str, query: str = "") -> str:
    return f"{served.url}/api/v1/jobs/{id}/events{query}"


def of_all(served: Served, query: str = "") -> str:
    return f"{served.url}/api/v1/events{query}"


def ends(ol: Outlast, held: Any, outcome: str = "succeeded", retry: Retry | None = None) -> None:
    error = None if outcome == "succeeded" else {"type": "Boom", "message": "it broke"}
    ended = AttemptEnd(Outcome(outcome), error=error)
    given = decide(held, ended, retry or Retry(max_attempts=1), 0.5)
    ol.store.run(finish, [given])


# What is told of a job


async def test_a_job_is_told_from_its_first_event_to_its_end(served: Served, ol: Outlast) -> None:
    """R135, R137: what was before the stream, what comes while it is open, and its end; then the
    stream is closed, within a second."""
    held = claimed(ol)
    say(ol, held, range(5))
    follower = Follower(of_job(served, held.id))
    following = asyncio.create_task(follower.follow())
    await aeventually(lambda: len(follower.counted) == 5)
    assert follower.heard[0].said["state"] == "running"
    say(ol, held, range(5, 8))
    await aeventually(lambda: len(follower.counted) == 8)
    ends(ol, held)
    since = time.monotonic()
    await following
    assert time.monotonic() - since < 1.0
    assert follower.counted == list(range(8))
    assert follower.kinds == ["state", *["progress"] * 8, "end"]
    last = follower.events[-1]
    assert (last.said["state"], last.id) == ("succeeded", f"{follower.events[-2].id}-end")


async def test_a_job_that_has_ended_is_told_at_once_and_not_twice(
    served: Served, ol: Outlast
) -> None:
    """R137: who comes back with the id of the end is told that there is no more (204), on which a
    browser gives up."""
    held = claimed(ol)
    say(ol, held, range(3))
    ends(ol, held, "permanent")
    follower = await Follower(of_job(served, held.id)).follow()
    assert follower.kinds == [*["progress"] * 3, "attempt", "end"]
    assert follower.events[-1].said["error"]["message"] == "it broke"
    again = await Follower(of_job(served, held.id), last=follower.last).follow()
    assert (again.status, again.heard) == (204, [])
    # From the middle: the rest, and the end under the same id.
    rest = await Follower(of_job(served, held.id), last=follower.events[1].id).follow()
    assert [one.id for one in rest.events] == [one.id for one in follower.events[2:]]


async def test_a_job_s_last_words_are_all_before_its_end(served: Served, ol: Outlast) -> None:
    """R137: it speaks and ends while somebody looks, between two questions."""
    held, feeder = claimed(ol), served.app.service.broadcaster
    follower = Follower(of_job(served, held.id))
    following = asyncio.create_task(follower.follow())
    await aeventually(lambda: feeder._followers_of_job and feeder._tick > 2)
    ask, said = feeder._statuses, threading.Event()

    async def just_before(jobs: Any) -> Any:
        if not said.is_set():
            said.set()
            await asyncio.to_thread(say, ol, held, range(3))
            await asyncio.to_thread(ends, ol, held)
        return await ask(jobs)

    feeder._statuses = just_before  # type: ignore[method-assign]
    await following
    assert follower.kinds[-4:] == ["progress", "progress", "progress", "end"]


async def test_a_stream_of_some_kinds_ends_under_the_same_id(served: Served, ol: Outlast) -> None:
    held = claimed(ol)
    say(ol, held, range(2))
    ends(ol, held, "permanent")
    whole = await Follower(of_job(served, held.id)).follow()
    some = await Follower(of_job(served, held.id, "?kind=progress")).follow()
    assert some.kinds == ["progress", "progress", "end"]
    assert some.last == whole.last


async def test_attempts_are_kept_apart(served: Served, ol: Outlast) -> None:
    """R138: what attempt 2 says is known by its claim; what the first one says after it was lost
    is not kept, and its end is told between them."""
    first = claimed(ol)
    follower = Follower(of_job(served, first.id))
    following = asyncio.create_task(follower.follow())
    say(ol, first, [1, 2])
    ends(ol, first, "failed", Retry(max_attempts=2, base=0.0, jitter=0.0))
    (second,) = await aeventually(
        lambda: ol.store.run(
            claim.claim, claim.ClaimRequest("w2", "default", 1, 600.0, promote=True)
        )
    )
    say(ol, first, [3])
    say(ol, second, [1, 2])
    await aeventually(lambda: len(follower.counted) == 4)
    ends(ol, second)
    await following
    told = [(one.kind, one.said.get("attempt"), one.said.get("fence")) for one in follower.events]
    assert told == [
        ("progress", 1, 1),
        ("progress", 1, 1),
        ("attempt", 1, 1),
        ("progress", 2, 2),
        ("progress", 2, 2),
        ("attempt", 2, 2),
        ("end", 2, 2),
    ]
    assert [one.said["data"]["outcome"] for one in follower.events if one.kind == "attempt"] == [
        "failed",
        "succeeded",
    ]


async def test_a_new_life_is_told_to_who_comes_back(served: Served, ol: Outlast) -> None:
    """A redriven job's stream goes on after its first end."""
    held = claimed(ol)
    ends(ol, held, "permanent")
    follower = await Follower(of_job(served, held.id)).follow()
    assert follower.kinds == ["attempt", "end"]
    ol.retry(held.id)
    following = asyncio.create_task(follower.follow())
    await aeventually(lambda: "redrive" in follower.kinds)
    (second,) = ol.store.run(claim.claim, claim.ClaimRequest("w2", "default", 1, 600.0))
    await aeventually(lambda: follower.heard[-1].said.get("state") == "running")
    ends(ol, second)
    await following
    assert [one.kind for one in follower.events] == ["attempt", "end", "redrive", "end"]
    assert len({one.id for one in follower.events}) == 4
    again = await Follower(of_job(served, held.id), last=follower.last).follow()
    assert again.status == 204


async def test_a_cancelled_job_is_told_to_its_end(served: Served, ol: Outlast) -> None:
    """R137: one that never ran."""
    held = claimed(ol)
    ends(ol, held, "released")
    follower = Follower(of_job(served, held.id))
    following = asyncio.create_task(follower.follow())
    await aeventually(lambda: follower.heard)
    ol.cancel(held.id, "not wanted")
    await following
    assert follower.kinds[-2:] == ["cancel", "end"]
    assert follower.events[-1].said["state"] == "cancelled"


async def test_lines_of_json_say_the_same(served: Served, ol: Outlast) -> None:
    held = claimed(ol)
    say(ol, held, range(3))
    ends(ol, held)
    spelled = await Follower(of_job(served, held.id)).follow()
    answer = served.get(
        f"/api/v1/jobs/{held.id}/events", headers={"accept": "application/x-ndjson"}
    )
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in answer.text.splitlines()] == [
        one.said for one in spelled.heard
    ]


async def test_the_client_of_the_docs_follows_to_the_end(served: Served, ol: Outlast) -> None:
    """R202: what the page on events shows is enough to have every event once."""
    page = (ROOT / "docs" / "reference" / "events.md").read_text()
    *_, code = re.findall(r"```python\n(.*?)```", page, re.S)
    names: dict[str, Any] = {}
    exec(code, names)
    held = claimed(ol)
    say(ol, held, range(5))
    ends(ol, held, "permanent")
    url = of_job(served, held.id)
    heard = await asyncio.to_thread(lambda: list(names["follow"](url)))
    assert [one["kind"] for one in heard] == [*["progress"] * 5, "attempt", "end"]
    assert await asyncio.to_thread(lambda: list(names["follow"](url, heard[-1]["id"]))) == []


async def test_who_asks_for_what_is_new_is_told_nothing_old(served: Served, ol: Outlast) -> None:
    """Nor what had no place yet, because nobody followed."""
    held = claimed(ol)
    say(ol, held, range(5))
    follower = Follower(of_all(served))
    following = asyncio.create_task(follower.follow(3))
    await aeventually(lambda: served.app.service.broadcaster._followers_of_all)
    say(ol, held, range(5, 8))
    await following
    assert follower.counted == [5, 6, 7]


# Who may see what


async def test_a_tenant_follows_its_own_jobs_alone(served: Served, ol: Outlast) -> None:
    """R145: another tenant's job is not there, and its events are not in the stream of all; what
    concerns everybody is for those who may see everything."""
    ours, theirs = claimed(ol, tenant="ours"), claimed(ol, tenant="theirs")
    slow = claimed(ol, tenant="ours", queue="slow")
    for each, n in ((ours, 1), (theirs, 2), (slow, 3)):
        say(ol, each, [n])
    ol.pause("other")
    token = served.token("read", tenant="ours")
    some = served.token("read", tenant="ours", queues=["slow"])
    every = served.token("read")
    assert served.get(f"/api/v1/jobs/{theirs.id}/events", token).status_code == 404
    assert served.get(f"/api/v1/jobs/{ours.id}/events", some).status_code == 404
    assert served.get(f"/api/v1/jobs/{ours.id}/events").status_code == 401
    assert served.get("/api/v1/events", served.token("enqueue")).status_code == 403
    followers = [Follower(of_all(served, "?after=0"), who) for who in (token, some, every)]
    tasks = [asyncio.create_task(one.follow()) for one in followers]
    await aeventually(lambda: len(followers[2].counted) == 3)
    say(ol, theirs, [4])
    say(ol, ours, [5])
    say(ol, slow, [6])
    await aeventually(lambda: [len(one.counted) for one in followers] == [4, 2, 6])
    assert [len(one.events) for one in followers[:2]] == [4, 2]
    assert [one.counted for one in followers] == [[1, 3, 5, 6], [3, 6], [1, 2, 3, 4, 5, 6]]
    assert "pause" in followers[2].kinds
    await _cancel(tasks)


async def test_filters(served: Served, ol: Outlast) -> None:
    one, other = claimed(ol, queue="a"), claimed(ol, queue="b")
    say(ol, one, [1])
    say(ol, other, [2])
    ol.cancel(other.id)
    queries = ["queue=a,c", "kind=cancel", "task=none", "state=dead"]
    followers = [Follower(of_all(served, f"?after=0&{query}")) for query in queries]
    tasks = [asyncio.create_task(each.follow()) for each in followers]
    await aeventually(lambda: followers[0].events and followers[1].events)
    assert [[e.kind for e in f.events] for f in followers] == [["progress"], ["cancel"], [], []]
    await _cancel(tasks)


async def test_a_filter_finds_the_same_whenever_it_is_read(served: Served, ol: Outlast) -> None:
    """R135: by what became of a job then, not by how it stands now."""
    held = claimed(ol, queue="a")
    say(ol, held, [1], state="dead")  # what a handler says is no state
    ol.store.run(finish, [ending(held, "permanent")])
    ol.retry(held.id)
    gone = claimed(ol, queue="b")
    ol.store.run(finish, [ending(gone, "permanent")])

    async def found(after: str | None = None) -> list[str | None]:
        follower = Follower(of_all(served, "?after=0&state=dead&stay=1"), last=after)
        await follower.follow()
        return [one.id for one in follower.events]

    first = await found()
    assert len(first) == 2 and await found(first[0]) == first[1:]
    ol.retry(gone.id)
    assert await found() == first and await found(first[0]) == first[1:]


def test_what_cannot_be_read_is_refused(served: Served, ol: Outlast) -> None:
    held = claimed(ol)
    path = f"/api/v1/jobs/{held.id}/events"
    assert served.get(path, headers={"last-event-id": "x"}).status_code == 422
    assert served.get(f"{path}?after=-1").status_code == 422
    assert served.get(f"{path}?kinds=log").status_code == 422
    assert served.get("/api/v1/jobs/nobody/events").status_code == 404
    head = served.call("HEAD", path)
    assert (head.status_code, head.headers["content-type"]) == (
        200,
        "text/event-stream; charset=utf-8",
    )


async def test_only_so_many_may_follow(ol: Outlast) -> None:
    settings = ServiceSettings.of(events_subscribers=3, events_per_token=2)
    with serving(ol, settings) as served:
        first, second = served.token("read"), served.token("read")
        tasks = [asyncio.create_task(Follower(of_all(served), first).follow()) for _ in range(2)]
        await aeventually(lambda: served.app.service.broadcaster.subscribers == 2)
        assert served.get("/api/v1/events", first).status_code == 429
        tasks += [asyncio.create_task(Follower(of_all(served), second).follow())]
        await aeventually(lambda: served.app.service.broadcaster.subscribers == 3)
        assert served.get("/api/v1/events", second).status_code == 503
        await _cancel(tasks)
        await aeventually(lambda: served.app.service.broadcaster.subscribers == 0)


@pytest.mark.kinds("postgres")
async def test_who_comes_first_does_not_wait_for_silence(
    served: Served, ol: Outlast, database: Database
) -> None:
    """R135: where something is told all the time, following begins all the same."""
    held = claimed(ol)
    with database.connect() as connection:  # whenever places are given, there is more without one
        connection.execute(
            "CREATE FUNCTION more() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" INSERT INTO {database.schema}.event (kind, at) VALUES ('more', now());"
            " RETURN NEW; END $$"
        )
        connection.execute(
            f"CREATE TRIGGER more AFTER UPDATE ON {table(database, 'counter')}"
            " FOR EACH ROW EXECUTE FUNCTION more()"
        )
    say(ol, held, [1])
    follower = await Follower(of_all(served)).follow(until=1)
    assert follower.kinds == ["more"]
    ol.store.run(finish, [ending(held)])
    path = f"/api/v1/jobs/{held.id}/events"
    ended = await Follower(f"{served.url}{path}").follow()
    assert served.get(path, headers={"last-event-id": str(ended.last)}).status_code == 204


async def test_no_more_may_follow_however_many_come_at_once(ol: Outlast) -> None:
    """R134: all of them find room, and are then looked up."""
    with serving(ol, ServiceSettings.of(events_subscribers=3)) as served:
        path = f"/api/v1/jobs/{claimed(ol).id}/events?stay=1"
        followers = [Follower(f"{served.url}{path}") for _ in range(30)]
        await asyncio.gather(*(one.follow() for one in followers))
        assert [one.status for one in followers].count(200) == 3
        assert {one.status for one in followers} == {200, 503}
        await aeventually(lambda: served.app.service.broadcaster.subscribers == 0)


async def test_a_revoked_token_ends_its_streams(served: Served) -> None:
    """Within five seconds, and with a last word."""
    secret, id = served.made_token("read")
    follower = Follower(of_all(served, "?kind=log"), secret)
    following = asyncio.create_task(follower.follow())
    await aeventually(lambda: served.app.service.broadcaster.subscribers == 1)
    served.revoke(id)
    await asyncio.wait_for(following, 5.0)
    assert follower.kinds == ["cut"] and follower.heard[0].said["reason"] == "token"


# Coming, going, stalling


def test_who_leaves_before_the_first_frame_leaves_nothing_behind(served: Served) -> None:
    """R133, in short."""
    _run_away(served, 100)


@pytest.mark.campaign
def test_a_thousand_leave_before_the_first_frame(served: Served) -> None:
    """R133"""
    _run_away(served, 1000)


def _run_away(served: Served, number: int) -> None:
    feeder, loop = served.app.service.broadcaster, _loop(served)
    with httpx.stream("GET", of_all(served), trust_env=False) as first:
        assert first.status_code == 200  # the feeder is at work, and stays a while
    eventually(lambda: feeder.subscribers == 0)
    before, threads = _tasks(loop), _threads()
    for n in range(number):
        raw = Raw(served.url, "/api/v1/events?after=0" if n % 2 else "/api/v1/events")
        if n % 4 == 0:
            time.sleep(random.uniform(0, 0.002))  # some get further than others
        raw.run_away(hard=n % 4 == 0)
    eventually(lambda: feeder.subscribers == 0 and _tasks(loop) <= before, timeout=30)
    eventually(lambda: _threads() <= threads | WATCH)
    assert feeder.counts["came"] > number / 2, "most of them had got a seat"
    assert (
        not feeder._followers_of_all
        and not feeder._followers_of_job
        and len(served.app.service.revocations) == 0
    )


async def test_a_first_frame_that_cannot_be_sent_leaves_nothing_behind(
    ol: Outlast,
) -> None:
    """R133: whatever fails, and whenever it does."""
    app = service(ol)
    feeder = app.service.broadcaster
    failures: list[tuple[str, Exception]] = [
        ("http.response.start", OSError("gone")),
        ("http.response.body", OSError("gone")),
        ("http.response.start", RuntimeError("a bug in a server")),
    ]
    async with app.lifespan(None):
        with feeder.subscription(EventFilter(), "", None):
            await aeventually(feeder._ready.is_set)
        before = len(asyncio.all_tasks())
        for kind, failure in failures:

            async def send(message: Any, kind: str = kind, failure: Exception = failure) -> None:
                if message["type"] == kind:
                    raise failure

            with suppress(RuntimeError):
                await app(_scope("/api/v1/events"), _silence, send)
            assert feeder.subscribers == 0 and not feeder._followers_of_all
            assert len(asyncio.all_tasks()) == before
    assert feeder.counts["came"] == len(failures) + 1


def _scope(path: str) -> dict[str, Any]:
    return {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": b"", "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80), "scheme": "http", "http_version": "1.1",
    }  # fmt: skip


async def _silence() -> Any:
    await asyncio.Event().wait()


@pytest.mark.slow_on("postgres")
async def test_a_stalled_one_is_cut_and_the_others_miss_nothing(
    quick: Served, ol: Outlast, caplog: pytest.LogCaptureFixture
) -> None:
    """R134, in short: here it stalls on what comes."""
    await _stall(quick, ol, good=8, events=500, note="x" * 8000)
    assert "without completing" not in caplog.text, "the server knows that we hung up"


@pytest.mark.campaign
async def test_a_stalled_one_among_a_hundred(ol: Outlast) -> None:
    """R134: here it stalls on what was; others are told a thousand times more."""
    held = claimed(ol)
    say(ol, held, range(10_000, 11_000), note="x" * 8000)
    with serving(ol, ServiceSettings.of(events_stall=10.0, events_per_token=200)) as served:
        await _stall(served, ol, good=100, events=1000, note="")


async def _stall(served: Served, ol: Outlast, good: int, events: int, note: str) -> None:
    """One takes nothing, and so much is told that its line fills up."""
    feeder, held = served.app.service.broadcaster, claimed(ol)
    followers = [Follower(of_all(served)) for _ in range(good)]
    tasks = [asyncio.create_task(one.follow(2 * events, 120.0)) for one in followers]
    await aeventually(lambda: len(feeder._followers_of_all) == good, timeout=30)
    before = await asyncio.to_thread(_published, ol, held, range(events), note)
    await aeventually(lambda: all(len(one.events) == events for one in followers), timeout=60)
    stalled = Raw(served.url, "/api/v1/events?after=0", receive=4096)
    await aeventually(lambda: feeder.subscribers == good + 1)
    beside = await asyncio.to_thread(_published, ol, held, range(events, 2 * events), note)
    await asyncio.gather(*tasks)
    for one in followers:
        assert one.counted == list(range(2 * events))
        assert "cut" not in one.kinds
    await aeventually(lambda: feeder.counts["cut"] == 1, timeout=30)
    await aeventually(lambda: feeder.subscribers == 0, timeout=30)
    await asyncio.to_thread(_comes_to_an_end, stalled)
    print(f"publishing {events} events: {before:.2f} s, beside a stalled one {beside:.2f} s")
    assert beside < 3 * before + 1.0


def _comes_to_an_end(stalled: Raw) -> None:
    """In the middle of what it never read; or, if it reads after all, with the last word, which
    says where it may go on."""
    stalled.socket.settimeout(10)
    received = b""
    with suppress(ConnectionError):
        while part := stalled.socket.recv(1_000_000):
            received += part
    stalled.close()
    ids = re.findall(rb"^id: (\d+)$", received, re.M)
    assert ids
    if said := re.search(rb"^event: cut\ndata: (.*)$", received, re.M):
        assert json.loads(said[1]) == {"kind": "cut", "reason": "slow", "after": ids[-1].decode()}


def _published(ol: Outlast, held: Any, numbers: range, note: str) -> float:
    since = time.monotonic()
    for n in numbers:
        say(ol, held, [n], note=note)
    return time.monotonic() - since


async def test_a_burst_beyond_the_buffer_is_read_from_the_store(ol: Outlast) -> None:
    """R134: whoever is too slow for a moment misses nothing, and is not cut."""
    with serving(ol, ServiceSettings.of(events_buffer=10)) as served:
        held = claimed(ol)
        follower = Follower(of_all(served))
        following = asyncio.create_task(follower.follow(1000))
        await aeventually(lambda: served.app.service.broadcaster._followers_of_all)
        say(ol, held, range(1000))
        await following
    assert follower.counted == list(range(1000))


async def test_an_idle_stream_is_kept_alive_and_ends_in_time(ol: Outlast, quick: Served) -> None:
    """R144: through a proxy; it says that it is there, and how far it is; and it does not last for
    ever, but can be resumed."""
    held = claimed(ol)
    host, port = quick.url.removeprefix("http://").split(":")
    with Proxy((host, int(port))) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/api/v1/events?kind=cancel"
        follower = Follower(url)
        following = asyncio.create_task(follower.follow(1))
        say_nothing_wanted = [1, 2, 3]
        await aeventually(lambda: quick.app.service.broadcaster._followers_of_all)
        say(ol, held, say_nothing_wanted)
        await aeventually(lambda: follower.last, timeout=10)
        await aeventually(lambda: len([1 for line in follower.raw if line[:1] == ":"]) >= 3)
        assert follower.heard == [], "a browser makes no event of any of it"
        ol.cancel(held.id)
        await following
    assert follower.kinds == ["cancel"]


async def test_a_stream_lasts_so_long_and_is_resumed(ol: Outlast) -> None:
    """R144: a browser comes back by itself, with the id of the last event that it got."""
    with serving(ol, ServiceSettings.of(events_life=0.3)) as served:
        held = claimed(ol)
        follower = Follower(of_job(served, held.id))
        for n in range(4):
            say(ol, held, [n])
            await follower.follow()
            assert follower.kinds[-1] == "cut" and follower.heard[-1].said["reason"] == "life"
        assert any(line.startswith("retry: ") for line in follower.raw)
    assert follower.counted == [0, 1, 2, 3]


async def test_a_server_that_goes_ends_its_streams(ol: Outlast) -> None:
    """R136: in good order, and without waiting for them."""
    with serving(ol) as served:
        followers = [Follower(of_all(served)) for _ in range(3)]
        tasks = [asyncio.create_task(one.follow()) for one in followers]
        await aeventually(lambda: len(served.app.service.broadcaster._followers_of_all) == 3)
        _loop(served).call_soon_threadsafe(served.app.service.broadcaster.close)
        await asyncio.gather(*tasks)
        assert [one.kinds for one in followers] == [["cut"]] * 3
        assert served.get("/api/v1/events").status_code == 503


# What it costs


@pytest.mark.quiet
async def test_many_followers_cost_as_much_as_one(ol: Outlast, database: Database) -> None:
    """One reads for all."""
    with serving(ol, ServiceSettings.of(events_poll=0.2)) as served:
        held, feeder = claimed(ol), served.app.service.broadcaster
        urls = [of_all(served) if n % 2 else of_job(served, held.id) for n in range(40)]
        followers = [Follower(url) for url in urls]
        tasks = [asyncio.create_task(one.follow()) for one in followers]
        await aeventually(lambda: feeder.subscribers == 40, timeout=60)
        say(ol, held, range(10))
        await aeventually(lambda: all(len(one.counted) == 10 for one in followers), timeout=60)
        asked: list[str] = []
        run = feeder._store.arun_once
        feeder._store.arun_once = lambda op: (asked.append(op.__name__), run(op))[1]  # type: ignore

        async def all_are_live() -> bool:
            """Nobody still reads for itself what was told before it came."""
            asked.clear()
            before = feeder.counts["looks"]
            await aeventually(lambda: feeder.counts["looks"] >= before + 2, timeout=60)
            return "page_of_job" not in asked

        await aeventually(all_are_live, timeout=60)
        asked.clear()
        looks = feeder.counts["looks"]
        say(ol, held, range(10, 20))
        await aeventually(lambda: all(len(one.counted) == 20 for one in followers), timeout=60)
        await aeventually(lambda: feeder.counts["looks"] >= looks + 3, timeout=60)
        asked = [one for one in asked if one != "last_position"]  # every few seconds
        assert set(asked) == {"job_status", "assign_positions", "page"}
        assert len(asked) <= 3 * (feeder.counts["looks"] - looks + 1)
        await _cancel(tasks)


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _loop(served: Served) -> asyncio.AbstractEventLoop:
    [task, *_] = served.app.service._tasks
    return task.get_loop()


WATCH = Counter(["Thread (_look_out)"])  # the feeder's one; it begins and ends with its work


def _threads() -> Counter[str]:
    """But for those of pools, which are made when they are needed and kept."""
    pools = ("asyncio_", "uvloop_", "outlast-sqlite")
    names = [one.name for one in threading.enumerate() if not one.name.startswith(pools)]
    return Counter(re.sub(r"^Thread-\d+", "Thread", name) for name in names)


def _tasks(loop: asyncio.AbstractEventLoop) -> int:
    return len(asyncio.all_tasks(loop))
