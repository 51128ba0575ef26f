"""Leases of a remote worker: renewals by the server, on a connection of their own, even while the
worker's event loop is busy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..loops import Loop
from ..model.errors import ServerUnavailable
from ..model.outcome import Transition
from ..ops.renew import Renewed
from ..protocol import REPORTS_PATH, AnswerFields, encode_call, encode_renewal, split_calls
from ..worker.in_flight import LEASE_SAFETY
from ..worker.leases import LockedOut, max_renewal_s
from ..worker.runner import JobRunner
from ..worker.shared import WorkerShared
from .reporter import Reporter
from .session import RemoteSession

if TYPE_CHECKING:
    from ..worker.protocols import HeartbeatListener


class RemoteLeases:
    """Renews claims at the server. The server does the maintenance, and a remote worker has no
    liveness lock: only leases count."""

    def __init__(
        self, session: RemoteSession, shared: WorkerShared, runner: JobRunner, reporter: Reporter
    ) -> None:
        self._session = session
        self._client = session.client.twin()
        self._state = shared.state
        self._in_flight = shared.in_flight
        self._wakeup = shared.wakeup
        self._runner = runner
        self._reporter = reporter
        self._listening: asyncio.Task[object] | None = None
        self._lock = LockedOut(shared.in_flight)
        self._away = False  # whether the last renewal failed

    def open(self, listener: HeartbeatListener, watch: Loop) -> None:
        self._reported = listener

    def loops(self) -> Sequence[Loop]:
        return []

    async def listen(self) -> float:
        self._listening = asyncio.create_task(asyncio.Event().wait())
        try:
            await asyncio.wait([self._listening])
        finally:
            self._listening.cancel()
        return 0.0

    def stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.cancel()

    def restart_idle_watch(self) -> None:
        """No effect: renewals detect when the server is available again."""

    def notify(self, queues: set[str]) -> None:
        """No effect: the server notifies workers."""

    async def aclose(self) -> None:
        await self._client.close()

    async def renew(self) -> float | None:
        asked_at = time.monotonic()
        away, self._away = self._away, True  # until the renewal succeeds
        fences = self._in_flight.fences()
        tokens = [(id, self._session.token_of(id, fence)) for id, fence in fences.items()]
        answers = await self._renew([token for _, token in tokens])
        answer_of = {id: answer for (id, _), answer in zip(tokens, answers, strict=True)}
        renewed = Renewed(
            kept=frozenset(id for id, how in answer_of.items() if how["status"] == "ok"),
            cancelling=frozenset(id for id, how in answer_of.items() if how["cancel"]),
            lost=frozenset(
                id for id, how in answer_of.items() if how["status"] in ("lost", "refused")
            ),
            busy=frozenset(id for id, how in answer_of.items() if how["status"] == "busy"),
            unknown_claims=[],
        )
        settings = self._state.settings
        self._in_flight.renewed(renewed.kept, fences, asked_at + settings.lease * LEASE_SAFETY)
        if renewed.lost or renewed.cancelling:
            self._wakeup.call_soon(self._runner.renewed, renewed, fences)
        if locked := {id: fences[id] for id, how in answer_of.items() if how.get("locked")}:
            return self._lock.locked(locked, asked_at, settings.lease)
        self._lock.passed()
        self._away = False
        if away:
            self._wakeup.call_soon(self._reported.on_answer)
        return settings.renew_every / (4 if renewed.busy else 1)

    async def _renew(self, tokens: list[str]) -> list[AnswerFields]:
        """Send renewals, with a timeout that leaves time for another try."""
        answers: list[AnswerFields] = []
        items = [encode_renewal(token) for token in tokens]
        limit = max_renewal_s(self._state.settings.lease)
        try:
            async with asyncio.timeout(limit):
                for part in split_calls(items):
                    answers += (await self._client.post(REPORTS_PATH, encode_call(part)))["reports"]
        except TimeoutError as error:
            raise ServerUnavailable(reason=f"no response within {limit:.1f} s") from error
        return answers

    async def finish(self, transition: Transition) -> None:
        await self._client.post(
            REPORTS_PATH, encode_call([self._reporter.encode_outcome(transition)])
        )
