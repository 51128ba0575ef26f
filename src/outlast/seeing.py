"""The verbs that only look: jobs, queues, workers, duties, and why something is not running."""

from __future__ import annotations

from .connected import Connected, job_id
from .model.errors import InvalidOption
from .model.job import Job
from .model.lifecycle import State
from .ops import report
from .ops.breaker_report import BreakerState, breakers
from .ops.explain import explain
from .ops.report import Attempt, Duty, Event, Filter, Queue, Worker


class SeeingVerbs(Connected):
    """Part of `Outlast`."""

    def job(self, id: str) -> Job:
        """A job as it stands now, whole. (Lists show a `Blob` for what is kept by reference, and so
        does this, if that cannot be had.)"""
        return self._whole(self.store.run(report.job, job_id(id)))

    async def ajob(self, id: str) -> Job:
        return await self._awhole(await self.store.arun(report.job, job_id(id)))

    def jobs(
        self,
        *,
        state: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
        before: str | None = None,
        limit: int = 1000,
    ) -> list[Job]:
        """Jobs, newest first. For the next page, give the last one's id as `before`."""
        return self.store.run(
            report.jobs, chosen(state, queue, task, tenant), before and job_id(before), limit
        )

    async def ajobs(
        self,
        *,
        state: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
        before: str | None = None,
        limit: int = 1000,
    ) -> list[Job]:
        return await self.store.arun(
            report.jobs, chosen(state, queue, task, tenant), before and job_id(before), limit
        )

    def counts(self) -> dict[str, int]:
        """How many jobs there are in each state."""
        return self.store.run(report.counts)

    async def acounts(self) -> dict[str, int]:
        return await self.store.arun(report.counts)

    def history(self, id: str) -> tuple[list[Attempt], list[Event]]:
        """How a job's attempts ended (those that did not succeed at once), and its events."""
        return self.store.run(report.history, job_id(id))

    async def ahistory(self, id: str) -> tuple[list[Attempt], list[Event]]:
        return await self.store.arun(report.history, job_id(id))

    def explain(self, id: str) -> str:
        """In words: what a job is waiting for, or how it ended."""
        return self.store.run(explain, job_id(id), self.store.confirm_dead)

    async def aexplain(self, id: str) -> str:
        return await self.store.arun(explain, job_id(id), self.store.confirm_dead)

    def queues(self) -> list[Queue]:
        return self.store.run(report.queues)

    async def aqueues(self) -> list[Queue]:
        return await self.store.arun(report.queues)

    def breakers(self) -> list[BreakerState]:
        """Circuit breakers that are open: tasks whose calls have stopped, and why."""
        return self.store.run(breakers)

    async def abreakers(self) -> list[BreakerState]:
        return await self.store.arun(breakers)

    def workers(self) -> list[Worker]:
        return self.store.run(report.workers)

    async def aworkers(self) -> list[Worker]:
        return await self.store.arun(report.workers)

    def duties(self) -> list[Duty]:
        return self.store.run(report.duties)

    async def aduties(self) -> list[Duty]:
        return await self.store.arun(report.duties)


def chosen(state: str | None, queue: str | None, task: str | None, tenant: str | None) -> Filter:
    if state is not None and state not in set(State):
        raise InvalidOption(option="state", reason=f"must be one of {', '.join(State)}")
    return Filter(state and str(state), queue, task, tenant)
