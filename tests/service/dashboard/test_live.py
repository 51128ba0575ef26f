"""Pages that are live: one look at the database serves all who look on."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle

import httpx
import pytest
from starlette.requests import Request
from starlette.types import Message, Scope

from outlast import Outlast, cached
from outlast.model.errors import StoreUnavailable
from outlast.model.settings import ServiceSettings
from outlast.ops import tokens
from outlast.ops.duties import DutyTally, report_duty
from outlast.ops.operation import Op, Statement
from outlast.ops.report import duties
from outlast.service import service
from outlast.service.auth.principals import LOCAL_CALLER
from outlast.service.dashboard import ROUTES, live_view
from outlast.service.dashboard.live_parts import Parts, PartStream
from outlast.service.dashboard.ranges import RANGES
from outlast.service.request import RequestContext
from outlast.service.streaming import HANG_UP
from outlast.store.sqlite.store import SqliteStore
from tests.service.serving import Served, bearer
from tests.store.jobs import put
from tests.support import eventually

pytestmark = pytest.mark.kinds("sqlite")

VIEWERS = 50
SECONDS = 6.0


@contextmanager
def counted(served: Served) -> Iterator[list[str]]:
    """Every statement that the service says to the database."""
    said: list[str] = []
    served.app.service.slow_store.ready()  # it opens what it has with its first question
    stores = [served.ol.store, served.app.service.slow_store]
    opened = [
        connection
        for store in stores
        if isinstance(store, SqliteStore)
        for connection in (store.reader, store.writer)
    ]
    for connection in opened:
        connection.set_trace_callback(said.append)
    try:
        yield said
    finally:
        for connection in opened:
            connection.set_trace_callback(None)


def put_off() -> Op[None]:
    """Whoever counts what happened is somebody else, for an hour."""
    yield from report_duty("statistics", DutyTally())
    yield Statement("record_duty", {"name": "statistics", "every": 3600.0, "worker": "test",
                                    "error": None, "found": 0, "healed": 0, "skipped": 0,
                                    "failed": 0})  # fmt: skip


def questions(said: list[str]) -> list[str]:
    return [text for text in said if not text.startswith(("BEGIN", "COMMIT", "PRAGMA", "ROLLBACK"))]


async def follow(url: str, tokens: list[str], seconds: float, most: float = math.inf) -> list[int]:
    """How many times each of so many viewers was sent the overview, one of an hour, the next of a
    day, and so on; they leave after so many."""

    async def one(http: httpx.AsyncClient, token: str, range: str) -> int:
        parts, path = 0, f"/live/overview?range={range}"
        try:
            async with asyncio.timeout(seconds):
                async with http.stream("GET", path, headers=bearer(token)) as answer:
                    assert answer.status_code == 200
                    async for line in answer.aiter_lines():
                        parts += line == "event: part"
                        if parts >= most:
                            break
        except TimeoutError:
            pass
        return parts

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits, trust_env=False) as http:
        ranges = zip(tokens, cycle(RANGES), strict=False)
        return await asyncio.gather(*(one(http, token, range) for token, range in ranges))


@pytest.mark.quiet
def test_fifty_viewers_cost_the_database_less_than_a_question_a_second(served: Served) -> None:
    """R166: what is asked does not grow with those who look, at whichever range; each of them is
    sent every picture."""
    put(served.ol.store.run, 10)
    shown_to = [served.token("read", name=f"viewer {n}") for n in range(VIEWERS)]
    eventually(lambda: "statistics" in [duty.name for duty in served.ol.store.run(duties)])
    served.ol.store.run(put_off)  # that goes on whether anybody looks or not
    with counted(served) as said:
        time.sleep(SECONDS / 2)
    goes_on_anyway = set(questions(said))  # the service heals and counts, whoever looks
    with ThreadPoolExecutor(1) as beside:
        shown = beside.submit(asyncio.run, follow(served.url, shown_to, SECONDS + 4))
        eventually(lambda: served.app.service.live_view.viewers == VIEWERS, timeout=20)
        eventually(lambda: all(token.used_at for token in served.ol.store.run(tokens.tokens)))
        began = time.monotonic()
        with counted(served) as said:
            time.sleep(SECONDS)  # what is measured is a rate
        took = time.monotonic() - began
        assert all(parts >= 2 for parts in shown.result()), "each is sent what is new"
    asked = [text for text in questions(said) if text not in goes_on_anyway]
    ends = 2  # a window has two of them
    assert 0 < len(asked) <= took + ends, Counter(asked)


def test_who_comes_first_after_a_pause_is_shown_what_is_known_and_how_old_it_is(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R166: where counting takes long, nobody waits for it; it is done meanwhile."""
    put(served.ol.store.run, 3)
    parts = served.app.service
    assert "As of" not in served.get("/").text
    served.get("/jobs")
    monkeypatch.setattr(cached, "STALE_WAIT_S", 0.0)  # as if it took long
    for last in (parts.live_view.cached.last, parts.job_counts.last):
        assert last is not None
        last.taken_at -= 3600
    put(served.ol.store.run, 4)
    text = served.get("/").text
    assert "As of 1 h ago" in text and ">3</a>" in text
    text = served.get("/jobs").text
    assert "Counted 1 h ago" in text and "all <b>3</b>" in text
    eventually(lambda: ">7</a>" in served.get("/").text)
    assert "As of" not in served.get("/").text
    eventually(lambda: "all <b>7</b>" in served.get("/jobs").text)
    assert "Counted" not in served.get("/jobs").text


