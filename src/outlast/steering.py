"""The verbs that change a job's way: cancel it, give it a new life, pause its queue."""

from __future__ import annotations

from .connected import ANYWHERE, Connected, actor, job_id
from .model.ids import new_job_id
from .model.job import Job
from .model.lifecycle import State
from .model.options import check_name
from .ops import operate, report
from .ops.enqueue import CANCEL_SIGNAL
from .seeing import chosen


class SteeringVerbs(Connected):
    """Part of `Outlast`."""

    def cancel(self, id: str, reason: str = "") -> Job:
        """Cancel a queued job, or ask a running one to stop. Cancelling twice is one cancel."""
        job = self.store.run(operate.cancel, job_id(id), actor(), reason)
        self._wake([CANCEL_SIGNAL] if job.state is State.RUNNING else [])
        return job

    async def acancel(self, id: str, reason: str = "") -> Job:
        job = await self.store.arun(operate.cancel, job_id(id), actor(), reason)
        await self._awake([CANCEL_SIGNAL] if job.state is State.RUNNING else [])
        return job

    def retry(self, id: str) -> Job:
        """Give a dead or cancelled job a new life, all budgets full (a redrive)."""
        job = self.store.run(operate.redrive_one, job_id(id), actor())
        self._wake([job.queue])
        return job

    async def aretry(self, id: str) -> Job:
        job = await self.store.arun(operate.redrive_one, job_id(id), actor())
        await self._awake([job.queue])
        return job

    def retry_all(
        self,
        *,
        state: str = "dead",
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
    ) -> int:
        """Redrive every job that fits, in small transactions; run again, it just goes on."""
        which, cursor, action = chosen(state, queue, task, tenant), None, new_job_id()
        done: set[str] = set()
        while page := self.store.run(report.jobs, which, cursor, 500):
            ids = [job.id for job in page]
            done |= set(self.store.run(operate.redrive, ids, actor(), action))
            cursor = page[-1].id
        self._wake([ANYWHERE] if done else [])
        return len(done)

    async def aretry_all(
        self,
        *,
        state: str = "dead",
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
    ) -> int:
        which, cursor, action = chosen(state, queue, task, tenant), None, new_job_id()
        done: set[str] = set()
        while page := await self.store.arun(report.jobs, which, cursor, 500):
            ids = [job.id for job in page]
            done |= set(await self.store.arun(operate.redrive, ids, actor(), action))
            cursor = page[-1].id
        await self._awake([ANYWHERE] if done else [])
        return len(done)

    def pause(self, queue: str) -> None:
        """No more jobs of this queue are claimed; running ones go on. Survives restarts."""
        self.store.run(operate.set_paused, check_name("queue", queue), True, actor())

    async def apause(self, queue: str) -> None:
        await self.store.arun(operate.set_paused, check_name("queue", queue), True, actor())

    def resume(self, queue: str) -> None:
        self.store.run(operate.set_paused, check_name("queue", queue), False, actor())
        self._wake([queue])

    async def aresume(self, queue: str) -> None:
        await self.store.arun(operate.set_paused, check_name("queue", queue), False, actor())
        await self._awake([queue])
