"""Results: waited for, read, and erased as they are read."""

from __future__ import annotations

from typing import Any

from .connected import Connected, actor, job_id
from .model.errors import BlobLost
from .model.ids import new_job_id
from .ops import report
from .ops.forget import erased, take_result
from .ops.report import FORGOTTEN
from .waiting import Waiting, outcome_of


class ResultVerbs(Connected):
    """Part of `Outlast`."""

    _waiting: Waiting

    def result(self, id: str, timeout: float | None = None, *, erase: bool = False) -> Any:
        """Wait for a job and return its result. Raises JobDead, JobCancelled or ResultTimeout; and
        Erased, if it was forgotten. With `erase` it is forgotten as it is read: whoever asks first
        gets it, and nobody after."""
        id = job_id(id)
        value = outcome_of(id, self._waiting.wait(id, timeout), timeout)
        try:
            value = self._value(id, value)
        except BlobLost:
            if not self.store.run(report.job, id).forgotten:
                raise
            value = FORGOTTEN  # since we saw its row
        if value is FORGOTTEN:
            raise self.store.run(erased, id)
        if erase:  # when we have it: who dies before has erased nothing
            self._clear(self.store.run(take_result, id, actor(), new_job_id()))
        return value

    async def aresult(self, id: str, timeout: float | None = None, *, erase: bool = False) -> Any:
        id = job_id(id)
        value = await self._aended(id, timeout)
        try:
            value = await self._avalue(id, value)
        except BlobLost:
            if not (await self.store.arun(report.job, id)).forgotten:
                raise
            value = FORGOTTEN
        if value is FORGOTTEN:
            raise await self.store.arun(erased, id)
        if erase:
            await self._aclear(await self.store.arun(take_result, id, actor(), new_job_id()))
        return value

    async def _aended(self, id: str, timeout: float | None) -> Any:
        """What its row has for a result, once it has ended."""
        return outcome_of(id, await self._waiting.await_(id, timeout), timeout)
