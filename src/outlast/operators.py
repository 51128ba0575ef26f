"""What operators do: reclaim a job, drain a worker, forget and remove what has ended."""

from __future__ import annotations

from .connected import Connected, actor, job_id
from .model.errors import InvalidOption
from .model.job import Job
from .model.lifecycle import FINAL, State
from .model.options import check_name
from .model.options import seconds as span
from .ops.enqueue import CANCEL_SIGNAL
from .ops.forget import forget
from .ops.keep import set_keep
from .ops.purge import purge
from .ops.report import Filter, jobs
from .ops.seize import seize, set_draining

PAGE = 500


class OperatorVerbs(Connected):
    """Part of `Outlast`. All of it is on record, and doing it twice is doing it once."""

    def reclaim(self, id: str) -> Job:
        """Take a running job from its worker, whoever that is, and put it back unspent. The worker
        is told; what it still does with the job counts for nothing."""
        job = self.store.run(seize, job_id(id), actor())
        self._wake([CANCEL_SIGNAL, job.queue])
        return job

    async def areclaim(self, id: str) -> Job:
        job = await self.store.arun(seize, job_id(id), actor())
        await self._awake([CANCEL_SIGNAL, job.queue])
        return job

    def drain(self, worker: str, undo: bool = False) -> None:
        """A worker claims no more; what it runs goes on, and it stays until it is stopped. With
        `undo` it claims again."""
        self.store.run(set_draining, worker, not undo, actor())
        self._wake([CANCEL_SIGNAL])

    async def adrain(self, worker: str, undo: bool = False) -> None:
        await self.store.arun(set_draining, worker, not undo, actor())
        await self._awake([CANCEL_SIGNAL])

    def keep(self, queue: str, seconds: float | None) -> None:
        """Keep succeeded and cancelled jobs of a queue for so many seconds at the most, less than
        all others are; None: as long as those. Survives restarts."""
        given = check_name("queue", queue), span("keep", seconds), actor()
        self.store.run(set_keep, *given)

    async def akeep(self, queue: str, seconds: float | None) -> None:
        given = check_name("queue", queue), span("keep", seconds), actor()
        await self.store.arun(set_keep, *given)

    def forget(self, id: str) -> Job:
        """Erase what an ended job was given, gave and said; how it ended stays."""
        job, blobs = self.store.run(forget, job_id(id), actor())
        self._clear(blobs)
        return job

    async def aforget(self, id: str) -> Job:
        job, blobs = await self.store.arun(forget, job_id(id), actor())
        await self._aclear(blobs)
        return job

    def purge(
        self,
        *,
        state: str = "dead",
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
        older: float = 0.0,
    ) -> int:
        """Remove ended jobs that fit and ended so many seconds ago, in small transactions; run
        again, it just goes on. What a flow still needs stays."""
        which, told, age = _which(state, queue, task, tenant, older)
        cursor, done = None, 0
        while page := self.store.run(jobs, which, cursor, PAGE):
            gone = self.store.run(purge, [job.id for job in page], age, actor(), told)
            self._clear(gone.blobs)
            done += gone
            cursor = page[-1].id
        return done

    async def apurge(
        self,
        *,
        state: str = "dead",
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
        older: float = 0.0,
    ) -> int:
        which, told, age = _which(state, queue, task, tenant, older)
        cursor, done = None, 0
        while page := await self.store.arun(jobs, which, cursor, PAGE):
            gone = await self.store.arun(purge, [job.id for job in page], age, actor(), told)
            await self._aclear(gone.blobs)
            done += gone
            cursor = page[-1].id
        return done


def _which(
    state: str, queue: str | None, task: str | None, tenant: str | None, older: float
) -> tuple[Filter, dict[str, str | None], float]:
    if state not in FINAL:
        ended = ", ".join(one for one in State if one.final)
        raise InvalidOption(option="state", reason=f"must be one of {ended}: only these are over")
    told = {"state": str(state), "queue": queue, "task": task, "tenant": tenant}
    return Filter(str(state), queue, task, tenant), told, span("older", older) or 0.0
