"""Assembly of a remote worker, whose parts use a server."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack

from ..model.claim import Claim
from ..model.ids import new_instance_id
from ..model.settings import WorkerOptions, WorkerSettings
from ..worker.context import Context
from ..worker.failure_attribution import ReportedOutages
from ..worker.heartbeat import HeartbeatThread
from ..worker.in_flight import InFlight
from ..worker.runner import JobRunner
from ..worker.shared import WorkerShared
from ..worker.state import WorkerState
from ..worker.threads import Threads
from ..worker.worker import Worker
from .capacity import RemoteCapacity
from .http_client import ServerClient
from .leases import RemoteLeases
from .reporter import Acceptance, Reporter
from .session import RemoteSession
from .source import StreamSource
from .spool import folder_of
from .steps_client import RemoteStepsClient

if TYPE_CHECKING:
    from ..client.client import Outlast


class RemoteWorker:
    """Runs the tasks of `app` for the server at `server`, authenticated by `token`.

    Its settings are those of any worker (`concurrency`, `grace`, …), except for the lease, which
    the server sets. `spool` is a folder for events until the server has stored them.
    """

    def __init__(
        self,
        server: str,
        token: str | None,
        app: Outlast,
        queues: str | Sequence[str] | None = None,
        *,
        concurrency: int | None = None,
        spool: str | Path | None = None,
        **settings: Unpack[WorkerOptions],
    ) -> None:
        queue_names = [queues] if isinstance(queues, str) else queues
        chosen = WorkerSettings.of(concurrency=concurrency, **settings)
        name = f"{_host_name(socket.gethostname())}-{new_instance_id()[:12]}"
        served = None if queue_names is None else sorted(set(queue_names))
        services = app._worker_services(sources=False, remote=True)
        state, threads = WorkerState(name, chosen, served), Threads(chosen.concurrency)
        shared = WorkerShared(state, threads, services=services)
        client = ServerClient(server, token)
        folder = folder_of(client.server, None if spool is None else Path(spool))
        self.session = RemoteSession(name, client, shared.in_flight, folder)
        self.worker = _assemble(app, shared, self.session)

    @property
    def id(self) -> str:
        return self.worker.id

    @property
    def counts(self) -> Counter[str]:
        return self.worker.counts

    @property
    def connected(self) -> bool:
        """Whether it is connected to a server that has registered it."""
        return self.session.connected

    def run(self) -> None:
        """Run until stopped: SIGTERM and SIGINT drain, a second signal skips the grace time."""
        self.worker.run()

    async def arun(self) -> None:
        """Run until `stop()` is called, then drain."""
        await self.worker.arun()

    def stop(self) -> None:
        """Stop, as `Worker.stop` does."""
        self.worker.stop()

    async def __aenter__(self) -> Self:
        await self.worker.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.worker.__aexit__(*error)


def _assemble(app: Outlast, shared: WorkerShared, session: RemoteSession) -> Worker:
    wakeup = shared.wakeup
    # The parts call each other: these functions are called after all parts exist.

    def slot_freed() -> None:
        source.slot_freed()

    def deliver(held: InFlight) -> None:
        reporter.add(held)
        source.slot_freed()

    def say(claim: Claim, kind: str, data: str, n: int | None = None) -> None:
        if reporter.add_event(claim, kind, data, n):
            wakeup.call_soon(wakeup.set)

    async def send_output(claim: Claim) -> None:
        await reporter.send_output(claim)

    def context(claim: Claim) -> Context:
        return Context(claim, say, operations, blobs=app.blobs)

    def start(claims: Sequence[Claim], asked_at: float) -> None:
        source.accepted(claims, asked_at)

    def free_room() -> int:
        return room.claimable()

    def ahead() -> int:
        return room.prefetch()

    def renew_now() -> None:
        leases.renew_now()

    operations = RemoteStepsClient(session, wakeup, send_output)
    runner = JobRunner(
        app.registry, shared, ReportedOutages(), context=context, deliver=deliver,
        slot_freed=slot_freed,
    )  # fmt: skip
    reporter = Reporter(
        session, shared, app.registry, Acceptance(free_room, ahead, start, renew_now),
        app.store.settings.stream_limit,
    )  # fmt: skip
    room = RemoteCapacity(shared, runner, reporter)
    renewals = RemoteLeases(session, shared, runner, reporter)
    leases = HeartbeatThread(renewals, shared, runner, deadline=app.store.settings.deadline)
    source = StreamSource(session, shared, runner, reporter, room, leases)
    return Worker(app, shared, source, reporter, leases, runner)


def _host_name(host: str) -> str:
    """The host name in the characters and length that the server accepts."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in host)[:40]
