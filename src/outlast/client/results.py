"""Results: wait for them, convert them to the return types of their tasks, erase them."""

from __future__ import annotations

import math
from typing import Any

from ..model.arguments import decode_result
from ..model.blob import Blob
from ..model.errors import BlobLost, InvalidOption, NoBlobStore
from ..model.ids import new_job_id
from ..model.job import Job, lenient_json
from ..ops import report
from ..ops.erase import erased_error, take_result
from ..ops.report import ERASED
from .base import actor, job_id
from .faces import Face
from .resources import ClientResources
from .result_waiter import outcome_of


async def outcome(on: Face, id: str, timeout: float | None) -> Any:
    """The result column of a job's row, once the job has ended."""
    return outcome_of(id, await on.job_end(id, timeout), timeout)


async def result(on: Face, id: str | Job, timeout: float | None, *, erase: bool, raw: bool) -> Any:
    """See `Outlast.result`."""
    _check_timeout(timeout)
    key = job_id(id.id if isinstance(id, Job) else id)
    stored = await outcome(on, key, timeout)

    def read() -> Any:
        return _typed(on.parts, id, _loaded(on.parts, key, stored), raw)

    try:
        value = await on.in_thread(read) if isinstance(stored, Blob) else read()  # may be large
    except BlobLost:
        if not (await on.run(report.job, key)).forgotten:
            raise
        value = ERASED  # erased since its row was read
    if value is ERASED:
        raise await on.run(erased_error, key)
    if erase:  # only now: a crash before this point erases nothing
        await on.delete_blobs(await on.run(take_result, key, actor(), new_job_id()))
    return value


def _check_timeout(timeout: object) -> None:
    if timeout is None or (isinstance(timeout, int | float) and not math.isnan(timeout)):
        return
    reason = f"must be a number of seconds, or None to wait until the job ends, not {timeout!r:.80}"
    raise InvalidOption(option="timeout", reason=reason)


def _loaded(parts: ClientResources, id: str, stored: object) -> Any:
    """A result, loaded from the blob store if the row refers to it."""
    if not isinstance(stored, Blob):
        return stored
    if parts.blobs is None:
        raise NoBlobStore(job=id, bytes=stored.size)
    return lenient_json(parts.blobs.text(id, stored))


def _typed(parts: ClientResources, job: str | Job, value: object, raw: bool) -> Any:
    """Convert the JSON value to the return type of the job's task, if this process has the task."""
    if raw or value is ERASED or not isinstance(job, Job):
        return value
    if (definition := parts.registry.get(job.task)) is None:
        return value
    return decode_result(value, definition.arguments.returns, job.id, job.task)
