"""A worker far from the database: as a local one, but that jobs come down a stream and outcomes go
back in reports.

    stream ─▶ offers ─▶ accept ─▶ start ─▶ handler runs ─▶ ended ─▶ report
                        └────────── one call, with all that has ended ──┘

Nothing is run that was not accepted: what costs us our life is charged to the one that did.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..model.errors import InvalidSetting, OutlastError, ServerRefused, ServerUnavailable
from ..model.ids import new_instance_id
from ..model.job import Claim, Hold
from ..model.settings import WorkerSettings
from ..worker.breaker import OutageJudge, ReportedOutages
from ..worker.keeper import Keeper
from ..worker.loops import Backoff
from ..worker.worker import AHEAD_FOR, Worker
from . import frames
from .far import FarContext, FarStore
from .keeper import RemoteKeeper
from .line import Line
from .reports import Reports
from .room import FarRoom
from .spelling import late
from .spool import Spool, folder_of, orphans

if TYPE_CHECKING:
    from ..client import Outlast

log = logging.getLogger("outlast.worker")

STREAM = "/api/v1/dequeue"
SILENCE = 30.0  # seconds to wait for the first word on a stream
MISSED = 3  # signs of life that may be missing before a stream is given up


class RemoteWorker(Worker):
    """Runs the tasks of `app` for the server at `server`, which is shown `token`.

    Its settings are those of any worker (`concurrency`, `grace`, …), but that the server says how
    long leases are. `spool` is a folder for what handlers said until the server has it.
    """

    def __init__(
        self,
        server: str,
        token: str | None,
        app: Outlast,
        queues: str | Sequence[str] | None = None,
        *,
        spool: str | Path | None = None,
        **settings: Any,
    ) -> None:
        wanted = [queues] if isinstance(queues, str) else queues
        super().__init__(app, wanted, WorkerSettings.of(**settings))
        self.name = f"{_short(socket.gethostname())}-{new_instance_id()[:12]}"
        self.id = self.name  # until the server says what it calls us
        self.line = Line(server, token)
        self.tokens: dict[Hold, str] = {}
        self.far = FarStore(self)
        self._folder = folder_of(self.line.server, None if spool is None else Path(spool))
        self.returns: Reports = Reports(self)
        self.room: FarRoom = FarRoom(self)
        self._listening: asyncio.Task[None] | None = None
        self._refusal: OutlastError | None = None
        self._silence = SILENCE
        self.server_takes_traces = False  # an older one refuses what it does not know
        self.connected = False  # to a server that knows us
        self._beginning = False  # those ahead, in a moment

    # From begin to end

    def _judge(self) -> OutageJudge:
        return ReportedOutages()

    async def _work(self) -> None:
        if not self.app.registry.names():
            told = "has no tasks: import the modules that define them"
            raise InvalidSetting(field="app", reason=told)
        try:
            self.spool = Spool.create(self._folder, self.name)
        except OSError as error:
            told = f"cannot be written to: {self._folder}: {error.strerror}"
            raise InvalidSetting(field="spool", reason=told) from error
        try:
            await super()._work()
        finally:
            self.spool.end()
            await self.line.close()
        if self._refusal is not None:
            raise self._refusal

    async def _arrive(self) -> None:
        """Before anything else, send what dead workers left here."""
        try:
            await self._send_orphans()
        except OutlastError as error:
            log.warning("what dead workers left is not sent yet: %s", error)

    async def _watched_over(self) -> None:
        """Nobody proves our life, leases alone speak: so we can begin at once."""
        self._listening = asyncio.create_task(self._listen(), name="outlast-stream")
        self._listening.add_done_callback(self._stopped_listening)

    def _new_keeper(self) -> Keeper:
        return RemoteKeeper(self)

    async def _drain(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        self.returns.decline()
        await super()._drain()

    async def _leave(self) -> None:
        self.keeper.let_go()
        try:
            await asyncio.to_thread(self.keeper.rest)
            with suppress(OutlastError):  # its leases run out
                await self.line.delete(STREAM, {"worker": self.name})
        finally:
            self.keeper.end()
            self.threads.shutdown(wait=False)
            await asyncio.to_thread(self.keeper.join)

    # The stream

    async def _listen(self) -> None:
        """Streams, one after the other. After a break we come back when others do not."""
        backoff = Backoff(first=0.2, cap=10.0)
        while not self.stopping:
            try:
                await self._hear_out(backoff)
                wait = random.uniform(0.0, 0.5)
            except ServerUnavailable as error:
                wait = backoff.failed()
                log.warning("%s; next try in %.1f s", error, wait)
            await asyncio.sleep(wait)

    async def _hear_out(self, backoff: Backoff) -> None:
        async with self.line.stream(STREAM, self._wish(), self._silence) as pieces:
            try:
                async for frame in frames.read(pieces):
                    backoff.succeeded()
                    self._heard(frame)
            finally:
                self.connected = False

    def _heard(self, frame: dict[str, Any]) -> None:
        try:
            self._understood(frame)
        except (KeyError, TypeError, ValueError) as error:
            raise ServerUnavailable(reason=f"it sends a strange {frame['type']!r:.40}") from error

    def _understood(self, frame: dict[str, Any]) -> None:
        match frame["type"]:
            case "offers":
                self._offered(frame["jobs"])
            case "renew":
                self.keeper.renew_now()
            case "hello":
                self._greeted(frame)
            case "bye":
                log.debug("the stream ends: %s", frame.get("reason"))

    def _greeted(self, frame: dict[str, Any]) -> None:
        """The server's terms."""
        self.id = frame["worker"]
        self.connected = True
        lease = float(frame["lease"])
        self.settings = replace(self.settings, lease=lease, renew_every=lease / 3)
        self._silence = MISSED * float(frame["keep_alive"]) + 5.0
        self.server_takes_traces = bool(frame.get("traces"))
        self.keeper.renew_now()  # which then goes by these terms
        log.info("connected to %s as %s", self.line.server, self.id)

    def _offered(self, jobs: Sequence[dict[str, Any]]) -> None:
        claims = []
        for job in jobs:
            claim = frames.claim_of(job, self.id)
            self.tokens[claim.hold] = job["token"]
            claims.append(claim)
        self.returns.offer(claims)
        self.ears.hear()

    def token_of(self, job: str, fence: int | None = None) -> str:
        """The token of a job in hand; under that fence, if one is named."""
        held = self.hands.get(job, fence)
        return self.tokens.get(held.claim.hold, "") if held else ""

    def _stopped_listening(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, OutlastError):
            self._refusal = error
        else:
            self._refusal = OutlastError("the stream failed")
            self._refusal.__cause__ = error
        log.critical("%s; the worker stops", self._refusal)
        self.stop()

    def _wish(self) -> dict[str, Any]:
        wish = {
            "worker": self.name,
            "tasks": ",".join(self.app.registry.names()),
            "credit": self.settings.concurrency,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        return wish if self.queues is None else {**wish, "queues": ",".join(self.queues)}

    # The loop

    async def turn(self) -> None:
        """Say what there is to say, or wait. While it is on its way, what was accepted before
        runs."""
        self._start()
        self.carrier.put_back(after=AHEAD_FOR)
        self.returns.put_back(after=AHEAD_FOR)
        if not self.returns:
            await self.ears.pause(AHEAD_FOR if self.carrier.ahead or self.returns.offered else 1.0)
            return
        try:
            await self.returns.exchange()
        except ServerRefused as error:
            self._refusal = error
            self.stop()
            raise

    def start(self, claims: Sequence[Claim], asked_at: float) -> None:
        self.counts["claimed"] += len(claims)
        self.carrier.take(claims, asked_at)
        self._start()
        self.figures.claimed(claims)
        for queue in {claim.queue for claim in claims}:
            self.carrier.batches.claimed(queue, True)

    def news(self) -> None:
        """Something ended: those ahead begin, also while a call is under way."""
        super().news()
        if self.carrier.ahead and not self._beginning:
            self._beginning = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._beginning = False
        if not self.stopping:
            self._start()

    def context(self, claim: Claim) -> FarContext:
        return FarContext(claim, self)

    def aside(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """From a handler's thread: have the loop do something."""
        assert self.ears.loop is not None
        return asyncio.run_coroutine_threadsafe(work, self.ears.loop)

    # What dead workers left

    async def _send_orphans(self) -> None:
        for spool in orphans(self._folder):
            try:
                await self._send_orphan(spool)
            finally:
                spool.end()

    async def _send_orphan(self, spool: Spool) -> None:
        refused = False
        for said, end in late(spool.unsent()):
            answers = await self.returns.send(said)
            refused = refused or any(answer["status"] == "refused" for answer in answers)
            spool.acknowledge(end)
        if refused:
            log.error("the server refuses what %s says; it is set aside", spool.file)
            spool.set_aside()


def _short(host: str) -> str:
    """As much of a name as the server takes."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in host)[:40]
