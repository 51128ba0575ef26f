"""The verbs that only look: jobs, queues, workers, duties, and why something is not running."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.errors import InvalidOption
from ..model.job import Job
from ..model.lifecycle import State
from ..ops import report
from ..ops.breaker_report import BreakerState, breakers
from ..ops.explain import explain
from ..ops.report import Attempt, Duty, Event, Filter, Queue, Worker
from ..ops.search import all_queues
from .base import ClientBase, job_id

MAX_ROWS = 1_000_000_000  # of one list


class Jobs(ClientBase):
    """Part of `Outlast`."""

    def job(self, id: str) -> Job:
        """A job as it stands now, whole. (Lists show a `Blob` for what is kept by reference, and so
        does this, if that cannot be had.)"""
        return self._load_blobs(self.store.run(report.job, job_id(id)))

    async def ajob(self, id: str) -> Job:
        return await self._aload_blobs(await self.store.arun(report.job, job_id(id)))

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
            report.jobs,
            job_filter(state, queue, task, tenant),
            before and job_id(before),
            check_limit(limit),
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
            report.jobs,
            job_filter(state, queue, task, tenant),
            before and job_id(before),
            check_limit(limit),
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
        """Every queue that holds a job or has a setting, with its jobs counted by state. It reads
        all jobs: ask seldom."""
        return self.store.run(all_queues)

    async def aqueues(self) -> list[Queue]:
        return await self.store.arun(all_queues)

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


def job_filter(
    state: str | None,
    queue: str | None,
    task: str | None,
    tenant: str | None,
    states: Sequence[State] | None = None,
) -> Filter:
    """A filter of jobs; `states`: those that the verb is for, if it is not for all."""
    if (state is not None or states is not None) and state not in (states or tuple(State)):
        listed = ", ".join(states or State)
        raise InvalidOption(option="state", reason=f"must be one of {listed}, not {state!r:.80}")
    for name, value in (("queue", queue), ("task", task), ("tenant", tenant)):
        if value is not None and (not isinstance(value, str) or "\0" in value):
            raise InvalidOption(option=name, reason=f"must be text, not {value!r:.80}")
    return Filter(state and str(state), queue, task, tenant)


def check_limit(limit: int) -> int:
    """The number of rows that a list may have."""
    whole = isinstance(limit, int) and not isinstance(limit, bool)
    if not whole or not 0 <= limit <= MAX_ROWS:
        reason = f"must be a whole number from 0 to {MAX_ROWS}, not {limit!r:.80}"
        raise InvalidOption(option="limit", reason=reason)
    return limit
