"""The job source of a remote worker: offers of a server, received on a stream.

    stream ─▶ offers ─▶ accept ─▶ start ─▶ handler runs ─▶ ended ─▶ report
                        └────────── one call, with all ended jobs ──────┘

Only accepted jobs run: a crash of this worker is charged to the jobs that it runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..loops import Backoff
from ..model.claim import Claim
from ..model.errors import InvalidSetting, OutlastError, ServerRefused, ServerUnavailable
from ..protocol import STREAM_PATH, FrameFields, offered_claim, read_frames
from ..worker.in_flight import LEASE_SAFETY
from ..worker.job_source import PREFETCH_FOR_S
from ..worker.protocols import LeaseHolder
from ..worker.runner import JobRunner
from ..worker.shared import WorkerShared
from .announcer import ScheduleAnnouncer
from .capacity import RemoteCapacity
from .reporter import Reporter
from .session import RemoteSession
from .spool import Spool, late_batches, orphaned_spools

log = logging.getLogger("outlast.worker")

FIRST_FRAME_TIMEOUT_S = 30.0  # seconds to wait for the first frame of a stream
MAX_MISSED_KEEP_ALIVES = 3  # after which a stream is closed


class StreamSource:
    def __init__(
        self,
        session: RemoteSession,
        shared: WorkerShared,
        runner: JobRunner,
        reporter: Reporter,
        room: RemoteCapacity,
        leases: LeaseHolder,
    ) -> None:
        self._session = session
        self._state = shared.state
        self._in_flight = shared.in_flight
        self._metrics = shared.metrics
        self._wakeup = shared.wakeup
        self._runner = runner
        self._reporter = reporter
        self._capacity = room
        self._leases = leases
        self._listening: asyncio.Task[None] | None = None
        self._max_silence = FIRST_FRAME_TIMEOUT_S
        self._starting = False  # whether a start of prefetched jobs is scheduled
        self._announcer = ScheduleAnnouncer(session.client, runner.registry)
        self._announcing: asyncio.Task[None] | None = None
        self.failure: OutlastError | None = None

    # Start and stop

    async def open(self) -> None:
        """Open the spool, and send the events that dead workers left on disk."""
        if not self._runner.registry.names():
            reason = "has no tasks: import the modules that define them"
            raise InvalidSetting(field="app", reason=reason)
        try:
            self._session.open_spool()
        except OSError as error:
            reason = f"cannot be written to: {self._session.folder}: {error.strerror}"
            raise InvalidSetting(field="spool", reason=reason) from error
        try:
            await self._send_orphans()
        except OutlastError as error:
            log.warning("events of dead workers are not sent yet: %s", error)

    async def ready(self) -> None:
        """A remote worker has no liveness lock, only leases, so it can start at once."""
        self._listening = asyncio.create_task(self._listen(), name="outlast-stream")
        self._listening.add_done_callback(self._listener_done)
        self._announcing = asyncio.create_task(
            self._announcer.loop.arun(), name="outlast-announcer"
        )

    async def stop(self) -> None:
        started = [task for task in (self._listening, self._announcing) if task is not None]
        for task in started:
            task.cancel()
        if started:
            await asyncio.wait(started)
        self._reporter.decline()

    async def leave(self) -> None:
        with suppress(OutlastError):  # otherwise its leases expire
            await self._session.client.delete(STREAM_PATH, {"worker": self._session.name})

    async def aclose(self) -> None:
        await self._session.aclose()

    def notify(self, queue: str) -> None:
        """No effect: the server's stream has the notifications."""

    # The stream

    async def _listen(self) -> None:
        """Open one stream after another, with back-off and jitter after a failure."""
        backoff = Backoff(first=0.2, cap=10.0)
        while not self._state.stopping:
            try:
                await self._read_stream(backoff)
                wait = random.uniform(0.0, 0.5)
            except ServerUnavailable as error:
                wait = backoff.failed()
                log.warning("%s; next try in %.1f s", error, wait)
            await asyncio.sleep(wait)

    async def _read_stream(self, backoff: Backoff) -> None:
        client = self._session.client
        async with client.stream(STREAM_PATH, self._stream_params(), self._max_silence) as pieces:
            try:
                async for frame in read_frames(pieces):
                    backoff.succeeded()
                    self.take_frame(frame)
            finally:
                self._session.connected = False

    def take_frame(self, frame: FrameFields) -> None:
        try:
            self._take_frame(frame)
        except (KeyError, TypeError, ValueError) as error:
            raise ServerUnavailable(reason=f"invalid frame {frame['type']!r:.40}") from error

    def _take_frame(self, frame: FrameFields) -> None:
        match frame["type"]:
            case "offers":
                self._on_offers(frame["jobs"])
            case "renew":
                self._leases.renew_now()
            case "hello":
                self._on_hello(frame)
            case "bye":
                log.debug("the stream ends: %s", frame.get("reason"))

    def _on_hello(self, frame: FrameFields) -> None:
        """Apply the server's terms."""
        state = self._state
        state.id = frame["worker"]
        self._session.connected = True
        lease = float(frame["lease"])
        state.settings = replace(state.settings, lease=lease, renew_every=lease / 3)
        self._max_silence = MAX_MISSED_KEEP_ALIVES * float(frame["keep_alive"]) + 5.0
        self._session.takes_traces = bool(frame.get("traces"))
        self._leases.renew_now()  # with these terms
        log.info("connected to %s as %s", self._session.client.server, state.id)

    def _on_offers(self, jobs: Sequence[dict[str, Any]]) -> None:
        claims = []
        for job in jobs:
            claim = offered_claim(job, self._state.id)
            self._session.tokens[claim.claim_key] = job["token"]
            claims.append(claim)
        self._reporter.offer(claims)
        self._wakeup.set()

    def _listener_done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, OutlastError):
            self.failure = error
        else:
            self.failure = OutlastError("the stream failed")
            self.failure.__cause__ = error
        log.critical("%s; the worker stops", self.failure)
        self._stop_worker()

    def _stop_worker(self) -> None:
        self._state.stop()
        self._wakeup.end_wait()
        self._wakeup.set()

    def _stream_params(self) -> dict[str, object]:
        params = {
            "worker": self._session.name,
            "tasks": ",".join(self._runner.registry.names()),
            "credit": self._state.settings.concurrency,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        queues = self._state.queues
        return params if queues is None else {**params, "queues": ",".join(queues)}

    # The cycle

    async def cycle(self) -> None:
        """Send pending reports, or wait. Accepted jobs run meanwhile."""
        self._start()
        self._runner.release_unstarted(after=PREFETCH_FOR_S)
        self._reporter.release_unaccepted(after=PREFETCH_FOR_S)
        if not self._reporter:
            soon = self._runner.prefetched or self._reporter.offered
            wait = min(PREFETCH_FOR_S if soon else 1.0, self._reporter.due_in())
            await self._wakeup.wait(wait)
            return
        try:
            await self._reporter.flush()
        except ServerRefused as error:
            self.failure = error
            self._stop_worker()
            raise

    def accepted(self, claims: Sequence[Claim], asked_at: float) -> None:
        self._metrics.counts["claimed"] += len(claims)
        self._runner.accept(claims, asked_at + self._state.settings.lease * LEASE_SAFETY)
        self.drop_claims(claims)
        self._start(claimed=True)
        self._metrics.add_claims(claims)
        for queue in {claim.queue for claim in claims}:
            self._runner.batches.note_claim(queue, True)

    def drop_claims(self, claims: Sequence[Claim]) -> None:
        """Release claims that were dropped or arrived too late: in the database this worker still
        owns them. Unreleased, they would be charged with a crash."""
        for claim in claims:
            if self._in_flight.get(claim.id) is None:
                self._reporter.release(claim)

    def slot_freed(self) -> None:
        """Start prefetched jobs, also during a call."""
        self._wakeup.set()
        if self._runner.prefetched and not self._starting:
            self._starting = True
            asyncio.get_running_loop().call_soon(self._start_soon)

    def _start_soon(self) -> None:
        self._starting = False
        if not self._state.stopping:
            self._start()

    def _start(self, *, claimed: bool = False) -> None:
        """Start jobs that have a slot, and those just accepted that need none."""
        if self._runner.prefetched:
            free = self._capacity.free_slots()
            if claimed or free > 0 or self._runner.batches.slots:
                self._runner.start(free)

    # Events of dead workers

    async def _send_orphans(self) -> None:
        for spool in orphaned_spools(self._session.folder):
            try:
                await self._send_orphan(spool)
            finally:
                spool.end()

    async def _send_orphan(self, spool: Spool) -> None:
        refused = False
        for items, end in late_batches(spool.unsent()):
            answers = await self._reporter.send(items)
            refused = refused or any(answer["status"] == "refused" for answer in answers)
            spool.acknowledge(end)
        if refused:
            log.error("the server refuses events of %s, which is set aside", spool.file)
            spool.set_aside()
