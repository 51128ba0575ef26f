"""Slots of streams and waiters: one token's or tenant's never use up those of all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from outlast import Outlast
from outlast.model.settings import ServiceSettings
from tests.service.serving import Served, bearer, serving
from tests.service.streaming import Streamed
from tests.support import eventually

pytestmark = pytest.mark.kinds("sqlite")

# Four slots of each kind: two for one token, and three for all tokens of one tenant.
FEW = ServiceSettings(
    max_streams=4, streams_per_token=2, max_waiters=4, waiters_per_token=2,
    events_subscribers=4, events_per_token=2, tenant_share=0.75,
)  # fmt: skip


@contextmanager
def dequeue_stream(served: Served, token: str) -> Iterator[int]:
    with Streamed(served.url, token) as stream:
        head = stream.head()
        status = int(head.split()[1])
        if status == 200:
            stream.frame("hello")
        yield status


@contextmanager
def followed(served: Served, token: str, path: str) -> Iterator[int]:
    with served.http.stream("GET", path, headers=bearer(token)) as answer:
        parts = answer.iter_raw()  # kept: a forgotten iterator closes the stream
        if answer.status_code == 200:
            next(parts)
        yield answer.status_code


@contextmanager
def event_stream(served: Served, token: str) -> Iterator[int]:
    with followed(served, token, "/api/v1/events") as status:
        yield status


@contextmanager
def live_page(served: Served, token: str) -> Iterator[int]:
    with followed(served, token, "/live/overview") as status:
        yield status


@contextmanager
def result_waiter(served: Served, token: str) -> Iterator[int]:
    """A call that waits for a result; its status if it is refused, else 200 while it waits."""
    job = served.post("/api/v1/jobs", token, json={"task": "t"}).json()["id"]
    before = served.app.service.waiters.taken
    got: list[int] = []

    def wait() -> None:
        path = f"{served.url}/api/v1/jobs/{job}/result?wait=30"
        got.append(httpx.get(path, headers=bearer(token), timeout=30, trust_env=False).status_code)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: got or served.app.service.waiters.taken > before)
    try:
        yield got[0] if got else 200
    finally:
        served.post(f"/api/v1/jobs/{job}/cancel", token, json={})
        thread.join(10)
        assert not thread.is_alive()


KINDS: dict[str, Callable[[Served, str], Any]] = {
    "dequeue": dequeue_stream,
    "events": event_stream,
    "pages": live_page,
    "results": result_waiter,
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_token_or_tenant_does_not_use_up_the_slots_of_all(ol: Outlast, kind: str) -> None:
    """R228: a token at its limit and a tenant at its share are refused with 429, by the name of the
    setting; another tenant is served. When all slots are taken, it is 503."""
    opened = KINDS[kind]
    with serving(ol, FEW) as served, ExitStack() as held:
        first, second, other = (
            served.token("admin", tenant=tenant) for tenant in ("acme", "acme", "other")
        )

        def one(token: str) -> int:
            status: int = held.enter_context(opened(served, token))
            return status

        assert [one(first), one(first)] == [200, 200]
        assert one(first) == 429, "the token's limit"
        assert one(second) == 200
        assert one(second) == 429, "the tenant's share"
        assert one(other) == 200, "another tenant is served"
        assert one(other) == 503, "every slot is taken"


def test_a_refusal_names_its_setting(ol: Outlast) -> None:
    """R228: whoever reads the problem knows what to change, and a client when to come again."""
    settings = ServiceSettings(
        max_streams=1, streams_per_token=1, waiters_per_token=1, events_per_token=1
    )
    with serving(ol, settings) as served, ExitStack() as held:
        token = served.token("admin")
        wish = {"worker": "w", "tasks": "t"}
        for opened, path, params, named in (
            (dequeue_stream, "/api/v1/dequeue", wish, "max_streams"),
            (event_stream, "/api/v1/events", {}, "events_per_token"),
        ):
            held.enter_context(opened(served, token))
            refused = served.get(path, token, params=params)
            assert refused.status_code in (429, 503)
            assert refused.headers["content-type"] == "application/problem+json"
            assert named in refused.json()["detail"] and refused.headers["retry-after"]


def test_streams_that_come_together_do_not_pass_the_limit(ol: Outlast) -> None:
    """R228: the limit holds at the moment that a stream begins, not when it was asked for."""
    with serving(ol, FEW) as served:
        token = served.token("work", tenant="acme")

        async def statuses() -> list[int]:
            async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
                url = f"{served.url}/api/v1/dequeue"
                begun = [
                    http.send(
                        http.build_request(
                            "GET", url, params={"worker": f"w{n}", "tasks": "t"},
                            headers=bearer(token),
                        ),
                        stream=True,
                    )
                    for n in range(10)
                ]  # fmt: skip
                answers = await asyncio.gather(*begun)
                found = [answer.status_code for answer in answers]
                for answer in answers:
                    await answer.aclose()
                return found

        found = asyncio.run(statuses())
        assert sorted(found) == [200, 200, *[429] * 8]
        eventually(lambda: served.app.service.worker_streams.taken == 0, timeout=5)