def test_who_comes_after_a_pause_sees_what_is_new_if_that_is_there_in_a_moment(
    served: Served,
) -> None:
    """R166"""
    put(served.ol.store.run, 3)
    served.get("/")
    last = served.app.service.live_view.cached.last
    assert last is not None
    last.taken_at -= 3600
    put(served.ol.store.run, 4)
    text = served.get("/").text
    assert ">7</a>" in text and "As of" not in text


def test_who_leaves_is_not_waited_for(served: Served) -> None:
    """Seats are given back however a stream ends, and then nothing is asked any more."""
    token = served.token("read")
    assert asyncio.run(follow(served.url, [token] * 20, 30.0, most=1)) == [1] * 20
    eventually(lambda: served.app.service.live_view.viewers == 0, timeout=5)
    assert served.app.service.viewers.taken == 0 and len(served.app.service.revocations) == 0


def test_a_revoked_token_ends_what_it_looks_at(served: Served) -> None:
    """R144: within five seconds, with a word that has the page ask who it is."""
    secret, id = served.made_token("read")
    with served.http.stream("GET", "/live/overview", headers=bearer(secret)) as answer:
        lines = answer.iter_lines()
        assert next(line for line in lines if line) == "retry: 2000"
        served.revoke(id)
        began = time.monotonic()
        assert "event: over" in list(lines)
        assert time.monotonic() - began < 5.0


async def parts_to(ol: Outlast, parts: Parts, takes: int) -> bool:
    """Send parts to a client that takes so many messages and then stalls: whether it was hung up
    on. What was held for it is given back in any case."""
    app, cut = service(ol, ServiceSettings.of(events_stall=0.1)), asyncio.Event()
    taken = 0

    async def send(message: Message) -> None:
        nonlocal taken
        taken += 1
        if taken > takes:
            await asyncio.Event().wait()

    async def receive() -> Message:
        await cut.wait()
        return {"type": "http.disconnect"}

    extensions = {HANG_UP: cut.set}
    scope: Scope = {"type": "http", "method": "GET", "headers": [], "extensions": extensions}
    route = next(route for route in ROUTES if route.path == "/live/overview")
    call = RequestContext(app.service, LOCAL_CALLER, Request(scope), route)
    try:
        await PartStream(call, parts)(scope, receive, send)
    finally:
        assert (app.service.live_view.viewers, app.service.viewers.taken) == (0, 0)
        assert len(app.service.revocations) == 0
        await app.service.stop()
    return cut.is_set()


@pytest.mark.parametrize("takes", [0, 1, 2, 3])
async def test_who_takes_nothing_any_more_is_hung_up_on(ol: Outlast, takes: int) -> None:
    """R133, R134: from the first frame on. A line that is only closed would stay for ever."""

    async def parts() -> AsyncGenerator[str, None]:
        while True:
            yield "part"

    assert await parts_to(ol, parts, takes)


async def test_what_nobody_foresaw_is_not_swallowed(ol: Outlast) -> None:
    async def parts() -> AsyncGenerator[str, None]:
        yield "part"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await parts_to(ol, parts, 100)


async def test_a_database_that_is_away_ends_a_stream_in_good_order(ol: Outlast) -> None:
    async def parts() -> AsyncGenerator[str, None]:
        yield "part"
        raise StoreUnavailable(reason="it is away")

    assert not await parts_to(ol, parts, 100), "a browser comes back"


def test_no_line_of_a_part_can_end_the_event() -> None:
    from outlast.service.streaming import sse_event

    sent = sse_event("a\r\ndata: b\n\nevent: over\x0bc\rd", event="part").decode()
    assert sent.count("event: part") == 1 and sent.endswith("\n\n")
    assert all(line.startswith("data: ") for line in sent.split("\n")[1:-2])


def test_a_picture_is_good_for_as_long_as_it_took_ten_times() -> None:
    assert live_view.REFRESH_INTERVAL_S >= 1.0 and cached.COST_FACTOR >= 10
