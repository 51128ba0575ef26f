"""Remote workers beside somebody who guesses tokens at the same address."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from outlast import Outlast, Task
from outlast.model.settings import ServiceSettings
from outlast.remote import RemoteWorker
from tests.service.serving import bearer, serving
from tests.support import aeventually
from tests.support.control_calls import delays

RATE = 25  # wrong tokens a second
SECONDS = 3.0  # longer than a verified token is trusted
MAX_DELAY_S = 1.0


@pytest.mark.quiet
@pytest.mark.kinds("sqlite")
async def test_wrong_tokens_from_its_address_do_not_delay_a_remote_worker(
    ol: Outlast, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R225: 25 wrong tokens a second from the same address; no job of a worker that was there
    before, or of one that came after the lock-out, ends more than a second later than one of a
    worker at another service that nobody attacks; none of their calls is refused."""
    caplog.set_level(logging.INFO, "httpx")  # which logs each answer

    @ol.task(queue="before")
    def early(n: int) -> int:
        return n

    @ol.task(queue="after")
    def late(n: int) -> int:
        return n

    @ol.task(queue="elsewhere")
    def control(n: int) -> int:
        return n

    statuses: list[int] = []

    async def guess(url: str) -> None:
        async with httpx.AsyncClient(trust_env=False, verify=False) as http:
            due = time.monotonic()
            while True:
                wrong = bearer(f"olt_{len(statuses):043}")
                statuses.append((await http.get(f"{url}/api/v1/whoami", headers=wrong)).status_code)
                due += 1 / RATE
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def took(*tasks: Task[..., int]) -> float:
        since = time.monotonic()
        jobs = [await task.aenqueue(n=1) for task in tasks]
        await asyncio.gather(*(ol.aresult(job.id, timeout=10) for job in jobs))
        return time.monotonic() - since

    settings, rounds = ServiceSettings(remote_lease=2.0), list[tuple[float, float]]()
    with serving(ol, settings) as served, serving(ol, settings) as elsewhere:
        tokens = {queue: served.token("work") for queue in ("elsewhere", "before", "after")}
        async with AsyncExitStack() as workers:

            async def start(url: str, queue: str) -> None:
                worker = RemoteWorker(url, tokens[queue], ol, [queue], spool=tmp_path / queue)
                await workers.enter_async_context(worker)
                await aeventually(lambda: worker.connected)

            await start(elsewhere.url, "elsewhere")
            await start(served.url, "before")
            guessing = asyncio.create_task(guess(served.url))
            await aeventually(lambda: 429 in statuses, timeout=20)
            await start(served.url, "after")
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                rounds.append(tuple(await asyncio.gather(took(early, late), took(control))))
                await asyncio.sleep(0.1)  # a moderate load
            guessing.cancel()
    print(f"slowest of {len(rounds)} rounds: {max(rounds)}; {len(statuses)} guesses")
    assert max(delays(rounds)) < MAX_DELAY_S, rounds
    answers = [record.args for record in caplog.records if record.name == "httpx"]
    others = [one for one in answers if isinstance(one, tuple) and "whoami" not in str(one[1])]
    assert len(others) > 2 * len(rounds)  # each job is accepted and finished
    assert [one for one in others if int(str(one[3])) >= 400] == []
    assert set(statuses) == {401, 429} and len(statuses) > RATE
