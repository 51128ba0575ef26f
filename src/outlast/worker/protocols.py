"""Protocols of the three parts in which local and remote workers differ, and of services.

JobSource      provides jobs                      claims in the database / offers of a server
OutcomeSink    stores outcomes and events         in the database / reports to a server
LeaseHolder    renews claims                      in a thread of its own

WorkerService  runs in the worker's event loop    sources, and the connections of outboxes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..loops import Loop
    from ..model.claim import Claim, ClaimEvent
    from ..model.errors import OutlastError
    from .in_flight import InFlight


class JobSource(Protocol):
    async def open(self) -> None:
        """Register, before the first claim. Waits for an unavailable database."""

    async def ready(self) -> None:
        """Wait for the conditions of the first claim, while renewals are running."""

    async def cycle(self) -> None:
        """Report outcomes, claim jobs and start them; or wait for something to do."""

    async def stop(self) -> None:
        """Claim nothing more."""

    async def leave(self) -> None:
        """Deregister, after the last job has ended."""

    async def aclose(self) -> None: ...

    def notify(self, queue: str) -> None:
        """Jobs may be ready in this queue, or ("") in any queue; with a !, jobs were cancelled."""

    def drop_claims(self, claims: Sequence[Claim]) -> None:
        """Forget claims that could not be renewed in time and were stopped."""

    @property
    def failure(self) -> OutlastError | None:
        """The error for which it stopped the worker, if any."""


class OutcomeSink(Protocol):
    handlers_are_short: bool  # outcomes follow their claims within a moment

    def __len__(self) -> int:
        """The number of outcomes, events and acceptances that can be reported now."""

    @property
    def set_aside_count(self) -> int:
        """The number of outcomes that are set aside because they cannot be stored."""

    def add(self, held: InFlight) -> None: ...

    def reported(self) -> set[InFlight]:
        """Jobs whose outcomes wait to be reported or are being reported."""

    def due_in(self) -> float:
        """Seconds until streamed output is due; infinite if none waits."""

    def add_event(self, claim: Claim, kind: str, data: str, n: int | None = None) -> bool:
        """From any thread: add an event or a chunk of output of a running job. Returns whether the
        worker should wake up to report it."""

    def pending_events(self, claim: Claim) -> list[ClaimEvent]:
        """From any thread: the events of a claim that may not be stored yet."""

    async def flush(self) -> None:
        """Report everything that can be reported now."""


class LeaseHolder(Protocol):
    @property
    def loops(self) -> Sequence[Loop]: ...

    @property
    def started(self) -> bool: ...

    @property
    def alive(self) -> bool: ...

    @property
    def watchdog_at(self) -> float:
        """When its thread last made progress, by the monotonic clock."""

    def start(self, listener: HeartbeatListener) -> None: ...

    def renew_now(self) -> None:
        """Renew now: a renewal returns which jobs were cancelled."""

    def retry_failed(self) -> None:
        """Run failed loops again at once: the database is available."""

    def notify(self, queues: set[str]) -> None:
        """Notify other workers that jobs are ready in these queues."""

    def quiesce(self) -> None:
        """Stop renewing soon, without waiting; the liveness lock stays."""

    def quiesce_now(self) -> None:
        """Wait until renewals have ended."""

    def stop(self) -> None:
        """Release the liveness lock as well."""

    def join(self) -> None: ...


class HeartbeatListener(Protocol):
    """Callbacks of the heartbeat thread, called in the worker's event loop."""

    def on_notify(self, queue: str) -> None: ...

    def on_answer(self) -> None:
        """The database responds again."""

    def on_draining(self, draining: bool) -> None: ...

    def on_unsafe(self) -> None:
        """Some leases could not be renewed in time."""

    def beat(self) -> None:
        """Called once a second."""


class WorkerService(Protocol):
    """A service that runs beside a worker, in its event loop."""

    async def start(self) -> None:
        """Start, before the worker claims its first job."""

    async def stop(self) -> None:
        """Begin nothing more: the worker stops, but jobs may still be running."""

    async def aclose(self) -> None:
        """Close, after the last job has ended."""
