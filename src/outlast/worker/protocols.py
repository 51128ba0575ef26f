"""The three parts in which a local and a remote worker differ, and services that run beside it.

JobSource    where jobs come from         claims in the database / offers of a server
OutcomeSink  where outcomes and events go  the database / reports to a server
LeaseHolder  how claims are kept          renewals from a thread of its own

WorkerService  runs in the worker's event loop: sources, and the connections of outboxes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..loops import Loop
    from ..model.claim import Claim
    from ..model.errors import OutlastError
    from .in_flight import InFlight


class JobSource(Protocol):
    async def open(self) -> None:
        """Before anything is claimed: register. Waits for a database that is away."""

    async def ready(self) -> None:
        """With renewals under way: what has to be there before the first claim."""

    async def cycle(self) -> None:
        """Hand in outcomes, claim jobs and start them; or wait for something to do."""

    async def stop(self) -> None:
        """Claim nothing more."""

    async def leave(self) -> None:
        """When nothing is running any more: deregister."""

    async def aclose(self) -> None: ...

    def notify(self, queue: str) -> None:
        """Jobs may be ready in this queue, or ("") in any; with a !, jobs were cancelled."""

    def drop_claims(self, claims: Sequence[Claim]) -> None:
        """These could not be renewed in time, and were stopped."""

    @property
    def failure(self) -> OutlastError | None:
        """Why it stopped the worker, if it did."""


class OutcomeSink(Protocol):
    handlers_are_short: bool  # handlers are short: outcomes follow their claims within a moment

    def __len__(self) -> int:
        """Outcomes, events and acceptances that can be handed in now."""

    @property
    def set_aside_count(self) -> int:
        """Outcomes that are set aside because they cannot be stored."""

    def add(self, held: InFlight) -> None: ...

    def reported(self) -> set[InFlight]:
        """Jobs whose outcomes wait, or are on their way."""

    def due_in(self) -> float:
        """Seconds until streamed output is to be handed in; infinite if none waits."""

    def add_event(self, claim: Claim, kind: str, data: str, n: int | None = None) -> bool:
        """From any thread: an event or a chunk of output of a running job. Returns whether there is
        something new to hand in."""

    def pending_events(self, claim: Claim) -> list[dict[str, object]]:
        """From any thread: its events that may not be stored yet."""

    async def flush(self) -> None:
        """Hand in everything that can be handed in now."""


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
        """A job was cancelled: find out which."""

    def retry_failed(self) -> None:
        """The database is back: what failed need not wait any longer."""

    def notify(self, queues: set[str]) -> None:
        """Notify other workers that jobs are ready in these queues."""

    def quiesce(self) -> None:
        """Stop renewing soon, without waiting; the liveness lock stays."""

    def quiesce_now(self) -> None:
        """Wait until nothing is renewed any more."""

    def stop(self) -> None:
        """Give up the liveness lock, too."""

    def join(self) -> None: ...


class HeartbeatListener(Protocol):
    """What the heartbeat thread tells the worker; each is called in the worker's event loop."""

    def on_notify(self, queue: str) -> None: ...

    def on_answer(self) -> None:
        """The database answers again."""

    def on_draining(self, draining: bool) -> None: ...

    def on_unsafe(self) -> None:
        """Some leases could not be renewed in time."""

    def beat(self) -> None:
        """Once a second."""


class WorkerService(Protocol):
    """Runs beside a worker, in its event loop."""

    async def start(self) -> None:
        """The worker is about to claim its first job."""

    async def stop(self) -> None:
        """The worker stops: begin nothing more. Jobs may still be running."""

    async def aclose(self) -> None:
        """No job is running any more."""
