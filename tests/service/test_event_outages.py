"""Streams of events of a service whose database was away."""

from __future__ import annotations

import asyncio
import time

import pytest

from outlast import Outlast
from outlast.loops import Backoff
from tests.service.following import Follower, claimed, say
from tests.service.serving import serving
from tests.support import Database, Proxy, aeventually
from tests.support.app import SLACK


@pytest.mark.kinds("postgres")
async def test_events_go_on_soon_after_a_long_outage(
    ol: Outlast, database: Database, proxy: Proxy
) -> None:
    """R179: the connection that listens is tried every two seconds, and ends pauses of polls."""
    held = claimed(ol)
    with Outlast(proxy.url(database.url), schema=database.schema) as far, serving(far) as served:
        broadcaster = served.app.service.broadcaster
        url = f"{served.url}/api/v1/jobs/{held.id}/events"
        follower = Follower(url, served.token("read"))
        following = asyncio.create_task(_keep_following(follower))
        say(ol, held, range(3))
        await aeventually(lambda: len(follower.counted) == 3)
        proxy.refuse()
        for backoff in (broadcaster._poll_backoff, broadcaster._watch_backoff):
            await aeventually(lambda backoff=backoff: _waits_long(backoff), 30)
        say(ol, held, range(3, 5))
        back = time.monotonic()
        proxy.accept()
        await aeventually(lambda: follower.counted == list(range(5)), 60)
        assert time.monotonic() - back < 2.0 + SLACK
        following.cancel()


async def _keep_following(follower: Follower) -> None:
    """As a browser does: a stream that was cut is opened again."""
    while True:
        await follower.follow(timeout=120.0)
        await asyncio.sleep(0.05)


def _waits_long(backoff: Backoff) -> bool:
    """From now on: without a cap, its next wait is 21 s at least."""
    if 0 < backoff.failures < 20:
        backoff.failures = 20
    return backoff.failures > 20
