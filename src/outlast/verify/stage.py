"""What a path acts on: an application, a queue of its own, and words for the ledger."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from ..model.errors import ClaimLost, StoreError
from ..model.job import Claim, Job, NewJob
from ..model.layout import new_jobs
from ..model.lifecycle import Outcome
from ..model.outcome import Ended, Transition, decide
from ..model.task import Call
from ..ops.claim import Place, Wanted
from ..ops.claim import claim as claim_op
from ..ops.finish import Finished, finish
from ..ops.statement import Op
from ..tasks import Task
from ..worker.context import Context
from .trap import Trap
from .workload import AT_ONCE, Workload

P = ParamSpec("P")
T = TypeVar("T")

SOMEHOW = ("succeeded", "dead", "cancelled")  # any final state


class Stage:
    def __init__(
        self, workload: Workload, label: str, lease: float, trap: Trap | None = None
    ) -> None:
        self.work = workload
        self.ol = workload.ol
        self.place = workload.place
        self.ledger = workload.ledger
        self.queue = label  # by its name, everything that happens here is known to be ours
        self.owner = f"owner-{label}"
        self.lease = lease
        self.patience: float | None = None  # seconds a worker works here at the most
        self.claims: list[Claim] = []  # all that were ever in these hands
        self.trap = trap or Trap()

    def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.ol.store.run(operation, *args, **kwargs)

    # Jobs to act on

    def enqueued(self, number: int = 1, *states: str, **options: Any) -> list[Job]:
        task = self.work.mark.using(queue=self.queue, **options)
        jobs = self.ol.enqueue(*[task.job() for _ in range(number)])
        for job in jobs:
            self.promise(job.id, *(states or ("succeeded",)))
        return jobs

    def claim(
        self, limit: int = 100, lease: float | None = None, place: Place | None = None
    ) -> list[Claim]:
        lease = self.lease if lease is None else lease
        claims = self.run(claim_op, Wanted(self.owner, self.queue, limit, lease, place=place))
        self.claims += claims
        return claims

    def claimed(self, number: int = 1, *states: str, **options: Any) -> list[Claim]:
        """Jobs in hand, as if their handlers had begun."""
        self.enqueued(number, *states, **options)
        return self.began(self.claim(number))

    def claimed_of(self, task: Task[Any, Any]) -> list[Claim]:
        """One job of this task in hand, as if its handler had begun."""
        self.promise(task.using(queue=self.queue).enqueue().id)
        return self.began(self.claim(1))

    def began(self, claims: list[Claim]) -> list[Claim]:
        for claim in claims:
            self.ledger.write("began", claim.id, claim.fence)
        return claims

    def ended(
        self, outcome: Outcome, claim: Claim, jobs: int = 0, *, tell: bool = True,
        join: bool = False,
    ) -> Ended:  # fmt: skip
        """The end of an attempt, as a worker would tell it. Untold, it must not count. With `join`,
        whoever waits for it waits for its jobs too."""
        if outcome is Outcome.SUCCEEDED:
            if tell:
                self.ledger.write("ended", claim.id, claim.fence, jobs)
            result = json.dumps({"fence": claim.fence})
            return Ended(outcome, result, jobs=tuple(self._followers(claim, jobs, join)))
        error = {"type": "Verify", "message": f"{outcome} on purpose", "traceback": ""}
        return Ended(outcome, error=error, delay=0.01 if outcome is Outcome.POSTPONED else None)

    def _followers(self, claim: Claim, number: int, join: bool) -> list[NewJob]:
        if join:
            step = self.work.flows.step.using(queue=self.queue)
            joined = step.job(parent=claim.id, claim=claim.fence, joined=True)
            return new_jobs([joined] * number, claim.flow, claim.id)
        call = self.work.mark.using(queue=self.queue).job(parent=claim.id, claim=claim.fence)
        return new_jobs([call] * number)

    def finish(
        self, ends: Sequence[tuple[Claim, Ended]], events: Sequence[dict[str, Any]] = ()
    ) -> Finished:
        """Hand outcomes in, and tell the ledger what we were told."""
        transitions = [decide(claim, ended, AT_ONCE, 0.5) for claim, ended in ends]
        finished = self.run(finish, transitions, events)
        self.told(finished)
        return finished

    # What handlers do by themselves

    def context(self, claim: Claim) -> Context:
        context = Context(claim, lambda *_: None, self.ol.store)
        if self.patience is not None:  # there is no keeper here to let go of what is not renewed
            letting_go = threading.Timer(self.patience, context.lose)
            letting_go.daemon = True
            letting_go.start()
        return context

    def step(self, context: Context, name: str) -> None:
        try:
            self.work.step(context, name)
        except ClaimLost:
            if context._lost:
                return  # it let go by itself, and was told nothing
            self.ledger.write("stepped", context.job.id, context.fence, [name, False])

    def complete(self, claim: Claim, *, late: bool = False) -> None:
        """Write a row of our own and finish. Whose connection broke is told nothing: the judge
        sees what stands."""
        context = self.context(claim)
        try:
            with context.completing({"fence": claim.fence}) as connection:
                self.place.do_business(connection, self.work.writes(context, late=late))
            accepted = True
        except ClaimLost:
            if context._lost:
                return  # it let go by itself, and was told nothing
            accepted = False
        except self._broken():
            return
        if not late:
            self.ledger.write("told", claim.id, claim.fence, [str(Outcome.SUCCEEDED), accepted])

    def _broken(self) -> tuple[type[Exception], ...]:
        if self.place.is_sqlite:
            return StoreError, sqlite3.OperationalError
        import psycopg

        return StoreError, psycopg.Error

    def finish_in_time(self, ends: Sequence[tuple[Claim, Ended]], since: float) -> None:
        """The same, of claims that cannot have been lost: their leases run from `since` on."""
        finished = self.finish(ends)
        if time.monotonic() - since < 0.9 * self.lease:
            for transition in finished.lost:
                self.ledger.write("robbed", transition.claim.id, transition.claim.fence)

    def told(self, finished: Finished) -> None:
        for transition, _ in finished.accepted:
            self._told(transition, True)
        for transition in finished.lost:
            self._told(transition, False)

    def _told(self, transition: Transition, accepted: bool) -> None:
        if transition.quiet:
            return  # it leaves no record to compare with
        claim = transition.claim
        self.ledger.write("told", claim.id, claim.fence, [str(transition.outcome), accepted])

    # Jobs that wait for each other

    def job(self, **options: Any) -> Call:
        """One of a flow. Its hooks, if it has any, know it by the queue."""
        return self.work.mark.using(queue=self.queue, **options).job()

    def hooks(self) -> dict[str, Call]:
        """One for each way in which a job can end, to be given to it."""
        task = self.work.flows.hook.using(queue=self.queue)
        names = {"on_success": "succeeded", "on_dead": "dead", "on_cancel": "cancelled"}
        return {name: task.job(self.queue, on) for name, on in names.items()}

    def flow(self, *items: Any, states: Sequence[str] = SOMEHOW) -> list[Job]:
        jobs = self.ol.enqueue(*items)
        for job in jobs:
            self.promise(job.id, *states)
        return jobs

    def asked(self, job: Job, after: Sequence[Job] = (), *, hooked: bool = False) -> None:
        """A job as it was asked for: whom it comes after, and whether it has hooks."""
        node = [job.id, self.queue, "", [one.id for one in after], SOMEHOW if hooked else []]
        self.ledger.write("flow", job.id, 0, {"shape": "path", "fan_ins": [], "nodes": [node]})

    # What the judge must know

    def promise(self, id: str, *states: str) -> None:
        """The job stands, and ends in one of these states."""
        self.ledger.write("promised", id, 0, list(states or ("succeeded",)))

    def refuse(self, id: str) -> None:
        self.ledger.write("refused", id)

    def never(self, id: str, fence: int = 1) -> None:
        """Nobody may run it under this claim or a later one."""
        self.ledger.write("never", id, fence)

    def saw(self, invariant: str, orphan: str, told: str) -> None:
        """What must not be, where only a path can see it."""
        self.ledger.write("saw", self.queue, 0, [invariant, orphan, told])

    def together(self, number: int) -> None:
        self.ledger.write("together", self.queue, 0, number)

    def beside(self) -> None:
        self.ledger.write("beside", self.queue)
