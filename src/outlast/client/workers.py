"""What operators do: reclaim a job, drain a worker, forget and remove what has ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model.bulk import BulkCount
from ..model.job import Job
from ..model.lifecycle import State
from ..model.options import check_name
from ..model.options import seconds as span
from ..ops.bulk import matching, purge_some
from ..ops.enqueue import CANCEL_SIGNAL
from ..ops.erase import erase
from ..ops.force_release import force_release, set_draining
from ..ops.report import Filter
from ..ops.retention import set_retention
from .base import PAGE_JOBS, ClientBase, actor, job_id
from .jobs import job_filter

PurgeRequest = tuple[
    Filter, dict[str, str | None], float
]  # which, as it goes on record, and how old


class Workers(ClientBase):
    """Part of `Outlast`. All of it is on record, and doing it twice is doing it once."""

    def reclaim(self, id: str) -> Job:
        """Take a running job from its worker, whoever that is, and put it back unspent. The worker
        is told; what it still does with the job counts for nothing."""
        job = self.store.run(force_release, job_id(id), actor())
        self._notify([CANCEL_SIGNAL, job.queue])
        return job

    async def areclaim(self, id: str) -> Job:
        job = await self.store.arun(force_release, job_id(id), actor())
        await self._anotify([CANCEL_SIGNAL, job.queue])
        return job

    def drain(self, worker: str, undo: bool = False) -> None:
        """A worker claims no more; what it runs goes on, and it stays until it is stopped. With
        `undo` it claims again."""
        self.store.run(set_draining, worker, not undo, actor())
        self._notify([CANCEL_SIGNAL])

    async def adrain(self, worker: str, undo: bool = False) -> None:
        await self.store.arun(set_draining, worker, not undo, actor())
        await self._anotify([CANCEL_SIGNAL])

    def keep(self, queue: str, seconds: float | None) -> None:
        """Keep succeeded and cancelled jobs of a queue for so many seconds at the most, less than
        all others are; None: as long as those. Survives restarts."""
        given = check_name("queue", queue), span("keep", seconds), actor()
        self.store.run(set_retention, *given)

    async def akeep(self, queue: str, seconds: float | None) -> None:
        given = check_name("queue", queue), span("keep", seconds), actor()
        await self.store.arun(set_retention, *given)

    def forget(self, id: str) -> Job:
        """Erase what an ended job was given, gave and said; how it ended stays."""
        job, blobs = self.store.run(erase, job_id(id), actor())
        self._delete_blobs(blobs)
        return job

    async def aforget(self, id: str) -> Job:
        job, blobs = await self.store.arun(erase, job_id(id), actor())
        await self._adelete_blobs(blobs)
        return job

    def purge(
        self,
        *,
        state: str = "dead",
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
        older: float = 0.0,
    ) -> BulkCount:
        """Remove ended jobs that fit and ended so many seconds ago, in small transactions; run
        again, it just goes on. What a flow still needs stays. Says how many, and why others that
        fitted were left alone."""
        which, _, _ = request = purge_request(state, queue, task, tenant, older)
        return self._purge_pages(self._pages(which), request)

    def _purge_pages(self, pages: Iterable[Sequence[str]], request: PurgeRequest) -> BulkCount:
        """The same for jobs that were found before."""
        which, selection, age = request
        counted = [BulkCount.of(0, {})]
        for ids in pages:
            params = ids, str(which.state), age, actor(), selection
            gone, some = self.store.run(purge_some, *params)
            self._delete_blobs(gone.blobs)
            counted.append(some)
        return BulkCount.sum(counted)

    async def apurge(
        self,
        *,
        state: str = "dead",
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
        older: float = 0.0,
    ) -> BulkCount:
        which, selection, age = purge_request(state, queue, task, tenant, older)
        cursor, counted = None, [BulkCount.of(0, {})]
        while ids := await self.store.arun(matching, which, cursor, PAGE_JOBS):
            params = ids, str(which.state), age, actor(), selection
            gone, some = await self.store.arun(purge_some, *params)
            await self._adelete_blobs(gone.blobs)
            counted.append(some)
            cursor = ids[-1]
        return BulkCount.sum(counted)


def purge_request(
    state: str, queue: str | None, task: str | None, tenant: str | None, older: float
) -> PurgeRequest:
    which = job_filter(state, queue, task, tenant, [one for one in State if one.final])
    selection = {"state": str(state), "queue": queue, "task": task, "tenant": tenant}
    return which, selection, span("older", older) or 0.0
