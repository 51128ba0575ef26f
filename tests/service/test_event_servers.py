"""Events from several servers that come and go: the sequence is one, wherever it is read."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx
import pytest

from outlast import Outlast
from tests.service.following import Follower, claimed, say
from tests.support import Database, Process, Processes, aeventually
from tests.support.ports import free_port


class Server:
    """`outlast serve` in a process of its own, on a port that stays the same."""

    def __init__(self, processes: Processes, database: Database) -> None:
        self.processes = processes
        self.database = database
        self.port = free_port()
        self.process: Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.process = self.processes.python(
            "outlast", "serve", "--port", self.port, "--url", self.database.url,
            "--schema", self.database.schema,
        )  # fmt: skip
        await aeventually(self._answers, timeout=30, message=self.process.output)

    def _answers(self) -> bool:
        try:
            asked = httpx.get(f"{self.url}/api/v1/openapi.json", trust_env=False, verify=False)
        except httpx.TransportError:
            return False
        return asked.status_code == 200

    async def restart(self, kill: bool) -> None:
        assert self.process is not None
        if kill:
            self.process.kill()
        else:
            self.process.terminate()
            assert await asyncio.to_thread(self.process.wait, 8.0) in (0, -15)
        await self.start()


async def test_the_sequence_is_one_across_servers_and_restarts(
    processes: Processes, database: Database, ol: Outlast
) -> None:
    """R135, R136, in short: joined in the middle, left, resumed at the other server, of which one
    is killed and one is stopped; everybody has the exact sequence."""
    await journey(processes, database, ol, events=400, joiners=6)


@pytest.mark.campaign
async def test_the_sequence_of_ten_thousand(
    processes: Processes, database: Database, ol: Outlast
) -> None:
    """R135, R136: fifty join in the middle of 10,000 events."""
    await journey(processes, database, ol, events=10_000, joiners=50)


async def journey(
    processes: Processes, database: Database, ol: Outlast, events: int, joiners: int
) -> None:
    servers = [Server(processes, database) for _ in range(2)]
    await asyncio.gather(*[server.start() for server in servers])
    held = claimed(ol)

    async def join(n: int) -> Follower:
        """Half follow the job and half follow all; each changes servers when its stream ends, or
        when it feels like it, and goes on where it was."""
        await asyncio.sleep(n / joiners)
        path = f"jobs/{held.id}/events" if n % 2 else "events"
        follower = Follower("", last="0")
        while len(follower.counted) < events:
            follower.url = f"{random.choice(servers).url}/api/v1/{path}"
            stop = len(follower.events) + random.randint(1, events // 3)
            try:
                await follower.follow(min(stop, events), timeout=120.0)
            except httpx.TransportError:
                await asyncio.sleep(0.05)  # that server is away
        return follower

    async def publish() -> None:
        said = 0
        while said < events:
            some = random.randint(1, max(2, events // 100))
            await asyncio.to_thread(say, ol, held, range(said, min(events, said + some)))
            said += some
            await asyncio.sleep(0.005)

    async def disturb() -> None:
        for n, server in enumerate(servers):
            await asyncio.sleep(0.3)
            await server.restart(kill=n == 0)

    joining = [asyncio.create_task(join(n)) for n in range(joiners)]
    await asyncio.gather(publish(), disturb())
    sequences: set[Any] = set()
    for follower in await asyncio.gather(*joining):
        assert follower.counted == list(range(events)), "no gap, no duplicate, no disorder"
        # (Those who follow all hear of the server that was killed, too.)
        said = [one for one in follower.events if one.done is not None]
        sequences.add(tuple((one.id, one.done) for one in said))
    assert len(sequences) == 1, "an event has one place, whoever tells it"


async def test_a_server_is_stopped_in_time_with_streams_open(
    processes: Processes, database: Database
) -> None:
    """R136: whoever follows is told to come back, and the server does not wait for them."""
    server = Server(processes, database)
    await server.start()
    followers = [Follower(f"{server.url}/api/v1/events") for _ in range(3)]
    tasks = [asyncio.create_task(one.follow()) for one in followers]
    await aeventually(lambda: all(one.status == 200 for one in followers))
    assert server.process is not None
    server.process.terminate()
    await asyncio.to_thread(server.process.wait, 5.0)
    await asyncio.gather(*tasks)
    assert [one.kinds for one in followers] == [["cut"]] * 3
