"""Workers: register, send heartbeats, prove liveness, drain, deregister."""

from __future__ import annotations

from ..model.claim import Claim
from ..model.errors import InvalidOption, WorkerNotFound
from ..model.outcome import release
from ..model.worker_names import is_remote
from .finish import finish
from .job_actions import record_action
from .operation import BEGIN, Op, Rows, Statement, creates_database


@creates_database
def register(worker: dict[str, object]) -> Op[None]:
    yield Statement("register_worker", worker)


def heartbeat(id: str, running: int, state: str) -> Op[tuple[bool, bool]]:
    """Record a heartbeat; returns whether the worker is still registered, and whether its proof of
    liveness is valid."""
    rows: Rows = yield Statement("worker_heartbeat", {"id": id, "running": running, "state": state})
    return bool(rows), any(proven for (proven,) in rows)


def prove_liveness(id: str) -> Op[bool]:
    """Record that a worker holds its liveness lock; False if the worker is not registered."""
    rows: Rows = yield Statement("prove_liveness", {"id": id})
    return bool(rows)


def report_trouble(worker: str, trouble: str | None) -> Op[None]:
    """Record why a worker cannot report outcomes, or clear that."""
    yield Statement("report_trouble", {"worker": worker, "trouble": trouble})


def held_by(worker: str) -> Op[list[str]]:
    """The ids of the jobs that a worker runs."""
    rows: Rows = yield Statement("owned", {"worker": worker})
    return [row[0] for row in rows]


def set_draining(worker: str, draining: bool, by: str) -> Op[None]:
    """Stop or resume the claiming of a worker; its running jobs continue. Idempotent."""
    if is_remote(worker):
        raise InvalidOption(
            option="worker", reason="is remote: stop it on its own machine, and it drains"
        )
    yield BEGIN
    changed: Rows = yield Statement("set_draining", {"worker": worker, "draining": draining})
    if changed:
        yield from record_action(
            "drain" if draining else "undrain", [None], {"by": by, "worker": worker}
        )
        return
    known: Rows = yield Statement("draining", {"worker": worker})
    if not known:
        raise WorkerNotFound(worker=worker)


def deregister(worker: str) -> Op[int]:
    """Release jobs that were claimed but never received, and delete the registration."""
    yield BEGIN
    rows: Rows = yield Statement("owned", {"worker": worker})
    if rows:
        yield from finish([release(Claim(*row)) for row in rows])
    yield Statement("deregister_worker", {"id": worker})
    return len(rows)
