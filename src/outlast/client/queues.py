"""The verbs that change a job's way: cancel it, give it a new life, pause its queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model.bulk import BulkCount
from ..model.ids import new_job_id
from ..model.job import Job
from ..model.lifecycle import REDRIVABLE, State
from ..model.options import check_name
from ..ops import job_actions
from ..ops.breakers import close_breaker
from ..ops.bulk import matching, redrive_some
from ..ops.enqueue import CANCEL_SIGNAL
from .base import ANY_QUEUE, PAGE_JOBS, ClientBase, actor, job_id
from .jobs import job_filter


class Queues(ClientBase):
    """Part of `Outlast`."""

    def cancel(self, id: str, reason: str = "") -> Job:
        """Cancel a queued job, or ask a running one to stop. Cancelling twice is one cancel."""
        job = self.store.run(job_actions.cancel, job_id(id), actor(), reason)
        self._notify([CANCEL_SIGNAL] if job.state is State.RUNNING else [])
        return job

    async def acancel(self, id: str, reason: str = "") -> Job:
        job = await self.store.arun(job_actions.cancel, job_id(id), actor(), reason)
        await self._anotify([CANCEL_SIGNAL] if job.state is State.RUNNING else [])
        return job

    def retry(self, id: str) -> Job:
        """Give a dead or cancelled job a new life, all budgets full (a redrive)."""
        job = self.store.run(job_actions.redrive_one, job_id(id), actor())
        self._notify([job.queue])
        return job

    async def aretry(self, id: str) -> Job:
        job = await self.store.arun(job_actions.redrive_one, job_id(id), actor())
        await self._anotify([job.queue])
        return job

    def retry_all(
        self,
        *,
        state: str = "dead",
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
    ) -> BulkCount:
        """Redrive every job that fits, in small transactions; run again, it just goes on. Says how
        many, and why others that fitted were left alone."""
        which = job_filter(state, queue, task, tenant, REDRIVABLE)
        return self._retry_pages(self._pages(which), state)

    def _retry_pages(self, pages: Iterable[Sequence[str]], state: str) -> BulkCount:
        """The same for jobs that were found before."""
        action, done, counted = new_job_id(), set[str](), [BulkCount.of(0, {})]
        for ids in pages:
            revived, some = self.store.run(redrive_some, ids, state, actor(), action)
            counted.append(_count_new(some, revived, ids, done))
        self._notify([ANY_QUEUE] if done else [])
        return BulkCount.sum(counted)

    async def aretry_all(
        self,
        *,
        state: str = "dead",
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
    ) -> BulkCount:
        which = job_filter(state, queue, task, tenant, REDRIVABLE)
        cursor, action = None, new_job_id()
        done, counted = set[str](), [BulkCount.of(0, {})]
        while ids := await self.store.arun(matching, which, cursor, PAGE_JOBS):
            revived, some = await self.store.arun(redrive_some, ids, state, actor(), action)
            counted.append(_count_new(some, revived, ids, done))
            cursor = ids[-1]
        await self._anotify([ANY_QUEUE] if done else [])
        return BulkCount.sum(counted)

    def pause(self, queue: str) -> None:
        """No more jobs of this queue are claimed; running ones go on. Survives restarts."""
        self.store.run(job_actions.set_paused, check_name("queue", queue), True, actor())

    async def apause(self, queue: str) -> None:
        await self.store.arun(job_actions.set_paused, check_name("queue", queue), True, actor())

    def close_breaker(self, queue: str, task: str | None = None) -> int:
        """Close the open circuit breaker of a task in this queue, or all of the queue; how many
        were open. Its jobs are claimed again at once."""
        closed = self.store.run(close_breaker, *_circuit(queue, task), None, actor())
        self._notify([ANY_QUEUE] if closed else [])
        return len(closed)

    async def aclose_breaker(self, queue: str, task: str | None = None) -> int:
        closed = await self.store.arun(close_breaker, *_circuit(queue, task), None, actor())
        await self._anotify([ANY_QUEUE] if closed else [])
        return len(closed)

    def resume(self, queue: str) -> None:
        self.store.run(job_actions.set_paused, check_name("queue", queue), False, actor())
        self._notify([queue])

    async def aresume(self, queue: str) -> None:
        await self.store.arun(job_actions.set_paused, check_name("queue", queue), False, actor())
        await self._anotify([queue])


def _count_new(some: BulkCount, revived: set[str], ids: Sequence[str], done: set[str]) -> BulkCount:
    """A page's count without the jobs that came along with an earlier page; adds to `done`."""
    new = revived - done
    done |= new
    return BulkCount.of(len(new), some.left, len(new.difference(ids)))


def _circuit(queue: str, task: str | None) -> tuple[str, str | None]:
    return check_name("queue", queue), None if task is None else check_name("task", task)
