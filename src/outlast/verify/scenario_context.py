"""Context of a scenario: an application, a queue of its own, and methods that write the ledger."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from ..model.claim import Claim, ClaimEvent
from ..model.errors import ClaimLost, StoreError
from ..model.flow_builder import build_jobs
from ..model.job import Job, NewJob
from ..model.lifecycle import Outcome
from ..model.outcome import AttemptEnd, Transition, decide
from ..model.task import Call
from ..ops.claim import ClaimRequest
from ..ops.claim import claim as claim_op
from ..ops.finish import Finished, finish
from ..ops.operation import Op
from ..task import Task
from ..worker.context import Context
from .faults.interceptor import Interceptor
from .workload import FAST_RETRY, Workload

P = ParamSpec("P")
T = TypeVar("T")

ANY_FINAL_STATE = ("succeeded", "dead", "cancelled")


class ScenarioContext:
    def __init__(
        self, workload: Workload, label: str, lease: float, interceptor: Interceptor | None = None
    ) -> None:
        self.work = workload
        self.ol = workload.ol
        self.workspace = workload.workspace
        self.ledger = workload.ledger
        self.queue = label  # its name identifies all rows of this scenario
        self.owner = f"owner-{label}"
        self.lease = lease
        self.max_work_s: float | None = None  # maximum seconds for a worker
        self.claims: list[Claim] = []  # all claims that this context ever had
        self.interceptor = interceptor or Interceptor()

    def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.ol.store.run(operation, *args, **kwargs)

    # Jobs to act on

    def enqueue(self, number: int = 1, *states: str, **options: Any) -> list[Job]:
        task = self.work.mark.using(queue=self.queue, **options)
        jobs = self.ol.enqueue(*[task.job() for _ in range(number)])
        for job in jobs:
            self.record_promise(job.id, *(states or ("succeeded",)))
        return jobs

    def claim(self, limit: int = 100, lease: float | None = None, **options: Any) -> list[Claim]:
        lease = self.lease if lease is None else lease
        claims = self.run(claim_op, ClaimRequest(self.owner, self.queue, limit, lease, **options))
        self.claims += claims
        return claims

    def enqueue_and_claim(self, number: int = 1, *states: str, **options: object) -> list[Claim]:
        """Claimed jobs, as if their handlers had started."""
        self.enqueue(number, *states, **options)
        return self.record_begun(self.claim(number))

    def enqueue_and_claim_task(self, task: Task[Any, Any]) -> list[Claim]:
        """One claimed job of this task, as if its handler had started."""
        self.record_promise(task.using(queue=self.queue).enqueue().id)
        return self.record_begun(self.claim(1))

    def record_begun(self, claims: list[Claim]) -> list[Claim]:
        for claim in claims:
            self.ledger.write("began", claim.id, claim.fence)
        return claims

    def attempt_end(
        self, outcome: Outcome, claim: Claim, jobs: int = 0, *, record: bool = True,
        join: bool = False,
    ) -> AttemptEnd:  # fmt: skip
        """The end of an attempt, as a worker reports it. It must not count unless it is reported.
        With `join`, dependents wait for its jobs, too."""
        if outcome is Outcome.SUCCEEDED:
            if record:
                self.ledger.write("ended", claim.id, claim.fence, jobs)
            result = json.dumps({"fence": claim.fence})
            return AttemptEnd(outcome, result, jobs=tuple(self._followers(claim, jobs, join)))
        error = {"type": "Verify", "message": f"{outcome} on purpose", "traceback": ""}
        return AttemptEnd(
            outcome, error=error, delay=0.01 if outcome is Outcome.POSTPONED else None
        )

    def _followers(self, claim: Claim, number: int, join: bool) -> list[NewJob]:
        if join:
            step = self.work.flows.step.using(queue=self.queue)
            joined = step.job(parent=claim.id, claim=claim.fence, joined=True)
            return build_jobs([joined] * number, claim.flow, claim.id)
        call = self.work.mark.using(queue=self.queue).job(parent=claim.id, claim=claim.fence)
        return build_jobs([call] * number)

    def finish(
        self, ends: Sequence[tuple[Claim, AttemptEnd]], events: Sequence[ClaimEvent] = ()
    ) -> Finished:
        """Report outcomes, and record the responses in the ledger."""
        transitions = [decide(claim, ended, FAST_RETRY, 0.5) for claim, ended in ends]
        finished = self.run(finish, transitions, events)
        self.record_answers(finished)
        return finished

    # Actions of handlers

    def context(self, claim: Claim) -> Context:
        context = Context(claim, lambda *_: None, self.ol.store, store=self.ol.store)
        if self.max_work_s is not None:  # without a heartbeat thread, nothing disowns old claims
            timer = threading.Timer(self.max_work_s, context.disown)
            timer.daemon = True
            timer.start()
        return context

    def step(self, context: Context, name: str) -> None:
        try:
            self.work.step(context, name)
        except ClaimLost:
            if context._lost:
                return  # it disowned the job, without an answer
            self.ledger.write("stepped", context.job.id, context.fence, [name, False])

    def complete(self, claim: Claim, *, late: bool = False) -> None:
        """Write the handler's own row and finish. If the connection breaks there is no response to
        record: the checker reads the tables."""
        context = self.context(claim)
        try:
            with context.completing({"fence": claim.fence}) as connection:
                self.workspace.insert_business_row(connection, self.work.writes(context, late=late))
            accepted = True
        except ClaimLost:
            if context._lost:
                return  # it disowned the job, without an answer
            accepted = False
        except self._connection_errors():
            return
        if not late:
            self.ledger.write("told", claim.id, claim.fence, [str(Outcome.SUCCEEDED), accepted])

    def _connection_errors(self) -> tuple[type[Exception], ...]:
        if self.workspace.is_sqlite:
            return StoreError, sqlite3.OperationalError
        import psycopg

        return StoreError, psycopg.Error

    def finish_in_time(
        self, ends: Sequence[tuple[Claim, AttemptEnd]], since: float, lease: float | None = None
    ) -> None:
        """Finish claims that cannot be lost: their leases run from `since` on."""
        finished = self.finish(ends)
        if time.monotonic() - since < 0.9 * (self.lease if lease is None else lease):
            for transition in finished.lost:
                self.ledger.write("robbed", transition.claim.id, transition.claim.fence)

    def record_answers(self, finished: Finished) -> None:
        for transition, _ in finished.accepted:
            self._record_answer(transition, True)
        for transition in finished.lost:
            self._record_answer(transition, False)

    def _record_answer(self, transition: Transition, accepted: bool) -> None:
        if transition.quiet:
            return  # no record to compare with
        claim = transition.claim
        self.ledger.write("told", claim.id, claim.fence, [str(transition.outcome), accepted])

    # Flows

    def call(self, **options: Any) -> Call:
        """A job of a flow. Its hooks, if any, identify it by the queue."""
        return self.work.mark.using(queue=self.queue, **options).job()

    def hooks(self) -> dict[str, Call]:
        """One hook for each final state, to pass to a job."""
        task = self.work.flows.hook.using(queue=self.queue)
        names = {"on_success": "succeeded", "on_dead": "dead", "on_cancel": "cancelled"}
        return {name: task.job(self.queue, on) for name, on in names.items()}

    def enqueue_flow(self, *items: Any, states: Sequence[str] = ANY_FINAL_STATE) -> list[Job]:
        jobs: list[Job] = self.ol.enqueue(*items)
        for job in jobs:
            self.record_promise(job.id, *states)
        return jobs

    def record_planned(self, job: Job, after: Sequence[Job] = (), *, hooked: bool = False) -> None:
        """Record a requested job: its prerequisites, and whether it has hooks."""
        node = [
            job.id,
            self.queue,
            "",
            [one.id for one in after],
            ANY_FINAL_STATE if hooked else [],
        ]
        self.ledger.write("flow", job.id, 0, {"shape": "path", "fan_ins": [], "nodes": [node]})

    # Facts for the checker

    def record_promise(self, id: str, *states: str) -> None:
        """Record that the job exists and must end in one of these states."""
        self.ledger.write("promised", id, 0, list(states or ("succeeded",)))

    def record_rollback(self, id: str) -> None:
        self.ledger.write("refused", id)

    def forbid_claim(self, id: str, fence: int = 1) -> None:
        """Record that the job must not run under this claim or a later one."""
        self.ledger.write("never", id, fence)

    def report(self, invariant: str, orphan: str, message: str) -> None:
        """Report a violation that only the scenario can detect."""
        self.ledger.write("saw", self.queue, 0, [invariant, orphan, message])

    def record_atomic(self, number: int) -> None:
        self.ledger.write("together", self.queue, 0, number)

    def record_beside_row(self) -> None:
        self.ledger.write("beside", self.queue)
