"""Results: waited for, read as the types that their tasks return, and erased as they are read."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, TypeVar, overload

from ..model.arguments import decode_result
from ..model.blob import Blob
from ..model.errors import BlobLost
from ..model.ids import new_job_id
from ..model.job import Job
from ..model.task import Registry
from ..ops import report
from ..ops.erase import erased_error, take_result
from ..ops.report import ERASED
from .base import ClientBase, actor, job_id
from .result_waiter import ResultPoller, outcome_of

T = TypeVar("T")


class Results(ClientBase):
    """Part of `Outlast`."""

    registry: Registry
    _result_poller: ResultPoller

    @overload
    def result(
        self,
        id: Job[T],
        timeout: float | None = None,
        *,
        erase: bool = False,
        raw: Literal[False] = False,
    ) -> T: ...
    @overload
    def result(
        self, id: str, timeout: float | None = None, *, erase: bool = False, raw: bool = False
    ) -> Any: ...
    @overload
    def result(
        self, id: Job, timeout: float | None = None, *, erase: bool = False, raw: bool
    ) -> Any: ...

    def result(
        self,
        id: str | Job,
        timeout: float | None = None,
        *,
        erase: bool = False,
        raw: bool = False,
    ) -> Any:
        """Wait for a job and return its result. Raises JobDead, JobCancelled or ResultTimeout; and
        Erased, if it was forgotten. With `erase` it is forgotten as it is read: whoever asks first
        gets it, and nobody after.

        Of a job whose task is registered here, the result is of the type that the task is annotated
        to return; ResultMismatch, if it cannot be. With `raw`, or for an id, it is the JSON value.
        """
        key = job_id(id.id if isinstance(id, Job) else id)
        stored = outcome_of(key, self._result_poller.wait(key, timeout), timeout)
        try:
            value = self._read_result(id, self._value(key, stored), raw)
        except BlobLost:
            if not self.store.run(report.job, key).forgotten:
                raise
            value = ERASED  # since we saw its row
        if value is ERASED:
            raise self.store.run(erased_error, key)
        if erase:  # when we have it: who dies before has erased nothing
            self._delete_blobs(self.store.run(take_result, key, actor(), new_job_id()))
        return value

    @overload
    async def aresult(
        self,
        id: Job[T],
        timeout: float | None = None,
        *,
        erase: bool = False,
        raw: Literal[False] = False,
    ) -> T: ...
    @overload
    async def aresult(
        self, id: str, timeout: float | None = None, *, erase: bool = False, raw: bool = False
    ) -> Any: ...
    @overload
    async def aresult(
        self, id: Job, timeout: float | None = None, *, erase: bool = False, raw: bool
    ) -> Any: ...

    async def aresult(
        self,
        id: str | Job,
        timeout: float | None = None,
        *,
        erase: bool = False,
        raw: bool = False,
    ) -> Any:
        key = job_id(id.id if isinstance(id, Job) else id)
        stored = await self._aoutcome(key, timeout)
        try:
            if isinstance(stored, Blob):  # it may be large
                value = await asyncio.to_thread(
                    lambda: self._read_result(id, self._value(key, stored), raw)
                )
            else:
                value = self._read_result(id, stored, raw)
        except BlobLost:
            if not (await self.store.arun(report.job, key)).forgotten:
                raise
            value = ERASED
        if value is ERASED:
            raise await self.store.arun(erased_error, key)
        if erase:
            await self._adelete_blobs(
                await self.store.arun(take_result, key, actor(), new_job_id())
            )
        return value

    def _read_result(self, job: str | Job, value: Any, raw: bool) -> Any:
        """The JSON value as the type that the job's task returns, if this process knows that."""
        if raw or value is ERASED or not isinstance(job, Job):
            return value
        if (definition := self.registry.get(job.task)) is None:
            return value
        return decode_result(value, definition.arguments.returns, job.id, job.task)

    async def _aoutcome(self, id: str, timeout: float | None) -> Any:
        """What its row has for a result, once it has ended."""
        return outcome_of(id, await self._result_poller.await_(id, timeout), timeout)
